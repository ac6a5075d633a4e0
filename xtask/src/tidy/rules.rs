//! Rules for a single source file.

use crate::source::{Source, has_word};

/// Beyond this, a file holds more than one idea.
const BARE_LINES: usize = 600;

/// Files that may be longer, with the reason.
const LONG_FILES: &[(&str, &str)] = &[];

/// Test files that may sleep, with the reason: a bounded poll for something that has no event to wait on.
const MAY_SLEEP: &[(&str, &str)] = &[];

/// The only directory of the product with unsafe code.
const UNSAFE_HOME: &str = "crates/jail/src/sys";

/// Modules of std that a crate of pure values must not use.
const IMPURE: &[&str] = &[
    "fs",
    "net",
    "process",
    "env",
    "time::Instant",
    "time::SystemTime",
    "thread",
];

/// The portable backend: its programs run without features of the operating system, apart from the fence
/// around them.
const PORTABLE: &str = "crates/exec/src/pyodide/";

/// Words that open a question where a doc comment names a thing or an act (`STYLE.md`).
const QUESTION_WORDS: &[&str] = &[
    "What", "How", "Whether", "Which", "Who", "Whom", "Whose", "Where", "When", "Why", "That",
];

/// Names that exist on some systems only.
const OF_A_SYSTEM: &[&str] = &["std::os", "libc", "ringfence_jail"];

/// Returns every breach in one file, as `path:line: message`.
pub(crate) fn check(source: &Source) -> Vec<String> {
    let mut breaches = Vec::new();
    header(source, &mut breaches);
    length(source, &mut breaches);
    test_attributes(source, &mut breaches);
    unsafe_at_home(source, &mut breaches);
    no_sleep(source, &mut breaches);
    purity(source, &mut breaches);
    portability(source, &mut breaches);
    openings(source, &mut breaches);
    breaches
}

fn header(source: &Source, breaches: &mut Vec<String>) {
    if !source.text.starts_with("//! ") {
        breaches.push(format!(
            "{}:1: open the file with a `//!` line that says its one idea",
            source.path
        ));
    }
}

/// A doc comment begins with a verb in the third person or with a noun.
fn openings(source: &Source, breaches: &mut Vec<String>) {
    let mut is_inside = false;
    for (number, line) in source.text.lines().enumerate() {
        let line = line.trim_start();
        let doc = line.strip_prefix("///").or_else(|| line.strip_prefix("//!"));
        let opening = doc
            .filter(|_| !is_inside)
            .and_then(|doc| doc.split_whitespace().next());
        if let Some(word) = opening.filter(|word| QUESTION_WORDS.contains(word)) {
            breaches.push(format!(
                "{}:{}: a doc comment opens with a verb or a noun, not with `{word}`",
                source.path,
                number + 1
            ));
        }
        is_inside = doc.is_some();
    }
}

fn length(source: &Source, breaches: &mut Vec<String>) {
    let lines = source.bare_lines();
    if lines > BARE_LINES && !listed(LONG_FILES, source) {
        breaches.push(format!(
            "{}: {lines} bare lines, more than {BARE_LINES}; split it",
            source.path
        ));
    }
}

fn test_attributes(source: &Source, breaches: &mut Vec<String>) {
    for (number, line, _) in source.lines() {
        for attribute in ["ignore", "should_panic"] {
            let dense: String = line.split_whitespace().collect();
            if dense.contains(&format!("#[{attribute}")) {
                breaches.push(format!(
                    "{}:{number}: no #[{attribute}]; a test runs and proves something",
                    source.path
                ));
            }
        }
    }
}

fn unsafe_at_home(source: &Source, breaches: &mut Vec<String>) {
    let home =
        source.path.starts_with(&format!("{UNSAFE_HOME}/")) || source.path == format!("{UNSAFE_HOME}.rs");
    if home {
        return;
    }
    let reasoned = source.text.contains("unsafe_code, reason") || source.text.contains("unsafe_code,\n");
    for (number, line, test) in source.lines() {
        if has_word(line, "unsafe") && !(test && reasoned) {
            breaches.push(format!(
                "{}:{number}: unsafe belongs to {UNSAFE_HOME}",
                source.path
            ));
        }
    }
}

fn no_sleep(source: &Source, breaches: &mut Vec<String>) {
    if listed(MAY_SLEEP, source) {
        return;
    }
    for (number, line, test) in source.lines() {
        if test && has_word(line, "sleep") && line.contains("sleep(") {
            breaches.push(format!(
                "{}:{number}: a test waits for an event, not for a time",
                source.path
            ));
        }
    }
}

