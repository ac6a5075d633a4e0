//! Programs that change something, unless an option says that they shall only tell.

use super::effect::{Effect, Found};
use super::options::Scanned;

/// Looks for the option.
pub(super) fn needs(scanned: &Scanned, title: &str, found: &mut Found) {
    let asks: &[&str] = match title {
        "unzip" => &["-l", "-v", "-Z", "-t", "-p", "-c", "-z"],
        "gzip" | "gunzip" | "bzip2" | "bunzip2" | "xz" | "unxz" => return compressor(scanned, title, found),
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
        "cargo fmt" => &["--check"],
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
