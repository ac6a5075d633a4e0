//! Hints for command lines that cannot be parsed.

use std::borrow::Cow;
use std::ffi::OsString;

use clap::CommandFactory;
use clap::error::{ContextKind, ContextValue, ErrorKind};
use ringfence::config::suggest::nearest;

use crate::Cli;

/// The format of errors on standard output.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ErrorFormat {
    /// None: people read standard error.
    Text,
    /// One JSON object, `{"error": {…}}`.
    Json,
    /// One JSON object on its own line, after the objects printed before.
    Lines,
}

impl ErrorFormat {
    /// Returns the format that a command line, valid or not, asks for.
    pub fn of(arguments: &[OsString]) -> Self {
        let own = arguments.iter().skip(1).map(|argument| argument.to_str());
        let own: Vec<&str> = own
            .map_while(|argument| Some(argument.unwrap_or_default()).filter(|own| *own != "--"))
            .collect();
        let has = |flag: &str| own.contains(&flag);
        match positionals(&own)[..] {
            ["run", ..] if has("--json-stream") => Self::Lines,
            ["sandbox", "events" | "stats", ..] | ["audit", "tail", ..] if has("--json") => Self::Lines,
            [_, ..] if has("--json") => Self::Json,
            _ => Self::Text,
        }
    }
}

/// Returns the arguments that are neither options nor the values of global ones, the command first.
fn positionals<'a>(arguments: &[&'a str]) -> Vec<&'a str> {
    let mut arguments = arguments.iter();
    let mut words = Vec::new();
    while let Some(argument) = arguments.next() {
        match *argument {
            "--config" | "--color" => drop(arguments.next()),
            option if option.starts_with('-') => {}
            word => words.push(word),
        }
    }
    words
}

/// Returns a hint for a usage error, and removes clap's own suggestion where it leads astray.
pub fn usage_hint(error: &mut clap::Error) -> Option<Cow<'static, str>> {
    let usage = error.get(ContextKind::Usage).map(ToString::to_string);
    let usage = Usage::parse(&usage.unwrap_or_default());
    let hint = usage.hint(error);
    let is_option = argument(error).is_some_and(|argument| argument.starts_with('-'));
    match error.kind() {
        ErrorKind::InvalidSubcommand if hint.is_some() => {
            error.remove(ContextKind::SuggestedSubcommand);
            error.remove(ContextKind::Suggested);
        }
        // "To pass it as a value, use `-- -f`": nothing takes such values.
        ErrorKind::UnknownArgument if is_option && !usage.takes_arguments => {
            error.remove(ContextKind::Suggested);
        }
        _ => {}
    }
    hint
}

/// The usage line of an error.
#[derive(Debug)]
struct Usage {
    /// The commands, without `ringfence`.
    commands: Vec<String>,
    /// Set if there are arguments after `--`.
    takes_arguments: bool,
}

impl Usage {
    /// Parses a line such as `Usage: ringfence sandbox [OPTIONS] <COMMAND>`.
    fn parse(line: &str) -> Self {
        let words = line.split_whitespace().skip(2);
        let commands = words.take_while(|word| word.starts_with(|c: char| c.is_ascii_lowercase()));
        Self {
            commands: commands.map(str::to_owned).collect(),
            takes_arguments: line.contains("-- <"),
        }
    }

