//! The network: one connection, one request, one answer.
//!
//! A failure says whether a byte of the request can have left, and nothing else: no address, no path and
//! no body gets into an error. The deadline is kept at the socket itself: every write reads the clock
//! that counts suspension first, so that a process which was stopped in the middle of an exchange and
//! goes on after `call_by` writes nothing more (CONTRACT 3.4).

mod dialogue;

use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use http::header::{CONNECTION, HOST, HeaderValue, USER_AGENT};
use http::{Request, Response, Uri, Version};
use http_body_util::{BodyExt as _, Full, LengthLimitError, Limited};
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use socket2::SockRef;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpSocket, TcpStream};
use tokio_rustls::TlsConnector;
use tokio_rustls::rustls::client::Resumption;
use tokio_rustls::rustls::pki_types::ServerName;
use tokio_rustls::rustls::{ClientConfig, RootCertStore, crypto};

use super::Deadline;
use super::transport::{ANSWER_BYTES_MAX, Dialogue, Failure, Kind, Phase, Transport};
use crate::clock::{Clock, duration};

/// Addresses of one name that are tried, one after the other. Trying a second one is no retry: without a
/// connection nothing of the request has left.
const ADDRESSES_MAX: usize = 4;

/// The transport on real sockets: HTTP/1.1, with TLS by rustls for `https`.
///
/// There is no proxy, no redirect, no cookie, no reuse of a connection and no retry.
pub struct HttpTransport {
    clock: Arc<dyn Clock>,
    tls: TlsConnector,
    /// Whom conversations trust where they do not say themselves.
    roots: Arc<RootCertStore>,
}

impl fmt::Debug for HttpTransport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("HttpTransport")
    }
}

impl HttpTransport {
    /// Trusts the public certificate authorities.
    #[must_use]
    pub fn new(clock: Arc<dyn Clock>) -> Self {
        let roots = RootCertStore { roots: webpki_roots::TLS_SERVER_ROOTS.to_vec() };
        Self::with_roots(clock, roots)
    }

    /// Trusts these certificate authorities and no others.
    #[must_use]
    pub fn with_roots(clock: Arc<dyn Clock>, roots: RootCertStore) -> Self {
        let roots = Arc::new(roots);
        let mut config = client_config(Arc::clone(&roots));
        config.alpn_protocols = vec![b"http/1.1".to_vec()];
        Self { clock, tls: TlsConnector::from(Arc::new(config)), roots }
    }

    /// What is left of the call's time.
    fn left(&self, deadline: Deadline) -> Result<Duration, Failure> {
        match deadline.boot.saturating_sub(self.clock.boot()) {
            left if left > 0 => Ok(duration(left)),
            _ => Err(before(Kind::Timeout)),
        }
    }

    /// Opens the connection. Everything that fails here fails before the first byte.
    async fn connect(
        &self,
        (host, port): (&str, u16),
        deadline: Deadline,
        line: &Arc<Line>,
    ) -> Result<Wire, Failure> {
        let addresses: Vec<SocketAddr> = tokio::net::lookup_host((host, port))
            .await
            .map_err(|_| before(Kind::Resolve))?
            .take(ADDRESSES_MAX)
            .collect();
        if addresses.is_empty() {
            return Err(before(Kind::Resolve));
        }
        for (at, address) in addresses.iter().enumerate() {
            let left = self.left(deadline)?;
            // An address that does not answer must leave time for the next one.
            let tries = u32::try_from(addresses.len() - at).unwrap_or(1);
            tokio::select! {
                biased;
                opened = open(*address, left) => if let Ok(stream) = opened {
                    let clock = Arc::clone(&self.clock);
                    return Ok(Wire { stream, line: Arc::clone(line), clock, deadline });
                },
                () = self.clock.sleep(left / tries) => {}
            }
        }
        self.left(deadline)?;
        Err(before(Kind::Connect))
    }

