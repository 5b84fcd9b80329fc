//! The pages as HTML: the contract's names are there, nothing breaks the content security policy, and no
//! page shows a number that is none.
//!
//! With `SENDONCE_PAGES_DIR` set, each page is also written there, to be looked at in a browser.

use leptos::prelude::*;

use super::samples;
use crate::model::*;

fn options() -> LeptosOptions {
    LeptosOptions::builder().output_name("sendonce").build()
}

fn html(view: impl FnOnce() -> AnyView) -> String {
    Owner::new().with(|| view().to_html())
}

/// What a reader gets: without scripts, and without the markers that hydration walks over.
fn plain(html: &str) -> String {
    let mut out = String::with_capacity(html.len());
    for (i, part) in html.split("<script").enumerate() {
        let rest = part.split_once("</script>").map_or(part, |(_, rest)| rest);
        out.push_str(if i == 0 { part } else { rest });
    }
    out.replace("<!>", "").replace("<!---->", "")
}

/// Every page in the states worth seeing, by name.
fn gallery() -> Vec<(&'static str, String)> {
    use Role::{Admin, Compliance, Oncall, Support};
    let f = samples::frame;
    let any = |view: &dyn Fn() -> AnyView| html(view);
    let freeze = |role, active: Vec<FreezeView>, form: FormState| {
        let frame = Frame { frozen: active.clone(), ..f(role, "/freeze") };
        let data = samples::freeze(active, role == Oncall);
        html(move || super::freeze(frame, data, form, options()).into_any())
    };
    let done = FormState {
        notice: Some("Frozen: provider northgate-sms. 4 calls were in flight.".to_owned()),
        ..FormState::default()
    };
    let nothing = EventFilter::default();
    let narrow = EventFilter {
        q: "ev-ffff".to_owned(),
        state: Some(State::Expired),
        seller: Some("seller_1".to_owned()),
        ..EventFilter::default()
    };
    let overdue = {
        let mut view = samples::freeze_view("channel:email");
        view.freeze.review_at = Some(samples::now().plus(-300_000_000));
        view.waiting = Capped::default();
        view
    };
    vec![
        ("login", any(&|| super::login(samples::login(false)).into_any())),
        ("login-wrong", any(&|| super::login(samples::login(true)).into_any())),
        (
            "overview",
            any(&|| super::overview(f(Admin, "/"), samples::overview(), options()).into_any()),
        ),
        (
            "overview-empty",
            any(&|| {
                let frame = Frame {
                    unknown_count: Capped::default(),
                    environment: "development".to_owned(),
                    ..f(Support, "/")
                };
                super::overview(frame, samples::empty_overview(), options()).into_any()
            }),
        ),
        (
            "events",
            any(&|| super::events(f(Support, "/events"), samples::events(), options()).into_any()),
        ),
        (
            "events-none",
            any(&|| {
                super::events(f(Support, "/events"), samples::no_events(nothing.clone()), options())
                    .into_any()
            }),
        ),
        (
            "events-narrow",
            any(&|| {
                super::events(f(Support, "/events"), samples::no_events(narrow.clone()), options())
                    .into_any()
            }),
        ),
        (
            "events-personal",
            any(&|| {
                let data = EventsPage {
                    has_personal_data: true,
                    ..samples::no_events(EventFilter::default())
                };
                super::events(f(Support, "/events"), data, options()).into_any()
            }),
        ),
        (
            "event-unknown",
            any(&|| {
                super::event(
                    samples::frozen_frame(Oncall, "/events/1"),
                    samples::event_unknown(),
                    options(),
                )
                .into_any()
            }),
        ),
        (
            "event-sent",
            any(&|| {
                super::event(f(Compliance, "/events/1"), samples::event_sent(), options())
                    .into_any()
            }),
        ),
        (
            "event-new",
            any(&|| {
                super::event(f(Support, "/events/1"), samples::event_new(), options()).into_any()
            }),
        ),
        (
            "policy",
            any(&|| {
                let form = FormState {
                    problem: Some("Nothing was done.".to_owned()),
                    fields: vec![("reason".to_owned(), "Say why.".to_owned())],
                    typed: vec![("country".to_owned(), "LV".to_owned())],
                    notice: None,
                };
                super::policy(f(Oncall, "/policy"), samples::policy(true), form, options())
                    .into_any()
            }),
        ),
        (
            "policy-reader",
            any(&|| {
                let data = samples::policy(false);
                super::policy(f(Support, "/policy"), data, FormState::default(), options())
                    .into_any()
            }),
        ),
        (
            "seller",
            any(&|| {
                super::seller(f(Support, "/sellers/s"), samples::seller(), options()).into_any()
            }),
        ),
        (
            "seller-none",
            any(&|| {
                let data = SellerPage {
                    rows: Vec::new(),
                    next_cursor: None,
                    total: Capped::default(),
                    ..samples::seller()
                };
                super::seller(f(Support, "/sellers/s"), data, options()).into_any()
            }),
        ),
        (
            "unknown",
            any(&|| {
                super::unknown(
                    samples::frozen_frame(Oncall, "/unknown"),
                    samples::unknown(),
                    options(),
                )
                .into_any()
            }),
        ),
        (
            "unknown-none",
            any(&|| {
                super::unknown(f(Oncall, "/unknown"), samples::no_unknown(), options()).into_any()
            }),
        ),
        ("freeze", freeze(Oncall, Vec::new(), FormState::default())),
        (
            "freeze-active",
            freeze(Oncall, vec![samples::freeze_view("provider:northgate-sms")], done),
        ),
        (
            "freeze-two",
            freeze(
                Oncall,
                vec![samples::freeze_view("provider:northgate-sms"), overdue],
                FormState::default(),
            ),
        ),
        ("freeze-refused", freeze(Oncall, Vec::new(), samples::refused_form())),
        ("freeze-reader", freeze(Support, vec![samples::freeze_view("all")], FormState::default())),
        (
            "providers",
            any(&|| {
                super::providers(f(Support, "/providers"), samples::providers(), options())
                    .into_any()
            }),
        ),
        ("slo", any(&|| super::slo(f(Support, "/slo"), samples::slo(true), options()).into_any())),
        (
            "capacity",
            any(&|| {
                super::capacity(f(Oncall, "/capacity"), samples::capacity(), options()).into_any()
            }),
        ),
        (
            "slo-empty",
            any(&|| super::slo(f(Oncall, "/slo"), samples::slo(false), options()).into_any()),
        ),
        (
            "alerts",
            any(&|| {
                let form = FormState {
                    problem: Some("Nothing was done.".to_owned()),
                    fields: vec![("reason".to_owned(), "Say what you know.".to_owned())],
                    typed: vec![
                        ("alert".to_owned(), "al-queue_age-firing".to_owned()),
                        ("reason".to_owned(), "<b>".to_owned()),
                    ],
                    notice: None,
                };
                super::alerts(f(Oncall, "/alerts"), samples::alerts(true), form, options())
                    .into_any()
            }),
        ),
        (
            "alerts-read",
            any(&|| {
                let data = samples::alerts(false);
                super::alerts(f(Support, "/alerts"), data, FormState::default(), options())
                    .into_any()
            }),
        ),
        (
            "alerts-none",
            any(&|| {
                let data = AlertsPage::default();
                super::alerts(f(Support, "/alerts"), data, FormState::default(), options())
                    .into_any()
            }),
        ),
        (
            "runbook",
            any(&|| {
                super::runbook(f(Support, "/runbook"), samples::runbook(), options()).into_any()
            }),
        ),
        (
            "workers",
            any(&|| {
                super::workers(f(Support, "/workers"), samples::workers(), options()).into_any()
            }),
        ),
        (
            "users",
            any(&|| super::users(f(Admin, "/admin/users"), samples::users(), options()).into_any()),
        ),
        (
            "clients",
            any(&|| {
                super::clients(f(Admin, "/admin/clients"), samples::clients(), options()).into_any()
            }),
        ),
        (
            "users-made",
            any(&|| {
                let shown = ShownOnce {
                    of: "new@example.com".to_owned(),
                    secret: "aaaaa-bbbbb".to_owned(),
                };
                let data = UsersPage { shown_once: Some(shown), ..samples::users() };
                super::users(f(Admin, "/admin/users"), data, options()).into_any()
            }),
        ),
        (
            "clients-none",
            any(&|| {
                let data = ClientsPage { rows: Vec::new(), ..samples::clients() };
                super::clients(f(Admin, "/admin/clients"), data, options()).into_any()
            }),
        ),
        (
            "config",
            any(&|| {
                super::config(f(Admin, "/admin/config"), samples::config(), options()).into_any()
            }),
        ),
        (
            "account",
            any(&|| {
                super::account(f(Support, "/account"), samples::account(None), options()).into_any()
            }),
        ),
        (
            "account-enrolling",
            any(&|| {
                super::account(f(Support, "/account"), samples::factor_enrolling(), options())
                    .into_any()
            }),
        ),
        (
            "account-factor",
            any(&|| {
                super::account(f(Support, "/account"), samples::factor_on(), options()).into_any()
            }),
        ),
        (
            "evidence",
            any(&|| {
                let (data, form) = (samples::evidence(), FormState::default());
                super::evidence(f(Compliance, "/evidence"), data, form, options()).into_any()
            }),
        ),
        (
            "evidence-none",
            any(&|| {
                let (data, form) = (EvidencePage::default(), FormState::default());
                super::evidence(f(Compliance, "/evidence"), data, form, options()).into_any()
            }),
        ),
        ("log", any(&|| super::log(f(Compliance, "/log"), samples::log(), options()).into_any())),
        (
            "log-none",
            any(&|| super::log(f(Compliance, "/log"), LogPage::default(), options()).into_any()),
        ),
        (
            "lookup",
            any(&|| {
                super::lookup(f(Support, "/lookup"), LookupPage::default(), options()).into_any()
            }),
        ),
        (
            "lookup-found",
            any(&|| {
                super::lookup(f(Support, "/lookup"), samples::lookup(true), options()).into_any()
            }),
        ),
        (
            "lookup-nothing",
            any(&|| {
                super::lookup(f(Support, "/lookup"), samples::lookup(false), options()).into_any()
            }),
        ),
        (
            "login-code",
            any(&|| {
                let data = LoginPage { pending: Some("p".to_owned()), ..samples::login(false) };
                super::login(data).into_any()
            }),
        ),
        ("setup", any(&|| super::setup(samples::setup()).into_any())),
        (
            "403",
            any(&|| {
                let refusal = Refusal::Forbidden { permission: Permission::Administer };
                super::refusal(f(Support, "/admin/users"), &refusal, options()).into_any()
            }),
        ),
        (
            "404",
            any(&|| {
                super::refusal(
                    samples::frozen_frame(Support, "/nowhere"),
                    &Refusal::NotFound,
                    options(),
                )
                .into_any()
            }),
        ),
        (
            "500",
            any(&|| {
                super::refusal_signed_out(&Refusal::Broken { error_id: "err-01HV3Q".to_owned() })
                    .into_any()
            }),
        ),
        (
            "503",
            any(&|| super::refusal_signed_out(&Refusal::Unavailable { error_id: None }).into_any()),
        ),
    ]
}

