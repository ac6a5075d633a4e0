//! Errors of sandboxes.

use std::time::Duration;

use ringfence_container::RunError;
use ringfence_container::init::NotRun;
use ringfence_exec::backend::Reason;
use ringfence_exec::local::{self, PauseError};
use ringfence_images::RootError;
use ringfence_jail::init::files::{FileError, FileErrorKind};

use ringfence_policy::Bytes;

use super::events::LifeEventType;
use super::registry::SandboxEnd;
use super::spec::Runtime;

/// An error of an operation on a sandbox. [`Error::hint`] returns advice.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// No sandbox has this id or name.
    #[error("there is no sandbox `{0}`")]
    Unknown(String),
    /// The sandbox has ended.
    #[error("the sandbox `{sandbox}` {end}")]
    Gone { sandbox: String, end: SandboxEnd },
    /// Another sandbox has the name.
    #[error("a sandbox named `{0}` already exists")]
    Taken(String),
    /// The limit of sandboxes is reached.
    #[error("the limit of {most} {what} is reached")]
    TooMany { what: &'static str, most: usize },
    /// The owner's quota of sandboxes is used up.
    #[error("the quota of the key is used up: {most} of {most} sandboxes at a time")]
    Quota {
        most: usize,
        /// Time until the next of them expires; `None` if it may be paused instead.
        ends_in: Option<Duration>,
    },
    /// The limit of something in a sandbox is reached.
    #[error("the sandbox's limit of {most} {what} is reached")]
    Full { what: &'static str, most: usize },
    /// The runtime of the sandbox lacks the operation.
    #[error("sandboxes of the runtime `{}` cannot {what}", runtime.as_str())]
    NotSupported { runtime: Runtime, what: &'static str },
    /// The processes of the sandbox, given by its name or id, are stopped.
    #[error("the sandbox `{0}` is paused")]
    Paused(String),
    /// The sandbox cannot be paused or resumed.
    #[error("cannot pause or resume the sandbox: {0}")]
    CannotPause(PauseError),
    /// There is no such process, or it has ended and its output is gone.
    #[error("the sandbox has no process {0}")]
    NoProcess(u32),
    /// The sandbox's files exceed the size limit of a copy.
    #[error("the sandbox is too large to copy: its files exceed {0} as an archive")]
    CopyTooLarge(Bytes),
    /// No snapshot has this id or name.
    #[error("there is no snapshot `{0}`")]
    NoSnapshot(String),
    /// The image of the sandbox is not in the store, or cannot be used.
    #[error("cannot use the image: {}", ringfence_images::explain(&**.0))]
    Image(Box<ImageError>),
    /// Another snapshot has the name.
    #[error("a snapshot named `{0}` already exists")]
    SnapshotTaken(String),
    /// The limit of snapshots is reached.
    #[error("the limit of {0} snapshots is reached")]
    TooManySnapshots(usize),
    /// The limit of a build's tags is reached.
    #[error("the limit of {0} tags for a build is reached")]
    TooManyTags(usize),
    /// The limit of the snapshots' total size is reached.
    #[error("the limit of {0} for snapshots is reached")]
    SnapshotsFull(Bytes),
    /// A file of a snapshot could not be written, read or removed.
    #[error("cannot {doing} the snapshot: {source}")]
    Store {
        doing: &'static str,
        #[source]
        source: std::io::Error,
    },
    /// The sandbox's programs may not listen on ports.
    #[error("the sandbox was created without `ports`")]
    NoPorts,
    /// The sandbox's programs have no sockets, so that no host can be opened to them.
    #[error("the sandbox was created without a network: its programs have no sockets")]
    NoSockets,
    /// The server's proxy listens on the port.
    #[error(
        "the port {0} of the sandbox is the server's own: its proxy for the sandbox's programs listens there"
    )]
    OwnPort(u16),
    /// No program listens on the port at 127.0.0.1.
    #[error("nothing listens on the port {0} of the sandbox")]
    NothingListens(u16),
    /// There is no such context.
    #[error("the sandbox has no context `{0}`")]
    NoContext(String),
    /// The context evaluates other code.
    #[error("the context `{0}` is busy, and its queue is full")]
    Busy(String),
    /// An argument is not valid.
    #[error("{0}")]
    Invalid(String),
    /// The sandbox has no such user.
    #[error("the sandbox has no user `{0}`")]
    NoUser(String),
    /// The sandbox's user namespace lacks an id of the user or of a group.
    #[error(
        "no process can become the user `{0}`: its id or that of one of its groups does not exist in the sandbox"
    )]
    NoIds(String),
    /// The sandbox has only one user.
    #[error("the sandbox has one user, `{own}`, and not `{wanted}`")]
    OneUser { wanted: String, own: &'static str },
    /// The context belongs to another user of the sandbox.
    #[error("the context `{context}` belongs to the user `{own}`, and not to `{wanted}`")]
    OtherUser {
        context: String,
        own: String,
        wanted: String,
    },
    /// The sandbox has no such program.
    #[error("there is no program `{0}` in the sandbox")]
    NoProgram(String),
    /// A working directory cannot be entered.
    #[error("cannot enter the working directory `{directory}`: {}", std::io::Error::from_raw_os_error(*errno))]
    NoDirectory { directory: String, errno: i32 },
    /// A program could not be started for another reason.
    #[error("{}", not_started(.0))]
    NotStarted(NotRun),
    /// An operation on a file failed.
    #[error("{0}")]
    File(Box<FileError>),
    /// The kernel killed an operation on a file for lack of memory, which files of a sandbox use, too.
    #[error("the operation on a file was killed at the sandbox's memory limit")]
    FileMemory,
    /// A program of the sandbox killed an operation on a file.
    #[error("the operation on a file was killed in the sandbox by signal {0}")]
    FileKilled(i32),
    /// The packages of the configuration could not be provided.
    #[error(transparent)]
    Packages(Box<ringfence_packages::Error>),
    /// A cell could not be made.
    #[error("cannot make the sandbox: {}", ringfence_images::explain(&**.0))]
    Local(Box<local::Error>),
    /// A container could not be made, paused or resumed.
    #[error("{0}")]
    Container(Box<RunError>),
    /// The init of the sandbox failed.
    #[error("the sandbox does not work: {0}")]
    Broken(String),
}

