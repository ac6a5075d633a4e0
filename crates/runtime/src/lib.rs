//! runtime
pub mod imports;
pub mod output;
pub mod redact;
pub mod artifact;
pub mod interpreter;
