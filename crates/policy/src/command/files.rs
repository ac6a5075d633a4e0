//! Operands of programs that change files: the target decides how harmful the change is.

use super::analysis::{Analysis, Destination, Reach, Source};
use super::effect::Effect;
use super::options::Scanned;
use super::{secrets, within_word};
use crate::protected_names::PROTECTED;
use crate::shell::Word;

/// Names of files and directories that programs execute or load as settings wherever they lie, beside [`PROTECTED`] ones: guests may
/// write these.
const OBEYED: &[&str] = &[
    ".bash*",
    ".z*",
    ".ksh*",
    ".csh*",
    ".tcsh*",
    ".login",
    ".logout",
    ".xinitrc",
    ".xsession*",
    ".xprofile",
    ".inputrc",
    ".vim*",
    ".gvimrc",
    ".emacs*",
    ".nanorc",
    ".tmux*",
    ".screenrc",
    ".gitconfig",
    ".gitattributes",
    ".yarn*",
    ".pnpmfile*",
    ".pnp.*",
    ".python-version*",
    "pyvenv.cfg",
    "rust-toolchain*",
    ".pypirc",
    ".pythonrc*",
    ".curlrc",
    ".wgetrc",
    ".config",
    ".local",
    ".rustup",
    ".docker",
    ".kube",
    ".aws",
    "authorized_keys*",
    "crontab*",
    "cron.*",
    "sudoers*",
    "launchagents",
    "launchdaemons",
    "autostart",
    "systemd",
    "init.d",
    "profile.d",
    "ld.so.*",
    "hooks",
    ".lefthook*",
    "lefthook*",
    ".devcontainer*",
    ".nvim*",
    ".nvm",
    ".oh-my-zsh",
    ".pyenv",
    ".rbenv",
    ".asdf",
    ".sdkman",
    ".eslintrc*",
    ".pdbrc*",
    "gradlew*",
    "mvnw*",
    "__pycache__",
    "*.pyc",
    ".bin",
    "bin",
    "sbin",
];

/// System directories.
const SYSTEM: &[&str] = &[
    "/etc",
    "/usr",
    "/bin",
    "/sbin",
    "/lib",
    "/lib64",
    "/boot",
    "/opt",
    "/var/spool",
    "/library",
    "/system",
    "/proc",
    "/sys",
    "/dev",
];

/// Options by which programs take the place that they write to.
const DESTINATIONS: &[(&[&str], &[&str])] = &[
    (
        &["cp", "mv", "ln", "link", "install"],
        &["-t", "--target-directory"],
    ),
    (&["csplit"], &["-f", "--prefix"]),
    (&["mktemp", "mkfifo", "mknod", "fallocate"], &["-p", "--tmpdir"]),
    (&["aria2c", "axel"], &["-o", "-d"]),
    (&["lz4", "pigz", "lzma", "lzip", "brotli"], &["-o"]),
];

/// Programs whose last operand gets what the others name.
const COPIES: &[&str] = &[
    "cp", "mv", "git mv", "ln", "link", "install", "rsync", "scp", "rcp", "ditto",
];

/// Judges the destination of a write. A place whose files are executed or loaded as settings counts as
/// running code.
pub(super) fn place(args: &[Word], scanned: &Scanned, title: &str, analysis: &mut Analysis) {
    let operands: Vec<String> = scanned
        .operands
        .iter()
        .filter_map(|index| args[*index].shape())
        .collect();
    let options = DESTINATIONS.iter().filter(|(titles, _)| titles.contains(&title));
    let options: Vec<&str> = options.flat_map(|(_, options)| *options).copied().collect();
    let named = scanned.values.iter().filter(|(name, _)| options.contains(name));
    let named: Vec<String> = named.filter_map(|(_, value)| value.clone()).collect();
    for text in operands.iter().chain(&named) {
        destination(Some(text), title, analysis);
    }
    let prefix = match title {
        "split" => operands.get(1).map_or("x", String::as_str),
        "csplit" => named.last().map_or("xx", String::as_str),
        _ => "",
    };
    if !prefix.is_empty() {
        numbered(prefix, title, analysis);
    }
    if COPIES.contains(&title) {
        copied(&operands, named.last(), title, scanned, analysis);
    }
    if matches!(title, "scp" | "rcp") {
        other_machines(args, scanned, title, analysis);
    }
    if merges(title, scanned) || title == "zip" {
        secrets::broad_places(args, title, scanned, analysis);
    }
    if title == "zip" && !scanned.has_any(&["-y", "--symlinks"]) {
        let packed = operands.get(1..).unwrap_or_default().to_vec();
        secrets::trees(packed, Reach::Linked, analysis);
    }
    let modes = scanned
        .values
        .iter()
        .filter(|(name, _)| title == "install" && matches!(*name, "-m" | "--mode"));
    for (_, value) in modes {
        if value.as_deref().is_none_or(gives_rights) {
            analysis.add(
                Effect::Privilege,
                format!("{title}: whoever runs the file gets its owner's rights"),
            );
        }
    }
}

