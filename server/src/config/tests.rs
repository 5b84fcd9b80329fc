use std::collections::BTreeSet;

use app::model::Channel;

use super::duration::{HOUR, MINUTE, SECOND};
use super::{Config, ConfigError, DEFAULTS, KINDS, ResolverKind};

/// What outside tools write, word for word.
const OUTSIDE: &str = r#"
[server]
listen = "127.0.0.1:40123"
public_url = "http://127.0.0.1:40123"
data_dir = "/tmp/sendonce-check-x/data"
[admission]
min_lifetime = "3s"
[resolver]
kind = "demo"
timeout = "500ms"
[dispatch]
margin = "1s"
lease = "3s"
call_timeout = "1s"
attempts_max = 3
backoff_first = "200ms"
[reconcile]
first_poll = "200ms"
max_poll = "500ms"
[routes]
sms = ["fake"]
email = ["fake"]

[providers.fake]
kind = "http"
base_url = "http://127.0.0.1:40124"
secret = "s3cret-s3cret-s3cret"
settle = "300ms"
lookup = true
idempotent = false
"#;

/// The example of the contract.
const EXAMPLE: &str = r#"
[server]
listen = "127.0.0.1:3000"
public_url = "http://127.0.0.1:3000"   # base of callback URLs
data_dir = "data"                      # SQLite file, keys, checkpoints

[admission]
default_channel = "sms"
min_lifetime = "15s"
max_lifetime = "24h"

[dispatch]
margin = "10s"
lease = "10s"            # >= resolver timeout + call_timeout + 1s, <= admission.min_lifetime
call_timeout = "5s"
attempts_max = 3
replays_max = 2
backoff_first = "1s"
workers = 8
release_per_second = 50  # pace after a freeze

[reconcile]
first_poll = "1s"       # then slower, up to
max_poll = "30s"
poll_for = "45s"
workers = 4

[routes]                # providers by channel, in order
sms = ["demo"]
email = ["demo"]

[providers.post]
kind = "postmark"
base_url = "http://127.0.0.1:4010/postmark"
token = "…"
from = "no-reply@example.com"
settle = "120s"
webhook_secret = "…"

[resolver]
kind = "demo"
timeout = "2s"
"#;

fn parse(text: &str) -> Result<Config, ConfigError> {
    Config::parse("sendonce.toml", text, std::iter::empty())
}

fn good(text: &str) -> Config {
    parse(text).unwrap_or_else(|error| panic!("{error}"))
}

fn with_env(text: &str, env: &[(&str, &str)]) -> Result<Config, ConfigError> {
    let env = env.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned()));
    Config::parse("sendonce.toml", text, env)
}

/// The problems of loading, one a line.
fn refused(text: &str) -> String {
    parse(text).expect_err("this configuration was read").to_string()
}

/// The problems of checking, one a line.
fn unsafe_lines(text: &str) -> Vec<String> {
    good(text).check().iter().map(ToString::to_string).collect()
}

/// Exactly one refusal, of this key, with this in it.
fn refuses(text: &str, key: &str, words: &str) {
    let lines = unsafe_lines(text);
    assert_eq!(lines.len(), 1, "{lines:#?}");
    assert!(lines[0].starts_with(&format!("{key}: ")), "{}", lines[0]);
    assert!(lines[0].contains(words), "{}", lines[0]);
    assert!(lines[0].contains("; "), "no next step: {}", lines[0]);
}

const HTTP: &str = r#"
[providers.p]
kind = "http"
base_url = "https://sms.example.com/v1"
secret = "canary-secret"
"#;

#[test]
fn an_empty_file_gives_the_documented_defaults_and_is_safe() {
    let config = good("");
    assert_eq!(config.server.listen, "127.0.0.1:3000");
    assert_eq!(config.database_url.expose(), "sqlite://data/sendonce.db");
    assert_eq!(config.admission.min_lifetime, 15 * SECOND);
    assert_eq!(config.admission.max_lifetime, 24 * HOUR);
    assert_eq!(config.dispatch.lease, 10 * SECOND);
    assert_eq!(config.dispatch.attempts_max, 3);
    assert_eq!(config.reconcile.poll_for, 45 * SECOND);
    assert_eq!(config.routes[&Channel::Sms], ["demo"]);
    assert_eq!(config.providers["demo"].settle, Some(2 * SECOND));
    assert_eq!(config.resolver.timeout, 2 * SECOND);
    assert_eq!(config.check(), []);
    assert_eq!(config.warnings(), []);
}

#[test]
fn the_file_that_outside_tools_write_is_read_and_safe() {
    let config = good(OUTSIDE);
    assert_eq!(config.check(), []);
    let fake = &config.providers["fake"];
    assert_eq!(fake.settle, Some(300_000));
    assert_eq!(fake.base_url.as_deref(), Some("http://127.0.0.1:40124"));
    assert!(fake.lookup && !fake.idempotent);
    assert!(config.providers.contains_key("demo"), "demo exists in every configuration");
}

