//! The errors of a run without a program's result.

use std::io;
use std::path::PathBuf;

use ringfence_exec::backend::{self, Reason};
use ringfence_network::egress::ConnectError;
use ringfence_network::fetch::FetchCause;
use ringfence_network::secret::KeyError;
use ringfence_policy::{Remedy, remedy};

use crate::settings::SettingsError;

/// An error of running a request. The program was not run, or its end is unknown.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("the runtime `e2b` cannot be used: {0}")]
    NoKey(KeyError),
    #[error("the address of the service cannot be used: {0}")]
    Address(SettingsError),
    /// Results report no layer, so none can be required.
    #[error("the runtime `e2b` applies no layer of this machine, and all are required")]
    Required,
    #[error("the runtime `e2b` does not support {0}")]
    Elsewhere(&'static str),
    #[error("cannot send {}: {source}", .path.display())]
    File {
        /// File or directory.
        path: PathBuf,
        source: io::Error,
    },
    #[error("the files to be sent are too many, or hold more than {0} bytes")]
    TooMuch(u64),
    #[error("the output directory cannot be used: {0}")]
    OutputDirectory(io::Error),
    #[error("the service cannot be reached: {0}")]
    Unreachable(FetchCause),
    #[error("the service refused the key{0}")]
    KeyRefused(Said),
    /// A limit of the account is reached.
    #[error("the service has no room for another sandbox{0}")]
    Quota(Said),
    #[error("the service does not know the template `{0}`")]
    Template(String),
    #[error("the service answered with the status {status}{said}")]
    Service { status: u16, said: Said },
    #[error("the sandbox is gone")]
    Gone,
    /// The service's answer violates the protocol.
    #[error("the service does not speak its protocol: {0}")]
    Protocol(&'static str),
    #[error("the sandbox could not be prepared{0}")]
    Setup(Said),
    #[error("cannot start the program{0}")]
    Program(Said),
    #[error("the run ended without a result")]
    Lost,
}

/// Words of a service: one bounded line without control characters, and a colon before it; or nothing.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Said(String);

/// Maximum length of a quoted message of the service.
const MAX_SAID: usize = 200;

impl Said {
    /// Keeps the beginning of a text, in which `secret` is not repeated.
    pub(crate) fn new(text: &str, secret: &str) -> Self {
        let hidden = match secret {
            "" => text.to_owned(),
            secret => text.replace(secret, "[key]"),
        };
        let line: String = hidden.trim().chars().take(MAX_SAID).collect();
        match line.is_empty() {
            true => Self::default(),
            false => Self(format!(": {}", line.escape_debug())),
        }
    }
}

impl std::fmt::Display for Said {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

impl From<FetchCause> for Error {
    fn from(cause: FetchCause) -> Self {
        match cause {
            FetchCause::Protocol => Self::Protocol("its answer is not complete HTTP/1.1"),
            other => Self::Unreachable(other),
        }
    }
}

impl From<SettingsError> for Error {
    fn from(error: SettingsError) -> Self {
        match error {
            SettingsError::Key(error) => Self::NoKey(error),
            address @ (SettingsError::Url { .. } | SettingsError::Domain) => Self::Address(address),
        }
    }
}

impl From<ConnectError> for Error {
    fn from(error: ConnectError) -> Self {
        Self::Unreachable(error.into())
    }
}

impl Error {
    /// Returns advice for the user.
    pub fn hint(&self) -> Remedy {
        match self {
            Self::NoKey(_) => remedy::Run::SetServiceKey.into(),
            Self::Address(_) | Self::Unreachable(_) | Self::Protocol(_) => remedy::Run::CheckService.into(),
            Self::Required | Self::Elsewhere(_) => remedy::Run::UseLocal.into(),
            Self::KeyRefused(_) => remedy::Run::ReplaceServiceKey.into(),
            Self::Quota(_) => remedy::Run::EndSandboxes.into(),
            Self::Template(_) | Self::Setup(_) | Self::Program(_) => remedy::Run::NameTemplate.into(),
            Self::File { .. } | Self::TooMuch(_) => "send less, or use the runtime `local`".into(),
            Self::OutputDirectory(_) => "name a directory that you may write, or one that can be made".into(),
            Self::Service { .. } | Self::Gone => "try again later; the service may be out of order".into(),
            Self::Lost => remedy::Run::Retry.into(),
        }
    }

    fn reason(&self) -> Reason {
        match self {
            Self::NoKey(_)
            | Self::Address(_)
            | Self::Required
            | Self::Unreachable(_)
            | Self::KeyRefused(_) => Reason::Unavailable,
            Self::Quota(_) => Reason::Busy,
            Self::Template(_) | Self::Program(_) => Reason::NotFound,
            Self::Elsewhere(_) | Self::File { .. } | Self::TooMuch(_) => Reason::Invalid,
            Self::OutputDirectory(_)
            | Self::Service { .. }
            | Self::Gone
            | Self::Protocol(_)
            | Self::Setup(_)
            | Self::Lost => Reason::Failed,
        }
    }
}

impl From<Error> for backend::Error {
    fn from(error: Error) -> Self {
        Self {
            reason: error.reason(),
            hint: error.hint(),
            message: error.to_string(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_service_is_repeated_in_one_short_line_without_the_key() {
        let said = |text: &str| Said::new(text, "e2b_0123").to_string();
        assert_eq!(said(""), "");
        assert_eq!(said(" a\x1b[31m\nb "), ": a\\u{1b}[31m\\nb");
        assert_eq!(said("your key e2b_0123 is old"), ": your key [key] is old");
        assert!(said(&"x".repeat(10_000)).len() < 300);
    }
}
