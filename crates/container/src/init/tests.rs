//! Tests the init against the host side of its protocol, as the first process of a pid namespace, with this
//! machine's Python.

mod engines;
mod network;
mod reach;
mod short;

#[expect(clippy::disallowed_methods, reason = "it plays the container engine")]
#[path = "../../../jail/tests/init/bubblewrap.rs"]
mod bubblewrap;

use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream as StdStream;
use std::process::Child;

use ringfence_exec::local::{Chunk, Connection, Stream};
use ringfence_policy::{Bytes, Language, Limits, Outcome, Request};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, DuplexStream};
use tokio::net::UnixStream;
use tokio::sync::{mpsc, watch};
use tokio::task::JoinSet;

use self::bubblewrap::bubblewrap;
use super::*;

/// An init in a pid namespace, without a container engine.
struct Container {
    init: InitClient,
    process: Child,
    carriers: JoinSet<InitLost>,
    _place: tempfile::TempDir,
}

/// Connects to an init, whose frames are carried in the returned tasks.
async fn connected(
    reader: impl AsyncRead + Send + Unpin + 'static,
    writer: impl AsyncWrite + Send + Unpin + 'static,
) -> (InitClient, JoinSet<InitLost>) {
    let (init, carrier) = connect(reader, writer, Greeting::of_runs(Interpreter::Warm, Vec::new()))
        .await
        .unwrap();
    let mut carriers = JoinSet::new();
    carriers.spawn(carrier.carry());
    (init, carriers)
}

impl Container {
    async fn new() -> Self {
        let place = tempfile::tempdir().unwrap();
        let program = file(&place.path().join("init")).unwrap();
        let (ours, theirs) = StdStream::pair().unwrap();
        let process = bubblewrap(&program)
            .stdin(OwnedFd::from(theirs.try_clone().unwrap()))
            .stdout(OwnedFd::from(theirs))
            .spawn()
            .unwrap();
        ours.set_nonblocking(true).unwrap();
        let (reader, writer) = UnixStream::from_std(ours).unwrap().into_split();
        let (init, carriers) = connected(reader, writer).await;
        Self {
            init,
            process,
            carriers,
            _place: place,
        }
    }

    async fn run(&self, request: &Request) -> Finished {
        self.run_with(request, Connection::none()).await
    }

    async fn run_with(&self, request: &Request, connection: Connection) -> Finished {
        let start = start(request, "/tmp", connection.stdin.is_some()).unwrap();
        let keep = request.limits.max_output;
        self.init.run(start, keep, connection).await.unwrap()
    }

    /// Waits until Python guests are forked from the warm interpreter.
    async fn warm(&self) {
        while !self.run(&python("pass")).await.warm {}
    }
}