/// An error for an image that cannot be the root of a sandbox.
#[derive(Debug, thiserror::Error)]
pub enum ImageError {
    /// The image is not in the store, or the store cannot be read.
    #[error(transparent)]
    Store(#[from] ringfence_images::Error),
    /// The image's files cannot be used as a root.
    #[error(transparent)]
    Root(#[from] RootError),
}

impl ImageError {
    fn kind(&self) -> ErrorKind {
        match self {
            Self::Store(ringfence_images::Error::NotFound(_)) => ErrorKind::NotFound,
            Self::Store(_) => ErrorKind::Internal,
            Self::Root(_) => ErrorKind::InvalidArguments,
        }
    }

    fn hint(&self) -> String {
        match self {
            Self::Store(error) => error.hint(),
            Self::Root(error) => error.hint().to_owned(),
        }
    }
}

impl From<ImageError> for Error {
    fn from(error: ImageError) -> Self {
        Self::Image(Box::new(error))
    }
}

/// See errno(3).
const EAGAIN: i32 = 11;
const EACCES: i32 = 13;
const ENOTDIR: i32 = 20;
/// Errors of calls that reached a limit other than that on files: processes, memory, open files of a process and of all.
const LIMITS: [i32; 4] = [EAGAIN, 12, 24, 23];

/// The kind of an error, as the API reports it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ErrorKind {
    InvalidArguments,
    NotFound,
    Conflict,
    LimitExceeded,
    NotSupported,
    RuntimeUnavailable,
    Internal,
}

impl Error {
    /// Returns the kind.
    pub fn kind(&self) -> ErrorKind {
        match self {
            Self::Unknown(_)
            | Self::Gone { .. }
            | Self::NoProcess(_)
            | Self::NoSnapshot(_)
            | Self::NoContext(_)
            | Self::NoUser(_)
            | Self::NothingListens(_)
            | Self::NoProgram(_) => ErrorKind::NotFound,
            Self::Taken(_)
            | Self::SnapshotTaken(_)
            | Self::Busy(_)
            | Self::Paused(_)
            | Self::FileKilled(_)
            | Self::CannotPause(PauseError::Unstoppable) => ErrorKind::Conflict,
            Self::TooMany { .. }
            | Self::Quota { .. }
            | Self::Full { .. }
            | Self::FileMemory
            | Self::CopyTooLarge(_)
            | Self::TooManySnapshots(_)
            | Self::TooManyTags(_)
            | Self::SnapshotsFull(_) => ErrorKind::LimitExceeded,
            Self::Image(error) => error.kind(),
            Self::Store { source, .. } => match source.kind() {
                std::io::ErrorKind::StorageFull | std::io::ErrorKind::QuotaExceeded => {
                    ErrorKind::LimitExceeded
                }
                _ => ErrorKind::Internal,
            },
            Self::NotSupported { .. }
            | Self::NoSockets
            | Self::OneUser { .. }
            | Self::CannotPause(PauseError::NoFreezer) => ErrorKind::NotSupported,
            Self::Invalid(_)
            | Self::NoIds(_)
            | Self::OtherUser { .. }
            | Self::NoDirectory { .. }
            | Self::NoPorts
            | Self::OwnPort(_) => ErrorKind::InvalidArguments,
            // The limit of processes.
            Self::NotStarted(NotRun::NotStarted { errno: EAGAIN, .. }) => ErrorKind::LimitExceeded,
            Self::NotStarted(NotRun::NotStarted { .. } | NotRun::TooLong) => ErrorKind::InvalidArguments,
            Self::NotStarted(NotRun::Busy) => ErrorKind::LimitExceeded,
            Self::NotStarted(NotRun::InitLost(_))
            | Self::Broken(_)
            | Self::CannotPause(PauseError::Group(_)) => ErrorKind::Internal,
            Self::File(error) if LIMITS.contains(&error.errno) => ErrorKind::LimitExceeded,
            Self::File(error) => match error.kind {
                FileErrorKind::NotFound => ErrorKind::NotFound,
                FileErrorKind::Exists | FileErrorKind::NotEmpty | FileErrorKind::Busy => ErrorKind::Conflict,
                FileErrorKind::NoSpace => ErrorKind::LimitExceeded,
                _ => ErrorKind::InvalidArguments,
            },
            Self::Packages(_) | Self::Local(_) => ErrorKind::RuntimeUnavailable,
            Self::Container(error) => match error.reason() {
                Reason::Unavailable => ErrorKind::RuntimeUnavailable,
                _ => ErrorKind::Internal,
            },
        }
    }

