//! Commands written without knowledge of the table: a command with an effect is never allowed, and most
//! read-only ones are.

use std::sync::Arc;

use ringfence_policy::cascade::{Confinement, Pattern, Rules, Verdict, decide};

/// A machine with GNU awk, and the `yq` that passes its arguments to `jq`.
fn rules(patterns: &[&str]) -> Rules {
    let confined = [("awk", "--sandbox"), ("yq", "-L /var/empty")];
    let confinements: Arc<[Confinement]> = confined
        .iter()
        .map(|(program, words)| Confinement { program, words })
        .collect();
    Rules {
        allow: patterns
            .iter()
            .filter_map(|text| text.parse::<Pattern>().ok())
            .collect(),
        confinements,
        ..Rules::default()
    }
}

/// Returns the lines of a list. A line with newlines in it is a JSON string.
fn lines(list: &str) -> Vec<String> {
    let shown = list
        .lines()
        .filter(|line| !line.is_empty() && !line.starts_with('#'));
    shown
        .map(|line| serde_json::from_str(line).unwrap_or_else(|_| line.to_owned()))
        .collect()
}

#[test]
fn nothing_dangerous_is_allowed() {
    let mut all = lines(include_str!("heldout/dangerous.txt"));
    all.extend(lines(include_str!("heldout/second_dangerous.txt")));
    all.extend(lines(include_str!("heldout/third_dangerous.txt")));
    all.extend(lines(include_str!("heldout/fourth_dangerous.txt")));
    all.extend(lines(include_str!("heldout/fifth_dangerous.txt")));
    assert!(all.len() > 3_400, "{}", all.len());
    let preset = rules(&["@read-only"]);
    let allowed: Vec<&String> = all
        .iter()
        .filter(|line| decide(line, &preset).verdict != Verdict::Review)
        .collect();
    assert_eq!(allowed, Vec::<&String>::new());
}

#[test]
fn most_of_what_only_reads_is_allowed() {
    let preset = rules(&["@read-only"]);
    for list in [
        include_str!("heldout/read_only.txt"),
        include_str!("heldout/second_read_only.txt"),
        include_str!("heldout/third_read_only.txt"),
        include_str!("heldout/fourth_read_only.txt"),
    ] {
        let all = lines(list);
        let asked: Vec<&String> = all
            .iter()
            .filter(|line| decide(line, &preset).verdict == Verdict::Review)
            .collect();
        let share = 100 * (all.len() - asked.len()) / all.len();
        eprintln!("{asked:#?}\n{share} % of {}", all.len());
        assert!(share >= 90, "{share} %");
    }
}

#[test]
fn no_star_and_no_bare_program_gives_code_or_the_unknown() {
    let allowed: Vec<String> = lines(include_str!("heldout/stars.txt"))
        .into_iter()
        .filter(|line| {
            let (pattern, command) = line.split_once(" ⇒ ").unwrap_or_default();
            decide(command, &rules(&[pattern])).verdict != Verdict::Review
        })
        .collect();
    assert_eq!(allowed, Vec::<String>::new());
}

/// Ordinary uses of such patterns go on without a question.
#[test]
fn stars_give_what_their_programs_do_to_named_files() {
    for (pattern, command) in [
        ("tar *", "tar -czf x.tgz src"),
        ("tar *", "tar czf x.tgz src"),
        ("tar *", "tar tvf x.tar"),
        ("unzip *", "unzip -l x.zip"),
        ("zip *", "zip -r x.zip src"),
        ("cp *", "cp -r src out"),
        ("mv *", "mv a b"),
        ("git mv *", "git mv a b"),
        ("convert *", "convert x.png y.jpg"),
        ("tee *", "tee x"),
        ("cp *", "cd sub; cp a out"),
        ("gzip *", "gzip -k x.log"),
        ("rsync *", "rsync -a src/ out"),
    ] {
        let decision = decide(command, &rules(&[pattern]));
        assert_eq!(
            decision.verdict,
            Verdict::Allow,
            "{command}: {:?}",
            decision.reasons
        );
    }
}
