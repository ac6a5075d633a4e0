//! Locates the image's programs.

use std::ffi::OsString;
use std::os::fd::OwnedFd;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use super::files::packs_root;
use super::frames::{Program, Start};
use super::worker::Execution;
use crate::step_error::StepError;

/// Default `PATH` of images without one.
const PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

/// Variables that depend on the user.
const OF_USER: &[&str] = &["HOME", "USER", "LOGNAME"];

/// Default environment of a call.
#[derive(Debug)]
pub(super) struct Surroundings {
    variables: Vec<(String, String)>,
    /// Changes of the root, for the operation that packs them.
    changes: Option<OwnedFd>,
}

impl Surroundings {
    /// Returns the environment of the container's first process, which is the image's.
    pub(super) fn of_process() -> Self {
        let given = |wanted: &str, default: &str| {
            let found = std::env::vars_os().find(|(name, _)| name == wanted);
            let text = found.and_then(|(_, value): (OsString, OsString)| value.into_string().ok());
            text.filter(|text| !text.is_empty())
                .unwrap_or_else(|| default.to_owned())
        };
        let defaults = [("PATH", PATH), ("HOME", "/tmp"), ("LANG", "C.UTF-8")];
        Self::new(
            defaults
                .map(|(name, default)| (name.to_owned(), given(name, default)))
                .into(),
        )
    }

    /// Creates a default environment of these variables.
    pub(super) fn new(variables: Vec<(String, String)>) -> Self {
        Self {
            variables,
            changes: None,
        }
    }

    /// Sets the changes of a root that programs may change.
    pub(super) fn with_changes(self, changes: Option<OwnedFd>) -> Self {
        Self { changes, ..self }
    }

    /// Returns the environment of a call: its own variables override the defaults.
    pub(super) fn environment(&self, given: &[(String, String)]) -> Vec<(String, String)> {
        let is_missing = |name: &str| !given.iter().any(|(given, _)| given == name);
        let missing = self.variables.iter().filter(|(name, _)| is_missing(name));
        missing.chain(given).cloned().collect()
    }

    /// Returns the environment of a call. Another user's own variables come with the user.
    fn environment_of(&self, start: &Start) -> Vec<(String, String)> {
        let mut environment = self.environment(&start.environment);
        if start.user.is_some() {
            let is_given = |name: &str| start.environment.iter().any(|(given, _)| given == name);
            environment.retain(|(name, _)| !OF_USER.contains(&name.as_str()) || is_given(name));
        }
        environment
    }

    /// Prepares a call without a warm interpreter. `python` is the interpreter with its arguments.
    pub(super) fn prepare(&self, start: &Start, python: &[String]) -> Result<Execution, StepError> {
        let missing = |step| {
            let source = std::io::Error::from_raw_os_error(libc::ENOENT);
            StepError { step, source }
        };
        let given = &start.environment;
        let (program, own) = match &start.program {
            Program::Python { .. } => {
                let executable = python.first().ok_or_else(|| missing("find python3"))?;
                (executable.into(), python.to_vec())
            }
            Program::Bash { name, code } => {
                let bash = self.find("bash", given).ok_or_else(|| missing("find bash"))?;
                (bash, ["bash", "-c", code, name].map(str::to_owned).to_vec())
            }
            Program::Files => {
                let changes = self.changes.as_ref().filter(|_| packs_root(&start.arguments));
                let execution = Execution::files(&start.arguments, &start.directory, changes)?;
                return Ok(execution.of_user(start.user.clone()));
            }
            Program::Command(name) => {
                let found = self
                    .find(name, given)
                    .ok_or_else(|| missing("find the program"))?;
                (found, vec![name.clone()])
            }
        };
        let environment = self.environment_of(start);
        match &start.program {
            // Its arguments are part of its job.
            Program::Python { .. } => {
                Execution::new(&program, &own, &environment, &start.directory).map(Execution::reading_a_job)
            }
            Program::Bash { .. } | Program::Command(_) | Program::Files => {
                let arguments = [&own[..], &start.arguments].concat();
                let execution = Execution::new(&program, &arguments, &environment, &start.directory)?;
                Ok(match start.bridge {
                    true => execution.reading_a_job(),
                    false => execution,
                }
                .of_user(start.user.clone()))
            }
        }
    }

    /// Finds a program by name, like a shell. A name with a slash is a path.
    pub(super) fn find(&self, name: &str, given: &[(String, String)]) -> Option<PathBuf> {
        if name.contains('/') {
            return Some(name.into());
        }
        let variables = self.variables.iter().chain(given).rev();
        let path = variables.into_iter().find(|(name, _)| name == "PATH");
        path.map_or(PATH, |(_, path)| path)
            .split(':')
            // An empty entry would mean the working directory.
            .filter(|directory| directory.starts_with('/'))
            .map(|directory| Path::new(directory).join(name))
            .find(|path| is_program(path))
    }
}

fn is_program(path: &Path) -> bool {
    path.metadata()
        .is_ok_and(|found| found.is_file() && found.permissions().mode() & 0o111 != 0)
}
