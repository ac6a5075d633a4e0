//! Processes: output, status, input, signals, terminals, what they leave.

use ringfence_exec::local::Stream;
use ringfence_jail::init::frames::TerminalSize;
use ringfence_policy::{Bytes, Outcome, Timeout};
use ringfence_sandbox::output::{Item, Reader};
use ringfence_sandbox::process::{CommandLine, NewProcess, Stdin};
use ringfence_sandbox::{Error, NewSandbox};

use crate::support::{Test, line, run, say, with_server};

pub(crate) const TESTS: &[Test] = &[
    ("a_command_runs_and_files_stay", a_command_runs_and_files_stay),
    ("what_a_command_leaves_runs_on", what_a_command_leaves_runs_on),
    (
        "input_is_passed_on_until_it_is_closed",
        input_is_passed_on_until_it_is_closed,
    ),
    (
        "signals_and_limits_of_time_end_a_process",
        signals_and_limits_of_time_end_a_process,
    ),
    ("a_terminal_is_one", a_terminal_is_one),
    (
        "who_kills_everybody_does_not_end_the_sandbox",
        who_kills_everybody_does_not_end_the_sandbox,
    ),
    (
        "memory_has_a_limit_and_its_end_a_name",
        memory_has_a_limit_and_its_end_a_name,
    ),
    ("what_cannot_be_started_is_named", what_cannot_be_started_is_named),
    (
        "output_can_be_read_from_any_position",
        output_can_be_read_from_any_position,
    ),
];

fn a_command_runs_and_files_stay() {
    with_server(async |server| {
        let sandbox = server.sandbox().await;
        let ran = run(&sandbox, "echo out; echo err >&2; pwd; id -u; echo $HOME; exit 3").await;
        assert_eq!(ran.stdout.text, "out\n/workspace\n1000\n/workspace\n");
        assert_eq!((ran.stderr.text.as_str(), ran.end.exit_code), ("err\n", 3));
        say(&sandbox, "echo kept > ~/file").await;
        assert_eq!(say(&sandbox, "cat /workspace/file").await, "kept\n");
        let words = NewProcess {
            command: CommandLine::Words(["printf", "%s|", "a b", "$HOME"].map(str::to_owned).into()),
            env: [("K".to_owned(), "v".to_owned())].into(),
            cwd: Some("/tmp".to_owned()),
            ..NewProcess::default()
        };
        let ran = sandbox.run(words, Bytes::kib(1)).await.unwrap();
        assert_eq!(ran.stdout.text, "a b|$HOME|");
    });
}

fn what_a_command_leaves_runs_on() {
    with_server(async |server| {
        let sandbox = server.sandbox().await;
        let ran = run(&sandbox, "(sleep 1000; true) >/dev/null 2>&1 & echo $!").await;
        assert_eq!(ran.end.exit_code, 0);
        let pid = ran.stdout.text.trim().to_owned();
        assert_eq!(
            say(&sandbox, &format!("kill -0 {pid} && echo alive")).await,
            "alive\n"
        );
        say(
            &sandbox,
            &format!("kill -9 {pid}; while kill -0 {pid} 2>/dev/null; do :; done"),
        )
        .await;
        // It was reaped by the init: nothing is left but the shell that looks.
        assert_eq!(say(&sandbox, "ps -eo stat= | grep -c Z || true").await, "0\n");
    });
}

fn input_is_passed_on_until_it_is_closed() {
    with_server(async |server| {
        let sandbox = server.sandbox().await;
        let process = sandbox
            .start(NewProcess {
                stdin: Stdin::Open,
                ..line("wc -c")
            })
            .await
            .unwrap();
        for _ in 0..64 {
            assert!(process.write(vec![b'x'; 10_000]).await);
        }
        process.close_stdin();
        assert!(!process.write(vec![b'x']).await);
        let (printed, end) = all(process.output.read_from(0)).await;
        assert_eq!((printed.trim(), end), ("640000", Outcome::Exited));
        let empty = run(&sandbox, "cat; echo done").await;
        assert_eq!(empty.stdout.text, "done\n");
    });
}

