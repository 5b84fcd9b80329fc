//! The network seam: one request, one answer, and on failure the knowledge whether a byte may have left.

use std::fmt;

use async_trait::async_trait;
use bytes::Bytes;

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
}
