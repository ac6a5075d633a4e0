//! Errors of requests in containers.

use std::io;
use std::path::PathBuf;

use ringfence_exec::backend;
use ringfence_exec::filter::UnknownFilter;
use ringfence_exec::trust::Conflict;
use ringfence_policy::{Remedy, remedy};

use super::error::Error;
use super::init::{InitLost, NotRun};
use super::pins;
use super::spec::{BindError, ParseImageError, ParseNameError};

/// An error of running a request in a container.
#[derive(Debug, thiserror::Error)]
pub enum RunError {
    /// The engine failed.
    #[error(transparent)]
    Engine(#[from] Error),
    /// A mount of the request is denied.
    #[error(transparent)]
    Bind(#[from] BindError),
    /// A trusted path cannot be protected from the program.
    #[error(transparent)]
    Trusted(#[from] Conflict),
    /// The seccomp filter does not exist.
    #[error(transparent)]
    Filter(UnknownFilter),
    /// The pinned images cannot be read.
    #[error(transparent)]
    Pins(#[from] pins::Error),
    /// A required resource limit is not supported by the engine.
    #[error("the container engine cannot limit {0}")]
    Unlimited(String),
    /// The working directory of the run cannot be created.
    #[error("cannot create the run's directory: {0}")]
    Directory(io::Error),
    /// The output directory cannot be used, so the program's files would be lost.
    #[error("the output directory cannot be used: {0}")]
    OutputDirectory(io::Error),
    /// The command is empty.
    #[error("there is no program to run")]
    NoProgram,
    /// Our own process cannot be identified, so containers would have no owner.
    #[error("cannot identify this process: /proc is not readable")]
    NoOwner,
    /// The requested working directory does not exist.
    #[error("cannot start in `{}`: there is no such directory", .0.display())]
    WorkingDirectory(PathBuf),
    /// Invalid name of a sandbox.
    #[error(transparent)]
    Name(ParseNameError),
    /// Invalid name of an image.
    #[error(transparent)]
    Image(ParseImageError),
    /// The sandbox is a reused container, which serves calls by itself.
    #[error("{0} is reserved for `sandbox_exec`: it can only be listed, measured and removed")]
    KeptForCalls(String),
    /// The sandbox is paused, so it runs no command.
    #[error("the sandbox `{0}` is paused")]
    Paused(String),
    /// The limit of sandboxes is reached.
    #[error("sandbox limit reached ({0})")]
    TooMany(usize),
    /// The init program, or a file of names, cannot be written.
    #[error("cannot write the files of Ringfence that containers mount: {0}")]
    InitFile(io::Error),
    /// The connection to a container's init closed.
    #[error(transparent)]
    InitLost(#[from] InitLost),
    /// A call was not run in its container.
    #[error(transparent)]
    NotRun(#[from] NotRun),
    /// Invalid allowlist of a sandbox's hosts.
    #[error("cannot read the sandbox's network rules: {0}")]
    Reach(String),
    /// The seccomp filter prevents our init from starting anything.
    #[error(
        "the seccomp filter `{0}` allows no network: Ringfence's init, which connects to hosts, cannot run under it"
    )]
    ReachUnder(String),
    /// The init, the only way to the proxy, does not run in the container.
    #[error(
        "limiting the network to allowed hosts needs Ringfence's init, which does not run in this image: {0}"
    )]
    NoAgent(InitLost),
    /// The init, which gives a run's directories their size, does not run in the container.
    #[error(
        "cannot start Ringfence's init, without which `/output` and `/workspace` have no size limit, in the image {image}: {why}"
    )]
    NoInit {
        /// Reference of the image.
        image: String,
        /// The error of the container engine or of the connection.
        why: String,
    },
    /// The image lacks the interpreter of the language.
    #[error("there is no {program} in the image {image}")]
    ProgramMissing {
        /// Reference of the image.
        image: String,
        program: &'static str,
    },
    /// All reused containers are busy.
    #[error("container limit reached ({0})")]
    KeptFull(usize),
    /// The directory for output files cannot be used.
    #[error("cannot use the directory for the files of programs: {0}")]
    Outputs(io::Error),
    /// The requested feature exists in the local runtime only.
    #[error("{0} is not supported in a container")]
    LocalOnly(&'static str),
}

impl RunError {
    /// Returns a hint for the user.
    pub fn hint(&self) -> Remedy {
        match self {
            Self::Engine(error) => error.hint(),
            Self::Bind(error) => error.hint().into(),
            Self::Filter(_) => remedy::Container::ListFilters.into(),
            Self::Directory(_) => {
                "check that the directory for temporary files (`TMPDIR`) can be written and its disk is not full".into()
            }
            Self::OutputDirectory(_) => "name a directory that you may write, or one that can be made".into(),
            Self::Unlimited(_) => remedy::Container::LimitEngine.into(),
            Self::Pins(error) => error.hint(),
            Self::NoProgram => "name a program".into(),
            Self::WorkingDirectory(_) => {
                "name a directory of the workspace that exists; without a workspace there is none".into()
            }
            Self::Name(_) => "choose another name".into(),
            Self::Image(_) => "name an image".into(),
            Self::KeptForCalls(_) => remedy::Container::RemoveKept.into(),
            Self::Paused(_) => remedy::Container::Resume.into(),
            Self::TooMany(_) => remedy::Container::Remove.into(),
            Self::NoOwner => "mount /proc".into(),
            Self::InitFile(_) => remedy::Container::OwnState.into(),
            Self::InitLost(parted) => parted.hint().into(),
            Self::NotRun(error) => error.hint().into(),
            Self::Reach(_) => "write hosts like `example.com`, `*.example.com` or `example.com:8443`".into(),
            Self::ReachUnder(_) => remedy::Container::AllowHosts.into(),
            Self::NoAgent(_) => {
                "use another image, of this machine's architecture, or run it without a network".into()
            }
            Self::NoInit { .. } => {
                "use an image that leaves the path `/.ringfence` free; if it does, look at the log of the container engine"
                    .into()
            }
            Self::ProgramMissing { .. } => "use another language, or name an image that has it".into(),
            Self::KeptFull(_) => "wait until a call has ended".into(),
            Self::Outputs(_) => "make that directory yours alone, or remove it".into(),
            Self::Trusted(conflict) => conflict.hint(),
            Self::LocalOnly(_) => remedy::Run::UseLocal.into(),
        }
    }