#[test]
fn the_example_of_the_contract_has_one_problem_the_kind_that_is_not_built_yet() {
    let lines = unsafe_lines(EXAMPLE);
    let is_built = KINDS.iter().any(|kind| kind.name == "postmark" && kind.is_available());
    assert_eq!(lines.len(), usize::from(!is_built), "{lines:#?}");
    for line in lines {
        assert!(line.starts_with("providers.post.kind: postmark is not part of this version"));
    }
    let config = good(EXAMPLE);
    let post = &config.providers["post"];
    assert_eq!(post.credential("token").map(crate::providers::Secret::expose), Some("…"));
    assert_eq!(post.setting("from"), Some("no-reply@example.com"));
}

#[test]
fn min_lifetime_follows_margin_and_call_timeout_when_it_is_not_set() {
    let config = good("[dispatch]\nmargin = \"20s\"\ncall_timeout = \"6s\"");
    assert_eq!(config.admission.min_lifetime, 26 * SECOND);
}

#[test]
fn every_key_stands_in_the_manual_with_a_sentence_and_nothing_else_does() {
    // A key is `name = ` at the start of a line or behind its `#`; all else is prose.
    let mut section = String::new();
    let mut manual = BTreeSet::new();
    let mut is_after_prose = false;
    for line in DEFAULTS.lines() {
        let bare = line.trim_start_matches("# ");
        if let Some((name, _)) = bare.strip_prefix('[').and_then(|rest| rest.split_once(']')) {
            section = name.to_owned();
        } else if let Some((key, value)) = bare.split_once(" = ")
            && key.chars().all(|c| c.is_ascii_lowercase() || c == '_')
        {
            assert!(is_after_prose || value.contains(" # "), "{section}.{key} has no sentence");
            manual.insert(format!("{section}.{key}"));
            is_after_prose = false;
        } else {
            is_after_prose = line.starts_with('#');
        }
    }
    let mut keys: BTreeSet<String> = BTreeSet::new();
    for key in super::build::provider_keys() {
        keys.insert(format!("providers.example.{key}"));
    }
    for key in ["kind", "settle", "listen"] {
        keys.insert(format!("providers.demo.{key}"));
    }
    keys.extend(known_keys());
    assert_eq!(manual, keys);
}

/// Every key outside `providers`, as the reader itself names them.
fn known_keys() -> BTreeSet<String> {
    let mut known = BTreeSet::new();
    for kind in ["demo", "directory", "http"] {
        let mut reader = super::reader::Reader::default();
        reader.defaults(DEFAULTS);
        let text = format!(
            "[resolver]\nkind = \"{kind}\"\n[policy.purposes.password_reset]\nafter_unknown = \"now\"\n\
             [policy.breakers.GB]\nmessages_max = 1"
        );
        reader.file("x", &text);
        let _ = super::build::build(&mut reader);
        known.extend(
            reader
                .known()
                .iter()
                .filter(|key| !key.starts_with("providers.") && !key.ends_with("_file"))
                .cloned(),
        );
    }
    known
}

#[test]
fn an_unknown_key_is_named_with_its_path_and_the_nearest_one() {
    for (text, path, near) in [
        ("[dispatch]\nlaese = \"10s\"", "dispatch.laese", "did you mean dispatch.lease?"),
        ("[server]\nmargin = \"10s\"", "server.margin", "did you mean dispatch.margin?"),
        ("[dispach]\nmargin = \"10s\"", "dispach.margin", "did you mean dispatch.margin?"),
        ("lease = \"10s\"", "lease", "did you mean dispatch.lease?"),
        ("\"server.listen\" = \"x\"", "server?listen", "did you mean server.listen?"),
        (
            "[providers.p]\nkind = \"http\"\nbase_ulr = \"x\"",
            "providers.p.base_ulr",
            "did you mean providers.p.base_url?",
        ),
        ("[dispatch.lease]\nx = 1", "dispatch.lease.x", "did you mean dispatch.lease?"),
        ("[zebra]\nquagga = 1", "zebra.quagga", "config check"),
        ("[zebra]", "zebra", "there is no such section"),
        ("[servr]", "servr", "did you mean [server]?"),
        ("server = 3", "server", "write a section, [server]"),
        ("providers = 3", "providers", "write a section, [providers]"),
        ("[providers]\ntoken = \"canary-secret\"", "providers.token", "there is no such key"),
    ] {
        let lines = refused(text);
        let is_named = lines.lines().any(|line| line.starts_with(&format!("{path}: ")));
        assert!(is_named && lines.contains(near), "{text}: {lines}");
        assert!(!lines.contains("canary"), "{lines}");
    }
}

#[test]
fn all_problems_are_shown_one_a_line() {
    let lines = refused(
        "[server]\nlissten = \"x\"\n[dispatch]\nlease = 10\nattempts_max = 21\nworkers = \"8\"\n\
         [reconcile]\nfirst_poll = \"1 s\"\n[log]\njson = \"yes\"\n[admission]\n\
         default_channel = \"smss\"",
    );
    for key in [
        "server.lissten: ",
        "dispatch.lease: found a number; expected a duration from",
        "dispatch.attempts_max: 21 is out of range; expected a whole number from 1 to 20",
        "dispatch.workers: ",
        "reconcile.first_poll: ",
        "log.json: found other text; expected true or false",
        "admission.default_channel: found other text; expected one of sms, email (did you mean sms?)",
    ] {
        assert!(lines.lines().any(|line| line.starts_with(key)), "{key} in\n{lines}");
    }
    assert_eq!(lines.lines().count(), 7, "{lines}");
}

