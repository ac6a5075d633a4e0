//! `ringfence policy`: shows the decision about a command, without running it or requesting approval.

use std::process::ExitCode;

use ringfence_exec::lines::{LineEnd, LineReader};
use ringfence_policy::cascade::{Authority, Decision, Part, Rules, Stage, Verdict, decide};
use ringfence_policy::{Scope, shell};
use ringfence_records::approval::{Approved, Service};
use ringfence_tools::host::{HostSettings, Standing, standing};
use serde_json::{Value, json};

use crate::context::Context;
use crate::ui::visible;
use ringfence::config::Config;
use ringfence::toolbox;
use ringfence_args::{PolicyCheckArgs, PolicyCommand};

/// Maximum length of a line of standard input; the rest of a longer one is dropped, and it is reviewed.
const MAX_LINE: usize = 1 << 20;

pub(crate) fn run(command: &PolicyCommand, context: &Context) -> anyhow::Result<ExitCode> {
    context.tell_passed_over()?;
    let policy = Policy::of(context)?;
    match command {
        PolicyCommand::Check(args) if args.stdin => check_lines(args, &policy, context)?,
        PolicyCommand::Check(args) => {
            let line = line(&args.command);
            context.ui.out(report(&line, &policy.decide(&line), args.json))?;
            tell_if_off(context)?;
        }
        PolicyCommand::Explain { command } => {
            let line = line(command);
            let judged = policy.decide(&line);
            let review = review(&judged, &policy.host.rules, context.config()?);
            context
                .ui
                .out(explanation(&line, &judged) + &review.unwrap_or_default())?;
            tell_if_off(context)?;
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// Says that no command runs at all, whatever is decided about it.
fn tell_if_off(context: &Context) -> anyhow::Result<()> {
    if !context.config()?.host_execution.enabled {
        context.ui.err(
            "note: commands on the host are switched off, so agents get none of them run; `hostExecution.enabled = true` switches them on\n",
        )?;
    }
    Ok(())
}

/// The rules of commands on the host, with the standing approvals of this user.
struct Policy {
    host: HostSettings,
    approved: Approved,
}

/// The decision about a command, with its standing approval.
struct Judged {
    decision: Decision,
    standing: Option<Standing>,
}

impl Policy {
    fn of(context: &Context) -> anyhow::Result<Self> {
        Ok(Self {
            host: toolbox::host_settings(context)?,
            approved: Service::at(&context.paths.state).approved(),
        })
    }

    /// Decides about a command that starts in the working directory.
    fn decide(&self, line: &str) -> Judged {
        let decision = decide(line, &self.host.rules);
        // An unusable file approves nothing, and calls ask as without it.
        let standing = standing(line, &decision, &Scope::local(), &self.host, &self.approved);
        Judged {
            decision,
            standing: standing.unwrap_or_default(),
        }
    }
}

impl Judged {
    /// Returns the decision's name: `allow` for a command with a standing approval.
    fn verdict(&self) -> &'static str {
        match self.standing {
            Some(Standing::Holds(_)) => Verdict::Allow.name(),
            Some(Standing::Ended(..)) | None => self.decision.verdict.name(),
        }
    }

    /// Describes the standing approval.
    fn standing(&self) -> Option<String> {
        let named = |entry: &ringfence_records::approval::Entry| {
            let date = entry.since.split('T').next().unwrap_or_default();
            visible(&format!(
                "approved always on {date} for {}, in {}; approved.toml",
                entry.scope, entry.directory
            ))
        };
        Some(match self.standing.as_ref()? {
            Standing::Holds(entry) => named(entry),
            Standing::Ended(entry, reason) => format!("{}, but {reason}", named(entry)),
        })
    }

    /// Returns the remembered approval that covers the command, as JSON.
    fn approved(&self) -> Option<Value> {
        let Some(Standing::Holds(entry)) = &self.standing else {
            return None;
        };
        Some(json!({
            "since": entry.since,
            "by": entry.by,
            "scope": entry.scope,
            "directory": entry.directory,
        }))
    }
}

/// Converts one argument as a shell command line, several as a program with its arguments.
fn line(command: &[String]) -> String {
    match command {
        [line] => line.clone(),
        words => shell::quote(words),
    }
}

fn check_lines(args: &PolicyCheckArgs, policy: &Policy, context: &Context) -> anyhow::Result<()> {
    let mut lines = LineReader::new(std::io::stdin().lock(), MAX_LINE);
    let mut skipping = false;
    while let Some(line) = lines.next_line()? {
        if std::mem::replace(&mut skipping, line.end == LineEnd::TooLong) {
            continue;
        }
        // The policy rejects replacement characters in commands.
        let text = String::from_utf8_lossy(line.bytes);
        // A text in quotes that is one JSON string would be an unusual command.
        let line = serde_json::from_str::<String>(&text).unwrap_or_else(|_| text.into_owned());
        context.ui.out(report(&line, &policy.decide(&line), args.json))?;
    }
    Ok(())
}

fn report(line: &str, judged: &Judged, json: bool) -> String {
    let decision = &judged.decision;
    if json {
        let mut object = json!({
            "command": line,
            "decision": judged.verdict(),
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
        if let Some(approved) = judged.approved() {
            object["approved"] = approved;
        }
        return format!("{object}\n");
    }
    format!("{}: {}\n{}", verdict(judged), visible(line), reasons(decision))
}

/// Renders a decision as `review (ask), risk at least 9`.
fn verdict(judged: &Judged) -> String {
    let decision = &judged.decision;
    let grounds = match (&judged.standing, judged.standing()) {
        (Some(Standing::Holds(_)), Some(approved)) => approved,
        (_, Some(ended)) => format!("{}; {ended}", decision.stage.name()),
        (_, None) => decision.stage.name().to_owned(),
    };
    format!(
        "{} ({grounds}), risk at least {}",
        judged.verdict(),
        decision.floor
    )
}

fn reasons(decision: &Decision) -> String {
    let line = |reason: &String| format!("  {}\n", visible(reason));
    decision.reasons.iter().map(line).collect()
}

/// Renders the parsed line: each part with its verdict and its reason.
fn explanation(line: &str, judged: &Judged) -> String {
    let decision = &judged.decision;
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
    text + &format!("\n{}\n", verdict(judged))
}

/// Returns the authority that would allow the command.
fn let_by(decision: &Decision) -> Authority {
    match decision.verdict {
        Verdict::Review => Authority::Person,
        Verdict::Allow | Verdict::Notify => Authority::Policy,
    }
}

/// Describes the decision of the stages after the lists.
fn review(judged: &Judged, rules: &Rules, config: &Config) -> Option<String> {
    let decision = &judged.decision;
    if matches!(judged.standing, Some(Standing::Holds(_))) {
        return Some("you would not be asked again while the standing approval holds\n".to_owned());
    }
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
