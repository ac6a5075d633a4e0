//! Names of files that contain secrets, also where a glob could match one.

mod names;
mod places;

use super::analysis::{Analysis, INPUT, Opened, Reach};
use super::effect::Effect;
use super::options::Scanned;
use super::table::within_word;
use crate::shell::Word;
use names::{NAMES, PLACES, PUBLIC, SAMPLES, SOURCES, TELLING, TELLING_WHOLE};

/// Adds trees that a program opens: these paths, or the directory where it runs.
pub(super) fn trees(mut paths: Vec<String>, reach: Reach, analysis: &mut Analysis) {
    if paths.is_empty() {
        paths.push(".".to_owned());
    }
    for path in paths {
        let path = match &analysis.directory {
            Some(directory) if !path.starts_with(['/', '~']) => format!("{directory}/{path}"),
            _ => path,
        };
        analysis.opens.push(Opened { path, reach });
    }
}

/// Adds the trees that a search program opens, and a finding for those with secrets below.
pub(super) fn broad(args: &[Word], title: &str, scanned: &Scanned, analysis: &mut Analysis) {
    // The first operand of search programs is the pattern, unless an option holds it.
    let holds = ["-e", "-f", "--regexp", "--file"];
    let held = title == "find" || scanned.has_any(&holds);
    let below = scanned.operands.iter().skip(usize::from(!held));
    let paths = below.filter_map(|index| args[*index].shape()).collect();
    trees(paths, Reach::Tree, analysis);
    broad_places(args, title, scanned, analysis);
}

/// Adds a finding for each operand below which secrets lie.
pub(super) fn broad_places(args: &[Word], title: &str, scanned: &Scanned, analysis: &mut Analysis) {
    for index in &scanned.operands {
        if is_broad(&args[*index]) {
            let reason = format!("{title}: below `{}` lie secrets", args[*index].text);
            analysis.add(Effect::Secret, reason);
        }
    }
}

/// Adds a finding for every argument that names a secret, for programs that show names but no contents:
/// patterns do not count.
pub(super) fn check_names(args: &[Word], title: &str, analysis: &mut Analysis) {
    for word in args {
        let secret = |text: String| {
            readings(&text, analysis)
                .iter()
                .any(|text| names_secret(text, false))
        };
        if word.shape().is_some_and(secret) {
            add_finding(word, title, analysis);
        }
    }
}

/// Adds a finding for every argument that names a secret, or that is unknown. `files` are operands that are
/// files, with any names.
pub(super) fn check(args: &[Word], files: &[usize], title: &str, analysis: &mut Analysis) {
    for (index, word) in args.iter().enumerate() {
        if is_fed(word, analysis) {
            // With more in the word it is another name.
            if !analysis.sources_only || ![INPUT, "{}"].contains(&word.text.as_str()) {
                let reason = format!(
                    "{title}: `{}` may name a secret, and what is in it is shown",
                    word.text
                );
                analysis.add(Effect::Secret, reason);
            }
            continue;
        }
        let Some(text) = word.shape() else { continue };
        // These interpret patterns themselves.
        let pattern = title == "find" || title.starts_with("git ") || is_filter(&text);
        let glob = pattern || word.is_glob();
        let is_file = files.contains(&index);
        let readings = readings(&text, analysis);
        let secret =
            |text: &String| names_secret(text, glob) || is_file && is_closed_file(text) || is_closed(text);
        if readings.iter().any(secret) {
            add_finding(word, title, analysis);
        }
        let reach = Reach::File;
        analysis
            .opens
            .extend(readings.into_iter().map(|path| Opened { path, reach }));
    }
}

fn add_finding(word: &Word, title: &str, analysis: &mut Analysis) {
    analysis.add(
        Effect::Secret,
        format!("{title}: `{}` may name a secret", word.text),
    );
}

/// Returns `true` if the word stands for names chosen elsewhere: `xargs`, `find -exec`, `$(…)`.
fn is_fed(word: &Word, analysis: &Analysis) -> bool {
    word.text.contains(INPUT) || analysis.templated && word.text.contains("{}")
}

/// Returns the name itself, and the name below the directory that the line may have changed to.
pub(super) fn readings(text: &str, analysis: &Analysis) -> Vec<String> {
    let below = analysis
        .directory
        .as_ref()
        .filter(|_| !text.starts_with(['/', '~']))
        .map(|directory| format!("{directory}/{text}"));
    std::iter::once(text.to_owned()).chain(below).collect()
}

