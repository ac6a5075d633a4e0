//! Input and output: in order, complete, of any kind and any amount.

use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::process::Child;

use serde_json::json;

use crate::support::{entries, eventually, finish};
use crate::world::{World, here};

here!(
    output_arrives_while_the_program_runs,
    both_streams_keep_their_order,
    standard_input_from_a_file_a_pipe_or_nowhere,
    mounts_are_read_only_unless_told,
    a_mount_in_the_working_directory_is_there,
    output_files_are_delivered_and_listed,
    bytes_that_are_no_text_come_through,
    a_single_huge_line_is_cut_but_streamed_whole,
    a_flood_takes_bounded_memory,
    a_reader_that_goes_away_ends_the_run,
    output_that_cannot_be_written_is_an_error,
    cancelling_ends_the_run_and_leaves_nothing,
    a_terminals_interrupt_cancels_too,
    a_large_input_reaches_the_program,
    a_program_may_ignore_its_input,
);

fn line(child: &mut Child) -> String {
    let mut byte = [0];
    let mut line = Vec::new();
    let stdout = child.stdout.as_mut().unwrap();
    while line.last() != Some(&b'\n') && stdout.read(&mut byte).unwrap() == 1 {
        line.push(byte[0]);
    }
    String::from_utf8(line).unwrap()
}

fn output_arrives_while_the_program_runs(world: &World) {
    for (language, code) in [
        (
            "python",
            "print('first')\nprint('then', input())\nprint('last', input(), flush=True)",
        ),
        ("bash", "echo first; read a; echo then $a; read b; echo last $b"),
        (
            "javascript",
            "console.log('first'); let n = 0;\n\
             require('readline').createInterface({input: process.stdin})\
             .on('line', (text) => console.log(n++ ? 'last' : 'then', text))",
        ),
    ] {
        let mut child = world
            .call(["--timeout", "20s", "--stdin", "-", "-l", language, "-c", code])
            .start();
        assert_eq!(line(&mut child), "first\n", "{language}");
        let mut stdin = child.stdin.take().unwrap();
        stdin.write_all(b"one\n").unwrap();
        assert_eq!(line(&mut child), "then one\n", "{language}");
        stdin.write_all(b"two\n").unwrap();
        drop(stdin);
        assert_eq!(line(&mut child), "last two\n", "{language}");
        assert!(child.wait().unwrap().success(), "{language}");
    }
}

fn both_streams_keep_their_order(world: &World) {
    let code = "import sys\nfor i in range(1000):\n    print(i)\n    print(-i, file=sys.stderr)";
    let output = world.run(["-c", code]);
    let whole = |sign: i32| (0..1000).map(|i| format!("{}\n", i * sign)).collect::<String>();
    assert_eq!(
        (output.ok(), output.stderr.as_str()),
        (whole(1).as_str(), whole(-1).as_str())
    );
    // Without a pause between them the order is unknown; with one, it is the program's.
    let mut child = world
        .call([
            "--stdin",
            "-",
            "-l",
            "bash",
            "-c",
            "echo a >&2; read x; echo b; read x; echo c >&2",
        ])
        .start();
    let mut stderr = BufReader::new(child.stderr.take().unwrap());
    let mut said = String::new();
    stderr.read_line(&mut said).unwrap();
    assert_eq!(said, "a\n");
    let mut stdin = child.stdin.take().unwrap();
    stdin.write_all(b"\n").unwrap();
    assert_eq!(line(&mut child), "b\n");
    stdin.write_all(b"\n").unwrap();
    said.clear();
    stderr.read_line(&mut said).unwrap();
    assert_eq!(said, "c\n");
    assert!(child.wait().unwrap().success());
}

fn standard_input_from_a_file_a_pipe_or_nowhere(world: &World) {
    world.dir.write("work/in.txt", "from a file\n");
    let code = "import sys; print(repr(sys.stdin.read()))";
    assert_eq!(
        world.run(["--stdin", "in.txt", "-c", code]).ok(),
        "'from a file\\n'\n"
    );
    let piped = world.call(["--stdin", "-", "-c", code]).stdin("from a pipe");
    assert_eq!(piped.output().ok(), "'from a pipe'\n");
    let nowhere = world.call(["-c", code]).stdin("not for the program");
    assert_eq!(nowhere.output().ok(), "''\n");
    let end = world.json(["-c", "input()"]);
    end.ended("exited", 1, 1);
    assert!(
        end.stderr().ends_with("EOFError: EOF when reading a line\n"),
        "{end:?}"
    );
    let program = world.call(["-"]).stdin("print('the program itself')");
    assert_eq!(program.output().ok(), "the program itself\n");
    let script = world.call(["-"]).stdin("#!/bin/bash\necho by its first line");
    assert_eq!(script.output().ok(), "by its first line\n");
}

