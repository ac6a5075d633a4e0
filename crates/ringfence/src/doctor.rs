//! Examination of this machine under the configuration: its isolation layers, runtimes and directories.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use ringfence_container::pins::Pins;
use ringfence_exec::local::{self as local_runs, Fence, Local, Log, SandboxRequest, Warmth};
use ringfence_exec::probe::{self, Layer, Report};
use ringfence_exec::pyodide::{Settings, install};
use ringfence_exec::trust::{Conflict, check_servers, resolve};
use ringfence_policy::{Access, Account, Limits, Mount, Network, Scope, Trusted};

use crate::config::values::ServerFence;
use crate::context::Context;
use crate::failure::{Error, Failure};
use crate::{cloud, container, local, named_paths, pyodide, settings, trust};

/// Tries every layer, and returns the fix for each missing one.
///
/// # Errors
/// If the configuration cannot be used.
pub async fn examine(context: &Context) -> Result<Report, Error> {
    let Err(refused) = context.paths.check_state() else {
        return examine_with_state(context).await;
    };
    // Somebody else can write what lies there: nothing of it is read, and the machine is examined all the same.
    let mut report = examine_with_state(&context.without_state()).await?;
    let layer = directory(STATE, &context.paths.state, Err(refused));
    let place = report.layers.iter_mut().find(|layer| layer.name == STATE);
    if let Some(place) = place {
        *place = layer;
    }
    Ok(report)
}

async fn examine_with_state(context: &Context) -> Result<Report, Error> {
    let settings = local::settings(&settings::settings(context)?, Warmth::Cold, context)?;
    let image = context.parts()?.containers.runs.clone();
    let surroundings = container::surroundings(context);
    let pins = Pins::read(&container::pins(context))
        .map_err(|error| Failure::refused(error.to_string(), error.hint()))?;
    let mut report = probe::examine(&settings).await;
    let engines = ringfence_container::probe::layers(&surroundings, &image, &pins);
    report.layers.extend(engines.await);
    report.layers.extend(preload_layer(settings.clone()).await);
    report.layers.push(box_layer(settings).await);
    let pyodide = pyodide::settings(0, context)?;
    report.layers.push(pyodide_layer(&pyodide));
    report.layers.push(wheels_layer(&pyodide));
    report.layers.push(cloud::layer(context)?);
    report.layers.extend(directories(context));
    report.layers.extend(servers_layer(context)?);
    Ok(report)
}

/// Longer than a person would wait for any set of modules.
const PRELOAD_TIMEOUT: Duration = Duration::from_secs(600);

/// Checks that the modules of `sandbox.preload` can be imported, in a warm interpreter.
async fn preload_layer(settings: local_runs::Settings) -> Option<Layer> {
    const NAME: &str = "preload";
    if settings.preload.is_empty() {
        return None;
    }
    let reports = Arc::new(Mutex::new(Vec::new()));
    let heard = Arc::clone(&reports);
    let log = Log::new(move |report| {
        let mut heard = heard.lock().unwrap_or_else(PoisonError::into_inner);
        heard.push(report.to_owned());
    });
    let modules = settings.preload.join(", ");
    let warmth = Warmth::Pool {
        size: 1,
        renew_after: 0,
        renew_every: PRELOAD_TIMEOUT,
    };
    let backend = Local::new(local_runs::Settings {
        log,
        warmth,
        ..settings
    });
    let warmed = backend
        .warm_up_within(PRELOAD_TIMEOUT, &Scope::local(), None, &Trusted::none())
        .await;
    // Leftovers are removed at the next start.
    backend.close().await;
    let reports = reports.lock().unwrap_or_else(PoisonError::into_inner);
    Some(match (warmed, reports.is_empty()) {
        (Err(error), _) => Layer::missing(NAME, error.explain(), error.hint()),
        (Ok(true), true) => Layer::ok(NAME, format!("imported beforehand: {modules}")),
        (Ok(_), false) => Layer::missing(
            NAME,
            reports.join("; "),
            "install it for the interpreter of `sandbox.python`, or take it out of `sandbox.preload`",
        ),
        (Ok(false), true) => Layer::info(
            NAME,
            "no interpreter can be kept warm here: each program starts one",
        ),
    })
}