    fn hint(&self, error: &clap::Error) -> Option<Cow<'static, str>> {
        let commands: Vec<&str> = self.commands.iter().map(String::as_str).collect();
        match (&commands[..], error.kind()) {
            (_, ErrorKind::InvalidSubcommand) => {
                let given = argument(error)?;
                let known = matches!(commands[..], [] | ["sandbox"]).then(|| command_hint(given));
                let known = known.flatten().map(Cow::from);
                known.or_else(|| nearest_command(&commands, given).map(Cow::from))
            }
            (["sandbox", "run"], ErrorKind::ArgumentConflict) if has_arguments(error) => {
                Some(CODE_ARGUMENTS.into())
            }
            (["sandbox", "exec"], ErrorKind::MissingRequiredArgument) => {
                Some("write a command after the name; `ringfence sandbox shell NAME` opens a shell".into())
            }
            (_, ErrorKind::UnknownArgument) => self.argument_hint(&commands, argument(error)?),
            _ => None,
        }
    }

    fn argument_hint(&self, commands: &[&str], argument: &str) -> Option<Cow<'static, str>> {
        let is_option = argument.starts_with('-');
        Some(match (commands, argument) {
            (["sandbox", "create"], name) if !is_option => format!("did you mean `--name {name}`?").into(),
            (["sandbox", "run"], _) if !is_option => CODE_ARGUMENTS.into(),
            (["sandbox", "rm"], "-f" | "--force") => {
                "leave it out: `rm` asks nothing, and goes on after one that cannot be removed".into()
            }
            (["sandbox", "rm"], "-a" | "--all") => {
                "name them: `ringfence sandbox ls --quiet | xargs -r ringfence sandbox rm`".into()
            }
            (["sandbox", "logs"], "-n" | "--tail") => {
                "use tail(1): `ringfence sandbox logs NAME | tail`".into()
            }
            _ if !is_option && self.takes_arguments => BEHIND.into(),
            _ => return None,
        })
    }
}

const BEHIND: &str = "write a command, or the arguments of a program, after `--`";

const CODE_ARGUMENTS: &str = "code that a sandbox keeps takes no arguments: copy the file with `ringfence sandbox cp`, and run \
     it with them as a command, as in `ringfence sandbox exec NAME -- python3 FILE ARG`";

/// Returns `true` for a conflict of code with words behind it.
fn has_arguments(error: &clap::Error) -> bool {
    let named = error
        .context()
        .filter(|(kind, _)| matches!(kind, ContextKind::InvalidArg | ContextKind::PriorArg));
    let named: Vec<String> = named.map(|(_, value)| value.to_string()).collect();
    let names = |part: &str| named.iter().any(|name| name.contains(part));
    names("COMMAND") && (names("FILE") || names("--code"))
}

/// Returns the unknown command or argument of an error.
fn argument(error: &clap::Error) -> Option<&str> {
    let kind = match error.kind() {
        ErrorKind::InvalidSubcommand => ContextKind::InvalidSubcommand,
        _ => ContextKind::InvalidArg,
    };
    match error.get(kind)? {
        ContextValue::String(argument) => Some(argument),
        _ => None,
    }
}

/// Returns a hint with the command of this group that a mistyped one is nearest to.
fn nearest_command(group: &[&str], given: &str) -> Option<String> {
    let mut command = Cli::command();
    for name in group {
        command = command.find_subcommand(name)?.clone();
    }
    let visible = command.get_subcommands().filter(|command| !command.is_hide_set());
    let near = nearest(given, visible.map(clap::Command::get_name))?;
    Some(format!("did you mean `{near}`?"))
}

