//! The network seam: one request, one answer, and on failure the knowledge whether a byte may have left.

use std::fmt;
use std::sync::Arc;

use async_trait::async_trait;
use bytes::Bytes;
use tokio_rustls::rustls::RootCertStore;

use super::Deadline;

/// How far an exchange had come when it failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Phase {
    /// Name look-up, connection, TLS, or the deadline before the first byte: certainly nothing left.
    BeforeWrite,
    /// Bytes of the request may have left.
    AfterWrite,
}

/// Why an exchange failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    Resolve,
    Connect,
    Tls,
    Timeout,
    /// Reset, closed early, or an answer that is no HTTP.
    Lost,
    /// The answer's body is larger than we read.
    TooLarge,
    /// The request could not be built; nothing was tried.
    Request,
}

impl Kind {
    /// The code for `detail`.
    #[must_use]
    pub const fn code(self) -> &'static str {
        match self {
            Self::Resolve => "resolve",
            Self::Connect => "connect",
            Self::Tls => "tls",
            Self::Timeout => "timeout",
            Self::Lost => "lost",
            Self::TooLarge => "too_large",
            Self::Request => "request",
        }
    }
}

/// A failed exchange.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Failure {
    pub phase: Phase,
    pub kind: Kind,
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.kind.code())
    }
}

/// The most bytes of an answer that are read: 1 MiB.
pub const ANSWER_BYTES_MAX: usize = 1 << 20;

/// One connection for a protocol that is a conversation and not one request. Dropped before it is
/// concluded it is reset, so that the kernel delivers nothing after it.
#[async_trait]
pub trait Dialogue: Send {
    /// Hands all of it over. The clock that counts suspension is read before each byte that the kernel is
    /// given; past the deadline it writes nothing.
    ///
    /// # Errors
    /// [`Phase::AfterWrite`] only after [`Self::commit`], once the kernel took a byte.
    async fn write(&mut self, bytes: &[u8]) -> Result<(), Failure>;

    /// What has come; 0 at the end.
    ///
    /// # Errors
    /// As [`Self::write`].
    async fn read(&mut self, buffer: &mut [u8]) -> Result<usize, Failure>;

    /// The same connection under TLS. Without `roots` the public authorities are trusted.
    ///
    /// # Errors
    /// When the peer cannot show that it is `host`.
    async fn secure(
        self: Box<Self>,
        host: &str,
        roots: Option<Arc<RootCertStore>>,
    ) -> Result<Box<dyn Dialogue>, Failure>;

    /// From here on a byte that was written may take effect.
    fn commit(&mut self);

    /// [`Self::commit`] was called and the kernel took a byte since.
    fn is_committed(&self) -> bool;

    /// It came to its end: nothing is taken back.
    fn conclude(&mut self);
}

/// Carries one request.
#[async_trait]
pub trait Transport: Send + Sync + fmt::Debug {
    /// Opens a connection of its own, sends the request once, reads the whole answer, closes. The clock
    /// that counts suspension is read right before it connects and right before it writes; past the
    /// deadline it writes nothing. No retry, no redirect, no reuse of an idle connection.
    ///
    /// # Errors
    /// [`Failure`] with the phase: [`Phase::BeforeWrite`] only where no byte of the request can have left.
    async fn exchange(
        &self,
        request: http::Request<Bytes>,
        deadline: Deadline,
    ) -> Result<http::Response<Bytes>, Failure>;

    /// Opens a connection of its own for a conversation.
    ///
    /// # Errors
    /// [`Failure`], always before the first byte. One that carries requests alone opens none.
    async fn dial(
        &self,
        _host: &str,
        _port: u16,
        _deadline: Deadline,
    ) -> Result<Box<dyn Dialogue>, Failure> {
        Err(Failure { phase: Phase::BeforeWrite, kind: Kind::Request })
    }
}