    /// Returns a hint for the user.
    pub fn hint(&self) -> String {
        match self {
            Self::Gone { end, .. } if end.kind() == LifeEventType::Expired => EXPIRED_HINT.to_owned(),
            Self::Unknown(_) | Self::Gone { .. } => MISSING_HINT.to_owned(),
            Self::Taken(_) => "choose another name, or use that sandbox".to_owned(),
            Self::TooMany { .. } => "remove sandboxes that are not needed".to_owned(),
            Self::Quota { ends_in, .. } => quota_hint(*ends_in),
            Self::Full { .. } => "end some that are not needed".to_owned(),
            Self::NotSupported { .. } => "use a sandbox of another runtime".to_owned(),
            Self::Paused(name) => {
                format!(
                    "resume it first: `ringfence sandbox resume {name}`, or POST /v1/sandboxes/{name}/resume"
                )
            }
            Self::CannotPause(error) => pause_hint(error).to_owned(),
            Self::CopyTooLarge(_) => "remove files; one with holes counts with its whole length".to_owned(),
            Self::NoSnapshot(_) => "list the snapshots, or make one".to_owned(),
            Self::Image(error) => error.hint(),
            Self::SnapshotTaken(_) => "choose another name, or remove that snapshot".to_owned(),
            Self::TooManyTags(_) => "remove some that are not needed".to_owned(),
            Self::TooManySnapshots(_) | Self::SnapshotsFull(_) => {
                "remove snapshots that are not needed".to_owned()
            }
            Self::Store { .. } if self.kind() == ErrorKind::LimitExceeded => {
                "make room where the server keeps its state, or remove snapshots".to_owned()
            }
            Self::Store { .. } => {
                "look at the server's state directory, or remove the snapshot and make another".to_owned()
            }
            Self::NoProcess(_) => "list its processes".to_owned(),
            Self::NoContext(_) => "list its contexts".to_owned(),
            Self::NoPorts => "create one with `ports`: its programs may listen on TCP ports then".to_owned(),
            Self::NoSockets => {
                "create one with `allowed_hosts` or `ports`: its hosts can be changed".to_owned()
            }
            Self::OwnPort(_) => "let the program listen on another port, such as 8000".to_owned(),
            Self::NothingListens(_) => {
                "start a program that listens there, at 127.0.0.1 or 0.0.0.0".to_owned()
            }
            Self::Busy(_) => "wait until it has ended, or interrupt it".to_owned(),
            Self::Invalid(_) => "correct the argument".to_owned(),
            Self::NoUser(_) => {
                "add it by `useradd` in the sandbox, or name one of its /etc/passwd, or a number".to_owned()
            }
            Self::NoIds(_) => "users and groups have ids 0 to 127, 900 to 1007 and 65534".to_owned(),
            Self::OneUser { .. } => {
                "leave the user out, or create the sandbox with the fence `box`, which has several".to_owned()
            }
            Self::OtherUser { .. } => {
                "leave the user out, or leave the context out to use the user's own".to_owned()
            }
            Self::NoProgram(program) => program_hint(program),
            Self::NoDirectory { errno, .. } => directory_hint(*errno).to_owned(),
            Self::NotStarted(NotRun::NotStarted { errno: EAGAIN, .. }) => {
                "end some of its processes or connections to its ports, or create a sandbox with more `pids`"
                    .to_owned()
            }
            Self::NotStarted(error) => error.hint().to_owned(),
            Self::File(error) if LIMITS.contains(&error.errno) => "end some of its processes".to_owned(),
            Self::FileMemory => {
                "remove files, which use its memory, end processes, or create a sandbox with more `memory`"
                    .to_owned()
            }
            Self::FileKilled(_) => "send it again, and see which of its programs kills others".to_owned(),
            Self::File(error) => file_hint(error).to_owned(),
            Self::Packages(error) => error.hint(),
            Self::Local(error) => error.hint().person().into_owned(),
            Self::Container(error) => error.hint().person().into_owned(),
            Self::Broken(_) => "create another one".to_owned(),
        }
    }
}

/// A hint for a sandbox that is not there.
const MISSING_HINT: &str =
    "`ringfence sandbox ls`, or GET /v1/sandboxes, lists those that are there; or create one";
/// A hint for a sandbox that has expired.
const EXPIRED_HINT: &str = "create it again with more time (`--timeout 4h`, or `timeout` of POST /v1/sandboxes), or give the next one \
     more before its time is up: `ringfence sandbox timeout`, or POST /v1/sandboxes/NAME/timeout";

/// Returns a hint at the quota of sandboxes, the next of which expires after this time.
fn quota_hint(ends_in: Option<Duration>) -> String {
    let wait = ends_in.map_or_else(
        || "wait until one ends".to_owned(),
        |left| format!("wait until one expires, in {} s", left.as_secs() + 1),
    );
    format!("remove sandboxes that are not needed, {wait}, or ask the operator for a larger quota")
}

/// Returns a hint for a program that is not there.
fn program_hint(program: &str) -> String {
    if !program.contains(' ') {
        return "write its name or path as it is in the sandbox".to_owned();
    }
    let line: String = program.chars().take(100).collect();
    format!(
        "give each word for itself, as in `-- {line}` or `[\"ls\", \"-la\"]`, or the line to a shell: `sh -c '{line}'`"
    )
}

/// Returns a hint for a sandbox that cannot be paused.
fn pause_hint(error: &PauseError) -> &'static str {
    match error {
        PauseError::NoFreezer => {
            "let the server make control groups in a freezer hierarchy, or let the sandbox run"
        }
        PauseError::Unstoppable => "try again",
        PauseError::Group(_) => "see whether the sandbox still exists",
    }
}

