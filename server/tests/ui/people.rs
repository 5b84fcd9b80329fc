//! Accounts, second factors, look-ups and the operators' log, as browsers meet them.

use app::model::{Channel, Role};
use axum::http::StatusCode;
use server::keys::Keys;
use server::store::{Start, Started};
use totp_rs::{Algorithm, Secret, TOTP};

use super::{Browser, PASSWORD, Page, World};

const KEY: &str = "0123456789abcdef0123456789abcdef";

impl Browser {
    /// Posts a form of this page with the right token, and a one-time key of its own.
    async fn act(&mut self, path: &str, key: &str, fields: &[(&str, &str)]) -> Page {
        let csrf = self.csrf_of("/account").await;
        let mut all = vec![("csrf", csrf.as_str()), ("action_key", key)];
        all.extend_from_slice(fields);
        self.post(path, &all).await
    }

    async fn csrf_of(&mut self, path: &str) -> String {
        self.get(path).await.field("csrf")
    }
}

impl Page {
    /// The text of the element with this id.
    fn by_id(&self, id: &str) -> String {
        let (_, rest) =
            self.text.split_once(&format!("id=\"{id}\"")).expect("the element is there");
        let (_, rest) = rest.split_once('>').unwrap();
        rest.split('<').next().unwrap().to_owned()
    }

    fn says(&self, text: &str) -> bool {
        self.text.replace("<!>", "").replace("<!---->", "").contains(text)
    }
}

/// A record with a call to this destination.
async fn called(world: &World, n: u32, destination: &str, keys: &Keys) -> String {
    let id = world.admit(n, "seller_1042").await;
    let claims = world.store.claim("w", Channel::Sms, 10).await.unwrap();
    let claim = claims.iter().find(|claim| claim.id == id).unwrap();
    let start = Start {
        id: id.clone(),
        fence: claim.fence,
        request_hash: "rq".to_owned(),
        fingerprint: keys.fingerprint(destination),
        fingerprint_version: 1,
        text_hash: "tx".to_owned(),
        place: None,
    };
    let started = world.store.start(&[start]).await.unwrap();
    assert!(matches!(started[0], Started::Call { .. }), "{started:?}");
    id
}

#[tokio::test]
async fn a_blind_look_up_finds_what_was_called_and_keeps_nothing_but_that_somebody_looked() {
    let world = World::new().await;
    let keys = world.keys.clone();
    called(&world, 1, "+12025550177", &keys).await;
    called(&world, 2, "Ann@shop.example", &keys).await;
    let mut browser = world.signed_in(Role::Support).await;
    let csrf = browser.csrf_of("/lookup").await;
    let look = |subject: &'static str| {
        vec![("csrf", csrf.as_str()), ("subject", subject)]
            .into_iter()
            .map(|(a, b)| (a.to_owned(), b.to_owned()))
            .collect::<Vec<_>>()
    };
    for (subject, event) in [(" +12025550177 ", "ev-0001"), ("Ann@SHOP.example", "ev-0002")] {
        let form = look(subject);
        let form: Vec<(&str, &str)> = form.iter().map(|(a, b)| (a.as_str(), b.as_str())).collect();
        let page = browser.post("/lookup", &form).await;
        assert_eq!(page.status, StatusCode::OK, "{subject}");
        assert!(page.text.contains(event), "{subject}");
        assert!(!page.text.contains("2025550177") && !page.text.to_lowercase().contains("ann@"));
        assert_eq!(page.header("cache-control"), "no-store");
    }
    let none = look("+12025550199");
    let none: Vec<(&str, &str)> = none.iter().map(|(a, b)| (a.as_str(), b.as_str())).collect();
    assert!(browser.post("/lookup", &none).await.says("No call was made to this number"));
    assert_eq!(world.logged("lookup").await, 3);
    // Nothing is guessed, and what is refused is not repeated either.
    for bad in [
        "",
        "2025550177",
        "+02025550177",
        "+１２０２５５５０１７７",
        "user@",
        "a@b",
        "+1 202 555 0177",
    ] {
        let form = look(bad);
        let form: Vec<(&str, &str)> = form.iter().map(|(a, b)| (a.as_str(), b.as_str())).collect();
        let page = browser.post("/lookup", &form).await;
        assert_eq!(page.status, StatusCode::UNPROCESSABLE_ENTITY, "{bad}");
        assert!(bad.len() < 4 || !page.says(bad), "{bad} is not in the answer");
    }
    assert_eq!(world.logged("lookup").await, 3, "a look-up that was refused is none");
    let dump = world.dump();
    for needle in ["2025550177", "2025550199", "nn@shop", "nn@SHOP"] {
        assert!(!dump.windows(needle.len()).any(|part| part == needle.as_bytes()), "{needle}");
    }
    // On-call may not, and is not sent there by the search box either.
    let mut oncall = world.signed_in(Role::Oncall).await;
    let csrf = oncall.csrf().await;
    let asked = oncall.post("/events", &[("csrf", &csrf), ("q", "+12025550177")]).await;
    assert!(asked.says("It was not searched") && !asked.text.contains("href=\"/lookup\""));
    let csrf = browser.csrf().await;
    let asked = browser.post("/events", &[("csrf", &csrf), ("q", "+12025550177")]).await;
    assert!(asked.says("It was not searched") && asked.text.contains("href=\"/lookup\""));
}

