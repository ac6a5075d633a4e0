//! Failures of registries.

use std::path::PathBuf;

use ringfence_network::fetch::FetchCause;

use crate::credentials::{CredentialError, NoCredentials};

/// A failure of a registry.
#[derive(Debug, thiserror::Error)]
pub enum RegistryError {
    #[error("cannot reach {0}")]
    Unreachable(String),
    #[error("{0} is not an address on the internet, where the registry is")]
    Inner(String),
    #[error("{host}: {cause}")]
    Exchange { host: String, cause: FetchCause },
    #[error("{0} sends nothing any more")]
    Stalled(String),
    #[error("the registry has no such image")]
    NotFound,
    #[error("the registry requires credentials for this image, or there is none: {0}")]
    Denied(NoCredentials),
    #[error("the registry denies this image (status {status}) to the credentials in {}", file.display())]
    Refused { file: PathBuf, status: u16 },
    #[error("the registry asks for a name and a password, and {} has only a token", .0.display())]
    OnlyToken(PathBuf),
    #[error("the registry asks for credentials in no way that is supported: Bearer with a realm, or Basic")]
    Challenge,
    #[error(
        "the registry names a token server on {host}, which is another host and reached without TLS: the credentials in \
         {} do not go there", file.display()
    )]
    Realm { host: String, file: PathBuf },
    #[error("{host}, to which the registry redirects, answered with status {status}")]
    Elsewhere { host: String, status: u16 },
    #[error("the search for credentials has panicked")]
    Search,
    #[error(transparent)]
    Credentials(#[from] CredentialError),
    #[error("the registry refuses more requests for now")]
    TooMany,
    #[error("the registry answered with status {0}")]
    Status(u16),
    #[error("the registry names no usable address: {0}")]
    Address(String),
    #[error("the token server gave no usable token")]
    Token,
    #[error("the answer of the registry is longer than expected")]
    TooLong,
}

impl RegistryError {
    /// Returns a hint for the user.
    pub(crate) fn hint(&self) -> String {
        match self {
            Self::Denied(search) => search.hint(),
            Self::Refused { file, .. } => format!(
                "check that they may pull it, or renew them in {} with `docker login` or `podman login`",
                file.display()
            ),
            other => other.advice().to_owned(),
        }
    }

    fn advice(&self) -> &'static str {
        match self {
            Self::Unreachable(_) | Self::Stalled(_) => "check the name and the network, or try again later",
            Self::Inner(_) => {
                "a registry on the internet must not lead to machines of yours; use another one"
            }
            Self::Exchange { cause, .. } => match cause {
                FetchCause::Tls(_) | FetchCause::Trust(_) => {
                    "registries are reached by https; name an authority of your own in `egress.ca_file`"
                }
                _ => "try again; the registry may be overloaded, or speak another protocol",
            },
            Self::NotFound => "check the name and the tag",
            Self::Denied(_) | Self::Refused { .. } => "check the credentials",
            Self::OnlyToken(_) => {
                "store a name and a password with `podman login`, and name its file in REGISTRY_AUTH_FILE"
            }
            Self::Challenge => "pull it with another tool, and use `ringfence image import`",
            Self::Realm { .. } => "have the registry name a token server by https, or one on its own host",
            Self::Credentials(_) | Self::Search => "correct the file, or name another in REGISTRY_AUTH_FILE",
            Self::TooMany => "try again later",
            Self::Status(_) | Self::Elsewhere { .. } | Self::Address(_) | Self::Token | Self::TooLong => {
                "try again; if it stays so, the registry is not one that this version understands"
            }
        }
    }
}
