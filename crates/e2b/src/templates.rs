//! Templates: sandboxes with the fence `box` in which steps were carried out, kept as snapshots.
//!
//! A template is requested, gets files, is built in a sandbox of its own, and is from then on a snapshot of its owner with the
//! template's id and name. Only what is being built is here; it is gone with the server.

mod build;
mod files;
pub(crate) mod registry;
pub(crate) mod routes;
pub(crate) mod start;
mod tags;