fn mounts_are_read_only_unless_told(world: &World) {
    fs::create_dir(world.dir.path("work/data")).unwrap();
    world.dir.write("work/data/in.txt", "data");
    world.dir.write("work/one.txt", "one file");
    let code = "import errno\nprint(open('/data/in.txt').read(), open('/one').read())\n\
                try:\n    open('/data/new', 'w')\nexcept OSError as error:\n    print(errno.errorcode[error.errno])";
    let output = world.run([
        "--mount",
        "./data:/data",
        "--mount",
        "one.txt:/one:ro",
        "-c",
        code,
    ]);
    assert_eq!(output.ok(), "data one file\nEROFS\n");
    let written = world.run([
        "--mount",
        "data:/data:rw",
        "-c",
        "open('/data/out.txt', 'w').write('back')",
    ]);
    written.ok();
    assert_eq!(
        fs::read_to_string(world.dir.path("work/data/out.txt")).unwrap(),
        "back"
    );
}

fn a_mount_in_the_working_directory_is_there(world: &World) {
    world.dir.write("work/in.txt", "data");
    for place in ["/workspace/in.txt", "/workspace/sub/in.txt", "/tmp/in.txt"] {
        let mount = format!("in.txt:{place}");
        let output = world.run(["--mount", &mount, "-c", &format!("print(open('{place}').read())")]);
        assert_eq!(output.ok(), "data\n", "{place}");
    }
}

fn output_files_are_delivered_and_listed(world: &World) {
    let code = "import os\nos.makedirs('/output/sub/deep')\nopen('/output/a.txt', 'w').write('abc')\n\
                open('/output/sub/deep/b.bin', 'wb').write(bytes(range(256)))\nos.symlink('/etc/passwd', '/output/link')";
    let run = world.json(["--output", "out", "-c", code]);
    run.ended("exited", 0, 0);
    let files = json!([{"path": "a.txt", "bytes": 3}, {"path": "sub/deep/b.bin", "bytes": 256}]);
    assert_eq!(run.get("meta.output_files"), &files);
    assert!(
        run.get("meta.warnings")[0].as_str().unwrap().contains("link"),
        "{run:?}"
    );
    assert_eq!(
        fs::read(world.dir.path("work/out/sub/deep/b.bin")).unwrap(),
        (0..=255).collect::<Vec<u8>>()
    );
    assert_eq!(entries(&world.dir.path("work/out")), ["a.txt", "sub"]);
    // Without a directory the files are listed nevertheless, and the user is told.
    let listed = world.json(["-c", "open('/output/x', 'w').write('1')"]);
    assert_eq!(
        listed.get("meta.output_files"),
        &json!([{"path": "x", "bytes": 1}])
    );
    let told = world.run(["-c", "open('/output/x', 'w').write('1')"]);
    assert!(
        told.ok().is_empty() && told.stderr.contains("hint: the program left x in /output"),
        "{told:?}"
    );
    // Files of a failed run are delivered too.
    world.run([
        "--output",
        "failed",
        "-c",
        "open('/output/y', 'w').write('1'); 1/0",
    ]);
    assert_eq!(entries(&world.dir.path("work/failed")), ["y"]);
}

fn bytes_that_are_no_text_come_through(world: &World) {
    let code = "import os; os.write(1, bytes(range(256)) * 4); os.write(2, b'\\xff\\xfe')";
    let child = world.call(["-c", code]).start().wait_with_output().unwrap();
    assert_eq!(child.stdout, (0..=255).collect::<Vec<u8>>().repeat(4));
    assert_eq!(child.stderr, b"\xff\xfe");
    let run = world.json(["-c", code]);
    assert_eq!(
        (run.get("meta.stdout_bytes"), run.get("meta.stderr_bytes")),
        (&json!(1024), &json!(2))
    );
    assert!(
        run.stdout().starts_with("\0\u{1}\u{2}") && run.stdout().contains("\u{7f}\u{fffd}"),
        "{run:?}"
    );
    assert_eq!(run.stderr(), "\u{fffd}\u{fffd}");
}

