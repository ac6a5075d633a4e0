//! Maps a request to a container: its program, directories, mounts and environment.

use std::io;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use ringfence_exec::local::{Destination, Usage, Workdir, disk_limit_exceeded, output_files, soon};
use ringfence_exec::owner::Owner;
use ringfence_policy::{Access, Bytes, EnvName, Language, Request};

use super::exchange::{Exchange, Users};
use super::guest_paths::{OUTPUT, WORKSPACE};
use super::mounts::kept;
use super::outputs;
use super::pool_key::{Output, PoolKey};
use super::run_error::RunError;
use super::settings::Settings;
use super::spec::{Bind, BindError, Binds, Image, Init, Log, Name, ProcessLimit, Spec, Stdin, User};

/// Environment of every program.
const FIXED: &[(&str, &str)] = &[
    ("PATH", "/usr/local/bin:/usr/bin:/bin"),
    ("LANG", "C.UTF-8"),
    ("USER", "sandbox"),
    ("LOGNAME", "sandbox"),
    ("SHELL", "/bin/bash"),
    ("TMPDIR", "/tmp"),
    ("MPLCONFIGDIR", "/tmp"),
    ("RINGFENCE_OUTPUT", "/output"),
];

/// Limit of the bytes that a program finds in its `/output`, as for programs in the fence of this machine.
const MAX_EARLIER: Bytes = Bytes::mib(64);

/// The owner of a container, and the place of its files.
#[derive(Clone, Copy)]
pub(super) struct Belonging<'a> {
    pub(super) owner: &'a Owner,
    pub(super) storage: Storage,
}

/// Storage of the writable directories of a container.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Storage {
    /// Sized tmpfs. Our init copies files from there.
    Memory,
    /// Host directories, for a container without our init. Their size is monitored.
    Host,
}

/// The host directories of one run.
#[derive(Debug)]
pub(super) struct Layout {
    workdir: Workdir,
    /// Directory in which output files stay, if they are not collected.
    kept: Option<PathBuf>,
}

/// Disk limits of the directories of a run.
#[derive(Debug, Clone, Copy)]
pub(super) struct Most {
    own: Usage,
    kept: Usage,
}

/// A program to start in a container.
#[derive(Debug)]
pub(super) struct Program {
    pub(super) command: Vec<String>,
    pub(super) environment: Vec<(EnvName, String)>,
    pub(super) directory: String,
    pub(super) stdin: Stdin,
}

impl Layout {
    /// Creates the directories, owned by the program's user.
    pub(super) fn make(settings: &Settings, frame: &PoolKey) -> Result<Self, RunError> {
        let workdir = workdir(settings, frame.user).map_err(RunError::Directory)?;
        let kept = match &frame.output {
            Output::Taken(_) => None,
            Output::Kept(path) => Some(path.clone()),
        };
        Ok(Self { workdir, kept })
    }

    /// Returns the disk limits of a run.
    pub(super) async fn most(&self, limit: Bytes) -> Most {
        let own = Usage::at_most(limit.0);
        Most {
            own,
            kept: match &self.kept {
                Some(kept) => Usage::growing(kept, limit.0).await,
                None => own,
            },
        }
    }

