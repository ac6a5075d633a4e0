//! Builds the request in a provider's format.

use ringfence_network::fetch::{BaseUrl, FetchRequest, RequestError};
use ringfence_network::secret::Secret;
use serde::Serialize;

use super::{Model, Provider};

/// Version of Anthropic's API.
const ANTHROPIC_VERSION: &str = "2023-06-01";

/// One or two digits; some servers count a space and an end marker as tokens, too.
const MAX_TOKENS: u32 = 16;

/// OpenAI's models that accept `max_completion_tokens` only.
const REASONING: [&str; 5] = ["gpt-5", "gpt-6", "o1", "o3", "o4"];

/// The texts for a model.
#[derive(Debug, Clone, Copy)]
pub(super) struct Prompt<'a> {
    pub(super) system: &'a str,
    pub(super) user: &'a str,
}

#[derive(Serialize)]
struct Body<'a> {
    model: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    system: Option<&'a str>,
    messages: Vec<Message<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    max_tokens: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    max_completion_tokens: Option<u32>,
    temperature: f32,
    stream: bool,
}

#[derive(Serialize)]
struct Message<'a> {
    role: &'static str,
    content: &'a str,
}

/// Builds the request to the server at `base`.
///
/// # Errors
/// If one of the parts is invalid.
pub(super) fn build(
    base: &BaseUrl,
    model: &Model,
    key: Secret,
    prompt: Prompt<'_>,
) -> Result<FetchRequest, RequestError> {
    let key = key.into_text();
    let header = |name: &str, value: String| (name.to_owned(), value);
    let json = header("content-type", "application/json".to_owned());
    let (path, headers) = match model.provider {
        Provider::Anthropic => (
            "messages",
            vec![
                json,
                header("x-api-key", key),
                header("anthropic-version", ANTHROPIC_VERSION.to_owned()),
            ],
        ),
        Provider::OpenAi => (
            "chat/completions",
            vec![json, header("authorization", format!("Bearer {key}"))],
        ),
    };
    FetchRequest::new(&format!("{base}{path}"), "POST", &headers, body(model, prompt))
}

fn body(model: &Model, prompt: Prompt<'_>) -> Vec<u8> {
    let message = |role, content| Message { role, content };
    let user = message("user", prompt.user);
    let limit = Some(MAX_TOKENS);
    let is_reasoning = REASONING.iter().any(|prefix| model.name.starts_with(prefix));
    let body = match model.provider {
        Provider::Anthropic => Body {
            model: &model.name,
            system: Some(prompt.system),
            messages: vec![user],
            max_tokens: limit,
            max_completion_tokens: None,
            temperature: 0.0,
            stream: false,
        },
        Provider::OpenAi => Body {
            model: &model.name,
            system: None,
            messages: vec![message("system", prompt.system), user],
            max_tokens: limit.filter(|_| !is_reasoning),
            max_completion_tokens: limit.filter(|_| is_reasoning),
            temperature: 0.0,
            stream: false,
        },
    };
    // Only maps with keys that are not strings, and failing writers, are errors.
    serde_json::to_vec(&body).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn sent(model: &str) -> Value {
        let prompt = Prompt {
            system: "rate it",
            user: "ls",
        };
        serde_json::from_slice(&body(&model.parse().unwrap(), prompt)).unwrap()
    }

    #[test]
    fn each_provider_gets_its_own_format() {
        assert_eq!(
            sent("anthropic/small"),
            json!({
                "model": "small", "system": "rate it", "messages": [{"role": "user", "content": "ls"}],
                "max_tokens": 16, "temperature": 0.0, "stream": false,
            })
        );
        let messages = json!([{"role": "system", "content": "rate it"}, {"role": "user", "content": "ls"}]);
        let limit = |model, member: &str| {
            let mut expected =
                json!({"model": model, "messages": messages, "temperature": 0.0, "stream": false});
            expected[member] = json!(16);
            expected
        };
        assert_eq!(sent("openai/qwen3:8b"), limit("qwen3:8b", "max_tokens"));
        // The name is sent as it is, whatever its ending means elsewhere.
        assert_eq!(
            sent("openai/gpt-5-mini-low"),
            limit("gpt-5-mini-low", "max_completion_tokens")
        );
    }
}
