//! `ringfence serve`: runs the server.

use std::fmt::Display;
use std::io::{self, Write as _};
use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;

use ringfence_container::Sandboxes;
use ringfence_exec::backend::Backend;
use ringfence_exec::local::Local;
use ringfence_gateway_protocol as gateway;
use ringfence_images::Selector;
use ringfence_policy::{Scope, Trusted};
use ringfence_sandbox::{KeyHosts, SnapshotStore};
use ringfence_server::api::{Admission, Api, ApiKeys, KeyStore, RecordedSandboxes};
use ringfence_server::listener::{Listener, Services};
use ringfence_server::metrics::Metrics;
use ringfence_server::remains::Remains;
use ringfence_server::sources::Sources;
use ringfence_server::stop::Stop;
use ringfence_server::usage::{Usage, UsageError};
use tokio::sync::watch;

use crate::commands::console;
use crate::commands::keys::{no_usage, remains};
use crate::context::Context;
use ringfence::packages::SessionPackages;
use ringfence::{Failure, InProcess, audit, images, local, packages, settings, toolbox, trust};
use ringfence_args::ServeArgs;

/// Maximum number of threads for slow system calls, such as removing a large file system.
const MAX_BLOCKING_THREADS: usize = 8;

pub(crate) fn run(args: &ServeArgs, context: &Context) -> anyhow::Result<ExitCode> {
    check_images(args)?;
    let settings = local::settings(&settings::settings(context)?, local::pool(context)?, context)?;
    context.paths.make_runtime()?;
    // Held until the process ends, however it ends.
    let lock = context.lock_state()?;
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .max_blocking_threads(MAX_BLOCKING_THREADS)
        .build()?;
    runtime.block_on(async {
        let socket = context.paths.socket();
        let listener = Listener::bind(&socket).map_err(|error| deaf(&socket, &error))?;
        let for_gateways = context.paths.gateway_socket();
        let gateways = gateway::Listener::bind(&for_gateways, gateway::ReadTimeout::default())
            .map_err(|error| deaf(&for_gateways, &error))?;
        let approvals = toolbox::approvals(context)?;
        let mut requested = Stop::watch(args.while_used.as_deref(), context.config()?.engine.drain_timeout)?;
        let admission = Admission::of_runs(settings.max_concurrent);
        let backend = InProcess::for_many(Local::new(settings), context)?;
        let usage = Arc::new(Usage::open(&context.paths.state).map_err(no_usage)?);
        let metrics = Arc::new(Metrics::new(approvals.clone(), Arc::clone(&usage), warn));
        let counted: Arc<dyn Backend> = Arc::new(metrics.counted(Arc::new(backend.clone())));
        let sessions = packages::sessions(counted, &backend.local, context)?;
        let toolbox = toolbox::for_clients(sessions.clone(), context)?.with_egress_meter(usage);
        let remains = Arc::new(remains(context)?);
        let keys = api_keys(Arc::clone(&remains), context)?;
        let recorded = sandboxes(args, &backend, &sessions, context)?;
        let api = Api::new(toolbox, recorded, keys, metrics, admission);
        let site = console::open(Arc::clone(&api), args, context).await?;
        let services = Services {
            backend: sessions,
            local: Arc::clone(&backend.local),
            sandboxes: Arc::clone(api.containers()),
            api: Arc::clone(&api),
            console: site.console.as_ref().map(|console| console.door().clone()),
            trusted: Arc::new(trust::trusted(trust::Named::default(), &[], context)?),
        };
        backend
            .local
            .warm_up(&Scope::local(), None, &Trusted::none())
            .await
            .map_err(|error| Failure::refused(error.explain(), error.hint()))?;
        warn_of_missing_images(args, &api, context).await?;
        context.ui.err(format!("listening at {}\n", socket.display()))?;
        console::announce(&site, args, context)?;
        let (stopping, stopped) = watch::channel(false);
        let stop = async {
            let request = requested.wait().await;
            lock.end();
            requested.end_work(&api, request, warn).await;
            stopping.send_replace(true);
        };
        tokio::join!(
            listener.serve(&services, stop),
            gateways.serve(&approvals, until(stopped.clone())),
            services.sandboxes.sweep(),
            api.keep_usage(until(stopped.clone()), |error| tell(error, context)),
            remains.keep_young(until(stopped.clone())),
            site.serve(stopped),
        );
        drop(gateways);
        api.close().await;
        if let Err(error) = api.write_usage().await {
            tell(&error, context);
        }
        services.sandboxes.end();
        backend.close().await;
        Ok(ExitCode::SUCCESS)
    })
}

