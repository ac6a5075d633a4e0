//! A run with the host's functions at hand.

use ringfence_policy::ExecutionResult;

use super::Gatekeeper;
use crate::bridge::bridge;
use crate::local::Connection;

/// Has `run` run a program with a bridge to `gatekeeper`, for as long as it runs.
///
/// # Errors
/// As `run`.
pub async fn bridged<E>(
    gatekeeper: &Gatekeeper<'_>,
    connection: Connection,
    run: impl AsyncFnOnce(Connection) -> Result<ExecutionResult, E>,
) -> Result<ExecutionResult, E> {
    let (line, duct) = bridge();
    let connection = Connection {
        bridge: Some(duct),
        ..connection
    };
    let (running, serving) = (run(connection), gatekeeper.serve(line));
    tokio::pin!(running, serving);
    let mut result = tokio::select! {
        // Calls that are under way when the program ends are taken back.
        result = &mut running => result,
        () = &mut serving => running.await,
    }?;
    result.meta.warnings.extend(gatekeeper.warnings());
    Ok(result)
}
