//! Tests the container init as process 1 of a namespace, against programs that try to escape it.
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    reason = "a helper of a test is a test, too"
)]
#![expect(
    clippy::disallowed_methods,
    reason = "the init is started in namespaces of its own, as a container engine does"
)]

mod bubblewrap;
mod files;
mod network;

use std::io::{Read, Write};
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Stdio};
use std::time::{Duration, Instant};

use ringfence_jail::init::frames::{
    Cut, End, Fate, FrameReader, HEADER, Hello, INPUT_WINDOW, InitRequest, Leftovers, OUTPUT_WINDOW, Program,
    Ready, Report, Secret, Start, Stream, VERSION,
};
use ringfence_jail::{MountPoint, Mounted};

use crate::bubblewrap::bubblewrap;

const SECRET: Secret = *b"0123456789abcdef";

/// A container init in a container without a container engine.
struct Container {
    process: Child,
    input: Option<ChildStdin>,
    output: ChildStdout,
    reader: FrameReader,
    next: u32,
}

/// The outcome of a call.
#[derive(Debug)]
struct Outcome {
    end: End,
    stdout: String,
    stderr: String,
}

impl Container {
    fn silent() -> Self {
        let init = env!("CARGO_BIN_EXE_ringfence-init");
        let mut process = bubblewrap(Path::new(init))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        Self {
            input: process.stdin.take(),
            output: process.stdout.take().unwrap(),
            process,
            reader: FrameReader::of_init(SECRET),
            next: 1,
        }
    }

    /// Creates a container without Python.
    fn new() -> Self {
        let mut container = Self::silent();
        container.send(&InitRequest::Hello(Hello {
            version: VERSION,
            secret: SECRET,
            python: Vec::new(),
            output: String::new(),
            mount_points: vec!["/proc".to_owned(), "/none".to_owned()],
            leftovers: Leftovers::Kill,
        }));
        let Some(Report::Ready(ready)) = container.receive() else {
            panic!("it is not ready")
        };
        let bash = ready.bash.clone();
        assert!(bash.is_some_and(|bash| bash.ends_with("/bash")));
        let [proc, none] = <[MountPoint; 2]>::try_from(ready.mount_points).unwrap();
        assert!(proc.file.is_some() && proc.mounted == Mounted::Writable);
        assert_eq!((none.file, none.mounted), (None, Mounted::Nothing));
        assert_eq!((ready.version, ready.python), (VERSION, None));
        container
    }

    fn send(&mut self, order: &InitRequest) {
        let mut bytes = Vec::new();
        order.write(&mut bytes);
        self.input.as_mut().unwrap().write_all(&bytes).unwrap();
    }

    fn receive(&mut self) -> Option<Report> {
        let mut buffer = [0; 4096];
        loop {
            if let Some(report) = self.reader.report().unwrap() {
                return Some(report);
            }
            match self.output.read(&mut buffer).unwrap() {
                0 => return None,
                count => self.reader.push(&buffer[..count]),
            }
        }
    }

    fn begin(&mut self, start: Start) -> u32 {
        let call = self.next;
        self.next += 1;
        let start = Box::new(start);
        self.send(&InitRequest::Start { call, start });
        call
    }

    /// Receives until a call has ended, and grants credit for its output.
    fn finish(&mut self, wanted: u32) -> Outcome {
        let (mut stdout, mut stderr) = (Vec::new(), Vec::new());
        loop {
            match self.receive().unwrap() {
                Report::Output { call, stream, bytes } if call == wanted => {
                    let length = bytes.len() as u32;
                    match stream {
                        Stream::Stdout => stdout.extend(bytes),
                        Stream::Stderr => stderr.extend(bytes),
                    }
                    self.send(&InitRequest::Credit { call, bytes: length });
                }
                Report::End { call, end } if call == wanted => {
                    return Outcome {
                        end,
                        stdout: String::from_utf8(stdout).unwrap(),
                        stderr: String::from_utf8(stderr).unwrap(),
                    };
                }
                Report::Taken { .. }
                | Report::Started { .. }
                | Report::Received { .. }
                | Report::Delivered { .. }
                | Report::Dropped { .. } => {}
                other => panic!("{other:?}"),
            }
        }
    }

