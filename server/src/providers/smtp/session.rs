//! One SMTP conversation (RFC 5321) over a [`Dialogue`]: greeting, EHLO, TLS, AUTH, one message, QUIT.
//!
//! Nothing is pipelined: each command waits for its reply, so that it is always known how far it came. The
//! message goes out without its final dot, and only when the server's side of the connection has taken all of
//! it, the dot follows. What fails before the dot has sent nothing; what fails after it is unknown.

use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use tokio_rustls::rustls::RootCertStore;
use zeroize::Zeroizing;

use super::reply::{Reply, Step, enhanced, verdict};
use crate::domain::Verdict;
use crate::providers::http::verdict_of_failure;
use crate::providers::transport::Transport;
use crate::providers::transport::{Dialogue, Failure, Kind, Phase};
use crate::providers::{Deadline, Secret};

/// The longest line of a reply; RFC 5321 4.5.3.1.5 asks for 512.
const LINE_LEN_MAX: usize = 2_048;

/// Lines of one reply.
const LINES_MAX: usize = 64;

/// How the connection is protected.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Tls {
    /// By STARTTLS.
    Upgrade,
    Implicit,
    None,
}

/// Where and how a server is spoken to.
#[derive(Clone)]
pub struct Server {
    pub host: String,
    pub port: u16,
    pub tls: Tls,
    /// Authorities to trust in place of the public ones.
    pub roots: Option<Arc<RootCertStore>>,
    /// The name in EHLO.
    pub hello: String,
    pub credentials: Option<(String, Secret)>,
    /// DSNs about success are wanted, not only about failure.
    pub wants_success: bool,
}

/// What is handed over. Addresses are plain ones, checked before.
pub struct Letter<'a> {
    pub from: &'a str,
    pub to: &'a str,
    pub envelope_id: &'a str,
    /// Headers and body with CRLF line ends.
    pub bytes: &'a [u8],
    pub message_id: String,
}

/// Why a conversation ended before its message was taken.
enum Ended {
    Broken(Failure),
    /// A reply that does not let it go on.
    Said(Step, Reply),
    /// The server cannot do what the configuration asks for.
    Lacks(&'static str),
}

impl From<Failure> for Ended {
    fn from(failure: Failure) -> Self {
        Self::Broken(failure)
    }
}

/// Sends one message at most.
pub async fn deliver(
    transport: &dyn Transport,
    server: &Server,
    letter: &Letter<'_>,
    deadline: Deadline,
) -> Verdict {
    match talk(transport, server, letter, deadline).await {
        Ok(verdict) => verdict,
        Err(Ended::Broken(failure)) => verdict_of_failure(failure),
        Err(Ended::Said(step, reply)) => verdict(step, &reply, None),
        Err(Ended::Lacks(code)) => Verdict::ProviderStopped { code: code.to_owned() },
    }
}

async fn talk(
    transport: &dyn Transport,
    server: &Server,
    letter: &Letter<'_>,
    deadline: Deadline,
) -> Result<Verdict, Ended> {
    let mut line = Line::open(transport.dial(&server.host, server.port, deadline).await?);
    if server.tls == Tls::Implicit {
        line = line.secure(server).await?;
    }
    line.expect(Step::Greeting).await?;
    let mut abilities = line.hello(server).await?;
    if server.tls == Tls::Upgrade {
        if !abilities.has("STARTTLS") {
            return Err(Ended::Lacks("no_starttls"));
        }
        line.command(Step::StartTls, "STARTTLS").await?;
        line = line.secure(server).await?;
        // What was said in the clear counts for nothing (RFC 3207 4.2).
        abilities = line.hello(server).await?;
    }
    if let Some((user, password)) = &server.credentials {
        line.authenticate(&abilities, user, password).await?;
    }
    let has_dsn = abilities.has("DSN");
    let mut mail = format!("MAIL FROM:<{}>", letter.from);
    if has_dsn {
        mail.push_str(" RET=HDRS ENVID=");
        mail.push_str(letter.envelope_id);
    }
    line.command(Step::Mail, &mail).await?;
    let mut rcpt = Zeroizing::new(format!("RCPT TO:<{}>", letter.to));
    if has_dsn {
        let wanted = if server.wants_success { "SUCCESS,FAILURE,DELAY" } else { "FAILURE,DELAY" };
        rcpt.push_str(" NOTIFY=");
        rcpt.push_str(wanted);
    }
    line.command(Step::Rcpt, &rcpt).await?;
    line.write("DATA\r\n".as_bytes()).await?;
    let reply = line.reply().await?;
    if reply.code != 354 {
        line.leave().await;
        return Err(Ended::Said(Step::Data, reply));
    }
    line.write(&stuffed(letter.bytes)).await?;
    Ok(line.finish(letter).await)
}

/// What a server said that it can do.
struct Abilities(Vec<String>);

impl Abilities {
    fn has(&self, name: &str) -> bool {
        self.0
            .iter()
            .any(|line| line.split(' ').next().is_some_and(|word| word.eq_ignore_ascii_case(name)))
    }

