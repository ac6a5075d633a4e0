//! Imports of good and hostile images.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test may end at once")]

mod archives;
mod credentials;
mod hostile;
mod importing;
mod layers;
mod pulling;