#[test]
fn values_out_of_range_are_refused_by_name() {
    for (text, key) in [
        ("[dispatch]\nmargin = \"0s\"", "dispatch.margin"),
        ("[dispatch]\ncall_timeout = \"0s\"", "dispatch.call_timeout"),
        ("[resolver]\ntimeout = \"0s\"", "resolver.timeout"),
        ("[dispatch]\nworkers = 0", "dispatch.workers"),
        ("[dispatch]\nworkers = -1", "dispatch.workers"),
        ("[dispatch]\nworkers = 4294967297", "dispatch.workers"),
        ("[dispatch]\nattempts_max = 0", "dispatch.attempts_max"),
        ("[dispatch]\nrelease_per_second = 0", "dispatch.release_per_second"),
        ("[dispatch]\nlease = \"2h\"", "dispatch.lease"),
        ("[admission]\nbatch_max = 5000", "admission.batch_max"),
        ("[server]\nlisten = \"\"", "server.listen"),
        ("[server]\nenvironment = \"a\\nb\"", "server.environment"),
        ("[routes]\nsms = \"demo\"", "routes.sms"),
        ("[routes]\nsms = [1]", "routes.sms"),
        ("[log]\nlevel = \"a=b=c\"", "log.level"),
        ("[resolver]\nkind = \"directory\"", "resolver.path"),
        ("[resolver]\nkind = \"http\"\nurl = \"https://x.example\"", "resolver.secret"),
        ("[providers.p]\nsettle = \"1s\"", "providers.p.kind"),
        ("[providers.p]\nkind = \"htttp\"\ntoken = \"canary\"", "providers.p.kind"),
        ("[providers.\"a b\"]\nkind = \"http\"", "providers.a?b"),
        ("[providers.demo]\nkind = \"http\"", "providers.demo.kind"),
    ] {
        let lines = refused(text);
        assert_eq!(lines.lines().count(), 1, "{text}: {lines}");
        assert!(lines.starts_with(&format!("{key}: ")), "{text}: {lines}");
        assert!(!lines.contains("canary"), "{lines}");
    }
}

#[test]
fn no_message_repeats_a_value() {
    for text in [
        "[providers.p]\nkind = \"http\"\nsecret = 12345678",
        "[providers.p]\nkind = \"http\"\nsecret = [\"canary\"]",
        "[providers.p]\nkind = \"http\"\nsettle = \"canary\"",
        "[providers.p]\nkind = \"canary\"",
        "[admission]\ndefault_channel = \"canary\"",
        "[providers.p]\nkind = \"http\"\nsecret = \"canary\nbase_url = \"x\"",
        "[providers.p]\nkind = \"http\"\nsecret = canary\n",
        "[providers.p]\nkind = \"http\"\nsecret = \"canary\"\nsecret = \"canary\"\n",
        "[providers.p]\nkind = \"http\"\nsecret = \"canary\"\nsecret_file = \"/x\"\n",
    ] {
        let lines = refused(text);
        assert!(!lines.contains("canary") && !lines.contains("12345678"), "{lines}");
    }
    assert!(refused("[server]\n\nlisten = nonsense").contains("line 3"));
    assert!(!format!("{:?}", good(HTTP)).contains("canary"), "Debug shows a secret");
}

#[test]
fn the_environment_changes_single_keys() {
    let config = with_env(
        HTTP,
        &[
            ("SENDONCE_DISPATCH__CALL_TIMEOUT", "3s"),
            ("SENDONCE_DISPATCH__WORKERS", "2"),
            ("SENDONCE_SERVER__LISTEN", "0.0.0.0:8080"),
            ("SENDONCE_SERVER__ENVIRONMENT", "\"quoted\""),
            ("SENDONCE_LOG__JSON", "true"),
            ("SENDONCE_ROUTES__SMS", "[\"p\", \"demo\"]"),
            ("SENDONCE_ROUTES__EMAIL", "p,demo"),
            ("SENDONCE_PROVIDERS__P__SECRET", "1234567"),
            ("SENDONCE_PROVIDERS__P__WINDOW", "24h"),
            ("SENDONCE_PROVIDERS__POST__KIND", "postmark"),
            ("SENDONCE_PROVIDERS__POST__TOKEN", " two spaces "),
            ("SENDONCE_RESOLVER__TIMEOUT", ""),
            ("SENDONCE_ADMIN", "no double underscore, not ours"),
            ("OTHER_SERVER__LISTEN", "x"),
            ("DATABASE_URL", "postgres://u:p@db/x"),
            ("SENDONCE_DATABASE__URL", "sqlite://other.db"),
        ],
    )
    .unwrap_or_else(|error| panic!("{error}"));
    assert_eq!(config.dispatch.call_timeout, 3 * SECOND);
    assert_eq!(config.dispatch.workers, 2);
    assert_eq!(config.server.listen, "0.0.0.0:8080");
    assert_eq!(config.server.environment, "quoted");
    assert!(config.log.json);
    assert_eq!(config.routes[&Channel::Sms], ["p", "demo"]);
    assert_eq!(config.routes[&Channel::Email], ["p", "demo"]);
    let secret = config.providers["p"].secret.as_ref();
    assert_eq!(secret.map(crate::providers::Secret::expose), Some("1234567"), "text, not a number");
    let token = config.providers["post"].credential("token");
    assert_eq!(token.map(crate::providers::Secret::expose), Some(" two spaces "));
    assert_eq!(config.resolver.timeout, 2 * SECOND, "an empty variable is not set");
    assert_eq!(config.database_url.expose(), "postgres://u:p@db/x");
}

