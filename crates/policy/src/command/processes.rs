//! Output of commands that list processes and services.

use super::analysis::Analysis;
use super::effect::Effect;
use super::options::Scanned;
use crate::shell::Word;

/// Options of `ps` that take a value.
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

/// Letters without a minus that take a value, in the same word or the next.
const VALUED_LETTERS: &[char] = &['o', 'O', 'p', 't', 'U', 'k', 'q'];

/// Judges `ps`: `e`, within any bundle of letters, shows the environment of every process.
pub(super) fn ps(args: &[Word], title: &str, analysis: &mut Analysis) {
    let mut value = false;
    for word in args {
        // `0*` is a process id.
        let number = word.shape().filter(|shape| shape == "0*").map(|_| "0".to_owned());
        let Some(text) = word.literal().or(number) else {
            analysis.add(
                Effect::Secret,
                format!("{title}: `{}` may show environments", word.text),
            );
            continue;
        };
        let is_value = std::mem::take(&mut value);
        if text.to_ascii_lowercase().contains("env") {
            analysis.add(
                Effect::Secret,
                format!("{title}: shows the environment of processes"),
            );
        }
        if is_value {
            continue;
        }
        if text.starts_with('-') {
            // On macOS and BSD this letter shows environments.
            let flags = text.split(VALUED_LETTERS).next().unwrap_or_default();
            if !text.starts_with("--") && flags.contains('E') {
                analysis.add(
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
        // Numbers are process ids. Only letters before one that takes a value count.
        let letters = text.split(VALUED_LETTERS).next().unwrap_or_default();
        value = text.ends_with(VALUED_LETTERS);
        let number = text.chars().all(|sign| sign.is_ascii_digit() || sign == ',');
        if !number && letters.contains('e') {
            analysis.add(
                Effect::Secret,
                format!("{title}: shows the environment of processes"),
            );
        }
    }
}

/// Judges `docker top`: options of `ps` follow the container.
pub(super) fn top(args: &[Word], scanned: &Scanned, title: &str, analysis: &mut Analysis) {
    if let Some(first) = scanned.operands.first() {
        ps(&args[first + 1..], title, analysis);
    }
}

/// Judges `systemctl show`: the full set of properties contains the service's environment.
pub(super) fn properties(scanned: &Scanned, title: &str, analysis: &mut Analysis) {
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
        analysis.add(
            Effect::Secret,
            format!("{title}: shows the environment of services; name other properties with -p"),
        );
    }
}

/// Judges `service name status`.
pub(super) fn service(args: &[Word], scanned: &Scanned, analysis: &mut Analysis) {
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
            analysis.add(Effect::Process, "service: starts, stops or asks services")
        }
        _ => analysis.add(Effect::Code, "service: runs a program by this name"),
    }
}

/// Judges `docker inspect`: the full output contains the container's environment.
pub(super) fn inspect(scanned: &Scanned, title: &str, analysis: &mut Analysis) {
    let format = scanned
        .values
        .iter()
        .rev()
        .find(|(name, _)| matches!(*name, "-f" | "--format"));
    let narrow = |format: &str| is_narrow(format, &[PUBLIC]);
    let image = title.ends_with("image inspect");
    if !image && !format.is_some_and(|(_, format)| format.as_deref().is_some_and(narrow)) {
        analysis.add(
            Effect::Secret,
            format!("{title}: shows the environment of containers; ask for a field with --format"),
        );
    }
}

/// Judges `docker ps`: command lines in full and labels can contain passwords.
pub(super) fn containers(scanned: &Scanned, title: &str, analysis: &mut Analysis) {
    let full = scanned.options.contains(&"--no-trunc");
    let quiet = ["-q", "--quiet"]
        .iter()
        .any(|option| scanned.options.contains(option));
    let public: &[&[&str]] = match full {
        true => &[PUBLIC, LISTED],
        false => &[PUBLIC, LISTED, &[".command"]],
    };
    let mut formats = scanned.values.iter().filter(|(name, _)| *name == "--format");
    let is_public = match formats.next_back() {
        None => quiet || !full,
        Some((_, Some(format))) if format == "table" => !full,
        Some((_, format)) => format.as_deref().is_some_and(|format| is_narrow(format, public)),
    };
    if !is_public {
        analysis.add(
            Effect::Secret,
            format!(
                "{title}: shows command lines or labels of containers; ask for other fields with --format"
            ),
        );
    }
}

/// Returns `true` if a template shows these fields alone.
fn is_narrow(format: &str, public: &[&[&str]]) -> bool {
    let lower = format.to_ascii_lowercase();
    let fields = lower.split("{{").skip(1).all(|field| {
        let field = field
            .split("}}")
            .next()
            .unwrap_or_default()
            .trim_matches([' ', '-']);
        let path = field.strip_prefix("json ").unwrap_or(field).trim();
        let control = ["end", "else"].contains(&field);
        let word = |sign: char| sign.is_ascii_alphanumeric() || "._ $\"'()/:-".contains(sign);
        control || path.chars().all(word) && !path.contains("index") && are_public(path, public)
    });
    format.contains("{{") && fields
}

