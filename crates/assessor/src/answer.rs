//! Extracts the score from a model's response.

use ringfence_network::fetch::Page;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

use super::{Provider, ScoreError};

/// Returns the score of a complete response that consists of one integer from 0 to 10 and nothing else.
pub(super) fn score(provider: Provider, page: &Page) -> Result<u8, ScoreError> {
    if page.truncated {
        return Err(ScoreError::TooLong);
    }
    if !page.status.is_success() {
        return Err(ScoreError::Status(page.status.as_u16()));
    }
    let text = match provider {
        Provider::Anthropic => read::<Message>(page)?.text()?,
        Provider::OpenAi => read::<Completion>(page)?.text()?,
    };
    integer(text.trim_ascii()).ok_or(ScoreError::NoInteger)
}

fn read<T: DeserializeOwned>(page: &Page) -> Result<T, ScoreError> {
    let kind = page.headers.get("content-type");
    if !kind.is_some_and(|kind| kind.as_bytes().starts_with(b"application/json")) {
        return Err(ScoreError::Format);
    }
    serde_json::from_slice(&page.body).map_err(|_| ScoreError::Format)
}

/// A model's reason to stop generating.
#[derive(Debug, Clone, Copy, Deserialize)]
#[serde(rename_all = "snake_case")]
enum StopReason {
    #[serde(alias = "end_turn")]
    Stop,
    #[serde(alias = "refusal")]
    ContentFilter,
    #[serde(other)]
    Other,
}

/// A message of Anthropic's API.
#[derive(Deserialize)]
struct Message {
    stop_reason: Option<StopReason>,
    content: Vec<Block>,
}

/// A part of a message.
#[derive(Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
enum Block {
    Text {
        text: String,
    },
    #[serde(other)]
    Other,
}

/// A completion of OpenAI's API. Servers omit members, and send `null` or an empty list for none.
#[derive(Deserialize)]
struct Completion {
    #[serde(default)]
    choices: Vec<Choice>,
}

#[derive(Deserialize)]
struct Choice {
    finish_reason: Option<StopReason>,
    message: Option<ChoiceMessage>,
}

/// The message of a choice.
#[derive(Deserialize)]
struct ChoiceMessage {
    /// Servers send a list of parts, too, which is not an answer.
    #[serde(default)]
    content: Value,
    #[serde(default)]
    refusal: Value,
    #[serde(default)]
    tool_calls: Option<Vec<Value>>,
    #[serde(default)]
    function_call: Value,
}

impl Message {
    fn text(self) -> Result<String, ScoreError> {
        finished(self.stop_reason)?;
        match <[Block; 1]>::try_from(self.content) {
            Ok([Block::Text { text }]) => Ok(text),
            Ok([Block::Other]) | Err(_) => Err(ScoreError::NoInteger),
        }
    }
}

impl Completion {
    fn text(self) -> Result<String, ScoreError> {
        finished(self.choices.first().and_then(|choice| choice.finish_reason))?;
        let [choice] = <[Choice; 1]>::try_from(self.choices).map_err(|_| ScoreError::NoInteger)?;
        let said = choice.message.ok_or(ScoreError::NoInteger)?;
        if !said.refusal.is_null() {
            return Err(ScoreError::Refused);
        }
        let calls = said.tool_calls.is_some_and(|calls| !calls.is_empty()) || !said.function_call.is_null();
        match said.content {
            Value::String(text) if !calls => Ok(text),
            _ => Err(ScoreError::NoInteger),
        }
    }
}

fn finished(reason: Option<StopReason>) -> Result<(), ScoreError> {
    match reason {
        Some(StopReason::Stop) => Ok(()),
        Some(StopReason::ContentFilter) => Err(ScoreError::Refused),
        Some(StopReason::Other) | None => Err(ScoreError::Unfinished),
    }
}

/// Parses the canonical notation only: no sign, no leading zero, no point.
fn integer(text: &str) -> Option<u8> {
    match text.as_bytes() {
        [digit @ b'0'..=b'9'] => Some(digit - b'0'),
        b"10" => Some(10),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_integer_and_nothing_else() {
        for score in 0..=10 {
            assert_eq!(integer(&score.to_string()), Some(score));
        }
        for text in [
            "",
            "11",
            "-1",
            "+5",
            "05",
            "00",
            "5.",
            "3.0",
            "5/10",
            "5 because",
            "five",
            "1e1",
            "0x5",
            "\u{0665}",
            "5\u{200b}",
            "5,",
            "100",
            "NaN",
            "[5]",
            "\"5\"",
        ] {
            assert_eq!(integer(text), None, "{text:?}");
        }
    }
}