    /// Resolves when a directory exceeds its limit.
    pub(super) async fn disk_limit_exceeded(&self, most: Most) {
        let kept = async {
            match &self.kept {
                Some(kept) => disk_limit_exceeded(kept.clone(), most.kept, soon).await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            () = disk_limit_exceeded(self.workdir.path().to_path_buf(), most.own, soon) => {}
            () = kept => {}
        }
    }

    /// Formats the message for a program that exceeded its disk limit.
    pub(super) fn disk_limit_message(&self, limit: Bytes) -> String {
        match &self.kept {
            Some(kept) => outputs::disk_limit_message(kept, limit),
            None => format!("killed: the program wrote more than {limit}, its disk limit\n"),
        }
    }

    /// Writes the code to a file, and returns the program to start for a request.
    pub(super) fn program(&self, request: &Request, stdin: bool) -> Result<Program, RunError> {
        if let Some((name, _)) = script(request) {
            self.workdir
                .write_code(&name, &request.code)
                .map_err(RunError::Directory)?;
        }
        Ok(Program {
            command: command(request)?,
            environment: with(fixed(request.workspace.is_some()), &request.env),
            directory: self.directory(request)?,
            stdin: if stdin { Stdin::Attached } else { Stdin::Empty },
        })
    }

    /// Returns the specification of the container.
    pub(super) fn spec(
        &self,
        settings: &Settings,
        frame: &PoolKey,
        program: Program,
        kept: Belonging<'_>,
    ) -> Result<Spec, BindError> {
        let Belonging { owner, storage } = kept;
        let name = Name::unused();
        Ok(Spec {
            volumes: match storage {
                Storage::Memory => frame.volumes(&name),
                Storage::Host => Vec::new(),
            },
            name,
            image: frame.image.clone(),
            command: program.command,
            env: program.environment,
            directory: program.directory,
            user: frame.user,
            resources: frame.resources,
            process_limit: ProcessLimit::User,
            network: frame.network,
            filter: frame.filter.clone(),
            binds: self.binds(settings, frame, storage)?,
            ledger: settings.ledger.clone(),
            oci_runtime: frame.oci_runtime,
            init: Init::Engine,
            stdin: program.stdin,
            log: Log::None,
            scope: frame.scope.clone(),
            owner: owner.clone(),
        })
    }

    /// Returns the program's working directory. A missing one is rejected: an engine would create it, owned
    /// by root.
    pub(super) fn directory(&self, request: &Request) -> Result<String, RunError> {
        let below = request.working_directory.clone().unwrap_or_default();
        let workspace = request
            .workspace
            .clone()
            .unwrap_or_else(|| self.workdir.path().join("workspace"));
        if !workspace.join(&below).is_dir() {
            return Err(RunError::WorkingDirectory(below));
        }
        Ok(Path::new(WORKSPACE).join(below).display().to_string())
    }

    /// Lists the output files written since, after collecting them to their destination if there is one.
    pub(super) fn collect_output(
        &self,
        since: SystemTime,
        destination: Option<&Destination>,
        limit: u64,
    ) -> output_files::CollectedFiles {
        if let Some(kept) = &self.kept {
            return outputs::left(kept, since, limit);
        }
        let source = output_files::open_directory(&self.workdir.path().join("output"));
        output_files::collect_from(source, destination, limit)
    }

    /// Returns the synchronization of the container's `/output` with its host directory.
    pub(super) fn exchange(&self, frame: &PoolKey) -> Exchange {
        let directory = self.kept.clone();
        let directory = directory.unwrap_or_else(|| self.workdir.path().join("output"));
        let limit = frame.resources.volume();
        let earlier = MAX_EARLIER.min(Bytes(limit.0 / 2));
        Exchange::of_output(directory, limit, Users::One { earlier })
    }

    /// Returns `true` if output files stay for other runs, some of which may have left files already.
    pub(super) fn is_kept(&self) -> bool {
        self.kept.is_some()
    }

    fn binds(&self, settings: &Settings, frame: &PoolKey, storage: Storage) -> Result<Binds, BindError> {
        let hidden = &settings.hidden;
        let own = |name: &str, guest: &str, access| {
            Bind::ours(&self.workdir.path().join(name), Path::new(guest), access, hidden)
        };
        let mut binds = vec![own("code", "/code", Access::ReadOnly)?];
        binds.extend(frame.shown.iter().cloned());
        if storage == Storage::Memory {
            return Binds::new(binds);
        }
        match &frame.output {
            Output::Taken(path) => {
                binds.push(own("output", OUTPUT, Access::ReadWrite)?);
                if let Some(path) = path.as_deref().and_then(Path::to_str) {
                    binds.push(own("output", path, Access::ReadWrite)?);
                }
            }
            Output::Kept(path) => binds.extend(kept(path)?),
        }
        if !frame.has_workspace {
            binds.push(own("workspace", WORKSPACE, Access::ReadWrite)?);
        }
        Binds::new(binds)
    }
}

/// Creates the working directories of a run as this user.
pub(super) fn workdir(settings: &Settings, user: User) -> io::Result<Workdir> {
    // A rootless engine maps uid 0 of the container to our own user.
    let owner = (user != settings.user && user.uid != 0).then_some(user.uid);
    Workdir::create(&settings.scratch, owner)
}

/// Returns the interpreter that an image must have for a language; `None` for a command, which names its
/// program.
pub(super) fn interpreter(language: Language) -> Option<&'static str> {
    match language {
        Language::Python => Some("python3"),
        Language::Bash => Some("bash"),
        Language::Javascript => Some("node"),
        Language::Command => None,
    }
}

impl RunError {
    /// Converts a missing program to [`Self::ProgramMissing`] if the image lacks the interpreter of the
    /// request's language.
    pub(super) fn of_image(self, request: &Request, image: &Image) -> Self {
        match (&self, interpreter(request.language)) {
            (Self::NotRun(error), Some(program)) if error.is_missing() => Self::ProgramMissing {
                image: image.to_string(),
                program,
            },
            _ => self,
        }
    }
}

/// Returns the path that a program of this file name has in a container, even where no file is written.
pub(super) fn code_path(name: &str) -> String {
    format!("/code/{name}")
}

/// Returns the file name of the code and its interpreter; `None` for a command.
pub(super) fn script(request: &Request) -> Option<(String, &'static str)> {
    let program = interpreter(request.language)?;
    let extension = match request.language {
        Language::Python => "py",
        Language::Bash | Language::Command => "sh",
        Language::Javascript => "js",
    };
    let name = Path::new(&request.name)
        .file_name()
        .and_then(|name| name.to_str());
    let plain = |name: &&str| !name.starts_with(['.', '-', '<']) && !name.contains('\0');
    let name = name
        .filter(plain)
        .map_or_else(|| format!("main.{extension}"), str::to_owned);
    Some((name, program))
}

fn command(request: &Request) -> Result<Vec<String>, RunError> {
    let mut words = match script(request) {
        Some((name, program)) => vec![program.to_owned(), code_path(&name)],
        None => Vec::new(),
    };
    words.extend(request.args.iter().cloned());
    if words.is_empty() {
        return Err(RunError::NoProgram);
    }
    Ok(words)
}

/// Returns the base environment of programs. With a mounted workspace, the home directory is elsewhere, so
/// that caches do not end up in the workspace.
pub(super) fn fixed(has_workspace: bool) -> Vec<(EnvName, String)> {
    let home = ("HOME", if has_workspace { "/tmp" } else { "/workspace" });
    let pair = |(name, value): &(&str, &str)| Some((name.parse().ok()?, (*value).to_owned()));
    FIXED.iter().chain([&home]).filter_map(pair).collect()
}

/// Adds these variables to an environment, replacing those of the same name.
pub(super) fn with(mut all: Vec<(EnvName, String)>, more: &[(EnvName, String)]) -> Vec<(EnvName, String)> {
    for (name, value) in more {
        all.retain(|(known, _)| known != name);
        all.push((name.clone(), value.clone()));
    }
    all
}
