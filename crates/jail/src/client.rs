//! The server's end of a launcher.

use std::ffi::OsString;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::process::Stdio;
use std::time::Duration;

use crate::protocol::{Command, Event, LauncherSpec, MAX_MESSAGE};
use crate::{hook, launcher, sys};

/// The error of starting a launcher.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// [`crate::init`] was not called: the new process would run this program's own `main`.
    #[error("this program cannot be its own launcher: it has not called `init()`")]
    NotInitialised,
    /// The system refused a socket or a process.
    #[error("cannot start the launcher process")]
    Spawn(#[source] io::Error),
    /// The specification could not be sent.
    #[error("cannot instruct the launcher process")]
    Instruct(#[source] io::Error),
}

/// Deadline for a launcher to start. A slower process is assumed to be a program whose `main` does not call
/// [`crate::init`] on every path.
pub const START_DEADLINE: Duration = Duration::from_secs(30);

/// Job of a program that reads none. It is read from the control channel just before the program begins:
/// while it is unread, nothing of the program has run.
pub const START_BYTE: u8 = 0;

/// Steps that fail if the zygote has died, when the guest may not have begun.
pub const STEPS_OF_ZYGOTE: [&str; 3] = [
    "ask the zygote for a guest",
    "fork a guest from the zygote",
    "set a guest up",
];

/// Returns `true` for an error of a launcher's socket that means that the launcher has died.
pub fn is_gone(error: &io::Error) -> bool {
    use io::ErrorKind as E;
    matches!(
        error.kind(),
        E::BrokenPipe | E::ConnectionReset | E::ConnectionRefused | E::NotConnected
    )
}

/// A launcher process and the socket to it. Dropping it ends the launcher and all guests.
#[derive(Debug)]
pub struct Launcher {
    socket: OwnedFd,
    pid: libc::pid_t,
}

impl Launcher {
    /// Starts a launcher and sends its specification.
    ///
    /// # Errors
    /// If [`crate::init`] was not called, or a process or socket cannot be created.
    pub fn start(spec: &LauncherSpec) -> Result<Self, StartError> {
        let launcher = Self::spawn()?;
        launcher.instruct(spec)?;
        Ok(launcher)
    }

    /// Starts a launcher: this very binary, executed anew, with an empty environment. It waits for
    /// [`Launcher::instruct`], so that the specification can be computed meanwhile.
    ///
    /// # Errors
    /// If [`crate::init`] was not called, or a process or socket cannot be created.
    pub fn spawn() -> Result<Self, StartError> {
        if !hook::is_installed() {
            return Err(StartError::NotInitialised);
        }
        let (socket, theirs) = sys::seqpacket_pair().map_err(StartError::Spawn)?;
        #[expect(
            clippy::disallowed_methods,
            reason = "the one place where the fence starts a process"
        )]
        let child = std::process::Command::new("/proc/self/exe")
            .arg(hook::LAUNCHER_ARGUMENT)
            .env_clear()
            .stdin(theirs)
            .stdout(Stdio::null())
            .stderr(Stdio::inherit())
            .spawn()
            .map_err(StartError::Spawn)?;
        let pid = child.id().cast_signed();
        Ok(Self { socket, pid })
    }

    /// Forks a launcher from the calling process, which is faster. It waits for [`Launcher::instruct`].
    ///
    /// Only for a single-threaded process that has done nothing yet except copy its arguments; the launcher
    /// overwrites these, and what the kernel put into its memory.
    ///
    /// # Errors
    /// If a process or socket cannot be created.
    pub fn fork(arguments: &mut [OsString]) -> Result<Self, StartError> {
        let (socket, theirs) = sys::seqpacket_pair().map_err(StartError::Spawn)?;
        match sys::fork().map_err(StartError::Spawn)? {
            Some(pid) => Ok(Self { socket, pid }),
            None => {
                drop(socket);
                launcher::become_launcher(theirs, arguments)
            }
        }
    }

    /// Sends a new launcher its specification. It answers with [`Event::Ready`] or [`Event::Failed`].
    ///
    /// # Errors
    /// If it has exited, or the specification does not fit into a message.
    pub fn instruct(&self, spec: &LauncherSpec) -> Result<(), StartError> {
        let bytes = serde_json::to_vec(spec).map_err(io::Error::other);
        let sent = bytes.and_then(|bytes| sys::send_message(self.socket.as_fd(), &bytes, &[]));
        sent.map_err(StartError::Instruct)
    }

    /// Makes [`Launcher::receive`] fail with `WouldBlock` if nothing has arrived.
    ///
    /// # Errors
    /// If the system refuses.
    pub fn set_nonblocking(&self) -> io::Result<()> {
        sys::set_nonblocking(self.socket.as_fd())
    }

    /// Sends a command with its file descriptors.
    ///
    /// # Errors
    /// If the launcher has exited, or the message does not fit.
    pub fn send(&self, command: &Command, fds: &[BorrowedFd<'_>]) -> io::Result<()> {
        let bytes = serde_json::to_vec(command).map_err(io::Error::other)?;
        if bytes.len() > MAX_MESSAGE {
            // A launcher exits on an unreadable message, with all its guests.
            return Err(io::ErrorKind::ArgumentListTooLong.into());
        }
        sys::send_message(self.socket.as_fd(), &bytes, fds)
    }

    /// Receives an event with its file descriptors; `None` if the launcher has exited.
    ///
    /// # Errors
    /// If the socket failed, or, without blocking, nothing has arrived.
    pub fn receive(&self, buffer: &mut Vec<u8>) -> io::Result<Option<(Event, Vec<OwnedFd>)>> {
        buffer.resize(MAX_MESSAGE, 0);
        let (length, fds) = sys::receive_message(self.socket.as_fd(), buffer)?;
        if length == 0 {
            return Ok(None);
        }
        let event = serde_json::from_slice(&buffer[..length]).map_err(io::Error::other)?;
        Ok(Some((event, fds)))
    }

    /// Returns the process id of the launcher's outermost process.
    pub fn id(&self) -> u32 {
        self.pid.cast_unsigned()
    }

    /// Ends the launcher and every guest, without waiting; [`Launcher::close`] waits.
    pub fn end(&self) {
        // Fails if the launcher has exited.
        let _ = sys::hang_up(self.socket.as_fd());
    }

    /// Ends the launcher and every guest, and reaps it.
    ///
    /// # Errors
    /// If the process cannot be awaited.
    pub fn close(self) -> io::Result<()> {
        let Self { socket, pid } = self;
        drop(socket);
        sys::await_child(pid)
    }

    /// Kills and reaps a process that did not become a launcher. It may be any program, and may never exit by
    /// itself.
    ///
    /// # Errors
    /// If the process cannot be awaited.
    pub fn kill(self) -> io::Result<()> {
        // Fails if the process has exited.
        let _ = sys::kill(self.pid, libc::SIGKILL);
        self.close()
    }

    /// Waits for an event or the launcher's exit; `false` at the deadline.
    ///
    /// # Errors
    /// If the system refuses.
    pub(crate) fn wait(&self, deadline: Duration) -> io::Result<bool> {
        let milliseconds = i32::try_from(deadline.as_millis()).unwrap_or(i32::MAX);
        let ready = sys::poll(&[self.socket.as_fd()], Some(milliseconds))?;
        Ok(ready.contains(&true))
    }
}

impl AsFd for Launcher {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}
