//! `ringfence approvals`: answers pending questions directly in the store.

use std::process::ExitCode;
use std::time::{SystemTime, UNIX_EPOCH};

use ringfence_gateway_protocol::{decidable, framed, remaining};
use ringfence_records::approval::{Answer, Entry, Error, Kind, Remember, Request, Service, State, Verdict};
use ringfence_tools::toolbox::ErrorKind;
use serde_json::Value;

use crate::context::Context;
use crate::ui::{self, visible};
use ringfence::Failure;
use ringfence::toolbox;
use ringfence_args::ApprovalsCommand;

/// The author of answers, as shown to gateways.
const BY: &str = "ringfence approvals";

pub(crate) fn run(command: &ApprovalsCommand, context: &Context) -> anyhow::Result<ExitCode> {
    let service = toolbox::approvals(context)?;
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    let text = runtime.block_on(async {
        match command {
            ApprovalsCommand::Ls {
                standing: true, json, ..
            } => list_standing(&service, *json),
            ApprovalsCommand::Ls { all, json, .. } => list(&service, *all, *json).await,
            ApprovalsCommand::Revoke { id } => revoke(&service, id),
            ApprovalsCommand::Approve(args) => {
                let remember = match args.uses {
                    Some(uses) => Remember::Uses(uses),
                    None if args.session => Remember::Session,
                    None if args.always => Remember::Always,
                    None => Remember::Once,
                };
                answer(&service, &args.id, Verdict::Approve, remember).await
            }
            ApprovalsCommand::Deny(args) => {
                let remember = match args.session {
                    true => Remember::Session,
                    false => Remember::Once,
                };
                answer(&service, &args.id, Verdict::Reject, remember).await
            }
        }
    })?;
    context.ui.out(text)?;
    Ok(ExitCode::SUCCESS)
}

async fn list(service: &Service, all: bool, json: bool) -> anyhow::Result<String> {
    let requests = if all {
        service.history().await
    } else {
        service.waiting().await
    };
    let requests = requests.map_err(failure)?;
    if json {
        return Ok(ui::json(&requests)?);
    }
    if requests.is_empty() {
        return Ok(if all {
            "nothing was asked\n"
        } else {
            "nothing waits for an answer\n"
        }
        .to_owned());
    }
    Ok(requests.iter().map(shown).collect())
}

fn list_standing(service: &Service, json: bool) -> anyhow::Result<String> {
    let entries = service.approved().entries().map_err(failure)?;
    if json {
        let object = |entry: &Entry| {
            let mut object = serde_json::to_value(entry)?;
            object["id"] = entry.id().into();
            Ok(object)
        };
        let objects: Vec<Value> = entries.iter().map(object).collect::<serde_json::Result<_>>()?;
        return Ok(ui::json(&objects)?);
    }
    if entries.is_empty() {
        return Ok("no command is approved always\n".to_owned());
    }
    Ok(entries.iter().map(standing).collect())
}

/// Renders a standing approval.
fn standing(entry: &Entry) -> String {
    let Entry {
        scope,
        directory,
        since,
        by,
        ..
    } = entry;
    let files = match entry.files {
        Some(_) => ", while the files that it names are unchanged",
        None => "",
    };
    format!(
        "{}  approved by {} at {}  for {} in {}{files}\n{}",
        entry.id(),
        visible(by),
        visible(since),
        visible(scope),
        visible(directory),
        framed(&entry.text)
    )
}

/// Removes the only standing approval whose id begins with `beginning`.
fn revoke(service: &Service, beginning: &str) -> anyhow::Result<String> {
    let approved = service.approved();
    let entries = approved.entries().map_err(failure)?;
    let fits = |entry: &&Entry| beginning.len() >= MIN_BEGINNING && entry.id().starts_with(beginning);
    let found: Vec<&Entry> = entries.iter().filter(fits).collect();
    let [only] = found[..] else {
        let hint = "write more of the id; `ringfence approvals ls --standing` lists them";
        let message = format!(
            "expected the id of one standing approval, found {} for `{}`",
            found.len(),
            visible(beginning)
        );
        return Err(Failure::refused(message, hint).of(ErrorKind::NotFound).into());
    };
    approved.revoke(only).map_err(failure)?;
    Ok(format!("revoked  {}\n{}", only.id(), framed(&only.text)))
}

