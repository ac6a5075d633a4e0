//! Runs small test programs through the regular path.

use std::collections::HashMap;
use std::io;

use ringfence_policy::{
    ExecutionResult, Isolation, Language, Limits, Outcome, Remedy, Request, Timeout, remedy,
};

use super::fixes;
use super::layer::{Layer, Situation};
use super::machine::Machine;
use crate::local::{Connection, Error, Fence, Local, Settings};

/// The results of the test runs.
#[derive(Debug)]
pub(super) struct Runs {
    /// Runs with the default fence, one per language.
    by_language: HashMap<Language, Result<ExecutionResult, Error>>,
    /// A run with every layer required.
    required: Result<ExecutionResult, Error>,
}

pub(super) async fn try_all(settings: &Settings) -> Runs {
    let local = Local::new(settings.clone());
    let mut by_language = HashMap::new();
    for language in [Language::Python, Language::Bash, Language::Javascript] {
        by_language.insert(language, run(&local, language, Fence::Default).await);
    }
    // Any language that works: this tests the fence only.
    let language = [Language::Python, Language::Bash, Language::Javascript]
        .into_iter()
        .find(|language| by_language.get(language).is_some_and(Result::is_ok))
        .unwrap_or(Language::Bash);
    let required = run(&local, language, Fence::Required).await;
    // Failed clean-up is left to the next start's sweep.
    local.close().await;
    Runs {
        by_language,
        required,
    }
}

async fn run(local: &Local, language: Language, fence: Fence) -> Result<ExecutionResult, Error> {
    let code = match language {
        Language::Python => "print('works')",
        Language::Bash => "echo works",
        Language::Javascript => "console.log('works')",
        Language::Command => "",
    };
    let request = Request {
        name: "doctor".to_owned(),
        limits: Limits {
            timeout: Timeout::seconds(10),
            ..Limits::DEFAULT
        },
        ..Request::new(language, code)
    };
    let connection = Connection {
        stdin: None,
        output: None,
        cancelled: None,
        bridge: None,
    };
    local.run(&request, fence, None, connection).await
}

impl Runs {
    /// Returns the successful run of a language, or the problem with a hint.
    pub(super) fn language(&self, language: Language) -> Result<&ExecutionResult, (String, Remedy)> {
        match self.by_language.get(&language) {
            Some(Ok(result)) if worked(result) => Ok(result),
            Some(Ok(result)) => Err((
                format!(
                    "a program did not print what it should: {} {}",
                    outcome(result.meta.outcome),
                    result.stderr.lines().last().unwrap_or_default()
                ),
                remedy::Run::ReportInterpreter.into(),
            )),
            Some(Err(error)) => Err((chain(error), error.hint())),
            None => Err(("not tried".to_owned(), "".into())),
        }
    }

    fn default_run(&self) -> Result<&ExecutionResult, (String, Remedy)> {
        self.language(Language::Python)
    }

    /// Returns a successful run of any language.
    fn any(&self) -> Option<&ExecutionResult> {
        let order = [Language::Python, Language::Bash, Language::Javascript];
        order
            .into_iter()
            .find_map(|language| self.language(language).ok())
    }

    /// Returns the entry of the run with every layer required.
    pub(super) fn fence(&self, machine: &Machine) -> Layer {
        const NAME: &str = "whole fence";
        match &self.required {
            Ok(result) if worked(result) => {
                Layer::ok(NAME, format!("a program ran within {}", layers_of(result)))
            }
            Ok(result) => Layer::missing(
                NAME,
                format!("it was put up, but the program {}", outcome(result.meta.outcome)),
                Remedy::from(remedy::Run::Report),
            ),
            Err(Error::NamespacesForbidden { step, errno }) => Layer::missing(
                NAME,
                format!("cannot {step}: {}", io::Error::from_raw_os_error(*errno)),
                fixes::namespaces(machine, *errno),
            ),
            Err(error @ Error::NoControlGroups { .. }) => {
                Layer::missing(NAME, chain(error), fixes::groups(machine))
            }
            Err(error) => Layer::missing(NAME, chain(error), error.hint()),
        }
    }

