//! Servers on the loopback address for tests, with and without TLS, well-behaved and not.
//!
//! Other crates depend on it for their tests only.
#![forbid(unsafe_code)]
#![expect(
    clippy::unwrap_used,
    missing_debug_implementations,
    reason = "a test fails if its server cannot start, and prints no server"
)]

pub mod authority;
pub mod server;
