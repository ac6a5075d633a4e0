//! Options of a runner.

use std::path::PathBuf;
use std::sync::{Arc, Mutex};

use ringfence_exec::local::{Fence, Local, Log, Warmth};
use ringfence_exec::runner::{self, Rules};
use ringfence_policy::{EnvName, Limits, Mount, Network, RuntimeKind};
use ringfence_tools::toolbox::Surface;

use super::{Inner, Runner};
use crate::context::{Configuration, Context};
use crate::env::Environment;
use crate::failure::Error;
use crate::in_process::InProcess;
use crate::request::{LimitChoices, Request};
use crate::run_log::AuditedRuns;
use crate::settings::Settings;
use crate::{local, packages, resolve, settings};

/// Options of a [`Runner`], each with a default.
///
/// Without a configuration every setting is built in, and no file or variable changes it. A layer of the fence that
/// this machine lacks fails a run, unless [`Builder::fence`] or the configuration allows it.
///
/// ```standalone_crate
/// use ringfence::{Limits, Request, Runner, Timeout};
///
/// fn main() -> Result<(), Box<dyn std::error::Error>> {
///     ringfence::init();
///     let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
///     runtime.block_on(async {
///         let runner = Runner::builder()
///             .limits(Limits { timeout: Timeout::seconds(5), ..Limits::DEFAULT })
///             .mount("/usr/share:/share:ro".parse()?)
///             .env("MODE".parse()?, "fast")
///             .build()?;
///         let result = runner.run(Request::bash("echo $MODE; ls /share > /dev/null")).await?;
///         assert_eq!((result.stdout.as_str(), result.exit_code), ("fast\n", 0));
///         runner.close().await;
///         Ok(())
///     })
/// }
/// ```
#[derive(Debug)]
#[must_use]
pub struct Builder {
    configuration: Configuration,
    state: Option<PathBuf>,
    log: Log,
    python: Option<PathBuf>,
    warmth: KeepWarm,
    defaults: Defaults,
}

/// The processes that are kept between runs.
#[derive(Debug, Clone, Copy)]
enum KeepWarm {
    No,
    Configured,
}

/// Values of requests that leave them out.
#[derive(Debug, Default)]
pub(super) struct Defaults {
    fence: Option<Fence>,
    runtime: Option<RuntimeKind>,
    limits: Option<Limits>,
    network: Option<Network>,
    mounts: Vec<Mount>,
    env: Vec<(EnvName, String)>,
}

impl Defaults {
    /// Fills in the values that a request leaves out.
    pub(super) fn completed(&self, request: Request) -> Request {
        let limits = self
            .limits
            .map_or(request.limits, |limits| request.limits.applied_to(limits).into());
        let mut mounts = self.mounts.clone();
        mounts.extend(request.mounts);
        let mut env = self.env.clone();
        env.extend(request.env);
        Request {
            fence: request.fence.or(self.fence),
            runtime: request.runtime.or(self.runtime),
            network: request.network.or_else(|| self.network.clone()),
            limits,
            mounts,
            env,
            ..request
        }
    }
}

impl From<Limits> for LimitChoices {
    fn from(limits: Limits) -> Self {
        Self {
            timeout: Some(limits.timeout),
            max_output: Some(limits.max_output),
            memory: Some(limits.memory),
            cpus: Some(limits.cpus),
            pids: Some(limits.pids),
            disk: Some(limits.disk),
        }
    }
}

impl Default for Builder {
    fn default() -> Self {
        Self {
            configuration: Configuration::BuiltIn,
            state: None,
            log: Log::default(),
            python: None,
            warmth: KeepWarm::No,
            defaults: Defaults::default(),
        }
    }
}

impl Builder {
    /// Reads the configuration from files. The default is [`Configuration::BuiltIn`].
    pub fn configuration(self, configuration: Configuration) -> Self {
        Self {
            configuration,
            ..self
        }
    }

    /// Keeps records, stored runs and caches in this directory, which is created with access for this user alone.
    /// The default is that of the command line, `$XDG_STATE_HOME/ringfence`.
    pub fn state_directory(self, directory: impl Into<PathBuf>) -> Self {
        let state = Some(directory.into());
        Self { state, ..self }
    }

    /// Passes each warning that belongs to no single run to `write`. By default they are dropped.
    pub fn log(self, write: impl Fn(&str) + Send + Sync + 'static) -> Self {
        let log = Log::new(write);
        Self { log, ..self }
    }

    /// Sets the Python interpreter: an executable, a virtual environment's `bin/python`, or a name on the PATH. The
    /// default is `python3` on the PATH.
    pub fn python(self, python: impl Into<PathBuf>) -> Self {
        let python = Some(python.into());
        Self { python, ..self }
    }

    /// Keeps a pool of idle workers, as the server does: the next program of the same scope starts in a millisecond.
    pub fn keep_warm(self) -> Self {
        let warmth = KeepWarm::Configured;
        Self { warmth, ..self }
    }

