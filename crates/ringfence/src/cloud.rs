//! The service of the `e2b` runtime, built from the configuration.

use std::sync::Arc;

use ringfence_cloud::{Cloud, Sandboxes, Settings, SettingsError};
use ringfence_exec::key::Key;
use ringfence_exec::probe::Layer;
use ringfence_network::fetch::{BaseUrl, Chosen, Trust};
use ringfence_network::secret::Secret;

use crate::config::Problems;
use crate::config::schema::E2b;
use crate::context::Context;

/// Variable of the key, as E2B's clients read it.
const KEY: &str = "E2B_API_KEY";

/// Returns the backend. An invalid address or a missing key fails only the runs on this backend, since other
/// programs use these variables, too.
///
/// # Errors
/// If the configuration cannot be used.
pub(crate) fn cloud(context: &Context) -> Result<Cloud, Problems> {
    let config = context.config()?;
    let protected = config.permissions.filesystem.protected.clone();
    Ok(Cloud::new(settings(context)?, protected))
}

fn settings(context: &Context) -> Result<Result<Settings, SettingsError>, Problems> {
    let config = context.config()?;
    let e2b = &config.sandbox.e2b;
    let named = context.named_paths();
    let trust = Trust::opened_by(config.egress.ca_file.clone(), named.clone().opener());
    let key = match &e2b.api_key_file {
        Some(file) => Ok(Key::File(file.clone(), named)),
        None => match context.environment.get(KEY) {
            None => Ok(Key::Missing(KEY.to_owned())),
            Some(text) => Secret::new(&text.to_string_lossy())
                .map(Key::Known)
                .map_err(SettingsError::Key),
        },
    };
    let built = key.and_then(|key| Ok((key, addresses(e2b)?)));
    Ok(built.map(|(key, (api, sandboxes))| Settings {
        key,
        api,
        sandboxes,
        template: e2b.template.clone(),
        chosen: match e2b.domain.as_str() {
            ringfence_cloud::HOSTED if e2b.api_url.is_none() && e2b.sandbox_url.is_none() => Chosen::BuiltIn,
            _ => Chosen::ByUser,
        },
        trust: Arc::new(trust),
    }))
}

fn addresses(e2b: &E2b) -> Result<(BaseUrl, Sandboxes), SettingsError> {
    let read = |name, text: &String| text.parse().map_err(|source| SettingsError::Url { name, source });
    let api = match &e2b.api_url {
        Some(url) => read("sandbox.e2b.api_url", url)?,
        None => Settings::api_below(&e2b.domain)?,
    };
    let sandboxes = match &e2b.sandbox_url {
        Some(url) => Sandboxes::At(read("sandbox.e2b.sandbox_url", url)?),
        None => Sandboxes::below(&e2b.domain)?,
    };
    Ok((api, sandboxes))
}

/// Returns the entry of the service in the examination of this machine. Nothing is sent.
///
/// # Errors
/// If the configuration cannot be used.
pub(crate) fn layer(context: &Context) -> Result<Layer, Problems> {
    const NAME: &str = "e2b";
    let fixed = |why: String, fix: String| Layer {
        fix: Some(fix),
        ..Layer::info(NAME, why)
    };
    let error = match settings(context)? {
        Err(error) => ringfence_cloud::Error::from(error),
        Ok(settings) => {
            let api = settings.api.clone();
            match Cloud::new(Ok(settings), Vec::new()).unavailable() {
                None => {
                    let text = format!(
                        "a key is there (not tried); `--runtime e2b` sends code and files to the service at {api}"
                    );
                    return Ok(Layer::info(NAME, text));
                }
                Some(error) => error,
            }
        }
    };
    Ok(fixed(error.to_string(), error.hint().into()))
}
