//! The packages of a sandbox.

use std::sync::Arc;

use ringfence::packages::{Checkout, Installer};
use ringfence::{local, settings};
use ringfence_args::SandboxCreateArgs;
use ringfence_exec::local::Warmth;
use ringfence_tools::toolbox::Surface;

use crate::backend::{self, Prepared};
use crate::context::Context;
use crate::packages::{announce, interruptible, named};

/// Provides the packages that the options name, for the server to open them by their key; `None` if they name none.
pub(super) async fn provide(args: &SandboxCreateArgs, context: &Context) -> anyhow::Result<Option<Checkout>> {
    let packages = named(&args.with)?;
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
    let scope = args.options.scope();
    let announce = || announce(&packages, &installer, context);
    let providing = async |cancelled| {
        installer
            .provide(&packages, &scope, announce, Some(cancelled))
            .await
    };
    let provided = interruptible(providing).await;
    backend.own().close().await;
    Ok(Some(provided?))
}