impl Drop for Container {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

fn request(language: Language, name: &str, code: &str) -> Request {
    Request {
        name: name.to_owned(),
        ..Request::new(language, code)
    }
}

fn python(code: &str) -> Request {
    request(Language::Python, "main.py", code)
}

fn bash(code: &str) -> Request {
    request(Language::Bash, "main.sh", code)
}

fn timed(request: Request, millis: u64) -> Request {
    let timeout = format!("{millis}ms").parse().unwrap();
    let limits = Limits {
        timeout,
        ..request.limits
    };
    Request { limits, ..request }
}

#[track_caller]
fn ended(finished: &Finished, status: i32, stdout: &str) {
    assert_eq!(
        (
            finished.outcome,
            finished.exit_code,
            finished.stdout.text.as_str()
        ),
        (Outcome::Exited, status, stdout),
        "{finished:?}"
    );
}

#[tokio::test]
async fn python_is_warm_and_tells_its_errors_as_python_does() {
    let container = Container::new().await;
    container.warm().await;
    let hello = container.run(&python("print('hello')")).await;
    ended(&hello, 0, "hello\n");
    assert!(hello.warm && hello.cpu_seconds.is_some() && hello.peak_memory_bytes.is_some());
    let failed = container
        .run(&python("def f():\n    return 1 / 0\nprint(1)\nf()\n"))
        .await;
    ended(&failed, 1, "1\n");
    let expected = "Traceback (most recent call last):\n  File \"/code/main.py\", line 4, in <module>\n    f()\n  File \"/code/main.py\", line 2, in f\n    return 1 / 0\n";
    assert!(failed.stderr.text.starts_with(expected), "{}", failed.stderr.text);
    assert!(
        failed
            .stderr
            .text
            .ends_with("ZeroDivisionError: division by zero\n")
    );
    let syntax = container.run(&python("print(1)\nif x\n")).await;
    ended(&syntax, 1, "");
    assert!(
        syntax.stderr.text.contains("File \"/code/main.py\", line 2"),
        "{}",
        syntax.stderr.text
    );
    ended(&container.run(&python("import sys; sys.exit(7)")).await, 7, "");
    let said = container.run(&python("import sys; sys.exit('why')")).await;
    ended(&said, 1, "");
    assert_eq!(said.stderr.text, "why\n");
}

#[tokio::test]
async fn a_program_finds_its_arguments_its_directory_and_only_its_environment() {
    let container = Container::new().await;
    container.warm().await;
    let code = "import os, sys\nprint(sys.argv, os.getcwd(), sys.path[0], __name__, __file__)\nprint(sorted(os.environ), os.environ['K'])\n\
                print(os.listdir('/proc/self/fd'), os.umask(0), input())";
    let request = Request {
        args: vec!["a b".to_owned()],
        env: vec![("K".parse().unwrap(), "v".to_owned())],
        ..python(code)
    };
    let (sender, stdin) = mpsc::channel(1);
    sender.send(b"line\n".to_vec()).await.unwrap();
    drop(sender);
    let connection = Connection {
        stdin: Some(stdin),
        ..Connection::none()
    };
    let finished = container.run_with(&request, connection).await;
    let expected = "['/code/main.py', 'a b'] /tmp /tmp __main__ /code/main.py\n['HOME', 'K', 'LANG', 'PATH'] v\n['0', '1', '2', '3'] 18 line\n";
    ended(&finished, 0, expected);
    // No state leaks from call to call.
    ended(
        &container
            .run(&python(
                "print('K' in __import__('os').environ, 'os' in globals())",
            ))
            .await,
        0,
        "False False\n",
    );
}

#[tokio::test]
async fn a_deadline_ends_one_call_with_all_that_it_started() {
    let container = Container::new().await;
    container.warm().await;
    let code = "import subprocess\nsubprocess.Popen(['setsid', 'sleep', '1000'])\nprint(1)\nwhile True: pass";
    let finished = container.run(&timed(python(code), 500)).await;
    assert_eq!((finished.outcome, finished.exit_code), (Outcome::TimedOut, -1));
    assert_eq!(finished.stdout.text, "1\n");
    let left = container.run(&bash("cat /proc/[0-9]*/comm")).await;
    assert!(!left.stdout.text.contains("sleep"), "{}", left.stdout.text);
    ended(&container.run(&python("print(2)")).await, 0, "2\n");
}

#[tokio::test]
async fn what_a_program_leaves_behind_ends_with_it_and_is_reaped() {
    let container = Container::new().await;
    container.warm().await;
    let code = "import os, time\nif os.fork() == 0:\n    os.setsid()\n    if os.fork() == 0:\n        time.sleep(1000)\n    os._exit(0)\nprint('parent')";
    ended(&container.run(&python(code)).await, 0, "parent\n");
    let states = container
        .run(&bash(
            "grep -h ^State: /proc/[0-9]*/status; cat /proc/[0-9]*/comm",
        ))
        .await;
    assert!(!states.stdout.text.contains("zombie"), "{}", states.stdout.text);
    // The init, the warm interpreter, at most four idle guests, a supervisor, bash and its child.
    let processes = states
        .stdout
        .text
        .lines()
        .filter(|line| !line.starts_with("State:"));
    assert!(processes.count() <= 9, "{}", states.stdout.text);
}

#[tokio::test]
async fn who_kills_everybody_is_told_as_unknown_and_python_is_warm_again() {
    let container = Container::new().await;
    container.warm().await;
    let code = "import os\nprint('here', flush=True)\nos.kill(-1, 9)\nprint('still here')";
    let finished = container.run(&python(code)).await;
    assert_eq!((finished.outcome, finished.exit_code), (Outcome::Unknown, 125));
    assert!(finished.stdout.text.starts_with("here\n"), "{finished:?}");
    assert!(finished.warning.is_some());
    container.warm().await;
    ended(&container.run(&python("print(2)")).await, 0, "2\n");
}

#[tokio::test]
async fn nobody_gets_into_the_warm_interpreter_or_what_waits() {
    let container = Container::new().await;
    container.warm().await;
    let code = "import os\nopened = set()\nfor p in filter(str.isdigit, os.listdir('/proc')):\n    for name in 'mem', 'environ', 'fd/0', 'fd/3', 'cwd/.':\n        \
                try:\n            os.close(os.open(f'/proc/{p}/{name}', os.O_RDONLY | os.O_NONBLOCK))\n            opened.add(int(p) == os.getpid())\n        \
                except OSError:\n            pass\nprint(opened)";
    ended(&container.run(&python(code)).await, 0, "{True}\n");
}

#[tokio::test]
async fn what_a_program_prints_is_no_frame() {
    let container = Container::new().await;
    let mut frame = Vec::new();
    Report::Broken("forged".to_owned()).write(&Secret::default(), &mut frame);
    let code = format!(
        "import os\nfor fd in range(64):\n    try: os.write(fd, {:?})\n    except OSError: pass",
        Forged(&frame)
    );
    let finished = container.run(&python(&code)).await;
    assert_eq!((finished.outcome, finished.exit_code), (Outcome::Exited, 0));
    assert_eq!(finished.stdout.total_bytes, frame.len() as u64);
    ended(&container.run(&python("print(2)")).await, 0, "2\n");
}

/// Bytes, formatted as a Python literal.
struct Forged<'a>(&'a [u8]);