    /// Mechanisms of AUTH; some old servers write `AUTH=`.
    fn has_mechanism(&self, name: &str) -> bool {
        self.0
            .iter()
            .filter(|line| line.get(..4).is_some_and(|word| word.eq_ignore_ascii_case("AUTH")))
            .flat_map(|line| line.split([' ', '=']).skip(1))
            .any(|word| word.eq_ignore_ascii_case(name))
    }
}

/// The connection, and what came on it that was not read yet.
struct Line {
    dialogue: Box<dyn Dialogue>,
    buffer: Vec<u8>,
}

impl Line {
    fn open(dialogue: Box<dyn Dialogue>) -> Self {
        Self { dialogue, buffer: Vec::new() }
    }

    async fn secure(self, server: &Server) -> Result<Self, Failure> {
        // What came before the handshake would count as said under TLS: somebody put it there.
        if !self.buffer.is_empty() {
            return Err(Failure { phase: Phase::BeforeWrite, kind: Kind::Tls });
        }
        let dialogue = self.dialogue.secure(&server.host, server.roots.clone()).await?;
        Ok(Self::open(dialogue))
    }

    async fn write(&mut self, bytes: &[u8]) -> Result<(), Failure> {
        self.dialogue.write(bytes).await
    }

    /// Sends one command and waits for a positive reply.
    async fn command(&mut self, step: Step, command: &str) -> Result<Reply, Ended> {
        let text = Zeroizing::new(format!("{command}\r\n"));
        self.write(text.as_bytes()).await?;
        self.expect(step).await
    }

    async fn expect(&mut self, step: Step) -> Result<Reply, Ended> {
        let reply = self.reply().await?;
        if reply.is_positive() {
            return Ok(reply);
        }
        self.leave().await;
        Err(Ended::Said(step, reply))
    }

    async fn hello(&mut self, server: &Server) -> Result<Abilities, Ended> {
        let reply = self.command(Step::Ehlo, &format!("EHLO {}", server.hello)).await?;
        Ok(Abilities(reply.lines.into_iter().skip(1).collect()))
    }

    async fn authenticate(
        &mut self,
        abilities: &Abilities,
        user: &str,
        password: &Secret,
    ) -> Result<(), Ended> {
        if abilities.has_mechanism("PLAIN") {
            let plain = Zeroizing::new(format!("\0{user}\0{}", password.expose()));
            let command =
                Zeroizing::new(format!("AUTH PLAIN {}", STANDARD.encode(plain.as_bytes())));
            self.command(Step::Auth, &command).await?;
        } else if abilities.has_mechanism("LOGIN") {
            self.challenge("AUTH LOGIN").await?;
            self.challenge(&STANDARD.encode(user)).await?;
            let encoded = Zeroizing::new(STANDARD.encode(password.expose()));
            self.command(Step::Auth, &encoded).await?;
        } else {
            return Err(Ended::Lacks("no_auth"));
        }
        Ok(())
    }

    /// One step of AUTH that is answered with 334.
    async fn challenge(&mut self, text: &str) -> Result<(), Ended> {
        self.write(format!("{text}\r\n").as_bytes()).await?;
        let reply = self.reply().await?;
        if reply.code == 334 {
            return Ok(());
        }
        self.leave().await;
        Err(Ended::Said(Step::Auth, reply))
    }

    /// The final dot and what is said to it.
    async fn finish(mut self, letter: &Letter<'_>) -> Verdict {
        self.dialogue.commit();
        if let Err(failure) = self.write(b".\r\n").await {
            return verdict_of_failure(failure);
        }
        let verdict = match self.reply().await {
            Ok(reply) => verdict(Step::Dot, &reply, Some(letter.message_id.clone())),
            Err(failure) => return verdict_of_failure(failure),
        };
        self.leave().await;
        verdict
    }

    /// Says goodbye; nobody waits for the answer.
    async fn leave(&mut self) {
        let _ = self.write(b"QUIT\r\n").await;
        self.dialogue.conclude();
    }

    /// One reply of one or more lines.
    async fn reply(&mut self) -> Result<Reply, Failure> {
        let mut code = None;
        let mut lines = Vec::new();
        while lines.len() < LINES_MAX {
            let line = self.line().await?;
            let (own, is_last, text) = parse(&line).ok_or_else(|| self.garbled())?;
            if code.is_some_and(|code| code != own) {
                return Err(self.garbled());
            }
            code = Some(own);
            lines.push(text);
            if is_last {
                let first = lines.first().map(String::as_str).unwrap_or_default();
                return Ok(Reply { code: own, enhanced: enhanced(own, first), lines });
            }
        }
        Err(self.garbled())
    }

