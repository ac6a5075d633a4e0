//! Turns a fully spelled-out specification into confined processes, or fails with the name of the step.
//!
//! The crate knows no policy: it does what the specification says, in the order that `steps` lists, and
//! reports the layers that the kernel really applied. It is synchronous, knows nothing of Python beyond three
//! fork hooks, and keeps every `unsafe` block in `sys`. The *server* is the process that owns launchers and
//! containers: `ringfence serve`, or `ringfence run` on its own.
//!
//! - [`protocol`]: the messages between the server and a launcher, and the specifications in them.
//! - [`Launcher`]: the server's end; [`init`]: the hook that makes a program its own launcher.
//! - `launcher`, `serve`, `template`, `cell`, `guest`, `flat`, `zygote`: the launcher's end.
//! - [`init`]: the container init, the counterpart of a launcher and its cells; `mount_point`: its view of the
//!   container's mounts; [`AttachedMount`]: mounts that the server makes for containers.
//! - `nest`, `copy`, `fork`, `inspect`: a session's fork, from its cell to the check of the result.
//! - [`tar`]: archives of files, for sandboxes and images.
//! - [`ExitListener`]: the kernel's early word about a guest's exit.
//! - [`seccomp`], `clock`, `landlock`, `shares`, `steps`: the layers.

pub mod init;
pub mod probe;
pub mod protocol;

mod attach;
mod attached_mount;
mod boot_id;
mod cell;
mod cell_init;
mod cell_setup;
mod client;
mod clock;
mod copy;
mod events;
mod exit_listener;
mod file_user;
mod flat;
mod fork;
mod guest;
mod hook;
mod id_map;
mod inspect;
mod landlock;
mod launcher;
mod mount_point;
mod nest;
mod pipes;
mod places;
mod serve;
mod shares;
mod step_error;
mod steps;
mod sys;
mod template;
mod trials;
mod writable_root;
mod zygote;

pub use attached_mount::AttachedMount;
pub use client::{Launcher, START_BYTE, START_DEADLINE, STEPS_OF_ZYGOTE, StartError, is_gone};
pub use clock::uptime;
pub use exit_listener::{ExitCall, ExitListener};
pub use file_user::FileUser;
pub use hook::init;
pub use init::init_main;
pub use landlock::{abi as landlock_abi, confine_thread};
pub use mount_point::unescape;
pub use mount_point::{FileIdentity, MountPoint, Mounted};
pub use pipes::{code_file, control_pair, hand_over, output_pipe, take_over};
pub use ringfence_seccomp as seccomp;
pub use shares::raise_open_files;
