//! `ringfence keys`: the keys of the HTTP API.

use std::io;
use std::process::ExitCode;
use std::time::{Duration, SystemTime};

use ringfence_client::Client;
use ringfence_policy::Quota;
use ringfence_policy::Scope;
use ringfence_records::audit::{AuditedCaller, Operation, Outcome};
use ringfence_sandbox::SnapshotStore;
use ringfence_server::api::{
    EndKeyError, KeyForm, KeyStore, NewKey, Revoked, StoredKey, public_id, shown_id,
};
use ringfence_server::remains::Remains;
use ringfence_server::usage::{ReportedKey, Usage, UsageError, UsageReport};
use ringfence_tools::toolbox::{ErrorKind, Surface};
use serde_json::{Value, json};

use super::sandbox::failure;
use crate::context::Context;
use crate::ui::{json as to_json, visible};
use ringfence::{Failure, audit, container, settings, toolbox};
use ringfence_args::{KeysCommand, KeysCreateArgs};

pub(crate) fn run(command: &KeysCommand, context: &Context) -> anyhow::Result<ExitCode> {
    let store = KeyStore::below(context.paths.make_state()?);
    let text = match command {
        KeysCommand::Create(args) => create(args, &store, context)?,
        KeysCommand::Ls { json: true, .. } => {
            let keys = store.list().map_err(unusable)?.into_iter();
            to_json(&keys.map(StoredKey::shown).collect::<Vec<_>>())?
        }
        KeysCommand::Ls { quiet, .. } => match (store.list().map_err(unusable)?, quiet) {
            (keys, true) => keys.iter().map(|key| format!("{}\n", key.id)).collect(),
            (keys, false) if keys.is_empty() => {
                context.ui.note("there are no keys");
                String::new()
            }
            (keys, false) => StoredKey::table(&keys),
        },
        KeysCommand::Revoke { id } => revoke(id, &store, context)?,
        KeysCommand::Usage { json: true } => to_json(&usage(context)?)?,
        KeysCommand::Usage { json: false } => {
            let report = usage(context)?;
            report.keys.iter().map(ReportedKey::to_line).collect()
        }
        KeysCommand::Rm { id } => {
            let id = public_id(id);
            remove(&id, &store, context)?;
            format!("removed {}\n", visible(&id))
        }
    };
    context.ui.out(text)?;
    Ok(ExitCode::SUCCESS)
}

/// Revokes a key, given by its id or in full.
fn revoke(key: &str, store: &KeyStore, context: &Context) -> anyhow::Result<String> {
    let id = public_id(key);
    match store.revoke(&id).map_err(unusable)? {
        Revoked::Now => {
            record("key.revoke", &json!({ "id": &*id }), context)?;
            Ok(format!("revoked {id}\n"))
        }
        Revoked::Before => Ok(format!("{id} was revoked before\n")),
        Revoked::Unknown => {
            let what = format!("there is no key `{}` to revoke", shown_id(key));
            let hint = "a key is named by its id, the first column of `ringfence keys ls`, and not by its name or tenant";
            Err(Failure::refused(what, hint).of(ErrorKind::NotFound).into())
        }
    }
}

/// Creates a key, and returns it as it is printed.
fn create(args: &KeysCreateArgs, store: &KeyStore, context: &Context) -> anyhow::Result<String> {
    check(args)?;
    let new = NewKey {
        name: args.name.clone(),
        rights: args.rights.clone(),
        days: args.days,
        tenant: args.tenant.clone(),
        form: args.e2b.as_ref().map_or(KeyForm::Own, |_| KeyForm::E2b),
        quota: Quota {
            cpu_seconds: args.quota_cpu.map(|time| time.seconds),
            runs: args.quota_runs,
            memory_gib_seconds: args.quota_memory,
            egress_bytes: args.quota_egress.map(|size| size.0),
            sandboxes: args.quota_sandboxes,
        },
    };
    let (key, stored) = store.create(new).map_err(unusable)?;
    warn_of_unlimited(&stored, store, context)?;
    let id = stored.id.clone();
    let mut object = serde_json::to_value(stored.shown())?;
    if let Err(error) = record("key.create", &object, context) {
        // Nobody has it yet.
        store.revoke(&id).map_err(unusable)?;
        return Err(error);
    }
    match (args.json, &args.e2b) {
        (true, _) => {
            object["key"] = key.into();
            Ok(to_json(&object)?)
        }
        (false, None) => Ok(key + "\n"),
        // The domain does not exist: what would go to E2B fails on this machine.
        (false, Some(url)) => Ok(format!(
            "export E2B_API_KEY={key}\nexport E2B_API_URL={url}\nexport E2B_SANDBOX_URL={url}\nexport E2B_DOMAIN=ringfence.invalid\n"
        )),
    }
}

