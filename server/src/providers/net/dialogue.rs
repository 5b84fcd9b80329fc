//! A conversation on one real socket.

use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use async_trait::async_trait;
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio_rustls::TlsConnector;
use tokio_rustls::rustls::RootCertStore;
use tokio_rustls::rustls::pki_types::ServerName;

use super::{Line, Wire, before, client_config, until};
use crate::clock::Clock;
use crate::providers::Deadline;
use crate::providers::transport::{Dialogue, Failure, Kind, Phase};

/// A socket, or TLS over one.
trait Stream: AsyncRead + AsyncWrite + Unpin + Send {}

impl<T: AsyncRead + AsyncWrite + Unpin + Send> Stream for T {}

/// The conversation. The socket under it reads the clock before each write.
pub(super) struct Talk {
    stream: Box<dyn Stream>,
    line: Arc<Line>,
    clock: Arc<dyn Clock>,
    deadline: Deadline,
    roots: Arc<RootCertStore>,
}

impl Talk {
    pub(super) fn new(
        wire: Wire,
        line: Arc<Line>,
        clock: Arc<dyn Clock>,
        deadline: Deadline,
        roots: Arc<RootCertStore>,
    ) -> Self {
        Self { stream: Box::new(wire), line, clock, deadline, roots }
    }

    fn failure(&self, kind: Kind) -> Failure {
        let phase = if self.line.has_written.load(Ordering::SeqCst) {
            Phase::AfterWrite
        } else {
            Phase::BeforeWrite
        };
        Failure { phase, kind }
    }

    /// One step, or the deadline.
    async fn within<T>(
        clock: &dyn Clock,
        deadline: Deadline,
        step: impl Future<Output = io::Result<T>>,
    ) -> Result<T, Kind> {
        tokio::select! {
            biased;
            done = step => done.map_err(|error| match error.kind() {
                io::ErrorKind::TimedOut => Kind::Timeout,
                _ => Kind::Lost,
            }),
            () = until(clock, deadline) => Err(Kind::Timeout),
        }
    }
}

#[async_trait]
impl Dialogue for Talk {
    async fn write(&mut self, bytes: &[u8]) -> Result<(), Failure> {
        let stream = &mut self.stream;
        let step = async {
            stream.write_all(bytes).await?;
            stream.flush().await
        };
        let done = Self::within(&*self.clock, self.deadline, step).await;
        done.map_err(|kind| self.failure(kind))
    }

    async fn read(&mut self, buffer: &mut [u8]) -> Result<usize, Failure> {
        let step = self.stream.read(buffer);
        let done = Self::within(&*self.clock, self.deadline, step).await;
        done.map_err(|kind| self.failure(kind))
    }

    async fn secure(
        self: Box<Self>,
        host: &str,
        roots: Option<Arc<RootCertStore>>,
    ) -> Result<Box<dyn Dialogue>, Failure> {
        let Self { stream, line, clock, deadline, roots: own } = *self;
        let name = ServerName::try_from(host.to_owned()).map_err(|_| before(Kind::Request))?;
        let connector =
            TlsConnector::from(Arc::new(client_config(roots.unwrap_or(Arc::clone(&own)))));
        let step = connector.connect(name, stream);
        let stream = Self::within(&*clock, deadline, step).await.map_err(|kind| match kind {
            Kind::Timeout => before(Kind::Timeout),
            _ => before(Kind::Tls),
        })?;
        Ok(Box::new(Self { stream: Box::new(stream), line, clock, deadline, roots: own }))
    }

    fn commit(&mut self) {
        self.line.has_request.store(true, Ordering::SeqCst);
    }

    fn is_committed(&self) -> bool {
        self.line.has_written.load(Ordering::SeqCst)
    }

    fn conclude(&mut self) {
        self.line.is_done.store(true, Ordering::SeqCst);
    }
}
