//! The figures of `ringfence bench`: this machine, each figure measured against its peer in the same run.

mod containers;
mod context;
mod engine;
mod figure;
mod history;
mod line_process;
mod monty;
mod process;
mod rows;

pub use context::{BenchContext, Machine};
pub use figure::{Figure, Sample, Target, Unit, header};
pub use history::History;
pub use rows::{ROWS, Row};
