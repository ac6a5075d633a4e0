//! Denial tests: each act works outside the fence, is denied inside it, and fails with the expected error.
//!
//! One file for each threat. An act is a few lines of Python that run twice, outside with the very same
//! interpreter, and print `ok` or the error's name.
#![allow(
    clippy::panic,
    clippy::print_stderr,
    reason = "tests end by panics, and say what they skip"
)]

mod fence;
mod probe;

mod container;
mod control_groups;
mod corpus;
mod devices;
mod exhaustion;
mod host_disk;
mod host_files;
mod images;
mod interpreter;
mod kernel;
mod launcher;
mod machine;
mod mounts;
mod namespaces;
mod ordinary_user;
mod output;
mod privileges;
mod processes;
mod profiles;
mod program_file;
mod root;
mod root_copies;
mod same_user;
mod shares;
mod sockets;
mod state_directory;
mod tool_attacks;
mod trusted;
mod truth;
mod warm;
mod workspace_attacks;
mod zygote;