/// Returns `true` for an option of `rg` or `grep` that selects files by pattern.
fn is_filter(text: &str) -> bool {
    ["-g", "--glob=", "--iglob=", "--include="]
        .iter()
        .any(|option| text.starts_with(option))
}

/// Returns `true` for a place that contains secrets of a user or of the system.
pub(super) fn is_broad(word: &Word) -> bool {
    word.shape().is_none_or(|text| is_broad_path(&text))
}

pub(super) fn is_broad_path(text: &str) -> bool {
    let text = plain_path(text);
    let text = text.as_str();
    let above = text.split('/').filter(|part| !part.is_empty());
    text.is_empty()
        || text == "/"
        || text.starts_with('~') && (!text.contains('/') || text.contains("/.."))
        || [
            "/root", "/home", "/etc", "/Users", "/proc", "/var", "/run", "/dev",
        ]
        .contains(&text)
        || (text.starts_with("/home/") || text.starts_with("/Users/")) && above.clone().count() < 3
        || above.clone().count() > 0 && above.clone().all(|part| part == "..")
        || is_closed(text)
}

/// Normalizes the path: removes `.`, and names cancelled by `..`.
pub(super) fn plain_path(text: &str) -> String {
    let rooted = text.starts_with('/');
    let mut parts: Vec<&str> = Vec::new();
    for part in text.split('/').filter(|part| !part.is_empty() && *part != ".") {
        match parts.last() {
            Some(last) if part == ".." && *last != ".." && !last.starts_with('~') => {
                parts.pop();
            }
            None if part == ".." && rooted => {}
            _ => parts.push(part),
        }
    }
    match (rooted, parts.as_slice()) {
        (true, parts) => format!("/{}", parts.join("/")),
        (false, []) if !text.is_empty() => ".".to_owned(),
        (false, parts) => parts.join("/"),
    }
}

/// Returns `true` if a resolved path is that of a secret. `home` is the expansion of `~`.
pub fn is_secret_path(path: &str, home: Option<&str>) -> bool {
    let below = home.and_then(|home| path.strip_prefix(home));
    let in_home = below
        .filter(|rest| rest.is_empty() || rest.starts_with('/'))
        .map(|rest| format!("~{rest}"));
    let is = |path: &str| names_secret(path, false) || is_closed(path) || is_closed_file(path);
    is(path) || in_home.is_some_and(|path| is(&path))
}

/// Returns `true` if secrets of a user or of the system lie below a resolved path.
pub fn is_broad_place(path: &str, home: Option<&str>) -> bool {
    is_broad_path(path) || home.is_some_and(|home| plain_path(home).starts_with(&plain_path(path)))
}

/// Returns `true` inside a denied place, where everything counts as secret unless listed as public.
fn is_closed(text: &str) -> bool {
    if is_public_key(text) {
        return false;
    }
    // `--file=/etc/x`
    let values = text.rsplit(['=', ':', '@', ',']).take(3);
    let closed = |text: &str| {
        let plain = plain_path(text).to_ascii_lowercase();
        // Going up, it may reach the top.
        let top = plain
            .starts_with("../")
            .then(|| format!("/{}", plain.trim_start_matches("../")));
        text.starts_with(['/', '~']) && places::is_closed(&plain)
            || top.is_some_and(|top| places::is_closed(&top))
    };
    closed(text) || values.into_iter().any(closed)
}

/// Returns `true` if the file's name suggests a secret.
fn is_closed_file(text: &str) -> bool {
    let lower = plain_path(text).to_ascii_lowercase();
    let name = lower.rsplit('/').next().unwrap_or_default();
    let ending = name.rsplit_once('.').map_or("", |(_, ending)| ending);
    let source = SOURCES.contains(&ending) || PUBLIC.iter().any(|pattern| within_word(pattern, name));
    !source
        && (TELLING_WHOLE.contains(&name)
            || name != "passwd" && TELLING.iter().any(|word| name.contains(word)))
}

