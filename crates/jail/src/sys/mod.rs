//! Thin safe wrappers around the system calls of the fence: one call each, no policy.
//!
//! This is the only place in the workspace with `unsafe`.
#![allow(unsafe_code, reason = "the one module that talks to the kernel directly")]

mod confine;
mod directory;
mod export;
mod files;
mod inotify;
mod message;
mod mounts;
mod network;
mod notify;
mod process;
mod python;
mod start;
mod terminal;

pub(crate) use confine::*;
pub(crate) use directory::*;
pub(crate) use files::*;
pub(crate) use inotify::*;
pub(crate) use message::*;
pub(crate) use mounts::*;
pub(crate) use network::*;
pub(crate) use notify::*;
pub(crate) use process::*;
pub(crate) use python::*;
pub(crate) use start::*;
pub(crate) use terminal::*;

use std::io;

/// Converts the result of a system call made through libc. `-1` means that `errno` holds the error.
fn check(result: libc::c_long) -> io::Result<libc::c_long> {
    if result == -1 {
        Err(io::Error::last_os_error())
    } else {
        Ok(result)
    }
}

/// Does the same as [`check`], for calls that return an `int`.
fn check_int(result: libc::c_int) -> io::Result<libc::c_int> {
    if result == -1 {
        Err(io::Error::last_os_error())
    } else {
        Ok(result)
    }
}
