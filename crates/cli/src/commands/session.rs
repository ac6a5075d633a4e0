//! `ringfence session`: stateful interpreters of the server.

use std::path::PathBuf;
use std::process::ExitCode;

use ringfence_exec::local::SessionInfo;
use ringfence_policy::Limits;
use ringfence_server::client::{Client, Error};
use ringfence_server::wire::{SessionAction, SessionRequest, WireFence};

use crate::context::Context;
use crate::packages;
use crate::ui::{json, table};
use ringfence::Failure;
use ringfence::packages::{Checkout, named_for_session};
use ringfence::settings;
use ringfence_args::{ScopedListArgs, ScopedOptions, SessionCommand, SessionNewArgs};

pub(crate) fn run(command: &SessionCommand, context: &Context) -> anyhow::Result<ExitCode> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    let packages = match command {
        SessionCommand::New(args) => {
            // An installation for no server would be in vain.
            socket(context)?;
            let scope = args.options.scope();
            let named = named_for_session(&args.with, context)?;
            runtime.block_on(packages::provide(named, &scope, context))?.pop()
        }
        SessionCommand::Ls(_) | SessionCommand::Fork(_) | SessionCommand::Rm(_) => None,
    };
    let (action, options) = match command {
        SessionCommand::Ls(args) => (SessionAction::List, &args.options),
        SessionCommand::New(args) => (new(args, packages.as_ref(), context)?, &args.options),
        SessionCommand::Fork(args) => {
            let (from, to) = (args.from.clone(), args.to.clone());
            (SessionAction::Fork { from, to }, &args.options)
        }
        SessionCommand::Rm(args) => (SessionAction::Remove { id: args.id.clone() }, &args.options),
    };
    let shown = match command {
        SessionCommand::Ls(ScopedListArgs { quiet: true, .. }) => Shown::Names,
        SessionCommand::Ls(_) => Shown::List,
        SessionCommand::New(_) | SessionCommand::Fork(_) | SessionCommand::Rm(_) => Shown::Nothing,
    };
    let request = SessionRequest {
        scope: options.scope(),
        action,
    };
    let sessions = runtime.block_on(ask(&request, context))?;
    if shown == Shown::List && sessions.is_empty() && !options.json {
        context.ui.note("there are no sessions");
    }
    context.ui.out(printed(&sessions, options, shown)?)?;
    Ok(ExitCode::SUCCESS)
}

fn new(
    args: &SessionNewArgs,
    packages: Option<&Checkout>,
    context: &Context,
) -> anyhow::Result<SessionAction> {
    let config = context.config()?;
    let limits = settings::default_limits(config);
    Ok(SessionAction::New {
        id: args.id.clone(),
        limits: Limits {
            memory: args.memory.unwrap_or(limits.memory),
            cpus: args.cpus.unwrap_or(limits.cpus),
            pids: args.pids.unwrap_or(limits.pids),
            ..limits
        },
        // No configuration can ask for a session without a fence.
        fence: WireFence::of(config.sandbox.isolation.fence()).unwrap_or(WireFence::Default),
        packages: packages.map(|packages| packages.key.clone()),
    })
}

/// Returns the socket of the server.
fn socket(context: &Context) -> Result<PathBuf, Failure> {
    let socket = context.paths.socket_if_ours();
    socket.ok_or_else(Failure::no_engine_for_sessions)
}

async fn ask(request: &SessionRequest, context: &Context) -> Result<Vec<SessionInfo>, Failure> {
    let socket = socket(context)?;
    let mut client = Client::connect(&socket)
        .await
        .map_err(|_| Failure::no_engine_for_sessions())?;
    client.sessions(request).await.map_err(|error| match error {
        Error::Refused(refusal) => {
            let kind = refusal.kind();
            Failure::refused(refusal.message, refusal.hint).of(kind)
        }
        Error::Unread(_) => Failure::no_engine_for_sessions(),
        error @ (Error::Declined(_) | Error::Broken(_) | Error::Answer(_)) => Failure::refused(
            error.to_string(),
            "check the server; `ringfence session ls` shows which sessions there are",
        ),
    })
}

/// The part of the sessions that is printed, without `--json`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Shown {
    Nothing,
    Names,
    List,
}

fn printed(sessions: &[SessionInfo], options: &ScopedOptions, shown: Shown) -> serde_json::Result<String> {
    if options.json {
        return json(sessions);
    }
    let header = ["ID", "STATE", "EVALUATIONS", "MEMORY", "AGE", "FORKED FROM"];
    Ok(match shown {
        Shown::Nothing => String::new(),
        Shown::Names => sessions
            .iter()
            .map(|session| format!("{}\n", session.id.as_str()))
            .collect(),
        Shown::List => table(header, sessions.iter().map(row)),
    })
}

/// Returns the cells of a session in a list.
fn row(session: &SessionInfo) -> [String; 6] {
    let state = match session.idle_seconds {
        Some(seconds) => format!("idle {}", duration(seconds)),
        None => "evaluating".to_owned(),
    };
    let memory = session
        .memory_bytes
        .map(|bytes| format!("{} MiB", bytes.div_ceil(1024 * 1024)));
    [
        session.id.as_str().to_owned(),
        state,
        session.evaluations.to_string(),
        memory.unwrap_or_default(),
        duration(session.age_seconds),
        session
            .forked_from
            .as_ref()
            .map(ToString::to_string)
            .unwrap_or_default(),
    ]
}

fn duration(seconds: f64) -> String {
    match seconds as u64 {
        seconds @ ..60 => format!("{seconds}s"),
        seconds @ 60..3600 => format!("{}m", seconds / 60),
        seconds => format!("{}h {}m", seconds / 3600, seconds / 60 % 60),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_session_has_a_row() {
        let session = SessionInfo {
            id: "data".parse().unwrap(),
            age_seconds: 3_725.0,
            idle_seconds: Some(61.0),
            evaluations: 1,
            memory_bytes: Some(1 << 20),
            forked_from: Some("first".parse().unwrap()),
        };
        assert_eq!(row(&session), ["data", "idle 1m", "1", "1 MiB", "1h 2m", "first"]);
    }
}
