//! Runs a program with a bridge to host functions.

use ringfence_exec::bridge::bridge;
use ringfence_exec::local::Connection;
use ringfence_policy::ExecutionResult;

use super::Gatekeeper;

/// Runs a program with `run` and a bridge to `gatekeeper` until it ends.
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
        // Calls in progress are cancelled when the program ends.
        result = &mut running => result,
        () = &mut serving => running.await,
    }?;
    result.meta.warnings.extend(gatekeeper.warnings());
    Ok(result)
}
