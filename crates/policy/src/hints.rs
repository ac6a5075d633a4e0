//! Suggests remedies for a program that hit a limit or lacked a module, a host or the network.
//!
//! The cause is guessed from the last output, which a program can forge: a hint is advice and decides
//! nothing.

mod refused;

use crate::{Bytes, ExecutionResult, Family, Language, Meta, Outcome, RuntimeKind, Timeout};

pub use refused::closed_address;

/// A remedy for a failure.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Hint {
    /// Text for the user, who can choose limits and interpreters.
    pub person: String,
    /// Advice for a model, which can write another program; `None` if the result itself is sufficient.
    pub model: Option<String>,
}

/// The kind of a program, on which its remedies depend.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ProgramKind {
    Run,
    /// A sandbox, whose limits and network are those that it was created with.
    Sandbox,
}

/// Returns the hint for a failed program, then one for each host that it was refused.
pub fn hints(result: &ExecutionResult) -> Vec<Hint> {
    let refused = result.meta.egress.iter().flat_map(refused::hints);
    hint(result, ProgramKind::Run)
        .into_iter()
        .chain(refused)
        .collect()
}

/// Returns the hint for the user about code that failed in a sandbox, whose limits and network the result has.
pub fn hint_in_sandbox(result: &ExecutionResult) -> Option<String> {
    hint(result, ProgramKind::Sandbox).map(|hint| hint.person)
}

/// Returns `true` if a program failed because its interpreter lacks a module.
pub fn lacks_module(result: &ExecutionResult) -> bool {
    result.exit_code != 0 && missing_module(&result.stderr).is_some()
}

/// Returns a hint for a failed program if its end, its standard error, or the count of its processes, names a
/// known cause.
fn hint(result: &ExecutionResult, kind: ProgramKind) -> Option<Hint> {
    match result.meta.outcome {
        Outcome::Exited | Outcome::Signalled if result.exit_code == 0 => None,
        Outcome::Exited | Outcome::Signalled => by_errors(result, kind),
        // It may have waited for a thread that could not start.
        Outcome::TimedOut if result.meta.failed_forks > 0 || has_no_room_for_node(result) => {
            Some(no_process(result, kind))
        }
        Outcome::TimedOut => more_time(result, kind),
        Outcome::MemoryExceeded => more_memory(result, kind),
        Outcome::Blocked | Outcome::Cancelled | Outcome::Unknown => None,
    }
}

/// Number of threads with which Node.js starts. With fewer it waits for ever.
const NODE_THREADS: u32 = 11;

fn has_no_room_for_node(result: &ExecutionResult) -> bool {
    let meta = &result.meta;
    let is_short = meta.resource_limits.pids.is_some_and(|pids| pids < NODE_THREADS);
    is_short && meta.language == Language::Javascript.as_str()
}