fn purity(source: &Source, breaches: &mut Vec<String>) {
    if !source.path.starts_with("crates/policy/src/") {
        return;
    }
    let dense: String = source.code.split_whitespace().collect();
    for name in IMPURE {
        if dense.contains(&format!("std::{name}")) || grouped(&dense, name) {
            breaches.push(format!(
                "{}: policy is pure; it must not use std::{name}",
                source.path
            ));
        }
    }
}

fn portability(source: &Source, breaches: &mut Vec<String>) {
    if !source.path.starts_with(PORTABLE) {
        return;
    }
    for (number, line, test) in source.lines() {
        let found = OF_A_SYSTEM.iter().find(|name| line.contains(**name));
        if let Some(name) = found.filter(|_| !test) {
            breaches.push(format!(
                "{}:{number}: {name} is not everywhere; what knows the system is `crate::local`",
                source.path
            ));
        }
    }
}

/// Finds `use std::{a, name, b}` in text without white space.
fn grouped(dense: &str, name: &str) -> bool {
    dense.split("usestd::{").skip(1).any(|after| {
        let group = after.split(';').next().unwrap_or_default();
        let (module, item) = name.split_once("::").unwrap_or((name, ""));
        has_word(group, module) && (item.is_empty() || has_word(group, item))
    })
}

fn listed(list: &[(&str, &str)], source: &Source) -> bool {
    list.iter().any(|(path, _)| *path == source.path)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check_one(path: &str, text: &str, expected: &str) {
        let breaches = check(&Source::new(path, text.to_owned()));
        assert_eq!(breaches.len(), 1, "{breaches:?}");
        assert!(breaches[0].contains(expected), "{breaches:?}");
    }

    #[test]
    fn each_rule_finds_its_breach() {
        check_one("crates/cli/src/a.rs", "fn a() {}\n", "a `//!` line");
        check_one(
            "crates/cli/src/a.rs",
            &format!("//! A.\n{}", "a();\n".repeat(601)),
            "601 bare lines",
        );
        check_one(
            "crates/cli/src/a.rs",
            "//! A.\n#[ignore = \"slow\"]\nfn a() {}\n",
            "no #[ignore]",
        );
        check_one(
            "crates/cli/src/a.rs",
            "//! A.\nfn a() { unsafe { b() } }\n",
            "unsafe belongs",
        );
        check_one(
            "crates/cli/tests/it/a.rs",
            "//! A.\nfn a() { thread::sleep(b); }\n",
            "waits for an event",
        );
        check_one(
            "crates/policy/src/a.rs",
            "//! A.\nuse std::fs::File;\n",
            "std::fs",
        );
        check_one(
            "crates/policy/src/a.rs",
            "//! A.\nuse std::{fmt, env};\n",
            "std::env",
        );
        check_one(
            "crates/policy/src/a.rs",
            "//! A.\nuse std::{fmt, time::{Duration, Instant}};\n",
            "Instant",
        );
        check_one(
            "crates/exec/src/pyodide/a.rs",
            "//! A.\nuse std::os::fd::OwnedFd;\n",
            "std::os is not everywhere",
        );
        check_one(
            "crates/cli/src/a.rs",
            "//! A.\n\n/// What it is.\nfn a() {}\n",
            "`What`",
        );
    }

    #[test]
    fn what_is_allowed_passes() {
        for (path, text) in [
            ("crates/jail/src/sys/a.rs", "//! A.\nfn a() { unsafe { b() } }\n"),
            (
                "crates/cli/src/a.rs",
                "//! A.\n\n/// Returns\n/// What it is.\nfn a() {}\n",
            ),
            (
                "crates/cli/src/a.rs",
                "//! A.\nfn a() { sleep(b); let c = \"unsafe #[ignore]\"; }\n",
            ),
            (
                "crates/policy/src/a.rs",
                "//! A.\nuse std::{fmt, time::Duration};\n",
            ),
            (
                "crates/exec/src/pyodide/a.rs",
                "//! A.\n#[cfg(test)]\nmod tests {\n    use std::os::unix::fs::symlink;\n}\n",
            ),
            (
                "crates/cli/tests/it/a.rs",
                "//! A.\n#![expect(unsafe_code, reason = \"b\")]\nfn a() { unsafe { b() } }\n",
            ),
        ] {
            assert_eq!(check(&Source::new(path, text.to_owned())), Vec::<String>::new());
        }
    }
}
