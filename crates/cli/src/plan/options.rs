//! Options of `ringfence run` that would have no effect on a run.

use ringfence_policy::{Access, Family, Feature, Lack, Language, RuntimeKind};

use ringfence::Failure;
use ringfence_args::{NetworkChoice, RunArgs};

/// An option without effect.
struct Ignored {
    option: &'static str,
    why: &'static str,
    /// The remedy, beside leaving it out.
    instead: &'static str,
}

/// Rejects options that the runtime, the language or the missing fence would ignore.
pub(super) fn check(args: &RunArgs, language: Language, runtime: RuntimeKind) -> Result<(), Failure> {
    if language != Language::Python && runtime.lacks(Feature::OtherLanguages) {
        return Err(Failure::usage(
            format!("the runtime `{runtime}` runs Python, and not {language}"),
            "pass another `--runtime`, or write Python",
        ));
    }
    let ignored = match lacking(args, runtime) {
        Some(ignored) => Some((ignored, format!("the runtime `{runtime}`"))),
        None if args.unfenced => unfenced(args).map(|ignored| (ignored, "an unfenced run".to_owned())),
        None => None,
    };
    if let Some((Ignored { option, why, instead }, place)) = ignored {
        return Err(Failure::usage(
            format!("`{option}` has no effect with {place}: {why}"),
            format!("leave `{option}` out, or {instead}"),
        ));
    }
    only_python(args, language)
}

/// Returns the first given option that asks for a feature that the runtime lacks.
fn lacking(args: &RunArgs, runtime: RuntimeKind) -> Option<Ignored> {
    let traits = runtime.traits();
    traits.lacks.iter().find_map(|Lack { feature, why }| {
        Some(Ignored {
            option: asking(args, *feature)?,
            why,
            instead: match (feature, traits.family) {
                (Feature::Interpreter, Family::Container) => {
                    "choose an image that has it (`sandbox.docker.image`)"
                }
                (Feature::WritableMount, _) => "mount it read-only",
                _ => "pass `--runtime local`",
            },
        })
    })
}

/// Returns the given option that asks for a feature.
fn asking(args: &RunArgs, feature: Feature) -> Option<&'static str> {
    let is_written = || args.mount.iter().any(|mount| mount.access == Access::ReadWrite);
    let (given, option) = match feature {
        Feature::OtherLanguages => return None,
        Feature::Interpreter => (args.python.is_some(), "--python"),
        Feature::Session => (args.session.is_some(), "--session"),
        Feature::Unfenced => (args.unfenced, "--unfenced"),
        Feature::Network if args.network == Some(NetworkChoice::Allowlist) => (true, "--network allowlist"),
        Feature::Network => (!args.allow_host.is_empty(), "--allow-host"),
        Feature::Workspace => (args.workspace.is_some(), "--workspace"),
        Feature::Mount => (!args.mount.is_empty(), "--mount"),
        Feature::WritableMount => (is_written(), "--mount HOST:GUEST:rw"),
        Feature::Skills if args.servers => (true, "--servers"),
        Feature::Skills => (args.skills.is_some(), "--skills"),
        Feature::Memory => (args.memory.is_some(), "--memory"),
        Feature::Cpus => (args.cpus.is_some(), "--cpus"),
        Feature::Pids => (args.pids.is_some(), "--pids"),
        Feature::Image => (args.image.is_some(), "--image"),
        Feature::Disk => (args.disk.is_some(), "--disk"),
    };
    given.then_some(option)
}

/// Returns the first given option that has an effect only in a fence.
fn unfenced(args: &RunArgs) -> Option<Ignored> {
    let (option, why) = if !args.mount.is_empty() {
        (
            "--mount",
            "the program sees the files of this machine as they are",
        )
    } else if args.network == Some(NetworkChoice::None) {
        ("--network none", "the program has the network of this machine")
    } else {
        return None;
    };
    Some(Ignored {
        option,
        why,
        instead: "leave `--unfenced` out",
    })
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
