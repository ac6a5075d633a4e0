//! Containers, set up from the configuration.

use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;
use std::sync::Arc;

use ringfence_runtime::container::backend::{Containers, Settings};
use ringfence_runtime::container::spec::{Image, Network, OciRuntime, User};
use ringfence_runtime::container::{Flavor, Surroundings};
use ringfence_runtime::shell::Contained;

use crate::config::values::{self, ContainerRuntime};
use crate::context::Context;
use crate::exit::Failure;
use crate::high;

/// The filter of runs in containers.
const FILTER: &str = "standard";

/// The containers of runs.
///
/// # Errors
/// If the configuration cannot be used.
pub(crate) fn containers(context: &Context) -> anyhow::Result<Containers> {
    Ok(Containers::new(settings(context)?))
}

/// The containers of runs, some of them ready beforehand: for a process that serves many.
///
/// # Errors
/// If the configuration cannot be used.
pub(crate) fn ready(context: &Context) -> anyhow::Result<Containers> {
    let size = context.config()?.engine.container_pool_size;
    Ok(Containers::keeping(size as usize, settings(context)?))
}

/// The containers of the tool `shell`, which have no network.
///
/// # Errors
/// If the configuration cannot be used.
pub(crate) fn of_shell(context: &Context) -> anyhow::Result<Contained> {
    let shell = &context.config()?.permissions.shell;
    let settings = Settings {
        image: image("permissions.shell.container_image", &shell.container_image)?,
        network: Network::None,
        ..settings(context)?
    };
    Ok(Contained {
        containers: Arc::new(Containers::new(settings)),
        flavor: match shell.container_runtime {
            ContainerRuntime::Docker => Flavor::Docker,
            ContainerRuntime::Podman => Flavor::Podman,
        },
    })
}

/// How containers are made.
///
/// # Errors
/// If the configuration cannot be used.
pub(crate) fn settings(context: &Context) -> anyhow::Result<Settings> {
    let config = context.config()?;
    let docker = &config.sandbox.docker;
    Ok(Settings {
        surroundings: surroundings(context),
        image: image("sandbox.docker.image", &docker.image)?,
        pins: pins(context),
        network: match docker.network_enabled {
            true => Network::Bridge,
            false => Network::None,
        },
        oci_runtime: oci_runtime(docker.oci_runtime),
        filter: FILTER.to_owned(),
        hidden: high::hidden(context)?,
        protected: config.permissions.filesystem.protected.clone(),
        scratch: std::env::temp_dir(),
        agent: agent(context),
        user: own_user(),
        egress: high::egress::settings(&config.egress, &context.environment)?,
    })
}

/// Where the agent's program is kept. What lies below `/run` is shown in no container.
fn agent(context: &Context) -> PathBuf {
    let state = &context.paths.state;
    match state.starts_with("/run") {
        true => std::env::temp_dir().join(format!("ringfence-agent-{}", own_user().uid)),
        false => state.join("agent"),
    }
}

/// What makes containers, as the configuration says it.
pub(crate) fn oci_runtime(choice: values::OciRuntime) -> OciRuntime {
    match choice {
        values::OciRuntime::Default => OciRuntime::Default,
        values::OciRuntime::Runc => OciRuntime::Runc,
        values::OciRuntime::Crun => OciRuntime::Crun,
        values::OciRuntime::Runsc => OciRuntime::Runsc,
    }
}

/// An image of the configuration.
///
/// # Errors
/// If its name is none.
pub(crate) fn image(key: &str, name: &str) -> Result<Image, Failure> {
    name.parse().map_err(|error| {
        Failure::usage(
            format!("`{key}`: {error}"),
            "correct it; `ringfence config schema` describes it",
        )
    })
}

/// Where it is noted which images were set up here.
pub(crate) fn pins(context: &Context) -> PathBuf {
    context.paths.state.join("images.json")
}

/// What of the environment leads to the engines.
pub(crate) fn surroundings(context: &Context) -> Surroundings {
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

/// Who we are. `/proc/self` belongs to us, which spares the binary a system call by hand.
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
