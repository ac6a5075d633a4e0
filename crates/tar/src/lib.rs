//! Tar archives (POSIX.1-2001, pax), of which GNU's long names are read, too.
//!
//! Archives are untrusted: every length is bounded before use, and nothing is interpreted but names, types
//! and numbers. Callers decide where a member may go.
#![forbid(unsafe_code)]

mod read;
mod write;

pub use read::{Content, Reader, TarError};
pub use write::Writer;

/// Size of a block, of which archives consist.
const BLOCK: usize = 512;

/// The type of a member.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    File,
    /// Another name of a member before.
    HardLink,
    Symlink,
    Directory,
    Fifo,
    Device,
    /// Any other type, by its letter.
    Other(u8),
}

/// A member of an archive, without its content.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Member {
    /// Path in the archive, unchecked: it may be absolute, or contain `..`.
    pub path: Vec<u8>,
    /// Text of a symbolic link, or path of the member that a hard link is another name of.
    pub target: Vec<u8>,
    pub kind: Kind,
    /// Permission bits with set-user-ID, set-group-ID and sticky.
    pub mode: u32,
    pub uid: u64,
    pub gid: u64,
    /// Length of the content in bytes.
    pub size: u64,
    /// Modification time in seconds since 1970.
    pub modified: u64,
}
