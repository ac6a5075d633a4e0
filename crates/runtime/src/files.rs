//! The workspace: a directory that file tools cannot leave.