/// Returns the message of a call that was not run. The message of [`NotRun`] itself mentions a container.
fn not_started(error: &NotRun) -> String {
    match error {
        NotRun::NotStarted { step, errno } => {
            let reason = std::io::Error::from_raw_os_error(*errno);
            format!("cannot {step} in the sandbox: {reason}")
        }
        NotRun::TooLong | NotRun::Busy | NotRun::InitLost(_) => error.to_string(),
    }
}

const fn directory_hint(errno: i32) -> &'static str {
    match errno {
        EACCES => "name a directory that the program's user may enter",
        ENOTDIR => "name a directory",
        _ => "make the directory first, or name another",
    }
}

fn file_hint(error: &FileError) -> &'static str {
    match error.kind {
        FileErrorKind::NotFound => "list the directory to see what is there",
        FileErrorKind::NoSpace => "remove files, or create a sandbox with a larger `disk`",
        // No system call failed: it was refused before.
        FileErrorKind::Denied if error.errno == 0 => {
            "read files of a process by its number, or by a command that runs in the sandbox"
        }
        FileErrorKind::ReadOnly | FileErrorKind::Denied => {
            "name a path below /workspace (/home/user), /tmp or /output; where the sandbox has users, as those of templates have, name \
             one who may, such as `root`"
        }
        FileErrorKind::IsADirectory => "name a file in it",
        FileErrorKind::NotADirectory => "name a directory, or a path whose parents are directories",
        FileErrorKind::Busy => {
            "it is a mount point, or in use: name another path, or change it by a command in the sandbox"
        }
        _ => "correct the path",
    }
}

