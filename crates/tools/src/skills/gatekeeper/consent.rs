//! Applies the policy of a function before a call: allow, notify a person, or ask for approval.

use serde_json::Value;

use super::super::{CallError, Policy, Rules};
use super::{CallInfo, Entry};
use crate::toolbox::{Approvals, ToolError};
use ringfence_records::approval::{Decision, Kind, Question};
use ringfence_records::audit::Arguments;

/// Maximum length of arguments in a notice, in characters.
const MAX_NOTICE: usize = 1000;

/// Decision about a call.
pub(super) struct Judgement {
    /// Text for the audit record.
    pub(super) said: String,
    /// `Ok` if the call may proceed.
    pub(super) result: Result<(), CallError>,
}

/// Obtains the decision about a call.
pub(super) async fn obtain(
    visitor: CallInfo<'_>,
    entry: &Entry,
    arguments: &Value,
    rules: &Rules,
) -> Judgement {
    match entry.policy {
        Policy::Allow => {}
        Policy::Notify => notify(visitor, entry, arguments).await,
        Policy::Ask => return ask(visitor, entry, arguments, rules).await,
    }
    Judgement {
        said: entry.policy.as_str().to_owned(),
        result: Ok(()),
    }
}

/// Notifies the user. A failure to do so does not stop the call.
async fn notify(visitor: CallInfo<'_>, entry: &Entry, arguments: &Value) {
    let arguments = Arguments::new(arguments, visitor.redactor).shown().to_string();
    let shown: String = arguments.chars().take(MAX_NOTICE).collect();
    let scope = visitor.caller.scope.as_str();
    let text = format!("{scope} calls {}: {shown}", entry.function.path());
    if let Some(notices) = visitor.notices {
        // Dropped if the caller does not read notices.
        let _ = notices.try_send(text.clone());
    }
    if let Some(Approvals { service, chat }) = visitor.approvals {
        let _ = service.notify(chat, &text).await;
    }
}

async fn ask(visitor: CallInfo<'_>, entry: &Entry, arguments: &Value, rules: &Rules) -> Judgement {
    let path = entry.function.path();
    let refused = |said: &str, kind: &str, message: String| Judgement {
        said: format!("ask; {said}"),
        result: Err(CallError::new(kind, message)),
    };
    let Some(Approvals { service, chat }) = visitor.approvals else {
        let message = format!("`{path}` needs a person's approval, and there is nobody to ask");
        return refused("nobody to ask", "permission_denied", message);
    };
    let question = Question {
        kind: Kind::Skill {
            path: path.to_owned(),
            definition: Some(entry.function.definition()),
            changed: false,
        },
        // The complete arguments: the function gets exactly these values.
        text: format!("{path} {arguments:#}"),
        scope: visitor.caller.scope.clone(),
        session: visitor.caller.session.clone(),
        chat: chat.clone(),
        patience: rules.patience,
    };
    match service.ask_with(question, visitor.questions).await {
        Ok(decision) => unless_changed(entry, judged(path, decision)).await,
        Err(error) => {
            let kind = ToolError::from(error).kind.as_str();
            let message = format!("nobody could be asked about `{path}`");
            refused("nobody could be asked", kind, message)
        }
    }
}

/// Rejects an approved call if the function's definition has changed: minutes can pass between question and
/// answer.
async fn unless_changed(entry: &Entry, judgement: Judgement) -> Judgement {
    let (path, asked) = (entry.function.path(), entry.function.definition());
    if judgement.result.is_err() || entry.skill.definition(path).await == Some(asked) {
        return judgement;
    }
    let message =
        format!("`{path}` changed after a person was asked about it; run the program again to ask anew");
    Judgement {
        said: format!("{}; changed since", judgement.said),
        result: Err(CallError::new("unavailable", message)),
    }
}

fn judged(path: &str, decision: Decision) -> Judgement {
    let said = match &decision {
        Decision::Approved { by } => format!("ask; approved by {by}"),
        Decision::Rejected { by } => format!("ask; rejected by {by}"),
        Decision::Dismissed { by } => format!("ask; {by} gave no answer"),
        Decision::Expired => "ask; nobody answered".to_owned(),
    };
    let result = ToolError::unless_approved(decision)
        .map(drop)
        .map_err(|error| CallError::new(error.kind.as_str(), format!("`{path}`: {}", error.message)));
    Judgement { said, result }
}