/// Further fields of lists of containers.
const LISTED: &[&str] = &[
    ".names",
    ".runningfor",
    ".createdhuman",
    ".localvolumes",
    ".imageid",
    ".pod",
    ".podname",
    ".exited",
    ".numberofcontainers",
];

/// Fields that hold no environment, command line, label or option, in which people put passwords. A field below
/// one of them is public as well.
const PUBLIC: &[&str] = &[
    ".state",
    ".status",
    ".health",
    ".running",
    ".exitcode",
    ".startedat",
    ".finishedat",
    ".pid",
    ".restartcount",
    ".name",
    ".id",
    ".created",
    ".createdat",
    ".image",
    ".repotags",
    ".repodigests",
    ".parent",
    ".os",
    ".architecture",
    ".platform",
    ".size",
    ".rootfs",
    ".driver",
    ".scope",
    ".mountpoint",
    ".mounts",
    ".type",
    ".source",
    ".destination",
    ".mode",
    ".rw",
    ".networksettings",
    ".networks",
    ".networkid",
    ".ipaddress",
    ".gateway",
    ".macaddress",
    ".ports",
    ".hostip",
    ".hostport",
    ".containers",
    ".config.image",
    ".config.hostname",
    ".config.user",
    ".config.workingdir",
    ".config.exposedports",
    ".hostconfig.restartpolicy",
    ".hostconfig.networkmode",
    ".hostconfig.portbindings",
    ".hostconfig.binds",
    ".hostconfig.memory",
    ".hostconfig.nanocpus",
];

/// Returns `true` if a template names at least one field, and public fields alone.
fn are_public(path: &str, public: &[&[&str]]) -> bool {
    let names = path.split(|sign: char| !sign.is_ascii_alphanumeric() && !"._$".contains(sign));
    let fields: Vec<&str> = names
        .clone()
        .filter_map(|name| name.find('.').and_then(|at| name.get(at..)))
        .collect();
    let is_public = |field: &&str| {
        let below = |public: &&&str| {
            field
                .strip_prefix(**public)
                .is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
        };
        public.iter().copied().flatten().any(|public| below(&public))
    };
    // `$` alone is the whole object, and a variable may be.
    let mut variables = names.filter(|name| name.contains('$'));
    let names_whole = variables.any(|name| !name.contains('.'));
    path.contains('.') && !names_whole && fields.iter().all(is_public)
}

/// Judges `docker compose -f`: it accepts a file of this machine, which is examined there. Other names are
/// fetched (`github.com/x`), or read from standard input.
pub(super) fn compose_files(scanned: &Scanned, title: &str, analysis: &mut Analysis) {
    let plain = |sign: char| sign.is_ascii_alphanumeric() || "_-./~".contains(sign);
    let is_local = |text: &str| {
        let is_yaml = [".yml", ".yaml"].iter().any(|ending| text.ends_with(ending));
        is_yaml && text.chars().all(plain) && !text.starts_with("github.com/")
    };
    for (name, value) in &scanned.values {
        if matches!(*name, "-f" | "--file") && !value.as_deref().is_some_and(is_local) {
            let value = value.as_deref().unwrap_or_default();
            analysis.add(Effect::Network, format!("{title}: `{value}` may lead elsewhere"));
        }
    }
}

/// Judges `docker compose config`: it prints all environments, unless only names are requested.
pub(super) fn compose_config(scanned: &Scanned, title: &str, analysis: &mut Analysis) {
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
        analysis.add(
            Effect::Secret,
            format!("{title}: shows what programs are given; ask for names, such as --services"),
        );
    }
}

/// Judges `journalctl`: with `-o json`, all fields of an entry contain environments (`COREDUMP_ENVIRON`) and
/// command lines.
pub(super) fn journal(scanned: &Scanned, title: &str, analysis: &mut Analysis) {
    let plain = |format: &str| format.starts_with("short") || matches!(format, "cat" | "with-unit");
    for (name, value) in &scanned.values {
        if matches!(*name, "-o" | "--output") && !value.as_deref().is_some_and(plain) {
            analysis.add(
                Effect::Secret,
                format!("{title}: shows all fields, environments too; use -o short or cat"),
            );
        }
    }
}

/// Judges `crontab`: an operand is a file whose commands are scheduled.
pub(super) fn crontab(scanned: &Scanned, analysis: &mut Analysis) {
    if !scanned.operands.is_empty() || !scanned.options.contains(&"-l") {
        analysis.add(Effect::Code, "crontab: sets what runs later");
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
            let mut analysis = Analysis::new(|_, _| {});
            ps(&words(line), "ps", &mut analysis);
            !analysis.findings.is_empty()
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