/// Reads output to its end.
async fn all(mut reader: Reader) -> (String, Outcome) {
    let mut printed = Vec::new();
    loop {
        match reader.next().await.unwrap() {
            Item::Chunk { chunk, .. } => printed.extend(chunk.bytes),
            Item::Lost(bytes) => panic!("{bytes} bytes are lost"),
            Item::End(end) => return (String::from_utf8(printed).unwrap(), end.outcome),
        }
    }
}

fn signals_and_limits_of_time_end_a_process() {
    with_server(async |server| {
        let sandbox = server.sandbox().await;
        let process = sandbox
            .start(line(
                "trap 'echo told; exit 4' USR1; echo up; while :; do sleep 0.01; done",
            ))
            .await
            .unwrap();
        assert_eq!(sandbox.process(process.pid()).unwrap().pid(), process.pid());
        let mut reader = process.output.read_from(0);
        assert!(matches!(reader.next().await, Some(Item::Chunk { .. })));
        process.signal(10);
        let end = process.output.wait().await;
        assert_eq!((end.outcome, end.exit_code), (Outcome::Exited, 4));
        let process = sandbox.start(line("sleep 1000")).await.unwrap();
        process.kill();
        let end = process.output.wait().await;
        assert_eq!((end.outcome, end.exit_code), (Outcome::Cancelled, -9));
        let slow = NewProcess {
            timeout: Some(Timeout::try_from(0.2).unwrap()),
            ..line("sleep 1000")
        };
        let end = sandbox.run(slow, Bytes::kib(1)).await.unwrap().end;
        assert_eq!((end.outcome, end.exit_code), (Outcome::TimedOut, -1));
        let end = run(&sandbox, "kill -SEGV $$").await.end;
        assert_eq!((end.outcome, end.exit_code), (Outcome::Signalled, -11));
        assert!(matches!(sandbox.process(99_999), Err(Error::NoProcess(99_999))));
    });
}

fn a_terminal_is_one() {
    with_server(async |server| {
        let sandbox = server.sandbox().await;
        let size = TerminalSize {
            columns: 90,
            rows: 30,
        };
        let process = sandbox
            .start(NewProcess {
                stdin: Stdin::Open,
                terminal: Some(size),
                ..line("tty; stty size; trap 'stty size; exit 0' WINCH; read -r line; echo \"got $line\"; while :; do sleep 0.01; done")
            })
            .await
            .unwrap();
        process.write(b"hello\r".to_vec()).await;
        let mut reader = process.output.read_from(0);
        let mut seen = String::new();
        while !seen.contains("got hello") {
            match reader.next().await.unwrap() {
                Item::Chunk { chunk, .. } => {
                    assert_eq!(chunk.stream, Stream::Stdout);
                    seen.push_str(&String::from_utf8_lossy(&chunk.bytes));
                }
                other => panic!("{other:?} after {seen}"),
            }
        }
        // The typed line appears among these, as a terminal shows it.
        assert!(
            seen.contains("/dev/pts/0\r\n") && seen.contains("30 90\r\n"),
            "{seen}"
        );
        process.resize(TerminalSize {
            columns: 100,
            rows: 40,
        });
        let (rest, end) = all(reader).await;
        assert_eq!((rest.as_str(), end), ("40 100\r\n", Outcome::Exited));
        // Ctrl-C ends what runs in the foreground, and job control works.
        let shell = sandbox
            .start(NewProcess {
                command: CommandLine::Words(["bash", "--norc", "-i"].map(str::to_owned).into()),
                stdin: Stdin::Open,
                terminal: Some(size),
                ..NewProcess::default()
            })
            .await
            .unwrap();
        // It says so itself, in the foreground.
        shell
            .write(b"bash -c 'echo be\"\"gin; exec sleep 1000'\n".to_vec())
            .await;
        let mut reader = shell.output.read_from(0);
        let mut seen = String::new();
        let mut interrupted = false;
        loop {
            match reader.next().await.unwrap() {
                Item::Chunk { chunk, .. } => seen.push_str(&String::from_utf8_lossy(&chunk.bytes)),
                Item::End(end) => {
                    assert_eq!(end.exit_code, 5, "{seen}");
                    break;
                }
                Item::Lost(_) => panic!("{seen}"),
            }
            if seen.contains("begin") && !interrupted {
                interrupted = true;
                shell
                    .write(b"\x03jobs; sleep 500 & jobs; kill %1; exit 5\n".to_vec())
                    .await;
            }
        }
        assert!(seen.contains("Running"), "{seen}");
        assert!(!seen.contains("no job control"), "{seen}");
    });
}

