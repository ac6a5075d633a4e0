//! Operands that do more than name a file.

use super::analysis::Analysis;
use super::effect::Effect;
use super::nested;
use super::options::Scanned;
use crate::shell::Word;

/// Judges bash's `printf`: `%n` sets a variable. After `printf xx%n PATH`, commands are searched in the
/// directory `2`.
pub(super) fn printf(args: &[Word], scanned: &Scanned, analysis: &mut Analysis) {
    let Some(first) = scanned.operands.first() else {
        return;
    };
    match args[*first].literal() {
        Some(format) if !sets(&format) => {}
        Some(_) => analysis.add(Effect::Shell, "printf: `%n` sets a variable"),
        None => analysis.add(Effect::Unknown, "printf: the format is not known beforehand"),
    }
}

/// Judges bash's `read`: an array index would be evaluated, and other names than the line's own have a
/// meaning.
pub(super) fn read(args: &[Word], scanned: &Scanned, analysis: &mut Analysis) {
    for index in &scanned.operands {
        if !args[*index].literal().is_some_and(|name| nested::is_own(&name)) {
            analysis.add(
                Effect::Shell,
                format!("read: `{}` is not a variable of this line", args[*index].text),
            );
        }
    }
}

/// Judges `ss`: it resolves names in its filter through DNS, and a name can carry any data.
pub(super) fn sockets(args: &[Word], scanned: &Scanned, analysis: &mut Analysis) {
    const WORDS: &[&str] = &[
        "state",
        "exclude",
        "all",
        "connected",
        "synchronized",
        "bucket",
        "big",
        "established",
        "syn-sent",
        "syn-recv",
        "fin-wait-1",
        "fin-wait-2",
        "time-wait",
        "closed",
        "close-wait",
        "last-ack",
        "listening",
        "listen",
        "closing",
        "and",
        "or",
        "not",
        "sport",
        "dport",
        "src",
        "dst",
        "eq",
        "ne",
        "gt",
        "lt",
        "ge",
        "le",
    ];
    let plain = |sign: char| sign.is_ascii_digit() || " .:/()=!<>[]".contains(sign);
    for index in &scanned.operands {
        let known = args[*index].literal().is_some_and(|text| {
            let mut words = text.split_whitespace();
            words.all(|word| {
                let address = word.chars().all(plain) && word != ".";
                WORDS.contains(&word) || word.starts_with(':') && word.len() < 16 || address
            })
        });
        if !known {
            analysis.add(
                Effect::Network,
                format!("ss: `{}` may be looked up as a name", args[*index].text),
            );
        }
    }
}

/// Judges `bat`: `cache` is a subcommand, and a pager runs on a terminal, or if an option requests it.
pub(super) fn bat(args: &[Word], scanned: &Scanned, analysis: &mut Analysis) {
    if scanned
        .operands
        .first()
        .is_some_and(|first| args[*first].text == "cache")
    {
        analysis.add(Effect::Write, "bat cache: builds a cache");
    }
    for (name, value) in &scanned.values {
        if *name == "--paging" && value.as_deref() != Some("never") && value.as_deref() != Some("auto") {
            analysis.add(Effect::Terminal, "bat --paging: runs a pager");
        }
    }
}

/// Judges `lsof`: `-i @name` resolves the name through DNS.
pub(super) fn open_files(args: &[Word], analysis: &mut Analysis) {
    for word in args {
        let host = word.text.split_once('@').map(|(_, host)| host);
        let named = |host: &str| host.contains(|sign: char| !sign.is_ascii_digit() && !".:,".contains(sign));
        if host.is_some_and(named) && word.text != "@localhost" {
            analysis.add(
                Effect::Network,
                format!("lsof: `{}` may be looked up as a name", word.text),
            );
        }
    }
}

/// Returns `true` if a per cent sign precedes an `n`, with any flags, widths and sizes between them.
fn sets(format: &str) -> bool {
    let between = |sign: char| sign.is_ascii_digit() || "-+ #'.*$hlLjztq".contains(sign);
    let mut rest = format;
    while let Some((_, behind)) = rest.split_once('%') {
        if behind.trim_start_matches(between).starts_with('n') {
            return true;
        }
        rest = behind.strip_prefix('%').unwrap_or(behind);
    }
    false
}

/// Judges response files: `nm @file` reads options from the file, and one of them loads code.
pub(super) fn response(args: &[Word], title: &str, analysis: &mut Analysis) {
    for word in args {
        let starts = word
            .shape()
            .is_none_or(|text| text.starts_with(['@', '*', '?', '[']));
        // `7z -i@list` takes names from a file within an option.
        let starts = starts || word.text.starts_with('-') && word.text.contains('@');
        if starts || word.text.contains("{}") {
            analysis.add(
                Effect::Unknown,
                format!("{title}: `{}` may name a file of options", word.text),
            );
        }
    }
}

