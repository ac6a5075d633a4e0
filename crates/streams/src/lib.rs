//! Reads byte streams in bounded memory: lines, and the head and the tail of an output.

pub mod lines;
pub mod output;