#[tokio::test]
async fn an_admin_adds_changes_and_disables_users_and_each_form_acts_once() {
    let world = World::new().await;
    let mut admin = world.signed_in(Role::Admin).await;
    let add = [("act", "add"), ("email", " New@Example.com "), ("role", "support")];
    let made = admin.act("/admin/users", KEY, &add).await;
    assert_eq!(made.status, StatusCode::OK, "{}", made.text);
    let password = made.by_id("shown-once");
    assert_eq!(password.len(), 23);
    let user = world.store.user_by_email("new@example.com").await.unwrap().unwrap();
    assert_eq!((user.role, user.must_change), (Role::Support, true));
    let again = admin.act("/admin/users", KEY, &add).await;
    assert_eq!(again.status, StatusCode::UNPROCESSABLE_ENTITY);
    assert!(
        again.says("There is a user of this address already.")
            && !again.text.contains("shown-once")
    );
    assert!(!admin.get("/admin/users").await.text.contains(&password), "it is shown once");

    // Whoever signs in with it chooses another one before anything else.
    let mut newcomer = world.browser();
    assert_eq!(
        newcomer.sign_in("new@example.com", &password, "/").await.status,
        StatusCode::SEE_OTHER
    );
    assert_eq!(newcomer.get("/events").await.location(), "/account");
    assert_eq!(
        newcomer.send(axum::http::Method::GET, "/live?topic=events", None).await.status(),
        StatusCode::FORBIDDEN
    );
    let own = "a password of my own";
    let change = [("act", "password"), ("current", &*password), ("new", own), ("again", own)];
    let changed = newcomer.act("/account", KEY, &change).await;
    assert_eq!(
        (changed.status, changed.location()),
        (StatusCode::SEE_OTHER, "/account?done=password")
    );
    assert_eq!(newcomer.get("/events").await.status, StatusCode::OK, "the session goes on");

    // Another role takes effect at once.
    let role = [("act", "role"), ("user", &*user.id), ("role", "compliance")];
    assert!(
        admin
            .act("/admin/users", "role-key-0000000001", &role)
            .await
            .says("has the role compliance now")
    );
    assert_eq!(newcomer.get("/log").await.status, StatusCode::OK);
    // A reset ends the sessions, and the same form once more does nothing.
    let reset = [("act", "reset"), ("user", &*user.id)];
    let page = admin.act("/admin/users", "reset-key-000000001", &reset).await;
    let second = page.by_id("shown-once");
    assert!(newcomer.get("/").await.location().starts_with("/login"));
    let page = admin.act("/admin/users", "reset-key-000000001", &reset).await;
    assert!(page.says("it acts once") && !page.text.contains("shown-once"));
    assert_eq!(
        newcomer.sign_in("new@example.com", &second, "/").await.status,
        StatusCode::SEE_OTHER
    );
    // Disabled, and back.
    let page = admin
        .act("/admin/users", "off-key-00000000001", &[("act", "disable"), ("user", &user.id)])
        .await;
    assert!(page.says("is disabled"));
    assert!(newcomer.get("/account").await.location().starts_with("/login"));
    assert_eq!(
        newcomer.sign_in("new@example.com", &second, "/").await.status,
        StatusCode::UNPROCESSABLE_ENTITY
    );
    let page = admin
        .act("/admin/users", "on-key-000000000001", &[("act", "enable"), ("user", &user.id)])
        .await;
    assert!(page.says("may sign in again"));
    for what in [
        "user_added",
        "role_changed",
        "password_reset",
        "password_changed",
        "user_disabled",
        "user_enabled",
    ] {
        let rows = world.log().await;
        let row = rows.iter().find(|(actor, detail)| {
            detail.contains(&format!("\"{what}\""))
                && actor.starts_with("operator:")
                && detail.contains(&user.id)
        });
        assert!(row.is_some(), "{what} is a fact that names who did it and to whom");
    }
    assert!(world.log().await.iter().all(|(_, detail)| !detail.contains("xample.com")));
}

