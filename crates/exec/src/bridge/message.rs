//! Parses and serializes the messages of a bridge.

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

/// Length limit of a line in bytes, including its end.
pub const MAX_LINE: usize = 1024 * 1024;

/// Limit of nesting in a line, including the message's own objects.
pub const MAX_DEPTH: usize = 64;

/// Limit of values in a line, with a margin for the message's own: each value takes far more memory than its
/// two bytes.
const MAX_VALUES: usize = 100_100;

/// Length limit of an id in bytes.
const MAX_ID: usize = 64;

/// Identifier of a call, chosen by the caller.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Id(String);

#[derive(Debug, Clone, PartialEq)]
pub enum Message {
    /// To a program: starts it with this data.
    Execute(Id, Value),
    /// From a program: requests a call of a host function. To a skill's process: calls a function.
    Call(Id, Call),
    /// The result of a call.
    Result(Id, Value),
    /// The error of a call; from its caller, the cancellation.
    Error(Id, CallError),
    /// From a program: the result of its execution.
    Complete(Id, Value),
}

/// A function with its arguments.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Call {
    /// Skill and function, such as `Notes.add`.
    pub path: String,
    /// Positional arguments.
    #[serde(default)]
    pub args: Vec<Value>,
    /// Keyword arguments.
    #[serde(default)]
    pub kwargs: Map<String, Value>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CallError {
    /// Error code.
    pub kind: String,
    /// Error message.
    #[serde(rename = "error")]
    pub message: String,
}

/// An error returned when parsing a message.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Malformed {
    /// The line is too long.
    #[error("a line is longer than {MAX_LINE} bytes")]
    TooLong,
    /// The nesting is too deep.
    #[error("a line holds values that are nested deeper than {MAX_DEPTH}")]
    TooDeep,
    /// The values are too many.
    #[error("a line holds more than 100000 values")]
    TooMany,
    /// The line is not a valid message.
    #[error("a line is not a message: {0}")]
    Senseless(String),
}

/// The JSON object of a line.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Written {
    #[serde(rename = "type")]
    kind: Kind,
    id: Id,
    data: Value,
}

#[derive(Clone, Copy, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Kind {
    Execute,
    Call,
    Result,
    Error,
    Complete,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Given {
    value: Value,
}

impl Id {
    /// Creates an id from a number.
    pub fn of(number: u64) -> Self {
        Self(number.to_string())
    }

    /// Returns the empty id, for messages about the bridge as a whole.
    pub const fn whole() -> Self {
        Self(String::new())
    }
}

impl CallError {
    pub fn new(kind: &str, message: impl Into<String>) -> Self {
        Self {
            kind: kind.to_owned(),
            message: message.into(),
        }
    }
}

impl Call {
    /// Returns the number of values in the arguments, which take memory while the call is under way.
    pub fn values(&self) -> usize {
        let arguments = self.args.iter().chain(self.kwargs.values());
        arguments.map(values).sum()
    }
}

fn values(value: &Value) -> usize {
    match value {
        Value::Array(items) => 1 + items.iter().map(values).sum::<usize>(),
        Value::Object(members) => 1 + members.values().map(values).sum::<usize>(),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => 1,
    }
}

impl Message {
    /// Parses a line.
    ///
    /// # Errors
    /// If the line is not a valid message.
    pub fn parse(line: &[u8]) -> Result<Self, Malformed> {
        check_shape(line)?;
        let Written { kind, id, data } = serde_json::from_slice(line).map_err(senseless)?;
        if id.0.len() > MAX_ID {
            return Err(Malformed::Senseless(format!(
                "an id of {} bytes; {MAX_ID} is the limit",
                id.0.len()
            )));
        }
        Ok(match kind {
            Kind::Execute => Self::Execute(id, data),
            Kind::Call => Self::Call(id, Call::deserialize(data).map_err(senseless)?),
            Kind::Result => Self::Result(id, Given::deserialize(data).map_err(senseless)?.value),
            Kind::Error => Self::Error(id, CallError::deserialize(data).map_err(senseless)?),
            Kind::Complete => Self::Complete(id, data),
        })
    }

    /// Serializes the message with a line end. A result that exceeds the limit becomes an error.
    pub fn line(&self) -> Vec<u8> {
        let (kind, id, data) = match self {
            Self::Execute(id, data) => (Kind::Execute, id, data.clone()),
            Self::Call(id, call) => (Kind::Call, id, json!(call)),
            Self::Result(id, value) => (Kind::Result, id, json!({"value": value})),
            Self::Error(id, fault) => (Kind::Error, id, json!(fault)),
            Self::Complete(id, data) => (Kind::Complete, id, data.clone()),
        };
        let id = id.clone();
        // Strings, numbers and lists of them can always be serialized.
        let mut line = serde_json::to_vec(&Written { kind, id, data }).unwrap_or_default();
        if line.len() >= MAX_LINE
            && let Self::Result(id, _) = self
        {
            let told = format!(
                "a result of {} bytes cannot go over the bridge; {MAX_LINE} is the limit",
                line.len()
            );
            return Self::Error(id.clone(), CallError::new("limit_exceeded", told)).line();
        }
        line.push(b'\n');
        line
    }
}

