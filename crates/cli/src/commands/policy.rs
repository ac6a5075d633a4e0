//! `ringfence policy`: shows the decision about a command, without running it or asking anybody.

use std::io::{BufRead, Read};
use std::process::ExitCode;

use ringfence_policy::cascade::{Decision, LetBy, Part, Rules, Stage, Verdict, decide};
use ringfence_policy::shell;
use serde_json::json;

use crate::args::{PolicyCheckArgs, PolicyCommand};
use crate::config::Config;
use crate::context::Context;
use crate::ui::visible;

/// Maximum length of a line of standard input; the rest of a longer one is dropped, and it is reviewed.
const MAX_LINE: u64 = 1 << 20;

pub(crate) fn run(command: &PolicyCommand, context: &Context) -> anyhow::Result<ExitCode> {
    context.tell_passed_over()?;
    let rules = context.parts()?.host.rules();
    match command {
        PolicyCommand::Check(args) if args.stdin => check_lines(args, &rules, context)?,
        PolicyCommand::Check(args) => context.ui.out(report(&line(&args.command), &rules, args.json))?,
        PolicyCommand::Explain { command } => {
            let line = line(command);
            let decision = decide(&line, &rules);
            let review = review(&decision, &rules, context.config()?);
            context
                .ui
                .out(explanation(&line, &decision) + &review.unwrap_or_default())?;
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// Converts one argument as a shell command line, several as a program with its arguments.
fn line(command: &[String]) -> String {
    match command {
        [line] => line.clone(),
        words => shell::quote(words),
    }
}

fn check_lines(args: &PolicyCheckArgs, rules: &Rules, context: &Context) -> anyhow::Result<()> {
    let mut input = std::io::stdin().lock();
    loop {
        let mut bytes = Vec::new();
        if input.by_ref().take(MAX_LINE).read_until(b'\n', &mut bytes)? == 0 {
            return Ok(());
        }
        match bytes.last() {
            Some(b'\n') => drop(bytes.pop()),
            _ => drop(input.skip_until(b'\n')?),
        }
        // The policy rejects replacement characters in commands.
        let text = String::from_utf8_lossy(&bytes);
        // A text in quotes that is one JSON string would be an unusual command.
        let line = serde_json::from_str::<String>(&text).unwrap_or_else(|_| text.into_owned());
        context.ui.out(report(&line, rules, args.json))?;
    }
}

fn report(line: &str, rules: &Rules, json: bool) -> String {
    let decision = decide(line, rules);
    if json {
        let mut object = json!({
            "command": line,
            "decision": decision.verdict.name(),
            "stage": decision.stage.name(),
            "matched": decision.matched,
            "floor": decision.floor,
            "reasons": decision.reasons,
        });
        if let Some(runs) = decision
            .runs
            .as_ref()
            .filter(|_| decision.verdict != Verdict::Review)
        {
            object["runs"] = json!(runs);
        }
        return format!("{object}\n");
    }
    format!(
        "{}: {}\n{}",
        verdict(&decision),
        visible(line),
        reasons(&decision)
    )
}

/// Renders a decision as `review (ask), risk at least 9`.
fn verdict(decision: &Decision) -> String {
    let (verdict, stage) = (decision.verdict.name(), decision.stage.name());
    format!("{verdict} ({stage}), risk at least {}", decision.floor)
}

fn reasons(decision: &Decision) -> String {
    let line = |reason: &String| format!("  {}\n", visible(reason));
    decision.reasons.iter().map(line).collect()
}

/// Renders the parsed line: each part with its verdict and its reason.
fn explanation(line: &str, decision: &Decision) -> String {
    let mut text = format!("{}\n\n", shell::visible(line));
    for part in &decision.parts {
        text.push_str(&drawn(part));
    }
    if decision.parts.is_empty() {
        text.push_str(&reasons(decision));
    }
    if let (_, Some(argv)) = decision.executed(line, let_by(decision)) {
        text.push_str(&format!(
            "\nruns without a shell: {}\n",
            visible(&format!("{argv:?}"))
        ));
    }
    text + &format!("\n{}\n", verdict(decision))
}

/// Returns the authority that would let it run.
fn let_by(decision: &Decision) -> LetBy {
    match decision.verdict {
        Verdict::Review => LetBy::Person,
        Verdict::Allow | Verdict::Notify => LetBy::Policy,
    }
}

/// Describes the decision of the stages behind the lists.
fn review(decision: &Decision, rules: &Rules, config: &Config) -> Option<String> {
    let model = config
        .host_execution
        .pre_validation
        .model
        .as_deref()
        .unwrap_or_default();
    let sentence = match (decision.stage, rules.threshold) {
        (Stage::AllowList | Stage::NotifyList, _) => return None,
        (Stage::PreValidation, threshold) => format!(
            "the model {model} would be asked for a score: below {} it would run, otherwise you would be asked",
            threshold.unwrap_or_default()
        ),
        (Stage::Ask, None) => "you would be asked: no model is configured to score it".to_owned(),
        (Stage::Ask, Some(_)) if decision.parts.is_empty() => {
            "you would be asked, and no model: what cannot be read is not scored".to_owned()
        }
        (Stage::Ask, Some(threshold)) => format!(
            "you would be asked, and no model: no score leads below the floor of {}, and you are asked from {threshold} on",
            decision.floor
        ),
    };
    Some(format!("{sentence}\n"))
}

fn drawn(part: &Part) -> String {
    let margin = "   ".repeat(part.depth);
    let (name, floor) = (part.verdict.name(), part.floor);
    let mut text = format!(
        "{margin}├─ {}   {name}, risk at least {floor}\n",
        visible(&part.text)
    );
    for reason in part.reasons() {
        text.push_str(&format!("{margin}│     {}\n", visible(&reason)));
    }
    text
}
