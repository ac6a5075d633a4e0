//! Container backends, built from the configuration.

use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;
use std::sync::Arc;

use ringfence_container::Surroundings;
use ringfence_container::backend::{Containers, Settings};
use ringfence_container::outputs::Outputs;
use ringfence_container::spec::{OciRuntime, User};
use ringfence_exec::local::NOBODY;
use ringfence_policy::{EngineKind, Fallback, KeepAlive, Limits, Mount, Network, NetworkMode};
use ringfence_tools::shell::{Contained, ShellRunner};
use ringfence_tools::toolbox::SandboxSettings;

use crate::config::values::{self, ContainerRuntime};
use crate::context::Context;
use crate::failure::Error;
use crate::{settings, trust};

/// Returns the containers of runs.
///
/// # Errors
/// If the configuration cannot be used.
pub fn containers(context: &Context) -> Result<Containers, Error> {
    Ok(Containers::new(settings(context)?))
}

/// Returns the containers of runs, backed by a pool: for a process that serves many requests.
///
/// # Errors
/// If the configuration cannot be used.
pub fn ready(context: &Context) -> Result<Containers, Error> {
    let size = context.config()?.engine.container_pool_size;
    Ok(Containers::keeping(size as usize, settings(context)?))
}

/// Returns the settings of the tool `sandbox_exec`.
///
/// # Errors
/// If the configuration cannot be used.
pub fn of_calls(context: &Context) -> Result<SandboxSettings, Error> {
    let config = context.config()?;
    let code = &config.code_execution;
    let idle = code.keep_alive_idle_timeout_min.0.as_duration();
    Ok(SandboxSettings {
        engine: engine_kind(code.container_runtime),
        keep_alive: KeepAlive {
            image: code.docker_image.clone(),
            network: network(code.allow_network),
            session: None,
            max_calls: match code.keep_alive {
                true => code.keep_alive_max_executions.get(),
                false => 1,
            },
            idle_ms: u64::try_from(idle.as_millis()).unwrap_or(u64::MAX),
        },
        limits: Limits {
            timeout: code.timeout,
            memory: code.max_memory,
            disk: code.max_disk,
            cpus: code.max_cpus,
            ..Limits::DEFAULT
        },
        reach: match code.allow_network && !config.egress.allowed_hosts.is_empty() {
            true => Network::Allowlist(context.parts()?.egress.policy.clone()),
            false => Network::None,
        },
        mounts: mounts(context)?,
        outputs: outputs(context),
        fallback: code.fallback.into(),
    })
}

/// Returns the configured mounts of `sandbox_exec` with resolved host paths; rejects links that a program may
/// have made.
fn mounts(context: &Context) -> Result<Vec<Mount>, Error> {
    let all = context.parts()?.containers.mounts.iter();
    let resolved = all.map(|mount| {
        let host = trust::resolve(&mount.host, context)?.path;
        let mut mount = mount.clone();
        mount.host = host;
        Ok(mount)
    });
    resolved.collect()
}

/// Returns the containers of the tool `shell`, which have no network, with the fallback if the container
/// engine is unavailable.
///
/// # Errors
/// If the configuration cannot be used.
pub fn of_shell(context: &Context, fallback: Option<ShellRunner>) -> Result<Contained, Error> {
    let shell = &context.config()?.permissions.shell;
    let settings = Settings {
        image: context.parts()?.containers.shell.clone(),
        network: NetworkMode::None,
        filter: filter(false).to_owned(),
        ..settings(context)?
    };
    Ok(Contained {
        containers: Arc::new(Containers::new(settings)),
        engine: engine_kind(shell.container_runtime),
        fallback: fallback.map(Box::new),
    })
}

const fn engine_kind(runtime: ContainerRuntime) -> EngineKind {
    match runtime {
        ContainerRuntime::Docker => EngineKind::Docker,
        ContainerRuntime::Podman => EngineKind::Podman,
    }
}

