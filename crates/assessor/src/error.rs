//! Defines the reasons for a missing score.

use std::error::Error;
use std::io;
use std::iter::successors;

use genai::webc;
use ringfence_network::egress::ConnectError;
use ringfence_network::fetch::{TlsFault, TrustError};
use ringfence_policy::Timeout;
use tokio_rustls::rustls;

use super::{KeyError, conduit};

/// The reason for a missing score. Omits everything sent by the server, which could address the reader.
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
    /// The relay on this machine could not be set up.
    #[error("the connection could not be prepared")]
    Conduit,
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
    #[error("its server sent more than {} KiB", conduit::MAX_ANSWER / 1024)]
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

impl From<genai::Error> for ScoreError {
    fn from(error: genai::Error) -> Self {
        let genai::Error::WebModelCall { webc_error, .. } = error else {
            return Self::Format;
        };
        match webc_error {
            webc::Error::ResponseFailedStatus { status, .. } => Self::Status(status.as_u16()),
            webc::Error::Reqwest(error) => tls_fault(&error).map_or(Self::Broken, Self::Tls),
            webc::Error::ResponseFailedNotJson { .. }
            | webc::Error::ResponseFailedInvalidJson { .. }
            | webc::Error::JsonValueExt(_) => Self::Format,
        }
    }
}

fn tls_fault(error: &reqwest::Error) -> Option<TlsFault> {
    let first: &(dyn Error + 'static) = error;
    let mut causes = successors(Some(first), |&error| cause(error));
    causes.find_map(|cause| cause.downcast_ref::<rustls::Error>().map(TlsFault::from))
}

/// Returns the source of an error. `io::Error` skips the error it wraps in its `source`.
fn cause<'a>(error: &'a (dyn Error + 'static)) -> Option<&'a (dyn Error + 'static)> {
    match error.downcast_ref::<io::Error>().and_then(io::Error::get_ref) {
        Some(wrapped) => Some(wrapped),
        None => error.source(),
    }
}