    /// Returns `true` if the cause may be that the init, not the program, cannot run in a container.
    pub(super) fn may_be_of_the_init(&self) -> bool {
        matches!(
            self,
            Self::InitLost(_) | Self::Engine(Error::Said { .. } | Error::Conflict { .. })
        )
    }

    pub fn reason(&self) -> backend::Reason {
        use backend::Reason as R;
        match self {
            Self::Engine(error) => match error {
                Error::Unavailable { .. }
                | Error::NotPermitted { .. }
                | Error::Endpoint(_)
                | Error::TooOld { .. }
                | Error::OciRuntime { .. }
                | Error::Unfiltered { .. }
                | Error::ImageMissing { .. } => R::Unavailable,
                Error::NotFound { .. } => R::NotFound,
                Error::Place(_)
                | Error::ImageVolumes { .. }
                | Error::NotInRegistry { .. }
                | Error::NotMade { .. }
                | Error::NameTaken { .. }
                | Error::DiskFull { .. }
                | Error::Conflict { .. }
                | Error::Deadline { .. }
                | Error::Broken { .. }
                | Error::Refused(_)
                | Error::Files { .. }
                | Error::Illegal(_)
                | Error::Closing
                | Error::Said { .. } => R::Failed,
                Error::Processors(_) => R::Invalid,
            },
            Self::Bind(_)
            | Self::Trusted(_)
            | Self::NoProgram
            | Self::LocalOnly(_)
            | Self::Name(_)
            | Self::Image(_)
            | Self::Reach(_)
            | Self::KeptForCalls(_)
            | Self::Paused(_)
            | Self::ReachUnder(_) => R::Invalid,
            Self::TooMany(_) | Self::KeptFull(_) | Self::NotRun(NotRun::Busy) => R::Busy,
            Self::NotRun(NotRun::TooLong) => R::Invalid,
            Self::NotRun(error) if error.is_out_of_processes() => R::Busy,
            Self::ProgramMissing { .. } | Self::NotRun(NotRun::NotStarted { .. }) => R::NotFound,
            Self::NotRun(NotRun::InitLost(_)) => R::Failed,
            Self::WorkingDirectory(_) => R::NotFound,
            Self::Filter(_) | Self::NoOwner | Self::Pins(_) | Self::NoAgent(_) | Self::Unlimited(_) => {
                R::Unavailable
            }
            Self::Directory(_)
            | Self::OutputDirectory(_)
            | Self::NoInit { .. }
            | Self::Outputs(_)
            | Self::InitFile(_)
            | Self::InitLost(_) => R::Failed,
        }
    }
}

impl From<RunError> for backend::Error {
    fn from(error: RunError) -> Self {
        Self {
            reason: error.reason(),
            hint: error.hint(),
            message: error.to_string(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lack_of_processes_is_no_lack_of_a_program() {
        let check = |errno: rustix::io::Errno, expected: backend::Reason| {
            let error = RunError::from(NotRun::NotStarted {
                step: "fork a supervisor".to_owned(),
                errno: errno.raw_os_error(),
            });
            assert_eq!(error.reason(), expected, "{error}");
        };
        check(rustix::io::Errno::AGAIN, backend::Reason::Busy);
        check(rustix::io::Errno::NOENT, backend::Reason::NotFound);
    }
}