    pub(super) fn situation(&self, machine: &Machine) -> Situation {
        match self.default_run() {
            Err(_) => Situation::None,
            Ok(result) if !isolation_of(result).user_ns => Situation::Flat,
            Ok(_) if machine.is_root() && machine.host_ids => Situation::Root,
            Ok(_) => Situation::UserNamespace,
        }
    }

    pub(super) fn verdict(&self, machine: &Machine) -> String {
        let what = match self.situation(machine) {
            Situation::Root => "root fence",
            Situation::UserNamespace if matches!(self.required, Err(Error::NoControlGroups { .. })) => {
                "user-namespace fence (without control groups, runs that require the whole fence are refused)"
            }
            Situation::UserNamespace => "user-namespace fence",
            Situation::Flat => {
                "flat fence (namespaces are forbidden here; runs that require the whole fence are refused)"
            }
            Situation::None => return self.refusal(),
        };
        let got = self.any().map_or(String::new(), layers_of);
        format!("{what}: a default run gets {got}")
    }

    /// Describes why a default run, which is one of Python, is rejected; names other languages that work.
    fn refusal(&self) -> String {
        let why = self.default_run().err().map_or(String::new(), |(why, _)| why);
        let others: Vec<&str> = [Language::Bash, Language::Javascript]
            .into_iter()
            .filter(|language| self.language(*language).is_ok())
            .map(Language::as_str)
            .collect();
        match (self.any(), others.is_empty()) {
            (Some(result), false) => format!(
                "a default run is refused: {why} ({} runs, within {})",
                others.join(" and "),
                layers_of(result)
            ),
            _ => format!("a default run is refused: {why}"),
        }
    }
}

fn worked(result: &ExecutionResult) -> bool {
    result.meta.outcome == Outcome::Exited && result.exit_code == 0 && result.stdout == "works\n"
}

fn outcome(outcome: Outcome) -> &'static str {
    match outcome {
        Outcome::Exited => "exited",
        Outcome::TimedOut => "timed out",
        Outcome::MemoryExceeded => "exceeded its memory",
        Outcome::Signalled => "was killed by a signal",
        Outcome::Blocked => "was blocked",
        Outcome::Cancelled => "was cancelled",
        Outcome::Unknown => "was lost",
    }
}

fn isolation_of(result: &ExecutionResult) -> &Isolation {
    // Only runs on other machines have none.
    result.meta.isolation.as_ref().unwrap_or(&Isolation::NONE)
}

/// Lists the layers of a run, in words.
fn layers_of(result: &ExecutionResult) -> String {
    let isolation = isolation_of(result);
    let namespaces: Vec<&str> = [
        (isolation.user_ns, "user"),
        (isolation.pid_ns, "pid"),
        (isolation.mount_ns, "mount"),
        (isolation.net_ns, "net"),
        (isolation.ipc_ns, "ipc"),
        (isolation.uts_ns, "uts"),
        (isolation.cgroup_ns, "cgroup"),
        (isolation.time_ns, "time"),
    ]
    .into_iter()
    .filter_map(|(held, name)| held.then_some(name))
    .collect();
    let mut layers = Vec::new();
    if !namespaces.is_empty() {
        layers.push(format!("{} namespaces", namespaces.join(", ")));
    }
    if isolation.landlock_abi > 0 {
        layers.push(format!("Landlock ABI {}", isolation.landlock_abi));
    }
    layers.extend(
        isolation
            .seccomp
            .as_ref()
            .map(|name| format!("the seccomp filter `{name}`")),
    );
    if isolation.no_new_privs && isolation.capabilities_dropped {
        layers.push("no privileges".to_owned());
    }
    layers.push(match &isolation.cgroup {
        Some(version) => format!("cgroup {version} limits"),
        None => "limits for each process alone (no control groups)".to_owned(),
    });
    layers.join("; ")
}

fn chain(error: &Error) -> String {
    let mut text = error.to_string();
    let mut source = std::error::Error::source(error);
    while let Some(error) = source {
        text.push_str(&format!(": {error}"));
        source = error.source();
    }
    text
}
