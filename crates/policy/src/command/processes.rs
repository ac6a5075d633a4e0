//! What lists of processes and services show.

use super::effect::{Effect, Found};
use super::options::Scanned;
use crate::shell::Word;

/// Options of `ps` behind which a value stands.
const VALUED: &[&str] = &[
    "-o",
    "-O",
    "-p",
    "-C",
    "-u",
    "-U",
    "-g",
    "-G",
    "-t",
    "-s",
    "-q",
    "--format",
    "--pid",
    "--ppid",
    "--user",
    "--User",
    "--group",
    "--Group",
    "--tty",
    "--sid",
    "--sort",
    "--cols",
    "--columns",
    "--width",
    "--rows",
    "--lines",
    "--quick-pid",
];

/// Letters without a minus behind which a value stands, in the same word or in the next.
const VALUED_LETTERS: &[char] = &['o', 'O', 'p', 't', 'U', 'k', 'q'];

/// `ps e`: the environment of every process, with however many letters around it.
pub(super) fn ps(args: &[Word], title: &str, found: &mut Found) {
    let mut value = false;
    for word in args {
        // `0*` is a number of a process.
        let number = word.shape().filter(|shape| shape == "0*").map(|_| "0".to_owned());
        let Some(text) = word.literal().or(number) else {
            found.add(
                Effect::Secret,
                format!("{title}: `{}` may show environments", word.text),
            );
            continue;
        };
        let is_value = std::mem::take(&mut value);
        if text.to_ascii_lowercase().contains("env") {
            found.add(
                Effect::Secret,
                format!("{title}: shows the environment of processes"),
            );
        }
        if is_value {
            continue;
        }
        if text.starts_with('-') {
            // On macOS and BSD this letter shows them.
            let flags = text.split(VALUED_LETTERS).next().unwrap_or_default();
            if !text.starts_with("--") && flags.contains('E') {
                found.add(
                    Effect::Secret,
                    format!("{title}: shows the environment of processes"),
                );
            }
            let last = text
                .chars()
                .last()
                .map(|letter| format!("-{letter}"))
                .unwrap_or_default();
            value =
                VALUED.contains(&text.as_str()) || !text.starts_with("--") && VALUED.contains(&last.as_str());
            continue;
        }
        // Numbers are processes. Of letters, those before one with a value count.
        let letters = text.split(VALUED_LETTERS).next().unwrap_or_default();
        value = text.ends_with(VALUED_LETTERS);
        let number = text.chars().all(|sign| sign.is_ascii_digit() || sign == ',');
        if !number && letters.contains('e') {
            found.add(
                Effect::Secret,
                format!("{title}: shows the environment of processes"),
            );
        }
    }
}

/// `docker top`: behind the container stand options of `ps`.
pub(super) fn top(args: &[Word], scanned: &Scanned, title: &str, found: &mut Found) {
    if let Some(first) = scanned.operands.first() {
        ps(&args[first + 1..], title, found);
    }
}

/// `systemctl show`: all properties together hold the environment of a service.
pub(super) fn properties(scanned: &Scanned, title: &str, found: &mut Found) {
    let named = |(name, _): &&(&str, Option<String>)| matches!(*name, "-p" | "-P" | "--property");
    let values: Vec<Option<&str>> = scanned
        .values
        .iter()
        .filter(named)
        .map(|(_, value)| value.as_deref())
        .collect();
    let shows = |value: &Option<&str>| {
        value.is_none_or(|value| {
            let lower = value.to_ascii_lowercase();
            lower.is_empty()
                || ["env", "exec", "credential", "*"]
                    .iter()
                    .any(|part| lower.contains(part))
        })
    };
    if values.is_empty() || values.iter().any(shows) {
        found.add(
            Effect::Secret,
            format!("{title}: shows the environment of services; name other properties with -p"),
        );
    }
}