/// Judges the names that begin with a prefix, and end with letters and digits that the program counts up.
fn numbered(prefix: &str, title: &str, analysis: &mut Analysis) {
    let name = prefix.rsplit('/').next().unwrap_or_default().to_ascii_lowercase();
    let is_counted = |rest: &str| {
        rest.bytes()
            .all(|byte| byte.is_ascii_alphanumeric() || byte == b'*')
    };
    let can_become = |obeyed: &str| match obeyed.strip_prefix('*') {
        Some(end) => (1..=end.len()).any(|at| name.ends_with(&end[..at]) && is_counted(&end[at..])),
        None => obeyed.strip_prefix(name.as_str()).is_some_and(is_counted),
    };
    if name.starts_with('.') || obeyed_names().any(can_become) {
        analysis.add(
            Effect::Code,
            format!("{title}: a name that it makes may be run or obeyed"),
        );
    }
    // What is there already may be a link.
    note(&format!("{prefix}*"), None, analysis);
}

/// Judges one place that is written to; `None` is unknown.
pub(super) fn destination(path: Option<&str>, title: &str, analysis: &mut Analysis) {
    if path.is_none_or(is_obeyed) {
        let path = path.unwrap_or("?");
        analysis.add(
            Effect::Code,
            format!("{title}: what lies in `{path}` is run or obeyed"),
        );
    }
    note(path.unwrap_or_default(), None, analysis);
}

/// Judges the files that a compressor makes: their names lack an ending, or have one more.
pub(super) fn decompressed(args: &[Word], scanned: &Scanned, title: &str, analysis: &mut Analysis) {
    for index in &scanned.operands {
        let path = args[*index].shape();
        let shorter = path.as_deref().and_then(|path| path.rsplit_once('.'));
        for path in [path.as_deref(), shorter.map(|(path, _)| path)]
            .into_iter()
            .flatten()
        {
            destination(Some(path), title, analysis);
        }
    }
}

/// Notes what is copied, and to where. Trees are read as a whole.
fn copied(
    operands: &[String],
    named: Option<&String>,
    title: &str,
    scanned: &Scanned,
    analysis: &mut Analysis,
) {
    let (sources, destination) = match (named, operands.split_last()) {
        (Some(named), _) => (operands, named),
        (None, Some((last, sources))) => (sources, last),
        (None, None) => return,
    };
    analysis.makes_trees = true;
    let merges = merges(title, scanned);
    let follows = match title {
        "cp" => scanned.has_any(&["-L", "--dereference"]),
        "rsync" => scanned.has_any(&["-L", "--copy-links", "-k"]),
        _ => matches!(title, "scp" | "rcp" | "ditto"),
    };
    for source in sources {
        let path = source.clone();
        let source = Source {
            path,
            merges,
            follows,
        };
        note(destination, Some(source), analysis);
    }
    if merges {
        let reach = if follows { Reach::Linked } else { Reach::Tree };
        secrets::trees(sources.to_vec(), reach, analysis);
    }
}

/// Returns `true` if directories are copied into those that may be there, name by name.
fn merges(title: &str, scanned: &Scanned) -> bool {
    match title {
        "cp" => scanned.has_any(&["-r", "-R", "-a", "--recursive", "--archive"]),
        "rsync" | "scp" | "rcp" | "ditto" => true,
        _ => false,
    }
}

fn note(path: &str, source: Option<Source>, analysis: &mut Analysis) {
    for path in secrets::readings(path, analysis) {
        let source = source.clone();
        analysis.destinations.push(Destination { path, source });
    }
}

fn gives_rights(text: &str) -> bool {
    let digits = text.trim_start_matches('0');
    let octal = !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit());
    octal && digits.len() > 3 || !octal && text.contains('s') && text.contains(['+', '='])
}

