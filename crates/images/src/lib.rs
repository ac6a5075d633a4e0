//! OCI and Docker images for the local fence, without a daemon: pulled or imported, unpacked once, listed, removed.
//!
//! An image is untrusted. Every blob is checked against its digest, every size is bounded before use, and
//! nothing of an image is executed here.
#![forbid(unsafe_code)]

mod archive;
mod bounds;
mod build;
mod challenge;
mod credentials;
mod decode;
mod digest;
mod document;
mod error;
mod import;
mod index;
mod layer;
mod layout;
mod platform;
mod pull;
mod record;
mod reference;
mod registry;
mod registry_error;
mod root;
mod staging;
mod store;
mod tree;
mod zstd;

pub use bounds::Bounds;
pub use credentials::{CredentialError, CredentialFiles, NoCredentials, OpenFile};
pub use digest::{Digest, ParseDigestError};
pub use document::DocumentError;
pub use error::{Error, explain};
pub use import::{Import, import};
pub use layer::LayerError;
pub use pull::{Progress, Pulled, pull};
pub use reference::{ParseReferenceError, Reference, Selector};
pub use registry::Network;
pub use registry_error::RegistryError;
pub use root::RootError;
pub use store::{Confine, ImageInfo, Lease, Removal, Store};

/// Decompressed bytes, and memory for them, of the fuzzer.
const FUZZED: u64 = 1 << 20;

/// Reads bytes as everything that a registry may send; for the fuzzer.
#[doc(hidden)]
pub fn read_all(bytes: &[u8]) {
    let _ = document::Document::read(bytes);
    let _ = document::Configuration::read(bytes, Bounds::DEFAULT.layers);
    let _ = challenge::token(bytes);
    let mut content = std::io::Read::take(zstd::Frames::new(bytes, FUZZED), FUZZED);
    let _ = std::io::copy(&mut content, &mut std::io::sink());
    let text = String::from_utf8_lossy(bytes);
    let _ = challenge::Challenge::read(&text).map(|challenge| challenge.url("team/app"));
}