    /// Sets the required strength of the fence. The default is [`Fence::Required`]: every layer, or no run.
    pub const fn fence(mut self, fence: Fence) -> Self {
        self.defaults.fence = Some(fence);
        self
    }

    /// Sets the runtime. The default is [`RuntimeKind::Local`].
    pub const fn runtime(mut self, runtime: RuntimeKind) -> Self {
        self.defaults.runtime = Some(runtime);
        self
    }

    /// Sets the limits of each run. The default is [`Limits::DEFAULT`].
    pub const fn limits(mut self, limits: Limits) -> Self {
        self.defaults.limits = Some(limits);
        self
    }

    /// Sets the network of programs. The default is [`Network::None`].
    pub fn network(mut self, network: Network) -> Self {
        self.defaults.network = Some(network);
        self
    }

    /// Shows a host path to every program.
    pub fn mount(mut self, mount: Mount) -> Self {
        self.defaults.mounts.push(mount);
        self
    }

    /// Sets an environment variable of every program. Programs see none of this process's.
    pub fn env(mut self, name: EnvName, value: impl Into<String>) -> Self {
        self.defaults.env.push((name, value.into()));
        self
    }

    /// Creates the runner. Nothing is started before the first run.
    ///
    /// # Errors
    /// If the configuration, the interpreter or the state directory cannot be used.
    pub fn build(self) -> Result<Runner, Error> {
        let mut context = Context::new(Environment::of_process(), self.configuration, self.log);
        if let Some(state) = self.state {
            context.paths.state = state;
        }
        let python = self.python.as_deref();
        let python = python
            .map(|path| resolve::python("python", path, &context))
            .transpose()?;
        let configured = settings::settings(&context)?;
        let settings = Settings {
            python: python.clone().or(configured.python),
            ..configured
        };
        let backend = match self.warmth {
            KeepWarm::No => {
                let local = local::settings(&settings, Warmth::Cold, &context)?;
                InProcess::for_one(Local::new(local), &context)?
            }
            KeepWarm::Configured => {
                let local = local::settings(&settings, local::pool(&context)?, &context)?;
                InProcess::for_many(Local::new(local), &context)?
            }
        };
        let rules = Rules {
            log: Some(Arc::new(AuditedRuns::new(Surface::Library, &context)?)),
            ..local::rules(&settings, &context)?
        };
        let mut defaults = self.defaults;
        if context.loaded()?.origin("sandbox.isolation").is_none() {
            defaults.fence.get_or_insert(Fence::Required);
        }
        let door = packages::with_session_defaults(Arc::new(backend.clone()), &backend.local, &context)?;
        Ok(Runner(Arc::new(Inner {
            door: runner::Runner::new(door, rules),
            backend,
            context,
            python,
            defaults,
            runs: Mutex::default(),
        })))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_layer_is_required_unless_somebody_allows_less() {
        let place = tempfile::tempdir().unwrap();
        let file = |name: &str, text: &str| {
            let path = place.path().join(name);
            std::fs::write(&path, text).unwrap();
            Configuration::File(path)
        };
        let check = |configuration: Configuration, chosen: Option<Fence>, expected: Option<Fence>| {
            let mut builder = Runner::builder()
                .state_directory(place.path().join("state"))
                .configuration(configuration);
            builder.defaults.fence = chosen;
            assert_eq!(builder.build().unwrap().0.defaults.fence, expected);
        };
        check(Configuration::BuiltIn, None, Some(Fence::Required));
        check(
            file("a.toml", "[sandbox]\ntimeout = 5\n"),
            None,
            Some(Fence::Required),
        );
        let weaker = file("b.toml", "[sandbox]\nisolation = \"best-effort\"\n");
        // Taken from the configuration with each request.
        check(weaker.clone(), None, None);
        check(weaker, Some(Fence::Required), Some(Fence::Required));
        check(
            Configuration::BuiltIn,
            Some(Fence::BestEffort),
            Some(Fence::BestEffort),
        );
    }

    #[test]
    fn a_request_is_completed_and_never_overridden() {
        let defaults = Defaults {
            fence: Some(Fence::Required),
            limits: Some(Limits {
                pids: ringfence_policy::Pids::try_from(7).unwrap(),
                ..Limits::DEFAULT
            }),
            mounts: vec!["/a:/a".parse().unwrap()],
            ..Defaults::default()
        };
        let request = Request::python("1")
            .timeout(ringfence_policy::Timeout::seconds(1))
            .mount("/b:/b".parse().unwrap())
            .fence(Fence::BestEffort);
        let completed = defaults.completed(request);
        assert_eq!(completed.fence, Some(Fence::BestEffort));
        let limits = completed.limits.applied_to(Limits::DEFAULT);
        assert_eq!(
            (limits.timeout.to_string(), limits.pids.get()),
            ("1s".to_owned(), 7)
        );
        let guests: Vec<_> = completed.mounts.iter().map(Mount::guest).collect();
        assert_eq!(guests, [std::path::Path::new("/a"), std::path::Path::new("/b")]);
    }
}
