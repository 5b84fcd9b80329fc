//! `sendonce healthcheck`: for images without curl.

use std::time::Duration;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::time::timeout;
use url::{Host, Url};

use super::{CliError, Out};
use crate::config::Config;

/// How long the whole question may take; below the usual limit of a container's own check.
const ANSWER_WITHIN: Duration = Duration::from_secs(5);

/// As much of the answer as its status line needs.
const STATUS_BYTES_MAX: usize = 1024;

/// Whom to ask.
#[derive(Debug, Clone, clap::Args)]
#[command(after_help = "Examples:\n  sendonce healthcheck\n  \
                        sendonce healthcheck --url http://127.0.0.1:9090/readyz")]
pub struct Args {
    /// The address; /readyz on the configured listener when not given.
    #[arg(long)]
    pub url: Option<String>,
}

/// Asks, and fails unless the answer is 200.
///
/// # Errors
/// With exit code 1 when the server is not ready, with 2 when the address is no plain http:// one.
pub async fn run(
    args: &Args,
    config: impl FnOnce() -> Result<Config, CliError>,
    out: &mut Out,
) -> Result<(), CliError> {
    let text = match &args.url {
        Some(url) => url.clone(),
        None => own_url(&config()?),
    };
    let url = Url::parse(&text).ok().filter(|url| url.scheme() == "http" && url.has_host());
    let Some(url) = url else {
        return Err(CliError::usage(
            "--url is no http:// address",
            "ask the server on its own machine, as in http://127.0.0.1:3000/readyz",
        ));
    };
    let help = "look at the server's log";
    match timeout(ANSWER_WITHIN, status(&url)).await {
        Ok(Ok(200)) => out.line("ready"),
        Ok(Ok(status)) => Err(CliError::failed(&format!("not ready: it answers {status}"), help)),
        Ok(Err(error)) => {
            Err(CliError::failed(&format!("not ready: no answer ({})", error.kind()), help))
        }
        Err(_) => {
            let message = format!("not ready: no answer within {} s", ANSWER_WITHIN.as_secs());
            Err(CliError::failed(&message, help))
        }
    }
}

/// Where this configuration serves its health, as seen from this machine.
pub(crate) fn own_url(config: &Config) -> String {
    let listen = config.server.health_listen.as_ref().unwrap_or(&config.server.listen);
    let listen = listen.replace("0.0.0.0:", "127.0.0.1:").replace("[::]:", "[::1]:");
    format!("http://{listen}/readyz")
}

/// The status of one GET.
pub(crate) async fn status(url: &Url) -> std::io::Result<u16> {
    let port = url.port_or_known_default().unwrap_or(80);
    let mut stream = match url.host() {
        Some(Host::Ipv4(ip)) => TcpStream::connect((ip, port)).await?,
        Some(Host::Ipv6(ip)) => TcpStream::connect((ip, port)).await?,
        Some(Host::Domain(name)) => TcpStream::connect((name, port)).await?,
        None => return Err(std::io::ErrorKind::InvalidInput.into()),
    };
    let query = url.query().map_or_else(String::new, |query| format!("?{query}"));
    let request = format!(
        "GET {}{query} HTTP/1.1\r\nhost: {}:{port}\r\nuser-agent: sendonce\r\nconnection: close\r\n\r\n",
        url.path(),
        url.host_str().unwrap_or("localhost"),
    );
    stream.write_all(request.as_bytes()).await?;
    let mut answer = Vec::with_capacity(STATUS_BYTES_MAX);
    while !answer.contains(&b'\n') && answer.len() < STATUS_BYTES_MAX {
        let mut chunk = [0_u8; 256];
        let read = stream.read(&mut chunk).await?;
        if read == 0 {
            break;
        }
        answer.extend_from_slice(&chunk[..read]);
    }
    let line = String::from_utf8_lossy(&answer);
    let mut words = line.lines().next().unwrap_or("").split(' ');
    let is_http = words.next().is_some_and(|word| word.starts_with("HTTP/1."));
    let status = words.next().and_then(|word| word.parse().ok()).filter(|_| is_http);
    status.ok_or_else(|| std::io::ErrorKind::InvalidData.into())
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    use tokio::net::TcpListener;

    use super::{Args, own_url, run};
    use crate::cli::CliError;
    use crate::cli::testing::Screen;
    use crate::config::Config;

    fn config(text: &str) -> Config {
        Config::parse("x", text, std::iter::empty()).expect("reads")
    }

    /// Serves one answer and returns what `healthcheck` makes of it, and what it asked.
    async fn ask(answer: &'static [u8]) -> (Result<(), CliError>, String) {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
        let address = listener.local_addr().expect("its address");
        let serve = tokio::spawn(async move {
            let (mut stream, _) = listener.accept().await.expect("a connection");
            let mut asked = vec![0_u8; 1024];
            let read = stream.read(&mut asked).await.expect("a request");
            stream.write_all(answer).await.expect("an answer");
            String::from_utf8_lossy(&asked[..read]).into_owned()
        });
        let (mut out, _) = Screen::new();
        let args = Args { url: Some(format!("http://{address}/readyz")) };
        let done = run(&args, || Ok(config("")), &mut out).await;
        (done, serve.await.expect("served"))
    }

    #[tokio::test]
    async fn only_200_is_ready() {
        let (done, asked) = ask(b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n").await;
        assert_eq!(done, Ok(()));
        assert!(asked.starts_with("GET /readyz HTTP/1.1\r\nhost: 127.0.0.1:"), "{asked}");
        for answer in [
            &b"HTTP/1.1 503 Service Unavailable\r\n\r\n"[..],
            b"HTTP/1.1 302 Found\r\n\r\n",
            b"SSH-2.0 200 x\r\n",
            b"",
            b"HTTP/1.1",
        ] {
            assert_eq!(ask(answer).await.0.expect_err("not ready").exit, 1);
        }
    }

    #[tokio::test]
    async fn nobody_there_is_1_and_a_wrong_address_is_2() {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
        let address = listener.local_addr().expect("its address");
        drop(listener);
        let (mut out, _) = Screen::new();
        let args = Args { url: Some(format!("http://{address}/readyz")) };
        assert_eq!(run(&args, || Ok(config("")), &mut out).await.expect_err("nobody").exit, 1);
        for url in ["https://127.0.0.1/", "127.0.0.1:3000", "nonsense"] {
            let args = Args { url: Some(url.to_owned()) };
            let error = run(&args, || Ok(config("")), &mut out).await.expect_err(url);
            assert_eq!(error.exit, 2);
        }
    }

    #[test]
    fn the_configured_listener_is_asked_on_this_machine() {
        assert_eq!(own_url(&config("")), "http://127.0.0.1:3000/readyz");
        let text = "[server]\nlisten = \"0.0.0.0:80\"";
        assert_eq!(own_url(&config(text)), "http://127.0.0.1:80/readyz");
        let text = "[server]\nhealth_listen = \"[::]:9090\"";
        assert_eq!(own_url(&config(text)), "http://[::1]:9090/readyz");
    }
}
