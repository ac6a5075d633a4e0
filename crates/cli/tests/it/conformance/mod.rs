//! One suite of scenarios that every runtime passes, in the process of the command and through a server.
//!
//! It drives the built binary, since its command line is the door with everything behind it: the plan of a run, the
//! choice between server and own process, the wire, and `Runner::run` on either side. A scenario is a row of
//! `scenarios.rs`, a runtime a row of `targets.rs`; the latter names each scenario that the runtime refuses, or
//! answers in its own way.

mod scenarios;
mod targets;

use std::collections::BTreeSet;
use std::fs;
use std::io::{BufRead, BufReader, Read};
use std::os::unix::fs::{PermissionsExt, chown};
use std::process::{Child, Command};

use serde_json::Value;

use self::scenarios::SCENARIOS;
use self::targets::{Answer, Target};
use crate::api::loopback_address;
use crate::network::{OPEN, Server};
use crate::pyodide::installed;
use crate::support::{Output, finish, start};
use crate::world::{World, own_uid};

/// One behaviour that every runtime has, or refuses by name.
struct Scenario {
    name: &'static str,
    request: Request,
    expected: Expected,
    /// A further check, of what a result alone does not show.
    also: fn(&Suite, &Answered) -> Checked,
}

/// The arguments and the input of `ringfence run`. `{port}` stands for the port of a server on this machine.
struct Request {
    language: &'static str,
    code: &'static str,
    options: &'static [&'static str],
    /// Arguments of the program.
    args: &'static [&'static str],
    stdin: Stdin,
    env: &'static [(&'static str, &'static str)],
    end: End,
}

enum Stdin {
    None,
    Text(&'static str),
    /// Bytes that are counted up, so many of them.
    Counted(usize),
}

/// The end that a program is left to.
#[derive(PartialEq)]
enum End {
    Own,
    /// The command is cancelled once the program has printed something.
    Cancelled,
}

/// Facts of a result. `{file}` stands for the name of the program in tracebacks, where parts of a text are named.
struct Expected {
    outcome: &'static str,
    exit_code: i64,
    stdout: Text,
    stderr: Text,
    /// Values as JSON, by their JSON pointers.
    facts: &'static [(&'static str, &'static str)],
}

enum Text {
    Any,
    Is(&'static str),
    Has(&'static [&'static str]),
}

/// The process that runs a program: the command's own, or a server.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Place {
    InProcess,
    Server,
}

/// A runtime at a place, with everything that the scenarios use.
struct Suite {
    target: &'static Target,
    place: Place,
    world: World,
    server: Server,
    service: Option<Service>,
}

/// A server under test, as a service by E2B's protocol.
struct Service {
    world: World,
    env: Vec<(&'static str, String)>,
}

/// The answer of a command: a result, or an object with the key `error`.
#[derive(Debug)]
struct Answered {
    value: Value,
    output: Output,
}

/// A complaint, if something is not as expected.
type Checked = Result<(), String>;

const PYTHON: Request = Request {
    language: "python",
    code: "",
    options: &[],
    args: &[],
    stdin: Stdin::None,
    env: &[],
    end: End::Own,
};

const SUCCESS: Expected = Expected {
    outcome: "exited",
    exit_code: 0,
    stdout: Text::Is(""),
    stderr: Text::Is(""),
    facts: &[],
};

/// Configuration of every command and server, beside the directory of Pyodide. The machine may be busy.
const CONFIG: &str = "[sandbox]\ntimeout = '60s'\nblock_dangerous_imports = true\nblocked_imports = ['ctypes']\n\
                      [skills.sandbox]\ntimeout_seconds = 60\nblocked_imports = ['ctypes']\n";

const SKILL: &str = "class Probe:\n    def twice(self, x: int) -> int:\n        return 2 * x\n";

/// Runs every scenario on a target, and reports all that fail.
fn conforms(target: &'static Target, place: Place) {
    if !(target.installed)() {
        return;
    }
    let suite = Suite::new(target, place);
    let failed: Vec<String> = SCENARIOS
        .iter()
        .filter_map(|scenario| {
            let complaint = suite.play(scenario).err()?;
            Some(format!("{}: {complaint}", scenario.name))
        })
        .collect();
    assert!(
        failed.is_empty(),
        "{} {place:?}:\n{}",
        target.name,
        failed.join("\n")
    );
    suite.world.close();
    if let Some(service) = suite.service {
        // No run left a sandbox.
        assert_eq!(service.sandboxes(), 0);
        service.world.close();
    }
}

#[test]
fn every_difference_is_one_of_a_scenario() {
    let names: BTreeSet<&str> = SCENARIOS.iter().map(|scenario| scenario.name).collect();
    assert_eq!(names.len(), SCENARIOS.len(), "a name is used twice");
    assert!(SCENARIOS.len() >= 20);
    for target in targets::ALL {
        for difference in target.differences {
            assert!(names.contains(difference.scenario), "{}", difference.scenario);
        }
    }
}

impl Service {
    fn new() -> Self {
        const KEY: &str = "e2b_0000000000000000000000000000000000000000";
        let world = World::before_engine();
        let config = "[engine]\nlisten = '127.0.0.1:0'\npool_size = 1\n";
        world.dir.write("config/ringfence/ringfence.toml", config);
        world.start_engine_with(&[("RINGFENCE_API_KEY", KEY)], &[]);
        let url = format!("http://{}", loopback_address(&world));
        let env = vec![
            ("E2B_API_KEY", KEY.to_owned()),
            ("E2B_API_URL", url.clone()),
            ("E2B_SANDBOX_URL", url),
        ];
        Self { world, env }
    }