fn senseless(error: serde_json::Error) -> Malformed {
    Malformed::Senseless(error.to_string().chars().take(200).collect())
}

/// Checks that parsing a line takes bounded memory and stack.
pub fn check_shape(line: &[u8]) -> Result<(), Malformed> {
    let Shape { depth, values } = shape(line);
    match (depth > MAX_DEPTH, values > MAX_VALUES) {
        (true, _) => Err(Malformed::TooDeep),
        (false, true) => Err(Malformed::TooMany),
        (false, false) => Ok(()),
    }
}

/// Nesting and number of values of a line.
struct Shape {
    depth: usize,
    values: usize,
}

/// Measures the nesting of a line, and a lower bound for the number of its values, without requiring valid
/// JSON.
fn shape(line: &[u8]) -> Shape {
    let (mut deepest, mut values) = (0, 0);
    let (mut depth, mut in_text, mut escaped) = (0_usize, false, false);
    for &byte in line {
        match byte {
            _ if escaped => escaped = false,
            b'\\' if in_text => escaped = true,
            b'"' => in_text = !in_text,
            b'[' | b'{' if !in_text => {
                depth += 1;
                values += 1;
                deepest = deepest.max(depth);
            }
            b']' | b'}' if !in_text => depth = depth.saturating_sub(1),
            b',' if !in_text => values += 1,
            _ => {}
        }
    }
    Shape {
        depth: deepest,
        values,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(line: &str, expected: Result<Message, Malformed>) {
        assert_eq!(Message::parse(line.as_bytes()), expected, "{line}");
    }

    #[test]
    fn what_is_written_is_read_again() {
        let id = Id::of(3);
        let call = Call {
            path: "Notes.add".to_owned(),
            args: vec![json!("a\n[[[")],
            kwargs: Map::new(),
        };
        for message in [
            Message::Execute(id.clone(), json!({"file": "notes.py"})),
            Message::Call(id.clone(), call),
            Message::Result(id.clone(), Value::Null),
            Message::Error(id.clone(), CallError::new("failed", "why")),
            Message::Complete(id, json!({})),
        ] {
            let line = message.line();
            assert_eq!(line.iter().filter(|&&byte| byte == b'\n').count(), 1);
            assert_eq!(Message::parse(&line), Ok(message));
        }
    }

    #[test]
    fn values_of_a_call_are_counted() {
        let check = |data: Value, expected: usize| {
            let call = Call::deserialize(data).unwrap();
            assert_eq!(call.values(), expected, "{call:?}");
        };
        check(json!({"path": "A.b"}), 0);
        check(
            json!({"path": "A.b", "args": [1, [2, {}]], "kwargs": {"a": {"b": null}}}),
            6,
        );
    }

    #[test]
    fn what_is_no_message_is_refused() {
        let senseless = |line: &str| {
            let parsed = Message::parse(line.as_bytes());
            assert!(
                matches!(parsed, Err(Malformed::Senseless(_))),
                "{line}: {parsed:?}"
            );
        };
        for line in [
            "",
            "hello",
            "[]",
            r#"{"type":"call","id":"1"}"#,
            r#"{"type":"run","id":"1","data":{}}"#,
            r#"{"type":"call","id":1,"data":{"path":"A.b"}}"#,
            r#"{"type":"call","id":"1","data":{"path":7}}"#,
            r#"{"type":"call","id":"1","data":{"path":"A.b","more":1}}"#,
            r#"{"type":"call","id":"1","data":{"path":"A.b"},"more":1}"#,
            r#"{"type":"result","id":"1","data":{}}"#,
            r#"{"type":"result","id":"1","data":{"value":1}} {}"#,
            &format!(r#"{{"type":"complete","id":"{}","data":{{}}}}"#, "x".repeat(65)),
        ] {
            senseless(line);
        }
        let nested = |depth: usize| {
            let (open, close) = ("[".repeat(depth), "]".repeat(depth));
            format!(r#"{{"type":"result","id":"1","data":{{"value":{open}{close}}}}}"#)
        };
        assert!(Message::parse(nested(MAX_DEPTH - 2).as_bytes()).is_ok());
        check(&nested(MAX_DEPTH - 1), Err(Malformed::TooDeep));
        check(&"[".repeat(1_000_000), Err(Malformed::TooDeep));
        let many = format!(
            r#"{{"type":"result","id":"1","data":{{"value":[{}0]}}}}"#,
            "0,".repeat(200_000)
        );
        check(&many, Err(Malformed::TooMany));
    }

    #[test]
    fn a_result_that_is_too_long_becomes_an_error() {
        let line = Message::Result(Id::of(1), json!("x".repeat(MAX_LINE))).line();
        let Ok(Message::Error(id, fault)) = Message::parse(&line) else {
            panic!("no error");
        };
        assert_eq!((id, fault.kind.as_str()), (Id::of(1), "limit_exceeded"));
    }
}
