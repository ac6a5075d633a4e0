//! Sandboxes of templates: their settings, and the command that starts with them.

use std::collections::BTreeMap;

use ringfence_policy::{Account, Bytes, Outcome, Timeout};
use ringfence_sandbox::process::{CommandLine, NewProcess};
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
        env: env.map_err(|error| Error::invalid(format!("`envVars`: {error}")))?,
        ..new
    })
}

/// Starts the command of a template, if it has one, and waits until it is ready.
pub(crate) async fn start(sandbox: &Sandbox, settings: &Settings) -> Result<(), Error> {
    if let Some(command) = &settings.start {
        sandbox.start(shell(command.clone())).await?;
    }
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
        _ => Err(Error::internal(format!(
            "the template's start command was not ready within {READY}: {}",
            collected.stderr.text
        ))),
    }
}

fn shell(line: String) -> NewProcess {
    NewProcess {
        command: CommandLine::Shell(line),
        ..NewProcess::default()
    }
}