async fn answer(service: &Service, id: &str, verdict: Verdict, remember: Remember) -> anyhow::Result<String> {
    let request = find(service, id).await?;
    // The person at this machine may answer for every chat.
    let answer = Answer {
        id: request.id.clone(),
        verdict,
        remember,
        chat: request.chat.clone(),
        digest: request.digest(),
        by: BY.to_owned(),
    };
    service.answer(answer).await.map_err(failure)?;
    let word = match verdict {
        Verdict::Approve => "approved",
        Verdict::Reject => "denied",
    };
    Ok(format!("{word}  {}\n{}", request.id, framed(&request.text)))
}

/// Finds the one request by a prefix of its id: a pending one, or any by its full id.
async fn find(service: &Service, beginning: &str) -> anyhow::Result<Request> {
    if let Ok(id) = beginning.parse()
        && let Some(request) = service.request(&id).await.map_err(failure)?
    {
        return Ok(request);
    }
    let waiting = service.waiting().await.map_err(failure)?;
    if beginning.trim_start_matches("apr_").len() < MIN_BEGINNING {
        return Err(Failure::refused(
            format!(
                "`{}` is too short for the id of a pending question",
                visible(beginning)
            ),
            format!("write at least {MIN_BEGINNING} of its digits; `ringfence approvals ls` lists them"),
        )
        .of(ErrorKind::NotFound)
        .into());
    }
    let fits = |request: &&Request| {
        let digits = request.id.as_str().trim_start_matches("apr_");
        digits.starts_with(beginning.trim_start_matches("apr_"))
    };
    let found: Vec<&Request> = waiting.iter().filter(fits).collect();
    match found[..] {
        [only] => Ok(only.clone()),
        [] => Err(Failure::refused(
            format!("no pending question has the id `{beginning}`"),
            "`ringfence approvals ls` lists them",
        )
        .of(ErrorKind::NotFound)
        .into()),
        _ => Err(Failure::usage(
            format!(
                "{} pending questions have ids that begin with `{beginning}`",
                found.len()
            ),
            "write more of the id",
        )
        .into()),
    }
}

/// Minimum length of an id prefix.
const MIN_BEGINNING: usize = 4;

/// Renders a request. Text that an agent wrote must not control the terminal.
fn shown(request: &Request) -> String {
    let state = match request.state {
        State::Pending => format!(
            "expires in {}",
            remaining(request.expires.saturating_sub(now()) / 1000)
        ),
        State::Approved => format!("{}, and not acted on yet", by("approved", request)),
        State::Consumed => by("approved", request),
        State::Rejected => by("denied", request),
        State::Expired => "expired".to_owned(),
        State::Abandoned => "cancelled".to_owned(),
    };
    let kind = match &request.kind {
        Kind::Command { risk: Some(risk), .. } => format!("command, risk {risk}"),
        Kind::Command { risk: None, .. } => "command".to_owned(),
        Kind::SoftTimeout { .. } => "time limit".to_owned(),
        Kind::Skill { .. } => "function of a skill".to_owned(),
    };
    let who = visible(&request.scope);
    let text = framed(&request.text);
    let place = match request.kind.directory() {
        "" => String::new(),
        directory => format!("    starts in {}\n", visible(directory)),
    };
    let reasons = request.kind.reasons();
    // Already shown as its directory.
    let told = reasons
        .iter()
        .filter(|reason| !reason.starts_with("it starts in "));
    let reasons: String = told
        .map(|reason| format!("    - {}\n", decidable(reason).join(" ")))
        .collect();
    format!(
        "{}  {kind}  for {who} in {}  {state}\n{place}{text}{reasons}",
        request.id,
        request.chat.as_str()
    )
}

fn by(word: &str, request: &Request) -> String {
    let by = request.by.as_deref().map(visible).unwrap_or_default();
    format!("{word} by {by}")
}

fn now() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}

/// Converts an error, with its causes and its hint.
fn failure(error: Error) -> Failure {
    let hint = error.hint();
    Failure::refused(format!("{:#}", anyhow::Error::from(error)), hint)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_of_many_lines_stays_indented_and_steers_nothing() {
        assert_eq!(framed("a\nb\r\u{1b}[1A"), "    | a\n    | b\\u{d}\\u{1b}[1A\n");
    }
}
