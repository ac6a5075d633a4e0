//! Programs that change something, unless an option says that they shall only tell.

use super::effect::{Effect, Found};
use super::options::Scanned;
use crate::shell::Word;

/// Looks for the option.
pub(super) fn needs(scanned: &Scanned, title: &str, found: &mut Found) {
    let asks: &[&str] = match title {
        "unzip" => &["-l", "-v", "-Z", "-t", "-p", "-c", "-z"],
        "gzip" | "gunzip" | "bzip2" | "bunzip2" | "xz" | "unxz" | "zstd" | "unzstd" => {
            return compressor(scanned, title, found);
        }
        "git apply" => &["--stat", "--numstat", "--summary", "--check"],
        "top" => &["-b", "-l"],
        "crontab" => &["-l"],
        "dpkg" => &[
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
        "cargo fmt" | "rustfmt" => &["--check", "--version", "-V"],
        "cargo metadata" => &["--locked", "--frozen", "--no-deps"],
        "cargo tree" => &["--locked", "--frozen"],
        "black" | "isort" => &["--check", "--check-only", "-c", "--version", "--diff"],
        "packer fmt" => &["-check", "-write=false"],
        "terraform fmt" | "tofu fmt" => &["-check", "-write=false"],
        "sips" => &["-g", "--getProperty"],
        "xattr" => &["-p", "-l"],
        "codesign" => &["-d", "--display", "-v", "--verify", "-h"],
        "textutil" => &["-info", "-stdout"],
        "spctl" => &["-a", "--assess", "--status", "--list"],
        "dscl" => &["-read", "-list", "-search", "-readall", "-readpl"],
        "compression_tool" => &["-decode", "-encode"],
        "ruff format" => &["--check", "--diff"],
        "mdimport" => &["-L", "-A", "-X"],
        _ => &[],
    };
    let named = |option: &&str| match option.split_once('=') {
        Some((name, wanted)) => scanned
            .values
            .iter()
            .any(|(option, value)| *option == name && value.as_deref() == Some(wanted)),
        None => scanned.options.contains(option),
    };
    if !asks.iter().any(named) {
        changes(title, found);
    }
}

/// `rustc` compiles nothing that is not named; `--print kind=file` writes a file.
pub(super) fn rustc(scanned: &Scanned, found: &mut Found) {
    for (name, value) in &scanned.values {
        if *name == "--print" && value.as_deref().is_none_or(|value| value.contains('=')) {
            found.add(Effect::Write, "rustc --print: writes a file");
        }
    }
}

/// Package managers that ask if their first word says so; the letters behind it mean other things in other modes.
pub(super) fn query(args: &[Word], title: &str, found: &mut Found) {
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
        _ => found.add(Effect::Privilege, format!("{title}: changes packages")),
    }
}

fn changes(title: &str, found: &mut Found) {
    found.add(
        Effect::Write,
        format!("{title}: changes something, unless an option says otherwise"),
    );
}

/// Of several modes the last one counts: `xz -t -d x` unpacks. Standard output stays standard output.
fn compressor(scanned: &Scanned, title: &str, found: &mut Found) {
    let any = |names: &[&str]| scanned.options.iter().any(|option| names.contains(option));
    let shows = any(&["-c", "--stdout", "--to-stdout"]);
    let asks = any(&["-t", "-l", "--test", "--list"]) && !any(&["-d", "-z", "--decompress"]);
    if !shows && !asks {
        changes(title, found);
    }
}
