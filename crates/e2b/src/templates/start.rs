//! Sandboxes of templates: their settings, and the command that starts with them.

use std::collections::BTreeMap;
use std::pin::pin;
use std::task::Poll;

use ringfence_policy::{Account, Bytes, Outcome, Timeout};
use ringfence_sandbox::output::{Item, Reader};
use ringfence_sandbox::process::{CommandLine, NewProcess, Process};
use ringfence_sandbox::{NewSandbox, Sandbox, SandboxFence, SnapshotInfo, Template as Settings};

use crate::error::Error;

/// Time for a start command to be ready.
const READY: Timeout = Timeout::seconds(60);
/// Output of a failed command that its error shows.
const SHOWN: Bytes = Bytes(4 * 1024);

/// Returns a sandbox with the settings of the template, or the fence of the snapshot, that it is made of. `env` has the client's
/// variables, which come before the template's.
pub(crate) fn with_settings(
    new: NewSandbox,
    snapshot: Option<&SnapshotInfo>,
    env: BTreeMap<String, String>,
) -> Result<NewSandbox, Error> {
    let settings = snapshot.and_then(|snapshot| snapshot.template.clone());
    let Settings {
        env: mut all,
        directory,
        ..
    } = settings.unwrap_or_default();
    all.extend(env);
    let env = all.into_iter().map(|(name, value)| Ok((name.parse()?, value)));
    let env = env.collect::<Result<Vec<_>, ringfence_policy::ParseEnvNameError>>();
    let is_box = snapshot.is_some_and(|snapshot| snapshot.fence == Some(SandboxFence::Box));
    Ok(NewSandbox {
        account: if is_box { Account::Root } else { new.account },
        directory,
        user: snapshot.and_then(|snapshot| snapshot.user.clone()),
        env: env.map_err(|error| Error::invalid(format!("`envVars`: {error}")))?,
        ..new
    })
}

/// The TCP sockets of a sandbox's programs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Sockets {
    Some,
    None,
}

/// Returns `true` if a sandbox of the template starts with programs.
pub(crate) const fn has_commands(settings: &Settings) -> bool {
    settings.start.is_some() || settings.ready.is_some()
}

/// Starts the command of a template, if it has one, and waits until it is ready.
pub(crate) async fn start(sandbox: &Sandbox, settings: &Settings, sockets: Sockets) -> Result<(), Error> {
    let started = match &settings.start {
        Some(command) => Some(sandbox.start(shell(command.clone())).await?),
        None => None,
    };
    let Some(command) = &settings.ready else {
        return Ok(());
    };
    let waiting = NewProcess {
        timeout: Some(READY),
        ..shell(format!("until ( {command}\n) > /dev/null; do sleep 0.1; done"))
    };
    let collected = sandbox.run(waiting, SHOWN).await?;
    match collected.end.outcome {
        Outcome::Exited => Ok(()),
        _ => {
            let mut message = format!("the template's start command was not ready within {READY}");
            if sockets == Sockets::None {
                message.push_str(
                    ", and its programs have no TCP sockets: create the sandbox at an address below `--domain`, or with \
                     `allowPublicTraffic: true`",
                );
            }
            message.push_str("; the ready command's errors: ");
            message.push_str(or_none(collected.stderr.text.trim()));
            if let Some(started) = &started {
                message.push_str(&described(started).await);
            }
            Err(Error::internal(message))
        }
    }
}

fn or_none(text: &str) -> &str {
    if text.is_empty() { "none" } else { text }
}

/// Describes the state and the last output of a start command.
async fn described(started: &Process) -> String {
    let state = match started.output.ended() {
        Some(end) => format!("has ended with exit status {}", end.exit_code),
        None => "still runs".to_owned(),
    };
    let output = last_output(started.output.read_from(0)).await;
    let output = String::from_utf8_lossy(&output);
    format!(
        "; the start command {state}, and its output: {}",
        or_none(output.trim())
    )
}

/// Returns the last output that is there, of both streams.
async fn last_output(mut reader: Reader) -> Vec<u8> {
    let mut output = Vec::new();
    loop {
        let next = {
            let mut next = pin!(reader.next());
            std::future::poll_fn(|context| Poll::Ready(next.as_mut().poll(context))).await
        };
        match next {
            Poll::Ready(Some(Item::Chunk { chunk, .. })) => {
                output.extend(chunk.bytes);
                let most = usize::try_from(SHOWN.0).unwrap_or(usize::MAX);
                output.drain(..output.len().saturating_sub(most));
            }
            Poll::Ready(Some(Item::Lost(_))) => {}
            Poll::Ready(Some(Item::End(_)) | None) | Poll::Pending => return output,
        }
    }
}

fn shell(line: String) -> NewProcess {
    NewProcess {
        command: CommandLine::Shell(line),
        ..NewProcess::default()
    }
}
