//! The environment, the paths and the configuration of a process, loaded on demand.

use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use ringfence_exec::local::Log;
use ringfence_exec::trust::NamedPaths;

use crate::config::{self, Config, Loaded, Problems, Sources};
use crate::env::Environment;
use crate::failure::Failure;
use crate::named_paths;
use crate::parts::{self, Parts};
use crate::paths::Paths;
use crate::state_lock::StateLock;

/// The files from which a configuration is read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Configuration {
    /// None, and no variables of the environment either: every setting has its default.
    BuiltIn,
    /// This file, then the variables of the environment.
    File(PathBuf),
    /// The files of the system, the user and the working directory, then the variables of the environment.
    Layers,
}

/// The environment, the paths and the configuration of a process.
#[derive(Debug)]
pub struct Context {
    pub environment: Environment,
    pub paths: Paths,
    /// Destination of warnings.
    pub log: Log,
    configuration: Configuration,
    here: OnceLock<Option<PathBuf>>,
    loaded: OnceLock<(Loaded, Parts)>,
}

impl Context {
    /// Creates a context. The configuration is read on first use.
    pub fn new(environment: Environment, configuration: Configuration, log: Log) -> Self {
        Self {
            paths: Paths::new(&environment),
            log,
            configuration,
            environment,
            here: OnceLock::new(),
            loaded: OnceLock::new(),
        }
    }

    /// Returns a context of the same configuration whose state directory does not exist and cannot be made.
    pub(crate) fn without_state(&self) -> Self {
        let mut context = Self::new(
            self.environment.clone(),
            self.configuration.clone(),
            self.log.clone(),
        );
        context.paths.state = PathBuf::from("/proc/no-state");
        context
    }

    /// Returns the file of `--config`.
    pub fn explicit_config(&self) -> Option<&Path> {
        match &self.configuration {
            Configuration::File(file) => Some(file),
            Configuration::BuiltIn | Configuration::Layers => None,
        }
    }

    /// Returns the effective configuration, which the first call reads and validates.
    ///
    /// # Errors
    /// If it cannot be used; reports all problems at once.
    pub fn config(&self) -> Result<&Config, Problems> {
        self.loaded().map(|loaded| &loaded.config)
    }

    /// Returns the validated configuration in the types of the other crates.
    ///
    /// # Errors
    /// If it cannot be used; reports all problems at once.
    pub fn parts(&self) -> Result<&Parts, Problems> {
        self.validated().map(|(_, parts)| parts)
    }

    /// Prints a warning for each ignored setting of the project's file.
    ///
    /// # Errors
    /// If a layer cannot be used; reports all problems at once.
    pub fn tell_passed_over(&self) -> Result<(), Problems> {
        for sentence in &self.loaded()?.passed_over {
            self.log.write(sentence);
        }
        Ok(())
    }

    /// Returns the effective configuration with its provenance.
    ///
    /// # Errors
    /// If it cannot be used; reports all problems at once.
    pub fn loaded(&self) -> Result<&Loaded, Problems> {
        self.validated().map(|(loaded, _)| loaded)
    }

    /// Returns the rules by which paths that a person or a trusted file names are resolved and opened.
    pub fn named_paths(&self) -> NamedPaths {
        let here = self
            .here
            .get_or_init(|| named_paths::working_directory(&self.environment));
        named_paths::named_paths(here.clone(), &self.paths)
    }

    /// Locks the state directory, which has one server only. If a server ends there, says so and waits up to 60 s for
    /// it.
    ///
    /// # Errors
    /// If another server has locked it, or it cannot be used.
    pub fn lock_state(&self) -> Result<StateLock, Failure> {
        let waiting = || self.log.write("waiting for the former server to end");
        StateLock::of(self.paths.make_state()?, waiting)
    }

    /// Rejects a file of `--config` that a program may have written: it is protected only from programs of
    /// runs that use it.
    fn check_accepted(&self, loaded: &Loaded) -> Result<(), Problems> {
        let Some((file, digest)) = &loaded.explicit else {
            return Ok(());
        };
        named_paths::check_accepted(file, digest, &self.paths)
            .map_err(|failure| Problems(vec![failure.into_problem()]))
    }

    fn load(&self, named: &NamedPaths) -> Result<Loaded, Problems> {
        if self.configuration == Configuration::BuiltIn {
            return Ok(Loaded::built_in());
        }
        config::load(&Sources {
            system_dir: PathBuf::from("/etc/ringfence"),
            user_dir: self.paths.config.clone(),
            project_dir: PathBuf::from("."),
            explicit: self.explicit_config().map(Path::to_path_buf),
            environment: &self.environment,
            named: named.clone(),
        })
    }

    fn validated(&self) -> Result<&(Loaded, Parts), Problems> {
        if let Some(validated) = self.loaded.get() {
            return Ok(validated);
        }
        let named = self.named_paths();
        let loaded = self.load(&named)?;
        self.check_accepted(&loaded)?;
        let parts = parts::validate(&loaded, &self.environment, &self.paths, named)?;
        for sentence in loaded.near_misses.iter().chain(&parts.warnings) {
            self.log.write(sentence);
        }
        Ok(self.loaded.get_or_init(|| (loaded, parts)))
    }
}
