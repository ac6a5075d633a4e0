//! Packages that options name.

use std::io::{self, IsTerminal};
use std::sync::Arc;

use ringfence::packages::{Checkout, Installer, Requirement, named};
use ringfence::{Failure, local, settings};
use ringfence_exec::local::Warmth;
use ringfence_policy::{Language, Scope};
use ringfence_tools::toolbox::Surface;
use tokio::sync::watch;

use crate::backend::{self, Prepared};
use crate::context::Context;
use ringfence_gateway_protocol::interrupted;

/// Provides the Python packages that the options name. The server opens them by their key, for a sandbox or a
/// session. `None` without packages.
pub(crate) async fn provide(
    names: &[String],
    scope: &Scope,
    context: &Context,
) -> anyhow::Result<Option<Checkout>> {
    let packages = named(names, Language::Python)?;
    if packages.is_empty() {
        return Ok(None);
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
    let announce = || announce(&packages, &installer, context);
    let providing = async |cancelled| {
        installer
            .provide(&packages, scope, announce, Some(cancelled))
            .await
    };
    let provided = interruptible(providing).await;
    backend.own().close().await;
    let provided = provided?;
    if let Some(warning) = &provided.warning {
        context.ui.warn(warning);
    }
    Ok(Some(provided))
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
