//! What `@read-only` lets run, and what it must not, line by line.

use ringfence_policy::cascade::{Decision, Rules, Verdict, decide};

fn reading(line: &str) -> Decision {
    let rules = Rules {
        allow: "@read-only".parse().into_iter().collect(),
        ..Rules::default()
    };
    decide(line, &rules)
}

/// The lines of a list, without its comments; `\n` in them is a new line.
fn lines(list: &str) -> impl Iterator<Item = String> {
    let shown = list
        .lines()
        .filter(|line| !line.is_empty() && !line.starts_with("# "));
    shown.map(|line| line.replace("\\n\\", "\n"))
}

#[test]
fn everyday_commands_run() {
    let asked: Vec<String> = lines(include_str!("everyday.txt"))
        .filter_map(|line| {
            let decision = reading(&line);
            (decision.verdict != Verdict::Allow)
                .then(|| format!("{line}   # {}", decision.reasons.join("; ")))
        })
        .collect();
    assert_eq!(asked, Vec::<String>::new());
}

#[test]
fn ways_round_are_refused() {
    let allowed: Vec<String> = lines(include_str!("refused.txt"))
        .filter(|line| reading(line).verdict != Verdict::Review)
        .collect();
    assert_eq!(allowed, Vec::<String>::new());
}
