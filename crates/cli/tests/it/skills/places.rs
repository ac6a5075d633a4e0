//! Runtimes with a bridge: the same checks run in each of them.

use std::io::Write;
use std::process::{Child, Command};

use serde_json::json;

use super::{CONFORMANCE, PROBE, put};
use crate::containers::engines;
use crate::pyodide::installed;
use crate::support::{finish, start};
use crate::world::{Mode, Run, World};

/// A runtime with skills, whose programs have a bridge to them.
pub(super) struct Place {
    pub(super) world: World,
    way: Way,
}

/// The interface that runs the programs.
#[derive(Clone, Copy)]
enum Way {
    /// `ringfence run`.
    Run(&'static [&'static str]),
    /// A call of the tool `sandbox_exec`.
    Kept,
}

impl Place {
    fn new(world: World, way: Way, engine: &str) -> Self {
        let skills = world.dir.path("work/skills");
        let config = format!(
            "[codeExecution]\ncontainerRuntime = '{engine}'\nmaxMemory = '1GiB'\ntimeout = '120s'\n[skills]\npath = '{}'\n",
            skills.display()
        );
        world.dir.write("config/ringfence/ringfence.toml", config);
        put(&world.dir, "probe.py", PROBE);
        Self { world, way }
    }

    /// A program in the local fence.
    pub(super) fn local() -> Option<Self> {
        Some(Self::new(World::here(), Way::Run(&[]), "docker"))
    }

    /// A program in its own Docker container.
    pub(super) fn docker() -> Option<Self> {
        Self::contained("docker", Way::Run(&["--runtime", "docker"]))
    }

    /// A program in its own Podman container.
    pub(super) fn podman() -> Option<Self> {
        Self::contained("podman", Way::Run(&["--runtime", "podman"]))
    }

    /// A program in its own container under gVisor.
    pub(super) fn gvisor() -> Option<Self> {
        let place = Self::docker()?;
        place.configure("[sandbox.docker]\noci_runtime = 'runsc'\n");
        Some(place)
    }

    /// Calls in a kept-alive container of a server.
    pub(super) fn kept() -> Option<Self> {
        Self::contained("docker", Way::Kept).map(Self::with_engine)
    }

    /// A program in the local fence of a server.
    pub(super) fn engine() -> Option<Self> {
        let world = World::before_engine();
        Some(Self::new(world, Way::Run(&[]), "docker").with_engine())
    }

    /// Evaluations in a session.
    pub(super) fn session() -> Option<Self> {
        let world = World::before_engine();
        Some(Self::new(world, Way::Run(&["--session", "s"]), "docker").with_engine())
    }

    /// A program in Pyodide, run by a server.
    pub(super) fn pyodide() -> Option<Self> {
        let place = Self::new(
            World::before_engine(),
            Way::Run(&["--runtime", "pyodide"]),
            "docker",
        );
        place.configure(&format!(
            "[skills.sandbox]\ndirectory = '{}'\n",
            installed().display()
        ));
        Some(place.with_engine())
    }

    /// Adds to the configuration.
    fn configure(&self, more: &str) {
        let config = self.world.dir.path("config/ringfence/ringfence.toml");
        let text = std::fs::read_to_string(&config).unwrap();
        std::fs::write(config, text + more).unwrap();
    }

    fn with_engine(self) -> Self {
        self.world.start_engine();
        self
    }

    fn contained(engine: &str, way: Way) -> Option<Self> {
        let is_here = engines().iter().any(|found| found.name == engine);
        let world = || match way {
            Way::Run(_) => World::here(),
            Way::Kept => World::before_engine(),
        };
        is_here.then(|| Self::new(world(), way, engine))
    }

    /// Runs Python in this runtime.
    #[track_caller]
    pub(super) fn run(&self, timeout: &str, code: &str) -> Run {
        let (mut command, stdin) = self.command("python", timeout, code);
        let output = finish(&mut command, stdin.as_bytes());
        self.world.watch(output.pid);
        let result = serde_json::from_str(&output.stdout);
        assert!(result.is_ok(), "no result: {output:?}");
        Run {
            result: result.unwrap(),
            output,
        }
    }

    /// Starts Python in this runtime; the child's output is captured.
    pub(super) fn begin(&self, timeout: &str, code: &str) -> Child {
        self.begin_in("python", timeout, code)
    }

    /// Starts another language in this runtime.
    pub(super) fn begin_in(&self, language: &str, timeout: &str, code: &str) -> Child {
        let (mut command, stdin) = self.command(language, timeout, code);
        let mut child = start(&mut command);
        self.world.watch(child.id());
        child.stdin.take().unwrap().write_all(stdin.as_bytes()).unwrap();
        child
    }

    /// Returns the command that runs code in this runtime and prints a result, and its standard input.
    fn command(&self, language: &str, timeout: &str, code: &str) -> (Command, String) {
        match self.way {
            Way::Run(options) => {
                let mut args = vec!["run", "--json", "--skills", "skills", "--memory", "1GiB"];
                if self.world.mode == Mode::OneShot {
                    args.push("--no-engine");
                }
                args.extend(["--timeout", timeout, "--language", language]);
                let args = [&args, options, &["-c", code]].concat();
                (self.world.command(&[], args), String::new())
            }
            Way::Kept => {
                let arguments = json!({"language": language, "code": code, "timeout": timeout});
                let args = ["tool", "sandbox_exec", "-", "--json"];
                (self.world.command(&[], args), arguments.to_string())
            }
        }
    }

    /// Asserts that the host serves another program.
    #[track_caller]
    pub(super) fn is_well(&self) {
        let after = self.run("60s", "print(device.Probe.add(1))");
        assert_eq!(after.stdout(), "2\n", "{after:#?}");
    }
}

/// Runs a scenario in a place, and asserts that nothing is left of it.
#[track_caller]
pub(super) fn play(place: Option<Place>, scenario: impl Fn(&Place)) {
    let Some(place) = place else { return };
    scenario(&place);
    place.world.close();
}

/// Generates a test of each function in each place.
macro_rules! in_places {
    ([$($place:ident),+], $functions:tt) => {
        $(crate::skills::places::in_place!($place, $functions);)+
    };
}

macro_rules! in_place {
    ($place:ident, [$($name:ident),+ $(,)?]) => {
        mod $place {
            use crate::skills::places::{Place, play};
            $(#[test] fn $name() { play(Place::$place(), super::$name); })+
        }
    };
}

pub(super) use {in_place, in_places};

in_places!(
    [local, engine, session, docker, podman, gvisor, kept],
    [a_program_can_rely_on_its_bridge]
);

fn a_program_can_rely_on_its_bridge(place: &Place) {
    let run = place.run("60s", CONFORMANCE);
    assert_eq!(run.get("exit_code"), 0, "{run:#?}");
    let checks = CONFORMANCE.lines().filter(|line| line.starts_with("def "));
    let held = run.stdout().lines().filter(|line| line.starts_with("holds: "));
    assert_eq!(held.count(), checks.count() - 1, "{run:#?}");
}
