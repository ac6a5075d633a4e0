//! Defines the errors of asking a model for a score.

use ringfence_network::egress::ConnectError;
use ringfence_network::fetch::{FetchCause, TlsFault, TrustError};
use ringfence_policy::Timeout;

use super::{KeyError, MAX_ANSWER};

/// An error of asking a model for a score. Omits everything sent by the server, which could address the
/// reader.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ScoreError {
    /// The key is not available.
    #[error(transparent)]
    Key(#[from] KeyError),
    /// The certificate authorities are not available.
    #[error(transparent)]
    Trust(#[from] TrustError),
    /// The connection was not made.
    #[error(transparent)]
    Connect(#[from] ConnectError),
    /// The TLS handshake failed.
    #[error("{0}")]
    Tls(TlsFault),
    /// No valid request can be built from the base URL.
    #[error("the request could not be prepared")]
    Request,
    /// The connection closed before the response was complete.
    #[error("the connection was lost")]
    Broken,
    /// The timeout was reached.
    #[error("it did not answer within {0}")]
    TimedOut(Timeout),
    /// The status is not a success. Redirects are not followed.
    #[error("its server answered with status {0}")]
    Status(u16),
    /// The response exceeds the size limit.
    #[error("its server sent a longer answer than {} KiB", MAX_ANSWER / 1024)]
    TooLong,
    /// The response is not in the provider's format.
    #[error("its server's answer is not in the format of the provider")]
    Format,
    /// The model refused to answer.
    #[error("it refused to answer")]
    Refused,
    /// The response is truncated, calls a tool, or stopped irregularly.
    #[error("it did not finish its answer")]
    Unfinished,
    /// The response is not one integer from 0 to 10.
    #[error("it did not answer with one integer from 0 to 10")]
    NoInteger,
}

impl From<FetchCause> for ScoreError {
    fn from(fault: FetchCause) -> Self {
        match fault {
            FetchCause::Connect(error) => Self::Connect(error),
            FetchCause::Trust(error) => Self::Trust(error),
            FetchCause::Tls(fault) => Self::Tls(fault),
            FetchCause::Protocol | FetchCause::TimedOut => Self::Broken,
            // Redirects are not followed.
            FetchCause::Redirect(_) | FetchCause::Downgrade | FetchCause::TooManyRedirects(_) => Self::Format,
        }
    }
}
