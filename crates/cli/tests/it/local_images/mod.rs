//! Runs of the local fence on images.

mod root;
mod runs;
mod store;

pub(crate) use root::root_archive;
