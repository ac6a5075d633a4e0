//! Converts a request to the start frame of a call.

use ringfence_jail::init::frames::{Program, Start};
use ringfence_policy::{Language, Request};

use crate::layout::{code_path, script};

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
    // Errors name the file that a container without our init would run.
    let name = script(request).map_or_else(String::new, |(name, _)| code_path(&name));
    let code = request.code.clone();
    let mut arguments = request.args.clone();
    let program = match request.language {
        Language::Python => Program::Python { name, code },
        Language::Bash => Program::Bash { name, code },
        Language::Command if !arguments.is_empty() => Program::Command(arguments.remove(0)),
        Language::Command | Language::Javascript => return Err(NotForAgents(request.language)),
    };
    let environment = request.env.iter();
    Ok(Start {
        arguments,
        environment: environment
            .map(|(name, value)| (name.as_str().to_owned(), value.clone()))
            .collect(),
        input,
        ..Start::new(program, directory, request.limits.timeout.as_duration())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_warm_program_has_the_name_of_a_cold_one() {
        let check = |name: &str, language, expected: &str| {
            let request = Request {
                name: name.to_owned(),
                ..Request::new(language, "")
            };
            let found = match start(&request, "/tmp", false).unwrap().program {
                Program::Python { name, .. } | Program::Bash { name, .. } => name,
                other @ (Program::Command(_) | Program::Files) => panic!("{other:?} is not a script"),
            };
            assert_eq!(found, expected, "{name}");
        };
        check("<string>", Language::Python, "/code/main.py");
        check("<stdin>", Language::Bash, "/code/main.sh");
        check("job.py", Language::Python, "/code/job.py");
        check("../work/job.py", Language::Python, "/code/job.py");
        check(".hidden", Language::Python, "/code/main.py");
        check("deploy", Language::Bash, "/code/deploy");
    }
}
