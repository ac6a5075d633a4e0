//! Failures of registries.

use ringfence_network::fetch::FetchCause;

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
    #[error("the registry requires credentials for this image, or there is none")]
    Denied,
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
    pub(crate) fn hint(&self) -> &'static str {
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
            Self::Denied => {
                "credentials are not supported: pull it with another tool, and use `ringfence image import`"
            }
            Self::TooMany => "try again later",
            Self::Status(_) | Self::Address(_) | Self::Token | Self::TooLong => {
                "try again; if it stays so, the registry is not one that this version understands"
            }
        }
    }
}
