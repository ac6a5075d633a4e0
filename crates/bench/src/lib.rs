//! The figures of `ringfence bench`: this machine, each figure measured against its peer in the same run.

mod containers;
mod engine;
mod figure;
mod place;
mod process;
mod rows;

pub use figure::{Figure, Sample, Target, Unit, header};
pub use place::{Machine, Place};
pub use rows::{ROWS, Row};