#[test]
fn the_environment_reaches_a_provider_whatever_its_name() {
    for name in ["post", "Post", "my-post", "my_post"] {
        let variable =
            format!("SENDONCE_PROVIDERS__{}__SETTLE", name.to_uppercase().replace('-', "_"));
        let text = format!("[providers.{name}]\nkind = \"http\"");
        let config = with_env(&text, &[(&variable, "7s")]).unwrap_or_else(|e| panic!("{e}"));
        assert_eq!(config.providers[name].settle, Some(7 * SECOND), "{name}");
        assert_eq!(config.providers.len(), 2);
    }
}

#[test]
fn a_wrong_variable_is_named() {
    let error =
        with_env("", &[("SENDONCE_DISPATCH__LAESE", "10s"), ("SENDONCE_DISPATCH__LEASE", "x")])
            .expect_err("unknown");
    let lines = error.to_string();
    assert!(lines.contains("dispatch.laese: there is no such key (from SENDONCE_DISPATCH__LAESE)"));
    assert!(
        lines.contains("dispatch.lease: found other text in SENDONCE_DISPATCH__LEASE"),
        "{lines}"
    );
}

#[test]
fn secrets_come_from_files_and_the_later_layer_wins() {
    let folder = std::env::temp_dir().join(format!("sendonce-config-{}", std::process::id()));
    std::fs::create_dir_all(&folder).expect("a temporary folder");
    let file = folder.join("secret");
    std::fs::write(&file, "from-a-file\r\n").expect("a temporary file");
    let path = file.display().to_string();
    let secret = |config: &Config| {
        config.providers["p"].secret.as_ref().map(|secret| secret.expose().to_owned())
    };

    let text = format!(
        "[providers.p]\nkind = \"http\"\nbase_url = \"https://x.example\"\nsecret_file = \"{path}\""
    );
    assert_eq!(secret(&good(&text)).as_deref(), Some("from-a-file"));
    let over = with_env(HTTP, &[("SENDONCE_PROVIDERS__P__SECRET_FILE", &path)]);
    assert_eq!(secret(&over.expect("reads")).as_deref(), Some("from-a-file"));
    let over = with_env(&text, &[("SENDONCE_PROVIDERS__P__SECRET", "from-env")]);
    assert_eq!(secret(&over.expect("reads")).as_deref(), Some("from-env"));
    let over = with_env("", &[("DATABASE_URL_FILE", &path)]);
    assert_eq!(over.expect("reads").database_url.expose(), "from-a-file");

    for (bytes, words) in [("", "is empty"), ("a\nb", "more than one line")] {
        std::fs::write(&file, bytes).expect("a temporary file");
        let lines = refused(&text);
        assert!(lines.starts_with("providers.p.secret_file: ") && lines.contains(words), "{lines}");
    }
    std::fs::remove_file(&file).expect("the temporary file");
    assert!(refused(&text).starts_with("providers.p.secret_file: the file cannot be read"));
    std::fs::remove_dir_all(&folder).expect("the temporary folder");
}

#[test]
fn a_file_that_is_named_must_exist_and_the_default_one_need_not() {
    let missing = std::path::Path::new("/nonexistent/sendonce.toml");
    let error = Config::load(Some(missing), std::iter::empty()).expect_err("no such file");
    assert_eq!(error.problems.len(), 1);
    assert!(error.to_string().starts_with("/nonexistent/sendonce.toml: the file cannot be read"));
    assert!(Config::load(None, std::iter::empty()).is_ok());
}

