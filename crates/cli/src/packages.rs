//! Packages that options name.

use std::io::{self, IsTerminal};

use ringfence::Failure;
use ringfence::packages::{Installer, Requirement, parse_list};
use tokio::sync::watch;

use crate::context::Context;
use ringfence_gateway_protocol::interrupted;

/// Returns the packages that `--with` names, each once.
pub(crate) fn named(names: &[String]) -> Result<Vec<Requirement>, Failure> {
    if names.is_empty() {
        return Ok(Vec::new());
    }
    parse_list(&names.join(",")).map_err(|error| {
        Failure::usage(
            format!("--with: {error}"),
            "name packages as in `--with pandas,seaborn==0.13`",
        )
    })
}

/// Says on a terminal that packages are installed: it takes seconds, and nothing else says why.
pub(crate) fn announce(packages: &[Requirement], installer: &Installer, context: &Context) {
    if io::stderr().is_terminal() {
        let names: Vec<String> = packages.iter().map(ToString::to_string).collect();
        let index = installer.index();
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
