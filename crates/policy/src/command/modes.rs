//! Programs that change something unless an option makes them report only.

use super::analysis::Analysis;
use super::effect::Effect;
use super::files;
use super::options::Scanned;
use crate::shell::Word;

/// Commands, their effect, and the options that make them report only.
const TELLING: &[(&[&str], Effect, &[&str])] = &[
    (
        &["unzip"],
        Effect::Code,
        &["-l", "-v", "-Z", "-t", "-p", "-c", "-z"],
    ),
    (
        &["git apply"],
        Effect::Code,
        &["--stat", "--numstat", "--summary", "--check"],
    ),
    (&["top"], Effect::Write, &["-b", "-l"]),
    (
        &["fdisk", "sfdisk", "parted"],
        Effect::Ruin,
        &["-l", "--list", "-V", "-v", "-h", "--help", "--version"],
    ),
    (&["screen"], Effect::Code, &["-ls", "-list", "-v"]),
    (
        &["iptables", "ip6tables"],
        Effect::Privilege,
        &["-L", "-S", "--list", "--list-rules", "-V", "--version"],
    ),
    (
        &["ldconfig"],
        Effect::Privilege,
        &["-p", "-V", "--print-cache", "--version"],
    ),
    (
        &["update-alternatives"],
        Effect::Privilege,
        &[
            "--list",
            "--display",
            "--query",
            "--get-selections",
            "--version",
            "--help",
        ],
    ),
    (&["ssh-keygen"], Effect::Secret, &["-l", "--help"]),
    (&["ssh-add"], Effect::Secret, &["-l", "-L"]),
    (&["pmset"], Effect::Write, &["-g"]),
    (&["plutil"], Effect::Write, &["-p", "-lint"]),
    (
        &["xcode-select"],
        Effect::Write,
        &["-p", "--print-path", "-v", "--version"],
    ),
    (
        &["dpkg"],
        Effect::Write,
        &[
            "-l",
            "-L",
            "-s",
            "-S",
            "-p",
            "-V",
            "-C",
            "--list",
            "--listfiles",
            "--status",
            "--search",
            "--print-avail",
            "--verify",
            "--audit",
            "--print-architecture",
            "--get-selections",
        ],
    ),
    (
        &["cargo fmt", "rustfmt"],
        Effect::Write,
        &["--check", "--version", "-V"],
    ),
    (
        &["cargo metadata"],
        Effect::Write,
        &["--locked", "--frozen", "--no-deps"],
    ),
    (&["cargo tree"], Effect::Write, &["--locked", "--frozen"]),
    (
        &["black", "isort"],
        Effect::Write,
        &["--check", "--check-only", "-c", "--version", "--diff"],
    ),
    (
        &["terraform fmt", "tofu fmt"],
        Effect::Write,
        &["-check", "-write=false"],
    ),
    (&["sips"], Effect::Write, &["-g", "--getProperty"]),
    (&["xattr"], Effect::Write, &["-p", "-l"]),
    (
        &["codesign"],
        Effect::Write,
        &["-d", "--display", "-v", "--verify", "-h"],
    ),
    (&["textutil"], Effect::Write, &["-info", "-stdout"]),
    (
        &["spctl"],
        Effect::Write,
        &["-a", "--assess", "--status", "--list"],
    ),
    (
        &["dscl"],
        Effect::Write,
        &["-read", "-list", "-search", "-readall", "-readpl"],
    ),
    (&["compression_tool"], Effect::Write, &["-decode", "-encode"]),
    (&["ruff format"], Effect::Write, &["--check", "--diff"]),
    (&["mdimport"], Effect::Write, &["-L", "-A", "-X"]),
];

/// Requires one of the options.
pub(super) fn needs(args: &[Word], scanned: &Scanned, title: &str, analysis: &mut Analysis) {
    let named = |option: &&str| match option.split_once('=') {
        Some((name, wanted)) => scanned
            .values
            .iter()
            .any(|(option, value)| *option == name && value.as_deref() == Some(wanted)),
        None => scanned.options.contains(option),
    };
    match title {
        _ if COMPRESSORS.contains(&title) => return compressor(args, scanned, title, analysis),
        "networksetup" => {
            let begins = ["-get", "-list", "-show", "-is", "-version", "-help", "-print"];
            let asks = |option: &&str| begins.iter().any(|begins| option.starts_with(begins));
            if !scanned.options.iter().any(asks) {
                changes(title, analysis);
            }
            return;
        }
        _ => {}
    }
    let row = TELLING.iter().find(|(titles, ..)| titles.contains(&title));
    if !row.is_some_and(|(_, _, options)| options.iter().any(named)) {
        let effect = row.map_or(Effect::Write, |(_, effect, _)| *effect);
        analysis.add(effect, format!("{title}: {NOT_ASKED}"));
    }
}

const NOT_ASKED: &str = "changes something, unless an option says otherwise";

/// Judges `rustc`: it compiles only named files, and `--print kind=file` writes a file.
pub(super) fn rustc(scanned: &Scanned, analysis: &mut Analysis) {
    for (name, value) in &scanned.values {
        if *name == "--print" && value.as_deref().is_none_or(|value| value.contains('=')) {
            analysis.add(Effect::Write, "rustc --print: writes a file");
        }
    }
}

/// Judges package managers in the query mode of their first word. The letters after it have another meaning
/// in other modes.
pub(super) fn query(args: &[Word], title: &str, analysis: &mut Analysis) {
    let (mode, letters): (&str, &str) = match title {
        "rpm" => ("-q", "ailcdfpRv"),
        _ => ("-Q", "cdegiklmnopqstu"),
    };
    let asks = |word: &Word| {
        let rest = word
            .literal()
            .and_then(|text| text.strip_prefix(mode).map(str::to_owned));
        rest.is_some_and(|rest| rest.chars().all(|letter| letters.contains(letter)))
    };
    let names = |word: &Word| {
        let known = [
            "--changelog",
            "--scripts",
            "--requires",
            "--provides",
            "--last",
            "--info",
            "--list",
        ];
        word.literal().is_some_and(|text| {
            known.contains(&text.as_str()) && title == "rpm"
                || !text.starts_with('-') && !text.contains("://")
        })
    };
    match args.split_first() {
        Some((first, rest)) if asks(first) && rest.iter().all(names) => {}
        _ => analysis.add(Effect::Privilege, format!("{title}: changes packages")),
    }
}

fn changes(title: &str, analysis: &mut Analysis) {
    analysis.add(Effect::Write, format!("{title}: {NOT_ASKED}"));
}

/// Programs that replace a file by a compressed one, or the other way round.
const COMPRESSORS: &[&str] = &[
    "gzip", "gunzip", "bzip2", "bunzip2", "xz", "unxz", "zstd", "unzstd",
];

/// Judges compressors. The last of several modes counts: `xz -t -d x` unpacks. `--stdout` stays in force.
fn compressor(args: &[Word], scanned: &Scanned, title: &str, analysis: &mut Analysis) {
    let shows = scanned.has_any(&["-c", "--stdout", "--to-stdout"]);
    let asks =
        scanned.has_any(&["-t", "-l", "--test", "--list"]) && !scanned.has_any(&["-d", "-z", "--decompress"]);
    if !shows && !asks {
        changes(title, analysis);
        files::decompressed(args, scanned, title, analysis);
    }
}
