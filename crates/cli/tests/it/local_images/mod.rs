//! Runs of the local fence on images.

mod pulls;
mod root;
mod runs;
mod store;

pub(crate) use root::{root_archive, root_archive_with};
