//! Prints the system-call filters as OCI seccomp profiles.

use ringfence_jail::seccomp::{self, Exits, Forks, Ipc, Profile, Sockets, Surface, Users};

/// Name of the filter for guests in a cell.
pub(crate) const FENCE: &str = "fence";
/// Name of the filter for guests that may reach the egress proxy.
pub(crate) const FENCE_NETWORK: &str = "fence-network";
/// Name of the filter for sandboxes with the fence `box`.
pub(crate) const BOX: &str = "box";
/// Name of the filter for those with a network.
pub(crate) const BOX_NETWORK: &str = "box-network";
/// Name of the filter for containers whose guests may reach the egress proxy.
pub const STANDARD_TCP: &str = "standard-tcp";

/// A filter cannot be printed.
#[derive(Debug, thiserror::Error)]
pub enum UnknownFilter {
    #[error(
        "unknown seccomp profile `{0}`; known are strict, standard, standard-tcp, standard-net, fence, fence-network, box and box-network"
    )]
    Name(String),
    #[error("unknown architecture `{0}`; known are x86_64 and aarch64")]
    Architecture(String),
    /// The built-in profile cannot be parsed.
    #[error("the built-in profile cannot be read")]
    Broken(#[source] seccomp::Error),
}

/// Returns the filter `name` as an OCI seccomp profile (runtime-spec, `linux.seccomp`).
///
/// # Errors
/// If there is no such filter or architecture.
pub fn filter_document(name: &str, architecture: &str) -> Result<serde_json::Value, UnknownFilter> {
    let architecture = match architecture {
        "x86_64" => seccomp::Arch::X86_64,
        "aarch64" => seccomp::Arch::Aarch64,
        other => return Err(UnknownFilter::Architecture(other.to_owned())),
    };
    let document = match name {
        "strict" => seccomp::profile(architecture, Profile::Strict),
        "standard" => seccomp::profile(architecture, Profile::Standard),
        STANDARD_TCP => seccomp::profile(architecture, Profile::StandardTcp),
        "standard-net" => seccomp::profile(architecture, Profile::StandardNet),
        FENCE => seccomp::document(architecture, surface(Sockets::Unix)),
        FENCE_NETWORK => seccomp::document(architecture, surface(Sockets::UnixAndTcp)),
        BOX => seccomp::document(architecture, box_surface(Sockets::Unix)),
        BOX_NETWORK => seccomp::document(architecture, box_surface(Sockets::UnixAndTcp)),
        other => return Err(UnknownFilter::Name(other.to_owned())),
    };
    document.map_err(UnknownFilter::Broken)
}

/// Returns the variant of the fence's filters that runs get where namespaces are available.
const fn surface(sockets: Sockets) -> Surface {
    Surface {
        sockets,
        ipc: Ipc::Own,
        forks: Forks::Never,
        exits: Exits::Silent,
        users: Users::One,
    }
}

const fn box_surface(sockets: Sockets) -> Surface {
    Surface {
        forks: Forks::Adopted,
        users: Users::Several,
        ..surface(sockets)
    }
}
