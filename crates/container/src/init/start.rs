//! Converts a request to the start frame of a call.

use ringfence_jail::init::frames::{Program, Start};
use ringfence_policy::{Language, Request};

/// Rejection of a request in a language that the init cannot start.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the init of a container cannot run {}", .0.as_str())]
pub struct NotForAgents(pub Language);

/// Converts a request to a start frame with the working directory `directory`; `input` is set if standard
/// input will be sent.
///
/// # Errors
/// If the init does not support the request's language.
pub fn start(request: &Request, directory: &str, input: bool) -> Result<Start, NotForAgents> {
    let (name, code) = (request.name.clone(), request.code.clone());
    let mut arguments = request.args.clone();
    let program = match request.language {
        Language::Python => Program::Python { name, code },
        Language::Bash => Program::Bash {
            name: Some(name)
                .filter(|name| is_plain(name))
                .unwrap_or_else(|| "main.sh".to_owned()),
            code,
        },
        Language::Command if !arguments.is_empty() => Program::Command(arguments.remove(0)),
        Language::Command | Language::Javascript => return Err(NotForAgents(request.language)),
    };
    let environment = request.env.iter();
    Ok(Start {
        program,
        arguments,
        environment: environment
            .map(|(name, value)| (name.as_str().to_owned(), value.clone()))
            .collect(),
        directory: directory.to_owned(),
        input,
        timeout: request.limits.timeout.as_duration(),
        proxy: Vec::new(),
        bridge: false,
    })
}

/// Returns `true` if a script may be stored under this file name.
fn is_plain(name: &str) -> bool {
    !name.is_empty() && !name.contains(['/', '<', '>', '\0']) && !name.starts_with('.')
}
