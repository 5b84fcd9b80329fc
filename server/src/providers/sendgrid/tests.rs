use super::*;
use crate::providers::http::ambiguous;

/// Published with the vendor's own libraries: key, time, body, signature.
const PUBLISHED: [[&str; 4]; 2] = [
    [
        "MFkwEwYHKoZIzj0CAQYIKoZIzj0DAQcDQgAE83T4O/n84iotIvIW4mdBgQ/7dAfSmpqIM8kF9mN1flpVKS3GRqe62gw+2fNNRaINXvVpiglSI8eNEc6wEA3F+g==",
        "1600112502",
        "[{\"email\":\"hello@world.com\",\"event\":\"dropped\",\"reason\":\"Bounced Address\",\"sg_event_id\":\"ZHJvcC0xMDk5NDkxOS1MUnpYbF9OSFN0T0doUTRrb2ZTbV9BLTA\",\"sg_message_id\":\"LRzXl_NHStOGhQ4kofSm_A.filterdrecv-p3mdw1-756b745b58-kmzbl-18-5F5FC76C-9.0\",\"smtp-id\":\"<LRzXl_NHStOGhQ4kofSm_A@ismtpd0039p1iad1.sendgrid.net>\",\"timestamp\":1600112492}]\r\n",
        "MEUCIGHQVtGj+Y3LkG9fLcxf3qfI10QysgDWmMOVmxG0u6ZUAiEAyBiXDWzM+uOe5W0JuG+luQAbPIqHh89M15TluLtEZtM=",
    ],
    [
        "MFkwEwYHKoZIzj0CAQYIKoZIzj0DAQcDQgAEQ4LIFtWztlsF7skFqOncjD1lun4H5w8XOhyOArHW9RcIx/FfEzx6cikC/yPfUvwaX/JScE7Fc9CJD2afQ9Ok3Q==",
        "1619651159",
        "[{\"email\":\"invalid@gmail.com\",\"event\":\"processed\",\"send_at\":0,\"sg_event_id\":\"cHJvY2Vzc2VkLTE5OTQyMTEyLXFOd0JMZ1BRUWpXNkRKdktRd1NBYnctMA\",\"sg_message_id\":\"qNwBLgPQQjW6DJvKQwSAbw.filterdrecv-canary-547b64655b-cw6zx-1-6089EA4A-56.0\",\"smtp-id\":\"<qNwBLgPQQjW6DJvKQwSAbw@ismtpd0178p1mdw1.sendgrid.net>\",\"timestamp\":1619651146},\r\n{\"email\":\"invalid@gmail.com\",\"event\":\"bounce\",\"ip\":\"167.89.101.76\",\"reason\":\"552 5.2.2 The email account that you tried to reach is over quota and inactive. Please direct the recipient to https://support.google.com/mail/?p=OverQuotaPerm c17si1130468pgv.34 - gsmtp\",\"sg_event_id\":\"Ym91bmNlLTAtMTk5NDIxMTItcU53QkxnUFFRalc2REp2S1F3U0Fidy0w\",\"sg_message_id\":\"qNwBLgPQQjW6DJvKQwSAbw.filterdrecv-canary-547b64655b-cw6zx-1-6089EA4A-56.0\",\"smtp-id\":\"<qNwBLgPQQjW6DJvKQwSAbw@ismtpd0178p1mdw1.sendgrid.net>\",\"status\":\"5.2.2\",\"timestamp\":1619651147,\"tls\":1,\"type\":\"blocked\"}]\r\n",
        "MEYCIQC/I4o6vCgqRYrTljjoVWB/GRWNtxeePlLMHr3x9ETeRQIhAIpV+03nREPTTHWSW0wIOA0EoMPdcNgXa70yCaqDJlu5",
    ],
];

/// Another key and another signature of the same libraries, neither of which fits the first vector.
const OTHER_KEY: &str = "MFkwEwYHKoZIzj0CAQYIKoZIzj0DAQcDQgAEqTxd43gyp8IOEto2LdIfjRQrIbsd4SXZkLW6jDutdhXSJCWHw8REntlo7aNDthvj+y7GjUuFDb/R1NGe1OPzpA==";
const OTHER_SIGNATURE: &str = "MEUCIQCtIHJeH93Y+qpYeWrySphQgpNGNr/U+UyUlBkU6n7RAwIgJTz2C+8a8xonZGi6BpSzoQsbVRamr2nlxFDWYNH3j/0=";

#[test]
fn the_published_signatures_verify_and_each_changed_byte_is_refused() {
    for [key, time, body, signature] in PUBLISHED {
        let point = public_key(key).unwrap();
        assert!(is_signed(&point, time, body.as_bytes(), signature));
        for at in 0..body.len() {
            let mut changed = body.as_bytes().to_vec();
            changed[at] ^= 1;
            assert!(!is_signed(&point, time, &changed, signature), "byte {at} of the body");
        }
        for at in 0..time.len() {
            let mut changed = time.as_bytes().to_vec();
            changed[at] ^= 1;
            let changed = String::from_utf8(changed).unwrap();
            assert!(
                !is_signed(&point, &changed, body.as_bytes(), signature),
                "byte {at} of the time"
            );
        }
        let der = STANDARD.decode(signature).unwrap();
        for at in 0..der.len() {
            let mut changed = der.clone();
            changed[at] ^= 1;
            let changed = STANDARD.encode(changed);
            assert!(
                !is_signed(&point, time, body.as_bytes(), &changed),
                "byte {at} of the signature"
            );
        }
        for at in 1..point.len() {
            let mut changed = point.clone();
            changed[at] ^= 1;
            assert!(!is_signed(&changed, time, body.as_bytes(), signature), "byte {at} of the key");
        }
        // The closing line break is part of what is signed.
        assert!(!is_signed(&point, time, body.trim_end().as_bytes(), signature));
    }
    let [key, time, body, signature] = PUBLISHED[0];
    let body = body.as_bytes();
    assert!(!is_signed(&public_key(OTHER_KEY).unwrap(), time, body, signature));
    assert!(!is_signed(&public_key(key).unwrap(), time, body, OTHER_SIGNATURE));
    assert!(!is_signed(&public_key(key).unwrap(), time, body, "no base64"));
}