impl Error {
    /// Converts the error of a program that could not be started to one that names the missing file.
    pub(crate) fn not_started(error: NotRun, program: String, directory: &str, user: Option<&str>) -> Self {
        match error {
            error if error.is_missing() => Self::NoProgram(program),
            NotRun::NotStarted { errno, .. } if error.is_bad_directory() => Self::NoDirectory {
                directory: directory.to_owned(),
                errno,
            },
            other => Self::no_user(other, user),
        }
    }

    /// Names the user where a process could not become it.
    pub(crate) fn no_user(error: NotRun, user: Option<&str>) -> Self {
        match user {
            Some(user) if error.is_unknown_user() => Self::NoUser(user.to_owned()),
            Some(user) if error.is_user_without_ids() => Self::NoIds(user.to_owned()),
            _ => error.into(),
        }
    }
}

impl From<NotRun> for Error {
    fn from(error: NotRun) -> Self {
        match error {
            NotRun::InitLost(lost) => Self::Broken(lost.to_string()),
            error @ (NotRun::TooLong | NotRun::Busy | NotRun::NotStarted { .. }) => Self::NotStarted(error),
        }
    }
}

impl From<RunError> for Error {
    fn from(error: RunError) -> Self {
        Self::Container(Box::new(error))
    }
}

impl From<ringfence_container::Error> for Error {
    fn from(error: ringfence_container::Error) -> Self {
        RunError::from(error).into()
    }
}

impl From<local::Error> for Error {
    fn from(error: local::Error) -> Self {
        Self::Local(Box::new(error))
    }
}