/// Returns the names of files and directories that are executed or loaded as settings; `*` matches any text.
fn obeyed_names() -> impl Iterator<Item = &'static str> {
    OBEYED.iter().chain(PROTECTED).copied()
}

/// Returns `true` for a path whose files are executed or loaded as settings.
pub fn is_obeyed(path: &str) -> bool {
    let path = secrets::plain_path(&path.to_ascii_lowercase());
    let below = |place: &str| {
        path.strip_prefix(place)
            .is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
    };
    let obeyed = |name: &str| obeyed_names().any(|pattern| within_word(pattern, name));
    SYSTEM.iter().any(|place| below(place)) || path.split('/').any(obeyed)
}

/// Judges the mode of `chmod`. `u+s` and `4755` give the owner's privileges to every user who runs the file.
pub(super) fn mode(args: &[Word], scanned: &Scanned, title: &str, analysis: &mut Analysis) {
    let first = scanned.operands.first().map(|index| args[*index].literal());
    if first.is_some_and(|mode| mode.is_none_or(|mode| gives_rights(&mode))) {
        analysis.add(
            Effect::Privilege,
            format!("{title}: whoever runs the file gets its owner's rights"),
        );
    }
}

/// Judges `rm -r` of a large tree, or of a glob.
pub(super) fn rm(args: &[Word], title: &str, scanned: &Scanned, analysis: &mut Analysis) {
    let recursive = ["-r", "-R", "--recursive"];
    let large = |index: &usize| {
        let word = &args[*index];
        let top = word.shape().is_some_and(|text| {
            let plain = secrets::plain_path(&text);
            plain == "." || plain.starts_with('/') && plain.matches('/').count() < 2
        });
        top || secrets::is_broad(word) || word.is_glob()
    };
    if scanned.has_any(&recursive) && scanned.operands.iter().any(large) {
        analysis.add(Effect::Ruin, format!("{title}: deletes whole trees"));
    }
}

/// Judges `rsync`: read-only for a dry run on this machine.
pub(super) fn rsync(args: &[Word], scanned: &Scanned, title: &str, analysis: &mut Analysis) {
    let tried = ["-n", "--dry-run", "--list-only"];
    if !scanned.has_any(&tried) {
        analysis.add(
            Effect::Destroy,
            format!("{title}: copies, overwrites and may delete"),
        );
        place(args, scanned, title, analysis);
    }
    other_machines(args, scanned, title, analysis);
}

/// Judges operands such as `host:path`.
fn other_machines(args: &[Word], scanned: &Scanned, title: &str, analysis: &mut Analysis) {
    for index in &scanned.operands {
        if args[*index].shape().is_none_or(|text| text.contains(':')) {
            analysis.add(
                Effect::Network,
                format!("{title}: `{}` may be on another machine", args[*index].text),
            );
        }
    }
}

/// Judges `man name`: a path could be a page that a stranger wrote.
pub(super) fn manual(args: &[Word], scanned: &Scanned, title: &str, analysis: &mut Analysis) {
    let plain = |text: &str| {
        text.chars()
            .all(|sign| sign.is_ascii_alphanumeric() || "_.+:@-[".contains(sign))
    };
    for index in &scanned.operands {
        if !args[*index].literal().is_some_and(|text| plain(&text)) {
            analysis.add(
                Effect::Unknown,
                format!("{title}: `{}` is not the name of a page", args[*index].text),
            );
        }
    }
}

/// Judges `pdftotext in -`: the second operand is the output file.
pub(super) fn standard_output(args: &[Word], scanned: &Scanned, title: &str, analysis: &mut Analysis) {
    match scanned.operands.as_slice() {
        [] => {}
        [_, output] if args[*output].literal().as_deref() == Some("-") => {}
        _ => analysis.add(
            Effect::Write,
            format!("{title}: writes a file; name `-` behind the input"),
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::is_obeyed;

    #[test]
    fn places_that_programs_obey_are_known() {
        for path in [
            "~/.bashrc",
            "/root/.ssh/authorized_keys",
            "/etc/cron.d/x",
            "/usr/local/bin/x",
            "x/../.git/hooks/pre-commit",
            ".envrc",
            "/etc//profile",
            "~/bin/x",
        ] {
            assert!(is_obeyed(path), "{path}");
        }
        for path in [
            "notes.txt",
            "src/main.rs",
            "/tmp/x",
            "../y",
            "docs/.keep",
            "~/project/x",
        ] {
            assert!(!is_obeyed(path), "{path}");
        }
    }
}
