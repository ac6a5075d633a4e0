//! Commands on this machine itself: what they name, that it is the same still when they run, and what came of them.
//!
//! A line is judged by its parts. One that a person must approve can wait for minutes, and what it names may be changed
//! meanwhile: so what stands behind each of its words is noted before the question, and looked at again after the answer.

mod risk;

use std::collections::BTreeMap;
use std::fs;
use std::io::Read;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use ringfence_policy::cascade::{Decision, Effect, Rules};
use ringfence_policy::{EnvName, Timeout};

pub(crate) use risk::Risk;

use crate::assessor::Assessor;
use crate::audit::Digest;
use crate::shell::{Host, Runner, ShellOutput};

/// Where programs are found: no directory that a workspace could put something into.
pub const PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

/// How commands run on this machine, and which.
#[derive(Debug, Clone)]
pub struct HostSettings {
    /// What runs at once, what is told, and what is asked about.
    pub rules: Rules,
    /// What asks a model for a score, where `rules` have a threshold; `None`: a person is asked instead.
    pub assessor: Option<Arc<Assessor>>,
    /// What commands see of the environment, but for `PATH`.
    pub variables: Vec<(EnvName, String)>,
    /// Where they start if there is no workspace; absolute.
    pub directory: PathBuf,
    /// How long a command may run.
    pub timeout: Timeout,
    /// How long the person has to answer.
    pub patience: Timeout,
}

impl HostSettings {
    /// What runs them: the host, with the fixed path.
    pub(crate) fn runner(&self) -> Runner {
        let mut variables: Vec<_> = self
            .variables
            .iter()
            .filter(|(name, _)| name.as_str() != "PATH")
            .cloned()
            .collect();
        variables.extend("PATH".parse().ok().map(|name| (name, PATH.to_owned())));
        Runner::Host(Host {
            variables,
            directory: self.directory.clone(),
        })
    }
}

/// The program and the arguments that a line becomes: the command's own where no shell is needed, else a bash that reads
/// nothing but the line. A word that no program has, such as `type`, may be one of the shell's own.
pub(crate) fn program(line: &str, decision: &Decision) -> (String, Vec<String>) {
    let has_program = |words: &Vec<String>| {
        let name = words.first().map_or("", String::as_str);
        name.contains('/') || std::env::split_paths(PATH).any(|folder| folder.join(name).is_file())
    };
    let words = decision.argv.clone().filter(has_program).unwrap_or_else(|| {
        ["/bin/bash", "--noprofile", "--norc", "-c", line]
            .map(str::to_owned)
            .into()
    });
    let mut words = words.into_iter();
    (words.next().unwrap_or_default(), words.collect())
}

/// Whether the exact line may be allowed for good: what runs code that it is given does something else tomorrow, and so
/// does what nobody knows.
pub(crate) fn may_last(decision: &Decision) -> bool {
    let lasting = |effect| !matches!(effect, Effect::Code | Effect::Unknown | Effect::Privilege);
    let mut effects = decision.parts.iter().flat_map(|part| &part.findings);
    !decision.parts.is_empty() && effects.all(|finding| lasting(finding.effect))
}

/// What stands behind the words of a line: programs on the path and files.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Named(BTreeMap<PathBuf, Stamp>);

/// What tells one file from another, and from itself after a change.
#[derive(Debug, PartialEq, Eq)]
struct Stamp {
    device: u64,
    inode: u64,
    length: u64,
    /// Nobody but root can set it back.
    changed: (i64, i64),
    digest: Option<Digest>,
}

/// How many words are looked at. A longer line is not worth a person's trust, and is told so by its length.
const MAX_WORDS: usize = 256;
/// Files beyond this are told apart by everything but their content.
const MAX_DIGESTED: u64 = 1 << 20;

impl Named {
    /// Looks at everything that a line could name, in `directory`.
    ///
    /// Every run of characters that could be a word counts, wherever it stands: looking at a file too much does no harm.
    pub(crate) fn by(line: &str, directory: &Path) -> Self {
        let separates = |c: char| c.is_whitespace() || "'\"`$(){}[];&|<>=,\\".contains(c);
        let words = line.split(separates).filter(|word| !word.is_empty());
        let mut found = BTreeMap::new();
        let here = std::iter::once(directory.to_path_buf());
        let named = words.take(MAX_WORDS).flat_map(|word| {
            let on_path = std::env::split_paths(PATH).map(move |folder| folder.join(word));
            on_path
                .filter(|_| !word.contains('/'))
                .chain(std::iter::once(directory.join(word)))
        });
        for path in here.chain(named) {
            if let Some(stamp) = Stamp::of(&path) {
                found.insert(path, stamp);
            }
        }
        Self(found)
    }

    /// The first path that is not what it was.
    pub(crate) fn changed_since(&self, before: &Self) -> Option<PathBuf> {
        let mut all = before.0.keys().chain(self.0.keys());
        let changed = |path: &&PathBuf| before.0.get(*path) != self.0.get(*path);
        all.find(changed).cloned()
    }
}