impl std::fmt::Debug for Forged<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "bytes({:?})", self.0)
    }
}

#[tokio::test]
async fn sixteen_calls_run_at_once() {
    let container = Container::new().await;
    container.warm().await;
    // Each of them waits for a line that arrives only when all of them run.
    let mut senders = Vec::new();
    let mut running = JoinSet::new();
    for number in 0..16 {
        let (sender, stdin) = mpsc::channel(1);
        senders.push(sender);
        let init = container.init.clone();
        let (output, mut heard) = mpsc::channel(4);
        let request = python(&format!("print({number}, flush=True)\nprint(input())"));
        running.spawn(async move {
            let connection = Connection {
                stdin: Some(stdin),
                output: Some(output),
                cancelled: None,
                bridge: None,
            };
            let start = start(&request, "/tmp", true).unwrap();
            let finished = init.run(start, Bytes::kib(1), connection).await.unwrap();
            ended(&finished, 0, &format!("{number}\nline {number}\n"));
        });
        let chunk: Chunk = heard.recv().await.unwrap();
        assert_eq!(
            (chunk.stream, chunk.bytes),
            (Stream::Stdout, format!("{number}\n").into_bytes())
        );
        running.spawn(async move { while heard.recv().await.is_some() {} });
    }
    for (number, sender) in senders.into_iter().enumerate() {
        sender
            .send(format!("line {number}\n").into_bytes())
            .await
            .unwrap();
    }
    while let Some(joined) = running.join_next().await {
        joined.unwrap();
    }
    assert_eq!(container.init.running(), 0);
}

#[tokio::test]
async fn much_output_is_cut_and_counted() {
    let container = Container::new().await;
    let finished = container.run(&python("print('x' * 20_000_000)")).await;
    assert_eq!(finished.stdout.total_bytes, 20_000_001);
    assert!(finished.stdout.truncated && finished.stdout.text.len() < 11_000);
}

#[tokio::test]
async fn much_input_reaches_the_program() {
    let container = Container::new().await;
    let (sender, stdin) = mpsc::channel(1);
    let connection = Connection {
        stdin: Some(stdin),
        ..Connection::none()
    };
    let request = python("import sys\nprint(len(sys.stdin.read()))");
    let sending = async move {
        for _ in 0..10 {
            sender.send(vec![b'x'; 300_000]).await.unwrap();
        }
    };
    let (finished, ()) = tokio::join!(container.run_with(&request, connection), sending);
    ended(&finished, 0, "3000000\n");
}

#[tokio::test]
async fn a_caller_may_take_its_call_back() {
    let container = Container::new().await;
    let (cancel, cancelled) = watch::channel(false);
    let (output, mut heard) = mpsc::channel(1);
    let connection = Connection {
        stdin: None,
        output: Some(output),
        cancelled: Some(cancelled),
        bridge: None,
    };
    let cancelling = async {
        heard.recv().await.unwrap();
        cancel.send(true).unwrap();
    };
    let request = bash("echo up; sleep 1000");
    let (finished, ()) = tokio::join!(container.run_with(&request, connection), cancelling);
    assert_eq!((finished.outcome, finished.exit_code), (Outcome::Cancelled, -9));
}

