//! What asks a model how risky a command is.
//!
//! The command travels as data, and the answer counts only if it is one integer. Whatever goes wrong means that there is
//! no score, and that a person is asked. A model never lowers a risk below the floor: that is the caller's business.

mod answer;
mod base;
mod conduit;
mod error;
mod key;
mod message;
mod model;

#[cfg(test)]
mod tests;

use std::path::PathBuf;
use std::time::Instant;

use genai::chat::{ChatMessage, ChatOptions, ChatRequest};
use genai::resolver::{AuthData, Endpoint};
use genai::{Client, ModelIden, ServiceTarget};
use ringfence_policy::cascade::Decision;
use ringfence_policy::{EgressPolicy, Timeout};
use tokio::time::timeout_at;

pub use base::{BaseUrl, ParseBaseUrlError};
pub use error::NoScore;
pub use key::{Key, KeyError, Secret};
pub use model::{Model, ParseModelError, Provider};

use crate::egress::{AttemptLog, Guard, Resolver};
use crate::fetch::Trust;
use conduit::Conduit;

/// Whom to ask, and how.
#[derive(Debug)]
pub struct Settings {
    /// The model.
    pub model: Model,
    /// Its server; nothing for the provider's own.
    pub base: Option<BaseUrl>,
    /// What the server wants to see.
    pub key: Key,
    /// How long a score may take, from the look-up of the server's name to the last byte.
    pub timeout: Timeout,
    /// Whose certificates are believed.
    pub trust: Trust,
    /// Where a directory for one question is made.
    pub scratch: PathBuf,
}

/// Asks a model how risky a command is.
#[derive(Debug)]
pub struct Assessor {
    settings: Settings,
    base: BaseUrl,
    guard: Guard,
}

/// A digit or two; some servers count a space and an end among the tokens.
const MAX_TOKENS: u32 = 16;

impl Assessor {
    /// An assessor with these settings. Nothing is connected to yet.
    pub fn new(settings: Settings) -> Self {
        let base = settings.base.clone();
        let base = base.unwrap_or_else(|| settings.model.provider.base());
        // The one server, and nothing else. Where its owner says that it is in a private network, it may be.
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

    /// The model, as it is configured.
    pub fn model(&self) -> &Model {
        &self.settings.model
    }

    /// Where the key comes from.
    pub fn key(&self) -> &Key {
        &self.settings.key
    }

    /// The model's score of a line, 0 to 10, and in `log` the ways that were tried to its server.
    ///
    /// # Errors
    /// If there is none, for whatever reason: then a person has to say.
    pub async fn score(&self, line: &str, decision: &Decision, log: &AttemptLog) -> Result<u8, NoScore> {
        let timeout = self.settings.timeout;
        let deadline = Instant::now() + timeout.as_duration();
        let asked = timeout_at(deadline.into(), self.ask(line, decision, deadline, log)).await;
        asked.unwrap_or(Err(NoScore::TimedOut(timeout)))
    }

    async fn ask(
        &self,
        line: &str,
        decision: &Decision,
        deadline: Instant,
        log: &AttemptLog,
    ) -> Result<u8, NoScore> {
        let target = self.target(self.settings.key.read().await?);
        let tls = self.settings.trust.config().await?;
        let (host, port) = self.base.server();
        let server = self.guard.connect(&host, port, deadline, log).await?;
        let conduit = Conduit::open(&self.settings.scratch).map_err(|_| NoScore::Conduit)?;
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
            .map_err(|_| NoScore::Conduit)?;
        let client = Client::builder()
            .with_reqwest(http)
            .build()
            .map_err(|_| NoScore::Conduit)?;
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
