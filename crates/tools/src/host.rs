//! Host commands: the program that a line becomes, and the files that it depends on.
//!
//! A line may wait for approval for minutes, and the files that it names may be changed meanwhile: their
//! identities (`PathIdentity`) are recorded before the question and compared after the answer.

mod addresses;
mod destinations;
mod line_directory;
mod makes;
mod opened;
mod path_identity;
mod project;
mod project_config;
mod risk;
mod standing;
#[cfg(test)]
mod test_world;
mod tokens;
mod trees;
mod variables;

use std::path::{Path, PathBuf};
use std::sync::Arc;

use ringfence_assessor::Assessor;
use ringfence_exec::protected::Protected;
use ringfence_exec::trust::Ledger;
use ringfence_policy::cascade::{Authority, Decision, Effect, Rules};
use ringfence_policy::{EnvName, Timeout};

pub(crate) use addresses::pinned;
pub(crate) use destinations::obeyed;
pub(crate) use line_directory::LineDirectory;
pub use makes::confinements;
pub(crate) use opened::secret;
pub(crate) use path_identity::{PARTIAL, PathIdentity, TooMuch};
pub(crate) use project_config::{apply_to, executable_config};
pub(crate) use risk::{MAX_LASTING_RISK, Risk};
pub use standing::{Standing, standing};

use crate::shell::{Host, Program, ShellRunner};

/// Search path of programs: no directory into which a workspace could put something.
pub const PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

/// Git settings from the environment, which override those of any repository and of the user: no fsmonitor
/// program is run, and submodules, whose settings an agent could have written, are not entered.
const GIT_SETTINGS: &[(&str, &str)] = &[
    ("GIT_CONFIG_COUNT", "4"),
    ("GIT_CONFIG_KEY_0", "core.fsmonitor"),
    ("GIT_CONFIG_VALUE_0", "false"),
    ("GIT_CONFIG_KEY_1", "diff.ignoreSubmodules"),
    ("GIT_CONFIG_VALUE_1", "dirty"),
    ("GIT_CONFIG_KEY_2", "diff.submodule"),
    ("GIT_CONFIG_VALUE_2", "short"),
    ("GIT_CONFIG_KEY_3", "status.submoduleSummary"),
    ("GIT_CONFIG_VALUE_3", "false"),
];

/// Keeps Python from writing compiled modules, which it would load instead of the source: files below the
/// start would change with each run, and a remembered approval would end by its own command.
const PYTHON_SETTINGS: (&str, &str) = ("PYTHONDONTWRITEBYTECODE", "1");

/// Settings of host commands.
#[derive(Debug, Clone)]
pub struct HostSettings {
    /// Rules that allow, notify or ask.
    pub rules: Rules,
    /// Model that scores risks, if `rules` have a threshold; `None`: a person is asked instead.
    pub assessor: Option<Arc<Assessor>>,
    /// Environment variables, except `PATH`.
    pub variables: Vec<(EnvName, String)>,
    /// Working directory without a workspace; absolute.
    pub directory: PathBuf,
    /// Time limit of a command.
    pub timeout: Timeout,
    /// Time limit of an approval.
    pub patience: Timeout,
    /// Ringfence's own directories and files, which no command shows without approval.
    pub own: Vec<PathBuf>,
    /// Directories that programs could write: git repositories there may be theirs.
    pub ledger: Ledger,
    /// Places whose files are obeyed, beside those that the policy knows by name.
    pub obeyed: ObeyedPlaces,
}

/// Places beyond the policy's names whose files Ringfence or programs of the host obey. No line that a star allows writes there.
#[derive(Debug, Clone)]
pub struct ObeyedPlaces {
    /// Files and directories that the configuration names, and its own files, without links.
    pub trusted: Vec<PathBuf>,
    /// Protected names (`permissions.filesystem.protected`).
    pub protected: Protected,
}

impl HostSettings {
    /// Returns the expansion of `~`.
    pub(crate) fn home(&self) -> Option<&Path> {
        let mut variables = self.variables.iter();
        let home = variables.find(|(name, _)| name.as_str() == "HOME");
        home.map(|(_, value)| Path::new(value))
    }

    /// Returns the runner for the host, with the fixed search path.
    pub(crate) fn runner(&self) -> ShellRunner {
        let mut variables: Vec<_> = self
            .variables
            .iter()
            .filter(|(name, _)| name.as_str() != "PATH")
            .cloned()
            .collect();
        let fixed = [("PATH", PATH), PYTHON_SETTINGS];
        let ours = fixed.into_iter().chain(GIT_SETTINGS.iter().copied());
        variables.extend(ours.filter_map(|(name, value)| Some((name.parse().ok()?, value.to_owned()))));
        ShellRunner::Host(Host {
            variables,
            directory: self.directory.clone(),
        })
    }
}

/// Returns the program and arguments for a line: the command's own where no shell is needed, else a bash that
/// reads no startup files. A name without an executable, such as `type`, may be a shell builtin and needs
/// bash.
pub(crate) fn program(line: &str, decision: &Decision, by: Authority) -> Program {
    let has_program = |words: &Vec<String>| {
        let name = words.first().map_or("", String::as_str);
        name.contains('/') || std::env::split_paths(PATH).any(|folder| folder.join(name).is_file())
    };
    let (line, argv) = decision.executed(line, by);
    let words = argv.filter(has_program).unwrap_or_else(|| {
        ["/bin/bash", "--noprofile", "--norc", "-c", line]
            .map(str::to_owned)
            .into()
    });
    let mut words = words.into_iter();
    Program {
        name: words.next().unwrap_or_default(),
        args: words.collect(),
    }
}

