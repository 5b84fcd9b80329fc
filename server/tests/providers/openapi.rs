//! Requests and answers against what a vendor publishes of its API: as much of JSON Schema as those files use.
//!
//! The files are not part of this repository. Where they lie beside the checkout they are read; elsewhere what
//! stands here in our own words is checked alone.

use super::*;
use regex::Regex;

/// A published file, where it is there.
fn published(name: &str) -> Option<Value> {
    let beside = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../shared/specs").join(name);
    let text = std::fs::read_to_string(beside).ok()?;
    Some(serde_json::from_str(&text).expect("the file is JSON"))
}

/// Everything in which `value` is not what `schema` says; `at` names the place.
fn faults(root: &Value, schema: &Value, value: &Value, at: &str) -> Vec<String> {
    if let Some(name) = schema["$ref"].as_str() {
        let target = root.pointer(name.trim_start_matches('#'));
        return faults(root, target.expect("the reference leads somewhere"), value, at);
    }
    if let Some(kind) = schema["discriminator"]["propertyName"].as_str() {
        let word = value[kind].as_str().unwrap_or_default();
        let mapped = &schema["discriminator"]["mapping"][word];
        return match mapped.as_str() {
            Some(name) => faults(root, &json!({"$ref": name}), value, at),
            None => vec![format!("{at}.{kind}: unknown")],
        };
    }
    let is_kind = match schema["type"].as_str() {
        Some("object") => value.is_object(),
        Some("array") => value.is_array(),
        Some("string") => value.is_string(),
        Some("integer") => value.is_i64() || value.is_u64(),
        Some("boolean") => value.is_boolean(),
        _ => true,
    };
    if !is_kind {
        return if schema["nullable"] == json!(true) && value.is_null() {
            vec![]
        } else {
            vec![format!("{at}: not of type {}", schema["type"])]
        };
    }
    let mut found = Vec::new();
    if let Some(words) = schema["enum"].as_array()
        && !words.contains(value)
    {
        found.push(format!("{at}: not one of {words:?}"));
    }
    if let (Some(pattern), Some(text)) = (schema["pattern"].as_str(), value.as_str())
        && !Regex::new(pattern).expect("a pattern").is_match(text)
    {
        found.push(format!("{at}: does not match {pattern}"));
    }
    for name in schema["required"].as_array().into_iter().flatten().filter_map(Value::as_str) {
        if value.get(name).is_none() {
            found.push(format!("{at}.{name}: missing"));
        }
    }
    if let (Some(known), Some(fields)) = (schema["properties"].as_object(), value.as_object()) {
        for (name, field) in fields {
            match known.get(name) {
                Some(schema) => found.extend(faults(root, schema, field, &format!("{at}.{name}"))),
                None if schema["additionalProperties"].is_object() => {}
                // SendGrid's files require a field here and there that they do not describe.
                None if schema["required"]
                    .as_array()
                    .is_some_and(|it| it.contains(&json!(name))) => {}
                None => found.push(format!("{at}.{name}: unknown")),
            }
        }
    }
    for (number, item) in value.as_array().into_iter().flatten().enumerate() {
        found.extend(faults(root, &schema["items"], item, &format!("{at}[{number}]")));
    }
    found
}

fn fits(root: &Value, pointer: &str, value: &Value) {
    let schema = root.pointer(pointer).unwrap_or_else(|| panic!("nothing at {pointer}"));
    let found = faults(root, schema, value, "");
    assert!(found.is_empty(), "{found:#?}\n{value:#}");
}

#[test]
fn what_does_not_fit_is_found() {
    let root = json!({"s": {
        "type": "object", "required": ["a"],
        "properties": {"a": {"$ref": "#/t"}, "b": {"type": "array", "items": {"$ref": "#/t"}}},
    }, "t": {"type": "string", "enum": ["x"], "pattern": "^x$"}});
    let of = |value: Value| faults(&root, &root["s"], &value, "").len();
    assert_eq!(of(json!({"a": "x", "b": ["x"]})), 0);
    for bad in [
        json!([]),
        json!({}),
        json!({"a": 1}),
        json!({"a": "x", "c": 1}),
        json!({"a": "x", "b": [1]}),
    ] {
        assert_eq!(of(bad.clone()), 1, "{bad}");
    }
}

/// A SendGrid that asks the simulator, and what it wrote to somebody who only listens.
async fn sendgrid(base: &str) -> (Registry, Arc<dyn Provider>) {
    let text = format!(
        "[server]\ndata_dir = \"{}\"\n[providers.p]\nkind = \"sendgrid\"\nbase_url = \"{base}\"\n\
         api_key = \"k\"\nfrom = \"Example, Inc. <no-reply@example.com>\"\n",
        folder().display()
    );
    let registry =
        build(&config(&text), system(), Arc::new(SystemEntropy), transport()).await.unwrap();
    let provider = Arc::clone(registry.get("p").unwrap());
    (registry, provider)
}

fn parts_of(request: Vec<u8>) -> (String, Value) {
    let text = String::from_utf8(request).unwrap();
    let (head, body) = text.split_once("\r\n\r\n").unwrap();
    (head.to_ascii_lowercase(), serde_json::from_str(body).unwrap_or(Value::Null))
}

fn to_ann() -> Message {
    Message {
        channel: Channel::Email,
        to: secret("ann@example.com"),
        subject: Some("Example: Reset your password".to_owned()),
        html: Some(secret("<p>https://example.com/reset/t0ken</p>")),
        ..message("0123abcd")
    }
}

