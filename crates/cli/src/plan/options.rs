//! Options of `ringfence run` that would have no effect on a run.

use ringfence_policy::{Access, Language, Mount, RuntimeKind};

use crate::args::{NetworkChoice, RunArgs};
use ringfence::Failure;

/// An option without effect.
struct Ignored {
    option: &'static str,
    why: &'static str,
    /// The remedy, beside leaving it out.
    instead: &'static str,
}

const LOCAL: &str = "pass `--runtime local`";
const FENCED: &str = "leave `--unfenced` out";

/// Rejects options that the runtime, the language or the missing fence would ignore.
pub(super) fn check(args: &RunArgs, language: Language, runtime: RuntimeKind) -> Result<(), Failure> {
    let ignored = match runtime {
        RuntimeKind::Local if args.unfenced => unfenced(args).map(|ignored| (ignored, "an unfenced run")),
        RuntimeKind::Local => None,
        RuntimeKind::Docker => in_container(args).map(|ignored| (ignored, "the runtime `docker`")),
        RuntimeKind::Podman => in_container(args).map(|ignored| (ignored, "the runtime `podman`")),
        RuntimeKind::Pyodide => in_pyodide(args, language)?.map(|ignored| (ignored, "the runtime `pyodide`")),
        // It refuses every run.
        RuntimeKind::E2b => return Ok(()),
    };
    if let Some((Ignored { option, why, instead }, place)) = ignored {
        return Err(Failure::usage(
            format!("`{option}` has no effect with {place}: {why}"),
            format!("leave `{option}` out, or {instead}"),
        ));
    }
    only_python(args, language)
}

/// Returns the first option that was given and is ignored.
fn first<const N: usize>(rows: [(bool, Ignored); N]) -> Option<Ignored> {
    let mut given = rows.into_iter().filter(|(given, _)| *given);
    given.next().map(|(_, ignored)| ignored)
}

const fn row(given: bool, option: &'static str, why: &'static str, instead: &'static str) -> (bool, Ignored) {
    (given, Ignored { option, why, instead })
}

fn unfenced(args: &RunArgs) -> Option<Ignored> {
    let no_network = args.network == Some(NetworkChoice::None);
    first([
        row(
            !args.mount.is_empty(),
            "--mount",
            "the program sees the files of this machine as they are",
            FENCED,
        ),
        row(
            no_network,
            "--network none",
            "the program has the network of this machine",
            FENCED,
        ),
    ])
}

fn in_container(args: &RunArgs) -> Option<Ignored> {
    let image = "choose an image that has it (`sandbox.docker.image`)";
    first([
        row(
            args.python.is_some(),
            "--python",
            "a container has the Python of its image",
            image,
        ),
        row(
            args.session.is_some(),
            "--session",
            "sessions exist in the local runtime only",
            LOCAL,
        ),
        row(
            args.unfenced,
            "--unfenced",
            "a container always has its fence",
            LOCAL,
        ),
    ])
}

fn in_pyodide(args: &RunArgs, language: Language) -> Result<Option<Ignored>, Failure> {
    if language != Language::Python {
        return Err(Failure::usage(
            format!("the runtime `pyodide` runs Python, and not {language}"),
            "pass another `--runtime`, or write Python",
        ));
    }
    let network = args.network == Some(NetworkChoice::Allowlist);
    let written = args
        .mount
        .iter()
        .any(|Mount { access, .. }| *access == Access::ReadWrite);
    Ok(first([
        row(
            args.python.is_some(),
            "--python",
            "Pyodide is a Python of its own",
            LOCAL,
        ),
        row(
            args.session.is_some(),
            "--session",
            "sessions exist in the local runtime only",
            LOCAL,
        ),
        row(
            args.unfenced,
            "--unfenced",
            "Pyodide always runs in the fence",
            LOCAL,
        ),
        row(network, "--network allowlist", "Pyodide has no network", LOCAL),
        row(
            !args.allow_host.is_empty(),
            "--allow-host",
            "Pyodide has no network",
            LOCAL,
        ),
        row(
            args.workspace.is_some(),
            "--workspace",
            "Pyodide has its files in memory",
            LOCAL,
        ),
        row(
            written,
            "--mount HOST:GUEST:rw",
            "files are copied into Pyodide's memory",
            "mount it read-only",
        ),
        row(args.cpus.is_some(), "--cpus", "Pyodide has one thread", LOCAL),
        row(args.pids.is_some(), "--pids", "Pyodide has one process", LOCAL),
    ]))
}

/// Rejects options that are about Python where the program is written in another language.
fn only_python(args: &RunArgs, language: Language) -> Result<(), Failure> {
    let refused = |message: String, option: &str| {
        Err(Failure::usage(
            message,
            format!("leave {option} out, or write Python"),
        ))
    };
    if language == Language::Python {
        return Ok(());
    }
    if args.session.is_some() {
        let message = format!("a session is a Python interpreter; it cannot run {language}");
        return refused(message, "`--session`");
    }
    if args.skills.is_some() || args.servers {
        let message = format!("skills are called from Python, not from {language}");
        return refused(message, "`--skills` and `--servers`");
    }
    Ok(())
}
