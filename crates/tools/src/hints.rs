//! Suggests remedies for a program that hit a limit or lacked a module or the network.
//!
//! The cause is guessed from the last output, which a program can forge: a hint is advice and decides
//! nothing.

use ringfence_policy::{Bytes, ExecutionResult, Language, Outcome, RuntimeKind};

/// A remedy for a failure.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Hint {
    /// Text for the user, who can choose limits and interpreters.
    pub person: String,
    /// Text for a model, which can write another program.
    pub model: String,
}

/// Returns a hint for a failed program if its standard error, or the count of its processes, names a known
/// cause.
pub fn hint(result: &ExecutionResult) -> Option<Hint> {
    match result.meta.outcome {
        Outcome::Exited | Outcome::Signalled if result.exit_code == 0 => None,
        Outcome::Exited | Outcome::Signalled => by_errors(result),
        // It may have waited for a thread that could not start.
        Outcome::TimedOut if result.meta.failed_forks > 0 || has_no_room_for_node(result) => {
            Some(no_process(result))
        }
        Outcome::TimedOut
        | Outcome::MemoryExceeded
        | Outcome::Blocked
        | Outcome::Cancelled
        | Outcome::Unknown => None,
    }
}

/// Number of threads with which Node.js starts. With fewer it waits for ever.
const NODE_THREADS: u32 = 11;

fn has_no_room_for_node(result: &ExecutionResult) -> bool {
    let meta = &result.meta;
    let is_short = meta.resource_limits.pids.is_some_and(|pids| pids < NODE_THREADS);
    is_short && meta.language == Language::Javascript.as_str()
}

fn by_errors(result: &ExecutionResult) -> Option<Hint> {
    let errors = result.stderr.as_str();
    let has = |texts: &[&str]| texts.iter().any(|text| errors.contains(text));
    if let Some(module) = missing_module(errors) {
        Some(no_module(module, &result.meta.runtime))
    } else if has(FULL) {
        Some(full(result))
    } else if result.meta.failed_forks > 0 || has(NO_THREAD) || (has(FORK) && has(AGAIN)) {
        Some(no_process(result))
    } else if has(NO_NAME) {
        Some(no_name(result.meta.egress.is_some()))
    } else {
        None
    }
}

const FULL: &[&str] = &["File too large", "No space left on device", "ENOSPC", "EFBIG"];
const NO_THREAD: &[&str] = &["can't start new thread"];
const FORK: &[&str] = &["fork", "spawn"];
const AGAIN: &[&str] = &["Resource temporarily unavailable", "EAGAIN"];
const NO_NAME: &[&str] = &[
    "Temporary failure in name resolution",
    "Name or service not known",
    "Could not resolve host",
    "EAI_AGAIN",
];

/// Maximum length of a module name that a hint repeats.
const MAX_MODULE: usize = 64;

/// Returns the top-level package of the module that an import did not find.
fn missing_module(errors: &str) -> Option<&str> {
    let (_, rest) = errors.rsplit_once("ModuleNotFoundError: No module named '")?;
    let (module, _) = rest.split_once('\'')?;
    let top = module.split('.').next()?;
    let is_name = |c: char| c.is_alphanumeric() || c == '_';
    (!top.is_empty() && top.len() <= MAX_MODULE && top.chars().all(is_name)).then_some(top)
}

fn no_module(module: &str, runtime: &str) -> Hint {
    let person = match runtime.parse::<RuntimeKind>() {
        Ok(RuntimeKind::Docker | RuntimeKind::Podman) => {
            format!("the image has no module `{module}`; name one that has it in `sandbox.docker.image`")
        }
        Ok(RuntimeKind::Pyodide) => format!(
            "put a wheel of `{module}` into the directory of `skills.sandbox.packages`, or use the local runtime"
        ),
        Ok(RuntimeKind::Local | RuntimeKind::E2b) | Err(_) => format!(
            "the interpreter has no module `{module}`; name one that has it, such as `--python .venv/bin/python`, or \
             show the module's directory with `--workspace` or `--mount`"
        ),
    };
    let model = format!("the module `{module}` is not installed and cannot be; write the program without it");
    Hint { person, model }
}

fn full(result: &ExecutionResult) -> Hint {
    let limit = Bytes(result.meta.resource_limits.disk_bytes);
    Hint {
        person: format!("the program may write {limit} (`--disk`, `sandbox.disk`)"),
        model: format!("the program may write {limit}; write less, or delete files first"),
    }
}