    /// Hands the request over once and reads the whole answer.
    async fn talk<S>(
        &self,
        stream: S,
        request: Request<Full<Bytes>>,
        deadline: Deadline,
        line: &Line,
        mut expiry: Pin<&mut (dyn Future<Output = ()> + Send)>,
    ) -> Result<Response<Bytes>, Failure>
    where
        S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        let (mut sender, connection) =
            http1::handshake(TokioIo::new(stream)).await.map_err(|_| before(Kind::Connect))?;
        let mut connection = pin!(connection);
        self.left(deadline)?;
        line.has_request.store(true, Ordering::SeqCst);
        let mut answer = pin!(async move {
            let response = sender.send_request(request).await.map_err(|_| Kind::Lost)?;
            let (parts, body) = response.into_parts();
            let body = Limited::new(body, ANSWER_BYTES_MAX).collect().await.map_err(|error| {
                if error.is::<LengthLimitError>() { Kind::TooLarge } else { Kind::Lost }
            })?;
            Ok(Response::from_parts(parts, body.to_bytes()))
        });
        let mut is_open = true;
        let answered = loop {
            // The answer first: one that is there when the time is over is still the answer.
            tokio::select! {
                biased;
                answered = &mut answer => break answered,
                _ = &mut connection, if is_open => is_open = false,
                () = expiry.as_mut() => break Err(Kind::Timeout),
            }
        };
        let phase = if line.has_written.load(Ordering::SeqCst) {
            Phase::AfterWrite
        } else {
            Phase::BeforeWrite
        };
        answered.inspect(|_| line.is_done.store(true, Ordering::SeqCst)).map_err(
            |kind| match kind {
                // The socket refused to write past the deadline: for hyper that is a broken connection.
                Kind::Lost if self.left(deadline).is_err() => {
                    Failure { phase, kind: Kind::Timeout }
                }
                kind => Failure { phase, kind },
            },
        )
    }
}

#[async_trait]
impl Transport for HttpTransport {
    async fn exchange(
        &self,
        request: Request<Bytes>,
        deadline: Deadline,
    ) -> Result<Response<Bytes>, Failure> {
        let target = Target::of(request.uri()).ok_or(before(Kind::Request))?;
        let request = target.address(request)?;
        self.left(deadline)?;
        let line = Arc::new(Line::default());
        let mut expiry = pin!(until(&*self.clock, deadline));
        let wire = tokio::select! {
            biased;
            wire = self.connect((&target.host, target.port), deadline, &line) => wire?,
            () = &mut expiry => return Err(before(Kind::Timeout)),
        };
        if !target.is_tls {
            return self.talk(wire, request, deadline, &line, expiry).await;
        }
        let name = ServerName::try_from(target.host.clone()).map_err(|_| before(Kind::Request))?;
        let stream = tokio::select! {
            biased;
            stream = self.tls.connect(name, wire) => match stream {
                Ok(stream) => stream,
                Err(_) => {
                    self.left(deadline)?;
                    return Err(before(Kind::Tls));
                }
            },
            () = &mut expiry => return Err(before(Kind::Timeout)),
        };
        self.talk(stream, request, deadline, &line, expiry).await
    }

    async fn dial(
        &self,
        host: &str,
        port: u16,
        deadline: Deadline,
    ) -> Result<Box<dyn Dialogue>, Failure> {
        self.left(deadline)?;
        let line = Arc::new(Line { is_dialogue: true.into(), ..Line::default() });
        let wire = tokio::select! {
            biased;
            wire = self.connect((host, port), deadline, &line) => wire?,
            () = until(&*self.clock, deadline) => return Err(before(Kind::Timeout)),
        };
        let (clock, roots) = (Arc::clone(&self.clock), Arc::clone(&self.roots));
        Ok(Box::new(dialogue::Talk::new(wire, line, clock, deadline, roots)))
    }
}

/// Trusts these authorities and no others.
fn client_config(roots: Arc<RootCertStore>) -> ClientConfig {
    let mut config =
        ClientConfig::builder_with_provider(Arc::new(crypto::ring::default_provider()))
            .with_safe_default_protocol_versions()
            .expect("ring speaks TLS 1.2 and 1.3")
            .with_root_certificates(roots)
            .with_no_client_auth();
    // Without resumption there is no early data either: no byte of a request before the handshake ends.
    config.resumption = Resumption::disabled();
    config
}

/// A failure before the first byte.
const fn before(kind: Kind) -> Failure {
    Failure { phase: Phase::BeforeWrite, kind }
}

/// Returns at the deadline.
async fn until(clock: &dyn Clock, deadline: Deadline) {
    loop {
        let left = deadline.boot.saturating_sub(clock.boot());
        if left <= 0 {
            return;
        }
        clock.sleep(duration(left)).await;
    }
}

