//! `ringfence keys`: the keys of the HTTP API.

use std::io;
use std::process::ExitCode;

use ringfence_client::Client;
use ringfence_sandbox::SnapshotStore;

use ringfence_server::api::{KeyStore, NewKey, RemoveKeyError, StoredKey};
use serde_json::Value;

use super::sandbox::failure;

use crate::context::Context;
use crate::ui::{json, visible};
use ringfence::Failure;
use ringfence_args::KeysCommand;

pub(crate) fn run(command: &KeysCommand, context: &Context) -> anyhow::Result<ExitCode> {
    let store = KeyStore::below(context.paths.make_state()?);
    let text = match command {
        KeysCommand::Create(args) => {
            let new = NewKey {
                name: args.name.clone(),
                rights: args.rights.clone(),
                days: args.days,
            };
            let (key, stored) = store.create(new).map_err(unusable)?;
            match args.json {
                true => {
                    let mut object = stored.to_json();
                    object["key"] = key.into();
                    json(&object)?
                }
                false => key + "\n",
            }
        }
        KeysCommand::Ls { json: true } => {
            let keys: Vec<Value> = store
                .list()
                .map_err(unusable)?
                .iter()
                .map(StoredKey::to_json)
                .collect();
            json(&keys)?
        }
        KeysCommand::Ls { json: false } => {
            let lines = store
                .list()
                .map_err(unusable)?
                .iter()
                .map(StoredKey::to_line)
                .collect::<String>();
            context.ui.out(lines)?;
            return Ok(ExitCode::SUCCESS);
        }
        KeysCommand::Revoke { id } => match store.revoke(id).map_err(unusable)? {
            true => format!("revoked {}\n", visible(id)),
            false => {
                let what = format!("there is no key `{}` to revoke", visible(id));
                return Err(Failure::refused(
                    what,
                    "a key is named by its id, which is the first column of `ringfence keys ls`",
                )
                .into());
            }
        },
        KeysCommand::Rm { id } => {
            remove(id, &store, context)?;
            format!("removed {}\n", visible(id))
        }
    };
    context.ui.out(text)?;
    Ok(ExitCode::SUCCESS)
}

/// Removes a key, by the server if one runs: it knows what lives.
fn remove(id: &str, store: &KeyStore, context: &Context) -> anyhow::Result<()> {
    if let Some(socket) = context.paths.socket_if_ours() {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()?;
        match runtime.block_on(Client::new(&socket).remove_key(id)) {
            Err(ringfence_client::Error::Connect { .. }) => {}
            removed => return removed.map_err(failure),
        }
    }
    // No server starts meanwhile.
    let _lock = context.paths.lock_state()?;
    let refused = |error: RemoveKeyError| Failure::refused(error.to_string(), error.hint());
    let ended = store.ended(id).map_err(refused)?;
    if let Some(scope) = ended.scope() {
        let snapshots = context.paths.state.join("snapshots");
        let cleared = SnapshotStore::open(&snapshots).map_err(|error| error.to_string());
        cleared
            .and_then(|snapshots| snapshots.clear(&scope).map_err(|error| error.to_string()))
            .map_err(|error| {
                Failure::refused(
                    format!("cannot remove the snapshots of the key: {error}"),
                    "check the directory `snapshots` in the state directory, then try again",
                )
            })?;
    }
    store.remove(&ended).map_err(unusable)?;
    Ok(())
}

fn unusable(error: io::Error) -> Failure {
    Failure::refused(
        format!("cannot use the stored keys: {error}"),
        "check the directory `api-keys` in the state directory",
    )
}