#[tokio::test]
async fn the_last_admin_stays_and_nobody_changes_the_own_account_by_the_list() {
    let world = World::new().await;
    let mut admin = world.signed_in(Role::Admin).await;
    let own = world.store.user_by_email("admin@example.com").await.unwrap().unwrap().id;
    let page = admin.act("/admin/users", KEY, &[("act", "disable"), ("user", &own)]).await;
    assert!(page.says("Another admin has to change your account."));
    use server::store::Changed;
    let store = &world.store;
    assert_eq!(store.set_disabled("cli", &own, true).await.unwrap(), Changed::LastAdmin);
    assert_eq!(store.set_role("cli", &own, Role::Support).await.unwrap(), Changed::LastAdmin);
    let other = store.add_user_as("cli", "b@example.com", Role::Admin, "h", false).await.unwrap();
    assert_eq!(store.set_role("cli", &own, Role::Support).await.unwrap(), Changed::Done);
    assert_eq!(store.set_disabled("cli", &other.id, true).await.unwrap(), Changed::LastAdmin);
}

#[tokio::test]
async fn a_client_key_is_shown_once_and_revoked_by_its_typed_name() {
    let world = World::new().await;
    let mut admin = world.signed_in(Role::Admin).await;
    let bad = [("act", "add"), ("name", "my shop"), ("scope", "admit"), ("scope", "root")];
    let page = admin.act("/admin/clients", "bad-key-00000000001", &bad).await;
    assert_eq!(page.status, StatusCode::UNPROCESSABLE_ENTITY);
    assert!(page.text.contains("value=\"my shop\"") && page.says("letters, digits"));
    let add = [("act", "add"), ("name", "shop"), ("scope", "admit"), ("scope", "status")];
    let page = admin.act("/admin/clients", KEY, &add).await;
    let key = page.by_id("shown-once");
    assert!(key.starts_with("so_") && key.len() > 64, "{key}");
    let client = world.store.clients().await.unwrap().remove(0);
    assert_eq!(
        (client.name.as_str(), client.scopes.join(" ")),
        ("shop", "admit status".to_owned())
    );
    let secret = key.rsplit('_').next().unwrap();
    assert!(!admin.get("/admin/clients").await.text.contains(secret));
    assert!(!world.dump().windows(secret.len()).any(|part| part == secret.as_bytes()));

    let revoke = |confirm: &'static str| {
        [("act", "revoke"), ("client", client.id.as_str()), ("confirm", confirm)]
    };
    let page = admin.act("/admin/clients", "rev-key-00000000001", &revoke("shoq")).await;
    assert_eq!(page.status, StatusCode::UNPROCESSABLE_ENTITY);
    assert!(world.store.client(&client.id).await.unwrap().is_some());
    let page = admin.act("/admin/clients", "rev-key-00000000002", &revoke("shop")).await;
    assert!(page.says("The key of shop is revoked."));
    assert!(world.store.client(&client.id).await.unwrap().is_none());
    assert_eq!((world.logged("client_added").await, world.logged("client_revoked").await), (1, 1));
}

#[tokio::test]
async fn the_configuration_is_shown_without_a_secret() {
    let text = "[providers.shop]\nkind = \"http\"\nbase_url = \"http://127.0.0.1:9/x\"\nsecret = \"canary-secret-1\"\nwebhook_secret = \"canary-secret-2\"\n";
    let world = World::configured("http://127.0.0.1:3000", text).await;
    let page = world.signed_in(Role::Admin).await.get("/admin/config").await;
    assert_eq!(page.status, StatusCode::OK);
    assert!(page.says("[providers.shop]") && page.says("call_timeout") && page.says(" hidden"));
    assert!(!page.text.contains("canary-secret"));
}

