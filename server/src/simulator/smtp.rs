//! SMTP (RFC 5321) from the server's side, with the same scripts as every other kind, under the name `smtp`.
//!
//! What the script wants happens after the final dot: that is where the outcome of a call is decided. A
//! behaviour that answers 500 elsewhere is silence here, since an explicit reply would be an answer: the
//! connection is closed. STARTTLS has a certificate that is made at run time; whoever wants to trust it finds
//! it at `/_control/ca.pem`. Any name and password are good, but an empty password is not.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
use tokio::task::JoinSet;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivatePkcs8KeyDer};
use tokio_rustls::rustls::{ServerConfig, crypto};

use super::serve::Socket;
use super::{CONNECTIONS_MAX, HANG_MAX, Incoming, Line, REQUEST_BYTES_MAX, Reply, Simulator};

/// The kind, as scripts name it.
pub(super) const KIND: &str = "smtp";

/// The longest command line: RFC 4954 4 asks for 12288 where AUTH is offered.
const LINE_LEN_MAX: usize = 12_288;

/// How long one conversation may take, a scripted hang included.
const SESSION_MAX: Duration = Duration::from_secs(HANG_MAX.as_secs() + 60);

/// A certificate of this process, and the key to it.
pub struct Identity {
    acceptor: TlsAcceptor,
    /// What a client must trust, in PEM.
    pub pem: String,
}

impl Identity {
    /// Makes one for this machine's own names; none when the key cannot be made.
    pub(super) fn generate() -> Option<Self> {
        let names = ["localhost", "127.0.0.1", "::1"].map(str::to_owned);
        let made = rcgen::generate_simple_self_signed(names).ok()?;
        let certificate = CertificateDer::from(made.cert.der().to_vec());
        let key = PrivatePkcs8KeyDer::from(made.signing_key.serialize_der());
        let config =
            ServerConfig::builder_with_provider(Arc::new(crypto::ring::default_provider()))
                .with_safe_default_protocol_versions()
                .ok()?
                .with_no_client_auth()
                .with_single_cert(vec![certificate], key.into())
                .ok()?;
        Some(Self { acceptor: TlsAcceptor::from(Arc::new(config)), pem: made.cert.pem() })
    }
}

/// Serves until the simulator is closed, then drops what is open.
pub async fn serve_smtp(listener: TcpListener, simulator: Arc<Simulator>) {
    let slots = Arc::new(Semaphore::new(CONNECTIONS_MAX));
    let closing = simulator.closing().clone();
    let mut open = JoinSet::new();
    loop {
        let accepted = tokio::select! {
            () = closing.cancelled() => break,
            Some(_) = open.join_next(), if !open.is_empty() => continue,
            accepted = super::serve::accept(&listener, &slots) => accepted,
        };
        match accepted {
            Ok((stream, slot)) => {
                let simulator = Arc::clone(&simulator);
                open.spawn(async move {
                    connection(stream, simulator).await;
                    drop(slot);
                });
            }
            // Out of descriptors, or the peer is gone again: neither is a reason to end.
            Err(_) => simulator.wait(50_000).await,
        }
    }
    open.shutdown().await;
}

async fn connection(stream: TcpStream, simulator: Arc<Simulator>) {
    let line = Line::default();
    let _ = stream.set_nodelay(true);
    let socket = Socket::new(stream, line.clone());
    let mut session = Session {
        stream: Some(Box::new(socket)),
        buffer: Vec::new(),
        is_secure: false,
        mail: None,
        rcpt: None,
        simulator: Arc::clone(&simulator),
        line: line.clone(),
    };
    tokio::select! {
        () = line.cut() => {}
        () = simulator.clock.sleep(SESSION_MAX) => {}
        // How a conversation ends is the client's business.
        _ = session.run() => {}
    }
}

trait Stream: AsyncRead + AsyncWrite + Unpin + Send {}

impl<T: AsyncRead + AsyncWrite + Unpin + Send> Stream for T {}

struct Session {
    /// None only while it is put under TLS.
    stream: Option<Box<dyn Stream>>,
    buffer: Vec<u8>,
    is_secure: bool,
    /// The envelope id of MAIL, which may be empty.
    mail: Option<String>,
    rcpt: Option<String>,
    simulator: Arc<Simulator>,
    line: Line,
}

/// Whether the conversation goes on.
type Goes = io::Result<bool>;

impl Session {
    async fn run(&mut self) -> io::Result<()> {
        self.say("220 simulator.example ESMTP").await?;
        loop {
            let Some(line) = self.read_line().await? else { return Ok(()) };
            let Some(line) = line else {
                self.say("500 5.5.2 line too long").await?;
                continue;
            };
            if !self.obey(&line).await? {
                return Ok(());
            }
        }
    }

