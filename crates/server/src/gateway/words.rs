//! What engine and gateway say to each other.

use std::collections::BTreeSet;

use ringfence_runtime::approval::{Kind, Remember, Request, State};
use ringfence_runtime::audit::Digest;
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// The protocol's version.
pub const VERSION: u32 = 1;

/// The most chats that a gateway may name.
const MAX_CHATS: usize = 256;

/// What the engine says.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case", rename_all_fields = "camelCase")]
pub enum FromEngine {
    /// The first line.
    Hello {
        /// The protocol's version.
        version: u32,
    },
    /// A question that waits.
    ApprovalRequest(RequestWords),
    /// A question that this connection was sent no longer waits.
    ApprovalClosed {
        /// Which.
        id: String,
        /// What became of it: `approved`, `rejected`, `expired` or `abandoned`.
        outcome: String,
        /// Who answered.
        by: Option<String>,
    },
    /// Something to tell a person.
    Message {
        /// Where.
        chat_id: String,
        /// What.
        text: String,
    },
    /// A line of the gateway's had no effect.
    Error {
        /// The request that it named, if it named one.
        id: Option<String>,
        /// What kind of mistake.
        error: String,
        /// In words.
        message: String,
    },
}

/// A question as a gateway is sent it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct RequestWords {
    /// What an answer must name.
    pub id: String,
    /// Where the person is.
    pub chat_id: String,
    /// The exact text that is asked about, to be shown in full with invisible characters made visible.
    pub command: String,
    /// From 0 to 10, if somebody judged it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub risk_score: Option<u8>,
    /// Seconds that are left.
    pub timeout: u64,
    /// `command`, `soft_timeout` or `skill`.
    pub kind: String,
    /// What is to be known about it.
    #[serde(default)]
    pub reasons: Vec<String>,
    /// How an approval may be remembered.
    #[serde(default)]
    pub remember: Vec<String>,
    /// The SHA-256 of `command`.
    pub digest: Digest,
    /// For whom.
    pub scope: String,
    /// In which conversation.
    #[serde(default)]
    pub session: Option<String>,
}

/// What a gateway says. Unknown members are ignored.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case", rename_all_fields = "camelCase")]
pub enum FromGateway {
    /// Who it is; optional.
    Hello {
        /// The version that it speaks.
        #[serde(default = "version")]
        version: u32,
        /// The only chats that it serves; all if it names none.
        #[serde(default)]
        chats: Option<BTreeSet<String>>,
        /// What others are told about who answered.
        #[serde(default)]
        name: Option<String>,
    },
    /// A person's answer.
    ApprovalResponse {
        /// To which request.
        id: String,
        /// Yes or no.
        approved: bool,
        /// The chat that it was given in; the one that was asked if it is left out.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        chat_id: Option<String>,
        /// The digest of the text that was shown; that of the text that was sent if it is left out.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        digest: Option<Digest>,
        /// How long it holds.
        #[serde(default)]
        remember: Remember,
        /// Who answered.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        by: Option<String>,
    },
}

const fn version() -> u32 {
    VERSION
}

/// Why a line has no effect.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Refusal {
    /// It is no message; the connection ends.
    Malformed(String),
    /// It is one of a type that this version does not know; the connection goes on.
    UnknownType,
}

/// What a gateway's line says.
///
/// # Errors
/// If it is no message, or one of an unknown type.
pub fn parse_from_gateway(line: &[u8]) -> Result<FromGateway, Refusal> {
    let message = parse(line, &["hello", "approval_response"])?;
    if let FromGateway::Hello {
        chats: Some(chats), ..
    } = &message
        && chats.len() > MAX_CHATS
    {
        return Err(Refusal::Malformed(format!("more than {MAX_CHATS} chats")));
    }
    Ok(message)
}

/// What an engine's line says.
///
/// # Errors
/// If it is no message, or one of an unknown type.
pub fn parse_from_engine(line: &[u8]) -> Result<FromEngine, Refusal> {
    parse(
        line,
        &["hello", "approval_request", "approval_closed", "message", "error"],
    )
}

