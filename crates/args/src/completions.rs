//! Completion scripts: those of clap, which complete names of sandboxes too.

use std::collections::BTreeSet;

use clap::{Command, CommandFactory};
use clap_complete::Shell;

use crate::Cli;

/// Adds names to the first argument of commands, and to each of `rm` and `cp`. Behind an option that may take a
/// value clap's words stand. Files are left to bash, which quotes their names: a program in a sandbox can have
/// named them. The names of sandboxes have no sign of the shell in them.
const BASH: &str = r#"
_ringfence_sandboxes() {
    local word index=3 subcommand="${COMP_WORDS[2]-}" name suffix="" names=()
    _ringfence "$@"
    [[ "${COMP_WORDS[1]-}" == sandbox && "$2" != -* ]] || return 0
    case "$subcommand" in
        snapshot)
            [[ "${COMP_WORDS[3]-}" == create ]] || return 0
            index=4
            ;;
        cp) suffix=":" ;;
        {SUBCOMMANDS}) ;;
        *) return 0 ;;
    esac
    for word in "${COMP_WORDS[@]:index:COMP_CWORD-index}"; do
        case "$word" in
            -i | -t | -it | -ti | --interactive | --tty | --json) ;;
            -*) return 0 ;;
            *) [[ "$subcommand" == rm || "$subcommand" == cp ]] || return 0 ;;
        esac
    done
    if [[ "$subcommand" == cp ]]; then
        COMPREPLY=()
        # A path of a sandbox, behind the colon, which is a word of its own.
        if [[ "$2" == : || "$3" == : ]]; then
            compopt +o default +o bashdefault 2>/dev/null
            return 0
        fi
    fi
    while IFS= read -r name; do
        [[ "$name" == "$2"* ]] && names+=("$name$suffix")
    done < <("$1" sandbox ls --quiet 2>/dev/null)
    if [[ ${#names[@]} -gt 0 ]]; then
        COMPREPLY=("${names[@]}")
        [[ -n "$suffix" ]] && compopt -o nospace 2>/dev/null
    fi
    return 0
}
complete -F _ringfence_sandboxes -o bashdefault -o default ringfence
"#;

/// The condition under which fish completes arguments of `ringfence sandbox`: what follows `--` is a program's.
const FISH: &str = "__fish_ringfence_using_subcommand sandbox; and not contains -- -- (commandline -opc)";

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
            let names = "(ringfence sandbox ls --quiet 2>/dev/null)";
            let of = |seen: &str, words: &str| {
                format!("complete -c ringfence -n '{FISH}; and {seen}' -a '{words}'\n")
            };
            let from = |commands: &str| format!("__fish_seen_subcommand_from {commands}");
            let no_other = |commands: &str| format!("{}; and not {}", from(commands), from("create"));
            script
                + &of(&no_other(&joined(" ")), names)
                + &of(&no_other("cp"), &format!("{names}:"))
                + &of(&format!("{}; and {}", from("snapshot"), from("create")), names)
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
        ("from -- A file or directory", "_ringfence_sandboxes_or_files"),
        ("to -- A file or directory", "_ringfence_sandboxes_or_files"),
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
            "':from -- A file or directory",
        ] {
            let line = zsh.lines().find(|line| line.starts_with(argument));
            assert!(
                line.is_some_and(|line| line.contains(":_ringfence_sandboxes")),
                "{argument}: {line:?}"
            );
        }
        let session = "':from -- The session to copy:_default' \\";
        assert!(zsh.lines().any(|line| line == session));
        assert!(zsh.starts_with("#compdef ringfence"));
        assert!(completions(Shell::Fish).contains("from events exec files fork get"));
    }
}