#[test]
fn the_keys_of_every_vendor_are_read_for_its_kind_and_for_no_other() {
    for (kind, keys) in [
        (
            "ses",
            "access_key_id = \"a\"\nsecret_access_key = \"b\"\nregion = \"eu-west-1\"\nfrom = \"x@example.com\"",
        ),
        ("sendgrid", "api_key = \"a\"\nfrom = \"x@example.com\""),
        ("postmark", "token = \"a\"\nfrom = \"x@example.com\""),
        ("mailgun", "api_key = \"a\"\ndomain = \"mg.example.com\"\nsettle = \"30m\""),
        ("infrai", "api_key = \"a\""),
        ("resend", "api_key = \"a\"\nfrom = \"x@example.com\"\nidempotent = true"),
        (
            "smtp",
            "host = \"mail.example.com\"\nport = 587\ntls = \"starttls\"\nfrom = \"x@example.com\"",
        ),
        ("twilio", "account_sid = \"AC1\"\nauth_token = \"b\"\nfrom = \"Example\""),
        ("sinch", "service_plan_id = \"a\"\ntoken = \"b\""),
        ("infobip", "api_key = \"a\"\nbase_url = \"https://x.api.infobip.com\""),
    ] {
        let lines = unsafe_lines(&format!("[providers.v]\nkind = \"{kind}\"\n{keys}"));
        let is_built = super::Kind::find(kind).is_some_and(|kind| kind.is_available());
        assert_eq!(lines.len(), usize::from(!is_built), "{lines:#?}");
        assert!(lines.iter().all(|line| line.starts_with("providers.v.kind: ")), "{lines:#?}");
    }
    let lines = refused("[providers.v]\nkind = \"http\"\nauth_token = \"canary\"");
    assert_eq!(
        lines,
        "providers.v.auth_token: kind http has no such key; it belongs to twilio: remove it or change \
         providers.v.kind"
    );
    let lines = refused("[resolver]\nurl = \"https://identity.example\"\nsecret_file = \"/x\"");
    assert!(
        lines.contains("resolver.url: kind demo has no such key; it belongs to http"),
        "{lines}"
    );
    assert!(lines.contains("resolver.secret_file: kind demo has no such key"), "{lines}");
    assert!(refused("[providers.v]\nkind = \"smtp\"\nport = 70000").contains("providers.v.port"));
}

#[test]
fn a_vendor_without_its_credentials_is_refused() {
    let lines = unsafe_lines("[providers.v]\nkind = \"sinch\"");
    let needed =
        "providers.v.token: is missing, and kind sinch needs it; set it or providers.v.api_key";
    assert!(lines.iter().any(|line| line == needed), "{lines:#?}");
}

#[test]
fn the_lease_covers_resolver_and_call_and_fits_into_the_shortest_life() {
    let dispatch = |lease: &str, call: &str, rest: &str| {
        format!("[dispatch]\nlease = \"{lease}\"\ncall_timeout = \"{call}\"\n{rest}")
    };
    refuses(&dispatch("7999ms", "5s", ""), "dispatch.lease", "set it to at least \"8s\"");
    assert_eq!(unsafe_lines(&dispatch("8s", "5s", "")), [""; 0]);
    // Equal is allowed, and the margin is not subtracted.
    let life = "[admission]\nmin_lifetime = \"8s\"";
    assert_eq!(unsafe_lines(&dispatch("8s", "5s", life)), [""; 0]);
    refuses(
        &dispatch("8001ms", "5s", life),
        "dispatch.lease",
        "longer than admission.min_lifetime (8s)",
    );
    // The default of min_lifetime follows the margin.
    refuses(
        &dispatch("10s", "5s", "margin = \"1s\""),
        "dispatch.lease",
        "longer than admission.min_lifetime (6s)",
    );
}

#[test]
fn unsafe_combinations_are_refused_with_one_line_each() {
    for (text, key, words) in [
        ("[admission]\nmax_lifetime = \"10s\"", "admission.max_lifetime", "shorter than"),
        ("[dispatch]\nbackoff_max = \"500ms\"", "dispatch.backoff_max", "shorter than"),
        ("[reconcile]\nmax_poll = \"500ms\"", "reconcile.max_poll", "shorter than"),
        ("[ui]\nabsolute_timeout = \"1h\"", "ui.absolute_timeout", "shorter than"),
        ("[routes]\nsms = [\"nobody\"]", "routes.sms", "names nobody, which is no configured"),
        ("[routes]\nsms = [\"+1 555 010 0001\"]", "routes.sms", "names something, which"),
        ("[routes]\nsms = [\"demo\", \"demo\"]", "routes.sms", "names demo twice"),
        ("[routes]\nsms = []", "routes.sms", "is empty"),
        ("[providers.p]\nkind = \"http\"\nsecret = \"x\"", "providers.p.base_url", "is missing"),
        (
            "[providers.p]\nkind = \"http\"\nbase_url = \"https://x.example\"",
            "providers.p.secret",
            "is missing",
        ),
        (
            "[providers.p]\nkind = \"http\"\nbase_url = \"https://x.example\"\nsecret = \"\"",
            "providers.p.secret",
            "is missing",
        ),
        ("[server]\nlisten = \"3000\"", "server.listen", "is not an address and a port"),
        ("[server]\nlisten = \"::1:3000\"", "server.listen", "is not an address and a port"),
        ("[server]\nlisten = \"127.0.0.1:70000\"", "server.listen", "not an address and a port"),
        (
            "[server]\nhealth_listen = \"127.0.0.1:3000\"",
            "server.health_listen",
            "is the same as server.listen",
        ),
        ("[server]\npublic_url = \"sendonce.example\"", "server.public_url", "not an absolute"),
        ("[server]\npublic_url = \"/x\"", "server.public_url", "not an absolute"),
        ("[server]\npublic_url = \"ftp://x.example\"", "server.public_url", "not an absolute"),
        ("[server]\npublic_url = \"http://x.example\"", "server.public_url", "is plain http://"),
        ("[server]\npublic_url = \"https://x.example?a\"", "server.public_url", "query"),
        ("[database]\nurl = \"mysql://x/y\"", "database.url", "names no database"),
        ("[database]\nurl = \"sqlite::memory:\"", "database.url", "in memory"),
        (
            "[resolver]\nkind = \"http\"\nurl = \"http://identity.internal/r\"\nsecret = \"x\"",
            "resolver.url",
            "is plain http://",
        ),
    ] {
        refuses(text, key, words);
    }
    assert_eq!(unsafe_lines(&format!("{HTTP}idempotent = true")), [""; 0]);
    assert_eq!(unsafe_lines(&format!("{HTTP}idempotent = true\nwindow = \"24h\"")), [""; 0]);
    refuses(&format!("{HTTP}settle = \"0s\""), "providers.p.settle", "is zero");
    assert_eq!(unsafe_lines(HTTP), [""; 0], "without settle absence is never believed: safe");
}

