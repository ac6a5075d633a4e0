//! Elicitation: asks the client's user for approval, and parses the answer.

use std::collections::BTreeMap;
use std::time::{SystemTime, UNIX_EPOCH};

use ringfence_records::approval::{BATCH, PendingApproval, Remember, Request, Verdict};
use rmcp::RoleServer;
use rmcp::model::{
    ClientResult, ElicitRequest, ElicitRequestParams, ElicitResult, ElicitationAction, ElicitationSchema,
    EnumSchema, InputRequest, InputRequests, ServerRequest,
};
use rmcp::service::{Peer, PeerRequestOptions, RequestContext};
use serde::Deserialize;
use serde_json::Value;

use ringfence_gateway_protocol::{RequestWords, decidable, framed, remaining, visible};

/// Name of the question in a result that requires input.
pub(super) const QUESTION: &str = "approval";

/// The only member of the form.
const DECISION: &str = "decision";

/// Choices with their meanings. Rejection is first: clients preselect the first choice, and a user may just
/// press Enter.
const CHOICES: [(&str, Verdict, Remember); 6] = [
    ("reject", Verdict::Reject, Remember::Once),
    ("approve once", Verdict::Approve, Remember::Once),
    ("approve for the session", Verdict::Approve, Remember::Session),
    (
        "approve this and 10 more calls with any arguments",
        Verdict::Approve,
        Remember::Uses(BATCH),
    ),
    ("always approve exactly this", Verdict::Approve, Remember::Always),
    ("reject for the session", Verdict::Reject, Remember::Session),
];

/// Maximum length of a client's name, as shown elsewhere.
const MAX_NAME: usize = 60;

/// Returns `true` if the client can show a form to its user.
pub(super) fn is_offered(context: &RequestContext<RoleServer>) -> bool {
    let capabilities = context.client_capabilities();
    let elicitation = capabilities.and_then(|capabilities| capabilities.elicitation);
    // Early versions had only forms, and clients did not declare a mode.
    elicitation.is_some_and(|modes| modes.form.is_some() || modes.url.is_none())
}

/// Returns the name of the answerer, as shown elsewhere.
pub(super) fn client_name(context: &RequestContext<RoleServer>) -> String {
    let name = context.client_info().map(|client| client.name.clone());
    let name: String = visible(&name.unwrap_or_default())
        .chars()
        .take(MAX_NAME)
        .collect();
    format!("MCP client {name}").trim_end().to_owned()
}

/// Creates the question in a result that requires input.
pub(super) fn input(request: &Request) -> InputRequests {
    let form = InputRequest::Elicitation(ElicitRequest::new(form(request)));
    BTreeMap::from([(QUESTION.to_owned(), form)])
}

/// Asks by a request to the client, in protocol versions that allow it, until it is answered or settled
/// elsewhere.
pub(super) async fn ask(peer: &Peer<RoleServer>, asked: &mut PendingApproval, by: &str) {
    let request = ServerRequest::ElicitRequest(ElicitRequest::new(form(asked.request())));
    let options = PeerRequestOptions::no_options();
    let Ok(mut handle) = peer.send_cancellable_request(request, options).await else {
        return settle(asked, None, by).await;
    };
    let answer = tokio::select! {
        biased;
        () = asked.over() => None,
        answer = &mut handle.rx => Some(answer),
    };
    match answer {
        Some(Ok(Ok(ClientResult::ElicitResult(result)))) => {
            settle(asked, meaning(&result, asked.request()), by).await;
        }
        Some(_) => settle(asked, None, by).await,
        None => {
            // A client that is gone shows nothing anyway.
            let _ = handle.cancel(Some("the question is settled".to_owned())).await;
        }
    }
}

/// Records an answer, or its absence.
pub(super) async fn settle(asked: &PendingApproval, answer: Option<(Verdict, Remember)>, by: &str) {
    // The first answer wins. If the store fails, nothing was approved, and the request expires.
    let _ = match answer {
        Some((verdict, remember)) => asked.answer(verdict, remember, by).await,
        None => asked.dismiss(by).await,
    };
}

/// Parses an answer that was sent with another request.
pub(super) fn read(answer: Option<&Value>, request: &Request) -> Option<(Verdict, Remember)> {
    meaning(&ElicitResult::deserialize(answer?).ok()?, request)
}

/// Parses an answer. One that violates the form counts as none.
fn meaning(result: &ElicitResult, request: &Request) -> Option<(Verdict, Remember)> {
    match result.action {
        ElicitationAction::Accept => {}
        ElicitationAction::Decline => return Some((Verdict::Reject, Remember::Once)),
        _ => return None,
    }
    let content = result.content.as_ref()?.as_object()?;
    let said = content.get(DECISION)?.as_str()?;
    let (_, verdict, remember) = offered(request).find(|(choice, ..)| *choice == said)?;
    (content.len() == 1).then_some((verdict, remember))
}

fn form(request: &Request) -> ElicitRequestParams {
    let choices = offered(request).map(|(choice, ..)| choice.to_owned()).collect();
    let schema = ElicitationSchema::builder()
        .required_enum_schema(DECISION, EnumSchema::builder(choices).build())
        .build_unchecked();
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let now = u64::try_from(since.as_millis()).unwrap_or(u64::MAX);
    ElicitRequestParams::FormElicitationParams {
        meta: None,
        message: message(&RequestWords::of(request, now)),
        requested_schema: schema,
    }
}

/// Renders the full question. Untrusted text is indented: clients that render Markdown show it as a code
/// block.
fn message(words: &RequestWords) -> String {
    let what = match &words.kind[..] {
        "command" => "A command asks to run on this machine, outside of the sandbox",
        "skill" => "A program in the sandbox asks to call a function of a skill, outside of it",
        _ => "A tool has reached its time limit",
    };
    let risk = words.risk_score.map(|risk| format!(", risk {risk} of 10"));
    let mut text = format!("{what}{}:\n\n", risk.unwrap_or_default());
    text.push_str(&framed(&words.command));
    for reason in &words.reasons {
        text.push_str(&format!("    - {}\n", decidable(reason).join(" ")));
    }
    text.push_str(&format!(
        "\nFor {}. Expires in {}.",
        visible(&words.scope),
        remaining(words.timeout)
    ));
    text
}

fn offered(request: &Request) -> impl Iterator<Item = (&'static str, Verdict, Remember)> {
    let is_offered = |remember| request.kind.offers().any(|(offered, _)| offered == remember);
    CHOICES
        .into_iter()
        .filter(move |(_, verdict, remember)| *verdict == Verdict::Reject || is_offered(*remember))
}