/// Connects one socket whose kernel gives up when the call's time is over.
async fn open(address: SocketAddr, left: Duration) -> io::Result<TcpStream> {
    let socket = if address.is_ipv4() { TcpSocket::new_v4()? } else { TcpSocket::new_v6()? };
    socket.set_nodelay(true)?;
    // Without it the kernel would go on repeating unacknowledged bytes for many minutes. Zero would mean
    // its default, hence the millisecond.
    #[cfg(any(target_os = "linux", target_os = "android"))]
    SockRef::from(&socket).set_tcp_user_timeout(Some(left.max(Duration::from_millis(1))))?;
    #[cfg(not(any(target_os = "linux", target_os = "android")))]
    let _ = left;
    socket.connect(address).await
}

/// Where a request goes.
struct Target {
    is_tls: bool,
    /// Without the brackets of an IPv6 address.
    host: String,
    port: u16,
    authority: HeaderValue,
}

impl Target {
    /// Nothing but `http://host[:port]/…` and `https://host[:port]/…`.
    fn of(uri: &Uri) -> Option<Self> {
        let is_tls = match uri.scheme_str()? {
            "http" => false,
            "https" => true,
            _ => return None,
        };
        let authority = uri.authority()?;
        if authority.as_str().contains('@') {
            return None;
        }
        let host = authority.host().trim_start_matches('[').trim_end_matches(']').to_owned();
        let port = authority.port_u16().unwrap_or(if is_tls { 443 } else { 80 });
        (!host.is_empty()).then_some(())?;
        Some(Self {
            is_tls,
            host,
            port,
            authority: HeaderValue::from_str(authority.as_str()).ok()?,
        })
    }

    /// The request as it is written to this target: the path alone in its first line, and the host beside it.
    fn address(&self, request: Request<Bytes>) -> Result<Request<Full<Bytes>>, Failure> {
        let (mut parts, body) = request.into_parts();
        let path = parts.uri.path_and_query().map_or("/", |path| path.as_str());
        parts.uri = path.parse().map_err(|_| before(Kind::Request))?;
        parts.version = Version::HTTP_11;
        parts.headers.insert(HOST, self.authority.clone());
        parts.headers.insert(CONNECTION, HeaderValue::from_static("close"));
        let agent = concat!("sendonce/", env!("CARGO_PKG_VERSION"));
        parts.headers.entry(USER_AGENT).or_insert(HeaderValue::from_static(agent));
        Ok(Request::from_parts(parts, Full::new(body)))
    }
}

/// What is known of one connection, shared with its socket.
#[derive(Debug, Default)]
struct Line {
    /// The request was handed over; from here on written bytes may belong to it.
    has_request: AtomicBool,
    /// The kernel took at least one byte after that.
    has_written: AtomicBool,
    /// The whole answer was read.
    is_done: AtomicBool,
    /// A conversation: cut short anywhere it is reset, so that no half of it is taken for a whole.
    is_dialogue: AtomicBool,
}

/// The socket: writes nothing past the deadline, and remembers whether it wrote.
struct Wire {
    stream: TcpStream,
    line: Arc<Line>,
    clock: Arc<dyn Clock>,
    deadline: Deadline,
}

impl Wire {
    fn may_write(&self) -> io::Result<()> {
        if self.clock.boot() < self.deadline.boot {
            Ok(())
        } else {
            Err(io::ErrorKind::TimedOut.into())
        }
    }

    fn note(&self, written: usize) {
        if written > 0 && self.line.has_request.load(Ordering::SeqCst) {
            self.line.has_written.store(true, Ordering::SeqCst);
        }
    }
}

impl Drop for Wire {
    fn drop(&mut self) {
        let has_begun = self.line.has_request.load(Ordering::SeqCst)
            || self.line.is_dialogue.load(Ordering::SeqCst);
        let is_cut = has_begun && !self.line.is_done.load(Ordering::SeqCst);
        if is_cut {
            // A plain close would leave what is still in the send buffer to the kernel, which would go on
            // delivering it after the call is over. A reset drops it.
            let _ = SockRef::from(&self.stream).set_linger(Some(Duration::ZERO));
        }
    }
}

impl AsyncRead for Wire {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(cx, buf)
    }
}

impl AsyncWrite for Wire {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.may_write()?;
        let written = ready!(Pin::new(&mut self.stream).poll_write(cx, buf))?;
        self.note(written);
        Poll::Ready(Ok(written))
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        self.may_write()?;
        let written = ready!(Pin::new(&mut self.stream).poll_write_vectored(cx, bufs))?;
        self.note(written);
        Poll::Ready(Ok(written))
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}
