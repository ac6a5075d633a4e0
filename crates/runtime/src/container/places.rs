//! What a request becomes in a container: its program, its directories, its environment.

use std::path::{Path, PathBuf};

use ringfence_policy::{Access, EnvName, Language, Mount, Request};

use super::manager::Manager;
use super::spec::{
    Bind, BindError, Binds, Filter, Init, Log, Name, OciRuntime, Resources, Spec, Stdin, User,
};
use super::{Containers, RunError};
use crate::local::{NOBODY, Workdir, Workspace};

/// Where the program finds things.
const FIXED: &[(&str, &str)] = &[
    ("PATH", "/usr/local/bin:/usr/bin:/bin"),
    ("LANG", "C.UTF-8"),
    ("USER", "sandbox"),
    ("LOGNAME", "sandbox"),
    ("SHELL", "/bin/bash"),
    ("HOME", "/workspace"),
    ("TMPDIR", "/tmp"),
    ("MPLCONFIGDIR", "/tmp"),
    ("RINGFENCE_OUTPUT", "/output"),
];

/// The directories of one run on the host.
#[derive(Debug)]
pub(super) struct Places {
    workdir: Workdir,
    user: User,
}

impl Places {
    /// Makes them, for the user that the program will be.
    pub(super) fn make(
        containers: &Containers,
        manager: &Manager,
        request: &Request,
    ) -> Result<Self, RunError> {
        let user = user(containers, manager);
        let ours = containers.settings.user;
        // A rootless engine makes the user 0 inside out of ourselves.
        let owner = (user != ours && user.uid != 0).then_some(user.uid);
        let workdir = Workdir::create(&containers.settings.scratch, owner).map_err(RunError::Directory)?;
        if let Some((name, _)) = script(request) {
            workdir
                .write_code(&name, &request.code)
                .map_err(RunError::Directory)?;
        }
        Ok(Self { workdir, user })
    }

    pub(super) fn workdir(&self) -> &Workdir {
        &self.workdir
    }

    /// The container.
    pub(super) fn spec(
        &self,
        containers: &Containers,
        manager: &Manager,
        request: &Request,
        stdin: bool,
    ) -> Result<Spec, RunError> {
        let settings = &containers.settings;
        let directory = self.directory(request)?;
        Ok(Spec {
            name: Name::unused(),
            image: containers.image(manager.engine().flavor()),
            command: command(request)?,
            env: environment(request),
            directory,
            user: self.user,
            resources: Resources {
                memory: request.limits.memory,
                cpus: request.limits.cpus,
                pids: request.limits.pids,
                tmp: request.limits.disk,
            },
            network: settings.network,
            filter: Filter::named(&settings.filter).map_err(RunError::Filter)?,
            binds: self.binds(containers, request)?,
            output: None,
            oci_runtime: OciRuntime::Default,
            init: Init::Engine,
            stdin: if stdin { Stdin::Attached } else { Stdin::Empty },
            log: Log::None,
            scope: request.scope.as_str().to_owned(),
            owner: manager.owner().clone(),
        })
    }

    /// Where the program starts. An engine would make what is missing, as root.
    fn directory(&self, request: &Request) -> Result<String, RunError> {
        let below = request.working_directory.clone().unwrap_or_default();
        let workspace = request
            .workspace
            .clone()
            .unwrap_or_else(|| self.workdir.path().join("workspace"));
        if !workspace.join(&below).is_dir() {
            return Err(RunError::WorkingDirectory(below));
        }
        Ok(Path::new("/workspace").join(below).display().to_string())
    }

    fn binds(&self, containers: &Containers, request: &Request) -> Result<Binds, BindError> {
        let hidden = &containers.settings.hidden;
        let own = |name: &str| self.workdir.path().join(name);
        let at = |host: &Path, guest: &str, access| Bind::at(host, Path::new(guest), access, hidden);
        let workspace = request.workspace.clone().unwrap_or_else(|| own("workspace"));
        let mut binds = vec![
            at(&own("code"), "/code", Access::ReadOnly)?,
            at(&own("output"), "/output", Access::ReadWrite)?,
            at(&workspace, "/workspace", Access::ReadWrite)?,
        ];
        if request.workspace.is_some() {
            for path in protected(&workspace, &containers.settings.protected) {
                let guest = Path::new("/workspace").join(path.file_name().unwrap_or_default());
                binds.push(Bind::at(&path, &guest, Access::ReadOnly, hidden)?);
            }
        }
        let mounts = request
            .mounts
            .iter()
            .map(|mount: &Mount| Bind::new(mount, hidden));
        binds.extend(mounts.collect::<Result<Vec<_>, _>>()?);
        Binds::new(binds)
    }
}

/// What of a workspace a program may not change.
fn protected(workspace: &Path, names: &[String]) -> Vec<PathBuf> {
    let workspace = Workspace {
        path: workspace.to_path_buf(),
        protected: names.to_vec(),
    };
    workspace.entries().protected
}

/// Who a program is. Never the host's root, and never another person: their files would be its own.
pub(super) fn user(containers: &Containers, manager: &Manager) -> User {
    let ours = containers.settings.user;
    if manager.info().rootless {
        return User { uid: 0, gid: 0 };
    }
    match ours.uid {
        0 => User {
            uid: NOBODY,
            gid: NOBODY,
        },
        _ => ours,
    }
}

/// The name of the program's file, and what runs it; none for a command.
fn script(request: &Request) -> Option<(String, &'static str)> {
    let (program, extension) = match request.language {
        Language::Python => ("python3", "py"),
        Language::Bash => ("bash", "sh"),
        Language::Javascript => ("node", "js"),
        Language::Command => return None,
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
        Some((name, program)) => vec![program.to_owned(), format!("/code/{name}")],
        None => Vec::new(),
    };
    words.extend(request.args.iter().cloned());
    if words.is_empty() {
        return Err(RunError::NoProgram);
    }
    Ok(words)
}

/// What every program finds in its environment.
pub(super) fn fixed() -> Vec<(EnvName, String)> {
    let pair = |(name, value): &(&str, &str)| Some((name.parse().ok()?, (*value).to_owned()));
    FIXED.iter().filter_map(pair).collect()
}

fn environment(request: &Request) -> Vec<(EnvName, String)> {
    let mut all = fixed();
    for (name, value) in &request.env {
        all.retain(|(known, _)| known != name);
        all.push((name.clone(), value.clone()));
    }
    all
}
