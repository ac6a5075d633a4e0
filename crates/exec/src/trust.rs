//! Trusted paths within directories that guests may write, and the mounts that protect them.
//!
//! A read-only mount over a file protects it only as long as nobody renames a directory above it: so each
//! directory between it and the guest's own is made a mount point, too, which the kernel refuses to rename or
//! remove (EBUSY).

mod accepted;
mod acted;
mod conflict;
pub mod git;
mod git_settings;
mod identity;
mod kept;
pub mod ledger;
mod named;
mod resolve;
mod servers;

pub use accepted::{Accepted, Digest};
pub use acted::Acted;
pub use conflict::Conflict;
pub use identity::{holds, identity_at};
pub use kept::{ActedOn, Kept, acted_on, kept, trees};
pub(crate) use kept::{Held, MAX_COST, cost, held, near};
pub use ledger::Ledger;
pub use named::{NamedPathError, NamedPaths, metadata};
pub use resolve::{Resolved, resolve};
pub use servers::check_servers;
