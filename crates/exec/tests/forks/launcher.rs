//! Drives a launcher with a bare Python session, as the server does.

use std::collections::VecDeque;
use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use ringfence_cgroup::Group;
use ringfence_jail::protocol::{
    Applied, Bind, Command, Confinement, Event, GUEST_ID, Guest as Origin, HostIds, LandlockRules,
    LauncherSpec, Missing, Program, Rlimits, Spawn, Template,
};
use ringfence_jail::seccomp::{Exits, Forks, Ipc, Sockets, Surface, Users};
use ringfence_jail::{ExitListener, Launcher, code_file, control_pair, output_pipe};

const EXTENSION: &[u8] = include_bytes!(env!("RINGFENCE_EXTENSION"));
const DRIVER: &str = include_str!("driver.py");
const PYTHON: &str = "/usr/bin/python3";

/// A launcher with a warm zygote.
pub(crate) struct TestLauncher {
    pub(crate) launcher: Launcher,
    next: u64,
    /// Events received but not awaited yet.
    events: VecDeque<(Event, Vec<OwnedFd>)>,
}

/// A guest, with our ends of its pipes.
pub(crate) struct Guest {
    pub(crate) id: u64,
    pub(crate) control: UnixStream,
    pub(crate) applied: Applied,
    pub(crate) output: OwnedFd,
    stdin: OwnedFd,
    stdout: OwnedFd,
    stderr: OwnedFd,
}

/// A failed step with its error number.
pub(crate) type Failure = (String, i32);

/// Parameters of a guest to spawn.
pub(crate) struct Wish<'a> {
    pub(crate) origin: Origin,
    pub(crate) group: Option<&'a Group>,
    pub(crate) disk_bytes: u64,
    /// Set if the seccomp filter permits `setns`.
    pub(crate) movable: bool,
    pub(crate) exits: Exits,
}

impl Wish<'_> {
    pub(crate) fn new(origin: Origin) -> Self {
        Self {
            movable: matches!(origin, Origin::Session { .. } | Origin::ForkOf { .. }),
            origin,
            group: None,
            disk_bytes: 16 << 20,
            exits: Exits::Silent,
        }
    }
}

impl TestLauncher {
    pub(crate) fn open() -> Self {
        let mut launcher = Self::start(&LauncherSpec::Namespaced(template()));
        let program = Program {
            executable: PYTHON.into(),
            arguments: [PYTHON, "-I", "-S", "-c", DRIVER].map(str::to_owned).into(),
            environment: vec![("PATH".into(), "/usr/bin:/bin".into())],
            reads_job: true,
        };
        let library = code_file(EXTENSION).unwrap();
        launcher
            .launcher
            .send(
                &Command::Zygote {
                    program,
                    script: None,
                },
                &[library.as_fd()],
            )
            .unwrap();
        assert!(matches!(launcher.event(), (Event::ZygoteReady, _)));
        launcher
    }

    /// Starts a launcher without a zygote.
    pub(crate) fn start(spec: &LauncherSpec) -> Self {
        let mut launcher = Self {
            launcher: Launcher::start(spec).unwrap(),
            next: 1,
            events: VecDeque::new(),
        };
        let event = launcher.event();
        assert!(matches!(event, (Event::Ready, _)), "{event:?}");
        launcher
    }

    fn event(&mut self) -> (Event, Vec<OwnedFd>) {
        self.launcher.receive(&mut Vec::new()).unwrap().unwrap()
    }

    /// Returns the first matching event; waits for it if necessary.
    pub(crate) fn await_event(&mut self, fits: impl Fn(&Event) -> bool) -> (Event, Vec<OwnedFd>) {
        if let Some(index) = self.events.iter().position(|(event, _)| fits(event)) {
            return self.events.remove(index).unwrap();
        }
        loop {
            let received = self.event();
            if fits(&received.0) {
                return received;
            }
            self.events.push_back(received);
        }
    }

    /// Returns `true` if a matching event was received while waiting for another one.
    pub(crate) fn has_come(&self, fits: impl Fn(&Event) -> bool) -> bool {
        self.events.iter().any(|(event, _)| fits(event))
    }

    /// Spawns a guest and waits until it runs.
    pub(crate) fn spawn(&mut self, wish: &Wish<'_>) -> Result<Guest, Failure> {
        let begun = self.begin(wish);
        self.finish(begun)
    }

    /// Spawns a session.
    pub(crate) fn session(&mut self) -> Guest {
        self.spawn(&Wish::new(plain_session())).unwrap()
    }

    /// Makes a session call `fork()`, and spawns the fork.
    pub(crate) fn fork(&mut self, session: &mut Guest) -> Result<Guest, Failure> {
        self.fork_as(session, &Wish::new(Origin::ForkOf { of: session.id }))
    }

