//! The configuration: one schema, layers with provenance.
//!
//! Built-in defaults < system file < user file < project file < environment < command line. The command line
//! is applied by `high`, which knows the options of each command.

mod file;
mod gateways;
mod keys;
mod layers;
mod lines;
mod near_misses;
mod problem;
mod project;
pub(crate) mod reference;
pub(crate) mod schema;
mod suggest;
mod templates;
pub(crate) mod values;
mod variables;

pub(crate) use layers::{Loaded, Sources, load};
pub(crate) use problem::{Problem, Problems};
pub(crate) use schema::Config;
pub(crate) use suggest::nearest;

#[cfg(test)]
mod tests;
