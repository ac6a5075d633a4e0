//! runtime
pub mod imports;
pub mod output;