fn code_of(page: &Page, world: &World, later: i64) -> String {
    let (_, rest) = page
        .text
        .split_once("aria-label=\"Copy key\" data-copy=\"")
        .unwrap_or_else(|| page.text.split_once("data-copy=\"").expect("the key is on the page"));
    let base32 = rest.split('"').next().unwrap().to_owned();
    code_at(&base32, world, later)
}

fn code_at(base32: &str, world: &World, later: i64) -> String {
    let secret = Secret::Encoded(base32.to_owned()).to_bytes().unwrap();
    let totp = TOTP::new(Algorithm::SHA1, 6, 1, 30, secret, None, String::new()).unwrap();
    let now = server::clock::Clock::now(&world.clock).micros() / 1_000_000 + later;
    totp.generate(u64::try_from(now).unwrap())
}

#[tokio::test]
async fn a_second_factor_is_asked_for_and_no_code_works_twice() {
    let world = World::new().await;
    let mut browser = world.signed_in(Role::Support).await;
    let begin = |password: &'static str| [("act", "factor_begin"), ("confirm_password", password)];
    let page = browser.act("/account", KEY, &begin("wrong")).await;
    assert!(page.says("This is not your password.") && !page.text.contains("class=\"qr\""));
    let page = browser.act("/account", KEY, &begin(PASSWORD)).await;
    assert!(page.text.contains("class=\"qr\""), "{}", page.text);
    let (_, rest) = page.text.split_once("<span class=\"muted\">Key </span>").unwrap();
    let (_, rest) = rest.split_once("<code>").unwrap();
    let base32 = rest.split('<').next().unwrap().to_owned();
    assert_eq!(base32.len(), 32);
    assert!(!world.dump().windows(32).any(|part| part == base32.as_bytes()), "no table holds it");
    let page = browser.act("/account", KEY, &[("act", "factor_confirm"), ("code", "000000")]).await;
    assert_eq!(page.status, StatusCode::UNPROCESSABLE_ENTITY);
    let code = code_at(&base32, &world, 0);
    let page = browser.act("/account", KEY, &[("act", "factor_confirm"), ("code", &code)]).await;
    assert!(page.says("Recovery codes, shown this once"), "{}", page.text);
    let (_, list) = page.text.split_once("aria-label=\"Recovery codes\"").unwrap();
    let recovery = list.split("<code>").nth(1).unwrap().split('<').next().unwrap().to_owned();
    assert!(!browser.get("/account").await.text.contains(&recovery));

    // Password first, then the code; the one that turned it on is used up.
    let mut other = world.browser();
    let asked = other.sign_in("support@example.com", PASSWORD, "/unknown").await;
    assert_eq!(asked.status, StatusCode::OK);
    assert!(asked.says("One-time code") && other.session().is_none());
    let step = |page: &Page, code: &str| {
        ["csrf", "next", "pending"]
            .map(|name| (name.to_owned(), page.field(name)))
            .into_iter()
            .chain([("code".to_owned(), code.to_owned())])
            .collect::<Vec<_>>()
    };
    async fn send(browser: &mut Browser, form: &[(String, String)]) -> Page {
        let form: Vec<(&str, &str)> = form.iter().map(|(a, b)| (a.as_str(), b.as_str())).collect();
        browser.post("/login", &form).await
    }
    let used = send(&mut other, &step(&asked, &code)).await;
    assert_eq!(used.status, StatusCode::UNPROCESSABLE_ENTITY);
    assert!(other.session().is_none());
    // What one browser has begun another one cannot end.
    let mut thief = world.browser();
    thief.get("/login").await;
    let mut form = step(&used, &code_at(&base32, &world, 30));
    form[0].1 = thief.get("/login").await.field("csrf");
    assert_eq!(send(&mut thief, &form).await.status, StatusCode::FORBIDDEN);
    let next = code_at(&base32, &world, 30);
    let done = send(&mut other, &step(&used, &next)).await;
    assert_eq!((done.status, done.location()), (StatusCode::SEE_OTHER, "/unknown"));
    // The same code again, in another browser, is refused.
    let mut third = world.browser();
    let asked = third.sign_in("support@example.com", PASSWORD, "/").await;
    assert_eq!(
        send(&mut third, &step(&asked, &next)).await.status,
        StatusCode::UNPROCESSABLE_ENTITY
    );
    // A recovery code works once.
    let done = send(&mut third, &step(&asked, &recovery.to_uppercase())).await;
    assert_eq!(done.status, StatusCode::SEE_OTHER);
    let mut fourth = world.browser();
    let asked = fourth.sign_in("support@example.com", PASSWORD, "/").await;
    assert_eq!(
        send(&mut fourth, &step(&asked, &recovery)).await.status,
        StatusCode::UNPROCESSABLE_ENTITY
    );
    // Too late is too late.
    world.pass(301);
    let late = send(&mut fourth, &step(&asked, &code_at(&base32, &world, 0))).await;
    assert_eq!(late.status, StatusCode::FORBIDDEN);
    assert_eq!(
        (world.logged("second_factor_added").await, world.logged("recovery_code_used").await),
        (1, 1)
    );
}