    fn bash(&mut self, code: &str) -> Outcome {
        let call = self.begin(bash(code));
        self.finish(call)
    }

    /// Returns the names of the processes in the container, except the one that lists them.
    fn processes(&mut self) -> Vec<String> {
        let found = self
            .bash("for p in /proc/[0-9]*; do [ $p = /proc/$$ ] || { read -r n < $p/comm; echo $n; }; done");
        found.stdout.lines().map(str::to_owned).collect()
    }

    /// Waits until only our own processes are there. The supervisor of a call may outlive its report for a moment.
    #[track_caller]
    fn wait_until_quiet(&mut self) {
        let deadline = Instant::now() + Duration::from_secs(30);
        loop {
            let found = self.processes();
            if found == QUIET {
                return;
            }
            assert!(Instant::now() < deadline, "{found:?}");
        }
    }
}

impl Drop for Container {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

fn start(program: Program) -> Start {
    Start::new(program, "/tmp", Duration::from_secs(60))
}

fn bash(code: &str) -> Start {
    start(Program::Bash {
        name: "main.sh".to_owned(),
        code: code.to_owned(),
    })
}

/// The init and the supervisor of the listing process.
const QUIET: [&str; 2] = ["init", "init"];

#[test]
fn a_script_runs_as_it_was_asked_to() {
    let mut container = Container::new();
    let call = container.begin(Start {
        arguments: vec!["a b".to_owned()],
        environment: vec![("K".to_owned(), "v".to_owned())],
        directory: "/usr".to_owned(),
        ..bash("echo $0 \"$1\" $K $PWD; umask; echo err >&2; ls /proc/self/fd; exit 3")
    });
    let outcome = container.finish(call);
    assert_eq!(outcome.end.fate, Fate::Ended(3));
    // The last file descriptor is the directory being listed.
    assert_eq!(outcome.stdout, "main.sh a b v /usr\n0022\n0\n1\n2\n3\n");
    assert_eq!(outcome.stderr, "err\n");
    assert_eq!((outcome.end.cut, outcome.end.left), (Cut::No, false));
    assert!(outcome.end.cpu_micros > 0 && outcome.end.max_rss > 0);
}

#[test]
fn a_program_gets_only_the_environment_that_it_was_given() {
    let mut container = Container::new();
    let call = container.begin(start(Program::Command("env".to_owned())));
    let outcome = container.finish(call);
    let mut names: Vec<&str> = outcome
        .stdout
        .lines()
        .filter_map(|line| line.split('=').next())
        .collect();
    names.sort_unstable();
    assert_eq!(names, ["HOME", "LANG", "PATH"]);
}

#[test]
fn what_cannot_be_started_says_why() {
    let mut container = Container::new();
    let mut fate = |start: Start| {
        let call = container.begin(start);
        container.finish(call).end.fate
    };
    let failed = |step: &str, errno| Fate::NotStarted {
        step: step.to_owned(),
        errno,
    };
    let command = |name: &str| start(Program::Command(name.to_owned()));
    assert_eq!(
        fate(command("no-such-program")),
        failed("find the program", libc::ENOENT)
    );
    assert_eq!(
        fate(command("/etc/passwd")),
        failed("start the program", libc::EACCES)
    );
    let elsewhere = Start {
        directory: "/no-such-directory".to_owned(),
        ..command("env")
    };
    assert_eq!(
        fate(elsewhere),
        failed("enter the working directory", libc::ENOENT)
    );
    let python = start(Program::Python {
        name: "main.py".to_owned(),
        code: String::new(),
    });
    assert_eq!(fate(python), failed("find python3", libc::ENOENT));
    assert_eq!(
        fate(command("a\0b/")),
        failed("pass on an argument or a variable", libc::EIO)
    );
}

#[test]
fn a_signal_is_told_as_one() {
    let mut container = Container::new();
    assert_eq!(
        container.bash("kill -SEGV $$").end.fate,
        Fate::Ended(-libc::SIGSEGV)
    );
}

#[test]
fn at_its_deadline_a_call_goes_with_all_that_it_started() {
    let mut container = Container::new();
    let call = container.begin(Start {
        timeout: Duration::from_secs(2),
        ..bash("(setsid sleep 1000 &); sleep 1000 & echo $$; trap '' TERM; while :; do :; done")
    });
    let other = container.begin(Start {
        input: true,
        ..bash("read x; echo $x")
    });
    let outcome = container.finish(call);
    assert_eq!(
        (outcome.end.fate, outcome.end.cut),
        (Fate::Ended(-libc::SIGKILL), Cut::Deadline)
    );
    assert!(!outcome.stdout.is_empty());
    // Another call is unaffected.
    container.send(&InitRequest::Input {
        call: other,
        bytes: b"alive\n".to_vec(),
    });
    assert_eq!(container.finish(other).stdout, "alive\n");
    container.wait_until_quiet();
}

#[test]
fn what_a_program_leaves_behind_ends_with_it() {
    let mut container = Container::new();
    let outcome = container.bash("(setsid sleep 1000 &); sleep 1000 & exit 4");
    assert_eq!((outcome.end.fate, outcome.end.left), (Fate::Ended(4), true));
    container.wait_until_quiet();
}

#[test]
fn a_call_is_killed_when_that_is_wanted() {
    let mut container = Container::new();
    let call = container.begin(bash("sleep 1000"));
    container.send(&InitRequest::Kill { call });
    let end = container.finish(call).end;
    assert_eq!((end.fate, end.cut), (Fate::Ended(-libc::SIGKILL), Cut::Ordered));
}

#[test]
fn who_kills_everybody_ends_only_calls_and_nobody_lies_about_them() {
    let mut container = Container::new();
    container.begin(bash("sleep 1000"));
    container.begin(bash(
        "kill -KILL -1; kill -KILL 1; kill -TERM 1; kill -STOP 1; sleep 1000",
    ));
    for _ in 0..2 {
        let Some(Report::End { end, .. }) = container.receive() else {
            panic!("none of them ends")
        };
        assert_eq!(end.fate, Fate::Lost);
    }
    assert_eq!(container.bash("echo alive").stdout, "alive\n");
    container.wait_until_quiet();
}

#[test]
fn who_stops_its_supervisor_is_ended_in_time() {
    let mut container = Container::new();
    let call = container.begin(Start {
        timeout: Duration::from_millis(300),
        ..bash("kill -STOP $PPID; exit 5")
    });
    // It exited before its deadline, and the report says so.
    let end = container.finish(call).end;
    assert_eq!((end.fate, end.cut), (Fate::Ended(5), Cut::No));
    container.wait_until_quiet();
}

#[test]
fn nobody_looks_into_the_init_or_a_supervisor() {
    let mut container = Container::new();
    let looks = "for p in 1 $PPID $$; do for f in mem environ fd/0 fd/1 cwd; do \
                 [ -r /proc/$p/$f ] && exec 5</proc/$p/$f && echo $p $f; done; done 2>&1; :";
    let found = container.bash(&format!("echo $$; {looks}")).stdout;
    let (own, rest) = found.split_once('\n').unwrap();
    let opened: Vec<&str> = rest.lines().filter(|line| !line.contains("main.sh")).collect();
    // It opens its own, so that the failures mean something.
    let own = ["mem", "environ", "fd/0", "cwd"].map(|name| format!("{own} {name}"));
    assert!(own.iter().all(|own| opened.contains(&own.as_str())), "{found}");
    assert!(
        opened
            .iter()
            .all(|line| own[0].split(' ').next() == line.split(' ').next()),
        "{found}"
    );
}

#[test]
fn output_waits_for_credit_and_nobody_else_does() {
    let mut container = Container::new();
    let flood = container.begin(bash("head -c 3000000 /dev/zero; echo done >&2"));
    let mut printed = 0;
    while printed < OUTPUT_WINDOW as usize {
        match container.receive().unwrap() {
            Report::Output { call, bytes, .. } if call == flood => printed += bytes.len(),
            other => panic!("{other:?}"),
        }
    }
    assert_eq!(printed, OUTPUT_WINDOW as usize);
    // Without credit, another call gets its turn: `finish` accepts nothing else.
    assert_eq!(container.bash("echo other").stdout, "other\n");
    container.send(&InitRequest::Credit {
        call: flood,
        bytes: OUTPUT_WINDOW,
    });
    let outcome = container.finish(flood);
    assert_eq!(
        (printed + outcome.stdout.len(), outcome.stderr.as_str()),
        (3_000_000, "done\n")
    );
}

#[test]
fn input_is_passed_on_as_it_is_read() {
    let mut container = Container::new();
    let call = container.begin(Start {
        input: true,
        ..bash("head -c 1000000 | wc -c")
    });
    let (mut window, mut sent) = (INPUT_WINDOW, 0);
    while sent < 1_000_000 {
        if window == 0 {
            match container.receive().unwrap() {
                Report::Taken { bytes, .. } => window += bytes,
                other => panic!("{other:?}"),
            }
        }
        let bytes = vec![b'x'; window.min(50_000) as usize];
        (window, sent) = (window - bytes.len() as u32, sent + bytes.len());
        container.send(&InitRequest::Input { call, bytes });
    }
    container.send(&InitRequest::InputEnd { call });
    assert_eq!(container.finish(call).stdout.trim(), "1000000");
    let without = container.bash("cat; echo end");
    assert_eq!(without.stdout, "end\n");
}

#[test]
fn many_calls_run_at_once() {
    let mut container = Container::new();
    let waiting = Start {
        input: true,
        ..bash("read x; echo $x")
    };
    let calls: Vec<u32> = (0..16).map(|_| container.begin(waiting.clone())).collect();
    for call in calls.into_iter().rev() {
        container.send(&InitRequest::Input {
            call,
            bytes: format!("{call}\n").into(),
        });
        assert_eq!(container.finish(call).stdout, format!("{call}\n"));
    }
}

#[test]
fn what_makes_no_sense_ends_the_init() {
    let mut container = Container::new();
    container
        .input
        .as_mut()
        .unwrap()
        .write_all(&[0xff; HEADER])
        .unwrap();
    assert_eq!(
        container.receive(),
        Some(Report::Broken("frame of the unknown type 0xff".to_owned()))
    );
    assert_eq!(container.receive(), None);
    assert!(!container.process.wait().unwrap().success());
}

#[test]
fn without_an_engine_everything_ends() {
    let mut container = Container::new();
    container.begin(bash("trap '' HUP TERM PIPE; while :; do sleep 1000; done"));
    drop(container.input.take());
    assert_eq!(container.receive(), None);
    assert!(container.process.wait().unwrap().success());
}

#[test]
fn another_version_is_told_ours() {
    let mut container = Container::silent();
    container.send(&InitRequest::Hello(Hello {
        version: VERSION + 1,
        secret: SECRET,
        python: vec!["-c".to_owned()],
        output: String::new(),
        mount_points: Vec::new(),
        leftovers: Leftovers::Kill,
    }));
    let Some(Report::Ready(Ready { version, .. })) = container.receive() else {
        panic!("it says nothing")
    };
    assert_eq!(version, VERSION);
}