/// Appends an operation on a key to the audit log, as the server does for those over HTTP.
fn record(name: &str, arguments: &Value, context: &Context) -> anyhow::Result<()> {
    let scope = Scope::local();
    let operation = Operation {
        who: AuditedCaller {
            scope: scope.as_str(),
            session: None,
            surface: Surface::CommandLine.as_str(),
            client: None,
        },
        name,
        arguments,
        started: SystemTime::now(),
        duration: Duration::ZERO,
        outcome: Outcome::Answered,
        error: None,
    };
    toolbox::operations_log(context)?
        .append(&operation)
        .map_err(audit::failure)?;
    Ok(())
}

/// Warns if a new key has no quota, and other keys of its tenant have one.
fn warn_of_unlimited(new: &StoredKey, store: &KeyStore, context: &Context) -> anyhow::Result<()> {
    let Some(tenant) = new.tenant.as_ref().filter(|_| new.quota == Quota::default()) else {
        return Ok(());
    };
    let others = store.list().map_err(unusable)?;
    let limited = others
        .iter()
        .any(|key| key.tenant.as_ref() == Some(tenant) && key.quota != Quota::default());
    if limited {
        context.ui.err(format!(
            "warning: other keys of the tenant `{}` have a quota, which does not limit this one\n",
            tenant.as_str()
        ))?;
    }
    Ok(())
}

/// Refuses a key without a name, and quotas that allow nothing.
fn check(args: &KeysCreateArgs) -> Result<(), Failure> {
    if args.name.trim().is_empty() {
        return Err(Failure::usage(
            "expected a name for the key, got nothing".to_owned(),
            "name its purpose, such as `ci`: `ringfence keys ls` shows it",
        ));
    }
    let cpu = args.quota_cpu.map(|time| time.seconds);
    let egress = args.quota_egress.map(|size| size.0);
    let quotas = [
        ("--quota-cpu", cpu),
        ("--quota-runs", args.quota_runs),
        ("--quota-memory", args.quota_memory),
        ("--quota-egress", egress),
        ("--quota-sandboxes", args.quota_sandboxes),
    ];
    for (flag, quota) in quotas {
        if quota == Some(0) {
            return Err(Failure::usage(
                format!("`{flag}`: expected at least 1, got 0"),
                "leave it out for a key without this limit; a key that may run nothing has other rights, such as `--rights admin`",
            ));
        }
    }
    Ok(())
}

/// Returns the places of files that the runs of keys leave.
pub(super) fn remains(context: &Context) -> anyhow::Result<Remains> {
    Ok(Remains {
        runs: settings::store(context)?,
        outputs: container::outputs(context),
        approvals: toolbox::approvals(context)?,
    })
}

/// Asks the server that runs. `None` if there is none.
fn ask<T, F>(context: &Context, ask: impl FnOnce(Client) -> F) -> anyhow::Result<Option<T>>
where
    F: Future<Output = Result<T, ringfence_client::Error>>,
{
    let Some(socket) = context.paths.socket_if_ours() else {
        return Ok(None);
    };
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    match runtime.block_on(ask(Client::new(&socket))) {
        Err(ringfence_client::Error::Connect { .. }) => Ok(None),
        answered => answered.map(Some).map_err(failure),
    }
}

/// Returns the usage of all keys; from the file, if no server runs.
fn usage(context: &Context) -> anyhow::Result<UsageReport> {
    if let Some(report) = ask(context, |client| async move { client.usage().await })? {
        return Ok(report);
    }
    let usage = Usage::open(context.paths.make_state()?).map_err(no_usage)?;
    Ok(usage.report(None).map_err(unusable)?)
}

/// Removes a key, through the server if one runs, since it knows the key's live sandboxes.
fn remove(id: &str, store: &KeyStore, context: &Context) -> anyhow::Result<()> {
    let removed = ask(context, |client| async move { client.remove_key(id).await })?;
    if removed.is_some() {
        return Ok(());
    }
    // No server starts meanwhile.
    let _lock = context.lock_state()?;
    let refused = |error: EndKeyError| Failure::refused(error.to_string(), error.hint());
    let ended = store.ended(id).map_err(refused)?;
    if let Some(scope) = store.removed_with(&ended).map_err(unusable)? {
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
        let removed = remains(context)?.remove(&scope);
        removed.map_err(|error| Failure::refused(error.to_string(), error.hint()))?;
    }
    let usage = Usage::open(&context.paths.state).map_err(no_usage)?;
    usage.remove_with(&ended).map_err(no_usage)?;
    store.remove(&ended).map_err(unusable)?;
    record("key.remove", &json!({"id": ended.id}), context)
}

pub(super) fn no_usage(error: UsageError) -> Failure {
    Failure::refused(error.to_string(), error.hint())
}

fn unusable(error: io::Error) -> Failure {
    Failure::refused(
        format!("cannot use the stored keys: {error}"),
        "check the directory `api-keys` in the state directory",
    )
}
