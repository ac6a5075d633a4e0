//! A log for reports that belong to no single request.

use std::fmt;
use std::sync::Arc;

type Write = dyn Fn(&str) + Send + Sync;

/// A receiver of reports, one line each; by default they are dropped.
#[derive(Clone, Default)]
pub struct Log(Option<Arc<Write>>);

impl Log {
    /// Passes each report to `write`.
    pub fn new(write: impl Fn(&str) + Send + Sync + 'static) -> Self {
        Self(Some(Arc::new(write)))
    }

    /// Passes on a report.
    pub fn write(&self, report: &str) {
        if let Some(write) = &self.0 {
            write(report);
        }
    }
}

impl fmt::Debug for Log {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Log")
    }
}