#[test]
fn a_provider_serves_only_the_channels_of_its_kind() {
    let text = "[providers.t]\nkind = \"twilio\"\naccount_sid = \"AC1\"\nauth_token = \"x\"\n\
                [routes]\nemail = [\"t\"]";
    let lines = unsafe_lines(text);
    let line =
        "routes.email: names t, and kind twilio does not carry email; name a provider for email";
    assert!(lines.iter().any(|found| found == line), "{lines:#?}");
}

#[test]
fn settle_is_not_below_what_the_vendor_documents() {
    let mailgun = |settle: &str| {
        let text =
            format!("[providers.m]\nkind = \"mailgun\"\napi_key = \"x\"\nsettle = \"{settle}\"");
        unsafe_lines(&text).into_iter().filter(|line| line.contains("settle")).collect::<Vec<_>>()
    };
    assert_eq!(
        mailgun("29m"),
        [
            "providers.m.settle: 29m is shorter than the lag that mailgun documents (30m); set it to at \
          least \"30m\", or remove it"
        ]
    );
    assert_eq!(mailgun("30m"), [""; 0]);
}

#[test]
fn plain_http_is_refused_to_other_machines_and_never_to_loopback() {
    let base = |url: &str| {
        unsafe_lines(&format!(
            "[providers.p]\nkind = \"http\"\nsecret = \"x\"\nbase_url = \"{url}\""
        ))
    };
    for url in [
        "http://127.0.0.1:4010/http",
        "http://127.9.8.7",
        "http://[::1]:4010",
        "http://localhost:4010",
        "http://LOCALHOST./x",
        "https://sms.example.com",
    ] {
        assert_eq!(base(url), [""; 0], "{url}");
    }
    for url in [
        "http://sms.example.com",
        "http://10.0.0.1",
        "http://0.0.0.0",
        "http://localhost.example.com",
        "http://127.0.0.1.example.com",
        "http://[fe80::1]",
    ] {
        let lines = base(url);
        assert!(lines.len() == 1 && lines[0].contains("plain http://"), "{url}: {lines:?}");
    }
    let lines = base("https://user:canary@sms.example.com");
    assert!(lines.len() == 1 && lines[0].contains("user name or password"), "{lines:?}");
}

#[test]
fn a_sender_of_mail_has_one_plain_address() {
    let lines = |from: &str| {
        unsafe_lines(&format!(
            "[providers.r]\nkind = \"resend\"\napi_key = \"k\"\nfrom = \"{from}\""
        ))
    };
    assert_eq!(lines("Example Market <no-reply@example.com>"), [""; 0]);
    assert_eq!(lines("no-reply@example.com"), [""; 0]);
    for from in ["Example", "a@example.com, b@example.com", "no-reply@"] {
        let lines = lines(from);
        assert!(lines.len() == 1 && lines[0].starts_with("providers.r.from: is no"), "{lines:?}");
    }
}

#[test]
fn smtp_without_tls_is_refused_to_other_machines_and_never_to_loopback() {
    let smtp = |host: &str| {
        let text =
            format!("[providers.s]\nkind = \"smtp\"\nport = 25\ntls = \"none\"\nhost = \"{host}\"");
        unsafe_lines(&text).iter().any(|line| line.starts_with("providers.s.tls: "))
    };
    for host in ["127.0.0.1", "localhost", "::1", "[::1]"] {
        assert!(!smtp(host), "{host}");
    }
    for host in ["mail.example.com", "10.0.0.1", "localhost.example.com"] {
        assert!(smtp(host), "{host}");
    }
}

