//! Messages between server and gateway.

use std::collections::BTreeSet;

use ringfence_records::approval::{Kind, Remember, Request, State};
use ringfence_records::audit::Digest;
use serde::{Deserialize, Serialize};
use serde_json::Value;

pub const VERSION: u32 = 1;

/// Maximum number of chats that a gateway may name.
const MAX_CHATS: usize = 256;

/// A message of the server.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case", rename_all_fields = "camelCase")]
pub enum FromServer {
    /// First message.
    Hello {
        /// Protocol version.
        version: u32,
    },
    /// A pending approval request.
    ApprovalRequest(RequestWords),
    /// A request sent on this connection is no longer pending.
    ApprovalClosed {
        id: String,
        /// Outcome: `approved`, `rejected`, `expired` or `abandoned`.
        outcome: String,
        /// Name of the answerer.
        by: Option<String>,
    },
    /// A notice for a person.
    Message {
        /// Chat to post to.
        chat_id: String,
        text: String,
        /// Time of the event, as RFC 3339 in UTC.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        time: Option<String>,
    },
    /// A message of the gateway had no effect.
    Error {
        /// Id of the request, if the message named one.
        id: Option<String>,
        error: String,
        message: String,
    },
}

/// An approval request as sent to a gateway.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct RequestWords {
    /// Id that an answer must name.
    pub id: String,
    pub chat_id: String,
    /// Exact text to approve, which must be shown in full with invisible characters escaped.
    pub command: String,
    /// Risk from 0 to 10, if it was scored.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub risk_score: Option<u8>,
    /// Remaining seconds.
    pub timeout: u64,
    /// `command`, `soft_timeout` or `skill`.
    pub kind: String,
    /// Reasons for the request, and other facts.
    #[serde(default)]
    pub reasons: Vec<String>,
    /// Ways to remember an approval.
    #[serde(default)]
    pub remember: Vec<String>,
    /// SHA-256 of `command`.
    pub digest: Digest,
    pub scope: String,
    #[serde(default)]
    pub session: Option<String>,
}

/// A message of a gateway. Unknown members are ignored.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case", rename_all_fields = "camelCase")]
pub enum FromGateway {
    /// Introduction; optional.
    Hello {
        #[serde(default = "version")]
        version: u32,
        /// Chats that the gateway serves. `None`: all.
        #[serde(default)]
        chats: Option<BTreeSet<String>>,
        /// Default name of the answerer.
        #[serde(default)]
        name: Option<String>,
    },
    /// A person's answer.
    ApprovalResponse {
        id: String,
        /// `true` approves, `false` rejects.
        approved: bool,
        /// Chat of the answer; by default the one of the request.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        chat_id: Option<String>,
        /// Digest of the shown text; by default that of the sent text.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        digest: Option<Digest>,
        /// Lifetime of the answer.
        #[serde(default)]
        remember: Remember,
        /// Name of the answerer.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        by: Option<String>,
    },
}

const fn version() -> u32 {
    VERSION
}

/// A line has no effect.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Refusal {
    /// It is not a valid message; the connection ends.
    Malformed(String),
    /// The type is unknown; the connection stays open.
    UnknownType,
}

/// Parses a gateway's line.
///
/// # Errors
/// If it is not a valid message, or of an unknown type.
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

/// Parses a server's line.
///
/// # Errors
/// If it is not a valid message, or of an unknown type.
pub fn parse_from_server(line: &[u8]) -> Result<FromServer, Refusal> {
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

impl FromServer {
    /// Creates the error for a gateway's line.
    pub(super) fn refusal(refusal: &Refusal) -> Self {
        let (error, message) = match refusal {
            Refusal::Malformed(what) => ("malformed", what.as_str()),
            Refusal::UnknownType => ("unknown_type", "this server does not know such a message"),
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

    /// Creates the message about a request's outcome.
    pub(super) fn closed(request: &Request) -> Self {
        // A person does not care that the asker has consumed the approval.
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
    /// Converts a pending request; `now` is in milliseconds since 1970.
    pub fn of(request: &Request, now: u64) -> Self {
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