fn a_single_huge_line_is_cut_but_streamed_whole(world: &World) {
    let code = "import sys; sys.stdout.write('x' * 12_000_000)";
    let run = world.json(["-c", code]);
    assert_eq!(
        (run.get("meta.stdout_bytes"), run.get("meta.truncated")),
        (&json!(12_000_000), &json!(true))
    );
    assert!(
        (10_240..10_400).contains(&run.stdout().len()),
        "{}",
        run.stdout().len()
    );
    let output = world.run(["-c", code]);
    assert_eq!(output.ok().len(), 12_000_000);
}

/// Returns the peak memory of a process, in KiB.
fn high_water(pid: u32) -> u64 {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let line = status
        .lines()
        .find_map(|line| line.strip_prefix("VmHWM:"))
        .unwrap();
    line.trim().trim_end_matches(" kB").parse().unwrap()
}

fn a_flood_takes_bounded_memory(world: &World) {
    fs::create_dir(world.dir.path("work/sign")).unwrap();
    let code = "import sys\nfor stream in sys.stdout, sys.stderr:\n    for _ in range(40):\n        \
                stream.write('y' * 999_999 + '\\n')\n    stream.flush()\nopen('/sign/done', 'w').close()\ninput()";
    let args = [
        "--timeout",
        "60s",
        "--stdin",
        "-",
        "--mount",
        "sign:/sign:rw",
        "--json",
        "-c",
        code,
    ];
    let mut child = world.call(args).start();
    eventually("the flood is over", || world.dir.path("work/sign/done").exists());
    let used = [Some(child.id()), world.engine_pid()];
    for pid in used.into_iter().flatten() {
        assert!(high_water(pid) < 64 * 1024, "{} KiB", high_water(pid));
    }
    child.stdin.take().unwrap().write_all(b"\n").unwrap();
    let output = child.wait_with_output().unwrap();
    let result: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(result["meta"]["stdout_bytes"], 40_000_000);
    assert_eq!(result["meta"]["stderr_bytes"], 40_000_000);
}

fn a_reader_that_goes_away_ends_the_run(world: &World) {
    let code = "echo begun; while :; do echo more || exit 3; done";
    for (option, begun) in [
        ("--pids=64", "begun\n"),
        ("--json-stream", "{\"type\":\"stdout\",\"text\":\"begun"),
    ] {
        let args = ["--timeout", "60s", option, "-l", "bash", "-c", code];
        let mut child = world.call(args).start();
        assert!(line(&mut child).starts_with(begun), "{option}");
        // As with `| head -1`: output that nobody reads need not be computed, and its end is no error.
        drop(child.stdout.take());
        let output = child.wait_with_output().unwrap();
        assert_eq!(output.status.code(), Some(141), "{option}: {output:?}");
        assert_eq!(String::from_utf8(output.stderr).unwrap(), "", "{option}");
    }
}

fn output_that_cannot_be_written_is_an_error(world: &World) {
    let full = fs::File::options().write(true).open("/dev/full").unwrap();
    let mut command = world.command(&[], ["run", "--timeout", "60s", "-l", "bash", "-c", "yes"]);
    let output = command.stdout(full).output().unwrap();
    assert_eq!(output.status.code(), Some(125), "{output:?}");
    let told = String::from_utf8(output.stderr).unwrap();
    let error = "error: cannot write the program's output: No space left on device";
    assert!(told.starts_with(error) && told.contains("\nhint: "), "{told}");
}

