//! Why a fetch came to nothing.

use tokio_rustls::rustls;

use super::trust::TrustError;
use super::url::ParseUrlError;
use crate::egress::{Attempt, ConnectError};

/// A fetch that came to nothing, and what was tried.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{fault}")]
pub struct FetchError {
    /// What went wrong.
    pub fault: Fault,
    /// What was tried on the way out.
    pub attempts: Vec<Attempt>,
}

/// What went wrong.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Fault {
    /// There was no connection.
    #[error(transparent)]
    Connect(#[from] ConnectError),
    /// A redirect leads to something that cannot be fetched.
    #[error("the server redirects to something that cannot be fetched: {0}")]
    Redirect(ParseUrlError),
    /// A redirect from `https` to `http`.
    #[error("the server redirects from https to http")]
    Downgrade,
    /// One redirect too many.
    #[error("the server redirects more than {0} times")]
    TooManyRedirects(usize),
    /// No authorities to check a certificate with.
    #[error(transparent)]
    Trust(#[from] TrustError),
    /// The server could not prove who it is.
    #[error("{0}")]
    Tls(TlsFault),
    /// What came was not HTTP, ended too soon, or has a head beyond the limits.
    #[error("the answer is no complete http/1.1 message with headers of a sensible size")]
    Protocol,
    /// The deadline came first.
    #[error("the server did not answer in time")]
    TimedOut,
}

/// Why a secure connection could not be made.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum TlsFault {
    /// Issued for somebody else.
    #[error("the server's certificate is for another host")]
    OtherHost,
    /// Issued by somebody who is not believed.
    #[error("the server's certificate was issued by an unknown authority")]
    UnknownIssuer,
    /// Too old or too new.
    #[error("the server's certificate is not valid today")]
    Expired,
    /// Any other fault of the certificate.
    #[error("the server's certificate cannot be used")]
    Certificate,
    /// No agreement on how to talk.
    #[error("the server speaks no tls that can be used")]
    Handshake,
}

/// What went wrong, as a program tells it apart.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FetchErrorKind {
    /// The URL, or that of a redirect, cannot be fetched.
    InvalidUrl,
    /// The policy does not allow it.
    Denied,
    /// The name does not resolve.
    NotFound,
    /// No connection could be made.
    Unreachable,
    /// No secure connection could be made.
    Tls,
    /// The time was over.
    Timeout,
    /// One redirect too many.
    TooManyRedirects,
    /// The answer was not HTTP, or beyond the limits.
    Protocol,
}

impl FetchError {
    /// What went wrong, as a program tells it apart.
    pub fn kind(&self) -> FetchErrorKind {
        match &self.fault {
            Fault::Connect(ConnectError::Refused(_)) | Fault::Downgrade => FetchErrorKind::Denied,
            Fault::Connect(ConnectError::NotFound(_)) => FetchErrorKind::NotFound,
            Fault::Connect(ConnectError::Unreachable(..)) => FetchErrorKind::Unreachable,
            Fault::Connect(ConnectError::TimedOut(_)) | Fault::TimedOut => FetchErrorKind::Timeout,
            Fault::Redirect(_) => FetchErrorKind::InvalidUrl,
            Fault::TooManyRedirects(_) => FetchErrorKind::TooManyRedirects,
            Fault::Trust(_) | Fault::Tls(_) => FetchErrorKind::Tls,
            Fault::Protocol => FetchErrorKind::Protocol,
        }
    }

    /// What the reader can do about it.
    pub fn hint(&self) -> &'static str {
        match &self.fault {
            Fault::Connect(error) => error.hint(),
            Fault::Trust(error) => error.hint(),
            Fault::Redirect(_) | Fault::Downgrade => "fetch the page's new address, if it has one, directly",
            Fault::TooManyRedirects(_) => {
                "the pages may lead to each other in a circle; fetch the last one directly"
            }
            Fault::Tls(TlsFault::UnknownIssuer) => {
                "if it is an authority of your own, name its certificate file in your configuration"
            }
            Fault::Tls(_) => "check the host's name; the server's owner has to mend the rest",
            Fault::Protocol => "check the scheme and the port; the server may speak something else there",
            Fault::TimedOut => "try again later, or allow more time",
        }
    }
}

impl From<&rustls::Error> for TlsFault {
    fn from(error: &rustls::Error) -> Self {
        use rustls::CertificateError as C;
        let rustls::Error::InvalidCertificate(fault) = error else {
            return Self::Handshake;
        };
        match fault {
            C::NotValidForName | C::NotValidForNameContext { .. } => Self::OtherHost,
            C::UnknownIssuer => Self::UnknownIssuer,
            C::Expired | C::ExpiredContext { .. } | C::NotValidYet | C::NotValidYetContext { .. } => {
                Self::Expired
            }
            _ => Self::Certificate,
        }
    }
}