#[test]
fn the_effective_configuration_hides_every_secret_and_can_be_read_again() {
    let text = format!(
        "{HTTP}webhook_secret = \"canary-hook\"\nsettle = \"90s\"\n\
         [providers.s]\nkind = \"smtp\"\nhost = \"mail.example.com\"\nport = 587\n\
         tls = \"starttls\"\npassword = \"canary-pass\"\nusername = \"u\"\n\
         [providers.t]\nkind = \"twilio\"\naccount_sid = \"AC1\"\nauth_token = \"canary-token\"\n\
         [resolver]\nkind = \"http\"\nurl = \"https://identity.example/r\"\nsecret = \"canary-r\"\n"
    );
    let database = ("DATABASE_URL", "postgres://app:canary-db@db.example/x?password=canary-q");
    let config = with_env(&text, &[database]).unwrap_or_else(|error| panic!("{error}"));
    let shown = config.effective();
    assert!(!shown.contains("canary"), "{shown}");
    for line in [
        "secret = \"[hidden]\"",
        "webhook_secret = \"[hidden]\"",
        "auth_token = \"[hidden]\"",
        "password = \"[hidden]\"",
        "url = \"postgres://app:[hidden]@db.example/x?password=[hidden]\"",
        "settle = \"90s\"",
        "min_lifetime = \"15s\"",
        "port = 587",
    ] {
        assert!(shown.contains(line), "{line} in\n{shown}");
    }
    let again = parse(&shown).unwrap_or_else(|error| panic!("{error}\n{shown}"));
    assert_eq!(again.effective(), shown);
}

#[test]
fn the_password_of_an_address_is_hidden_wherever_it_stands() {
    use super::effective::hidden_password;
    for (text, shown) in [
        ("postgres://postgres@127.0.0.1:5432/x", "postgres://postgres@127.0.0.1:5432/x"),
        ("postgres://u:p%40q@h/x", "postgres://u:[hidden]@h/x"),
        ("postgres://u:@h/x", "postgres://u:@h/x"),
        ("postgres://h/x?user=u&password=p", "postgres://h/x?user=u&password=[hidden]"),
        ("sqlite:///var/lib/x.db", "sqlite:///var/lib/x.db"),
        ("sqlite://data/sendonce.db", "sqlite://data/sendonce.db"),
        ("no address at all", "[hidden]"),
    ] {
        assert_eq!(hidden_password(text), shown);
    }
}

#[test]
fn the_session_cookie_is_bound_to_the_host_where_there_is_tls() {
    assert_eq!(good("").session_cookie(), "sendonce");
    let config = good("[server]\npublic_url = \"https://sendonce.example.com/\"");
    assert_eq!(config.session_cookie(), "__Host-sendonce");
    assert_eq!(config.server.public_url, "https://sendonce.example.com");
}

#[test]
fn what_is_allowed_and_doubtful_gets_a_sentence() {
    let lines: Vec<String> = good(&format!("{HTTP}[routes]\nsms = [\"p\"]"))
        .warnings()
        .iter()
        .map(ToString::to_string)
        .collect();
    for key in ["providers.p.settle: ", "providers.p.webhook_secret: ", "resolver.kind: "] {
        assert!(lines.iter().any(|line| line.starts_with(key)), "{key}: {lines:#?}");
    }
    let open = good("[providers.demo]\nlisten = \"0.0.0.0:4010\"");
    assert!(open.check().is_empty());
    assert!(open.warnings().iter().any(|problem| problem.key == "providers.demo.listen"));
}

#[test]
fn nodes_compare_what_they_must_share_and_no_more() {
    let shared = good(OUTSIDE).shared();
    assert_eq!(shared["dispatch.margin"], "1s");
    assert_eq!(shared["providers.fake.settle"], "300ms");
    assert_eq!(shared["routes.sms"], "fake");
    let other = good(&OUTSIDE.replace("backoff_first = \"200ms\"", "backoff_first = \"300ms\""));
    assert_eq!(other.shared(), shared);
    assert!(!shared.values().any(|value| value.contains("s3cret")));
}

#[test]
fn the_resolver_of_an_identity_system_has_its_address_and_key() {
    let config = good(
        "[resolver]\nkind = \"http\"\nurl = \"https://identity.internal/resolve\"\nsecret = \"k\"",
    );
    let ResolverKind::Http { url, secret } = &config.resolver.kind else { panic!("not http") };
    assert_eq!((url.as_str(), secret.expose()), ("https://identity.internal/resolve", "k"));
    let config = good("[resolver]\nkind = \"directory\"\npath = \"refs.ndjson\"");
    assert!(matches!(config.resolver.kind, ResolverKind::Directory { .. }));
}

#[test]
fn a_documented_window_counts_without_being_configured() {
    let config =
        good("[providers.r]\nkind = \"resend\"\napi_key = \"x\"\nfrom = \"x@example.com\"");
    assert_eq!(config.providers["r"].replay_window(), Some(24 * HOUR));
    let config = good(&format!("{HTTP}window = \"10m\""));
    assert_eq!(config.providers["p"].replay_window(), None, "idempotent is off");
    let config = good(&format!("{HTTP}window = \"10m\"\nidempotent = true"));
    assert_eq!(config.providers["p"].replay_window(), Some(10 * MINUTE));
}

