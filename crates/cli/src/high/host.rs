//! Which commands may run on this machine itself.

use ringfence_policy::cascade::{Pattern, Rules};

use crate::config::Config;
use crate::exit::Failure;

/// The lists of the configuration, read.
///
/// # Errors
/// If an element of a list is no pattern.
pub(crate) fn rules(config: &Config) -> Result<Rules, Failure> {
    let host = &config.host_execution;
    let model = &host.pre_validation;
    let asks_a_model = model.enabled && model.model.is_some();
    Ok(Rules {
        allow: patterns("hostExecution.allowList", &host.allow_list)?,
        notify: patterns("hostExecution.notifyList", &host.notify_list)?,
        unknown_floor: host.unknown_floor.get(),
        threshold: asks_a_model.then(|| model.risk_threshold.get()),
    })
}

fn patterns(key: &str, list: &[String]) -> Result<Vec<Pattern>, Failure> {
    let read = |text: &String| {
        text.parse::<Pattern>()
            .map_err(|error| Failure::usage(format!("`{key}`: {error}"), error.hint()))
    };
    list.iter().map(read).collect()
}
