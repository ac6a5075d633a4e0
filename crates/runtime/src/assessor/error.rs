//! Why there is no score.

use std::error::Error;
use std::io;
use std::iter::successors;

use genai::webc;
use ringfence_policy::Timeout;
use tokio_rustls::rustls;

use super::{KeyError, conduit};
use crate::egress::ConnectError;
use crate::fetch::{TlsFault, TrustError};

/// Why there is no score. Nothing that a server said is repeated: it could speak to whoever reads this.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum NoScore {
    /// There is no key to show.
    #[error(transparent)]
    Key(#[from] KeyError),
    /// Nobody's certificates are believed.
    #[error(transparent)]
    Trust(#[from] TrustError),
    /// There was no connection.
    #[error(transparent)]
    Connect(#[from] ConnectError),
    /// The server could not prove who it is.
    #[error("{0}")]
    Tls(TlsFault),
    /// The way to the server could not be laid on this machine.
    #[error("the connection could not be prepared")]
    Conduit,
    /// The connection ended before the answer did.
    #[error("the connection broke off")]
    Broken,
    /// The time was over.
    #[error("it did not answer within {0}")]
    TimedOut(Timeout),
    /// Another status than success. Redirects are not followed.
    #[error("its server answered with status {0}")]
    Status(u16),
    /// More than any score needs.
    #[error("its server sent more than {} KiB", conduit::MAX_ANSWER / 1024)]
    TooLong,
    /// Nothing of the format that its provider has.
    #[error("its server's answer is not in the format of the provider")]
    Format,
    /// It would not say.
    #[error("it refused to answer")]
    Refused,
    /// It was cut off, called a tool, or stopped for another reason than that it was done.
    #[error("it did not finish its answer")]
    Unfinished,
    /// Anything but one integer between 0 and 10.
    #[error("it did not answer with one integer from 0 to 10")]
    NoInteger,
}

impl From<genai::Error> for NoScore {
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

/// What is behind an error. One of the system's hides what it wraps from `source`, and gives only what is behind that.
fn cause<'a>(error: &'a (dyn Error + 'static)) -> Option<&'a (dyn Error + 'static)> {
    match error.downcast_ref::<io::Error>().and_then(io::Error::get_ref) {
        Some(wrapped) => Some(wrapped),
        None => error.source(),
    }
}
