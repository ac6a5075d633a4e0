//! Packages that options name.

use std::io::{self, IsTerminal};
use std::sync::Arc;

use ringfence::packages::{Checkout, Installer, Requirement};
use ringfence::{Failure, local, settings};
use ringfence_exec::local::Warmth;
use ringfence_policy::Scope;
use ringfence_tools::toolbox::Surface;
use tokio::sync::watch;

use crate::backend::{self, Prepared};
use crate::context::Context;
use ringfence_gateway_protocol::interrupted;

/// Provides packages, a set for each of their ecosystems. The server opens them by their keys, for a sandbox or a session.
pub(crate) async fn provide(
    packages: Vec<Requirement>,
    scope: &Scope,
    context: &Context,
) -> anyhow::Result<Vec<Checkout>> {
    if packages.is_empty() {
        return Ok(Vec::new());
    }
    let settings = local::settings(&settings::settings(context)?, Warmth::Cold, context)?;
    let socket = context.paths.socket_if_ours();
    let backend = Arc::new(backend::server_or_local(
        socket,
        settings,
        Prepared::default(),
        context,
    )?);
    let installer = Installer::new(backend.clone(), Surface::CommandLine, context)?;
    let announce = |packages: &[Requirement]| announce(packages, &installer, context);
    let providing = async |cancelled| installer.provide(&packages, scope, announce, cancelled).await;
    let provided = interruptible(providing).await;
    backend.own().close().await;
    let provided = provided?;
    for warning in provided.iter().filter_map(|set| set.warning.as_ref()) {
        context.ui.warn(warning);
    }
    Ok(provided)
}

/// Reports on a terminal that packages are being installed, which takes seconds.
pub(crate) fn announce(packages: &[Requirement], installer: &Installer, context: &Context) {
    if io::stderr().is_terminal() {
        let names: Vec<String> = packages.iter().map(ToString::to_string).collect();
        let index = packages
            .first()
            .map(|first| installer.index_of(first.ecosystem()));
        let index = index.map(ToString::to_string).unwrap_or_default();
        context
            .ui
            .note(&format!("installing {} from {index}", names.join(", ")));
    }
}

/// Awaits an installation, which a signal cancels.
pub(crate) async fn interruptible<T>(
    installing: impl AsyncFnOnce(watch::Receiver<bool>) -> Result<T, Failure>,
) -> Result<T, Failure> {
    let (cancel, cancelled) = watch::channel(false);
    let installing = installing(cancelled);
    tokio::pin!(installing);
    tokio::select! {
        installed = &mut installing => installed,
        () = interrupted() => {
            cancel.send_replace(true);
            installing.await
        }
    }
}
