//! Which commands may run on this machine itself, and which model is asked about the others.

use ringfence_policy::Timeout;
use ringfence_policy::cascade::{Pattern, Rules};
use ringfence_runtime::assessor::{Assessor, BaseUrl, Key, KeyError, Model, Provider, Secret, Settings};
use ringfence_runtime::fetch::Trust;

use crate::config::Config;
use crate::config::schema::PreValidation;
use crate::env::Environment;
use crate::exit::Failure;

/// The lists of the configuration, read.
///
/// # Errors
/// If an element of a list is no pattern.
pub(crate) fn rules(config: &Config) -> Result<Rules, Failure> {
    let host = &config.host_execution;
    let scoring = &host.pre_validation;
    let asks_a_model = scoring.enabled && scoring.model.is_some();
    Ok(Rules {
        allow: patterns("hostExecution.allowList", &host.allow_list)?,
        notify: patterns("hostExecution.notifyList", &host.notify_list)?,
        unknown_floor: host.unknown_floor.get(),
        threshold: asks_a_model.then(|| scoring.risk_threshold.get()),
        confinements: ringfence_runtime::host::confinements(),
    })
}

fn patterns(key: &str, list: &[String]) -> Result<Vec<Pattern>, Failure> {
    let read = |text: &String| {
        text.parse::<Pattern>()
            .map_err(|error| Failure::usage(format!("`{key}`: {error}"), error.hint()))
    };
    list.iter().map(read).collect()
}

/// A model has a minute at most: a person waits behind it.
const MAX_TIMEOUT: Timeout = Timeout::seconds(60);

/// What asks the configured model, if one is asked.
///
/// # Errors
/// If it is configured in a way that can never work. A variable that is not set is none: it may be set another time.
pub(crate) fn assessor(config: &Config, environment: &Environment) -> Result<Option<Assessor>, Failure> {
    let scoring = &config.host_execution.pre_validation;
    let Some(text) = scoring.model.as_ref().filter(|_| scoring.enabled) else {
        return Ok(None);
    };
    let model: Model = text
        .parse()
        .map_err(|error: ringfence_runtime::assessor::ParseModelError| {
            wrong("model", &format!("`{text}`: {error}"), error.hint())
        })?;
    let base = scoring.base_url.as_ref().map(|text| {
        text.parse::<BaseUrl>()
            .map_err(|error| wrong("baseUrl", &error, error.hint()))
    });
    let timeout = scoring.timeout_ms.0;
    if timeout > MAX_TIMEOUT {
        let message = format!("{timeout} is longer than {MAX_TIMEOUT}");
        return Err(wrong("timeoutMs", &message, "allow less time"));
    }
    Ok(Some(Assessor::new(Settings {
        key: key(scoring, model.provider, environment)?,
        model,
        base: base.transpose()?,
        timeout,
        trust: Trust::new(scoring.ca_file.clone()),
        scratch: std::env::temp_dir(),
    })))
}

/// What a person should know who has a model configured that cannot be asked, if it is so.
pub(crate) fn missing_key(assessor: &Assessor) -> Option<String> {
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

fn key(scoring: &PreValidation, provider: Provider, environment: &Environment) -> Result<Key, Failure> {
    if let Some(file) = &scoring.api_key_file {
        let unusable = |error: KeyError| wrong("apiKeyFile", &error, error.hint());
        Secret::of_file(file).map_err(unusable)?;
        return Ok(Key::File(file.clone()));
    }
    let variable = match scoring.api_key_env.as_deref() {
        Some("") => return Ok(Key::Needless),
        Some(name) if is_variable(name) => name,
        // Not repeated: it could be the key itself.
        Some(_) => {
            let message = "what is there is no name of a variable";
            let hint =
                "name the variable that holds the key, and never write the key itself into a configuration";
            return Err(wrong("apiKeyEnv", &message, hint));
        }
        None => provider.key_variable(),
    };
    let Some(value) = environment.get(variable) else {
        return Ok(Key::Missing(variable.to_owned()));
    };
    let secret = Secret::new(&value.to_string_lossy());
    secret
        .map(Key::Known)
        .map_err(|error| wrong("apiKeyEnv", &format!("`{variable}`: {error}"), error.hint()))
}

fn is_variable(name: &str) -> bool {
    let plain = |c: char| c.is_ascii_uppercase() || c.is_ascii_digit() || c == '_';
    name.chars().all(plain)
}

fn wrong(key: &str, message: &dyn std::fmt::Display, hint: &str) -> Failure {
    Failure::usage(format!("`hostExecution.preValidation.{key}`: {message}"), hint)
}