#[test]
fn sending_rules_are_off_until_they_are_written_and_are_read_again_as_shown() {
    use crate::policy::{AfterUnknown, Scope, SendingRules};
    let off = good("");
    assert_eq!(off.sending, SendingRules { currency: "USD".to_owned(), ..Default::default() });
    let file = std::env::temp_dir().join(format!("sendonce-prices-{}.csv", std::process::id()));
    std::fs::write(&file, "country,price\nUS,0.0079\n*,0.2\n").unwrap();
    let text = format!(
        "[policy]\nafter_unknown = \"settled\"\nmode = \"monitor\"\ncountries = [\"US\", \"GB\"]\n\
         blocked_prefixes = [\"+1900\"]\nprices = \"{}\"\nprice_max = \"0.1\"\n\
         [policy.purposes.login]\nafter_unknown = \"window\"\n\
         [policy.breaker]\nmessages_max = 500\nprice_max = \"20\"\n\
         [policy.breakers.GB]\nmessages_max = 3\nwindow = \"2h\"\n\
         [limits]\nseller = [\"5 per 15m\", \"20 per 24h\"]\nprefix_digits = 5\n",
        file.display()
    );
    let config = good(&text);
    let sending = &config.sending;
    assert_eq!(sending.after_unknown("login"), AfterUnknown::Window);
    assert_eq!(sending.after_unknown("x"), AfterUnknown::Settled);
    assert_eq!(sending.price("US"), Some(7_900));
    assert_eq!(sending.budget("GB").unwrap().messages_max, Some(3));
    assert_eq!(sending.budget("FR").unwrap().price_max, Some(20_000_000));
    assert_eq!(sending.limits.of(Scope::Seller).count(), 2);
    let again = good(&config.effective());
    assert_eq!((&again.sending, again.effective()), (sending, config.effective()));
    assert_ne!(off.digest(), config.digest(), "all nodes judge alike");
    assert_eq!(config.check(), []);
    std::fs::remove_file(&file).unwrap();
    let from_env = with_env("", &[("SENDONCE_LIMITS__CLIENT", "100 per 1m, 5 per 1s")]).unwrap();
    assert_eq!(from_env.sending.limits.of(Scope::Client).count(), 2);
    for (text, key) in [
        ("[policy]\nafter_unknown = \"later\"", "policy.after_unknown"),
        ("[policy]\ncountries = [\"usa\"]", "policy.countries"),
        ("[policy]\nblocked_prefixes = [\"1900\"]", "policy.blocked_prefixes"),
        ("[policy]\nprices = \"/nowhere/prices.csv\"", "policy.prices"),
        ("[policy]\nprice_max = \"cheap\"", "policy.price_max"),
        ("[policy]\ncurrency = \"dollars\"", "policy.currency"),
        ("[policy.breaker]\nwindow = \"5s\"", "policy.breaker.window"),
        ("[policy.breakers.gb]\nmessages_max = 1", "policy.breakers.gb"),
        ("[policy.breakers.GB]\nprobes = 1", "policy.breakers.GB"),
        ("[limits]\nseller = [\"many\"]", "limits.seller"),
        ("[limits]\nsellers = [\"5 per 1m\"]", "limits.sellers"),
    ] {
        let lines = refused(text);
        assert!(lines.lines().any(|line| line.starts_with(&format!("{key}: "))), "{key}: {lines}");
    }
    refuses("[policy]\nprice_max = \"0.1\"", "policy.prices", "is not set");
}

#[test]
fn what_could_never_send_or_repeat_safely_is_refused_and_a_guessable_key_is_named() {
    let lines = unsafe_lines(
        "[dispatch]\nmargin = \"20s\"\n[admission]\nmin_lifetime = \"15s\"\nmax_lifetime = \"20s\"",
    );
    assert!(lines.len() == 1 && lines[0].contains("no call could ever start"), "{lines:?}");
    // A margin as long as the shortest life is allowed: such an event is admitted and expires.
    let allowed = "[dispatch]\nmargin = \"15s\"\n[admission]\nmin_lifetime = \"15s\"";
    assert_eq!(unsafe_lines(allowed), [""; 0]);
    for (level, is_known) in
        [("debug", true), ("info,server::dispatch=trace", true), ("OFF", true), ("loud", false)]
    {
        let lines = unsafe_lines(&format!("[log]\nlevel = \"{level}\""));
        assert_eq!(lines.is_empty(), is_known, "{level}: {lines:?}");
    }
    let http = |more: &str| {
        format!("[providers.p]\nkind = \"http\"\nbase_url = \"https://x.example\"\n{more}")
    };
    let lines = unsafe_lines(&http("secret = \"0123456789\"\nidempotent = true\nwindow = \"5s\""));
    assert!(lines.len() == 1 && lines[0].contains("providers.p.window"), "{lines:?}");
    let guessable = good(&http("secret = \"x\"")).warnings();
    assert!(guessable.iter().any(|w| w.key == "providers.p.secret"), "{guessable:?}");
}

#[test]
fn trusted_proxies_are_networks() {
    let of = |text: &str| good(text).server.trusted_proxies.len();
    assert_eq!(of(""), 2);
    assert_eq!(of("[server]\ntrusted_proxies = []"), 0);
    assert_eq!(of("[server]\ntrusted_proxies = [\"10.0.0.0/8\", \"2001:db8::1\"]"), 2);
    let wrong = "[server]\ntrusted_proxies = [\"proxy.example\"]";
    let error = Config::parse("x", wrong, std::iter::empty()).expect_err("is no network");
    assert_eq!(error.problems[0].key, "server.trusted_proxies");
}
