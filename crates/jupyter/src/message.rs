//! Messages of a kernel, in both protocols of the WebSocket.

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use serde_json::{Map, Value, json};
use tokio_tungstenite::tungstenite::Message as Frame;

/// Version of the messaging protocol.
pub(crate) const VERSION: &str = "5.3";

/// Maximum length of each text in a header, which is repeated in every answer.
const MAX_TEXT: usize = 512;

/// Maximum number of parts of a binary message: buffers are ignored.
const MAX_PARTS: usize = 64;

/// The form of messages on a WebSocket.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Protocol {
    /// Texts of JSON.
    Json,
    /// `v1.kernel.websocket.jupyter.org`: binary, with offsets of the parts.
    V1,
}

/// A channel of a kernel.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Channel {
    Shell,
    Control,
    Stdin,
    Iopub,
}

/// The header of a message. Other members are not kept.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Header {
    pub(crate) msg_id: String,
    pub(crate) msg_type: String,
    #[serde(default)]
    pub(crate) username: String,
    #[serde(default)]
    pub(crate) session: String,
    #[serde(default, deserialize_with = "text_or_none")]
    pub(crate) date: String,
    #[serde(default)]
    pub(crate) version: String,
}

/// Deserializes a text that may be `null`. Some clients send no date.
fn text_or_none<'de, D: serde::Deserializer<'de>>(deserializer: D) -> Result<String, D::Error> {
    Option::deserialize(deserializer).map(Option::unwrap_or_default)
}

/// A message of a client.
#[derive(Debug, Clone, Deserialize)]
pub struct Incoming {
    pub(crate) header: Header,
    /// Text of the content. It is parsed when the message is answered: parsed, it may take a hundred times its bytes.
    #[serde(default)]
    content: Option<Box<RawValue>>,
    pub(crate) channel: Channel,
}

/// A message of the kernel.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Outgoing {
    pub(crate) channel: Channel,
    pub(crate) header: Header,
    pub(crate) parent: Option<Header>,
    pub(crate) metadata: Map<String, Value>,
    pub(crate) content: Value,
}

/// An error returned when parsing a client's message.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum MessageError {
    /// The message does not have the protocol's form.
    #[error("expected a message of the kernel protocol that the connection speaks")]
    Malformed,
    /// A text of its header is too long.
    #[error("a text in the header of a message is longer than 512 bytes")]
    LongHeader,
}

impl Protocol {
    /// Name of the other protocol than that of texts.
    pub const V1_NAME: &'static str = "v1.kernel.websocket.jupyter.org";

    /// Returns the best one of those that a client offers, as a list with commas.
    pub fn among(offered: &str) -> Self {
        match offered.split(',').any(|each| each.trim() == Self::V1_NAME) {
            true => Self::V1,
            false => Self::Json,
        }
    }
}

impl Incoming {
    /// Parses a message of a client.
    ///
    /// # Errors
    /// If it is not of the protocol's form, or its header is too long.
    pub fn parse(protocol: Protocol, bytes: &[u8]) -> Result<Self, MessageError> {
        let parsed = match protocol {
            Protocol::Json => serde_json::from_slice(bytes).ok(),
            Protocol::V1 => Self::of_parts(bytes),
        };
        let message: Self = parsed.ok_or(MessageError::Malformed)?;
        let header = &message.header;
        let texts = [
            &header.msg_id,
            &header.msg_type,
            &header.username,
            &header.session,
            &header.date,
            &header.version,
        ];
        match texts.iter().all(|text| text.len() <= MAX_TEXT) {
            true => Ok(message),
            false => Err(MessageError::LongHeader),
        }
    }

    /// Parses the content.
    ///
    /// # Errors
    /// If it does not have the form of `T`.
    pub(crate) fn content<T: DeserializeOwned>(&self) -> serde_json::Result<T> {
        serde_json::from_str(self.content.as_ref().map_or("null", |text| text.get()))
    }

    /// Parses a binary message: the number of offsets, the offsets, and between them the channel, the header, the parent's header,
    /// metadata, content and buffers.
    fn of_parts(bytes: &[u8]) -> Option<Self> {
        let number = |at: usize| {
            let field = bytes.get(at..at.checked_add(8)?)?;
            usize::try_from(u64::from_le_bytes(field.try_into().ok()?)).ok()
        };
        let count = number(0)?;
        if !(6..=MAX_PARTS).contains(&count) {
            return None;
        }
        let offset = |index: usize| number(8 * (index + 1));
        let part = |index: usize| bytes.get(offset(index)?..offset(index + 1)?);
        Some(Self {
            channel: serde_json::from_value(std::str::from_utf8(part(0)?).ok()?.into()).ok()?,
            header: serde_json::from_slice(part(1)?).ok()?,
            content: serde_json::from_slice(part(4)?).ok()?,
        })
    }
}

