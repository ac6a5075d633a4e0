//! Paths in every container.

/// Directory in which programs leave files for their caller.
pub(super) const OUTPUT: &str = "/output";

/// Working directory of programs.
pub(super) const WORKSPACE: &str = "/workspace";
