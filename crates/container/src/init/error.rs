//! Errors of calls, and of the connection to the init that runs them.

use ringfence_jail::init::frames::{BECOME_USER, ENTER_DIRECTORY, LOOK_UP_USER, START_PROGRAM, VERSION};

const ENOENT: i32 = rustix::io::Errno::NOENT.raw_os_error();
const EAGAIN: i32 = rustix::io::Errno::AGAIN.raw_os_error();
const EINVAL: i32 = rustix::io::Errno::INVAL.raw_os_error();
const EACCES: i32 = rustix::io::Errno::ACCESS.raw_os_error();
const ENOEXEC: i32 = rustix::io::Errno::NOEXEC.raw_os_error();

/// An error that closed the connection to a container's init.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum InitLost {
    /// The container or the container engine exited.
    #[error("the container ended")]
    Gone,
    /// The init violated the protocol.
    #[error("the init of the container sent a malformed message: {0}")]
    Senseless(String),
    /// The init reported a failure of its own.
    #[error("the init of the container failed: {0}")]
    Broken(String),
    /// The init did not end a call in time, or did not answer the handshake.
    #[error("the init of the container does not answer")]
    Silent,
    /// The init speaks another protocol version.
    #[error("the init of the container speaks version {0} of its protocol, and not {VERSION}")]
    Version(u32),
    /// The random number generator failed.
    #[error("cannot read random bytes from the kernel")]
    Secret,
    /// The owner released the container.
    #[error("call cancelled: Ringfence removed its container")]
    Released,
}

impl InitLost {
    /// Returns a hint for the user.
    pub const fn hint(&self) -> &'static str {
        match self {
            Self::Gone | Self::Released | Self::Secret => "try again: the next call starts a new container",
            Self::Senseless(_) | Self::Broken(_) | Self::Silent | Self::Version(_) => {
                "try again: the next call starts a new container; if that does not help, look at the log of the container engine"
            }
        }
    }
}

/// An error that prevented a call from running.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum NotRun {
    /// The call does not fit into a frame.
    #[error("the code, its arguments and its environment are too long together")]
    TooLong,
    /// The concurrency limit was reached, and no call ended before the deadline.
    #[error("timed out in the queue: the container already runs its maximum of concurrent calls")]
    Busy,
    /// The program could not be started in the container.
    #[error("cannot {step} in the container: {}", std::io::Error::from_raw_os_error(*errno))]
    NotStarted {
        /// The step that failed.
        step: String,
        errno: i32,
    },
    /// The connection to the init is closed.
    #[error("the program was not started: {0}")]
    InitLost(InitLost),
}

impl NotRun {
    /// Returns `true` if the container has no such program.
    pub fn is_missing(&self) -> bool {
        matches!(self, Self::NotStarted { step, errno: ENOENT } if step.starts_with("find "))
    }

    /// Returns `true` if the working directory could not be entered.
    pub fn is_bad_directory(&self) -> bool {
        matches!(self, Self::NotStarted { step, .. } if step == ENTER_DIRECTORY)
    }

    /// Returns `true` if there is no such user.
    pub fn is_unknown_user(&self) -> bool {
        matches!(self, Self::NotStarted { step, errno: ENOENT } if step == LOOK_UP_USER)
    }

    /// Returns `true` if an id of the user, or of one of its groups, does not exist in the sandbox.
    pub fn is_user_without_ids(&self) -> bool {
        matches!(self, Self::NotStarted { step, errno: EINVAL } if step == BECOME_USER)
    }

    /// Returns `true` if the container had no room for another process.
    pub fn is_out_of_processes(&self) -> bool {
        matches!(self, Self::NotStarted { errno: EAGAIN, .. })
    }

    /// Returns `true` if the program itself was refused.
    fn is_program(&self) -> bool {
        matches!(self, Self::NotStarted { step, .. } if step == START_PROGRAM)
    }

    /// Returns a hint for the user.
    pub fn hint(&self) -> &'static str {
        match self {
            Self::Busy => "wait until some have ended",
            Self::TooLong => "pass long data as a file or on standard input",
            Self::NotStarted { errno: EAGAIN, .. } => {
                "end other processes of the container or of its user, or raise the limit of its processes"
            }
            Self::NotStarted { errno: EACCES, .. } if self.is_program() => {
                "make the file executable (`chmod +x FILE`), or run it by its interpreter, as in `sh FILE`"
            }
            Self::NotStarted { errno: ENOEXEC, .. } if self.is_program() => {
                "begin the file with its interpreter, as in `#!/bin/sh`, or run it by that, as in `sh FILE`"
            }
            Self::NotStarted { errno: EACCES, .. } => {
                "give the directory to the program's user: where root runs it, that is the user 65534 (`chown -R 65534:65534 DIR`)"
            }
            Self::NotStarted { .. } => {
                "look whether the image has the program, and whether the directory exists there"
            }
            Self::InitLost(parted) => parted.hint(),
        }
    }
}