    async fn obey(&mut self, line: &str) -> Goes {
        let (verb, rest) = line.split_once(' ').unwrap_or((line, ""));
        match verb.to_ascii_uppercase().as_str() {
            "EHLO" => self.hello().await?,
            "HELO" | "NOOP" => self.say("250 2.0.0 Ok").await?,
            "RSET" => {
                (self.mail, self.rcpt) = (None, None);
                self.say("250 2.0.0 Ok").await?;
            }
            "STARTTLS" if !self.is_secure => return self.secure().await,
            "AUTH" => self.authenticate(rest).await?,
            "MAIL" => self.take_sender(rest).await?,
            "RCPT" => self.take_recipient(rest).await?,
            "DATA" if self.rcpt.is_some() => return self.take_message().await,
            "DATA" => self.say("503 5.5.1 Error: need RCPT command").await?,
            "QUIT" => {
                self.say("221 2.0.0 Bye").await?;
                return Ok(false);
            }
            _ => self.say("502 5.5.2 Error: command not recognized").await?,
        }
        Ok(true)
    }

    async fn hello(&mut self) -> io::Result<()> {
        let starttls = if self.is_secure { "" } else { "250-STARTTLS\r\n" };
        let size = REQUEST_BYTES_MAX;
        self.say(&format!(
            "250-simulator.example\r\n250-SIZE {size}\r\n{starttls}250-AUTH PLAIN LOGIN\r\n\
             250-ENHANCEDSTATUSCODES\r\n250-8BITMIME\r\n250 DSN"
        ))
        .await
    }

    async fn secure(&mut self) -> Goes {
        let Some(acceptor) = self.simulator.identity().map(|own| own.acceptor.clone()) else {
            return Ok(false);
        };
        self.say("220 2.0.0 Ready to start TLS").await?;
        // What was sent in the clear after the command is nobody's (RFC 3207 4.2).
        self.buffer.clear();
        let Some(stream) = self.stream.take() else { return Ok(false) };
        self.stream = Some(Box::new(acceptor.accept(stream).await?));
        self.is_secure = true;
        (self.mail, self.rcpt) = (None, None);
        Ok(true)
    }

    async fn authenticate(&mut self, rest: &str) -> io::Result<()> {
        let (mechanism, initial) = rest.split_once(' ').unwrap_or((rest, ""));
        let has_password = match mechanism.to_ascii_uppercase().as_str() {
            "PLAIN" => {
                let text =
                    if initial.is_empty() { self.ask("334 ").await? } else { initial.to_owned() };
                let bytes = STANDARD.decode(text).unwrap_or_default();
                bytes.rsplit(|byte| *byte == 0).next().is_some_and(|password| !password.is_empty())
            }
            "LOGIN" => {
                if initial.is_empty() {
                    self.ask("334 VXNlcm5hbWU6").await?;
                }
                !self.ask("334 UGFzc3dvcmQ6").await?.is_empty()
            }
            _ => return self.say("504 5.5.4 Error: mechanism not supported").await,
        };
        if has_password {
            self.say("235 2.7.0 Authentication successful").await
        } else {
            self.say("535 5.7.8 Error: authentication failed").await
        }
    }

    async fn ask(&mut self, challenge: &str) -> io::Result<String> {
        self.say(challenge).await?;
        Ok(self.read_line().await?.flatten().unwrap_or_default())
    }

    async fn take_sender(&mut self, rest: &str) -> io::Result<()> {
        if path(rest, "FROM:").is_none() {
            return self.say("501 5.5.4 Syntax: MAIL FROM:<address>").await;
        }
        let envelope = rest.split(' ').find_map(|word| word.strip_prefix("ENVID="));
        self.mail = Some(envelope.unwrap_or_default().to_owned());
        self.rcpt = None;
        self.say("250 2.1.0 Ok").await
    }

    async fn take_recipient(&mut self, rest: &str) -> io::Result<()> {
        let to = path(rest, "TO:").filter(|to| to.contains('@')).map(str::to_owned);
        match (to, &self.mail, &self.rcpt) {
            (_, None, _) => self.say("503 5.5.1 Error: need MAIL command").await,
            (None, ..) => self.say("501 5.1.3 Bad recipient address syntax").await,
            (Some(_), _, Some(_)) => self.say("452 4.5.3 Error: too many recipients").await,
            (to, ..) => {
                self.rcpt = to;
                self.say("250 2.1.5 Ok").await
            }
        }
    }