/// `service name status`.
pub(super) fn service(args: &[Word], scanned: &Scanned, found: &mut Found) {
    let words: Vec<Option<String>> = scanned
        .operands
        .iter()
        .map(|index| args[*index].literal())
        .collect();
    let plain = |name: &str| {
        name.chars()
            .all(|sign| sign.is_ascii_alphanumeric() || "_-.@".contains(sign))
            && !name.starts_with('.')
    };
    match words.as_slice() {
        [] => {}
        [Some(name), Some(verb)] if plain(name) && verb == "status" => {}
        [Some(name), ..] if plain(name) => {
            found.add(Effect::Process, "service: starts, stops or asks services")
        }
        _ => found.add(Effect::Code, "service: runs a program by this name"),
    }
}

/// `docker inspect`: all of it holds the environment of the container.
pub(super) fn inspect(scanned: &Scanned, title: &str, found: &mut Found) {
    let format = scanned
        .values
        .iter()
        .rev()
        .find(|(name, _)| matches!(*name, "-f" | "--format"));
    let narrow = |format: &str| {
        let lower = format.to_ascii_lowercase();
        let fields = lower.split("{{").skip(1).all(|field| {
            let field = field
                .split("}}")
                .next()
                .unwrap_or_default()
                .trim_matches([' ', '-']);
            let path = field.strip_prefix("json ").unwrap_or(field).trim();
            let control = ["end", "else"].contains(&field);
            let whole = matches!(
                path,
                "." | ".config" | ".spec" | "$" | ".containerconfig" | ".settings" | ".args"
            );
            let word = |sign: char| sign.is_ascii_alphanumeric() || "._ $\"'()/:-".contains(sign);
            control
                || !whole
                    && path.chars().all(word)
                    && !path.contains("env")
                    && !path.contains("index")
                    && !path.contains("spec")
        });
        format.contains("{{") && fields
    };
    let image = title.ends_with("image inspect");
    if !image && !format.is_some_and(|(_, format)| format.as_deref().is_some_and(narrow)) {
        found.add(
            Effect::Secret,
            format!("{title}: shows the environment of containers; ask for a field with --format"),
        );
    }
}

/// `docker compose config`: everything that the programs are given, unless only names are asked for.
pub(super) fn compose_config(scanned: &Scanned, title: &str, found: &mut Found) {
    let names = [
        "-q",
        "--quiet",
        "--services",
        "--volumes",
        "--profiles",
        "--images",
        "--networks",
        "--models",
        "--hash",
    ];
    let asks = |name: &str| names.contains(&name);
    if !scanned.options.iter().any(|option| asks(option)) {
        found.add(
            Effect::Secret,
            format!("{title}: shows what programs are given; ask for names, such as --services"),
        );
    }
}

/// `crontab file` has what stands in the file run later.
pub(super) fn crontab(scanned: &Scanned, found: &mut Found) {
    if !scanned.operands.is_empty() || !scanned.options.contains(&"-l") {
        found.add(Effect::Code, "crontab: sets what runs later");
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::shell::{Piece, Word};

    fn words(line: &str) -> Vec<Word> {
        let word = |text: &str| Word {
            pieces: vec![Piece::Literal(text.to_owned())],
            text: text.to_owned(),
            end: None,
        };
        line.split_whitespace().map(word).collect()
    }

    #[test]
    fn environments_are_told_from_other_letters() {
        let shows = |line: &str| {
            let mut found = Found::default();
            ps(&words(line), "ps", &mut found);
            !found.findings.is_empty()
        };
        for line in [
            "e",
            "axe",
            "axewwwwwwwwwwwwwwwwwwwwww",
            "auxe",
            "ewwo pid",
            "-ef e",
            "-E",
            "-axE",
            "-p 1 e",
            "axo pid,environ",
            "-o env",
            "1 e",
            "fe",
        ] {
            assert!(shows(line), "{line}");
        }
        for line in [
            "aux",
            "-ef",
            "-e",
            "-eo pid,pcpu,time",
            "axo pid,time",
            "-C nginx.service",
            "--sort -pmem",
            "-u me",
            "-p 12",
            "axjf",
            "auxww",
            "-U root e",
        ] {
            assert_eq!(shows(line), line.ends_with(" e"), "{line}");
        }
    }
}
