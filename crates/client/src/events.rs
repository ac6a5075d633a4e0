//! Answers of server-sent events (the HTML standard, section 9.2).

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::Value;

use super::client::{Error, Response};

/// Maximum length of one event, in bytes.
const MAX_EVENT: usize = 32 << 20;

/// A stream of events.
#[derive(Debug)]
pub struct Events {
    response: Response,
    buffer: Vec<u8>,
}

/// An event: its name and its data.
#[derive(Debug, Clone, PartialEq)]
pub struct Event {
    pub name: String,
    pub data: Value,
}

impl Events {
    /// Reads an answer as events.
    pub const fn of(response: Response) -> Self {
        Self {
            response,
            buffer: Vec::new(),
        }
    }

    /// Returns the next event; `None` at the end of the stream.
    ///
    /// # Errors
    /// If the connection broke, or an event is malformed.
    pub async fn next(&mut self) -> Result<Option<Event>, Error> {
        loop {
            if let Some(end) = self.buffer.windows(2).position(|pair| pair == b"\n\n") {
                let rest = self.buffer.split_off(end + 2);
                let block = std::mem::replace(&mut self.buffer, rest);
                if let Some(event) = parse(&block)? {
                    return Ok(Some(event));
                }
                continue;
            }
            if self.buffer.len() > MAX_EVENT {
                return Err(Error::Broken("an event is too long".to_owned()));
            }
            match self.response.piece().await? {
                Some(piece) => self.buffer.extend_from_slice(&piece),
                None => return Ok(None),
            }
        }
    }
}

/// Parses one block; `None` for comments alone.
fn parse(block: &[u8]) -> Result<Option<Event>, Error> {
    let text = std::str::from_utf8(block).map_err(|error| Error::Broken(error.to_string()))?;
    let (mut name, mut data) = (None, String::new());
    for line in text.lines() {
        if let Some(value) = line.strip_prefix("event:") {
            name = Some(value.trim().to_owned());
        } else if let Some(value) = line.strip_prefix("data:") {
            data.push_str(value.strip_prefix(' ').unwrap_or(value));
        }
    }
    let Some(name) = name else { return Ok(None) };
    let data = serde_json::from_str(&data).map_err(|error| Error::Broken(error.to_string()))?;
    Ok(Some(Event { name, data }))
}

impl Event {
    /// Returns the output bytes of the event. They are sent as text, or as base64 if they are not UTF-8.
    pub fn output(&self) -> Vec<u8> {
        match (self.data["text"].as_str(), self.data["base64"].as_str()) {
            (Some(text), _) => text.as_bytes().to_vec(),
            (None, Some(encoded)) => STANDARD.decode(encoded).unwrap_or_default(),
            (None, None) => Vec::new(),
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn events_have_a_name_and_data_and_comments_have_neither() {
        let check = |block: &str, expected: Option<(&str, Value)>| {
            let found = parse(block.as_bytes()).unwrap();
            assert_eq!(
                found,
                expected.map(|(name, data)| Event {
                    name: name.to_owned(),
                    data
                })
            );
        };
        check(":\n\n", None);
        check(
            "event: stdout\ndata: {\"text\":\"a\"}\n\n",
            Some(("stdout", json!({"text": "a"}))),
        );
        assert!(parse(b"event: x\ndata: {\n\n").is_err());
        let event = parse(b"event: stdout\ndata: {\"base64\":\"/w==\"}\n\n")
            .unwrap()
            .unwrap();
        assert_eq!(event.output(), [0xff]);
    }
}