#[tokio::test]
async fn wrong_codes_slow_down_and_a_right_password_does_not_forgive_them() {
    let world = World::new().await;
    let mut browser = world.signed_in(Role::Support).await;
    let page = browser
        .act("/account", KEY, &[("act", "factor_begin"), ("confirm_password", PASSWORD)])
        .await;
    let code = code_of(&page, &world, 0);
    browser.act("/account", KEY, &[("act", "factor_confirm"), ("code", &code)]).await;
    let mut last = StatusCode::OK;
    for _ in 0..8 {
        let mut guess = world.browser();
        let asked = guess.sign_in("support@example.com", PASSWORD, "/").await;
        if asked.status == StatusCode::TOO_MANY_REQUESTS {
            last = asked.status;
            break;
        }
        let form = [
            ("csrf", asked.field("csrf")),
            ("pending", asked.field("pending")),
            ("code", "000000".to_owned()),
        ];
        let form: Vec<(&str, &str)> = form.iter().map(|(a, b)| (*a, b.as_str())).collect();
        last = guess.post("/login", &form).await.status;
    }
    assert_eq!(last, StatusCode::TOO_MANY_REQUESTS);
}

#[tokio::test]
async fn a_role_that_needs_a_second_factor_sets_it_up_before_anything_else() {
    let world =
        World::configured("http://127.0.0.1:3000", "[auth]\ntotp_required_roles = [\"admin\"]\n")
            .await;
    let mut admin = world.signed_in(Role::Admin).await;
    assert_eq!(admin.get("/").await.location(), "/account");
    assert!(admin.get("/account").await.says("Your role signs in with a second factor."));
    let page = admin
        .act("/account", KEY, &[("act", "factor_begin"), ("confirm_password", PASSWORD)])
        .await;
    let code = code_of(&page, &world, 0);
    let page = admin.act("/account", KEY, &[("act", "factor_confirm"), ("code", &code)]).await;
    assert!(page.says("Recovery codes") && !page.says("Remove second factor"));
    assert_eq!(admin.get("/").await.status, StatusCode::OK);
    let drop = [("act", "factor_drop"), ("confirm_password", PASSWORD)];
    admin.act("/account", "drop-key-0000000001", &drop).await;
    assert_eq!(admin.get("/").await.status, StatusCode::OK, "it cannot be removed");
    // Other roles need none.
    assert_eq!(world.signed_in(Role::Support).await.get("/").await.status, StatusCode::OK);
}

#[tokio::test]
async fn sessions_are_listed_and_ended_one_by_one_or_all() {
    let world = World::new().await;
    let mut own = world.signed_in(Role::Support).await;
    let mut second = world.signed_in(Role::Support).await;
    let mut third = world.signed_in(Role::Support).await;
    let page = own.get("/account").await;
    assert!(page.says("3 sessions") && page.says("(this one)"));
    let handle = page.field("session");
    let ended = own.act("/account", KEY, &[("act", "session_end"), ("session", &handle)]).await;
    assert_eq!(ended.location(), "/account?done=ended");
    let alive = [&mut second, &mut third];
    let mut count = 0;
    for browser in alive {
        count += usize::from(browser.get("/account").await.status == StatusCode::OK);
    }
    assert_eq!(count, 1);
    own.act("/account", "all-key-00000000001", &[("act", "sessions_end")]).await;
    assert!(second.get("/account").await.location().starts_with("/login"));
    assert!(third.get("/account").await.location().starts_with("/login"));
    assert!(own.get("/account").await.says("1 session"));
    // Somebody else's session is none of one's own.
    let mut stranger = world.signed_in(Role::Oncall).await;
    let handle = {
        world.signed_in(Role::Support).await;
        own.get("/account").await.field("session")
    };
    stranger
        .act("/account", "str-key-00000000001", &[("act", "session_end"), ("session", &handle)])
        .await;
    assert!(own.get("/account").await.says("2 sessions"));
}

