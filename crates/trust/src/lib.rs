//! Paths of the host that guests must neither see nor change: trusted paths within directories that they may write,
//! the mounts that protect these, and paths that are never mounted.
//!
//! A read-only mount over a file protects it only as long as nobody renames a directory above it: so each
//! directory between it and the guest's own is made a mount point, too, which the kernel refuses to rename or
//! remove (EBUSY).
#![forbid(unsafe_code)]

mod accepted;
mod acted;
mod conflict;
mod copies;
mod directory;
pub mod git;
mod git_settings;
pub mod glob;
mod identity;
pub mod ledger;
pub mod mount_guard;
mod named;
pub mod project_files;
pub mod protected;
mod protection;
mod replacement;
mod resolve;
mod servers;

pub use accepted::{Accepted, Digest};
pub use acted::{Acted, Target};
pub use conflict::Conflict;
pub use copies::{CopyGuard, CopyRules, makes_repository};
pub use directory::Directory;
pub use identity::{holds, identity_at};
pub use ledger::Ledger;
pub use named::{NamedPathError, NamedPaths, metadata};
pub use protection::{
    ActedOn, MAX_COST, ProtectedMount, Protection, acted_on, cost, near, protected_mounts, protection, trees,
};
pub use replacement::Replacement;
pub use resolve::{Resolved, resolve};
pub use servers::check_servers;
