//! Completion scripts: those of clap, which complete names of sandboxes too.

use std::collections::BTreeSet;

use clap::{Command, CommandFactory};
use clap_complete::Shell;

use crate::Cli;

/// Adds names to the first argument of bash's commands, and to each of `rm`. The names begin with a letter or
/// digit and have no sign of the shell in them.
const BASH: &str = r#"
_ringfence_sandboxes() {
    local word index subcommand="${COMP_WORDS[2]-}" name suffix=""
    _ringfence "$@"
    [[ "${COMP_WORDS[1]-}" == sandbox && "$2" != -* ]] || return 0
    index=3
    case "$subcommand" in
        snapshot)
            [[ "${COMP_WORDS[3]-}" == create ]] || return 0
            index=4
            ;;
        cp) suffix=":" ;;
        {SUBCOMMANDS}) ;;
        *) return 0 ;;
    esac
    if [[ "$subcommand" != rm && "$subcommand" != cp ]]; then
        for word in "${COMP_WORDS[@]:index:COMP_CWORD-index}"; do
            [[ "$word" == -* ]] || return 0
        done
    fi
    COMPREPLY=()
    if [[ -n "$suffix" ]]; then
        compopt -o nospace 2>/dev/null
        mapfile -t COMPREPLY < <(compgen -f -- "$2")
    fi
    while IFS= read -r name; do
        [[ "$name" == "$2"* ]] && COMPREPLY+=("$name$suffix")
    done < <("$1" sandbox ls --quiet 2>/dev/null)
    return 0
}
complete -F _ringfence_sandboxes -o bashdefault -o default ringfence
"#;

const ZSH: &str = r#"
(( $+functions[_ringfence_sandboxes] )) ||
_ringfence_sandboxes() {
    local -a names
    names=(${(f)"$(ringfence sandbox ls --quiet 2>/dev/null)"})
    _describe -t sandboxes 'sandbox' names "$@"
}
(( $+functions[_ringfence_sandboxes_or_files] )) ||
_ringfence_sandboxes_or_files() {
    _alternative 'sandboxes:sandbox:_ringfence_sandboxes -S ":"' 'files:file:_files'
}
"#;

/// Renders the completion script of a shell. Those of bash, zsh and fish ask the server for the names of the
/// caller's sandboxes.
pub fn completions(shell: Shell) -> String {
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut Cli::command(), "ringfence", &mut script);
    let script = String::from_utf8_lossy(&script).into_owned();
    let named = commands_on_sandboxes();
    let joined = |separator: &str| {
        named
            .iter()
            .map(String::as_str)
            .collect::<Vec<_>>()
            .join(separator)
    };
    match shell {
        Shell::Bash => script + &BASH.replace("{SUBCOMMANDS}", &joined("|")),
        Shell::Zsh => with_names_in_zsh(&script),
        Shell::Fish => {
            let condition = "__fish_ringfence_using_subcommand sandbox; and __fish_seen_subcommand_from";
            let names = "(ringfence sandbox ls --quiet 2>/dev/null)";
            let of = |commands: &str, words: &str| {
                format!("complete -c ringfence -n '{condition} {commands}' -a '{words}'\n")
            };
            script + &of(&joined(" "), names) + &of("cp", &format!("{names}:"))
        }
        _ => script,
    }
}

/// Has zsh complete the arguments that are sandboxes by [`ZSH`], which stands before the first function that
/// uses it.
fn with_names_in_zsh(script: &str) -> String {
    let mut out = script.replacen(
        "_ringfence() {",
        &(ZSH.trim_start().to_owned() + "\n_ringfence() {"),
        1,
    );
    for (argument, function) in [
        ("name -- The sandbox", "_ringfence_sandboxes"),
        ("sandbox -- The sandbox", "_ringfence_sandboxes"),
        ("names -- The sandboxes", "_ringfence_sandboxes"),
        ("from -- ", "_ringfence_sandboxes_or_files"),
        ("to -- ", "_ringfence_sandboxes_or_files"),
    ] {
        out = completed_by(&out, argument, function);
    }
    out
}

/// Names another function in lines of `_arguments` that describe this argument.
fn completed_by(script: &str, argument: &str, function: &str) -> String {
    let line = |line: &str| match line.strip_suffix(":_default' \\") {
        Some(start) if start.trim_start_matches(['\'', '*', ':']).starts_with(argument) => {
            format!("{start}:{function}' \\\n")
        }
        _ => format!("{line}\n"),
    };
    script.lines().map(line).collect()
}

/// Returns the subcommands of `ringfence sandbox` whose first argument is a sandbox.
fn commands_on_sandboxes() -> BTreeSet<String> {
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
        let named = commands_on_sandboxes();
        let named: Vec<&str> = named.iter().map(String::as_str).collect();
        assert_eq!(
            named,
            [
                "events", "exec", "files", "fork", "get", "logs", "pause", "port", "resume", "rm", "run",
                "shell", "stats"
            ]
        );
    }

    #[test]
    fn zsh_and_fish_ask_for_names() {
        let zsh = completions(Shell::Zsh);
        for argument in [
            "':name -- The sandbox",
            "'*::names -- The sandboxes",
            "':from -- ",
        ] {
            let line = zsh.lines().find(|line| line.starts_with(argument));
            assert!(
                line.is_some_and(|line| line.contains(":_ringfence_sandboxes")),
                "{argument}: {line:?}"
            );
        }
        assert!(zsh.starts_with("#compdef ringfence"));
        assert!(completions(Shell::Fish).contains("from events exec files fork get"));
    }
}