#[tokio::test]
async fn the_log_is_filtered_paged_and_taken_away() {
    let world = World::new().await;
    let mut reader = world.signed_in(Role::Compliance).await;
    for n in 0..60 {
        reader.get(&format!("/events?q=ev-{n}")).await;
    }
    world.store.freeze("channel:sms", "operator:x", "because", None).await.unwrap();
    let first = reader.get("/log").await;
    assert!(first.says("froze channel:sms") && first.says("compliance@example.com"));
    let (_, rest) = first.text.split_once("href=\"/log?cursor=").expect("there is a further page");
    let cursor = rest.split('"').next().unwrap();
    let second = reader.get(&format!("/log?cursor={cursor}")).await;
    let numbers = |page: &Page| -> Vec<u32> {
        page.text
            .split("id=\"act-")
            .skip(1)
            .map(|rest| rest.split('"').next().unwrap().parse().unwrap())
            .collect()
    };
    let mut all = numbers(&first);
    assert_eq!(all.len(), 50);
    all.extend(numbers(&second));
    assert!(all.windows(2).all(|pair| pair[0] == pair[1] + 1), "none is left out: {all:?}");
    let freezes = reader.get("/log?group=freeze").await;
    assert_eq!(numbers(&freezes).len(), 1);
    assert!(reader.get("/log?group=export").await.says("No act matches"));
    let personal = reader.get("/log?actor=user@example.com").await;
    assert!(personal.says("Whoever acted is named as") && !personal.text.contains("user@example"));

    let csrf = first.field("csrf");
    let export = |format: &'static str| {
        vec![("csrf", csrf.as_str()), ("group", "lookup"), ("format", format)]
    };
    let csv = reader.post("/log", &export("csv")).await;
    assert_eq!(csv.header("content-type"), "text/csv; charset=utf-8; header=present");
    assert!(csv.header("content-disposition").contains(".csv\""));
    assert_eq!(csv.text.lines().count(), 61, "a head and sixty searches");
    assert_eq!(csv.header("x-sendonce-sha256"), server::keys::sha256(csv.text.as_bytes()));
    let ndjson = reader.post("/log", &export("ndjson")).await;
    for line in ndjson.text.lines() {
        let fact: serde_json::Value = serde_json::from_str(line).unwrap();
        assert_eq!(fact["detail"]["what"], "search");
        assert!(fact["actor"].as_str().unwrap().starts_with("operator:"));
    }
    assert!(!csv.text.contains("example.com") && !ndjson.text.contains("example.com"));
    assert_eq!(world.logged("export_log").await, 2);
    let stale = reader.post("/log", &[("csrf", "x"), ("format", "csv")]).await;
    assert_eq!(stale.status, StatusCode::FORBIDDEN);
}

#[tokio::test]
async fn the_first_operator_is_made_by_a_link_that_works_once() {
    let world = World::new().await;
    let now = server::clock::Clock::now(&world.clock);
    let entropy = server::entropy::SystemEntropy;
    let path = server::http::setup::offer(&*world.store, &entropy, now).await.unwrap().unwrap();
    let token = path.split('=').nth(1).unwrap();
    assert!(!world.dump().windows(token.len()).any(|part| part == token.as_bytes()));
    let mut browser = world.browser();
    assert_eq!(browser.get("/setup?token=wrong").await.status, StatusCode::NOT_FOUND);
    let page = browser.get(&path).await;
    assert_eq!(page.status, StatusCode::OK);
    let csrf = page.field("csrf");
    let form = |email: &'static str, password: &'static str| {
        [
            ("csrf", csrf.clone()),
            ("token", token.to_owned()),
            ("email", email.to_owned()),
            ("password", password.to_owned()),
        ]
    };
    async fn send(browser: &mut Browser, form: &[(&str, String)]) -> Page {
        let form: Vec<(&str, &str)> = form.iter().map(|(a, b)| (*a, b.as_str())).collect();
        browser.post("/setup", &form).await
    }
    let short = send(&mut browser, &form("first@example.com", "short")).await;
    assert!(
        short.says("Choose at least 12 characters.") && !short.text.contains("value=\"short\"")
    );
    let done = send(&mut browser, &form("First@Example.com", PASSWORD)).await;
    assert_eq!((done.status, done.location()), (StatusCode::SEE_OTHER, "/"));
    assert!(browser.get("/admin/users").await.says("first@example.com"));
    // Never again, neither this link nor another one.
    assert_eq!(world.browser().get(&path).await.status, StatusCode::NOT_FOUND);
    assert_eq!(
        send(&mut browser, &form("b@example.com", PASSWORD)).await.status,
        StatusCode::NOT_FOUND
    );
    assert_eq!(server::http::setup::offer(&*world.store, &entropy, now).await.unwrap(), None);
}

