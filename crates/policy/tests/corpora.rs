//! Commands that other projects test their policies with, where a copy of them lies beside the repository.
//!
//! With `@read-only` as the only pattern, none that must not run by itself may run, and most of the harmless ones do. Labels that
//! are wrong for us are in `corpora_labels.txt`, with the reason.

use std::path::{Path, PathBuf};

use ringfence_policy::{Rules, Verdict, decide};
use serde_json::Value;

/// Labels under which nothing may be allowed.
const FORBIDDEN: &[&str] = &["destructive", "bypass-destructive", "must-not-auto-run", "needs-approval"];

#[test]
fn nothing_forbidden_is_allowed_and_most_that_is_harmless_is() {
    let Some(rows) = rows("shell_commands.jsonl") else {
        return;
    };
    let rules = rules();
    let wrong = include_str!("corpora_labels.txt");
    let (mut allowed, mut reviewed) = (Vec::new(), Vec::new());
    let mut harmless = 0;
    for row in &rows {
        let (command, label) = (text(row, "command"), text(row, "label"));
        let decision = decide(command, &rules);
        let runs = decision.verdict == Verdict::Allow;
        if FORBIDDEN.contains(&label) && runs && !is_listed(wrong, command) {
            allowed.push(format!("{label}: {command}"));
        }
        if label == "read-only" {
            harmless += 1;
            if !runs {
                reviewed.push(format!("{command}   # {}", decision.reasons.join("; ")));
            }
        }
    }
    eprintln!("{}", reviewed.join("\n"));
    let share = 100 * (harmless - reviewed.len()) / harmless.max(1);
    eprintln!("forbidden and allowed: {}", allowed.len());
    eprintln!("harmless and allowed: {share} % of {harmless}");
    assert_eq!(allowed, Vec::<String>::new());
    assert!(share >= 80, "{share} %");
}

fn is_listed(list: &str, command: &str) -> bool {
    let shown = command.replace('\n', "\\n");
    list.lines().any(|line| line.split("  # ").next() == Some(shown.as_str()))
}

fn rules() -> Rules {
    Rules {
        allow: vec!["@read-only".parse().expect("the preset exists")],
        ..Rules::default()
    }
}

fn text<'a>(row: &'a Value, key: &str) -> &'a str {
    row[key].as_str().unwrap_or_default()
}

fn rows(name: &str) -> Option<Vec<Value>> {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    let places = here.ancestors().map(|above| above.join("shared/corpora").join(name));
    let file: PathBuf = places.into_iter().find(|place| place.exists())?;
    let content = std::fs::read_to_string(file).expect("it can be read");
    let read = |line| serde_json::from_str(line).expect("each line is an object");
    Some(content.lines().map(read).collect())
}
