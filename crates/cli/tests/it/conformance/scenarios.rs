//! The scenarios, each with its request and the facts of its result.

use std::fs;

use serde_json::{Value, json};

use super::{
    Checked, End, Expected, PYTHON, Place, Request, SUCCESS, Scenario, Stdin, Suite, Text, counted, ensure,
    same,
};

pub(super) const ALLOWED_HOST: &str = "an allowed host is reached, and recorded";
pub(super) const APART: &str = "output and errors arrive apart, with the status";
pub(super) const BASH: &str = "bash";
pub(super) const BLOCKED_IMPORT: &str = "a blocked import never runs";
pub(super) const CPUS: &str = "processor cores are limited";
pub(super) const BRIDGE: &str = "a function of the host is called";
pub(super) const DISK: &str = "files that do not fit";
pub(super) const INTERPRETER: &str = "an interpreter that the user names";
pub(super) const JAVASCRIPT: &str = "JavaScript";
pub(super) const MEMORY: &str = "memory is limited";
pub(super) const MOUNT: &str = "a file comes in, and stays as it is";
pub(super) const PROCESSES: &str = "processes are limited";
pub(super) const SESSION: &str = "a session keeps its variables";
pub(super) const SIGNAL: &str = "a signal kills";
pub(super) const UNFENCED: &str = "a run without a fence";
pub(super) const WARM: &str = "a server has something ready, a process alone has not";
pub(super) const WORKSPACE: &str = "a workspace is read and written";
pub(super) const WRITABLE_MOUNT: &str = "a writable mount is written";

/// A result of a program that the import check rejected.
pub(super) const BLOCKED: Expected = Expected {
    outcome: "blocked",
    exit_code: 126,
    stderr: Text::Has(&["import of `ctypes` is blocked (line 2)"]),
    facts: &[
        ("/meta/blocked_imports", "[\"ctypes\"]"),
        ("/meta/output_files", "null"),
    ],
    ..SUCCESS
};

/// A scenario without a further check.
const fn plain(name: &'static str, request: Request, expected: Expected) -> Scenario {
    Scenario {
        name,
        request,
        expected,
        also: |_, _| Ok(()),
    }
}

const fn code(code: &'static str) -> Request {
    Request { code, ..PYTHON }
}

const fn with(options: &'static [&'static str], code: &'static str) -> Request {
    Request {
        code,
        options,
        ..PYTHON
    }
}

/// Success, with this output.
const fn prints(stdout: &'static str) -> Expected {
    Expected {
        stdout: Text::Is(stdout),
        ..SUCCESS
    }
}

const fn exits(exit_code: i64, stderr: Text) -> Expected {
    Expected {
        exit_code,
        stderr,
        ..SUCCESS
    }
}