#[tokio::test]
async fn a_stale_form_of_an_admin_does_nothing_and_keeps_what_was_typed() {
    let world = World::new().await;
    let mut admin = world.signed_in(Role::Admin).await;
    let users = [
        ("csrf", "old"),
        ("action_key", KEY),
        ("act", "add"),
        ("email", "x@example.com"),
        ("role", "oncall"),
    ];
    let page = admin.post("/admin/users", &users).await;
    assert_eq!(page.status, StatusCode::FORBIDDEN);
    assert!(
        page.says("reloaded with what you typed") && page.text.contains("value=\"x@example.com\"")
    );
    assert!(world.store.user_by_email("x@example.com").await.unwrap().is_none());
    let clients = [
        ("csrf", "old"),
        ("action_key", KEY),
        ("act", "add"),
        ("name", "shop"),
        ("scope", "cancel"),
    ];
    let page = admin.post("/admin/clients", &clients).await;
    assert_eq!(page.status, StatusCode::FORBIDDEN);
    assert!(
        page.text.contains("value=\"shop\"") && world.store.clients().await.unwrap().is_empty()
    );
    let look = admin.post("/lookup", &[("csrf", "old"), ("subject", "+12025550177")]).await;
    assert_eq!(look.status, StatusCode::FORBIDDEN);
    assert!(!look.text.contains("2025550177"));
}

#[tokio::test]
async fn evidence_is_taken_away_with_its_hash_in_the_log() {
    let world = World::new().await;
    let id = world.admit(1, "seller-1").await;
    let mut reader = world.signed_in(Role::Compliance).await;
    let empty = reader.get("/evidence").await;
    assert!(empty.says("Download evidence") && empty.says("No pack was taken yet"));
    let csrf = empty.field("csrf");
    let asked = |field: &'static str, value: &str| {
        vec![("csrf".to_owned(), csrf.clone()), (field.to_owned(), value.to_owned())]
    };
    for (field, value, says) in [
        ("id", "", "Name one"),
        ("id", "nobody", "no notification with this id"),
        ("id", "somebody@example.com", "This is no id"),
        ("seller", "+14155550173", "This is no seller id"),
        ("from", "2026-03-14T03:00", "Write it as"),
    ] {
        let form = asked(field, value);
        let form: Vec<(&str, &str)> =
            form.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect();
        let page = reader.post("/evidence", &form).await;
        assert_eq!(page.status, StatusCode::UNPROCESSABLE_ENTITY, "{field}");
        assert!(page.says(says), "{field}: {says}");
        assert!(!page.text.contains("somebody@example") && !page.text.contains("14155550173"));
    }
    let duty = world.store.take_duty(server::duty::SEAL, "test", 600_000_000).await.unwrap();
    world.sealer.drain(duty.expect("is free")).await.unwrap();
    for (field, value) in [("id", id.as_str()), ("seller", "seller-1")] {
        let pack = reader.post("/evidence", &[("csrf", csrf.as_str()), (field, value)]).await;
        assert_eq!(pack.status, StatusCode::OK, "{field}");
        assert_eq!(pack.header("content-type"), "application/zip");
        let hash = pack.header("x-sendonce-sha256").to_owned();
        assert!(pack.header("content-disposition").contains(&hash[..12]));
        let after = reader.get("/evidence").await;
        assert!(after.text.contains(&hash), "the page names its hash");
    }
    assert_eq!(world.logged("export").await, 2);
    let stale = reader.post("/evidence", &[("csrf", "x"), ("id", &id)]).await;
    assert_eq!(stale.status, StatusCode::FORBIDDEN);
    assert!(stale.says("out of date"), "and what was typed is kept");
    assert!(stale.text.contains(&format!("value=\"{id}\"")));
}
