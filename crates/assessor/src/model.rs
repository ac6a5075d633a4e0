//! Parses the name of a model and its provider.

use std::fmt;
use std::str::FromStr;

use ringfence_network::fetch::BaseUrl;

/// A model, written `provider/model`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Model {
    pub provider: Provider,
    /// The server's name of the model.
    pub name: String,
}

/// The API format of a server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Provider {
    /// Anthropic's Messages API.
    Anthropic,
    /// OpenAI's chat completions API, which many servers implement.
    OpenAi,
}

/// An error returned when parsing a [`Model`] from text.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum ParseModelError {
    /// The part before or after the slash is empty.
    #[error("expected a model as `provider/model`")]
    Form,
    /// The provider is unknown.
    #[error("the provider must be `anthropic` or `openai`")]
    Provider,
    /// The name is too long, or contains invalid characters.
    #[error("the model's name must have at most 80 characters, each a letter, a digit or one of `._:/@+-`")]
    Name,
}

impl ParseModelError {
    /// Returns a hint for the user.
    pub const fn hint(self) -> &'static str {
        "write `anthropic/MODEL` or `openai/MODEL`; any server that speaks OpenAI's chat format is `openai/MODEL` with a `baseUrl`"
    }
}

/// Length limit: the name is shown in records and approval requests.
const MAX_NAME: usize = 80;

impl FromStr for Model {
    type Err = ParseModelError;
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let (provider, name) = text.split_once('/').ok_or(ParseModelError::Form)?;
        let provider = match provider {
            "anthropic" => Provider::Anthropic,
            "openai" => Provider::OpenAi,
            "" => return Err(ParseModelError::Form),
            _ => return Err(ParseModelError::Provider),
        };
        if name.is_empty() {
            return Err(ParseModelError::Form);
        }
        let plain = |c: char| c.is_ascii_alphanumeric() || "._:/@+-".contains(c);
        // No provider's name has `::`; other programs take it for the end of a provider.
        if name.len() > MAX_NAME || !name.chars().all(plain) || name.contains("::") {
            return Err(ParseModelError::Name);
        }
        Ok(Self {
            provider,
            name: name.to_owned(),
        })
    }
}

impl fmt::Display for Model {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let provider = match self.provider {
            Provider::Anthropic => "anthropic",
            Provider::OpenAi => "openai",
        };
        write!(f, "{provider}/{}", self.name)
    }
}

impl Provider {
    /// Returns the conventional environment variable for the key.
    pub const fn key_variable(self) -> &'static str {
        match self {
            Self::Anthropic => "ANTHROPIC_API_KEY",
            Self::OpenAi => "OPENAI_API_KEY",
        }
    }

    /// Returns the base URL of the provider's own server.
    #[expect(clippy::expect_used, reason = "the tests read both")]
    pub(super) fn base(self) -> BaseUrl {
        let base = match self {
            Self::Anthropic => "https://api.anthropic.com/v1/",
            Self::OpenAi => "https://api.openai.com/v1/",
        };
        base.parse().expect("the address of a provider")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_provider_has_a_server() {
        assert_eq!(
            Provider::Anthropic.base().to_string(),
            "https://api.anthropic.com/v1/"
        );
        assert_eq!(Provider::OpenAi.base().to_string(), "https://api.openai.com/v1/");
    }

    #[test]
    fn a_model_is_a_provider_and_a_name() {
        for text in [
            "anthropic/claude-haiku-4-5",
            "openai/gpt-5-mini",
            "openai/meta-llama/Llama-3.1-8B-Instruct",
            "openai/qwen3:8b",
        ] {
            assert_eq!(text.parse::<Model>().unwrap().to_string(), text);
        }
        let check = |text: &str, expected| assert_eq!(text.parse::<Model>(), Err(expected), "{text:?}");
        check("", ParseModelError::Form);
        check("claude-haiku", ParseModelError::Form);
        check("/claude", ParseModelError::Form);
        check("anthropic/", ParseModelError::Form);
        check("mistral/small", ParseModelError::Provider);
        check("Anthropic/claude", ParseModelError::Provider);
        check("openai/a b", ParseModelError::Name);
        check("openai/a\u{202e}b", ParseModelError::Name);
        check("openai/groq::llama", ParseModelError::Name);
        check(&format!("openai/{}", "a".repeat(81)), ParseModelError::Name);
    }
}