const fn network(allowed: bool) -> NetworkMode {
    match allowed {
        true => NetworkMode::Bridge,
        false => NetworkMode::None,
    }
}

/// Returns the settings of containers.
///
/// # Errors
/// If the configuration cannot be used.
pub fn settings(context: &Context) -> Result<Settings, Error> {
    let config = context.config()?;
    let docker = &config.sandbox.docker;
    Ok(Settings {
        surroundings: surroundings(context),
        image: context.parts()?.containers.runs.clone(),
        pins: pins(context),
        network: network(docker.network_enabled),
        oci_runtime: oci_runtime(docker.oci_runtime),
        filter: filter(docker.network_enabled).to_owned(),
        hidden: settings::hidden(context)?,
        ledger: trust::ledger(context),
        protected: config.permissions.filesystem.protected.clone(),
        scratch: std::env::temp_dir(),
        init: shown(context, "init"),
        outputs: outputs(context),
        user: own_user(),
        egress: context.parts()?.egress.network.clone(),
    })
}

/// Returns the name of the seccomp filter of runs in containers.
const fn filter(network: bool) -> &'static str {
    match network {
        true => "standard-net",
        false => "standard",
    }
}

/// Converts the configured OCI runtime.
pub fn oci_runtime(choice: values::OciRuntime) -> OciRuntime {
    match choice {
        values::OciRuntime::Default => OciRuntime::Default,
        values::OciRuntime::Runc => OciRuntime::Runc,
        values::OciRuntime::Crun => OciRuntime::Crun,
        values::OciRuntime::Runsc => OciRuntime::Runsc,
    }
}

/// Returns the path of a state directory that is mounted in containers.
fn shown(context: &Context, name: &str) -> PathBuf {
    let state = &context.paths.state;
    // Containers never mount anything below `/run`, and programs inside cannot traverse `/root`.
    match state.starts_with("/run") || state.starts_with("/root") {
        true => std::env::temp_dir().join(format!("ringfence-{name}-{}", own_user().uid)),
        false => state.join(name),
    }
}

/// Returns the directory in which programs of kept-alive containers leave files for the caller.
pub fn outputs(context: &Context) -> Outputs {
    // No program runs as the host's root.
    let owner = (own_user().uid == 0).then_some(NOBODY);
    Outputs::new(shown(context, "output"), owner)
}

/// Returns the file that records the digests of installed images.
pub fn pins(context: &Context) -> PathBuf {
    context.paths.state.join("images.json")
}

/// Returns the environment variables by which container engines are found.
pub fn surroundings(context: &Context) -> Surroundings {
    let environment = &context.environment;
    let text = |name: &str| environment.text(name).map(str::to_owned);
    let home = environment.directory("HOME");
    Surroundings {
        docker_host: text("DOCKER_HOST"),
        docker_context: text("DOCKER_CONTEXT"),
        docker_config: environment
            .directory("DOCKER_CONFIG")
            .or_else(|| home.map(|home| home.join(".docker"))),
        container_host: text("CONTAINER_HOST"),
        runtime_dir: environment
            .directory("XDG_RUNTIME_DIR")
            .or_else(|| Some(PathBuf::from(format!("/run/user/{}", own_user().uid)))),
        files: context.paths.state.join("containers"),
    }
}

/// Returns our uid and gid, from the owner of `/proc/self`: this spares the binary a raw system call.
fn own_user() -> User {
    let found = std::fs::metadata("/proc/self");
    found.map_or(
        User {
            uid: u32::MAX,
            gid: u32::MAX,
        },
        |found| User {
            uid: found.uid(),
            gid: found.gid(),
        },
    )
}

impl From<values::Fallback> for Fallback {
    fn from(fallback: values::Fallback) -> Self {
        match fallback {
            values::Fallback::None => Self::None,
            values::Fallback::Local => Self::Local,
        }
    }
}
