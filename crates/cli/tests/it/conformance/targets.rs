//! The runtimes of the suite: for each, the scenarios that it refuses by name, or answers in its own way.

use super::scenarios as s;
use super::{Answered, Checked, Expected, Place, SUCCESS, Text, conforms, ensure, same};
use crate::containers::engines;

/// A runtime, as the suite knows it.
pub(super) struct Target {
    pub(super) name: &'static str,
    /// Returns `true` if this machine has it. In CI a missing one is a failure.
    pub(super) installed: fn() -> bool,
    /// Names of a program in its tracebacks.
    pub(super) files: &'static [&'static str],
    /// System-call filter, and processor cores, of a run without options.
    pub(super) seccomp: &'static str,
    pub(super) cpus: f64,
    /// Part of the warning of a run that was moved to the local fence, as configured. `None`: none ever is.
    pub(super) replaced: Option<&'static str>,
    /// Set for a service by E2B's protocol, which the suite then starts.
    pub(super) service: bool,
    pub(super) differences: &'static [Difference],
}

/// A scenario with another answer than its own.
pub(super) struct Difference {
    pub(super) scenario: &'static str,
    /// The place. `None`: both.
    pub(super) place: Option<Place>,
    pub(super) answer: Answer,
}

pub(super) enum Answer {
    Refuses(Refusal),
    Otherwise(Expected),
}

/// A typed error.
pub(super) struct Refusal {
    pub(super) status: i32,
    pub(super) kind: &'static str,
    /// Parts of the message, or of the hint.
    pub(super) says: &'static [&'static str],
}

impl Target {
    /// Returns the answer to a scenario. `None`: the scenario's own.
    pub(super) fn answer(&self, scenario: &str, place: Place) -> Option<&Answer> {
        let is_of = |difference: &&Difference| {
            difference.scenario == scenario && difference.place.is_none_or(|only| only == place)
        };
        let difference = self.differences.iter().find(is_of);
        difference.map(|difference| &difference.answer)
    }
}

impl Refusal {
    pub(super) fn check(&self, answered: &Answered) -> Checked {
        let error = &answered.value["error"];
        let text = |key: &str| error[key].as_str().unwrap_or_default();
        let found = (answered.output.status, text("type"));
        same("the refusal", &found, &(self.status, self.kind))?;
        ensure(!text("hint").is_empty(), || format!("no hint in {error}"))?;
        self.says.iter().try_for_each(|part| {
            let says = text("message").contains(part) || text("hint").contains(part);
            ensure(says, || format!("no {part:?} in {error}"))
        })
    }
}

