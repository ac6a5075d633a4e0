//! Runs of the local fence on images.

pub(crate) mod pulls;
mod root;
mod runs;
mod store;

pub(crate) use root::{import_of, root_archive, root_archive_with};
