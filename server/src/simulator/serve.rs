//! Connections. A web framework answers requests; a simulator must also be able not to, and to reset the
//! connection. So each one is served here on its own socket.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use socket2::SockRef;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;
use tower::ServiceExt as _;

use super::{Simulator, router};

/// Connections at the same time; the next ones wait.
pub const CONNECTIONS_MAX: usize = 4096;

/// How long a connection may take to send a request's head.
const HEAD_TIME: Duration = Duration::from_secs(10);

/// The connection that a request came in on: an extension of every request.
#[derive(Debug, Clone, Default)]
pub struct Line(CancellationToken);

impl Line {
    /// Resets the connection. The task that asks for it is dropped with it.
    pub async fn reset(&self) -> ! {
        self.0.cancel();
        std::future::pending().await
    }

    /// Returns when the connection is to be reset.
    pub(super) async fn cut(&self) {
        self.0.cancelled().await;
    }
}

/// Serves until the simulator is closed, then drops what is open.
pub async fn serve(listener: TcpListener, simulator: Arc<Simulator>) {
    if let Ok(address) = listener.local_addr() {
        // Whoever is told of it is on this machine.
        let _ = simulator.origin.set(format!("http://127.0.0.1:{}", address.port()));
    }
    let slots = Arc::new(Semaphore::new(CONNECTIONS_MAX));
    let router = router(&simulator);
    let closing = simulator.closing().clone();
    let mut open = JoinSet::new();
    loop {
        let accepted = tokio::select! {
            () = closing.cancelled() => break,
            Some(_) = open.join_next(), if !open.is_empty() => continue,
            accepted = accept(&listener, &slots) => accepted,
        };
        match accepted {
            Ok((stream, slot)) => {
                let router = router.clone();
                open.spawn(async move {
                    connection(stream, router).await;
                    drop(slot);
                });
            }
            // Out of descriptors, or the peer is gone again: neither is a reason to end.
            Err(_) => simulator.wait(50_000).await,
        }
    }
    open.shutdown().await;
}

pub(super) async fn accept(
    listener: &TcpListener,
    slots: &Arc<Semaphore>,
) -> io::Result<(TcpStream, tokio::sync::OwnedSemaphorePermit)> {
    let slot = Arc::clone(slots)
        .acquire_owned()
        .await
        .map_err(|_| io::Error::from(io::ErrorKind::Other))?;
    let (stream, _) = listener.accept().await?;
    Ok((stream, slot))
}

async fn connection(stream: TcpStream, router: Router) {
    let line = Line::default();
    // Small answers go out at once.
    let _ = stream.set_nodelay(true);
    let io = TokioIo::new(Socket { stream, line: line.clone() });
    let cut = line.0.clone();
    let service =
        hyper::service::service_fn(move |request: http::Request<hyper::body::Incoming>| {
            let mut request = request.map(Body::new);
            request.extensions_mut().insert(line.clone());
            router.clone().oneshot(request)
        });
    let served = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEAD_TIME)
        .serve_connection(io, service);
    tokio::select! {
        () = cut.cancelled() => {}
        // How a connection ends is the client's business.
        _ = served => {}
    }
}

/// A socket that is closed by a reset where the script says so.
pub(super) struct Socket {
    stream: TcpStream,
    line: Line,
}

impl Socket {
    pub(super) const fn new(stream: TcpStream, line: Line) -> Self {
        Self { stream, line }
    }
}

impl Drop for Socket {
    fn drop(&mut self) {
        if self.line.0.is_cancelled() {
            let _ = SockRef::from(&self.stream).set_linger(Some(Duration::ZERO));
        }
    }
}

impl AsyncRead for Socket {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(cx, buf)
    }
}

impl AsyncWrite for Socket {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(cx, buf)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}
