//! Defines the errors of a fetch.

use tokio_rustls::rustls;

use super::trust::TrustError;
use super::url::ParseUrlError;
use crate::egress::{Attempt, ConnectError};

/// A failed fetch, with its egress attempts.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{fault}")]
pub struct FetchError {
    pub fault: FetchCause,
    /// Egress attempts.
    pub attempts: Vec<Attempt>,
}

/// The cause of a failed fetch.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum FetchCause {
    /// The connection was not made.
    #[error(transparent)]
    Connect(#[from] ConnectError),
    /// The target of a redirect is not a valid URL.
    #[error("the server sent an invalid redirect: {0}")]
    Redirect(ParseUrlError),
    /// A redirect leads from `https` to `http`.
    #[error("the server redirects from https to http")]
    Downgrade,
    /// The limit of redirects was exceeded.
    #[error("the server redirects more than {0} times")]
    TooManyRedirects(usize),
    /// The certificate authorities cannot be loaded.
    #[error(transparent)]
    Trust(#[from] TrustError),
    /// The TLS handshake failed.
    #[error("{0}")]
    Tls(TlsFault),
    /// The response is not HTTP/1.1, is truncated, or its head exceeds the limits.
    #[error("the response is not a complete http/1.1 message, or its headers are too large")]
    Protocol,
    /// The deadline was reached.
    #[error("the server did not answer in time")]
    TimedOut,
}

/// The cause of a failed TLS handshake.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum TlsFault {
    /// The certificate is for another host.
    #[error("the server's certificate is for another host")]
    OtherHost,
    /// The issuer is not trusted.
    #[error("the server's certificate was issued by an unknown authority")]
    UnknownIssuer,
    /// The certificate is expired or not yet valid.
    #[error("the server's certificate is not valid today")]
    Expired,
    /// Another defect of the certificate.
    #[error("the server's certificate cannot be used")]
    Certificate,
    /// No common protocol version or cipher suite, or another failure of the handshake.
    #[error("the server offers no tls version or cipher that we support")]
    Handshake,
}

/// The category of a failed fetch, for programs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FetchErrorKind {
    /// The URL, or that of a redirect, is invalid.
    InvalidUrl,
    /// The policy denies it.
    Denied,
    /// The name does not resolve.
    NotFound,
    /// The connection was not made.
    Unreachable,
    /// The TLS handshake failed.
    Tls,
    /// The deadline was reached.
    Timeout,
    /// The limit of redirects was exceeded.
    TooManyRedirects,
    /// The response is not HTTP, or exceeds the limits.
    Protocol,
}

impl FetchError {
    /// Returns the category.
    pub fn kind(&self) -> FetchErrorKind {
        match &self.fault {
            FetchCause::Connect(ConnectError::Refused(_)) | FetchCause::Downgrade => FetchErrorKind::Denied,
            FetchCause::Connect(ConnectError::NotFound(_)) => FetchErrorKind::NotFound,
            FetchCause::Connect(ConnectError::Unreachable(..)) => FetchErrorKind::Unreachable,
            FetchCause::Connect(ConnectError::TimedOut(_)) | FetchCause::TimedOut => FetchErrorKind::Timeout,
            FetchCause::Redirect(_) => FetchErrorKind::InvalidUrl,
            FetchCause::TooManyRedirects(_) => FetchErrorKind::TooManyRedirects,
            FetchCause::Trust(_) | FetchCause::Tls(_) => FetchErrorKind::Tls,
            FetchCause::Protocol => FetchErrorKind::Protocol,
        }
    }

    /// Returns a hint for the user.
    pub fn hint(&self) -> &'static str {
        match &self.fault {
            FetchCause::Connect(error) => error.hint(),
            FetchCause::Trust(error) => error.hint(),
            FetchCause::Redirect(_) | FetchCause::Downgrade => {
                "fetch the page's new address, if it has one, directly"
            }
            FetchCause::TooManyRedirects(_) => {
                "the pages may lead to each other in a circle; fetch the last one directly"
            }
            FetchCause::Tls(TlsFault::UnknownIssuer) => {
                "if it is an authority of your own, name its certificate file in your configuration"
            }
            FetchCause::Tls(_) => "check the host's name; the server's owner has to mend the rest",
            FetchCause::Protocol => {
                "check the scheme and the port; the server may speak something else there"
            }
            FetchCause::TimedOut => "try again later, or allow more time",
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
