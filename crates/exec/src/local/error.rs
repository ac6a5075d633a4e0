//! Errors of the local backend.

use std::io;
use std::path::PathBuf;

use ringfence_jail::StartError;
use ringfence_policy::{Remedy, remedy};

use super::session_error::Error as SessionError;
use crate::interpreter;
use crate::processors::TooManyProcessors;

/// `EAGAIN` from `errno.h`.
const EAGAIN: i32 = 11;

/// An error of running a request. [`Error::hint`] returns advice.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// Too many concurrent requests.
    #[error("busy: {running} runs are under way and {queued} requests are waiting")]
    Busy {
        /// Maximum number of concurrent runs.
        running: usize,
        /// Maximum number of queued requests.
        queued: usize,
    },
    /// The requested session cannot be used.
    #[error(transparent)]
    Session(#[from] SessionError),
    /// No Python is usable.
    #[error(transparent)]
    Interpreter(#[from] interpreter::Error),
    /// No interpreter for the language was found.
    #[error("no interpreter for {language} was found; looked for {looked_for}")]
    NoInterpreter {
        language: ringfence_policy::Language,
        /// Names searched for.
        looked_for: &'static str,
    },
    /// The named JavaScript engine is none.
    #[error("expected the program of Node.js or Deno, found {}", .0.display())]
    NotJavascript(std::path::PathBuf),
    /// An interpreter whose directory contains a private directory.
    #[error(
        "refusing to show {} to the program: {} is installed in it, but it holds {}",
        directory.display(), program.display(), private.display()
    )]
    Exposing {
        /// Interpreter.
        program: PathBuf,
        /// Directory of the interpreter's installation.
        directory: PathBuf,
        /// Private directory.
        private: PathBuf,
    },
    /// A trusted path cannot be protected from the program.
    #[error(transparent)]
    Trusted(#[from] crate::trust::Conflict),
    /// A layer of the fence could not be applied.
    #[error("cannot fence the run: {step} failed: {}", io::Error::from_raw_os_error(*errno))]
    Fence {
        /// Failed step.
        step: String,
        errno: i32,
    },
    /// Full isolation is required, but namespaces are forbidden.
    #[error("isolation is required, but this machine forbids namespaces: {step} failed: {}", io::Error::from_raw_os_error(*errno))]
    NamespacesForbidden {
        /// Failed step.
        step: String,
        errno: i32,
    },
    /// Full isolation is required, but control groups do not enforce all limits.
    #[error(
        "isolation is required, but no control group here can limit {missing} for all processes together"
    )]
    NoControlGroups {
        /// Unlimited resources.
        missing: &'static str,
    },
    /// A sandbox with root needs host ids that belong to nobody.
    #[error("a sandbox with the fence `box` needs a server that runs as root: it maps a range of user ids")]
    NeedsIds,
    /// All ranges of ids for sandboxes with root are in use.
    #[error("{max} sandboxes with root run already, the most at a time")]
    NoMoreRoots {
        /// Maximum number.
        max: u32,
    },
    /// The program could not be started.
    #[error("cannot start {program}: {}", io::Error::from_raw_os_error(*errno))]
    Program {
        /// Path or name of the program.
        program: String,
        errno: i32,
    },
    /// Arguments and environment exceed one packet to the launcher.
    #[error("the program's arguments and variables are too long: together they may take 128 KiB")]
    TooLong,
    /// The working directory of a command cannot be entered.
    #[error("cannot start in `{}`: {}", directory.display(), io::Error::from_raw_os_error(*errno))]
    WorkingDirectory {
        /// Path relative to the workspace.
        directory: PathBuf,
        errno: i32,
    },
    /// The run needs something that does not work without namespaces.
    #[error("{what} is not supported where namespaces are forbidden")]
    NeedsNamespaces {
        /// Unavailable feature.
        what: &'static str,
    },
    /// The request has an image and something that cannot have one.
    #[error("{0} cannot have an image")]
    Image(&'static str),
    /// A session was requested with a network.
    #[error("a session has no network")]
    NetworkOfSession,
    /// The request has more processors than this machine.
    #[error(transparent)]
    Processors(#[from] TooManyProcessors),
    /// A control group could not be created or removed.
    #[error("cannot limit the run by a control group")]
    ControlGroup(#[source] ringfence_cgroup::Error),
    /// A pipe, socket or memory file could not be created.
    #[error("cannot create the run's pipes")]
    Pipes(#[source] io::Error),
    /// The run's directory could not be created.
    #[error("cannot create the run's directory")]
    Directory(#[source] io::Error),
    /// The output directory cannot be used, so the program's files would be lost.
    #[error("the output directory cannot be used")]
    OutputDirectory(#[source] io::Error),
    /// The files of the request could not be copied to the program's workspace.
    #[error("the files cannot be put into `/workspace`")]
    Files(#[source] io::Error),
    /// The launcher could not be started.
    #[error("cannot start the launcher")]
    Launcher(#[source] io::Error),
    /// [`super::init`] was not called.
    #[error(
        "this program cannot start its fences: expected `ringfence::init()` to have been called, found that it was not"
    )]
    NotInitialised,
    /// The process that was started did not become a launcher.
    #[error(
        "expected this program, started with the argument `__jail`, to become the launcher; it ended or went silent instead"
    )]
    NoLauncher,
    /// The launcher died while the run was being set up; the program may have begun.
    #[error("the launcher ended unexpectedly")]
    LauncherGone,
    /// The launcher, or its zygote, died before anything of the program ran.
    #[error("the launcher ended before the program began")]
    LauncherLost,
}

impl Error {
    /// Formats the error with its causes, on one line.
    pub fn explain(&self) -> String {
        let causes = std::iter::successors(std::error::Error::source(self), |error| error.source());
        causes.fold(self.to_string(), |text, cause| format!("{text}: {cause}"))
    }

    /// Returns advice for the user.
    pub fn hint(&self) -> Remedy {
        match self {
            Self::Busy { .. } => remedy::Run::RaiseConcurrency.into(),
            Self::Session(error) => error.hint(),
            Self::Interpreter(error) => error.hint(),
            Self::Exposing { .. } => remedy::Run::SeparatePython.into(),
            Self::Trusted(conflict) => conflict.hint(),
            Self::NamespacesForbidden { .. } | Self::NoControlGroups { .. } => {
                remedy::Run::RepairFence.into()
            }
            Self::Fence { .. } => remedy::Run::ExamineFence.into(),
            Self::Program { errno: EAGAIN, .. } => remedy::Run::AllowProcesses.into(),
            Self::NeedsNamespaces { .. } => remedy::Run::AllowNamespaces.into(),
            Self::NeedsIds => "run the server as root, or leave the fence `box` out".into(),
            Self::NoMoreRoots { .. } => "remove sandboxes that are not needed".into(),
            Self::Processors(_) => remedy::Run::LowerProcessors.into(),
            Self::ControlGroup(_) => remedy::Run::ExamineControlGroups.into(),
            Self::LauncherGone | Self::LauncherLost => remedy::Run::Retry.into(),
            Self::NoInterpreter { .. } => "install one of them so that it is on the path".into(),
            Self::NotJavascript(_) => "name the program `node` or `deno` itself: scripts that start it, as those of nvm, find nothing in the fence".into(),
            Self::TooLong | Self::Program { errno: 7, .. } => {
                "put long ones into a file, or into standard input".into()
            }
            Self::Program { errno: 8, .. } => {
                "begin a script with `#!` and its interpreter, or run it by that".into()
            }
            Self::Program { .. } => "check that the file exists and may be executed".into(),
            Self::WorkingDirectory { .. } => {
                "name a directory of the workspace that exists; without a workspace there is none".into()
            }
            Self::Image(_) => "run Python, bash or JavaScript in the fence, or leave the image out".into(),
            Self::NetworkOfSession => {
                "fetch what it needs in a run without a session, and hand it over by a file in the workspace".into()
            }
            Self::Pipes(_) | Self::Launcher(_) => {
                "check the limits on open files and processes (`ulimit -n -u`)".into()
            }
            Self::Directory(error) if error.kind() == io::ErrorKind::PermissionDenied => {
                "let Ringfence write to the directory for temporary files (`TMPDIR`); a root without capabilities cannot \
                 give it to its guests, and had better be an ordinary user (`docker run --user`)".into()
            }
            Self::Directory(_) => {
                "check that the directory for temporary files (`TMPDIR`) can be written and its disk is not full".into()
            }
            Self::OutputDirectory(_) => "name a directory that you may write, or one that can be made".into(),
            Self::Files(_) => "give fewer or smaller files, or allow the program more disk".into(),
            Self::NotInitialised => {
                "call `ringfence::init()` first in `main`: the library starts this very program anew as its launcher".into()
            }
            Self::NoLauncher => {
                "call `ringfence::init()` first in `main` whatever the arguments are; if it is, try again".into()
            }
        }
    }

    pub(super) fn from_failure(failure: Failure) -> Self {
        Self::Fence {
            step: failure.step,
            errno: failure.errno,
        }
    }

    pub(super) fn from_open(error: OpenError) -> Self {
        match error {
            OpenError::Failed(failure) => Self::from_failure(failure),
            OpenError::Io(error) => Self::Launcher(error),
            OpenError::NoLauncher => Self::NoLauncher,
            OpenError::Start(StartError::NotInitialised) => Self::NotInitialised,
            OpenError::Start(error) => Self::Launcher(io::Error::other(error)),
        }
    }
}

/// A failed step of the fence, as the launcher reported it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Failure {
    pub(super) step: String,
    pub(super) errno: i32,
}

/// An error of starting a launcher.
#[derive(Debug)]
pub(super) enum OpenError {
    Start(StartError),
    Io(io::Error),
    Failed(Failure),
    /// The process died, or did not behave like a launcher.
    NoLauncher,
}