    pub(crate) fn fork_as(&mut self, session: &mut Guest, wish: &Wish<'_>) -> Result<Guest, Failure> {
        session.send("result = fork()");
        let begun = self.begin(wish);
        let told = session.receive();
        let mut fork = self.finish(begun)?;
        assert_eq!((told.as_str(), fork.receive().as_str()), ("0", "3"));
        Ok(fork)
    }

    /// Sends a spawn command.
    pub(crate) fn begin(&mut self, wish: &Wish<'_>) -> PendingGuest {
        let id = self.next;
        self.next += 1;
        let (stdin_theirs, stdin) = output_pipe().unwrap();
        let (stdout, stdout_theirs) = output_pipe().unwrap();
        let (stderr, stderr_theirs) = output_pipe().unwrap();
        let (control, control_theirs) = control_pair().unwrap();
        ExitListener::expect(control.as_fd()).unwrap();
        let given = [&stdin_theirs, &stdout_theirs, &stderr_theirs, &control_theirs];
        let mut fds: Vec<BorrowedFd<'_>> = given.map(AsFd::as_fd).into();
        fds.extend(wish.group.iter().flat_map(|group| group.procs()).map(AsFd::as_fd));
        let spawn = Spawn {
            id,
            guest: wish.origin.clone(),
            code: None,
            confinement: confinement(wish),
            disk_bytes: wish.disk_bytes,
            listen: None,
            waits: false,
        };
        self.launcher
            .send(&Command::Spawn(Box::new(spawn)), &fds)
            .unwrap();
        let control = UnixStream::from(control);
        control.set_nonblocking(false).unwrap();
        // Timeout for tests that would hang otherwise.
        control.set_read_timeout(Some(PATIENCE)).unwrap();
        PendingGuest {
            id,
            control,
            pipes: [stdin, stdout, stderr],
        }
    }

    pub(crate) fn finish(&mut self, begun: PendingGuest) -> Result<Guest, Failure> {
        let about = begun.id;
        let told = self.await_event(|event| match event {
            Event::Spawned { id, .. } | Event::Failed { id, .. } => *id == about,
            _ => false,
        });
        let [stdin, stdout, stderr] = begun.pipes;
        match told {
            (Event::Spawned { applied, .. }, fds) => Ok(Guest {
                id: about,
                control: begun.control,
                applied,
                output: fds.into_iter().next().unwrap(),
                stdin,
                stdout,
                stderr,
            }),
            (Event::Failed { step, errno, .. }, _) => Err((step, errno)),
            other => panic!("{other:?}"),
        }
    }

    /// Returns the failure of a spawn.
    pub(crate) fn begin_and_fail(&mut self, wish: &Wish<'_>) -> Failure {
        let begun = self.begin(wish);
        self.finish(begun).err().unwrap()
    }

    pub(crate) fn kill(&mut self, id: u64) {
        self.launcher.send(&Command::Kill { id }, &[]).unwrap();
    }

    /// Returns the exit status of a guest.
    pub(crate) fn await_exit(&mut self, about: u64) -> i32 {
        match self.await_event(|event| matches!(event, Event::Exited { id, .. } if *id == about)) {
            (Event::Exited { status, .. }, _) => status,
            other => panic!("{other:?}"),
        }
    }

    pub(crate) fn await_gone(&mut self, about: u64) {
        self.await_event(|event| matches!(event, Event::Gone { id } if *id == about));
    }

    /// Kills a guest and waits for its clean-up.
    pub(crate) fn end(&mut self, id: u64) {
        self.kill(id);
        self.await_exit(id);
        self.await_gone(id);
    }

    /// Waits until the launcher has this number of descendants: orphans are reaped when their parent is
    /// scheduled.
    #[track_caller]
    pub(crate) fn await_processes(&self, count: usize) {
        let deadline = Instant::now() + PATIENCE;
        while self.processes().len() != count {
            assert!(Instant::now() < deadline, "{:?}, not {count}", self.processes());
            std::thread::yield_now();
        }
    }

    /// Returns `true` if a descendant of the launcher is in a system call.
    pub(crate) fn has_process_in(&self, call: &str) -> bool {
        self.waiting_in(call).next().is_some()
    }

    /// Returns `true` if a descendant of the launcher is in a system call, with one of these signals pending.
    pub(crate) fn has_pending_signal(&self, call: &str, signals: u64) -> bool {
        self.waiting_in(call).any(|pid| {
            let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
            let pending = status.lines().find_map(|line| line.strip_prefix("ShdPnd:"));
            pending.is_some_and(|mask| u64::from_str_radix(mask.trim(), 16).unwrap() & signals != 0)
        })
    }