/// Returns the counterpart of a command that other programs have.
fn command_hint(command: &str) -> Option<&'static str> {
    Some(match command {
        "attach" | "shell" | "ssh" => "`ringfence sandbox shell NAME` opens a shell in a sandbox",
        "batch" => "`ringfence serve` runs many programs at once: `POST /v1/batch` of its HTTP API",
        "commit" => "`ringfence sandbox snapshot create` keeps the files of a sandbox",
        "create" | "exec" => {
            "`ringfence sandbox create` makes a sandbox, `ringfence sandbox exec` runs a command in it"
        }
        "extend" | "set-timeout" => {
            "`ringfence sandbox timeout NAME 2h` sets the time until a sandbox expires"
        }
        "images" | "pull" => "`ringfence image` manages images",
        "inspect" => "`ringfence sandbox get NAME` describes a sandbox",
        "kill" | "delete" | "remove" => "`ringfence sandbox rm NAME` removes a sandbox and its files",
        "list" | "ps" => "`ringfence sandbox ls` lists the sandboxes",
        "start" | "unpause" => "`ringfence sandbox resume NAME` continues a sandbox that was paused",
        "runs" => "`ringfence artifacts ls` lists stored runs",
        "stop" => "`ringfence sandbox pause NAME` keeps a sandbox and stops its processes; `rm` removes it",
        "version" => "`ringfence --version` prints the version",
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    #[test]
    fn the_form_is_known_whether_the_command_line_is_right_or_not() {
        for (line, expected) in [
            ("run --json -c 1", ErrorFormat::Json),
            ("run -c 1 --json --no-such", ErrorFormat::Json),
            ("--config a.toml --color=never run --json x.py", ErrorFormat::Json),
            ("run --json-stream x.py", ErrorFormat::Lines),
            ("tool --json shell", ErrorFormat::Json),
            ("tool --json-stream shell", ErrorFormat::Text),
            ("run x.py -- --json", ErrorFormat::Text),
            ("sandbox run x --json", ErrorFormat::Json),
            ("sandbox exec x -- ls --json", ErrorFormat::Text),
            ("sandbox events x --json", ErrorFormat::Lines),
            ("sandbox stats x --json", ErrorFormat::Lines),
            ("audit tail --json", ErrorFormat::Lines),
            ("audit verify --json", ErrorFormat::Json),
            ("--config run doctor --json", ErrorFormat::Json),
            ("--json", ErrorFormat::Text),
            ("", ErrorFormat::Text),
        ] {
            let words = ["ringfence"].into_iter().chain(line.split_whitespace());
            let arguments: Vec<OsString> = words.map(OsString::from).collect();
            assert_eq!(ErrorFormat::of(&arguments), expected, "{line}");
        }
    }

    /// Returns the error of a command line as it is printed, and its hint.
    fn explained(line: &str) -> (String, String) {
        let mut error = crate::Cli::try_parse_from(line.split(' ')).unwrap_err();
        let hint = usage_hint(&mut error).unwrap_or_default().into_owned();
        (error.to_string(), hint)
    }

    #[test]
    fn mistakes_have_hints_and_no_others_beside_them() {
        for (line, expected) in [
            ("policy check touch x", BEHIND),
            ("run x.py first", BEHIND),
            ("run --frob x.py", ""),
            ("doctor now", ""),
            ("sandbox stop x", "sandbox pause"),
            ("sandbox extend x", "sandbox timeout"),
            ("ps", "sandbox ls"),
            ("shell", "sandbox shell"),
            ("version", "ringfence --version"),
            ("rnu x.py", "did you mean `run`?"),
            ("keys crate ci", "did you mean `create`?"),
            ("runs ls", "ringfence artifacts ls"),
            ("batch", "POST /v1/batch"),
            ("sandbox frob", ""),
            ("sandbox get --stop", ""),
            // They would name a command for another object.
            ("keys delete x", ""),
            ("sandbox snapshot delete x", ""),
            ("sandbox create lab", "`--name lab`"),
            ("sandbox rm -f lab", "asks nothing"),
            ("sandbox rm --all", "ls --quiet"),
            ("sandbox logs --tail 5 lab", "tail(1)"),
            ("sandbox run lab a.py one", CODE_ARGUMENTS),
            ("sandbox run lab a.py -- one", CODE_ARGUMENTS),
            ("sandbox run lab --timeout 1s --timeout 2s -c 1", ""),
            ("sandbox run lab -c 1 a.py", ""),
        ] {
            let (text, hint) = explained(&format!("ringfence {line}"));
            assert_eq!(hint.is_empty(), expected.is_empty(), "{line}: {hint}");
            assert!(hint.contains(expected), "{line}: {hint}");
            let is_tipped = text.contains("similar subcommand") || text.contains("as a value");
            assert!(!is_tipped || expected.is_empty(), "{line}: {text}");
        }
        // A program may take it.
        assert!(explained("ringfence run x.py --year").0.contains("-- --year"));
        assert!(!explained("ringfence doctor --year").0.contains("-- --year"));
        assert!(
            explained("ringfence sandbox create --nam lab")
                .0
                .contains("'--name'")
        );
    }
}