fn by_errors(result: &ExecutionResult, kind: ProgramKind) -> Option<Hint> {
    let errors = result.stderr.as_str();
    let has = |texts: &[&str]| texts.iter().any(|text| errors.contains(text));
    if let Some(module) = missing_module(errors) {
        Some(no_module(module, &result.meta, kind))
    } else if let Some(package) = missing_package(result) {
        Some(no_module(package, &result.meta, kind))
    } else if has(FULL) {
        full(result, kind)
    } else if result.meta.failed_forks > 0 || has(NO_THREAD) || (has(FORK) && has(AGAIN)) {
        Some(no_process(result, kind))
    } else if has(NO_NAME) {
        Some(no_name(result.meta.egress.is_some(), kind))
    } else if has(NO_CONNECTION) || (has(DENIED) && has(SOCKETS)) {
        Some(no_connection(result.meta.egress.is_some(), kind))
    } else if has(NO_MEMORY) {
        more_memory(result, kind)
    } else if has(NO_INPUT) {
        Some(no_input(kind))
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
    "ENOTFOUND",
];
const NO_CONNECTION: &[&str] = &[
    "connect EACCES",
    "connect EPERM",
    "connect ENETUNREACH",
    "connect: Permission denied",
    "socket: Permission denied",
    "Network is unreachable",
];
const DENIED: &[&str] = &["PermissionError: [Errno 13]", "PermissionError: [Errno 1]"];
/// Parts of tracebacks that only connections have: a file may be denied with the same error.
const SOCKETS: &[&str] = &[
    "/socket.py\"",
    "socket.socket(",
    ".connect(",
    "create_connection(",
];
const NO_MEMORY: &[&str] = &[
    "\nMemoryError",
    "Cannot allocate memory",
    "JavaScript heap out of memory",
];

const NO_INPUT: &[&str] = &["\nEOFError: EOF when reading a line"];

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

/// Texts before the name of a module that Node.js did not find.
const NO_PACKAGE: &[&str] = &["Cannot find module '", "Cannot find package '"];

/// Returns the package of the module that a JavaScript program did not find, unless it named a file.
fn missing_package(result: &ExecutionResult) -> Option<&str> {
    if result.meta.language != Language::Javascript.as_str() {
        return None;
    }
    let errors = result.stderr.as_str();
    let rest = NO_PACKAGE.iter().find_map(|text| errors.rsplit_once(text))?.1;
    let (module, _) = rest.split_once('\'')?;
    let scope = module.strip_prefix('@').and_then(|_| module.find('/'));
    let begin = scope.map_or(0, |scope| scope + 1);
    let end = module[begin..].find('/').map_or(module.len(), |end| begin + end);
    let (package, plain) = (&module[..end], &module[begin..end]);
    let is_name = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.' | '~' | '@' | '/');
    let is_begin = |c: char| c.is_ascii_alphanumeric() || c == '_';
    let is_package = plain.starts_with(is_begin) && package.trim_start_matches('@').starts_with(is_begin);
    (is_package && package.len() <= MAX_MODULE && package.chars().all(is_name)).then_some(package)
}

fn no_module(module: &str, meta: &Meta, kind: ProgramKind) -> Hint {
    let person = match family(&meta.runtime) {
        Family::General if kind == ProgramKind::Sandbox => no_module_in_sandbox(module, meta),
        Family::Container => {
            format!("the image has no module `{module}`; name one that has it in `sandbox.docker.image`")
        }
        Family::Pyodide => format!(
            "put a wheel of `{module}` into the directory of `skills.sandbox.packages`, or use the local runtime"
        ),
        Family::Remote => {
            format!("the template has no module `{module}`; name one that has it in `sandbox.e2b.template`")
        }
        Family::General if meta.image.is_some() => format!(
            "the image has no module `{module}`; name one that has it with `--image`, or show the module's directory with \
             `--workspace`"
        ),
        Family::General if meta.session.is_some() => format!(
            "the session's interpreter has no module `{module}`; create a session that has it by `ringfence session new NAME \
             --with {}`, or run the program without a session",
            distribution(module)
        ),
        Family::General if meta.language == Language::Javascript.as_str() => format!(
            "no package `{module}` is there; install it with `--with {module}`, or show a directory that has it with \
             `--mount ./node_modules:/node_modules`"
        ),
        Family::General => format!(
            "the interpreter has no module `{module}`; install it with `--with {}`, name an interpreter that has it, such \
             as `--python .venv/bin/python`, or show the module's directory with `--workspace` or `--mount`",
            distribution(module)
        ),
    };
    // Configured packages are for programs alone.
    let model = match meta.session {
        Some(_) => format!(
            "the session has no module `{module}`, and cannot get it; write the code without it, or try a run without a \
             session, which may have more"
        ),
        None => format!("the module `{module}` is not installed and cannot be; write the program without it"),
    };
    Hint {
        person,
        model: Some(model),
    }
}

fn no_module_in_sandbox(module: &str, meta: &Meta) -> String {
    let package = match meta.language == Language::Javascript.as_str() {
        true => format!("npm:{module}"),
        false => distribution(module).to_owned(),
    };
    match meta.image {
        Some(_) => {
            format!("the image has no module `{module}`; create a sandbox on one that has it, by `--image`")
        }
        None => format!(
            "the sandbox has no module `{module}`; create one that has it by `ringfence sandbox create --with {package}`"
        ),
    }
}

/// Modules whose packages have other names. Under the module's own name an index may have a stranger's package.
const DISTRIBUTIONS: &[(&str, &str)] = &[
    ("bs4", "beautifulsoup4"),
    ("cv2", "opencv-python-headless"),
    ("dateutil", "python-dateutil"),
    ("docx", "python-docx"),
    ("dotenv", "python-dotenv"),
    ("fitz", "pymupdf"),
    ("PIL", "pillow"),
    ("pptx", "python-pptx"),
    ("skimage", "scikit-image"),
    ("sklearn", "scikit-learn"),
    ("yaml", "pyyaml"),
];

/// Returns the name of the package that has a module.
fn distribution(module: &str) -> &str {
    let known = DISTRIBUTIONS.iter().find(|(known, _)| *known == module);
    known.map_or(module, |(_, package)| package)
}

/// Returns the limit of disk space; `None` if Ringfence set none.
fn full(result: &ExecutionResult, kind: ProgramKind) -> Option<Hint> {
    let limit = Bytes(result.meta.resource_limits.disk_bytes?);
    Some(Hint {
        person: match kind {
            ProgramKind::Run => format!("the program may write {limit} (`--disk`, `sandbox.disk`)"),
            ProgramKind::Sandbox => format!(
                "the files of the sandbox may take {limit}; remove some, or create one with more `--disk`"
            ),
        },
        model: Some(format!(
            "the program may write {limit}; write less, or delete files first"
        )),
    })
}

/// Returns the way to a longer time limit; `None` if there is none.
fn more_time(result: &ExecutionResult, kind: ProgramKind) -> Option<Hint> {
    let more = Timeout::try_from(result.meta.resource_limits.timeout * 2.0).ok()?;
    let (key, _) = keys(&result.meta.runtime);
    Some(Hint {
        person: match kind {
            ProgramKind::Run => format!("allow more with `--timeout {more}` (`{key}`)"),
            ProgramKind::Sandbox => format!("allow more with `--timeout {more}`"),
        },
        model: None,
    })
}

/// Returns the way to a larger memory limit; `None` in a session, which keeps the limit that it was created
/// with.
fn more_memory(result: &ExecutionResult, kind: ProgramKind) -> Option<Hint> {
    let limit = result.meta.resource_limits.memory_bytes?;
    let more = Bytes(limit.saturating_mul(2));
    let (_, key) = keys(&result.meta.runtime);
    result.meta.session.is_none().then(|| Hint {
        person: match kind {
            ProgramKind::Run => format!("allow more with `--memory {more}` (`{key}`)"),
            ProgramKind::Sandbox => {
                format!(
                    "its programs and files may take {}; create a sandbox with `--memory {more}`",
                    Bytes(limit)
                )
            }
        },
        model: None,
    })
}

/// Returns the configuration keys of a runtime's limits of time and memory.
fn keys(runtime: &str) -> (&'static str, &'static str) {
    match family(runtime) {
        Family::Container => ("sandbox.timeout", "sandbox.docker.memory_limit"),
        Family::Pyodide => ("skills.sandbox.timeout_seconds", "skills.sandbox.memory_limit_mb"),
        Family::General | Family::Remote => ("sandbox.timeout", "sandbox.memory"),
    }
}

/// Returns the family of the runtime that a result names.
fn family(runtime: &str) -> Family {
    let runtime = runtime.parse::<RuntimeKind>();
    runtime.map_or(Family::General, |runtime| runtime.traits().family)
}

fn no_process(result: &ExecutionResult, kind: ProgramKind) -> Hint {
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
        person: match kind {
            ProgramKind::Run => format!("{limit} (`--pids`, `sandbox.pids`)"),
            ProgramKind::Sandbox => format!("{limit}; end some, or create a sandbox with more `--pids`"),
        },
        model: Some(format!("{limit}; start fewer")),
    }
}