    fn waiting_in(&self, call: &str) -> impl Iterator<Item = u32> + use<> {
        let number = match (call, cfg!(target_arch = "x86_64")) {
            ("exit_group", true) => "231 ",
            ("exit_group", false) => "94 ",
            (other, _) => panic!("{other}"),
        };
        let is_in = move |pid: &u32| {
            let found = std::fs::read_to_string(format!("/proc/{pid}/syscall"));
            found.is_ok_and(|found| found.starts_with(number))
        };
        self.processes().into_iter().filter(is_in)
    }

    /// Lists the descendants of the launcher, by their process ids on the host.
    pub(crate) fn processes(&self) -> Vec<u32> {
        let mut found = vec![self.launcher.id()];
        let mut next = 0;
        while next < found.len() {
            let path = format!("/proc/{0}/task/{0}/children", found[next]);
            let list = std::fs::read_to_string(path).unwrap_or_default();
            found.extend(list.split_whitespace().map(|pid| pid.parse::<u32>().unwrap()));
            next += 1;
        }
        found.split_off(1)
    }
}

/// Timeout for events that happen soon on an idle machine.
pub(crate) const PATIENCE: Duration = Duration::from_secs(30);

/// A guest whose spawn command was sent.
pub(crate) struct PendingGuest {
    pub(crate) id: u64,
    pub(crate) control: UnixStream,
    pipes: [OwnedFd; 3],
}

impl Guest {
    pub(crate) fn send(&mut self, code: &str) {
        let length = (code.len() as u32).to_le_bytes();
        self.control.write_all(&length).unwrap();
        self.control.write_all(code.as_bytes()).unwrap();
    }

    pub(crate) fn receive(&mut self) -> String {
        receive(&mut self.control)
    }

    /// Runs some code, and returns the value of `result`.
    pub(crate) fn evaluate(&mut self, code: &str) -> String {
        self.send(code);
        self.receive()
    }

    /// Returns everything that it prints until its end.
    pub(crate) fn printed(self) -> (String, String) {
        drop((self.stdin, self.control));
        let read = |pipe: OwnedFd| {
            let mut text = String::new();
            File::from(pipe).read_to_string(&mut text).unwrap();
            text
        };
        (read(self.stdout), read(self.stderr))
    }
}

pub(crate) fn receive(control: &mut UnixStream) -> String {
    let mut length = [0; 4];
    control.read_exact(&mut length).unwrap();
    let mut text = vec![0; u32::from_le_bytes(length) as usize];
    control.read_exact(&mut text).unwrap();
    String::from_utf8(text).unwrap()
}

fn template() -> Template {
    let mut binds = Vec::new();
    let mut links = vec![("/dev/fd".into(), "/proc/self/fd".into())];
    for path in ["/usr", "/bin", "/lib", "/lib64", "/sbin"].map(Path::new) {
        match std::fs::read_link(path) {
            Ok(target) => links.push((path.to_path_buf(), target)),
            Err(_) => binds.push(Bind {
                host: path.into(),
                guest: path.into(),
                writable: false,
                guest_owns: false,
                optional: true,
                itself: false,
            }),
        }
    }
    let root = std::os::unix::fs::MetadataExt::uid(&std::fs::metadata("/proc/self").unwrap()) == 0;
    Template {
        directories: Vec::new(),
        host_ids: root.then_some(HostIds {
            first: 1 << 30,
            count: 65_536,
        }),
        binds,
        copies: vec!["/etc/ld.so.cache".into()],
        files: Vec::new(),
        links,
        writable_root: None,
    }
}

fn confinement(wish: &Wish<'_>) -> Confinement {
    let devices = [
        "/dev/null",
        "/dev/zero",
        "/dev/full",
        "/dev/random",
        "/dev/urandom",
    ];
    let paths = |paths: &[&str]| paths.iter().map(PathBuf::from).collect();
    let (readable, writable, forks) = if wish.movable {
        (paths(&[]), paths(&["/"]), Forks::IntoCells)
    } else {
        let readable = paths(&["/usr", "/bin", "/lib", "/lib64", "/etc", "/proc"]);
        (
            readable,
            paths(&["/workspace", "/tmp", "/output", "/dev/shm"]),
            Forks::Never,
        )
    };
    Confinement {
        working_directory: "/workspace".into(),
        ids: Some((GUEST_ID, GUEST_ID)),
        rlimits: Some(Rlimits {
            file_size: 1 << 30,
            open_files: 1024,
            processes: None,
            data: None,
            cpu_seconds: None,
        }),
        missing: Missing::Refuse,
        landlock: Some(LandlockRules {
            readable,
            writable,
            entries: Vec::new(),
            devices: devices.map(PathBuf::from).into(),
            ..LandlockRules::default()
        }),
        surface: Surface {
            sockets: Sockets::Unix,
            ipc: Ipc::Own,
            forks,
            exits: wish.exits,
            users: Users::One,
        },
    }
}

/// Returns the kind of a session that sees its whole cell.
pub(crate) fn plain_session() -> Origin {
    Origin::Session { hidden: Vec::new() }
}
