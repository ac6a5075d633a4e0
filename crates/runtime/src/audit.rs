//! The audit log: one chained record for each use of a tool.
