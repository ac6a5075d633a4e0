//! Completion scripts: those of clap, which complete names too: of sandboxes, snapshots, sessions and keys.

use clap::{Command, CommandFactory};
use clap_complete::Shell;

use crate::Cli;

const BASH: &str = include_str!("completions/names.bash");
const ZSH: &str = include_str!("completions/names.zsh");
const FISH: &str = include_str!("completions/names.fish");

/// Renders the completion script of a shell. Those of bash, zsh and fish ask for names: of the caller's sandboxes, snapshots
/// and sessions, and of keys.
pub fn completions(shell: Shell) -> String {
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut Cli::command(), "ringfence", &mut script);
    let script = String::from_utf8_lossy(&script).into_owned();
    match shell {
        Shell::Bash => {
            let commands = commands_on_sandboxes().into_iter();
            let patterns: Vec<_> = commands.map(|command| format!("\"sandbox {command}\"")).collect();
            script + &BASH.replace("{SUBCOMMANDS}", &patterns.join(" | "))
        }
        Shell::Fish => script + &FISH.replace("{SUBCOMMANDS}", &commands_on_sandboxes().join(" ")),
        Shell::Zsh => {
            // The last lines of clap's script call `_ringfence`: its functions come before.
            let functions = format!("{ZSH}\n_ringfence() {{");
            with_names_in_zsh(&script).replacen("_ringfence() {", &functions, 1)
        }
        _ => script,
    }
}

/// Has zsh complete arguments that are names by the functions of [`ZSH`].
fn with_names_in_zsh(script: &str) -> String {
    let line = |line: &str| match line.strip_suffix(":_default' \\") {
        Some(start) => format!("{start}:{}' \\\n", zsh_function(start)),
        None => format!("{line}\n"),
    };
    script.lines().map(line).collect()
}

/// Returns the function that completes the argument of a line such as `':name -- The sandbox`.
fn zsh_function(line: &str) -> &'static str {
    let argument = line.trim_start_matches(['\'', '*', ':']);
    if argument.starts_with("--snapshot=") {
        return "_ringfence_snapshots";
    }
    match argument.split_once(" -- ") {
        Some(("name" | "names" | "sandbox", help)) if help.starts_with("The sandbox") => {
            "_ringfence_sandboxes"
        }
        Some(("from" | "to", help)) if help.starts_with("A file or directory") => {
            "_ringfence_sandboxes_or_files"
        }
        Some(("snapshot", _)) => "_ringfence_snapshots",
        Some(("id" | "from", help)) if help.starts_with("The session to") => "_ringfence_sessions",
        Some(("id", help)) if help.starts_with("The key") => "_ringfence_keys",
        _ => "_default",
    }
}

/// Returns the subcommands of `ringfence sandbox` whose first argument is a sandbox.
fn commands_on_sandboxes() -> Vec<String> {
    let cli = Cli::command();
    let sandbox = cli.find_subcommand("sandbox");
    let commands = sandbox.into_iter().flat_map(Command::get_subcommands);
    commands
        .filter(|command| command.get_positionals().next().is_some_and(is_a_sandbox))
        .map(|command| command.get_name().to_owned())
        .collect()
}

fn is_a_sandbox(argument: &clap::Arg) -> bool {
    matches!(argument.get_id().as_str(), "name" | "names" | "sandbox")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_command_on_a_sandbox_completes_names() {
        assert_eq!(
            commands_on_sandboxes(),
            [
                "get", "exec", "shell", "run", "files", "port", "fork", "timeout", "network", "pause",
                "resume", "events", "logs", "stats", "rm"
            ]
        );
    }

    #[test]
    fn zsh_and_fish_ask_for_names() {
        let zsh = completions(Shell::Zsh);
        let functions = |argument: &str| -> Vec<&str> {
            let lines = zsh.lines().filter(|line| line.contains(argument));
            lines
                .filter_map(|line| line.strip_suffix("' \\")?.rsplit(':').next())
                .collect()
        };
        let of_sandboxes = functions("-- The sandbox");
        assert_eq!(of_sandboxes, vec!["_ringfence_sandboxes"; 16]);
        assert_eq!(
            functions("-- A file or directory"),
            vec!["_ringfence_sandboxes_or_files"; 2]
        );
        for (argument, expected) in [
            ("from -- The session to", "_ringfence_sessions"),
            ("id -- The session to", "_ringfence_sessions"),
            ("to -- The name of the copy", "_default"),
            ("snapshot -- The id", "_ringfence_snapshots"),
            ("'--snapshot=", "_ringfence_snapshots"),
            ("id -- The key", "_ringfence_keys"),
        ] {
            let found = functions(argument);
            assert!(
                !found.is_empty() && found.iter().all(|function| *function == expected),
                "{argument}: {found:?}"
            );
        }
        assert!(zsh.starts_with("#compdef ringfence"));
        assert!(completions(Shell::Fish).contains("$seen get exec shell run files"));
    }
}
