//! Asks a model to score the risk of a command.
//!
//! The command is sent as data, and the reply counts only if it is one integer. Any failure means that there
//! is no score, and that a person is asked. The caller ensures that a score never lowers a risk below the
//! floor.
#![forbid(unsafe_code)]

mod answer;
mod error;
mod message;
mod model;
mod request;

#[cfg(test)]
mod tests;

use std::time::Instant;

use ringfence_exec::key::Key;
use ringfence_network::egress::{AttemptLog, Guard, Resolver};
use ringfence_network::fetch::{BaseUrl, Chosen, FetchLimits, Trust, send};
use ringfence_network::secret::KeyError;
use ringfence_policy::Timeout;
use ringfence_policy::cascade::Decision;
use tokio::time::timeout_at;

pub use error::ScoreError;
pub use model::{Model, ParseModelError, Provider};

use request::Prompt;

/// Settings of an assessor.
#[derive(Debug)]
pub struct Settings {
    pub model: Model,
    /// The model's server; `None` for the provider's own.
    pub base: Option<BaseUrl>,
    /// API key of the server.
    pub key: Key,
    /// Timeout of a score, from the name resolution to the last byte.
    pub timeout: Timeout,
    /// Trusted certificate authorities.
    pub trust: Trust,
}

/// A client that asks a model for risk scores.
#[derive(Debug)]
pub struct Assessor {
    settings: Settings,
    base: BaseUrl,
    guard: Guard,
}

/// Size limit of a response. A score takes a few hundred bytes.
const MAX_ANSWER: usize = 256 * 1024;

impl Assessor {
    /// Creates an assessor, without connecting.
    pub fn new(settings: Settings) -> Self {
        let (base, chosen) = match &settings.base {
            Some(base) => (base.clone(), Chosen::ByUser),
            None => (settings.model.provider.base(), Chosen::BuiltIn),
        };
        let guard = Guard::new(base.policy(chosen), Resolver::system());
        Self {
            settings,
            base,
            guard,
        }
    }

    /// Returns the configured model.
    pub fn model(&self) -> &Model {
        &self.settings.model
    }

    /// Returns the source of the key.
    pub fn key(&self) -> &Key {
        &self.settings.key
    }

    /// Returns the model's score of a command line, 0 to 10. Records the connection attempts in `log`.
    ///
    /// # Errors
    /// If there is no score, for whatever reason: a person must decide then.
    pub async fn score(&self, line: &str, decision: &Decision, log: &AttemptLog) -> Result<u8, ScoreError> {
        let timeout = self.settings.timeout;
        let deadline = Instant::now() + timeout.as_duration();
        let asked = timeout_at(deadline.into(), self.ask(line, decision, deadline, log)).await;
        asked.unwrap_or(Err(ScoreError::TimedOut(timeout)))
    }

    async fn ask(
        &self,
        line: &str,
        decision: &Decision,
        deadline: Instant,
        log: &AttemptLog,
    ) -> Result<u8, ScoreError> {
        let key = self.settings.key.read().await?;
        let prompt = Prompt {
            system: message::INSTRUCTIONS,
            user: &message::of(line, decision),
        };
        let model = &self.settings.model;
        let request = request::build(&self.base, model, key, prompt).map_err(|_| ScoreError::Request)?;
        let (host, port) = self.base.server();
        let server = self.guard.connect(&host, port, deadline, log).await?;
        let limits = FetchLimits {
            max_body: MAX_ANSWER,
            ..FetchLimits::until(deadline)
        };
        let page = send(server, &request, &self.settings.trust, &limits).await?;
        answer::score(model.provider, &page)
    }
}