impl Stamp {
    fn of(path: &Path) -> Option<Self> {
        let found = fs::metadata(path).ok()?;
        // A directory changes with every file in it, a device with every use.
        let is_file = found.is_file();
        Some(Self {
            device: found.dev(),
            inode: found.ino(),
            length: if is_file { found.len() } else { 0 },
            changed: if is_file {
                (found.ctime(), found.ctime_nsec())
            } else {
                (0, 0)
            },
            digest: (is_file && found.len() <= MAX_DIGESTED)
                .then(|| digest(path))
                .flatten(),
        })
    }
}

fn digest(path: &Path) -> Option<Digest> {
    let mut bytes = Vec::new();
    let file = fs::File::open(path).ok()?;
    file.take(MAX_DIGESTED + 1).read_to_end(&mut bytes).ok()?;
    Some(Digest::of(&bytes))
}

/// How much of a command's output a model is told, in characters.
const MAX_TOLD: usize = 10_000;

/// What came of a command, for a model: standard error apart, the status where it is not 0, and whatever was cut.
pub(crate) fn told(output: &ShellOutput) -> String {
    let mut text = output.stdout.clone();
    let mut add = |part: &str| {
        if !text.is_empty() && !text.ends_with('\n') {
            text.push('\n');
        }
        text.push_str(part);
    };
    if !output.stderr.is_empty() {
        add("[stderr]\n");
        add(&output.stderr);
    }
    match output.exit_code {
        Some(0) => {}
        Some(code) => add(&format!("[exit code {code}]")),
        None => add("[it did not end by itself]"),
    }
    if output.timed_out {
        add("[timed out]");
    }
    cut(text, output.truncated)
}

fn cut(mut text: String, truncated: bool) -> String {
    if let Some((end, _)) = text.char_indices().nth(MAX_TOLD) {
        text.truncate(end);
        text.push_str(&format!("\n[output truncated at {MAX_TOLD} characters]"));
    } else if truncated {
        text.push_str("\n[output truncated]");
    }
    text
}

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
            let (program, args) = program(line, &decided(line));
            assert_eq!([&[program], &args[..]].concat(), expected, "{line}");
        };
        check("df -h", &["df", "-h"]);
        check("echo 'a b' c", &["echo", "a b", "c"]);
        let bash = ["/bin/bash", "--noprofile", "--norc", "-c"];
        for line in ["df -h | head", "echo $HOME", "X=1 env", "ls > out", "type ls"] {
            check(line, &[&bash[..], &[line]].concat());
        }
    }

    #[test]
    fn whatever_a_line_names_is_looked_at_again() {
        let place = tempfile::tempdir().unwrap();
        let script = place.path().join("job.sh");
        fs::write(&script, "echo safe").unwrap();
        for line in [
            "bash job.sh",
            "bash ./job.sh | cat",
            "cat <job.sh",
            "env A=b bash 'job.sh'",
        ] {
            let before = Named::by(line, place.path());
            assert_eq!(
                Named::by(line, place.path()).changed_since(&before),
                None,
                "{line}"
            );
            fs::write(&script, "echo evil").unwrap();
            let changed = Named::by(line, place.path()).changed_since(&before);
            assert_eq!(
                changed,
                Some(
                    place
                        .path()
                        .join(if line.contains("./") { "./job.sh" } else { "job.sh" })
                ),
                "{line}"
            );
            fs::write(&script, "echo safe").unwrap();
        }
        // What was not there, and what is not there any more.
        let before = Named::by("bash new.sh", place.path());
        fs::write(place.path().join("new.sh"), "x").unwrap();
        let after = Named::by("bash new.sh", place.path());
        assert!(after.changed_since(&before).is_some() && before.changed_since(&after).is_some());
    }

    #[test]
    fn another_directory_of_the_same_name_is_a_change() {
        let place = tempfile::tempdir().unwrap();
        let (here, there) = (place.path().join("here"), place.path().join("there"));
        fs::create_dir(&here).unwrap();
        let before = Named::by("ls", &here);
        fs::rename(&here, &there).unwrap();
        fs::create_dir(&here).unwrap();
        assert_eq!(Named::by("ls", &here).changed_since(&before), Some(here));
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
            ("echo $(", false),
        ] {
            assert_eq!(may_last(&decided(line)), lasts, "{line}");
        }
    }

    #[test]
    fn a_model_is_told_in_sections_and_not_too_much() {
        let output = |stdout: &str, stderr: &str, exit_code| ShellOutput {
            exit_code,
            stdout: stdout.to_owned(),
            stderr: stderr.to_owned(),
            timed_out: exit_code.is_none(),
            truncated: false,
            runner: "host".to_owned(),
            outcome: ringfence_policy::Outcome::Exited,
            duration: 0.0,
            isolation: ringfence_policy::Isolation::NONE,
            warnings: Vec::new(),
        };
        assert_eq!(told(&output("a\n", "", Some(0))), "a\n");
        assert_eq!(
            told(&output("a", "b\n", Some(3))),
            "a\n[stderr]\nb\n[exit code 3]"
        );
        assert_eq!(
            told(&output("", "", None)),
            "[it did not end by itself]\n[timed out]"
        );
        let long = told(&output(&"é".repeat(20_000), "", Some(0)));
        assert_eq!(long.chars().filter(|c| *c == 'é').count(), MAX_TOLD);
        assert!(long.ends_with("[output truncated at 10000 characters]"));
    }
}
