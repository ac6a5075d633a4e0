//! Installs packages in a fence, and keeps them for runs.
//!
//! A package is untrusted code. Nothing of it is executed, imported or trusted outside a fence: a guest
//! installs it in a fence that reaches only the index, and writes an archive. [`tree`] unpacks the archive
//! within limits into a directory that guests see read-only.
//!
//! - [`requirement`]: names and versions that a caller asks for; [`index`]: the place that they come from
//! - [`ecosystem`]: facts in which the packages of Python and those of npm differ
//! - [`install`]: the fenced installation; [`tree`]: its files on this machine
//! - [`store`]: environments on disk, found by request, shared by content, removed when unused
//! - [`packages`]: from requirements to an environment, kept or new
//! - [`default`]: packages that programs, sessions and sandboxes have unasked
//! - [`SessionPackages`]: environments in use by sessions
#![forbid(unsafe_code)]

pub mod default;
mod digest;
pub mod ecosystem;
mod error;
mod failure;
pub mod index;
mod install;
mod locks;
pub mod packages;
pub mod requirement;
mod sessions;
pub mod store;
mod tree;

pub use default::{BackendWithDefaults, DefaultPackages};
pub use digest::Digest;
pub use ecosystem::Ecosystem;
pub use error::{Error, InstallError, StoreError};
pub use index::{Index, Indexes};
pub use packages::Packages;
pub use requirement::{Requirement, check_list, parse_list, parse_mixed_list};
pub use sessions::SessionPackages;
pub use store::{Checkout, EnvironmentInfo, Keep, Store};