/// Opens a sandbox with the fence `box`, which runs do not depend on.
async fn box_layer(settings: local_runs::Settings) -> Layer {
    const NAME: &str = "fence box";
    let local = Local::new(settings);
    let request = SandboxRequest {
        scope: Scope::local(),
        limits: Limits::DEFAULT,
        network: Network::None,
        env: Vec::new(),
        mounts: Vec::new(),
        account: Account::Root,
        image: None,
    };
    let layer = match local.open_sandbox(&request, Fence::Default).await {
        Ok((cell, ..)) => {
            cell.close().await;
            Layer::ok(NAME, "sandboxes can have root over users and files of their own")
        }
        Err(error) => Layer {
            fix: Some(error.hint().into()),
            ..Layer::info(NAME, error.explain())
        },
    };
    local.close().await;
    layer
}

/// Checks that programs can run in Pyodide.
fn pyodide_layer(settings: &Settings) -> Layer {
    match install::found(settings) {
        Ok([deno, pyodide]) => Layer::ok("pyodide", format!("{} in {}", pyodide.display(), deno.display())),
        Err(error) => Layer {
            fix: Some(error.hint().into()),
            ..Layer::info("pyodide", error.to_string())
        },
    }
}

/// Checks that Pyodide can import the wheels of the configured directory.
fn wheels_layer(settings: &Settings) -> Layer {
    const NAME: &str = "pyodide wheels";
    match (install::wheels(settings), &settings.packages) {
        (Some(Ok(count)), Some(directory)) => Layer::ok(NAME, format!("{count} in {}", directory.display())),
        (Some(Err(error)), _) => Layer::missing(NAME, error.to_string(), error.hint()),
        _ => Layer::info(NAME, "no directory is named (`skills.sandbox.packages`)"),
    }
}

/// Checks that MCP servers on the host have no code where programs may be expected to write.
fn servers_layer(context: &Context) -> Result<Option<Layer>, Error> {
    const NAME: &str = "MCP servers on the host";
    let mut servers = context.config()?.skills.servers.values();
    if !servers.any(|server| server.fence == ServerFence::Host) {
        return Ok(None);
    }
    let conflicts = server_conflicts(context)?;
    Ok(Some(match conflicts.first() {
        None => Layer::ok(
            NAME,
            "none has code in this directory or in a configured workspace",
        ),
        Some(conflict) => Layer::missing(NAME, conflict.to_string(), conflict.hint()),
    }))
}

/// Returns the workspaces known in advance in which servers on the host have code: the working directory, and
/// those that the configuration names. Programs are refused there.
///
/// # Errors
/// If the configuration cannot be used.
pub fn server_conflicts(context: &Context) -> Result<Vec<Conflict>, Error> {
    let config = context.config()?;
    let mut trees: Vec<PathBuf> = named_paths::working_directory(&context.environment)
        .into_iter()
        .collect();
    let root = context.parts()?.tools.root.as_ref();
    let sample = root.and_then(|root| {
        root.resolve(&Scope::local(), "session".parse().ok().as_ref())
            .ok()?
    });
    let mounts = config.skills.servers.values().flat_map(|server| &server.mounts);
    let mounts = mounts.filter_map(|text| text.parse().ok());
    let writable = mounts.filter(|mount: &Mount| mount.access == Access::ReadWrite);
    let named = sample.into_iter().chain(writable.map(|mount| mount.host));
    trees.extend(named.filter_map(|path| Some(resolve(&path).ok()?.path)));
    trees.extend(container::of_calls(context)?.opened().map(Path::to_owned));
    let servers = trust::of_servers(&[], context)?;
    let checked = trees.iter().map(|tree| check_servers(tree, &servers));
    Ok(checked.filter_map(Result::err).collect())
}

const STATE: &str = "state directory";

/// Checks the state and runtime directories.
fn directories(context: &Context) -> [Layer; 2] {
    let paths = &context.paths;
    [
        directory(STATE, &paths.state, paths.make_state()),
        directory("runtime directory", &paths.runtime, paths.make_runtime()),
    ]
}

fn directory(name: &'static str, path: &Path, made: Result<&Path, Failure>) -> Layer {
    const FIX: &str =
        "make it yours and mode 700, or set XDG_STATE_HOME and XDG_RUNTIME_DIR to directories of your own";
    let written = made.map_err(|failure| failure.to_string()).and_then(|path| {
        write_in(path).map_err(|error| format!("cannot write in {}: {error}", path.display()))
    });
    match written {
        Ok(()) => Layer::ok(name, format!("{} can be written", path.display())),
        Err(why) => Layer::missing(name, why, FIX),
    }
}

fn write_in(path: &Path) -> std::io::Result<()> {
    let file = path.join(format!("doctor-{}", std::process::id()));
    fs::write(&file, "x")?;
    fs::remove_file(file)
}
