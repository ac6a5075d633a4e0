//! Processes killed, or stopped, under a hundred calls of `sandbox_exec`: no call hangs, none falsely reports
//! success, and nothing is left after the next start.

mod daemon;
mod deaths;
mod podman;
mod stops;
mod storm;

use std::fs::{self, File, Permissions};
use std::os::unix::fs::{PermissionsExt, chown};
use std::path::PathBuf;
use std::process::Child;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::support::{Output, eventually_none, finish};
use crate::world::World;
use daemon::Daemon;
use podman::Podman;

/// Far above the timeout of any call: longer is a hang.
const HANGS: Duration = Duration::from_secs(120);
/// The uid of programs in root's containers.
const NOBODY: u32 = 65_534;

/// A server under test, with one container for all calls.
struct Setting {
    world: World,
    own: Own,
}

/// The test's own container engine.
enum Own {
    /// None: the machine's Docker is used.
    Nothing,
    Docker(Daemon),
    Podman(Podman),
}

/// A running container.
struct Container {
    id: String,
    /// The pid of its first process.
    pid: u32,
}

impl Setting {
    fn new() -> Self {
        Self::with(World::before_engine(), Own::Nothing)
    }

    /// Uses a Docker daemon that may be killed.
    fn with_daemon() -> Self {
        let world = World::before_engine();
        let daemon = Daemon::start(&world);
        Self::with(world, Own::Docker(daemon))
    }

    /// Uses a Podman whose service may be killed.
    fn with_podman() -> Self {
        let world = World::before_engine();
        let podman = Podman::start(&world);
        Self::with(world, Own::Podman(podman))
    }

    fn with(world: World, own: Own) -> Self {
        let engine = match own {
            Own::Nothing | Own::Docker(_) => "docker",
            Own::Podman(_) => "podman",
        };
        let config = format!(
            "[codeExecution]\ncontainerRuntime = '{engine}'\ntimeout = '60s'\nkeepAliveMaxExecutions = 1000\n"
        );
        world.dir.write("config/ringfence/ringfence.toml", config);
        fs::set_permissions(world.dir.path(""), Permissions::from_mode(0o755)).unwrap();
        let shared = world.dir.path("shared");
        fs::create_dir(&shared).unwrap();
        chown(&shared, Some(NOBODY), Some(NOBODY)).unwrap();
        world.start_engine();
        Self { world, own }
    }

    /// Starts a call with a unique number.
    fn begin(&self, number: usize, arguments: &Value, options: &[&str]) -> Child {
        let file = |kind: &str| self.world.dir.path(&format!("home/{kind}-{number}"));
        fs::write(file("in"), arguments.to_string()).unwrap();
        let workspace = self.world.dir.path("shared");
        let mut command = self.world.command(&[], ["tool", "sandbox_exec", "-", "--json"]);
        command.arg("--workspace").arg(workspace).args(options);
        let child = command
            .stdin(File::open(file("in")).unwrap())
            .stdout(File::create(file("out")).unwrap())
            .stderr(File::create(file("err")).unwrap())
            .spawn()
            .unwrap();
        self.world.watch(child.id());
        child
    }

    /// Returns the output of a call.
    fn printed(&self, number: usize) -> (String, String) {
        let read = |kind: &str| fs::read_to_string(self.world.dir.path(&format!("home/{kind}-{number}")));
        (read("out").unwrap(), read("err").unwrap())
    }

    /// Returns `true` if a call succeeds.
    fn works(&self) -> bool {
        let arguments = json!({"language": "python", "code": "print(6 * 7)"});
        self.begin(usize::MAX, &arguments, &[]).wait().unwrap().success()
    }

    /// Makes one call that must succeed.
    #[track_caller]
    fn goes_well(&self) {
        let works = self.works();
        let (stdout, stderr) = self.printed(usize::MAX);
        assert!(works, "{stdout}{stderr}");
        let printed: Value = serde_json::from_str(&stdout).unwrap();
        assert_eq!(printed["stdout"], "42\n", "{printed}");
    }

    /// Makes one call that must fail with these words.
    #[track_caller]
    fn refused(&self, words: &str) {
        let number = usize::MAX;
        let mut child = self.begin(number, &json!({"language": "bash", "code": "echo no"}), &[]);
        let ended = child.wait().unwrap();
        let (stdout, stderr) = self.printed(number);
        assert!(!ended.success() && stderr.contains(words), "{stdout}{stderr}");
    }

    /// Returns the number of calls that are waiting.
    fn waiting(&self) -> usize {
        let names = fs::read_dir(self.world.dir.path("shared")).unwrap();
        names
            .filter(|name| {
                name.as_ref()
                    .unwrap()
                    .file_name()
                    .to_string_lossy()
                    .starts_with("waits-")
            })
            .count()
    }

