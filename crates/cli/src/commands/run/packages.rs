//! The packages of a run.

use std::sync::Arc;

use ringfence::Error;
use ringfence::packages::{Checkout, Installer};
use ringfence_exec::backend::Backend;
use ringfence_tools::toolbox::Surface;

use crate::context::Context;
use crate::packages::{announce, interruptible};
use crate::plan::RunPlan;

/// Provides the packages of a plan, and adds them to its specification; `None` if the plan has no packages.
pub(super) async fn provide(
    plan: &mut RunPlan,
    backend: Arc<dyn Backend>,
    context: &Context,
) -> Result<Option<Checkout>, Error> {
    if plan.packages.is_empty() {
        return Ok(None);
    }
    let installer = Installer::new(backend, Surface::CommandLine, context)?;
    let (spec, packages) = (&mut plan.spec, &plan.packages);
    let announce = || announce(packages, &installer, context);
    let adding = async |cancelled| installer.add(spec, packages, announce, Some(cancelled)).await;
    Ok(Some(interruptible(adding).await?))
}