/// Returns `true` if the text names a secret; with `glob`, also as a pattern.
pub(super) fn names_secret(text: &str, glob: bool) -> bool {
    let lower = text.to_ascii_lowercase();
    if in_place(&lower) {
        return true;
    }
    let separates = |sign: char| sign.is_whitespace() || "/:=@,'\"();|<>{}".contains(sign);
    let is_path = lower.contains('/');
    let public = is_public_key(&lower);
    lower
        .split(separates)
        .filter(|part| !part.is_empty() && (!public || *part != ".ssh"))
        .any(|part| {
            is_secret(part) || is_telling(part, is_path) || is_attached(part) || glob && becomes_secret(part)
        })
}

/// Returns `true` for a public key, which may lie beside the private one.
fn is_public_key(text: &str) -> bool {
    let name = text.rsplit('/').next().unwrap_or_default();
    name.ends_with(".pub") && !name.contains(['*', '?', '['])
}

/// Returns `true` below one of the places, however the path is written.
fn in_place(lower: &str) -> bool {
    let plain = format!("/{}", plain_path(lower).trim_start_matches('/'));
    let in_one = |place: &&str| lower.contains(place) || plain.contains(place);
    if PLACES.iter().any(in_one) || lower.starts_with("secrets/") {
        return true;
    }
    lower.starts_with("/proc/") && lower.ends_with("/mem")
        || lower.contains("=/proc/") && lower.contains("environ")
}

/// Returns `true` for a file name that suggests a secret.
fn is_telling(name: &str, is_path: bool) -> bool {
    let telling = [
        "secret",
        "credential",
        "passwd",
        "password",
        "api_key",
        "apikey",
        "private_key",
        "privatekey",
        "_token",
        "token.",
    ];
    let looks_like_a_file = is_path || name.trim_matches('.').contains('.');
    // The list of users is not a list of passwords.
    looks_like_a_file && name != "passwd" && telling.iter().any(|word| name.contains(word))
}

/// Returns `true` for the value of a short option without a blank: `-f.env`.
fn is_attached(part: &str) -> bool {
    let letters = part
        .strip_prefix('-')
        .filter(|rest| !rest.starts_with('-') && rest.is_ascii() && rest.len() < 60);
    letters.is_some_and(|rest| (1..rest.len()).any(|at| is_secret(&rest[at..])))
}

fn is_secret(name: &str) -> bool {
    // `.key` is not a key, `server.key` is.
    let fits = |pattern: &&str| {
        within_word(pattern, name) && (pattern.len() <= name.len() || !pattern.starts_with("*."))
    };
    NAMES.iter().copied().flatten().any(fits) && !PUBLIC.iter().any(fits)
}

/// Returns `true` if the glob could match the name of a secret.
fn becomes_secret(pattern: &str) -> bool {
    if !pattern.contains(['*', '?', '[']) {
        return false;
    }
    let first = pattern.as_bytes()[0];
    SAMPLES.iter().any(|sample| {
        // A star never matches a leading dot.
        (!sample.starts_with('.') || matches!(first, b'.' | b'['))
            && could_be(pattern.as_bytes(), sample.as_bytes())
    })
}

/// Matches a glob against a name of fewer than 64 characters.
///
/// A bracket may be itself, or begin a set of any characters that any later bracket closes: `[]e]`, `[[:alpha:]]`.
/// One that none closes, here or in a part of the word, counts as a star.
fn could_be(pattern: &[u8], name: &[u8]) -> bool {
    // One bit for each reachable position in the name, and for each behind a character of an open set.
    let (mut reached, mut set): (u64, u64) = (1, 0);
    let last = pattern.iter().rposition(|sign| *sign == b']').unwrap_or(0);
    for (at, sign) in pattern.iter().enumerate() {
        if reached | set == 0 {
            return false;
        }
        let here = |index: &usize| name[*index] == *sign;
        let fits = (0..name.len())
            .filter(here)
            .fold(0, |bits, index| bits | 1 << index);
        let plain = (reached & fits) << 1;
        reached = match sign {
            b'*' if reached != 0 => u64::MAX << reached.trailing_zeros(),
            b'?' => reached << 1,
            b'[' if at >= last && reached & ((2 << name.len()) - 1) != 0 => return true,
            b'[' => {
                set |= reached << 1;
                plain
            }
            b']' => plain | set,
            _ => plain,
        };
    }
    reached & (1 << name.len()) != 0
}