fn about_ann() -> Query {
    let to = Some(secret("ann@example.com"));
    Query { channel: Channel::Email, to, ..query("0123abcd") }
}

#[tokio::test]
async fn a_sendgrid_request_is_what_the_vendor_publishes_and_rewrites_no_link() {
    let bare = Bare::start(answer("202 Accepted", "")).await;
    let (_registry, provider) = sendgrid(&bare.url()).await;
    // Without an id in the answer it is not the vendor's: what matters here is what was asked.
    provider.send(&to_ann(), soon()).await;
    provider.find(&about_ann(), soon()).await;
    let mut requests = bare.requests().await.into_iter().map(parts_of);
    let (head, send) = requests.next().unwrap();
    assert!(head.starts_with("post /v3/mail/send http/1.1\r\n"), "{head}");
    assert!(head.contains("authorization: bearer k\r\n"), "{head}");
    let one = &send["personalizations"][0];
    assert_eq!(one["to"], json!([{"email": "ann@example.com"}]));
    assert_eq!(one["custom_args"], json!({"attempt_id": "0123abcd"}));
    assert_eq!(send["from"], json!({"email": "no-reply@example.com", "name": "Example, Inc."}));
    let kinds: Vec<&Value> =
        send["content"].as_array().unwrap().iter().map(|content| &content["type"]).collect();
    assert_eq!(kinds, [&json!("text/plain"), &json!("text/html")]);
    for tracking in ["click_tracking", "open_tracking", "subscription_tracking"] {
        assert_eq!(send["tracking_settings"][tracking]["enable"], json!(false), "{tracking}");
    }
    // Nothing that would send it later, or not at all.
    for name in ["send_at", "batch_id", "mail_settings"] {
        assert!(send.get(name).is_none() && one.get(name).is_none(), "{name}");
    }
    let (head, list) = requests.next().unwrap();
    assert!(head.starts_with("post /v3/logs http/1.1\r\n"), "{head}");
    assert_eq!(list["limit"], json!(1000));
    let words = list["query"].as_str().unwrap();
    assert!(words.starts_with("to_email = \"ann@example.com\" AND "), "{words}");
    if let Some(mail) = published("sendgrid_tsg_mail_v3.json") {
        let body = "/components/requestBodies/PostMailSend/content/application~1json/schema";
        fits(&mail, body, &send);
        assert!(mail.pointer("/paths/~1v3~1mail~1send/post/responses/202").is_some());
    }
    if let Some(logs) = published("sendgrid_tsg_logs_v3.json") {
        fits(&logs, "/components/schemas/EmailLogsGetMessagesByFilterRequest", &list);
    }
}

#[tokio::test]
async fn the_simulators_sendgrid_answers_as_the_vendor_publishes() {
    let sim = Sim::start(Settings::default()).await;
    let base = format!("{}/sendgrid", sim.base);
    let (_registry, provider) = sendgrid(&base).await;
    assert!(matches!(provider.send(&to_ann(), soon()).await, Verdict::Accepted { .. }));
    let call = async |mut request: Request<Bytes>| {
        request.headers_mut().insert("authorization", HeaderValue::from_static("Bearer k"));
        let response = transport().exchange(request, soon()).await.unwrap();
        let body: Value = serde_json::from_slice(response.body()).unwrap_or(Value::Null);
        (response.status().as_u16(), body)
    };
    let list = json!({"query": "to_email = \"ann@example.com\""}).to_string();
    let (status, page) = call(post(&format!("{base}/v3/logs"), &list)).await;
    let id = page["messages"][0]["sg_message_id"].as_str().unwrap().to_owned();
    assert_eq!((status, page["messages"].as_array().map(Vec::len)), (200, Some(1)));
    let (status, details) = call(get(&format!("{base}/v3/logs/{id}"))).await;
    assert_eq!((status, &details["custom_args"]), (200, &json!({"attempt_id": "0123abcd"})));
    let (status, missing) = call(get(&format!("{base}/v3/logs/nothing"))).await;
    assert_eq!(status, 404);
    let (status, refused) = call(post(&format!("{base}/v3/mail/send"), "{}")).await;
    assert_eq!(status, 400);
    let settings = format!("{base}/v3/user/webhooks/event/settings/signed/h00k");
    let (status, webhook) = call(get(&settings)).await;
    assert_eq!(status, 200);
    assert_eq!(webhook["public_key"], json!(simulator::sendgrid_public_key(&secret("h00k"))));
    if let Some(logs) = published("sendgrid_tsg_logs_v3.json") {
        fits(&logs, "/components/schemas/EmailLogsGetMessagesByFilterResponse", &page);
        fits(&logs, "/components/schemas/EmailLogsGetMessageByIdResponse", &details);
        fits(&logs, "/components/schemas/ErrorResponse", &missing);
    }
    if let Some(mail) = published("sendgrid_tsg_mail_v3.json") {
        fits(&mail, "/components/schemas/ErrorResponse", &refused);
    }
    if let Some(webhooks) = published("sendgrid_tsg_webhooks_v3.json") {
        let answer = "/paths/~1v3~1user~1webhooks~1event~1settings~1signed~1{id}/get/responses/200\
                      /content/application~1json/schema";
        fits(&webhooks, answer, &webhook);
    }
}