/// Returns `true` if the exact line may be approved persistently. A line that runs code from its arguments or
/// unknown programs does something else tomorrow.
pub(crate) fn may_last(decision: &Decision) -> bool {
    let lasting = |effect| !matches!(effect, Effect::Code | Effect::Unknown | Effect::Privilege);
    let mut effects = decision.parts.iter().flat_map(|part| &part.findings);
    let mut words = decision
        .parts
        .iter()
        .flat_map(|part| tokens::of(&part.text, None));
    !decision.parts.is_empty()
        && effects.all(|finding| lasting(finding.effect))
        && !words.any(|word| RUNNERS.contains(&word.rsplit('/').next().unwrap_or_default()))
}

/// Returns `true` if no command of a line depends on the contents of the files that it names.
pub(crate) fn is_blind(decision: &Decision) -> bool {
    const BLIND: &[&str] = &[
        "rm", "rmdir", "unlink", "touch", "mkdir", "truncate", "kill", "pkill",
    ];
    let first = |text: &str| text.split_whitespace().next().unwrap_or_default().to_owned();
    !decision.parts.is_empty()
        && decision
            .parts
            .iter()
            .all(|part| BLIND.contains(&&*first(&part.text)))
}

/// Returns `true` if a line runs code or programs of which nothing is known, or cannot be read.
pub(crate) fn runs_code(decision: &Decision) -> bool {
    let mut findings = decision.parts.iter().flat_map(|part| &part.findings);
    let code = |effect| matches!(effect, Effect::Code | Effect::Unknown | Effect::Privilege);
    decision.parts.is_empty() || findings.any(|finding| code(finding.effect))
}

/// Returns `true` if a line runs code whose path it computes by a substitution or a variable: the result can
/// differ the next time.
pub(crate) fn is_computed(line: &str, decision: &Decision) -> bool {
    let variable = |word: &str| {
        let bare = word.trim_matches(|sign: char| "\"'{}".contains(sign));
        bare.starts_with('$') && !bare.contains(['/', '.'])
    };
    let substitutes = ["`", "$(", "<("].iter().any(|sign| line.contains(sign));
    let computes = || substitutes || line.split_whitespace().any(variable) || variables::compute_paths(line);
    runs_code(decision) && computes()
}

/// Programs that run other programs, whose effect is that of their arguments: today's is not tomorrow's. Any
/// word of the line counts.
const RUNNERS: &[&str] = &[
    "ash",
    "at",
    "bash",
    "batch",
    "busybox",
    "chroot",
    "chrt",
    "command",
    "crontab",
    "csh",
    "dash",
    "doas",
    "env",
    "exec",
    "find",
    "fish",
    "flock",
    "ionice",
    "ksh",
    "nice",
    "nohup",
    "nsenter",
    "parallel",
    "rbash",
    "script",
    "setpriv",
    "setsid",
    "sh",
    "ssh",
    "stdbuf",
    "strace",
    "su",
    "sudo",
    "systemd-run",
    "taskset",
    "tcsh",
    "time",
    "timeout",
    "toybox",
    "unshare",
    "watch",
    "xargs",
    "zsh",
];

#[cfg(test)]
mod tests {
    use super::*;
    use ringfence_policy::cascade::decide;

    fn decided(line: &str) -> Decision {
        decide(line, &Rules::default())
    }

    #[test]
    fn one_command_runs_without_a_shell_and_a_line_in_a_bare_bash() {
        let check = |line: &str, expected: &[&str]| {
            let Program { name, args } = program(line, &decided(line), Authority::Person);
            assert_eq!([&[name], &args[..]].concat(), expected, "{line}");
        };
        check("df -h", &["df", "-h"]);
        check("echo 'a b' c", &["echo", "a b", "c"]);
        let bash = ["/bin/bash", "--noprofile", "--norc", "-c"];
        for line in ["df -h | head", "echo $HOME", "X=1 env", "ls > out", "type ls"] {
            check(line, &[&bash[..], &[line]].concat());
        }
    }

    #[test]
    fn what_is_computed_or_looks_at_no_file_is_known() {
        for (line, computed) in [
            ("bash $(echo job).sh", true),
            ("f=x; bash $f", true),
            ("bash <(cat x)", true),
            ("bash job$n.sh", false),
            ("echo $(date)", false),
            ("bash job.sh", false),
        ] {
            assert_eq!(is_computed(line, &decided(line)), computed, "{line}");
        }
        for (line, blind) in [
            ("rm -rf x", true),
            ("mkdir a && touch b", true),
            ("cp x y", false),
            ("rm x; bash y", false),
            ("echo $(", false),
        ] {
            assert_eq!(is_blind(&decided(line)), blind, "{line}");
        }
    }

    #[test]
    fn only_what_does_the_same_tomorrow_is_allowed_for_good() {
        for (line, lasts) in [
            ("docker restart web", true),
            ("rm build.log", true),
            ("bash deploy.sh", false),
            ("python3 -c 'print(1)'", false),
            ("frobnicate", false),
            ("sudo systemctl restart nginx", false),
            ("ls | sh", false),
            ("sh -c 'touch x'", false),
            ("b\\ash -c 'touch x'", false),
            ("touch x; 'xargs' touch", false),
            ("docker exec web /bin/sh", false),
            ("ssh host touch x", false),
            ("echo $(", false),
        ] {
            assert_eq!(may_last(&decided(line)), lasts, "{line}");
        }
    }
}