fn who_kills_everybody_does_not_end_the_sandbox() {
    with_server(async |server| {
        let sandbox = server.sandbox().await;
        say(&sandbox, "echo 1 > /tmp/kept").await;
        let end = run(
            &sandbox,
            "kill -KILL 1; kill -TERM 1; kill -STOP 1; kill -KILL -1",
        )
        .await
        .end;
        assert!(
            matches!(end.outcome, Outcome::Unknown | Outcome::Signalled),
            "{end:?}"
        );
        assert_eq!(say(&sandbox, "cat /tmp/kept").await, "1\n");
        // Nobody can look into the init either.
        let peek = run(&sandbox, "cat /proc/1/environ; ls /proc/1/fd; cat /proc/1/maps").await;
        assert_eq!(peek.stdout.text, "", "{peek:?}");
    });
}

fn memory_has_a_limit_and_its_end_a_name() {
    with_server(async |server| {
        let new = NewSandbox {
            limits: ringfence_sandbox::SandboxLimits {
                memory: Bytes::mib(64),
                disk: Bytes::mib(16),
                ..Default::default()
            },
            ..NewSandbox::default()
        };
        let sandbox = server.sandboxes.create(&server.scope, new).await.unwrap();
        let end = run(&sandbox, "exec python3 -c 'x = bytearray(200 << 20)'")
            .await
            .end;
        assert_eq!(
            (end.outcome, end.exit_code),
            (Outcome::MemoryExceeded, -9),
            "{end:?}"
        );
        assert_eq!(say(&sandbox, "echo alive").await, "alive\n");
    });
}

fn what_cannot_be_started_is_named() {
    with_server(async |server| {
        let sandbox = server.sandbox().await;
        let start = async |process: NewProcess| sandbox.start(process).await.unwrap_err().to_string();
        let words = |words: &[&str]| NewProcess {
            command: CommandLine::Words(words.iter().map(|&word| word.to_owned()).collect()),
            ..NewProcess::default()
        };
        assert_eq!(start(words(&[])).await, "the command is empty");
        let missing = start(words(&["no-such-program"])).await;
        assert_eq!(missing, "there is no program `no-such-program` in the sandbox");
        let nowhere = start(NewProcess {
            cwd: Some("/nowhere".to_owned()),
            ..line("true")
        })
        .await;
        assert!(
            nowhere.contains("enter the working directory `/nowhere`"),
            "{nowhere}"
        );
        let many: Vec<_> = std::iter::repeat_n((), 40).collect();
        let mut started = Vec::new();
        let mut refused = None;
        for () in many {
            match sandbox.start(line("sleep 1000")).await {
                Ok(process) => started.push(process),
                Err(error) => refused = Some(error),
            }
        }
        assert!(
            matches!(refused, Some(Error::Full { most: 24, .. })),
            "{refused:?}"
        );
        assert_eq!((started.len(), sandbox.info().processes), (24, 24));
        // Files are within reach all the same.
        assert!(
            sandbox
                .list_files("/workspace".to_owned(), 1)
                .await
                .unwrap()
                .complete
        );
    });
}

fn output_can_be_read_from_any_position() {
    with_server(async |server| {
        let sandbox = server.sandbox().await;
        let process = sandbox.start(line("printf abcdef")).await.unwrap();
        process.output.wait().await;
        assert_eq!(all(process.output.read_from(0)).await.0, "abcdef");
        assert_eq!(all(process.output.read_from(4)).await.0, "ef");
        // Nobody reads: a flood does not hold the program up.
        let flood = sandbox.start(line("head -c 20000000 /dev/zero")).await.unwrap();
        let end = flood.output.wait().await;
        assert_eq!(end.outcome, Outcome::Exited);
        let mut reader = flood.output.read_from(0);
        assert!(matches!(reader.next().await, Some(Item::Lost(bytes)) if bytes > 18_000_000));
    });
}