/// Scripts around `grep` and `diff`, some of which split their options at blanks again.
pub(super) fn script(args: &[Word], title: &str, scanned: &Scanned, analysis: &mut Analysis) {
    let splits =
        |text: &str| text.contains(|sign: char| sign.is_whitespace() || "'\"\\`$;&|<>()".contains(sign));
    let options = args
        .iter()
        .filter_map(Word::shape)
        .filter(|text| text.starts_with('-'));
    let values = scanned.values.iter().filter_map(|(_, value)| value.clone());
    if options.chain(values).any(|text| splits(&text)) {
        analysis.add(
            Effect::Unknown,
            format!("{title}: a script that may take an option with blanks for several"),
        );
    }
}

/// Judges `diff`: `-r` shows the targets of links in a tree.
pub(super) fn diff(scanned: &Scanned, title: &str, analysis: &mut Analysis) {
    let shows = !scanned.has_any(&["-q", "--brief", "--no-dereference"]);
    if scanned.has_any(&["-r", "--recursive"]) && shows {
        analysis.add(
            Effect::Secret,
            format!("{title}: follows links, wherever they lead; add --no-dereference"),
        );
    }
}

/// Names in a registry. A path or a URL could be anybody's package, whose code runs when it is read.
pub(super) fn packages(args: &[Word], scanned: &Scanned, title: &str, analysis: &mut Analysis) {
    for index in &scanned.operands {
        let known = args[*index].literal().is_some_and(|text| is_package(&text));
        if !known {
            analysis.add(
                Effect::Code,
                format!(
                    "{title}: `{}` is not a plain name of a package",
                    args[*index].text
                ),
            );
        }
    }
}

/// Returns `true` for `name`, `@scope/name`, `name@1.2`, or a response field such as `dist.tarball`.
fn is_package(text: &str) -> bool {
    let plain = |sign: char| sign.is_ascii_alphanumeric() || "-_.+@~^=<>*[]".contains(sign);
    let files = [".rb", ".tgz", ".tar", ".gz", ".json"];
    let name = match text.strip_prefix('@').and_then(|rest| rest.split_once('/')) {
        Some((scope, name)) if !scope.is_empty() && scope.chars().all(plain) => name,
        Some(_) => return false,
        None => text,
    };
    !name.starts_with('.') && name.chars().all(plain) && !files.iter().any(|ending| name.ends_with(ending))
}

/// Judges the arguments of programs that parse them for further commands: `tmux ls ';' run-shell x`, `nft
/// list 'ruleset; flush ruleset'`.
pub(super) fn plain(args: &[Word], title: &str, analysis: &mut Analysis) {
    let plain = |sign: char| sign.is_ascii_alphanumeric() || "_-.:%@$=+,".contains(sign);
    for word in args {
        if !word.literal().is_some_and(|text| text.chars().all(plain)) {
            analysis.add(
                Effect::Code,
                format!("{title}: `{}` may hold a further command", word.text),
            );
        }
    }
}

/// Judges `yamllint`: `-d 'extends: file'` prints the lines of the file that are not valid YAML. A text
/// without a colon is also taken for a file name.
pub(super) fn yamllint(scanned: &Scanned, title: &str, analysis: &mut Analysis) {
    let data = |(name, _): &&(&str, Option<String>)| matches!(*name, "-d" | "--config-data");
    for (_, value) in scanned.values.iter().filter(data) {
        if !value.as_deref().is_some_and(extends_known) {
            analysis.add(
                Effect::Secret,
                format!("{title}: its settings may extend any file, whose lines are shown"),
            );
        }
    }
}

/// Returns `true` if settings of yamllint extend none but its own ones.
fn extends_known(settings: &str) -> bool {
    let own = |name: &str| {
        let name = name.trim_start_matches([' ', '"', '\'']);
        let end = name
            .find(|sign: char| !sign.is_ascii_lowercase())
            .unwrap_or(name.len());
        matches!(&name[..end], "default" | "relaxed") && !name[end..].starts_with(['/', '.', '-', '_'])
    };
    if !settings.contains(':') {
        return settings.is_empty() || own(settings);
    }
    let known = |rest: &str| {
        let value = rest.trim_start_matches(['"', '\'', ' ']).strip_prefix(':');
        value.is_some_and(own)
    };
    // Other spellings of the key: escapes, tags, anchors, an explicit key.
    !settings.contains(['\\', '!', '&', '*', '?']) && settings.split("extends").skip(1).all(known)
}

#[cfg(test)]
mod tests {
    use super::sets;

    #[test]
    fn formats_that_set_variables_are_told() {
        for format in ["%n", "a%n", "%5n", "%%%n", "%-*.3ln", "%s%hn"] {
            assert!(sets(format), "{format}");
        }
        for format in ["%s\n", "%%n", "%d n", "100%", "%(%Y)T\n", "", "%5.2f\n"] {
            assert!(!sets(format), "{format}");
        }
    }
}