/// Rejects invalid names of images for templates.
fn check_images(args: &ServeArgs) -> Result<(), Failure> {
    for image in &args.template_image {
        image.parse::<Selector>().map_err(|error| {
            Failure::usage(
                format!("--template-image: {error}"),
                "`ringfence image ls` lists the images",
            )
        })?;
    }
    Ok(())
}

/// Returns the keys of the API, and warns of one that is weak or has no effect.
fn api_keys(remains: Arc<Remains>, context: &Context) -> anyhow::Result<ApiKeys> {
    let store = KeyStore::below(&context.paths.state);
    let keys = ApiKeys::new(context.environment.text("RINGFENCE_API_KEY"), store).with_remains(remains);
    if let Some(warning) = keys.warning() {
        context.ui.err(format!("{warning}\n"))?;
    }
    Ok(keys)
}

/// Returns the sandboxes of clients, with the log of operations on them.
fn sandboxes(
    args: &ServeArgs,
    backend: &InProcess,
    sessions: &SessionPackages,
    context: &Context,
) -> anyhow::Result<RecordedSandboxes> {
    let fence = context.config()?.sandbox.isolation.fence();
    let sandboxes = ringfence_sandbox::Sandboxes::new(Arc::clone(&backend.local), fence, snapshots(context)?)
        .with_containers(Arc::clone(&backend.containers))
        .with_packages(packages::store(context)?, sessions.defaults())
        .with_images(context.paths.state.clone(), images::confine)
        .with_private_networks(context.parts()?.egress.policy.private_networks.clone())
        .with_key_hosts(KeyHosts::new(context.parts()?.key_hosts.clone()));
    Ok(RecordedSandboxes {
        sandboxes,
        containers: Arc::new(Sandboxes::new(Arc::clone(&backend.containers))),
        log: toolbox::operations_log(context)?,
        sources: Sources {
            approvals: toolbox::approvals(context)?,
            runs: settings::store(context)?,
            audit: audit::directory(context)?,
        },
        template_images: args.template_image.clone(),
        registries: images::network(context)?,
    })
}

/// Names the images for templates that are not in the store: a build on one fails until they are.
async fn warn_of_missing_images(args: &ServeArgs, api: &Api, context: &Context) -> anyhow::Result<()> {
    for image in &args.template_image {
        if let Err(error) = api.check_template_image(image).await {
            context.ui.err(format!(
                "warning: no template can be built on `{image}` yet: {error}; hint: {}\n",
                error.hint()
            ))?;
        }
    }
    Ok(())
}

/// Opens the snapshots of sandboxes.
fn snapshots(context: &Context) -> Result<SnapshotStore, Failure> {
    let directory = context.paths.state.join("snapshots");
    SnapshotStore::open(&directory).map_err(|error| {
        Failure::refused(
            format!("cannot read the snapshots in {}: {error}", directory.display()),
            "make the directory readable, or move it away",
        )
    })
}

/// Reports that the usage of keys could not be written.
fn tell(error: &UsageError, context: &Context) {
    // Nobody is left who could be told that this fails.
    let _ = context
        .ui
        .err(format!("usage of keys: {error}; {}\n", error.hint()));
}

/// Reports an event to the operator on standard error. A failure to do so is ignored.
fn warn(event: &dyn Display) {
    let _ = writeln!(io::stderr(), "ringfence: {event}");
}

fn deaf(socket: &Path, error: &io::Error) -> Failure {
    Failure::refused(
        format!("cannot listen at {}: {error}", socket.display()),
        "check the directory, or set XDG_RUNTIME_DIR to another one",
    )
}

/// Resolves when the other listener is stopped.
async fn until(mut stopped: watch::Receiver<bool>) {
    drop(stopped.wait_for(|stopped| *stopped).await);
}
