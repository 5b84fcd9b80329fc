//! Our own listener, our public address, and the resolver's.

use std::time::Duration;

use url::Url;

use crate::cli::healthcheck;
use crate::config::{Config, ResolverKind};
use crate::finding::Finding;
use crate::node::Seams;

/// How long one connection may take.
const PATIENCE: Duration = Duration::from_secs(3);

pub(super) async fn examine(config: &Config, seams: &Seams) -> Vec<Finding> {
    vec![public_url(config), listener(config, seams).await, resolver(config, seams).await]
}

/// What providers call back and people open.
fn public_url(config: &Config) -> Finding {
    let check = "network.public_url";
    let Ok(url) = Url::parse(&config.server.public_url) else {
        return Finding::bad(check, "is no address", "set server.public_url to https://…");
    };
    let host = url.host_str().unwrap_or_default();
    let is_loopback = matches!(host, "localhost" | "127.0.0.1" | "[::1]");
    if matches!(host, "" | "0.0.0.0" | "[::]") {
        Finding::bad(check, "names every address and reaches none", "name the host that others use")
    } else if is_loopback {
        Finding::warning(
            check,
            "is this machine alone: no provider can call back, and nobody else can open a page",
            "set server.public_url to the address that others use, unless this is a trial",
        )
    } else if url.scheme() != "https" {
        Finding::bad(check, "is not https://", "put a TLS proxy in front and name its address")
    } else {
        Finding::good(check, &format!("https, at {host}"))
    }
}

async fn listener(config: &Config, seams: &Seams) -> Finding {
    let check = "network.listener";
    let url = healthcheck::own_url(config);
    let Ok(url) = Url::parse(&url) else {
        return Finding::bad(check, "server.listen is no address", "write it as 127.0.0.1:3000");
    };
    let answer = tokio::select! {
        answer = healthcheck::status(&url) => answer.ok(),
        () = seams.clock.sleep(PATIENCE) => None,
    };
    match answer {
        Some(200) => Finding::good(check, &format!("{url} is ready")),
        Some(status) => Finding::bad(
            check,
            &format!("{url} answers {status}"),
            "its body names the failing check; look at the server's log",
        ),
        None => Finding::warning(
            check,
            &format!("nothing answers at {url}"),
            "start `sendonce serve`, or ask on the machine on which it runs",
        ),
    }
}

/// Opens a connection and closes it: nothing is asked about anybody.
async fn resolver(config: &Config, seams: &Seams) -> Finding {
    let check = "network.resolver";
    match &config.resolver.kind {
        ResolverKind::Demo => {
            Finding::warning(check, "demo: addresses and links are invented", "set resolver.kind")
        }
        ResolverKind::Directory { path } => match std::fs::metadata(path) {
            Ok(about) if about.is_file() => {
                Finding::good(check, &format!("{} is there", path.display()))
            }
            _ => Finding::bad(
                check,
                &format!("{} cannot be read", path.display()),
                "check resolver.path and its rights",
            ),
        },
        ResolverKind::Http { url, .. } => {
            let place = Url::parse(url)
                .ok()
                .and_then(|url| Some((url.host_str()?.to_owned(), url.port_or_known_default()?)));
            let Some((host, port)) = place else {
                return Finding::bad(check, "resolver.url is no address", "write it as https://…");
            };
            let bare = host.trim_start_matches('[').trim_end_matches(']').to_owned();
            let connected = tokio::select! {
                connected = tokio::net::TcpStream::connect((bare, port)) => connected.is_ok(),
                () = seams.clock.sleep(PATIENCE) => false,
            };
            if connected {
                Finding::good(check, &format!("{host}:{port} takes a connection"))
            } else {
                Finding::bad(
                    check,
                    &format!("{host}:{port} takes no connection: nothing can be sent"),
                    "check resolver.url, the network, and the identity system",
                )
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::finding::Level;

    #[test]
    fn a_public_url_that_nobody_can_use_is_named() {
        let level = |url: &str| {
            let text = format!("[server]\npublic_url = {url:?}");
            public_url(&Config::parse("x", &text, std::iter::empty()).expect("reads")).level
        };
        assert_eq!(level("https://sendonce.example.com"), Level::Good);
        assert_eq!(level("http://127.0.0.1:3000"), Level::Warning);
        assert_eq!(level("https://0.0.0.0"), Level::Bad);
        assert_eq!(level("http://sendonce.example.com"), Level::Bad);
    }
}
