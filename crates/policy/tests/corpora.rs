//! Tests the policy against other projects' command corpora, if a copy lies beside the repository.
//!
//! With `@read-only` as the only pattern, no dangerous command may run unreviewed, and most harmless ones do.
//! Labels that are wrong for this policy are in `corpora_labels.txt`, with the reason.

use std::path::{Path, PathBuf};

use ringfence_policy::cascade::{Rules, Verdict, decide};
use serde_json::Value;

/// Labels that forbid a verdict of allow.
const FORBIDDEN: &[&str] = &[
    "destructive",
    "bypass-destructive",
    "must-not-auto-run",
    "needs-approval",
];

#[test]
fn nothing_forbidden_is_allowed_and_most_that_is_harmless_is() {
    let Some(file) = beside("shell_commands.jsonl") else {
        return;
    };
    let content = std::fs::read_to_string(file).expect("it can be read");
    let read = |line| serde_json::from_str(line).expect("each line is an object");
    let rows: Vec<Value> = content.lines().map(read).collect();
    let rules = Rules {
        allow: vec!["@read-only".parse().expect("the preset exists")],
        ..Rules::default()
    };
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
    // Some commands that their projects call read-only show environments and tokens, or ask a bucket that
    // may be anybody's. `cdk version` loads plug-ins that the project names.
    assert!(share >= 76, "{share} %");
}

#[test]
fn floors_are_those_of_the_labels() {
    let Some(file) = beside("shell_commands.jsonl") else {
        return;
    };
    let content = std::fs::read_to_string(file).expect("it can be read");
    let mut low = Vec::new();
    for line in content.lines() {
        let row: Value = serde_json::from_str(line).expect("each line is an object");
        let least = match text(&row, "label") {
            "destructive" | "bypass-destructive" => 9,
            "must-not-auto-run" | "needs-approval" => 5,
            _ => 0,
        };
        let command = text(&row, "command");
        let floor = decide(command, &Rules::default()).floor;
        // One label calls a search destructive.
        let searches = command.ends_with("| xargs grep pattern");
        if floor < least && !searches {
            low.push(format!("{floor} < {least}: {command}"));
        }
    }
    assert_eq!(low, Vec::<String>::new());
}

fn is_listed(list: &str, command: &str) -> bool {
    let shown = command.replace('\n', "\\n");
    list.lines()
        .any(|line| line.split("  # ").next() == Some(shown.as_str()))
}

fn text<'a>(row: &'a Value, key: &str) -> &'a str {
    row[key].as_str().unwrap_or_default()
}

/// Returns a file of the corpus, if one lies beside the repository.
fn beside(name: &str) -> Option<PathBuf> {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut places = here
        .ancestors()
        .map(|above| above.join("shared/corpora").join(name));
    places.find(|place| place.exists())
}

#[test]
fn rules_of_other_projects_are_followed_where_they_mean_the_same() {
    let rules = |patterns: &[&str]| Rules {
        allow: patterns
            .iter()
            .map(|text| text.parse().expect("it is a pattern"))
            .collect(),
        ..Rules::default()
    };
    let log = rules(&["git log *"]);
    for command in ["git logout", "git log || rm -rf /", "git log @(Get-Process)"] {
        assert_eq!(decide(command, &log).verdict, Verdict::Review, "{command}");
    }
    assert_eq!(decide("git log --oneline", &log).verdict, Verdict::Allow);
    let status = rules(&["git status *"]);
    assert_eq!(
        decide("git --config color.status=always status", &status).verdict,
        Verdict::Review
    );
    let reading = rules(&["@read-only"]);
    for command in [
        "env docker ps",
        "kubectl get pods",
        "aws --profile dev sts get-caller-identity",
    ] {
        assert_eq!(decide(command, &reading).verdict, Verdict::Allow, "{command}");
    }
    for command in [
        "docker compose exec web sh",
        "kubectl delete pod x",
        "gh api -X POST repos/o/r/issues",
        "helmfile apply",
        // The values may contain a key.
        "helm get values my-release",
        "git status && (git diff)",
    ] {
        assert_eq!(decide(command, &reading).verdict, Verdict::Review, "{command}");
    }
}