macro_rules! conformance {
    ($($name:ident: $target:ident),+ $(,)?) => {
        pub(super) const ALL: &[&Target] = &[$(&$target),+];
        mod in_process { $(#[test] fn $name() { super::conforms(&super::$target, super::Place::InProcess); })+ }
        mod through_the_server { $(#[test] fn $name() { super::conforms(&super::$target, super::Place::Server); })+ }
    };
}

conformance!(local: LOCAL, docker: DOCKER, podman: PODMAN, pyodide: PYODIDE, e2b: E2B);

const fn refuses(scenario: &'static str, refusal: Refusal) -> Difference {
    Difference {
        scenario,
        place: None,
        answer: Answer::Refuses(refusal),
    }
}

/// A refusal of an option, or a language, that the runtime would have to ignore.
const fn ignores(scenario: &'static str, says: &'static [&'static str]) -> Difference {
    let kind = "invalid_arguments";
    refuses(
        scenario,
        Refusal {
            status: 2,
            kind,
            says,
        },
    )
}

const fn otherwise(scenario: &'static str, expected: Expected) -> Difference {
    Difference {
        scenario,
        place: None,
        answer: Answer::Otherwise(expected),
    }
}

static LOCAL: Target = Target {
    name: "local",
    installed: || true,
    files: &["<string>"],
    seccomp: "fence",
    cpus: 1.0,
    replaced: None,
    service: false,
    differences: &[Difference {
        place: Some(Place::InProcess),
        ..refuses(
            s::SESSION,
            Refusal {
                status: 125,
                kind: "runtime_unavailable",
                says: &["sessions live in a server, and none is running"],
            },
        )
    }],
};

static DOCKER: Target = Target {
    name: "docker",
    installed: || engines().iter().any(|engine| engine.name == "docker"),
    replaced: Some("there was no container (Docker daemon not available"),
    ..CONTAINER
};

static PODMAN: Target = Target {
    name: "podman",
    installed: || engines().iter().any(|engine| engine.name == "podman"),
    replaced: Some("there was no container (Podman service not available"),
    ..CONTAINER
};

const CONTAINER: Target = Target {
    name: "",
    installed: || false,
    // Of a container that has waited too, which runs code that it is sent.
    files: &["/code/main.py"],
    seccomp: "standard",
    cpus: 0.5,
    replaced: None,
    service: false,
    differences: &[
        refuses(
            s::JAVASCRIPT,
            Refusal {
                status: 125,
                kind: "not_found",
                says: &["there is no node in the image"],
            },
        ),
        ignores(s::SESSION, &["`--session` has no effect with the runtime"]),
        ignores(
            s::UNFENCED,
            &[
                "`--unfenced` has no effect with the runtime",
                "always has its fence",
            ],
        ),
        ignores(
            s::INTERPRETER,
            &[
                "a container has the Python of its image",
                "`sandbox.docker.image`",
            ],
        ),
    ],
};

static PYODIDE: Target = Target {
    name: "pyodide",
    // The configuration of the suite requires it.
    installed: || true,
    files: &["<sandbox>"],
    seccomp: "fence",
    cpus: 1.0,
    replaced: Some("NOT IN PYODIDE"),
    service: false,
    differences: &[
        otherwise(
            s::MEMORY,
            Expected {
                exit_code: 1,
                stderr: Text::Has(&["\nMemoryError\n"]),
                ..SUCCESS
            },
        ),
        // WebAssembly has no signals: the interpreter ends, and takes the knowledge of the program's end with it.
        otherwise(
            s::SIGNAL,
            Expected {
                outcome: "unknown",
                exit_code: 125,
                stdout: Text::Has(&["x\n"]),
                stderr: Text::Has(&["the executor broke; nothing is known of the program's end\n"]),
                ..SUCCESS
            },
        ),
        // Its files are in memory, which is limited; what leaves it is, too.
        otherwise(
            s::DISK,
            Expected {
                stderr: Text::Is("/output/x is too large to be kept, or a link\n"),
                facts: &[("/meta/output_files", "null")],
                ..SUCCESS
            },
        ),
        ignores(s::PROCESSES, &["Pyodide has one process"]),
        ignores(s::CPUS, &["Pyodide has one thread"]),
        ignores(s::ALLOWED_HOST, &["Pyodide has no network"]),
        ignores(s::BASH, &["the runtime `pyodide` runs Python, and not bash"]),
        ignores(
            s::JAVASCRIPT,
            &["the runtime `pyodide` runs Python, and not javascript"],
        ),
        ignores(s::SESSION, &["sessions exist in the local runtime only"]),
        ignores(s::UNFENCED, &["Pyodide always runs in the fence"]),
        ignores(s::INTERPRETER, &["Pyodide is a Python of its own"]),
        ignores(s::WORKSPACE, &["Pyodide has its files in memory"]),
        ignores(s::WRITABLE_MOUNT, &["files are copied into Pyodide's memory"]),
    ],
};

static E2B: Target = Target {
    name: "e2b",
    installed: || true,
    files: &["/tmp/.ringfence/main.py"],
    // Nothing is claimed of another machine.
    seccomp: "",
    cpus: 0.0,
    replaced: None,
    // Another server of ours.
    service: true,
    differences: &[
        otherwise(
            s::APART,
            Expected {
                exit_code: 7,
                stdout: Text::Is("out\n"),
                stderr: Text::Is("err\n"),
                facts: &[
                    ("/meta/runtime", "\"e2b\""),
                    ("/meta/remote", "true"),
                    ("/meta/isolation", "null"),
                    ("/meta/resource_limits/cpus", "null"),
                    ("/meta/resource_limits/disk_bytes", "null"),
                    ("/meta/resource_limits/memory_bytes", "null"),
                    ("/meta/resource_limits/pids", "null"),
                    ("/meta/peak_memory_bytes", "null"),
                    ("/meta/warm", "false"),
                ],
                ..SUCCESS
            },
        ),
        otherwise(
            s::WARM,
            Expected {
                stdout: Text::Is("1\n"),
                facts: &[("/meta/warm", "false")],
                ..SUCCESS
            },
        ),
        ignores(s::SESSION, &["`--session` has no effect with the runtime `e2b`"]),
        ignores(s::MEMORY, &["the service decides"]),
        ignores(s::PROCESSES, &["the service decides"]),
        ignores(s::CPUS, &["the service decides"]),
        ignores(s::DISK, &["the service decides"]),
        ignores(
            s::MOUNT,
            &["directories of this machine are not sent to a service"],
        ),
        ignores(s::WRITABLE_MOUNT, &["directories of this machine are not sent"]),
        ignores(s::WORKSPACE, &["directories of this machine are not sent"]),
        ignores(s::ALLOWED_HOST, &["no list of hosts can be enforced there"]),
        ignores(s::BRIDGE, &["reach nothing of this machine"]),
        ignores(s::UNFENCED, &["run on machines of a service"]),
        ignores(s::INTERPRETER, &["the interpreters of its template"]),
    ],
};