pub(super) const SCENARIOS: &[Scenario] = &[
    Scenario {
        name: APART,
        request: code("import sys; print('out'); print('err', file=sys.stderr); sys.exit(7)"),
        expected: Expected {
            exit_code: 7,
            stdout: Text::Is("out\n"),
            stderr: Text::Is("err\n"),
            facts: &[
                ("/meta/language", "\"python\""),
                ("/meta/stdout_bytes", "4"),
                ("/meta/stderr_bytes", "4"),
                ("/meta/truncated", "false"),
                ("/meta/timed_out", "false"),
                ("/meta/blocked_imports", "[]"),
                ("/meta/isolation/ipc_ns", "true"),
                ("/meta/isolation/mount_ns", "true"),
                ("/meta/isolation/net_ns", "true"),
                ("/meta/isolation/pid_ns", "true"),
                ("/meta/isolation/uts_ns", "true"),
                ("/meta/isolation/no_new_privs", "true"),
                ("/meta/isolation/capabilities_dropped", "true"),
            ],
            ..SUCCESS
        },
        also: |suite, answered| {
            let (meta, target) = (&answered.value["meta"], suite.target);
            same("the runtime", &meta["runtime"], &json!(target.name))?;
            same(
                "the filter",
                &meta["isolation"]["seccomp"],
                &json!(target.seccomp),
            )?;
            same(
                "the default cpus",
                &meta["resource_limits"]["cpus"],
                &json!(target.cpus),
            )
        },
    },
    plain(
        "a program that leaves at once has its status",
        code(
            "import os\ntry:\n    print('before', flush=True)\n    os._exit(6)\nfinally:\n    print('after', flush=True)",
        ),
        Expected {
            exit_code: 6,
            ..prints("before\n")
        },
    ),
    plain(
        "a status above 128 is no signal",
        code("import sys; sys.exit(139)"),
        exits(139, Text::Is("")),
    ),
    plain(
        "an exception shows its traceback",
        code("def f(x):\n    return 1 / x\n\nf(0)"),
        exits(
            1,
            Text::Has(&[
                "Traceback (most recent call last):\n  File \"{file}\", line 4, in <module>\n    f(0)\n",
                "  File \"{file}\", line 2, in f\n    return 1 / x\n",
                "ZeroDivisionError: division by zero\n",
            ]),
        ),
    ),
    plain(
        "a syntax error names its line",
        code("ok = 1\n\nif ok\n    print(ok)\n"),
        exits(
            1,
            Text::Has(&["  File \"{file}\", line 3\n    if ok\n", "SyntaxError: "]),
        ),
    ),
    plain("an empty program", code(""), SUCCESS),
    plain(
        "standard input is read to its end",
        Request {
            stdin: Stdin::Text("a line\nanother é\n"),
            ..code("import sys; print(repr(sys.stdin.read()))")
        },
        prints("'a line\\nanother é\\n'\n"),
    ),
    plain(
        "without standard input there is none",
        code("import sys; print(repr(sys.stdin.read()))"),
        prints("''\n"),
    ),
    Scenario {
        name: "a large input arrives whole",
        request: Request {
            stdin: Stdin::Counted(LARGE),
            ..code("import sys; data = sys.stdin.buffer.read(); print(len(data), sum(data[::1000]))")
        },
        expected: Expected {
            stdout: Text::Any,
            ..SUCCESS
        },
        also: |_, answered| {
            let sum: u64 = counted(LARGE)
                .iter()
                .step_by(1000)
                .map(|byte| u64::from(*byte))
                .sum();
            same(
                "stdout",
                &answered.value["stdout"],
                &json!(format!("{LARGE} {sum}\n")),
            )
        },
    },
    plain(
        "arguments and variables arrive unchanged",
        Request {
            args: &[
                "--json",
                "-c",
                "a b",
                "",
                "$HOME",
                "é\u{1f600}",
                "new\nline",
                "'\"\\",
            ],
            ..with(
                &["--env", "ODD=a=b \n'é", "--env", "EMPTY="],
                "import os, sys\nprint(sys.argv[1:] == ['--json', '-c', 'a b', '', '$HOME', 'é\u{1f600}', 'new\\nline', '\\'\"\\\\'],\n\
                 \x20     os.environ['ODD'] == \"a=b \\n'é\", repr(os.environ['EMPTY']))",
            )
        },
        prints("True True ''\n"),
    ),
    plain(
        "the caller's variables are not inherited",
        Request {
            env: &[("API_TOKEN", "very-secret")],
            ..code("import os; print('very-secret' in os.environ.values())")
        },
        prints("False\n"),
    ),
    plain(
        "text is text",
        code("print('é\u{1f600}', '\\u4e2d')"),
        Expected {
            facts: &[("/meta/stdout_bytes", "11")],
            ..prints("é\u{1f600} 中\n")
        },
    ),
    plain(
        "bytes that are no text are counted",
        code("import sys; sys.stdout.buffer.write(b'a\\xff\\xfe')"),
        Expected {
            facts: &[("/meta/stdout_bytes", "3")],
            ..prints("a\u{fffd}\u{fffd}")
        },
    ),
    Scenario {
        name: "time is limited",
        request: with(
            &["--timeout", "1s"],
            "print('begun', flush=True)\nwhile True: pass",
        ),
        expected: Expected {
            outcome: "timed_out",
            exit_code: -1,
            stdout: Text::Is("begun\n"),
            stderr: Text::Is("execution timed out after 1s\n"),
            facts: &[
                ("/meta/timed_out", "true"),
                ("/meta/resource_limits/timeout", "1.0"),
            ],
        },
        also: |_, answered| {
            let seconds = answered.value["duration"].as_f64().unwrap_or_default();
            ensure((1.0..30.0).contains(&seconds), || format!("it took {seconds} s"))
        },
    },
    Scenario {
        name: "output is limited",
        request: with(&["--max-output", "1KiB"], "print('x' * 3_000_000)"),
        expected: Expected {
            stdout: Text::Has(&["xx\n", "... (output truncated)"]),
            facts: &[
                ("/meta/truncated", "true"),
                ("/meta/stdout_bytes", "3000001"),
                ("/meta/resource_limits/max_output_bytes", "1024"),
            ],
            ..SUCCESS
        },
        also: |_, answered| {
            let length = answered.value["stdout"].as_str().unwrap_or_default().len();
            ensure((1000..1200).contains(&length), || {
                format!("{length} bytes are kept")
            })
        },
    },
    plain(
        MEMORY,
        with(&["--memory", "96MiB"], "x = bytearray(300 << 20)\nprint(len(x))"),
        Expected {
            outcome: "memory_exceeded",
            exit_code: -9,
            stderr: Text::Is("killed: the memory limit of 96MiB was exceeded\n"),
            facts: &[("/meta/resource_limits/memory_bytes", "100663296")],
            ..SUCCESS
        },
    ),
    plain(
        PROCESSES,
        with(
            &["--pids", "20"],
            "import os, time\nmade = 0\ntry:\n    for _ in range(100):\n        if os.fork() == 0:\n            \
             time.sleep(100)\n        made += 1\nexcept OSError as error:\n    print(type(error).__name__, 5 < made < 25)",
        ),
        Expected {
            facts: &[("/meta/resource_limits/pids", "20")],
            ..prints("BlockingIOError True\n")
        },
    ),
    plain(
        CPUS,
        with(&["--cpus", "0.5"], "print('half')"),
        Expected {
            facts: &[("/meta/resource_limits/cpus", "0.5")],
            ..prints("half\n")
        },
    ),
    Scenario {
        name: DISK,
        request: with(
            &["--disk", "8MiB"],
            "try:\n    open('/output/x', 'wb').write(bytes(80 << 20))\nexcept OSError as error:\n    print('full')",
        ),
        expected: Expected {
            facts: &[("/meta/resource_limits/disk_bytes", "8388608")],
            ..prints("full\n")
        },
        also: |_, answered| {
            let kept = answered
                .value
                .pointer("/meta/output_files/0/bytes")
                .and_then(Value::as_u64);
            ensure(kept.is_none_or(|bytes| bytes <= 8 << 20), || {
                format!("{kept:?} bytes are kept")
            })
        },
    },
    Scenario {
        name: "a cancelled run ends",
        request: Request {
            end: End::Cancelled,
            ..code("import time\nprint('begun', flush=True)\nwhile True: time.sleep(0.1)")
        },
        expected: Expected {
            outcome: "cancelled",
            exit_code: -9,
            stderr: Text::Is("execution cancelled\n"),
            ..prints("begun\n")
        },
        also: |_, answered| {
            let streamed = answered
                .output
                .stdout
                .starts_with("{\"type\":\"stdout\",\"text\":\"begun");
            ensure(streamed, || "its output came late".to_owned())
        },
    },
    Scenario {
        name: MOUNT,
        request: with(
            &["--mount", "in.txt:/data"],
            "print(open('/data').read(), end='')\ntry:\n    open('/data', 'w').write('spoilt')\nexcept OSError:\n    pass",
        ),
        expected: prints("from the host\n"),
        also: |suite, _| holds(suite, "in.txt", "from the host\n"),
    },
    Scenario {
        name: WRITABLE_MOUNT,
        request: with(
            &["--mount", "shared:/shared:rw"],
            "open('/shared/made', 'w').write('by the program')",
        ),
        expected: SUCCESS,
        also: |suite, _| holds(suite, "shared/made", "by the program"),
    },
    Scenario {
        name: WORKSPACE,
        request: with(
            &["--workspace", "project"],
            "import os\nprint(os.getcwd())\nopen('made', 'w').write('here')",
        ),
        expected: prints("/workspace\n"),
        also: |suite, _| holds(suite, "project/made", "here"),
    },
    Scenario {
        name: "files of `/output` are delivered and listed",
        request: with(
            &["-o", "out"],
            "import os\nos.makedirs('/output/sub')\nopen('/output/a', 'w').write('abc')\nopen('/output/sub/b', 'w').write('kept')\n1/0",
        ),
        expected: Expected {
            exit_code: 1,
            stderr: Text::Has(&["ZeroDivisionError"]),
            facts: &[(
                "/meta/output_files",
                "[{\"path\": \"a\", \"bytes\": 3}, {\"path\": \"sub/b\", \"bytes\": 4}]",
            )],
            ..SUCCESS
        },
        also: |suite, _| holds(suite, "out/a", "abc").and_then(|()| holds(suite, "out/sub/b", "kept")),
    },
    Scenario {
        name: "there is no network",
        request: code(
            "import socket\ntry:\n    socket.create_connection(('127.0.0.1', {port}), 5)\n    print('REACHED')\n\
             except OSError as error:\n    print('refused')",
        ),
        expected: Expected {
            facts: &[("/meta/egress", "null")],
            ..prints("refused\n")
        },
        also: |suite, _| {
            same("visits", &suite.server.visits(), &0)?;
            // It can be reached outside.
            let reached = std::net::TcpStream::connect(("127.0.0.1", suite.server.port));
            ensure(reached.is_ok(), || format!("{reached:?}"))
        },
    },
    Scenario {
        name: ALLOWED_HOST,
        request: Request {
            args: &["http://127.0.0.1:{port}/page"],
            ..with(
                &["--network", "allowlist", "--allow-host", "127.0.0.1:{port}"],
                "import sys, urllib.request as r; print(r.urlopen(sys.argv[1]).read().decode(), end='')",
            )
        },
        expected: Expected {
            facts: &[
                ("/meta/egress/attempts/0/verdict", "\"connected\""),
                ("/meta/egress/attempts/1", "null"),
            ],
            ..prints("hello")
        },
        also: |_, _| Ok(()),
    },
    plain(
        BLOCKED_IMPORT,
        with(
            &["-o", "never"],
            "open('/output/ran', 'w').close()\nimport ctypes",
        ),
        BLOCKED,
    ),
    plain(
        BRIDGE,
        with(&["--skills", "skills"], "print(device.Probe.twice(21))"),
        prints("42\n"),
    ),
    plain(
        SIGNAL,
        code("import os; print('x', flush=True); os.kill(os.getpid(), 11)"),
        Expected {
            outcome: "signalled",
            exit_code: -11,
            stdout: Text::Is("x\n"),
            ..SUCCESS
        },
    ),
    plain(
        BASH,
        Request {
            language: "bash",
            args: ODD,
            ..with(
                &["--env", "ODD=x y"],
                "printf '%s|' \"$@\" \"$ODD\"; echo no >&2; exit 4",
            )
        },
        Expected {
            exit_code: 4,
            stderr: Text::Is("no\n"),
            facts: &[("/meta/language", "\"bash\"")],
            ..prints("-e||a b|x y|")
        },
    ),
    plain(
        JAVASCRIPT,
        Request {
            language: "javascript",
            args: ODD,
            ..with(
                &["--env", "ODD=x y"],
                "process.stdout.write([...process.argv.slice(2), process.env.ODD].join('|') + '|'); process.exitCode = 5",
            )
        },
        Expected {
            exit_code: 5,
            facts: &[("/meta/language", "\"javascript\"")],
            ..prints("-e||a b|x y|")
        },
    ),
    Scenario {
        name: SESSION,
        request: with(&["--session", "kept"], "x = 41"),
        expected: SUCCESS,
        also: |suite, _| {
            let next = suite.run(&with(&["--session", "kept"], "print(x + 1)"))?;
            same("stdout", &next.value["stdout"], &json!("42\n"))?;
            same(
                "evaluations",
                &next.value["meta"]["session"]["evaluations"],
                &json!(2),
            )
        },
    },
    plain(
        UNFENCED,
        with(&["--unfenced"], "print('open')"),
        Expected {
            facts: &[
                ("/meta/isolation/seccomp", "false"),
                ("/meta/isolation/net_ns", "false"),
            ],
            ..prints("open\n")
        },
    ),
    plain(
        INTERPRETER,
        with(
            &["--python", "/usr/bin/python3"],
            "import sys; print(sys.executable)",
        ),
        prints("/usr/bin/python3\n"),
    ),
    Scenario {
        name: WARM,
        request: code("print(1)"),
        expected: prints("1\n"),
        also: |suite, _| match suite.place {
            // Every result of this place is checked for it.
            Place::InProcess => Ok(()),
            Place::Server => {
                let ready = || {
                    suite
                        .run(&code("print(1)"))
                        .is_ok_and(|next| next.value["meta"]["warm"] == true)
                };
                ensure((0..20).any(|_| ready()), || "never warm".to_owned())
            }
        },
    },
    Scenario {
        name: "a run is recorded",
        request: Request {
            env: &[("SANDBOX_STORE_CODE", "always")],
            ..code("print('recorded')")
        },
        expected: prints("recorded\n"),
        also: |_, answered| {
            let path = answered.value["meta"]["artifact"].as_str().unwrap_or_default();
            let text = fs::read_to_string(path).map_err(|error| format!("{path}: {error}"))?;
            let record: Value = serde_json::from_str(&text).map_err(|error| error.to_string())?;
            same("the code", &record["code"], &json!("print('recorded')"))?;
            same(
                "the output",
                &record["result"]["stdout"],
                &answered.value["stdout"],
            )?;
            same(
                "the runtime",
                &record["result"]["meta"]["runtime"],
                &answered.value["meta"]["runtime"],
            )
        },
    },
    plain(
        "a run is not recorded where none is to be",
        Request {
            env: &[("SANDBOX_STORE_CODE", "never")],
            ..code("import sys; sys.exit(1)")
        },
        Expected {
            facts: &[("/meta/artifact", "null")],
            ..exits(1, Text::Is(""))
        },
    ),
    Scenario {
        name: "the local fence replaces what is unavailable, as configured",
        request: Request {
            stdin: Stdin::Text("read\n"),
            env: &[
                ("DOCKER_HOST", "unix:///no/such.sock"),
                ("CONTAINER_HOST", "unix:///no/such.sock"),
                ("RINGFENCE_SANDBOX_DOCKER_FALLBACK", "local"),
                ("RINGFENCE_SKILLS_SANDBOX_ENABLED", "false"),
            ],
            ..code("print(input())")
        },
        expected: prints("read\n"),
        also: |suite, answered| {
            let meta = &answered.value["meta"];
            let Some(warning) = suite.target.replaced else {
                return same("the runtime", &meta["runtime"], &json!(suite.target.name));
            };
            same("the runtime", &meta["runtime"], &json!("local"))?;
            same("the filter", &meta["isolation"]["seccomp"], &json!("fence"))?;
            ensure(meta["warnings"].to_string().contains(warning), || {
                format!("no {warning:?} in {meta}")
            })
        },
    },
];

/// Arguments that a shell or an interpreter could take for its own.
const ODD: &[&str] = &["-e", "", "a b"];

/// Length of a large input.
const LARGE: usize = 3_000_000;

/// Checks the content of a file in the directory of the command.
fn holds(suite: &Suite, name: &str, expected: &str) -> Checked {
    let path = suite.world.dir.path("work").join(name);
    let found = fs::read_to_string(&path).map_err(|error| format!("{}: {error}", path.display()))?;
    same(name, &found.as_str(), &expected)
}
