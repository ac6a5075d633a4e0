//! Turns a fully spelled-out specification into confined processes, or fails saying which step.
//!
//! The crate is a stranger to policy: it does what the specification says, in the order that `steps` lists,
//! and reports what the kernel really granted. It is synchronous, knows nothing of Python beyond three fork
//! hooks, and keeps every `unsafe` block in `sys`.
//!
//! - [`protocol`]: what the engine and a launcher say to each other, and the specifications they exchange.
//! - [`Launcher`]: the engine's end: starts a launcher process and talks to it; [`init`]: the hook by which a program becomes one.
//! - `launcher`, `serve`, `template`, `cell`, `guest`, `flat`, `zygote`: the other end, one part of the work each.
//! - [`agent`]: the first process of a container, which does there what a launcher and its cells do here.
//! - `nest`, `copy`, `fork`, `inspect`: a session's fork, from its cell to the look at what came of it.
//! - [`cgroup`], [`seccomp`], `clock`, `landlock`, `shares`, `steps`: the layers.

pub mod agent;
pub mod cgroup;
pub mod probe;
pub mod protocol;
pub mod seccomp;

mod cell;
mod client;
mod clock;
mod copy;
mod flat;
mod fork;
mod guest;
mod hook;
mod inspect;
mod landlock;
mod launcher;
mod nest;
mod pipes;
mod serve;
mod shares;
mod steps;
mod sys;
mod template;
mod zygote;

pub use agent::agent_main;
pub use client::{Launcher, START_DEADLINE, StartError};
pub use clock::uptime;
pub use hook::init;
pub use landlock::abi as landlock_abi;
pub use pipes::{code_file, control_pair, hand_over, output_pipe, take_over};
pub use shares::raise_open_files;