fn no_process(result: &ExecutionResult) -> Hint {
    let times = result.meta.failed_forks;
    let limit = match result.meta.resource_limits.pids {
        Some(pids) if times > 0 => {
            let times = if times == 1 {
                "once".to_owned()
            } else {
                format!("{times} times")
            };
            format!("the program reached its limit of {pids} processes and threads {times}")
        }
        Some(pids) if has_no_room_for_node(result) => format!(
            "the program may have {pids} processes and threads at once, and Node.js alone starts {NODE_THREADS}"
        ),
        Some(pids) => format!("the program may have {pids} processes and threads at once"),
        None => "the program may have no more processes and threads".to_owned(),
    };
    Hint {
        person: format!("{limit} (`--pids`, `sandbox.pids`)"),
        model: format!("{limit}; start fewer"),
    }
}

fn no_name(has_network: bool) -> Hint {
    if has_network {
        let text =
            "names are resolved by the proxy alone: connect through HTTP_PROXY or HTTPS_PROXY".to_owned();
        return Hint {
            person: text.clone(),
            model: text,
        };
    }
    Hint {
        person: "the program has no network; name the hosts that it may reach with `--allow-host HOST`"
            .to_owned(),
        model: "the program has no network; work with what is there".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use ringfence_policy::{Limits, Meta, Pids};

    use super::*;

    fn failed(stderr: &str, exit_code: i32) -> ExecutionResult {
        ExecutionResult {
            stdout: String::new(),
            stderr: stderr.to_owned(),
            exit_code,
            duration: 0.0,
            meta: Meta::of(
                RuntimeKind::Local,
                Language::Python,
                Limits::DEFAULT,
                Outcome::Exited,
            ),
        }
    }

    fn check(stderr: &str, expected: Option<&str>) {
        let found = hint(&failed(stderr, 1));
        assert_eq!(found.is_some(), expected.is_some(), "{stderr}: {found:?}");
        for text in found.iter().flat_map(|hint| [&hint.person, &hint.model]) {
            assert!(text.contains(expected.unwrap_or_default()), "{stderr}: {text}");
        }
    }

    #[test]
    fn causes_that_are_known_have_hints() {
        check("ModuleNotFoundError: No module named 'numpy'", Some("`numpy`"));
        check("ModuleNotFoundError: No module named 'a.b'; x", Some("`a`"));
        check("OSError: [Errno 27] File too large", Some("64MiB"));
        check("cp: error writing 'b': No space left on device", Some("64MiB"));
        check(
            "bash: fork: retry: Resource temporarily unavailable",
            Some("64 processes"),
        );
        check("RuntimeError: can't start new thread", Some("64 processes"));
        check(
            "socket.gaierror: [Errno -3] Temporary failure in name resolution",
            Some("no network"),
        );
        check("curl: (6) Could not resolve host: a.test", Some("no network"));
    }

    #[test]
    fn others_have_none() {
        check("ZeroDivisionError: division by zero", None);
        check("Resource temporarily unavailable", None);
        check("ModuleNotFoundError: No module named '\u{1b}[31m'", None);
        check(
            &format!("ModuleNotFoundError: No module named '{}'", "a".repeat(100)),
            None,
        );
        assert_eq!(hint(&failed("File too large", 0)), None);
    }

    #[test]
    fn a_limit_of_processes_that_was_reached_is_named() {
        let check = |language, pids: u64, failed_forks, outcome, expected: Option<&str>| {
            let limits = Limits {
                pids: Pids::try_from(pids).unwrap(),
                ..Limits::DEFAULT
            };
            let mut result = failed("", -1);
            result.meta = Meta {
                failed_forks,
                ..Meta::of(RuntimeKind::Local, language, limits, outcome)
            };
            let found = hint(&result).map(|hint| hint.person);
            assert_eq!(found.as_deref(), expected);
        };
        let once =
            "the program reached its limit of 20 processes and threads once (`--pids`, `sandbox.pids`)";
        check(Language::Bash, 20, 1, Outcome::Exited, Some(once));
        let often =
            "the program reached its limit of 20 processes and threads 3 times (`--pids`, `sandbox.pids`)";
        check(Language::Python, 20, 3, Outcome::TimedOut, Some(often));
        let node = "the program may have 4 processes and threads at once, and Node.js alone starts 11 (`--pids`, `sandbox.pids`)";
        check(Language::Javascript, 4, 0, Outcome::TimedOut, Some(node));
        check(Language::Javascript, 64, 0, Outcome::TimedOut, None);
        check(Language::Python, 4, 0, Outcome::TimedOut, None);
        check(Language::Python, 4, 9, Outcome::Cancelled, None);
    }

    #[test]
    fn each_runtime_has_its_own_way_to_modules() {
        for (runtime, expected) in [
            ("local", "--python"),
            ("docker", "sandbox.docker.image"),
            ("pyodide", "skills.sandbox.packages"),
        ] {
            let found = no_module("numpy", runtime);
            assert!(found.person.contains(expected), "{found:?}");
            assert!(!found.model.contains("--"), "{found:?}");
        }
    }
}