    async fn take_message(&mut self) -> Goes {
        self.say("354 End data with <CR><LF>.<CR><LF>").await?;
        let Some(data) = self.read_data().await? else {
            self.say("552 5.3.4 Error: message too big").await?;
            return Ok(false);
        };
        let envelope = self.mail.take().unwrap_or_default();
        let to = self.rcpt.take().unwrap_or_default();
        let attempt = attempt_of(&data).unwrap_or(envelope);
        let incoming = Incoming::new(KIND, attempt, to.clone());
        let line = self.line.clone();
        match Arc::clone(&self.simulator).play(&incoming, Some(&line)).await {
            Reply::Accepted { message_id, .. } => {
                self.say(&format!("250 2.0.0 Ok: queued as {message_id}")).await?;
            }
            Reply::Broken => return Ok(false),
            Reply::Unavailable | Reply::RefusedTransiently => {
                self.say("451 4.7.1 Please try again later").await?;
            }
            Reply::RefusedPermanently => {
                let text = "Recipient address rejected: User unknown";
                self.say(&format!("550 5.1.1 <{to}>: {text}")).await?;
            }
            Reply::RateLimited { .. } => {
                self.say("421 4.7.0 Too many messages, try again later").await?;
                return Ok(false);
            }
        }
        Ok(true)
    }

    async fn say(&mut self, text: &str) -> io::Result<()> {
        let stream = self.stream.as_mut().ok_or(io::ErrorKind::NotConnected)?;
        stream.write_all(format!("{text}\r\n").as_bytes()).await?;
        stream.flush().await
    }

    /// More bytes; false at the end.
    async fn fill(&mut self) -> io::Result<bool> {
        let stream = self.stream.as_mut().ok_or(io::ErrorKind::NotConnected)?;
        let mut chunk = [0; 8192];
        let read = stream.read(&mut chunk).await?;
        self.buffer.extend_from_slice(&chunk[..read]);
        Ok(read > 0)
    }

    /// One line without its end; none at the end of the connection, and none within for one that is too long.
    async fn read_line(&mut self) -> io::Result<Option<Option<String>>> {
        let mut is_long = false;
        loop {
            if let Some(end) = find(&self.buffer, b"\r\n") {
                let line: Vec<u8> = self.buffer.drain(..end + 2).take(end).collect();
                let text = String::from_utf8(line).ok().filter(|_| !is_long && end <= LINE_LEN_MAX);
                return Ok(Some(text));
            }
            if self.buffer.len() > LINE_LEN_MAX {
                is_long = true;
                let keep = self.buffer.len() - 1;
                self.buffer.drain(..keep);
            }
            if !self.fill().await? {
                return Ok(None);
            }
        }
    }

    /// Everything to the line that is a dot alone; none when it is too much.
    async fn read_data(&mut self) -> io::Result<Option<Vec<u8>>> {
        loop {
            if self.buffer.starts_with(b".\r\n") {
                self.buffer.drain(..3);
                return Ok(Some(Vec::new()));
            }
            if let Some(end) = find(&self.buffer, b"\r\n.\r\n") {
                let data = self.buffer.drain(..end + 5).take(end).collect();
                return Ok(Some(data));
            }
            if self.buffer.len() > REQUEST_BYTES_MAX {
                return Ok(None);
            }
            if !self.fill().await? {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
        }
    }
}

fn find(bytes: &[u8], wanted: &[u8]) -> Option<usize> {
    bytes.windows(wanted.len()).position(|window| window == wanted)
}

/// The address in `FROM:<…>` or `TO:<…>`.
fn path<'a>(rest: &'a str, word: &str) -> Option<&'a str> {
    let own = rest.get(..word.len()).filter(|own| own.eq_ignore_ascii_case(word))?;
    let path = rest.get(own.len()..)?.trim_start().strip_prefix('<')?;
    path.split_once('>').map(|(address, _)| address)
}

/// The local part of the message's `Message-ID`.
fn attempt_of(data: &[u8]) -> Option<String> {
    let text = String::from_utf8_lossy(data);
    let head = text.split("\r\n\r\n").next()?.replace("\r\n ", " ").replace("\r\n\t", " ");
    let id = head.lines().find_map(|line| {
        let (name, value) = line.split_once(':')?;
        name.eq_ignore_ascii_case("message-id").then(|| value.trim().to_owned())
    })?;
    let local = id.trim_start_matches('<').split('@').next()?.to_owned();
    (!local.is_empty()).then_some(local)
}
