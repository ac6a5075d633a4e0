//! `host_exec`: runs a command on this machine itself if the policy or a person allows it.

use std::path::Path;

use ringfence_network::egress::Resolver;
use ringfence_policy::Language;
use ringfence_policy::cascade::{Authority, Decision, Effect, Verdict, decide};
use schemars::JsonSchema;
use serde::Deserialize;

use crate::host::{
    HostSettings, LineDirectory, PathIdentity, TooMuch, apply_to, executable_config, obeyed, pinned, program,
    runs_code, secret,
};
use crate::render::ModelOutput;
use crate::toolbox::{Answer, Call, Clock, Effects, ErrorKind, Parts, ReviewInfo, Tool, ToolError};

pub(super) struct HostExec;

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct Arguments {
    /// Command line in bash syntax.
    #[schemars(length(min = 1, max = 10_000))]
    command: String,
}

impl Tool for HostExec {
    const NAME: &'static str = "host_exec";
    const TITLE: &'static str = "Run a command on the host";
    const DESCRIPTION: &'static str = "Runs a command on the user's machine itself, without a sandbox. What the user's lists allow runs at once; \
        anything else waits until the user approves or rejects it. Ask for one plain command rather than a long line: its \
        user has to read it. Prefer the sandboxed tools for everything that does not need the machine itself.";
    const EFFECTS: Effects = Effects::Destroys;
    const ON_HOST: bool = true;
    const CLOCK: Clock = Clock::Runner;
    type Arguments = Arguments;
    type Output = ();

    fn is_offered(parts: &Parts) -> bool {
        parts.host.is_some()
    }

    async fn call(call: &Call<'_>, arguments: Arguments) -> Result<Answer, ToolError> {
        let host = call.host()?;
        let line = arguments.command;
        let directory = call.directory(host);
        let mut decision = decide(&line, &host.rules);
        let obeys = look_beside(&line, &mut decision, &directory, host).await?;
        call.judged(&decision);
        let mut by = Authority::Policy;
        if decision.verdict == Verdict::Review {
            let place = place(&directory, host);
            let named = look(&line, &decision, &place).await?;
            let around = ReviewInfo {
                directory: &directory,
                named: &named,
                obeys,
            };
            by = call.review(&line, &decision, around).await?;
            // A model or a person has reviewed the line; the files that it names must still be the same.
            if let Some(path) = look(&line, &decision, &place).await?.changed_since(&named) {
                return Err(changed(&path));
            }
        }
        let mut request = call.terms().request(Language::Command);
        request.env.clear();
        request.limits.timeout = request.limits.timeout.min(host.timeout);
        let command = program(&line, &decision, by);
        if decision.verdict == Verdict::Notify {
            // Before it runs: cancelling the call must not prevent the notice.
            call.notify(&notice(&line)).await;
        }
        let output = call.command(&host.runner(), request, command, None).await?;
        Ok(Answer::text(ModelOutput::from(&output).text()))
    }
}

/// Maximum length of a line in a notice, in characters: every gateway can show it.
const MAX_TOLD: usize = 1_000;

/// Renders the notice of a line that runs. If truncated, it begins with the length.
fn notice(line: &str) -> String {
    match line.char_indices().nth(MAX_TOLD) {
        Some((end, _)) => {
            let whole = line.chars().count();
            format!(
                "runs on the host (the first {MAX_TOLD} of {whole} characters): {}",
                &line[..end]
            )
        }
        None => format!("runs on the host: {line}"),
    }
}

/// Requires approval if files on this machine make a line riskier than its text. Returns `true` if its
/// programs execute configuration that an agent could have written.
async fn look_beside(
    line: &str,
    decision: &mut Decision,
    directory: &Path,
    host: &HostSettings,
) -> Result<bool, ToolError> {
    let home = host.home().map(Path::to_path_buf);
    let (text, start, ledger) = (line.to_owned(), directory.to_path_buf(), host.ledger.clone());
    let config = on_a_thread(move || executable_config(&text, &start, home.as_deref(), &ledger)).await?;
    if let Some(file) = &config {
        apply_to(decision, file);
    }
    if decision.verdict != Verdict::Review {
        let place = place(directory, host);
        let (text, judged) = (line.to_owned(), decision.clone());
        if let Some(path) = on_a_thread(move || secret(&text, &judged, &place)).await? {
            let path = path.display().to_string();
            decision.ask(
                Effect::Secret,
                &format!("it opens {}, which may be a secret", path.escape_debug()),
            );
        }
    }
    if decision.verdict != Verdict::Review {
        let (place, judged, known) = (place(directory, host), decision.clone(), host.obeyed.clone());
        if let Some(path) = on_a_thread(move || obeyed(&judged, &place, &known)).await? {
            let path = path.display().to_string();
            decision.ask(
                Effect::Code,
                &format!(
                    "it makes or replaces {}, which may be run or obeyed",
                    path.escape_debug()
                ),
            );
        }
    }
    if decision.verdict != Verdict::Review {
        match pinned(decision, &Resolver::system()).await {
            Ok(pins) => decision.confine(line, &pins),
            Err(name) => decision.ask(Effect::Network, &format!("{name} has no public address")),
        }
    }
    Ok(config.is_some())
}

/// Runs blocking file access on a thread.
async fn on_a_thread<T: Send + 'static>(look: impl FnOnce() -> T + Send + 'static) -> Result<T, ToolError> {
    tokio::task::spawn_blocking(look).await.map_err(|_| {
        ToolError::new(
            ErrorKind::Internal,
            "the look at the files of the command panicked",
            "report this as a defect",
        )
    })
}

fn place(directory: &Path, host: &HostSettings) -> LineDirectory {
    LineDirectory {
        directory: directory.to_path_buf(),
        home: host.home().map(Path::to_path_buf),
        own: host.own.clone(),
    }
}

/// Fingerprints the files that a line names and could load, on a blocking thread.
async fn look(line: &str, decision: &Decision, place: &LineDirectory) -> Result<PathIdentity, ToolError> {
    let (line, place, runs_code) = (line.to_owned(), place.clone(), runs_code(decision));
    let looking = tokio::task::spawn_blocking(move || PathIdentity::by(&line, runs_code, &place));
    looking.await.unwrap_or(Err(TooMuch)).map_err(|TooMuch| {
        ToolError::new(
            ErrorKind::InvalidArguments,
            "the command names more files and directories than can be watched while it is reviewed",
            "name fewer at once, or put them into a script and ask for the script",
        )
    })
}

fn changed(path: &Path) -> ToolError {
    ToolError::new(
        ErrorKind::PermissionDenied,
        format!("{} changed while the command was reviewed", path.display()),
        "ask again: what would run now is not what was approved",
    )
}