#[tokio::test]
async fn a_call_that_nobody_waits_for_is_killed() {
    let container = Container::new().await;
    let (output, mut heard) = mpsc::channel(1);
    let connection = Connection {
        output: Some(output),
        ..Connection::none()
    };
    let request = bash("echo up; cat /dev/zero");
    tokio::select! {
        finished = container.run_with(&request, connection) => panic!("{finished:?}"),
        chunk = heard.recv() => assert!(chunk.is_some()),
    }
    let code = "while grep -q cat /proc/[0-9]*/comm 2>/dev/null; do :; done; echo gone";
    ended(&container.run(&bash(code)).await, 0, "gone\n");
}

#[tokio::test]
async fn who_watches_and_does_not_read_holds_up_its_own_call_only() {
    let container = Container::new().await;
    let (output, heard) = mpsc::channel(1);
    let connection = Connection {
        output: Some(output),
        ..Connection::none()
    };
    let flood = timed(bash("cat /dev/zero"), 1500);
    let other = bash("echo other");
    let (flooded, other) = tokio::join!(container.run_with(&flood, connection), async {
        let other = container.run(&other).await;
        // The reader is dropped once the other call has ended, so that the flooding call need not run into
        // its timeout.
        drop(heard);
        other
    });
    ended(&other, 0, "other\n");
    assert_eq!(flooded.outcome, Outcome::TimedOut);
}

#[tokio::test]
async fn when_the_container_dies_calls_end_as_unknown() {
    let mut container = Container::new().await;
    let (output, mut heard) = mpsc::channel(1);
    let connection = Connection {
        output: Some(output),
        ..Connection::none()
    };
    let init = container.init.clone();
    let start = start(&bash("echo up; sleep 1000"), "/tmp", false).unwrap();
    let running = init.run(start.clone(), Bytes::kib(1), connection);
    let process = &mut container.process;
    let (finished, ()) = tokio::join!(running, async {
        heard.recv().await.unwrap();
        process.kill().unwrap();
    });
    let finished = finished.unwrap();
    assert_eq!((finished.outcome, finished.exit_code), (Outcome::Unknown, 125));
    assert_eq!(finished.stdout.text, "up\n");
    assert_eq!(
        container.carriers.join_next().await.unwrap().unwrap(),
        InitLost::Gone
    );
    let refused = init.run(start, Bytes::kib(1), Connection::none()).await;
    assert_eq!(refused.unwrap_err(), NotRun::InitLost(InitLost::Gone));
}

#[tokio::test]
async fn an_init_that_is_let_go_ends() {
    let mut container = Container::new().await;
    container.init.release();
    assert_eq!(
        container.carriers.join_next().await.unwrap().unwrap(),
        InitLost::Released
    );
    assert!(container.process.wait().unwrap().success());
}

/// The other end of a connection, for tests of a misbehaving init.
struct Impostor {
    init: Result<InitClient, InitLost>,
    stream: DuplexStream,
    secret: Secret,
    carriers: JoinSet<InitLost>,
}

impl Impostor {
    async fn new(first: Report) -> Self {
        let (ours, mut stream) = tokio::io::duplex(1 << 20);
        let (reader, writer) = tokio::io::split(ours);
        let answering = async {
            let mut heard = FrameReader::default();
            let hello = loop {
                if let Some(InitRequest::Hello(hello)) = heard.order().unwrap() {
                    break hello;
                }
                let mut buffer = [0; 4096];
                let count = stream.read(&mut buffer).await.unwrap();
                heard.push(&buffer[..count]);
            };
            let mut bytes = Vec::new();
            first.write(&hello.secret, &mut bytes);
            stream.write_all(&bytes).await.unwrap();
            hello.secret
        };
        let (connected, secret) = tokio::join!(
            connect(reader, writer, Greeting::of_runs(Interpreter::Warm, Vec::new())),
            answering
        );
        let mut carriers = JoinSet::new();
        let init = connected.map(|(init, carrier)| {
            carriers.spawn(carrier.carry());
            init
        });
        Self {
            init,
            stream,
            secret,
            carriers,
        }
    }
}

fn ready(version: u32) -> Report {
    Report::Ready(Ready {
        version,
        ..Ready::default()
    })
}

#[tokio::test]
async fn another_version_is_refused() {
    let impostor = Impostor::new(ready(VERSION + 1)).await;
    assert_eq!(impostor.init.unwrap_err(), InitLost::Version(VERSION + 1));
}

