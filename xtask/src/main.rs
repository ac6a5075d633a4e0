//! The gate.
fn main() {}