    /// Returns the number of sandboxes.
    fn sandboxes(&self) -> usize {
        let listed = self.world.dir.run(["sandbox", "ls", "--json"]);
        serde_json::from_str::<Vec<Value>>(listed.ok()).unwrap().len()
    }
}

impl Suite {
    fn new(target: &'static Target, place: Place) -> Self {
        let world = World::before_engine();
        let directory = format!("directory = '{}'\n", installed().display());
        let config = [OPEN, CONFIG, &directory].concat();
        world.dir.write("config/ringfence/ringfence.toml", config);
        world.dir.write("work/in.txt", "from the host\n");
        fs::set_permissions(world.dir.path(""), fs::Permissions::from_mode(0o755)).unwrap();
        for name in ["work/project", "work/shared"] {
            let path = world.dir.path(name);
            fs::create_dir(&path).unwrap();
            if own_uid() == 0 {
                // The user of programs.
                chown(&path, Some(65_534), Some(65_534)).unwrap();
            }
        }
        fs::create_dir(world.dir.path("work/skills")).unwrap();
        world.dir.write("work/skills/probe.py", SKILL);
        let service = target.service.then(Service::new);
        if place == Place::Server {
            let env = service.iter().flat_map(|service| &service.env);
            let env: Vec<(&str, &str)> = env.map(|(name, value)| (*name, value.as_str())).collect();
            world.start_engine_with(&env, &[]);
        }
        Self {
            target,
            place,
            world,
            server: Server::new(),
            service,
        }
    }

    /// Runs a scenario, and checks its answer.
    fn play(&self, scenario: &Scenario) -> Checked {
        let answered = self.run(&scenario.request)?;
        let result = match self.target.answer(scenario.name, self.place) {
            Some(Answer::Refuses(refusal)) => return refusal.check(&answered),
            Some(Answer::Otherwise(expected)) => self.check(expected, &answered),
            None => self
                .check(&scenario.expected, &answered)
                .and_then(|()| (scenario.also)(self, &answered)),
        };
        result.map_err(|complaint| format!("{complaint}\n    {answered:?}"))
    }

    /// Runs a request to its end.
    fn run(&self, request: &Request) -> Result<Answered, String> {
        let mut command = self.command(request);
        let stdin = match request.stdin {
            Stdin::None => Vec::new(),
            Stdin::Text(text) => text.into(),
            Stdin::Counted(count) => counted(count),
        };
        let output = match request.end {
            End::Own => finish(&mut command, &stdin),
            End::Cancelled => self.cancelled(start(&mut command)),
        };
        self.world.watch(output.pid);
        let last = match request.end {
            End::Own => output.stdout.as_str(),
            End::Cancelled => output.stdout.lines().last().unwrap_or_default(),
        };
        let value: Value = serde_json::from_str(last).map_err(|error| format!("{error}: {output:?}"))?;
        let value = value.get("result").unwrap_or(&value).clone();
        Ok(Answered { value, output })
    }

    fn command(&self, request: &Request) -> Command {
        let json = match request.end {
            End::Own => "--json",
            End::Cancelled => "--json-stream",
        };
        let stdin: &[&str] = match request.stdin {
            Stdin::None => &[],
            Stdin::Text(_) | Stdin::Counted(_) => &["--stdin", "-"],
        };
        let args = [
            &["run", "--runtime", self.target.name, json, "-l", request.language],
            stdin,
            request.options,
            &["-c", request.code, "--"],
            request.args,
        ];
        let args = args.concat();
        let port = self.server.port.to_string();
        let args = args.iter().map(|arg| arg.replace("{port}", &port));
        let mut command = self.world.command(&[], args);
        let service = self.service.iter().flat_map(|service| &service.env);
        command.envs(service.map(|(name, value)| (*name, value)));
        command.envs(request.env.iter().copied());
        command
    }

    /// Cancels a command once its program has printed something.
    fn cancelled(&self, mut child: Child) -> Output {
        let mut reader = BufReader::new(child.stdout.take().unwrap());
        let mut stdout = String::new();
        reader.read_line(&mut stdout).unwrap();
        if !stdout.contains("\"error\"") {
            self.world.signal(&child, "TERM");
        }
        reader.read_to_string(&mut stdout).unwrap();
        let pid = child.id();
        let output = child.wait_with_output().unwrap();
        Output {
            stdout,
            stderr: String::from_utf8_lossy(&output.stderr).into_owned(),
            status: output.status.code().unwrap_or(-1),
            pid,
        }
    }