    /// What is no SMTP: as if the connection were lost there.
    fn garbled(&self) -> Failure {
        let phase =
            if self.dialogue.is_committed() { Phase::AfterWrite } else { Phase::BeforeWrite };
        Failure { phase, kind: Kind::Lost }
    }

    async fn line(&mut self) -> Result<Vec<u8>, Failure> {
        loop {
            if let Some(end) = self.buffer.iter().position(|byte| *byte == b'\n') {
                let mut line: Vec<u8> = self.buffer.drain(..=end).collect();
                line.pop();
                if line.last() == Some(&b'\r') {
                    line.pop();
                }
                return Ok(line);
            }
            if self.buffer.len() > LINE_LEN_MAX {
                return Err(self.garbled());
            }
            let mut chunk = [0; 1024];
            match self.dialogue.read(&mut chunk).await? {
                0 => return Err(self.garbled()),
                read => self.buffer.extend_from_slice(&chunk[..read]),
            }
        }
    }
}

/// `250-text` or `250 text`: code, whether it is the last line, text.
fn parse(line: &[u8]) -> Option<(u16, bool, String)> {
    let digits = line.get(..3).filter(|digits| digits.iter().all(u8::is_ascii_digit))?;
    let code = std::str::from_utf8(digits).ok()?.parse().ok()?;
    let is_last = match line.get(3) {
        None | Some(b' ') => true,
        Some(b'-') => false,
        Some(_) => return None,
    };
    let text = String::from_utf8_lossy(line.get(4..).unwrap_or_default()).into_owned();
    Some((code, is_last, text))
}

/// The message as it is written after DATA, without the final dot: every line ends with CRLF and nothing else
/// is a line end, and a dot that begins a line is doubled (RFC 5321 4.5.2). So no text can end the message.
#[must_use]
pub fn stuffed(bytes: &[u8]) -> Zeroizing<Vec<u8>> {
    let mut out = Zeroizing::new(Vec::with_capacity(bytes.len() + bytes.len() / 8 + 64));
    let mut is_start = true;
    let mut at = 0;
    while let Some(byte) = bytes.get(at) {
        at += 1;
        match byte {
            b'\r' | b'\n' => {
                if *byte == b'\r' && bytes.get(at) == Some(&b'\n') {
                    at += 1;
                }
                out.extend_from_slice(b"\r\n");
                is_start = true;
            }
            byte => {
                if is_start && *byte == b'.' {
                    out.push(b'.');
                }
                out.push(*byte);
                is_start = false;
            }
        }
    }
    if !is_start {
        out.extend_from_slice(b"\r\n");
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_text_ends_the_message_or_begins_a_command() {
        for (text, expected) in [
            ("a\r\nb\r\n", "a\r\nb\r\n"),
            ("a", "a\r\n"),
            ("", ""),
            (".\r\n", "..\r\n"),
            ("a\r\n.\r\nMAIL FROM:<x>\r\n", "a\r\n..\r\nMAIL FROM:<x>\r\n"),
            ("a\n.\nb", "a\r\n..\r\nb\r\n"),
            ("a\r.\rb", "a\r\n..\r\nb\r\n"),
            ("a\n\r\n.\r\r\n", "a\r\n\r\n..\r\n\r\n"),
            ("...", "....\r\n"),
        ] {
            assert_eq!(
                std::str::from_utf8(&stuffed(text.as_bytes())).unwrap(),
                expected,
                "{text:?}"
            );
        }
    }

    #[test]
    fn a_line_of_a_reply_has_three_digits_and_a_separator() {
        assert_eq!(parse(b"250-SIZE 1000"), Some((250, false, "SIZE 1000".to_owned())));
        assert_eq!(parse(b"250 ok"), Some((250, true, "ok".to_owned())));
        assert_eq!(parse(b"250"), Some((250, true, String::new())));
        for bad in ["", "25", "2x0 ok", "250_ok", "HTTP/1.1 200"] {
            assert_eq!(parse(bad.as_bytes()), None, "{bad}");
        }
    }

    #[test]
    fn abilities_are_read_by_their_first_word() {
        let abilities = Abilities(
            ["SIZE 1000", "starttls", "AUTH LOGIN PLAIN", "DSNX"].map(str::to_owned).to_vec(),
        );
        assert!(abilities.has("STARTTLS") && abilities.has("SIZE") && !abilities.has("DSN"));
        assert!(abilities.has_mechanism("plain") && !abilities.has_mechanism("CRAM-MD5"));
        assert!(Abilities(vec!["AUTH=PLAIN".to_owned()]).has_mechanism("PLAIN"));
    }
}
