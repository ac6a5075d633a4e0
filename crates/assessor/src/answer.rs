//! Extracts the score from a model's response.

use genai::chat::{ChatResponse, ContentPart, StopReason};
use serde_json::Value;

use super::ScoreError;

/// Returns the score of a complete response that consists of one integer from 0 to 10 and nothing else.
pub(super) fn score(answer: &ChatResponse) -> Result<u8, ScoreError> {
    let raw = answer.captured_raw_body.as_ref().unwrap_or(&Value::Null);
    match &answer.stop_reason {
        Some(StopReason::Completed(_)) => {}
        Some(StopReason::ContentFilter(_)) => return Err(ScoreError::Refused),
        Some(
            StopReason::MaxTokens(_)
            | StopReason::ToolCall(_)
            | StopReason::StopSequence(_)
            | StopReason::Other(_),
        )
        | None => return Err(ScoreError::Unfinished),
    }
    if let Some(choices) = raw.get("choices") {
        one_plain_choice(choices)?;
    }
    match answer.content.parts().as_slice() {
        [ContentPart::Text(text)] => integer(text.trim_ascii()).ok_or(ScoreError::NoInteger),
        _ => Err(ScoreError::NoInteger),
    }
}

/// Checks what the library ignores: in OpenAI's format, it reads the first choice only, joins the parts of a
/// text, and skips refusals.
fn one_plain_choice(choices: &Value) -> Result<(), ScoreError> {
    let [choice] = choices.as_array().map_or(&[][..], Vec::as_slice) else {
        return Err(ScoreError::NoInteger);
    };
    let message = &choice["message"];
    if !message["refusal"].is_null() {
        return Err(ScoreError::Refused);
    }
    if !message["content"].is_string() || !message["function_call"].is_null() {
        return Err(ScoreError::NoInteger);
    }
    Ok(())
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