fn no_input(kind: ProgramKind) -> Hint {
    let person = match kind {
        ProgramKind::Run => {
            "standard input is empty unless you give some: `--stdin -` passes yours on, `--stdin FILE` a file"
        }
        ProgramKind::Sandbox => {
            "code has no standard input in a sandbox: write the values into it, or give a program yours by \
             `ringfence sandbox exec -i NAME -- COMMAND`"
        }
    };
    Hint {
        person: person.to_owned(),
        model: Some("nobody answers on standard input: write the values into the code".to_owned()),
    }
}

fn no_name(has_network: bool, kind: ProgramKind) -> Hint {
    match has_network {
        true => by_proxy("names are resolved by the proxy alone: connect through HTTP_PROXY or HTTPS_PROXY"),
        false => no_network(kind),
    }
}

fn no_connection(has_network: bool, kind: ProgramKind) -> Hint {
    match has_network {
        true => by_proxy("hosts are reached by the proxy alone: connect through HTTP_PROXY or HTTPS_PROXY"),
        false => no_network(kind),
    }
}

fn by_proxy(text: &str) -> Hint {
    Hint {
        person: text.to_owned(),
        model: Some(text.to_owned()),
    }
}

fn no_network(kind: ProgramKind) -> Hint {
    let person = match kind {
        ProgramKind::Run => {
            "the program has no network; name the hosts that it may reach with `--allow-host HOST`"
        }
        ProgramKind::Sandbox => {
            "the sandbox has no network; create one with the hosts that it may reach: `--allow-host HOST`"
        }
    };
    Hint {
        person: person.to_owned(),
        model: Some("the program has no network; work with what is there".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use crate::{ImageFacts, Limits, Pids, SessionFacts};

    use super::*;

    fn failed(stderr: &str, exit_code: i32) -> ExecutionResult {
        ExecutionResult {
            stdout: String::new(),
            stderr: stderr.to_owned(),
            exit_code,
            duration: 0.0,
            meta: meta(RuntimeKind::Local),
        }
    }

    fn meta(runtime: RuntimeKind) -> Meta {
        Meta::of(runtime, Language::Python, Limits::DEFAULT, Outcome::Exited)
    }

    fn check(stderr: &str, expected: Option<&str>) {
        let found = hint(&failed(stderr, 1), ProgramKind::Run);
        assert_eq!(found.is_some(), expected.is_some(), "{stderr}: {found:?}");
        let texts = found
            .iter()
            .flat_map(|hint| [Some(&hint.person), hint.model.as_ref()]);
        for text in texts.flatten() {
            assert!(text.contains(expected.unwrap_or_default()), "{stderr}: {text}");
        }
    }

    #[test]
    fn causes_that_are_known_have_hints() {
        check("ModuleNotFoundError: No module named 'numpy'", Some("`numpy`"));
        check("ModuleNotFoundError: No module named 'a.b'; x", Some("`a`"));
        check("OSError: [Errno 27] File too large", Some("64MiB"));
        check(
            "Traceback:\nEOFError: EOF when reading a line",
            Some("standard input"),
        );
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
        let traceback = "  File \"/usr/lib/python3.11/socket.py\", line 232, in __init__\nPermissionError: [Errno 13] \
                         Permission denied";
        check(traceback, Some("no network"));
        check("Error: connect EACCES 192.0.2.1:80", Some("no network"));
        check("Error: getaddrinfo ENOTFOUND a.test", Some("no network"));
        check("bash: connect: Permission denied", Some("no network"));
        check("x\nMemoryError", Some("--memory 512MiB"));
    }

    #[test]
    fn a_sandbox_has_remedies_of_its_own() {
        let check = |stderr: &str, expected: &str| {
            let found = hint_in_sandbox(&failed(stderr, 1)).unwrap();
            assert!(found.contains(expected), "{stderr}: {found}");
            assert!(
                !found.contains("sandbox.") && !found.contains("--stdin"),
                "{found}"
            );
        };
        check(
            "ModuleNotFoundError: No module named 'yaml'",
            "`ringfence sandbox create --with pyyaml`",
        );
        check(
            "Traceback:\nEOFError: EOF when reading a line",
            "`ringfence sandbox exec -i",
        );
        check(
            "curl: (6) Could not resolve host: a.test",
            "the sandbox has no network",
        );
        check("OSError: [Errno 28] No space left on device", "more `--disk`");
        check("x\nMemoryError", "create a sandbox with `--memory 512MiB`");
        assert_eq!(hint_in_sandbox(&failed("no reason", 1)), None);
    }

    #[test]
    fn a_package_that_node_does_not_find_is_named() {
        let check = |language: Language, stderr: &str, expected: Option<&str>| {
            let mut result = failed(stderr, 1);
            result.meta = Meta::of(RuntimeKind::Local, language, Limits::DEFAULT, Outcome::Exited);
            let found = hint(&result, ProgramKind::Run).map(|hint| hint.person);
            let named = found
                .as_ref()
                .map(|found| found.split('`').nth(3).unwrap_or_default());
            assert_eq!(named, expected, "{stderr}: {found:?}");
        };
        let js = Language::Javascript;
        let require = "Error: Cannot find module 'lodash/fp'\nRequire stack:\n- /code/main.js";
        check(js, require, Some("--with lodash"));
        check(Language::Bash, require, None);
        let import =
            "Error [ERR_MODULE_NOT_FOUND]: Cannot find package '@a/b.js' imported from /code/main.mjs";
        check(js, import, Some("--with @a/b.js"));
        check(js, "Error: Cannot find module './lodash'", None);
        check(
            js,
            "Error: Cannot find module '/code/lodash.mjs' imported from x",
            None,
        );
        check(js, "Error: Cannot find module '--x'", None);
        check(js, "Error: Cannot find module '@/x'", None);
    }

    #[test]
    fn an_exceeded_limit_has_a_hint() {
        let check = |outcome, seconds: u64, expected: Option<&str>| {
            let limits = Limits {
                timeout: Timeout::seconds(seconds),
                ..Limits::DEFAULT
            };
            let mut result = failed("", -1);
            result.meta = Meta::of(RuntimeKind::Local, Language::Python, limits, outcome);
            let found = hint(&result, ProgramKind::Run).map(|hint| hint.person);
            assert_eq!(found.as_deref(), expected);
        };
        let memory = "allow more with `--memory 512MiB` (`sandbox.memory`)";
        check(Outcome::MemoryExceeded, 1, Some(memory));
        let time = "allow more with `--timeout 1m` (`sandbox.timeout`)";
        check(Outcome::TimedOut, 30, Some(time));
        check(Outcome::TimedOut, 24 * 60 * 60, None);
    }

    #[test]
    fn others_have_none() {
        check("ZeroDivisionError: division by zero", None);
        check("Resource temporarily unavailable", None);
        check(
            "    open('/etc/shadow')\nPermissionError: [Errno 13] Permission denied: '/etc/shadow'",
            None,
        );
        check("ModuleNotFoundError: No module named '\u{1b}[31m'", None);
        check(
            &format!("ModuleNotFoundError: No module named '{}'", "a".repeat(100)),
            None,
        );
        assert_eq!(hint(&failed("File too large", 0), ProgramKind::Run), None);
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
            let found = hint(&result, ProgramKind::Run).map(|hint| hint.person);
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
        let time = "allow more with `--timeout 1m` (`sandbox.timeout`)";
        check(Language::Javascript, 64, 0, Outcome::TimedOut, Some(time));
        check(Language::Python, 4, 0, Outcome::TimedOut, Some(time));
        check(Language::Python, 4, 9, Outcome::Cancelled, None);
    }

    #[test]
    fn each_runtime_has_its_own_limits() {
        for (runtime, key) in [
            (RuntimeKind::Docker, "(`sandbox.docker.memory_limit`)"),
            (RuntimeKind::Pyodide, "(`skills.sandbox.memory_limit_mb`)"),
        ] {
            let mut result = failed("", -9);
            result.meta = Meta::of(
                runtime,
                Language::Python,
                Limits::DEFAULT,
                Outcome::MemoryExceeded,
            );
            let found = hint(&result, ProgramKind::Run).unwrap().person;
            assert!(found.ends_with(key), "{found}");
        }
    }

    #[test]
    fn each_runtime_has_its_own_way_to_modules() {
        for (runtime, expected) in [
            (RuntimeKind::Local, "`--with numpy`"),
            (RuntimeKind::Docker, "sandbox.docker.image"),
            (RuntimeKind::Pyodide, "skills.sandbox.packages"),
        ] {
            let found = no_module("numpy", &meta(runtime), ProgramKind::Run);
            assert!(found.person.contains(expected), "{found:?}");
            assert!(!found.model.unwrap().contains("--"));
        }
        let renamed = no_module("sklearn", &meta(RuntimeKind::Local), ProgramKind::Run);
        assert!(renamed.person.contains("`--with scikit-learn`"));
    }

    #[test]
    fn a_program_that_cannot_have_packages_is_not_told_to_install_them() {
        let on_image = Meta {
            image: Some(ImageFacts {
                reference: "docker.io/test/root:1".to_owned(),
                digest: String::new(),
            }),
            ..meta(RuntimeKind::Local)
        };
        let in_session = Meta {
            session: Some(SessionFacts {
                id: "a".to_owned(),
                evaluations: 1,
                value: None,
                interrupted: false,
                ended: false,
            }),
            ..meta(RuntimeKind::Local)
        };
        let found = no_module("numpy", &on_image, ProgramKind::Run).person;
        assert!(
            found.contains("`--image`") && !found.contains("--with"),
            "{found}"
        );
        // It has those that it was created with.
        let found = no_module("numpy", &in_session, ProgramKind::Run).person;
        assert!(
            found.contains("`ringfence session new NAME --with numpy`"),
            "{found}"
        );
    }
}
