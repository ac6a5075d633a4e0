//! Settings of the Pyodide backend.

use std::path::PathBuf;

use crate::local;

/// Settings of the Pyodide backend.
#[derive(Debug, Clone)]
pub struct Settings {
    /// Directory that `ringfence setup deno` installs to.
    pub directory: PathBuf,
    /// Deno to use instead of the installed one.
    pub deno: Option<PathBuf>,
    /// Directory of wheels that programs can import.
    pub packages: Option<PathBuf>,
    /// Number of idle workers, once there was a first request.
    pub spares: usize,
    /// Settings of the fence that Deno runs in.
    pub local: local::Settings,
}
