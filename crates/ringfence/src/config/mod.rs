//! The configuration: one schema, layers with provenance.
//!
//! Built-in defaults < system file < user file < project file < environment < command line. The last
//! is applied by the plan of the command line, which knows the options of each command.

mod file;
mod gateways;
mod keys;
mod layers;
mod lines;
mod near_misses;
mod packages;
mod problem;
mod project;
pub mod reference;
pub mod schema;
pub mod suggest;
mod templates;
pub mod values;
mod variables;

pub(crate) use layers::load;
pub use layers::{Loaded, Sources};
pub use problem::{Problem, Problems};
pub use schema::Config;
pub use suggest::nearest;

#[cfg(test)]
mod tests;