impl Outgoing {
    /// Returns the message as a frame of the WebSocket.
    pub(crate) fn frame(&self, protocol: Protocol) -> Frame {
        let parent = self
            .parent
            .as_ref()
            .map_or_else(|| json!({}), |parent| json!(parent));
        match protocol {
            Protocol::Json => {
                let message = json!({
                    "header": self.header,
                    "msg_id": self.header.msg_id,
                    "msg_type": self.header.msg_type,
                    "parent_header": parent,
                    "metadata": self.metadata,
                    "content": self.content,
                    "buffers": [],
                    "channel": self.channel,
                });
                Frame::text(message.to_string())
            }
            Protocol::V1 => {
                let channel = json!(self.channel);
                let parts = [
                    channel.as_str().unwrap_or_default().to_owned(),
                    json!(self.header).to_string(),
                    parent.to_string(),
                    json!(self.metadata).to_string(),
                    self.content.to_string(),
                ];
                Frame::binary(joined(&parts))
            }
        }
    }
}

/// Joins parts behind the number of their offsets, and the offsets of their beginnings and of the end.
fn joined(parts: &[String]) -> Vec<u8> {
    let count = parts.len() + 1;
    let mut bytes = (count as u64).to_le_bytes().to_vec();
    let mut offset = 8 * (count + 1);
    for part in parts {
        bytes.extend((offset as u64).to_le_bytes());
        offset += part.len();
    }
    bytes.extend((offset as u64).to_le_bytes());
    bytes.extend(parts.iter().flat_map(|part| part.as_bytes()));
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    fn message() -> Value {
        json!({
            "header": {"msg_id": "m", "msg_type": "execute_request", "session": "s", "username": "u", "date": "", "version": "5.3"},
            "parent_header": {}, "metadata": {}, "content": {"code": "1"}, "channel": "shell",
        })
    }

    #[test]
    fn both_protocols_carry_the_same_message() {
        let text = Incoming::parse(Protocol::Json, message().to_string().as_bytes()).unwrap();
        let content: Value = text.content().unwrap();
        assert_eq!(content["code"], "1");
        let sent = Outgoing {
            channel: text.channel,
            header: text.header.clone(),
            parent: None,
            metadata: Map::new(),
            content: content.clone(),
        };
        for protocol in [Protocol::V1, Protocol::Json] {
            let bytes = sent.frame(protocol).into_data();
            let read = Incoming::parse(protocol, &bytes).unwrap();
            assert_eq!((&read.header, read.channel), (&text.header, text.channel));
            assert_eq!(read.content::<Value>().unwrap(), content);
        }
    }

    #[test]
    fn nonsense_is_refused() {
        for bytes in [
            &b""[..],
            b"1",
            b"{}",
            &[0xff; 64],
            &6_u64.to_le_bytes(),
            &[&6_u64.to_le_bytes()[..], &[0xff; 56]].concat(),
        ] {
            for protocol in [Protocol::Json, Protocol::V1] {
                let refused = Incoming::parse(protocol, bytes).unwrap_err();
                assert_eq!(refused, MessageError::Malformed, "{bytes:?}");
            }
        }
        let mut long = message();
        long["header"]["msg_id"] = "x".repeat(MAX_TEXT + 1).into();
        let refused = Incoming::parse(Protocol::Json, long.to_string().as_bytes()).unwrap_err();
        assert_eq!(refused, MessageError::LongHeader);
        let mut other = message();
        other["channel"] = "elsewhere".into();
        let refused = Incoming::parse(Protocol::Json, other.to_string().as_bytes()).unwrap_err();
        assert_eq!(refused, MessageError::Malformed);
    }

    #[test]
    fn a_client_chooses_the_protocol() {
        for (offered, protocol) in [
            ("", Protocol::Json),
            ("other", Protocol::Json),
            ("a, v1.kernel.websocket.jupyter.org", Protocol::V1),
        ] {
            assert_eq!(Protocol::among(offered), protocol, "{offered}");
        }
    }
}