    /// Runs a command of the container engine. The world's home directory leads to its Docker.
    fn ask(&self, args: &[&str]) -> Output {
        match &self.own {
            Own::Nothing | Own::Docker(_) => finish(self.world.dir.program("docker").args(args), b""),
            Own::Podman(podman) => podman.command(&self.world, args),
        }
    }

    /// Returns the test's own Docker, if any.
    fn daemon(&self) -> Option<&Daemon> {
        match &self.own {
            Own::Docker(daemon) => Some(daemon),
            Own::Nothing | Own::Podman(_) => None,
        }
    }

    /// Returns the test's own Podman, if any.
    fn podman(&self) -> Option<&Podman> {
        match &self.own {
            Own::Podman(podman) => Some(podman),
            Own::Nothing | Own::Docker(_) => None,
        }
    }

    /// Returns the containers of all calls, of any process, found by their workspace mount.
    #[track_caller]
    fn containers(&self) -> Vec<String> {
        let workspace = format!("volume={}", self.world.dir.path("shared").display());
        let listed = self.ask(&["ps", "--all", "--quiet", "--no-trunc", "--filter", &workspace]);
        listed.ok().lines().map(str::to_owned).collect()
    }

    /// Returns the server's one kept-alive container.
    #[track_caller]
    fn container(&self) -> Container {
        let [id] = <[String; 1]>::try_from(self.containers()).unwrap();
        let pid = self.ask(&["inspect", "--format", "{{.State.Pid}}", &id]);
        let pid = pid.ok().trim().parse().unwrap();
        Container { id, pid }
    }

    #[track_caller]
    fn signal(&self, signal: &str, pid: u32) {
        let mut kill = self.world.dir.program("kill");
        finish(kill.args([signal, &pid.to_string()]), b"").ok();
    }

    /// Asserts that the server uses another container, and removes this one.
    #[track_caller]
    fn replaces(&self, container: &Container) {
        self.goes_well();
        until("it is removed", || !self.containers().contains(&container.id));
    }

    /// Returns the remaining control groups of a removed container.
    fn left_of(&self, container: &Container) -> Vec<PathBuf> {
        if matches!(self.own, Own::Podman(_)) && container.processes() == 0 {
            // Podman does not always remove them if the container's monitor was killed: they are empty.
            for group in container.groups() {
                let _ = fs::remove_dir(group);
            }
        }
        container.groups()
    }

    /// Asserts that the server serves, that a restarted one serves too, and that nothing is left of the
    /// earlier container.
    #[track_caller]
    fn goes_on(self, before: &Container) {
        if self.world.engine_pid().is_some() {
            self.goes_well();
            assert_eq!(
                self.world.stop_engine("TERM"),
                Some(0),
                "{}",
                self.world.engine_log()
            );
        }
        self.world.start_engine();
        self.goes_well();
        assert!(!self.containers().contains(&before.id));
        eventually_none("control groups", || self.left_of(before));
        assert_eq!(
            self.world.stop_engine("TERM"),
            Some(0),
            "{}",
            self.world.engine_log()
        );
        assert_eq!(self.containers(), [""; 0]);
        match self.own {
            Own::Nothing => {}
            Own::Docker(daemon) => daemon.end(&self.world),
            Own::Podman(mut podman) => podman.end(),
        }
        self.world.close();
    }
}

impl Container {
    /// Returns the number of processes in it.
    fn processes(&self) -> usize {
        let listed = self
            .groups()
            .into_iter()
            .map(|group| fs::read_to_string(group.join("cgroup.procs")));
        listed
            .flatten()
            .map(|listed| listed.lines().count())
            .max()
            .unwrap_or(0)
    }

    /// Returns the control groups of its processes.
    fn groups(&self) -> Vec<PathBuf> {
        let hierarchies = fs::read_dir("/sys/fs/cgroup").unwrap().flatten();
        let names = [
            format!("docker/{}", self.id),
            format!("libpod_parent/libpod-{}", self.id),
        ];
        let groups = |hierarchy: fs::DirEntry| names.clone().map(|name| hierarchy.path().join(name));
        hierarchies
            .flat_map(groups)
            .filter(|group| group.exists())
            .collect()
    }
}

/// Polls until a condition holds.
#[track_caller]
fn until(what: &str, mut holds: impl FnMut() -> bool) {
    let begun = Instant::now();
    while !holds() {
        assert!(begun.elapsed() < HANGS, "{what}");
        std::thread::park_timeout(Duration::from_millis(10));
    }
}
