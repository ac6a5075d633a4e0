//! Asks a model to score the risk of a command.
//!
//! The command is sent as data, and the reply counts only if it is one integer. Any failure means that there
//! is no score, and that a person is asked. The caller ensures that a score never lowers a risk below the
//! floor.
#![forbid(unsafe_code)]

mod answer;
mod base;
mod conduit;
mod error;
mod message;
mod model;

#[cfg(test)]
mod tests;

use std::path::PathBuf;
use std::time::Instant;

use genai::chat::{ChatMessage, ChatOptions, ChatRequest};
use genai::resolver::{AuthData, Endpoint};
use genai::{Client, ModelIden, ServiceTarget};
use ringfence_exec::key::Key;
use ringfence_network::egress::{AttemptLog, Guard, Resolver};
use ringfence_network::fetch::Trust;
use ringfence_network::secret::{KeyError, Secret};
use ringfence_policy::cascade::Decision;
use ringfence_policy::{EgressPolicy, Timeout};
use tokio::time::timeout_at;

pub use base::{BaseUrl, ParseBaseUrlError};
pub use error::ScoreError;
pub use model::{Model, ParseModelError, Provider};

use conduit::Conduit;

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
    /// Parent of the temporary directory of a request.
    pub scratch: PathBuf,
}

/// A client that asks a model for risk scores.
#[derive(Debug)]
pub struct Assessor {
    settings: Settings,
    base: BaseUrl,
    guard: Guard,
}

/// One or two digits; some servers count a space and an end marker as tokens, too.
const MAX_TOKENS: u32 = 16;

impl Assessor {
    /// Creates an assessor, without connecting.
    pub fn new(settings: Settings) -> Self {
        let base = settings.base.clone();
        let base = base.unwrap_or_else(|| settings.model.provider.base());
        // Allows the one server only. If the user configured it, it may be in a private network.
        let policy = EgressPolicy {
            allowed: base.pattern().into_iter().collect(),
            private_networks: base.networks(settings.base.is_some()),
        };
        let guard = Guard::new(policy, Resolver::system());
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
        let target = self.target(self.settings.key.read().await?);
        let tls = self.settings.trust.config().await?;
        let (host, port) = self.base.server();
        let server = self.guard.connect(&host, port, deadline, log).await?;
        let conduit = Conduit::open(&self.settings.scratch).map_err(|_| ScoreError::Conduit)?;
        let http = reqwest::Client::builder()
            .tls_backend_preconfigured(tls.as_ref().clone())
            .unix_socket(conduit.path())
            .redirect(reqwest::redirect::Policy::none())
            .no_proxy()
            .no_gzip()
            .http1_only()
            .referer(false)
            .pool_max_idle_per_host(0)
            .build()
            .map_err(|_| ScoreError::Conduit)?;
        let client = Client::builder()
            .with_reqwest(http)
            .build()
            .map_err(|_| ScoreError::Conduit)?;
        let request = ChatRequest::new(vec![ChatMessage::user(message::of(line, decision))])
            .with_system(message::INSTRUCTIONS);
        let options = ChatOptions::default()
            .with_temperature(0.0)
            .with_max_tokens(MAX_TOKENS)
            .with_capture_raw_body(true);
        let answered = tokio::select! {
            biased;
            too_long = conduit.carry(server) => return Err(too_long),
            answered = client.exec_chat(target, request, Some(&options)) => answered,
        };
        answer::score(&answered?)
    }

    fn target(&self, key: Secret) -> ServiceTarget {
        let Model { provider, name } = &self.settings.model;
        ServiceTarget {
            endpoint: Endpoint::from_owned(self.base.to_string()),
            auth: AuthData::from_single(key.into_text()),
            model: ModelIden::new(provider.format(), name.as_str()),
        }
    }
}
