//! Lines that `@read-only` allows, and lines that it must not.

use std::sync::Arc;

use ringfence_policy::cascade::{Confinement, Decision, Rules, Verdict, decide};

fn reading(line: &str) -> Decision {
    decide(line, &preset(&[("awk", "--sandbox"), ("yq", "-L /var/empty")]))
}

/// The preset, on a machine with these confining options.
fn preset(confined: &[(&'static str, &'static str)]) -> Rules {
    let confinements: Arc<[Confinement]> = confined
        .iter()
        .map(|(program, words)| Confinement { program, words })
        .collect();
    Rules {
        allow: "@read-only".parse().into_iter().collect(),
        confinements,
        ..Rules::default()
    }
}

/// Returns the lines of a list, without comments; `\n` in a line is a newline.
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

/// A file may be called `--files0-from=link`, and `wc` shows what it cannot read as names.
#[test]
fn names_chosen_elsewhere_are_no_options() {
    for (line, runs) in [
        ("wc *", "wc -- *"),
        ("du -s *", "du -s -- *"),
        ("nice wc *", "nice wc -- *"),
        ("wc -l $(ls)", "wc -l -- $(ls)"),
        (
            "for f in $(ls); do wc -l $f; done",
            "for f in $(ls); do wc -l -- $f; done",
        ),
        ("ls | xargs -I{} wc -l {}", "ls | xargs -I{} wc -l -- {}"),
        ("ls | xargs -I% wc -l %", "ls | xargs -I% wc -l -- %"),
        ("ls | xargs -i% wc -l %", "ls | xargs -i% wc -l -- %"),
        ("ls | xargs -i wc -l {}", "ls | xargs -i wc -l -- {}"),
        ("ls | xargs -I{} -I% wc -l %", "ls | xargs -I{} -I% wc -l -- %"),
        (
            "ls | xargs -n1 timeout 5 wc -l",
            "ls | xargs -n1 timeout 5 wc -l --",
        ),
    ] {
        let decision = reading(line);
        assert_eq!(decision.verdict, Verdict::Allow, "{line}: {:?}", decision.reasons);
        assert_eq!(decision.runs.as_deref(), Some(runs), "{line}");
    }
    // Options behind the names would become names.
    assert_eq!(reading("wc * -l").verdict, Verdict::Review);
    assert_eq!(reading("wc -l a *.rs").runs.as_deref(), Some("wc -l a -- *.rs"));
}

#[test]
fn programs_with_a_language_run_confined_or_not_at_all() {
    let runs = |line: &str| reading(line).runs.unwrap_or_default();
    for (line, expected) in [
        ("sed p x", "sed --sandbox p x"),
        (
            "sed -n '1p' x | sed s/a/b/",
            "sed --sandbox -n '1p' x | sed --sandbox s/a/b/",
        ),
        (
            "find . -type f -name '*.md' -exec sed -n p {} +",
            "find . -type f -name '*.md' -exec sed --sandbox -n p {} +",
        ),
        ("echo \"$(sed -n p x)\" <y", "echo \"$(sed --sandbox -n p x)\" <y"),
        (
            "timeout 5 env nice sed p x",
            "timeout 5 env nice sed --sandbox p x",
        ),
        (
            "for i in 1 2; do sed -n \"${i}p\" x; done",
            "for i in 1 2; do sed --sandbox -n \"${i}p\" x; done",
        ),
        ("awk '{print $1}' x", "awk --sandbox '{print $1}' x"),
        ("gawk 1 x", "gawk --sandbox 1 x"),
        ("jq .a x", "jq -L /var/empty .a x"),
        ("yq .a x.yml", "yq -L /var/empty .a x.yml"),
        ("xmllint --format x", "xmllint --nonet --format x"),
        ("sqlite3 x 'select 1'", "sqlite3 -safe -readonly x 'select 1'"),
        (
            "duckdb -readonly x 'select 1'",
            "duckdb -safe -readonly x 'select 1'",
        ),
    ] {
        assert_eq!(
            reading(line).verdict,
            Verdict::Allow,
            "{line}: {:?}",
            reading(line).reasons
        );
        assert_eq!(runs(line), expected, "{line}");
        assert!(
            reading(line)
                .reasons
                .iter()
                .any(|reason| reason.contains(expected)),
            "{line}"
        );
    }
    // No position for the option, no such option, or an unknown implementation.
    for line in [
        "bash -c 'sed p x'",
        "echo `sed p x`",
        "psql -c 'select 1'",
        "mysql -e 'select 1'",
        "mawk 1 x",
    ] {
        assert_eq!(reading(line).verdict, Verdict::Review, "{line}");
    }
    // It runs `packer-plugin-*` of the working directory first.
    for line in ["packer version", "packer fmt -check x.hcl"] {
        assert_eq!(reading(line).verdict, Verdict::Review, "{line}");
    }
    for line in ["awk 1 x", "yq . x.yml"] {
        assert_eq!(decide(line, &preset(&[])).verdict, Verdict::Review, "{line}");
    }
    // Neither a help request nor a command spelled out in full gets the option.
    assert_eq!(reading("sed --help").runs, None);
    assert_eq!(reading("sed -i p x").verdict, Verdict::Review);
    let exact = Rules {
        allow: vec!["sed -n 1p x".parse().expect("it is a pattern")],
        ..Rules::default()
    };
    let decision = decide("sed -n 1p x", &exact);
    assert_eq!((decision.verdict, decision.runs), (Verdict::Allow, None));
}