fn cancelling_ends_the_run_and_leaves_nothing(world: &World) {
    for signal in ["INT", "TERM", "HUP"] {
        let code = "echo begun; sleep 1000 & setsid sleep 1001 & sleep 1002";
        let mut child = world
            .call(["--timeout", "100s", "-l", "bash", "-c", code])
            .start();
        assert_eq!(line(&mut child), "begun\n");
        world.signal(&child, signal);
        let output = child.wait_with_output().unwrap();
        assert_eq!(output.status.code(), Some(130), "{signal}: {output:?}");
        assert_eq!(
            String::from_utf8(output.stderr).unwrap(),
            "error: execution cancelled\n",
            "{signal}"
        );
    }
    let mut child = world
        .call([
            "--timeout",
            "100s",
            "--json",
            "--stdin",
            "-",
            "-c",
            "import time; time.sleep(1000)",
        ])
        .start();
    child.stdin.as_mut().unwrap().write_all(b"x").unwrap();
    world.signal(&child, "INT");
    let output = child.wait_with_output().unwrap();
    if output.stdout.is_empty() {
        // The signal came before the run started: then there is no result, and the command died of the signal
        // itself.
        assert!(!output.status.success());
    } else {
        let result: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
        assert_eq!(
            (&result["meta"]["outcome"], output.status.code()),
            (&json!("cancelled"), Some(130))
        );
    }
}

fn a_terminals_interrupt_cancels_too(world: &World) {
    // It is sent to every process of the group, our own helpers included.
    for language in ["bash", "python"] {
        let code = match language {
            "bash" => "echo begun; sleep 1000",
            _ => "print('begun', flush=True); import time; time.sleep(1000)",
        };
        let mut child = world
            .call(["--timeout", "100s", "-l", language, "-c", code])
            .start();
        assert_eq!(line(&mut child), "begun\n");
        let mut kill = world.dir.program("kill");
        finish(kill.args(["-INT", "--", &format!("-{}", child.id())]), b"").ok();
        let output = child.wait_with_output().unwrap();
        assert_eq!(output.status.code(), Some(130), "{output:?}");
        assert_eq!(
            String::from_utf8(output.stderr).unwrap(),
            "error: execution cancelled\n"
        );
    }
}

#[test]
fn signals_are_those_of_a_new_program() {
    let world = World::here();
    // A shell ignores SIGINT for its background processes, `nohup` SIGHUP, and many servers SIGPIPE.
    let script = "trap '' HUP INT QUIT PIPE USR1 TERM; exec \"$@\"";
    let look = "import signal\nnames = 'SIGHUP', 'SIGQUIT', 'SIGUSR1', 'SIGTERM'\n\
                print({signal.getsignal(getattr(signal, name)) for name in names} == {signal.SIG_DFL})\n\
                print(signal.getsignal(signal.SIGINT) is signal.default_int_handler)\nsignal.raise_signal(signal.SIGINT)";
    let run = world.command(&[], ["run", "--no-engine", "-c", look]);
    let mut ignoring = world.dir.program("bash");
    ignoring
        .args(["-c", script, "bash"])
        .arg(run.get_program())
        .args(run.get_args());
    let output = finish(&mut ignoring, b"");
    assert_eq!(
        (output.status, output.stdout.as_str()),
        (130, "True\nTrue\n"),
        "{output:?}"
    );
    assert!(output.stderr.ends_with("KeyboardInterrupt\n"), "{output:?}");
    world.close();
}

fn a_large_input_reaches_the_program(world: &World) {
    let input: Vec<u8> = (0..5_000_000_u32).flat_map(|i| [(i % 251) as u8]).collect();
    world.dir.write("work/large.bin", &input);
    let code = "import hashlib, sys; data = sys.stdin.buffer.read(); print(len(data), sum(data[::1000]))";
    let sum: u64 = input.iter().step_by(1000).map(|byte| u64::from(*byte)).sum();
    let expected = format!("5000000 {sum}\n");
    assert_eq!(world.run(["--stdin", "large.bin", "-c", code]).ok(), expected);
    assert_eq!(
        world
            .call(["--stdin", "-", "-c", code])
            .stdin(&input)
            .output()
            .ok(),
        expected
    );
}

fn a_program_may_ignore_its_input(world: &World) {
    let call = world
        .call(["--stdin", "-", "-c", "print('done')"])
        .stdin(vec![b'x'; 3_000_000]);
    assert_eq!(call.output().ok(), "done\n");
    // An endless input does not keep the run alive.
    let mut child = world.call(["--stdin", "-", "-c", "print('done')"]).start();
    let stdin = child.stdin.take().unwrap();
    assert!(child.wait().unwrap().success());
    drop(stdin);
}
