//! End-to-end tests through the built binary.
#![allow(clippy::unwrap_used, reason = "a test may end at once")]

mod support;

mod config;
mod security;
mod usage;
