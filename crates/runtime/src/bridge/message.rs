//! One message of a bridge.

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

/// The longest line, its end included.
pub const MAX_LINE: usize = 1024 * 1024;

/// How deep values of a line may be nested, the message's own objects included.
pub const MAX_DEPTH: usize = 64;

/// How many values a line may hold, and a few of the message's own: each takes far more memory than its two bytes.
const MAX_VALUES: usize = 100_100;

/// The longest id.
const MAX_ID: usize = 64;

/// What tells calls apart. Whoever makes a call chooses it.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Id(String);

/// A message.
#[derive(Debug, Clone, PartialEq)]
pub enum Message {
    /// To a program: begin with this.
    Execute(Id, Value),
    /// From a program: have a function of the host called. To a process of skills: call one.
    Call(Id, Call),
    /// What a call gave.
    Result(Id, Value),
    /// Why a call gave nothing, or, from the side that made it, that nobody waits for it any more.
    Error(Id, Fault),
    /// From a program: this came of the beginning.
    Complete(Id, Value),
}

/// What is to be called.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Call {
    /// Skill and function, such as `Notes.add`.
    pub path: String,
    /// By position.
    #[serde(default)]
    pub args: Vec<Value>,
    /// By name.
    #[serde(default)]
    pub kwargs: Map<String, Value>,
}

/// Why there is no result.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Fault {
    /// What kind of reason.
    pub kind: String,
    /// What was wrong.
    #[serde(rename = "error")]
    pub message: String,
}

/// Why bytes are no message.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Malformed {
    /// Too much without the end of a line.
    #[error("a line is longer than {MAX_LINE} bytes")]
    TooLong,
    /// Too deep.
    #[error("a line holds values that are nested deeper than {MAX_DEPTH}")]
    TooDeep,
    /// Too much in small pieces.
    #[error("a line holds more than 100000 values")]
    TooMany,
    /// Not one of the messages.
    #[error("a line is no message: {0}")]
    Senseless(String),
}

/// A line as it is written.
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
    /// An id of ours.
    pub fn of(number: u64) -> Self {
        Self(number.to_string())
    }

    /// That of messages about the bridge as a whole.
    pub const fn whole() -> Self {
        Self(String::new())
    }
}

impl Fault {
    /// A reason.
    pub fn new(kind: &str, message: impl Into<String>) -> Self {
        Self {
            kind: kind.to_owned(),
            message: message.into(),
        }
    }
}

impl Message {
    /// The message on a line.
    ///
    /// # Errors
    /// If it is none.
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
            Kind::Error => Self::Error(id, Fault::deserialize(data).map_err(senseless)?),
            Kind::Complete => Self::Complete(id, data),
        })
    }

    /// The message with the end of its line. A result that is too long for a line becomes an error that says so.
    pub fn line(&self) -> Vec<u8> {
        let (kind, id, data) = match self {
            Self::Execute(id, data) => (Kind::Execute, id, data.clone()),
            Self::Call(id, call) => (Kind::Call, id, json!(call)),
            Self::Result(id, value) => (Kind::Result, id, json!({"value": value})),
            Self::Error(id, fault) => (Kind::Error, id, json!(fault)),
            Self::Complete(id, data) => (Kind::Complete, id, data.clone()),
        };
        let id = id.clone();
        // Of texts, numbers and lists of them alone: that can always be written.
        let mut line = serde_json::to_vec(&Written { kind, id, data }).unwrap_or_default();
        if line.len() >= MAX_LINE
            && let Self::Result(id, _) = self
        {
            let told = format!(
                "a result of {} bytes cannot go over the bridge; {MAX_LINE} is the limit",
                line.len()
            );
            return Self::Error(id.clone(), Fault::new("limit_exceeded", told)).line();
        }
        line.push(b'\n');
        line
    }
}

fn senseless(error: serde_json::Error) -> Malformed {
    Malformed::Senseless(error.to_string().chars().take(200).collect())
}

/// That JSON on a line takes no more than it may to be read.
pub(crate) fn check_shape(line: &[u8]) -> Result<(), Malformed> {
    let Shape { depth, values } = shape(line);
    match (depth > MAX_DEPTH, values > MAX_VALUES) {
        (true, _) => Err(Malformed::TooDeep),
        (false, true) => Err(Malformed::TooMany),
        (false, false) => Ok(()),
    }
}

/// What a line will take to be read.
struct Shape {
    depth: usize,
    values: usize,
}

/// How deep the values of a line are nested, and how many there are at least, whether it is JSON or not.
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
            Message::Error(id.clone(), Fault::new("failed", "why")),
            Message::Complete(id, json!({})),
        ] {
            let line = message.line();
            assert_eq!(line.iter().filter(|&&byte| byte == b'\n').count(), 1);
            assert_eq!(Message::parse(&line), Ok(message));
        }
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