fn shown(name: &str) -> String {
    gallery()
        .into_iter()
        .find(|(other, _)| *other == name)
        .map(|(_, html)| plain(&html))
        .unwrap_or_default()
}

fn occurrences(html: &str, needle: &str) -> usize {
    html.matches(needle).count()
}

#[test]
fn every_page_is_a_whole_document_that_the_security_policy_lets_through() {
    if let Some(dir) = std::env::var_os("SENDONCE_PAGES_DIR") {
        for (name, html) in gallery() {
            std::fs::write(std::path::Path::new(&dir).join(format!("{name}.html")), html)
                .expect("the folder can be written");
        }
    }
    for (name, html) in gallery() {
        assert!(html.to_ascii_lowercase().starts_with("<!doctype html>"), "{name}");
        assert!(html.contains(r#"<html lang="en">"#), "{name}");
        assert!(!html.contains(" style="), "{name}: an inline style");
        assert!(
            !html.contains(" onclick=") && !html.contains("javascript:"),
            "{name}: an inline script"
        );
        let plain = plain(&html);
        for word in ["NaN", "undefined", "null", "Some(", "None,"] {
            assert!(!plain.contains(word), "{name}: {word}");
        }
        let title = html
            .split("<title>")
            .nth(1)
            .and_then(|rest| rest.split("</title>").next())
            .unwrap_or_default();
        assert!(title.contains(" · sendonce") && !title.contains('<'), "{name}: {title}");
        assert!(
            !html.contains("<textarea") || !html.contains("<!></textarea>"),
            "{name}: a marker in a field"
        );
        assert_eq!(occurrences(&html, "<h1"), 1, "{name}: one heading of the page");
        assert_eq!(occurrences(&html, r#"<main id="main""#), 1, "{name}");
    }
}

#[test]
fn every_id_on_a_page_is_there_once_and_every_reference_is_met() {
    for (name, html) in gallery() {
        let values = |attribute: &str| -> Vec<String> {
            html.split(&format!(" {attribute}=\""))
                .skip(1)
                .filter_map(|rest| rest.split('"').next())
                .map(str::to_owned)
                .collect()
        };
        let ids = values("id");
        for (i, id) in ids.iter().enumerate() {
            assert!(!ids[..i].contains(id), "{name}: id {id} twice");
        }
        for attribute in ["for", "aria-labelledby", "aria-describedby", "popovertarget"] {
            for reference in values(attribute).iter().flat_map(|value| value.split(' ')) {
                assert!(
                    ids.iter().any(|id| id == reference),
                    "{name}: {attribute}={reference} points nowhere"
                );
            }
        }
        for reference in values("href").iter().filter_map(|href| href.strip_prefix('#')) {
            assert!(ids.iter().any(|id| id == reference), "{name}: #{reference} points nowhere");
        }
    }
}

#[test]
fn each_live_region_of_a_page_has_a_name_of_its_own() {
    for (name, html) in gallery() {
        let mut seen = std::collections::BTreeSet::new();
        for region in html.split(r#"data-live=""#).skip(1).filter_map(|rest| rest.split('"').next())
        {
            assert!(seen.insert(region), "{name}: {region} twice");
        }
        assert_eq!(
            html.contains("<leptos-island"),
            html.contains("sendonce_bg.wasm"),
            "{name}: bundle and islands"
        );
    }
}

#[test]
fn there_is_exactly_one_search_box_where_somebody_is_signed_in() {
    for (name, html) in gallery() {
        let wanted = usize::from(!matches!(
            name,
            "login" | "login-wrong" | "login-code" | "setup" | "500" | "503"
        ));
        assert_eq!(occurrences(&html, "Search events</label>"), wanted, "{name}");
        // Posted: an address typed by mistake must not become part of a URL.
        assert_eq!(occurrences(&html, r#"role="search" method="post""#), wanted, "{name}");
    }
}

#[test]
fn every_form_that_posts_carries_the_token_of_the_session() {
    for (name, html) in gallery() {
        let forms = html.split("<form").skip(1).filter_map(|rest| rest.split("</form>").next());
        for form in forms.filter(|form| form.contains(r#"method="post""#)) {
            assert!(form.contains(r#"name="csrf" value="csrf-token""#), "{name}: {form}");
        }
    }
}

#[test]
fn every_state_is_an_icon_and_a_word() {
    let html = shown("events");
    for state in State::ALL {
        let badge = format!(
            r##"<span data-state="{state}" class="state"><svg viewBox="0 0 16 16" aria-hidden="true" class="ic"><use href="#i-{state}"></use></svg>{state}</span>"##
        );
        assert!(html.contains(&badge), "{state}");
    }
}

#[test]
fn the_event_page_has_the_contract_regions() {
    let html = shown("event-unknown");
    for name in ["Timeline", "Attempts", "Answer for support", "Duplicate proof"] {
        let (_, after) = html.split_once(&format!(">{name}</h2>")).unwrap_or_default();
        assert!(!after.is_empty(), "{name}");
        let before = &html[..html.len() - after.len()];
        let id = before
            .rsplit(r#"<h2 id=""#)
            .next()
            .and_then(|rest| rest.split('"').next())
            .unwrap_or_default();
        assert!(html.contains(&format!(r#"aria-labelledby="{id}""#)), "{name}: {id}");
    }
    assert!(html.contains("ev-7f3a9c21"));
    for seq in 1..=17 {
        assert!(html.contains(&format!(r#"id="fact-{seq}""#)), "fact {seq} can be linked to");
    }
    // Cancelling is for the caller, by the API.
    assert!(!html.contains("Cancel"));
}

#[test]
fn while_anything_is_frozen_every_page_says_so() {
    for name in ["event-unknown", "unknown", "404", "freeze-active", "freeze-reader"] {
        let html = shown(name);
        assert_eq!(
            occurrences(&html, r#"role="region" aria-label="Dispatch frozen""#),
            1,
            "{name}"
        );
        for word in ["INC-2291", "operator:op_2", "Since"] {
            assert!(html.contains(word), "{name}: {word}");
        }
    }
    assert!(!shown("overview").contains(r#"aria-label="Dispatch frozen""#));
}

#[test]
fn the_freeze_desk_has_its_names_and_keeps_what_was_typed() {
    let html = shown("freeze");
    assert!(html.contains(r#"<label for="reason">Reason</label>"#));
    assert!(html.contains("Freeze dispatch</button>"));
    assert!(!html.contains("Reopen dispatch"));
    let active = shown("freeze-active");
    assert!(active.contains("Reopen dispatch"));
    assert!(active.contains("Reason for reopening"));
    assert!(active.contains(r#"role="status""#));
    let refused = shown("freeze-refused");
    assert!(refused.contains("INC-2291, call the number in the ticket"));
    assert!(refused.contains(r#"role="alert""#) && refused.contains(r#"aria-invalid="true""#));
    assert!(!refused.contains("<leptos-island"), "a refused form is not refreshed away");
    let reader = shown("freeze-reader");
    assert!(reader.contains("Only the roles on-call and admin may do this."));
    assert!(!reader.contains("Freeze dispatch</button>") && !reader.contains("Reopen dispatch"));
}

#[test]
fn sign_in_has_its_names_keeps_the_email_and_never_the_password() {
    let html = shown("login-wrong");
    assert!(html.contains(r#"<label for="email">Email</label>"#));
    assert!(html.contains(r#"<label for="password">Password</label>"#));
    assert!(html.contains("Sign in</button>"));
    assert!(html.contains(r#"value="someone@example.com""#));
    assert!(html.contains(r#"name="next" value="/events?state=sent""#));
    assert!(html.contains(r#"role="alert""#));
    let password = html
        .split(r#"id="password""#)
        .nth(1)
        .and_then(|rest| rest.split('>').next())
        .unwrap_or_default();
    assert!(!password.contains("value="));
}

#[test]
fn a_refusal_says_who_may() {
    let html = shown("403");
    assert!(html.contains("Only the role admin may do this."));
    assert!(shown("500").contains("err-01HV3Q"));
}

#[test]
fn only_those_who_may_see_a_page_have_it_in_their_menu() {
    assert!(!shown("events").contains(r#"href="/admin/users""#));
    assert!(shown("overview").contains(r#"href="/admin/users""#));
}

#[test]
fn filters_and_paging_are_links_that_keep_each_other() {
    let html = shown("events");
    assert!(
        html.contains("q=after:2026-03-14T01:00Z&amp;channel=sms&amp;cursor=bm90IGEgcmVhbCBvbmU")
    );
    assert!(html.contains(r#"aria-label="Remove filter channel""#));
    assert!(html.contains("10,000+ events match"));
    assert!(html.contains("Older") && html.contains("Newest"));
}

#[test]
fn an_address_in_the_search_box_is_answered_without_being_shown() {
    let html = shown("events-personal");
    assert!(html.contains("That looks like an email address or phone number."));
    assert!(!html.contains("No event has been admitted yet"));
}

#[test]
fn an_alert_says_what_it_is_about_and_only_those_who_may_acknowledge_have_the_form() {
    let html = shown("alerts");
    assert_eq!(occurrences(&html, "Acknowledge</button>"), 2, "one form an alert that fires");
    assert_eq!(occurrences(&html, "&lt;b&gt;"), 1, "what was typed stays with its alert");
    assert!(
        html.contains("/runbook#queue") && html.contains("The error budget burns very fast (sms)")
    );
    assert!(
        html.contains("INC-2291, provider called")
            && html.contains("431") | html.contains("7 min 11 s")
    );
    let html = shown("alerts-read");
    assert!(!html.contains("Acknowledge</button>"));
    assert!(html.contains("Only the roles on-call and admin may do this."));
    assert!(shown("alerts-none").contains("Nobody is told"));
}

#[test]
fn the_service_level_is_said_in_words_and_nothing_is_no_number() {
    let html = shown("slo");
    assert!(html.contains("99.423 %") && html.contains("-15.4 %") && html.contains("overdrawn"));
    assert!(html.contains("burns too fast"));
    assert!(html.contains("With a margin of under 20 s 95 %"));
    let html = shown("slo-empty");
    assert!(html.contains("none yet") && html.contains("100.0 %"));
    assert!(html.contains("No day of this period had an event."));
}
