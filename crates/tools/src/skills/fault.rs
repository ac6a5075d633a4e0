//! Sanitizes error messages for programs: they reveal nothing of this machine.

use std::sync::OnceLock;

use regex::Regex;

/// Maximum length of a message, in characters.
const MAX_MESSAGE: usize = 500;

/// Maximum number of bytes of a message to process.
const MAX_READ: usize = 8 * 1024;

/// Returns the part of a message to process.
pub(super) fn read_of(message: &str) -> &str {
    let end = message.floor_char_boundary(MAX_READ);
    message.get(..end).unwrap_or_default()
}

/// Removes tracebacks, paths of this machine and control characters from a skill's message, and truncates it.
pub(super) fn sanitised(message: &str) -> String {
    let message = read_of(message);
    // The last line of a traceback is the error; the rest is its location.
    let told = match message.contains("Traceback (most recent call last)") {
        true => message
            .lines()
            .rfind(|line| !line.trim().is_empty())
            .unwrap_or_default(),
        false => message,
    };
    let told: String = told
        .chars()
        .map(|c| if c.is_control() { ' ' } else { c })
        .collect();
    let told = without_paths(told.trim());
    match told.chars().count() > MAX_MESSAGE {
        true => told.chars().take(MAX_MESSAGE - 1).chain(['…']).collect(),
        false => told,
    }
}

fn without_paths(text: &str) -> String {
    static PATHS: OnceLock<Option<Regex>> = OnceLock::new();
    // An absolute path of at least two names that is not part of a URL; or a Windows path.
    let paths = PATHS
        .get_or_init(|| Regex::new(r#"(^|[^\w/:.])(?:/[^\s/'"<>:,;()]+){2,}/?|[A-Za-z]:\\[^\s'"<>]+"#).ok());
    match paths {
        Some(paths) => paths.replace_all(text, "$1<path>").into_owned(),
        None => String::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(message: &str, expected: &str) {
        assert_eq!(sanitised(message), expected);
    }

    #[test]
    fn nothing_of_the_machine_is_told() {
        check("ValueError: no such day", "ValueError: no such day");
        check(
            "Traceback (most recent call last):\n  File \"/skills/notes.py\", line 3, in add\n    raise KeyError('x')\nKeyError: 'x'\n",
            "KeyError: 'x'",
        );
        check(
            "[Errno 2] No such file or directory: '/home/ann/.ssh/id_rsa'",
            "[Errno 2] No such file or directory: '<path>'",
        );
        check(
            "cannot open /var/lib/notes.db, sorry",
            "cannot open <path>, sorry",
        );
        check("GET https://a.test/b/c failed", "GET https://a.test/b/c failed");
        check("1/2 and a/b/c", "1/2 and a/b/c");
        check("C:\\Users\\ann\\notes.db is locked", "<path> is locked");
        check("a\u{1b}[31m\nb", "a [31m b");
    }

    #[test]
    fn it_is_short() {
        let told = sanitised(&"é".repeat(100_000));
        assert_eq!(told.chars().count(), MAX_MESSAGE);
    }
}
