//! `ringfence keys`: the keys of the HTTP API.

use std::io;
use std::process::ExitCode;

use ringfence_server::api::{KeyStore, NewKey, StoredKey};
use serde_json::Value;

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
                let what = format!("there is no key `{}`", visible(id));
                return Err(Failure::refused(
                    what,
                    "a key is named by its id, which is the first column of `ringfence keys ls`",
                )
                .into());
            }
        },
    };
    context.ui.out(text)?;
    Ok(ExitCode::SUCCESS)
}

fn unusable(error: io::Error) -> Failure {
    Failure::refused(
        format!("cannot use the stored keys: {error}"),
        "check the directory `api-keys` in the state directory",
    )
}
