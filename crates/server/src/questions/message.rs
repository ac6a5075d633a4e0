//! Converts questions to JSON, with nothing invisible in it.

use ringfence_gateway_protocol::{Piece, foreign, pieces, visible};
use ringfence_records::approval::{Kind, Request, State};
use ringfence_records::audit::Digest;
use schemars::JsonSchema;
use serde::Serialize;

use super::Reach;

/// A question to a person, pending or past. Times are milliseconds since 1970.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(rename = "Approval")]
pub(crate) struct Question {
    id: String,
    #[schemars(extend("enum" = ["command", "soft_timeout", "skill"]))]
    kind: &'static str,
    /// The requested text, split into visible and invisible parts.
    #[schemars(with = "Vec<PieceSchema>")]
    text: Vec<Piece>,
    /// Warning about characters that resemble plain letters.
    foreign: Option<String>,
    /// From 0, only reads, to 10, destroys irreversibly; null if nobody scored it.
    risk: Option<u8>,
    /// Facts to decide by.
    reasons: Vec<String>,
    /// Ways to remember an approval.
    #[schemars(extend("items" = {"type": "string", "enum": ["once", "session", "uses", "always"]}))]
    remember: Vec<&'static str>,
    /// SHA-256 of the text, which an answer names.
    #[schemars(with = "String")]
    digest: Digest,
    /// Owner of the call that asks.
    scope: String,
    session: Option<String>,
    /// Chat of the operator's in which it is asked, too; null for a key without the right `admin`.
    chat: Option<String>,
    created: u64,
    expires: u64,
    #[schemars(extend("enum" = ["pending", "approved", "rejected", "expired", "abandoned"]))]
    state: &'static str,
    /// Name of the answerer: the id of a key, or what the operator's people are called.
    by: Option<String>,
    ended: Option<u64>,
}

/// The schema of [`Piece`].
#[derive(JsonSchema)]
#[serde(rename_all = "snake_case")]
#[schemars(rename = "Piece")]
#[expect(dead_code, reason = "describes a type of another crate")]
enum PieceSchema {
    /// Text as written.
    Plain(String),
    /// Escape of an invisible character.
    Escape(String),
}

/// Returns the state that people see: they do not care that the asker has consumed the approval.
pub(crate) const fn shown_state(state: State) -> State {
    match state {
        State::Consumed => State::Approved,
        other => other,
    }
}

impl Question {
    /// Returns a question as somebody with this reach sees it.
    pub(crate) fn of(request: &Request, reach: &Reach) -> Self {
        let risk = match &request.kind {
            Kind::Command { risk, .. } => *risk,
            Kind::SoftTimeout { .. } | Kind::Skill { .. } => None,
        };
        Self {
            id: request.id.to_string(),
            kind: request.kind.name(),
            text: pieces(&request.text),
            foreign: foreign(&request.text),
            risk,
            reasons: request
                .kind
                .reasons()
                .iter()
                .map(|reason| visible(reason))
                .collect(),
            remember: request.kind.offers().map(|(_, name)| name).collect(),
            digest: request.digest(),
            scope: visible(&request.scope),
            session: request.session.as_deref().map(visible),
            chat: (*reach == Reach::All).then(|| visible(request.chat.as_str())),
            created: request.created,
            expires: request.expires,
            state: shown_state(request.state).as_str(),
            by: request.by.as_deref().map(visible),
            ended: request.ended,
        }
    }
}