#[tokio::test]
async fn an_init_that_sends_nonsense_is_believed_nothing_more() {
    let output = |length| Report::Output {
        call: 1,
        stream: ringfence_jail::init::frames::Stream::Stdout,
        bytes: vec![0; length],
    };
    let too_much: Vec<Report> = (0..5).map(|_| output(60_000)).collect();
    for (reports, why) in [
        (too_much, "more output than there was credit for"),
        (
            vec![Report::Taken { call: 1, bytes: 1 }],
            "more input taken than there was",
        ),
        (vec![ready(VERSION)], "it was ready before"),
    ] {
        let mut impostor = Impostor::new(ready(VERSION)).await;
        let init = impostor.init.unwrap();
        let call = start(&timed(bash(""), 60_000), "/", false).unwrap();
        let lying = async {
            // Before it has received the call, its reports would belong to no call.
            impostor.stream.read_u8().await.unwrap();
            let mut bytes = Vec::new();
            for report in &reports {
                report.write(&impostor.secret, &mut bytes);
            }
            impostor.stream.write_all(&bytes).await.unwrap();
        };
        let watcher = mpsc::channel(1);
        let connection = Connection {
            output: Some(watcher.0),
            ..Connection::none()
        };
        let (finished, ()) = tokio::join!(init.run(call, Bytes::kib(1), connection), lying);
        assert_eq!(finished.unwrap().outcome, Outcome::Unknown);
        let parted = impostor.carriers.join_next().await.unwrap().unwrap();
        assert_eq!(parted, InitLost::Senseless(why.to_owned()));
    }
}

#[tokio::test(start_paused = true)]
async fn an_init_that_does_not_end_a_call_in_time_is_given_up() {
    let mut impostor = Impostor::new(ready(VERSION)).await;
    let init = impostor.init.unwrap();
    let call = start(&timed(bash(""), 1000), "/", false).unwrap();
    let finished = init.run(call, Bytes::kib(1), Connection::none()).await.unwrap();
    assert_eq!(finished.outcome, Outcome::Unknown);
    let parted = impostor.carriers.join_next().await.unwrap().unwrap();
    assert_eq!(parted, InitLost::Silent);
    // Its input ends, which would end an honest init.
    let mut rest = Vec::new();
    impostor.stream.read_to_end(&mut rest).await.unwrap();
}

#[tokio::test]
async fn a_call_that_no_byte_was_sent_of_was_not_run() {
    let mut impostor = Impostor::new(ready(VERSION)).await;
    let init = impostor.init.unwrap();
    let call = |code| start(&bash(code), "/", false).unwrap();
    let run = |code| init.run(call(code), Bytes::kib(1), Connection::none());
    // The carrier is aborted before it runs for the first time.
    let (never, ()) = tokio::join!(run("never"), async {
        impostor.carriers.abort_all();
        while impostor.carriers.join_next().await.is_some() {}
        init.release();
    });
    assert_eq!(never.unwrap_err(), NotRun::InitLost(InitLost::Released));
    assert_eq!(
        run("never").await.unwrap_err(),
        NotRun::InitLost(InitLost::Released)
    );
}

#[tokio::test]
async fn what_is_too_long_for_a_frame_is_refused_and_sends_nothing() {
    let impostor = Impostor::new(ready(VERSION)).await;
    let init = impostor.init.unwrap();
    let call = start(&python(&"x".repeat(9 << 20)), "/", false).unwrap();
    let refused = init.run(call, Bytes::kib(1), Connection::none()).await;
    assert_eq!(refused.unwrap_err(), NotRun::TooLong);
    assert_eq!(init.running(), 0);
}

#[tokio::test]
async fn what_is_not_there_is_told_with_what_to_do() {
    let container = Container::new().await;
    let request = Request {
        args: vec!["no-such-program".to_owned()],
        ..request(Language::Command, "", "")
    };
    let call = start(&request, "/tmp", false).unwrap();
    let refused = container
        .init
        .run(call, Bytes::kib(1), Connection::none())
        .await
        .unwrap_err();
    let message = "cannot find the program in the container: No such file or directory (os error 2)";
    assert_eq!(refused.to_string(), message);
    assert!(refused.hint().contains("image"));
    assert!(
        io::Error::from_raw_os_error(2)
            .to_string()
            .contains("No such file")
    );
}