#[test]
fn a_webhook_key_is_base64_or_pem_of_a_p256_key_and_nothing_else() {
    let [key, ..] = PUBLISHED[0];
    let pem = format!(
        "-----BEGIN PUBLIC KEY-----\n{}\n{}\n-----END PUBLIC KEY-----\n",
        &key[..64],
        &key[64..]
    );
    assert_eq!(public_key(&pem), public_key(key));
    let short = STANDARD.encode(&STANDARD.decode(key).unwrap()[..90]);
    for bad in ["", "secret", &key[4..], &short] {
        assert_eq!(public_key(bad), None, "{bad}");
    }
}

#[test]
fn each_answer_has_one_verdict() {
    let answer = |status: u16, id: Option<&str>| {
        let mut builder = Response::builder().status(status);
        if let Some(id) = id {
            builder = builder.header(MESSAGE_ID_HEADER, id);
        }
        let body =
            Bytes::from_static(br#"{"errors":[{"message":"ann@example.com","field":null}]}"#);
        let to = Secret::new("ann@example.com".to_owned());
        judge(&builder.body(body).unwrap(), &to, Stamp::from_micros(0))
    };
    let id = "LRzXl_NHStOGhQ4kofSm_A";
    let taken = Verdict::Accepted { message_id: Some(id.to_owned()) };
    assert_eq!(answer(202, Some(id)), taken);
    assert_eq!(answer(202, Some(&format!("{id}.recvd-1"))), taken);
    assert_eq!(answer(202, None), ambiguous("http_202_without_id".to_owned()));
    for status in [400, 413] {
        let code = format!("http_{status}");
        assert_eq!(answer(status, None), Verdict::RefusedPermanently { code });
    }
    for status in [401, 403, 404, 405, 406, 451] {
        let code = format!("http_{status}");
        assert_eq!(answer(status, None), Verdict::ProviderStopped { code });
    }
    assert_eq!(answer(429, None), Verdict::RateLimited { retry_at: None });
    for status in [200, 201, 204, 302, 408, 409, 422, 500, 502, 503, 504] {
        assert_eq!(answer(status, Some(id)), ambiguous(format!("http_{status}")), "{status}");
    }
}

#[test]
fn an_event_counts_for_our_attempt_alone() {
    let of = |text: &str| serde_json::from_str::<Event>(text).unwrap().receipt();
    let event = |kind: &str, more: &str| {
        of(&format!(
            r#"{{"event":"{kind}","attempt_id":"a1","email":"ann@example.com","timestamp":1600112492,
                "sg_message_id":"LRzXl_NHStOGhQ4kofSm_A.filterdrecv-p3mdw1.0","sg_event_id":"e"{more}}}"#
        ))
    };
    let receipt = |seen, cause| {
        Some(Receipt {
            attempt_id: Some("a1".to_owned()),
            message_id: Some("LRzXl_NHStOGhQ4kofSm_A".to_owned()),
            seen,
            cause,
            at: Some(Stamp::parse("2020-09-14T19:41:32Z").unwrap()),
        })
    };
    assert_eq!(event("processed", ""), receipt(Seen::Accepted, None));
    assert_eq!(event("delivered", ""), receipt(Seen::Delivered, None));
    let bounced = receipt(Seen::Failed, Some(Cause::Bounced));
    assert_eq!(event("bounce", r#","type":"bounce""#), bounced);
    let blocked = receipt(Seen::Failed, Some(Cause::SoftBounced));
    assert_eq!(event("bounce", r#","type":"blocked""#), blocked);
    assert_eq!(event("dropped", ""), receipt(Seen::Failed, Some(Cause::Suppressed)));
    assert_eq!(event("open", ""), receipt(Seen::Delivered, Some(Cause::Opened)));
    for silent in ["deferred", "group_resubscribe", "something"] {
        assert_eq!(event(silent, ""), None, "{silent}");
    }
    for foreign in [
        r#"{"event":"delivered"}"#,
        r#"{"event":"delivered","attempt_id":7}"#,
        r#"{"event":"delivered","attempt_id":"ann@example.com"}"#,
    ] {
        assert_eq!(of(foreign), None, "{foreign}");
    }
}

#[test]
fn a_recipient_is_searched_for_in_each_spelling_the_vendor_may_have_kept() {
    let of = |to: &str| spellings(to).map(|all| all.into_iter().collect::<Vec<_>>().join(" "));
    assert_eq!(of("ann@example.com").as_deref(), Some("ann@example.com"));
    let all = "Ann@Example.com Ann@example.com ann@example.com";
    assert_eq!(of("Ann@Example.com").as_deref(), Some(all));
    for bad in ["\"a b\"@example.com", "a\\b@example.com", "nobody"] {
        assert_eq!(of(bad), None, "{bad}");
    }
}
