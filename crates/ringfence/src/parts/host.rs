//! The policy of commands on the host, and the model that assesses them.

use std::sync::Arc;

use ringfence_assessor::{Assessor, Model, ParseModelError, Provider, Settings};
use ringfence_exec::key::Key;
use ringfence_network::fetch::BaseUrl;
use ringfence_network::secret::{KeyError, Secret};
use ringfence_policy::Timeout;
use ringfence_policy::cascade::{Pattern, Rules};

use super::checks::{Checks, Wrong};
use super::egress::authorities;
use crate::config::schema::PreValidation;

/// The command policy, and the client of the assessing model.
#[derive(Debug)]
pub struct HostCommands {
    rules: Rules,
    /// The client of the configured model, if any.
    pub assessor: Option<Arc<Assessor>>,
}

impl HostCommands {
    /// Returns the rules, with the confinements that this machine supports. Detecting those takes a while.
    pub fn rules(&self) -> Rules {
        Rules {
            confinements: ringfence_tools::host::confinements(),
            ..self.rules.clone()
        }
    }
}

pub(super) fn host(checks: &mut Checks<'_>) -> Option<HostCommands> {
    let host = &checks.config().host_execution;
    let scoring = &host.pre_validation;
    let allow = patterns(checks, "hostExecution.allowList", &host.allow_list);
    let notify = patterns(checks, "hostExecution.notifyList", &host.notify_list);
    for pattern in notify.iter().flatten() {
        if allow.iter().flatten().any(|allowed| allowed == pattern) {
            let message = format!("`{pattern}` never notifies: `hostExecution.allowList` has it, too");
            checks.warn("hostExecution.notifyList", message);
        }
    }
    let assessor = assessor(checks, scoring);
    let asks_a_model = scoring.enabled && scoring.model.is_some();
    Some(HostCommands {
        rules: Rules {
            allow: allow?,
            notify: notify?,
            unknown_floor: host.unknown_floor.get(),
            threshold: asks_a_model.then(|| scoring.risk_threshold.get()),
            confinements: Arc::default(),
        },
        assessor: assessor?,
    })
}

fn patterns(checks: &mut Checks<'_>, key: &str, list: &[String]) -> Option<Vec<Pattern>> {
    let read = |text: &String| {
        let parsed = text.parse::<Pattern>();
        checks.keep(parsed.map_err(|error| Wrong::new(key, &error, error.hint())))
    };
    let patterns: Vec<_> = list.iter().map(read).collect();
    for pattern in patterns.iter().flatten() {
        if let Some(flaw) = pattern.flaw() {
            checks.warn(key, format!("`{pattern}`: {flaw}"));
        }
    }
    patterns.into_iter().collect()
}

/// Maximum timeout of the model: a person waits for it.
const MAX_TIMEOUT: Timeout = Timeout::seconds(60);

/// Returns the client of the configured model, if any. An unset key variable is not a mistake: it may be set
/// later.
fn assessor(checks: &mut Checks<'_>, scoring: &PreValidation) -> Option<Option<Arc<Assessor>>> {
    let trust = authorities(checks, &key_of("caFile"), scoring.ca_file.as_deref());
    let timeout = scoring.timeout_ms.0;
    if timeout > MAX_TIMEOUT {
        checks.wrong(wrong(
            "timeoutMs",
            &format!("expected at most {MAX_TIMEOUT}, found {timeout}"),
            "allow less time",
        ));
    }
    let base = scoring.base_url.as_ref().map(|text| {
        let parsed = text.parse::<BaseUrl>();
        checks.keep(parsed.map_err(|error| wrong("baseUrl", &error, error.hint())))
    });
    let Some(text) = scoring.model.as_ref().filter(|_| scoring.enabled) else {
        return Some(None);
    };
    let model = text
        .parse::<Model>()
        .map_err(|error: ParseModelError| wrong("model", &format!("`{text}`: {error}"), error.hint()));
    let model = checks.keep(model)?;
    let key = key(scoring, model.provider, checks);
    let settings = Settings {
        key: checks.keep(key)?,
        model,
        base: match base {
            Some(base) => Some(base?),
            None => None,
        },
        timeout,
        trust: trust?,
    };
    Some(Some(Arc::new(Assessor::new(settings))))
}

/// Returns a warning if the configured model has no key.
pub fn missing_key(assessor: &Assessor) -> Option<String> {
    let Key::Missing(variable) = assessor.key() else {
        return None;
    };
    let missing = KeyError::Missing(variable.clone());
    let model = assessor.model();
    Some(format!(
        "the model {model} cannot be asked, and you are asked instead: {missing}; {}",
        missing.hint()
    ))
}

fn key(scoring: &PreValidation, provider: Provider, checks: &Checks<'_>) -> Result<Key, Wrong> {
    if let Some(file) = &scoring.api_key_file {
        let unusable = |error: KeyError| wrong("apiKeyFile", &error, error.hint());
        let named = checks.named_paths();
        ringfence_exec::key::read_file(file, &named).map_err(unusable)?;
        return Ok(Key::File(file.clone(), named));
    }
    let variable = match scoring.api_key_env.as_deref() {
        Some("") => return Ok(Key::Needless),
        Some(name) if is_variable(name) => name,
        // The value is not repeated: it could be the key itself.
        Some(_) => {
            let message = "expected the name of a variable, got other text";
            let hint =
                "name the variable that holds the key, and never write the key itself into a configuration";
            return Err(wrong("apiKeyEnv", &message, hint));
        }
        None => provider.key_variable(),
    };
    let Some(value) = checks.environment.get(variable) else {
        return Ok(Key::Missing(variable.to_owned()));
    };
    let secret = Secret::new(&value.to_string_lossy());
    secret
        .map(Key::Known)
        .map_err(|error| wrong("apiKeyEnv", &format!("`{variable}`: {error}"), error.hint()))
}

/// Returns `true` if a text is a variable name in the form usual for secrets.
pub(super) fn is_variable(name: &str) -> bool {
    let plain = |c: char| c.is_ascii_uppercase() || c.is_ascii_digit() || c == '_';
    name.chars().all(plain)
}

fn key_of(name: &str) -> String {
    format!("hostExecution.preValidation.{name}")
}

fn wrong(key: &str, message: &dyn std::fmt::Display, hint: &str) -> Wrong {
    Wrong::new(key_of(key), message, hint)
}
