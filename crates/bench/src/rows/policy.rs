//! Time of a decision of the command policy.

use std::time::Instant;

use ringfence_policy::cascade::{Rules, decide};
use ringfence_policy::shell::MAX_CHARACTERS;

use super::super::context::BenchContext;
use super::super::figure::{Figure, Sample, Target, Unit};
use super::super::process::milliseconds;

const DECISIONS: usize = 2_000;
const LONG_DECISIONS: usize = 40;

const EVERYDAY: &str = "git log --oneline --since='2 weeks ago' -- src | grep -v merge | head -n 20";

pub(super) fn decision(place: &mut BenchContext) -> anyhow::Result<Vec<Figure>> {
    let rules = &place.machine.rules;
    let figure = |what: String, sample: Sample| {
        Figure::new("policy", what, sample.median, Unit::Milliseconds).with(sample)
    };
    let everyday = time(EVERYDAY, DECISIONS, rules);
    let mut worst: Option<(Sample, &str)> = None;
    let lines = worst_lines();
    for line in &lines {
        let sample = time(line, LONG_DECISIONS, rules);
        if worst.is_none_or(|(so_far, _)| so_far.median < sample.median) {
            worst = Some((sample, line));
        }
    }
    let endless = "echo $x; ".repeat(100_000 / 9 + 1);
    let endless = time(&endless, LONG_DECISIONS, rules);
    let mut figures = vec![figure("an everyday line".to_owned(), everyday)];
    figures.extend(worst.map(|(sample, line)| {
        let note = format!("of {} lines, the one that begins `{:.30}`", lines.len(), line);
        figure("the worst of 10,000 characters".to_owned(), sample).noting(note)
    }));
    figures.push(figure("a line of 100 KB".to_owned(), endless).against(Target::Below(5.0)));
    Ok(figures)
}

fn time(line: &str, count: usize, rules: &Rules) -> Sample {
    let decision = || {
        let since = Instant::now();
        std::hint::black_box(decide(std::hint::black_box(line), rules));
        milliseconds(since.elapsed())
    };
    // The first ones fill caches.
    Sample::of((0..count + 3).map(|_| decision()).skip(3).collect())
}

/// Returns lines of the maximum length that hold as much slow syntax as possible.
fn worst_lines() -> Vec<String> {
    let repeated = |first: &str, again: &str| {
        let room = (MAX_CHARACTERS - first.len()) / again.len();
        format!("{first}{}", again.repeat(room))
    };
    let loops: String = (0..18)
        .map(|number| format!("for v{number} in a b c; do "))
        .collect();
    let words: String = (0..18).map(|number| format!(" $v{number}")).collect();
    let command = format!("cat{words}; ");
    let room = (MAX_CHARACTERS - loops.len() - 18 * 6) / command.len();
    vec![
        repeated("cd a", "; cat x/y x/y x/y x/y x/y x/y x/y x/y x/y x/y x/y x/y"),
        repeated("cat", " {a,b}{a,b}{a,b}{a,b}{a,b}"),
        repeated("ls ", "{a,b}"),
        format!("{loops}{}{}", command.repeat(room), "done; ".repeat(17) + "done"),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_worst_lines_are_long_and_legal() {
        for line in worst_lines() {
            assert!(line.len() <= MAX_CHARACTERS && line.len() > MAX_CHARACTERS * 9 / 10);
            let reasons = decide(&line, &Rules::default()).reasons.join("; ");
            assert!(
                !reasons.contains("longer than") && !reasons.contains("more than 200"),
                "{reasons}"
            );
        }
    }
}