fn parse<T: for<'de> Deserialize<'de>>(line: &[u8], types: &[&str]) -> Result<T, Refusal> {
    let malformed = |error: serde_json::Error| Refusal::Malformed(error.to_string());
    let value: Value = serde_json::from_slice(line).map_err(malformed)?;
    let Some(kind) = value.get("type").and_then(Value::as_str) else {
        return Err(Refusal::Malformed("no object with a `type`".to_owned()));
    };
    if !types.contains(&kind) {
        return Err(Refusal::UnknownType);
    }
    T::deserialize(value).map_err(malformed)
}

impl FromEngine {
    /// The line that answers a gateway's line which has no effect.
    pub(super) fn refusal(refusal: &Refusal) -> Self {
        let (error, message) = match refusal {
            Refusal::Malformed(what) => ("malformed", what.as_str()),
            Refusal::UnknownType => ("unknown_type", "this engine does not know such a message"),
        };
        Self::error(None, error, message)
    }

    pub(super) fn error(id: Option<String>, error: &str, message: &str) -> Self {
        Self::Error {
            id,
            error: error.to_owned(),
            message: message.to_owned(),
        }
    }

    /// What became of a request.
    pub(super) fn closed(request: &Request) -> Self {
        // The asker's taking it is of no interest to a person.
        let outcome = match request.state {
            State::Consumed => State::Approved,
            other => other,
        };
        Self::ApprovalClosed {
            id: request.id.as_str().to_owned(),
            outcome: outcome.as_str().to_owned(),
            by: request.by.clone(),
        }
    }
}

impl RequestWords {
    /// A request that waits, at a moment in milliseconds since 1970.
    pub(crate) fn of(request: &Request, now: u64) -> Self {
        let (kind, risk_score) = match &request.kind {
            Kind::Command { risk, .. } => ("command", *risk),
            Kind::SoftTimeout { .. } => ("soft_timeout", None),
            Kind::Skill { .. } => ("skill", None),
        };
        Self {
            id: request.id.as_str().to_owned(),
            chat_id: request.chat.as_str().to_owned(),
            command: request.text.clone(),
            risk_score,
            timeout: request.expires.saturating_sub(now).div_ceil(1000),
            kind: kind.to_owned(),
            reasons: request.kind.reasons(),
            remember: request.kind.offers().map(|(_, name)| name.to_owned()).collect(),
            digest: request.digest(),
            scope: request.scope.clone(),
            session: request.session.clone(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_shortest_answer_is_understood_and_unknown_members_are_ignored() {
        let line = br#"{"type":"approval_response","id":"apr_001","approved":true,"mood":"good"}"#;
        let expected = FromGateway::ApprovalResponse {
            id: "apr_001".to_owned(),
            approved: true,
            chat_id: None,
            digest: None,
            remember: Remember::Once,
            by: None,
        };
        assert_eq!(parse_from_gateway(line), Ok(expected));
        let line = br#"{"type":"approval_response","id":"a","approved":true,"remember":{"uses":5}}"#;
        assert!(matches!(
            parse_from_gateway(line),
            Ok(FromGateway::ApprovalResponse {
                remember: Remember::Uses(5),
                ..
            })
        ));
    }

    #[test]
    fn what_is_no_message_is_told_from_one_that_is_unknown() {
        let check = |line: &str, unknown: bool| {
            let refusal = parse_from_gateway(line.as_bytes()).unwrap_err();
            assert_eq!(refusal == Refusal::UnknownType, unknown, "{line}");
        };
        check(r#"{"type":"approval_request"}"#, true);
        check(r#"{"type":"later"}"#, true);
        for line in [
            "",
            "[]",
            "null",
            "{}",
            r#"{"type":7}"#,
            r#"{"type":"approval_response"}"#,
            r#"{"type":"approval_response","id":"a","approved":"yes"}"#,
            r#"{"type":"approval_response","id":"a","approved":1}"#,
            r#"{"type":"approval_response","id":"a","approved":true,"remember":"for ever"}"#,
            r#"{"type":"approval_response","id":"a","approved":true,"digest":"AB"}"#,
            r#"{"type":"approval_response","id":"a","id":"b","approved":true}x"#,
        ] {
            check(line, false);
        }
    }
}