    /// Compares an answer with the expected facts, and with those of every result.
    fn check(&self, expected: &Expected, answered: &Answered) -> Checked {
        let value = &answered.value;
        let ended = (value["meta"]["outcome"].as_str(), value["exit_code"].as_i64());
        same(
            "the end",
            &ended,
            &(Some(expected.outcome), Some(expected.exit_code)),
        )?;
        same("the exit status", &answered.output.status, &expected.status())?;
        for (name, text) in [("stdout", &expected.stdout), ("stderr", &expected.stderr)] {
            text.check(value[name].as_str().unwrap_or_default(), self.target)
                .map_err(|complaint| format!("{name}: {complaint}"))?;
        }
        for (pointer, fact) in expected.facts {
            let fact: Value = serde_json::from_str(fact).unwrap();
            same(pointer, value.pointer(pointer).unwrap_or(&Value::Null), &fact)?;
        }
        if self.place == Place::InProcess {
            same("warm", &value["meta"]["warm"], &Value::Bool(false))?;
        }
        shape(value)
    }
}

impl Expected {
    /// Returns the exit status of the command.
    fn status(&self) -> i32 {
        match (self.outcome, i32::try_from(self.exit_code).unwrap()) {
            ("timed_out", _) => 124,
            ("cancelled", _) => 130,
            (_, signal @ ..0) => 128 - signal,
            (_, status) => status,
        }
    }
}

impl Text {
    fn check(&self, found: &str, target: &Target) -> Checked {
        match self {
            Self::Any => Ok(()),
            Self::Is(text) => same("the text", &found, text),
            Self::Has(parts) => parts.iter().try_for_each(|part| {
                let has = |file: &&str| found.contains(&part.replace("{file}", file));
                let holds = found.contains(part) || target.files.iter().any(has);
                ensure(holds, || format!("no {part:?} in {found:?}"))
            }),
        }
    }
}

/// Keys of every result, in the order of their names.
const RESULT: &[&str] = &["duration", "exit_code", "meta", "stderr", "stdout"];

/// Keys of the metadata of every result.
const META: &[&str] = &[
    "artifact",
    "blocked_imports",
    "cpu_seconds",
    "isolation",
    "language",
    "outcome",
    "peak_memory_bytes",
    "resource_limits",
    "runtime",
    "stderr_bytes",
    "stdout_bytes",
    "timed_out",
    "truncated",
    "warm",
];

/// Keys of the metadata of results that have something to say of them.
const OPTIONAL: &[&str] = &[
    "egress",
    "failed_forks",
    "hints",
    "output_files",
    "output_incomplete",
    "remote",
    "session",
    "warnings",
];

const ISOLATION: &[&str] = &[
    "capabilities_dropped",
    "cgroup",
    "cgroup_ns",
    "ipc_ns",
    "landlock_abi",
    "mount_ns",
    "net_ns",
    "no_new_privs",
    "pid_ns",
    "seccomp",
    "time_ns",
    "user_ns",
    "uts_ns",
];

const LIMITS: &[&str] = &[
    "cpus",
    "disk_bytes",
    "max_output_bytes",
    "memory_bytes",
    "pids",
    "timeout",
];

/// Requires the keys that the results of all targets share.
fn shape(result: &Value) -> Checked {
    let keys = |pointer: &str| -> Vec<String> {
        let object = result.pointer(pointer).and_then(Value::as_object);
        let keys: BTreeSet<&String> = object.into_iter().flat_map(|object| object.keys()).collect();
        keys.into_iter().cloned().collect()
    };
    let mut meta = keys("/meta");
    meta.retain(|key| !OPTIONAL.contains(&key.as_str()));
    same("the keys", &keys("").as_slice(), &RESULT)?;
    same("the keys of `meta`", &meta.as_slice(), &META)?;
    let layers: &[&str] = match result.pointer("/meta/remote") {
        Some(_) => &[],
        None => ISOLATION,
    };
    same("the layers", &keys("/meta/isolation").as_slice(), &layers)?;
    same("the limits", &keys("/meta/resource_limits").as_slice(), &LIMITS)
}

fn same<F: PartialEq<E> + std::fmt::Debug, E: std::fmt::Debug>(
    what: &str,
    found: &F,
    expected: &E,
) -> Checked {
    ensure(found == expected, || {
        format!("{what}: found {found:?}, expected {expected:?}")
    })
}

fn ensure(holds: bool, complaint: impl FnOnce() -> String) -> Checked {
    if holds { Ok(()) } else { Err(complaint()) }
}

fn counted(count: usize) -> Vec<u8> {
    (0..count).map(|i| (i % 251) as u8).collect()
}
