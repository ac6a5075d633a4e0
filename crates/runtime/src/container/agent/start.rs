//! From a request to what an agent is asked to start.

use ringfence_jail::agent::frames::{Program, Start};
use ringfence_policy::{Language, Request};

/// A request that no agent can serve.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("{} cannot be run by the agent of a container", .0.as_str())]
pub struct NotForAgents(pub Language);

/// What a request asks for, to be started in `directory`; `input` says whether it will be sent some.
///
/// # Errors
/// If it is in a language that agents do not know.
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

/// As file names are that a script may be kept under.
fn is_plain(name: &str) -> bool {
    !name.is_empty() && !name.contains(['/', '<', '>', '\0']) && !name.starts_with('.')
}
