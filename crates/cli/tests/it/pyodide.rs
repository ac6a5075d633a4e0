//! Code in Pyodide: its abilities, its limits, and its leftovers.

use std::fs;
use std::io::{BufRead, BufReader};
use std::net::TcpListener;
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;
use std::process::{Command, Stdio};

use serde_json::{Value, json};

use crate::mcp::Client;
use crate::support::{Dir, Output, finish};
use crate::world::{Mode, Place, World, play, repository};

/// Returns the installation of Deno and Pyodide by `cargo xtask setup`.
pub(crate) fn installed() -> PathBuf {
    let directory = repository("target/pyodide").canonicalize();
    assert!(
        directory.is_ok(),
        "no target/pyodide (`cargo xtask setup` makes it)"
    );
    directory.unwrap()
}

/// Lets a program import anything, so that the tests reach the barrier itself.
pub(crate) const UNCHECKED: (&str, &str) = ("RINGFENCE_SKILLS_SANDBOX_BLOCKED_IMPORTS", "[]");

pub(crate) struct Pyodide(pub(crate) Dir);

impl Pyodide {
    pub(crate) fn new() -> Self {
        let dir = Dir::new();
        Self(dir)
    }

    pub(crate) fn command(&self, args: &[&str]) -> Command {
        let mut command = self.0.command(["run", "--runtime", "pyodide"].iter().chain(args));
        command.env("RINGFENCE_SKILLS_SANDBOX_DIRECTORY", installed());
        // The machine may be busy.
        command.env("RINGFENCE_SKILLS_SANDBOX_TIMEOUT_SECONDS", "60");
        command
    }

    pub(crate) fn run(&self, args: &[&str]) -> Output {
        finish(&mut self.command(args), b"")
    }

    /// Runs code that may import anything, and returns the result.
    fn result(&self, code: &str) -> Value {
        let mut command = self.command(&["--json", "-c", code]);
        let output = finish(command.env(UNCHECKED.0, UNCHECKED.1), b"");
        let result = serde_json::from_str(&output.stdout);
        assert!(result.is_ok(), "{output:?}");
        result.unwrap()
    }
}

/// Returns the Deno processes with this memory limit; each test uses a unique figure.
fn denos(mebibytes: &str) -> Vec<String> {
    let lines = fs::read_dir("/proc").unwrap().flatten();
    let lines = lines.map(|entry| fs::read(entry.path().join("cmdline")).unwrap_or_default());
    let end = format!("\0{mebibytes}\0");
    lines
        .filter(|line| line.starts_with(b"/opt/deno") && line.ends_with(end.as_bytes()))
        .map(|line| String::from_utf8_lossy(&line).into_owned())
        .collect()
}

#[test]
fn results_tell_how_it_ended_and_what_fenced_it() {
    let pyodide = Pyodide::new();
    let result = pyodide.result("print('hi')");
    assert_eq!(result["stdout"], "hi\n", "{result}");
    assert_eq!(result["exit_code"], 0);
    let meta = &result["meta"];
    assert_eq!(meta["runtime"], "pyodide");
    assert_eq!(meta["outcome"], "exited");
    assert_eq!(meta["isolation"]["seccomp"], "fence");
    assert_eq!(meta["isolation"]["net_ns"], true);
    assert_eq!(meta["warm"], false);
    assert!(meta["peak_memory_bytes"].as_u64().unwrap() > 64 << 20, "{meta}");
}

#[test]
fn output_comes_while_the_program_runs() {
    let pyodide = Pyodide::new();
    let mut command = pyodide.command(&[
        "--memory",
        "131MiB",
        "-c",
        "print('first', flush=True)\nwhile True: pass",
    ]);
    let mut child = command
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let mut line = String::new();
    BufReader::new(child.stdout.take().unwrap())
        .read_line(&mut line)
        .unwrap();
    assert_eq!(line, "first\n");
    assert_eq!(denos("131").len(), 1);
    let pid = child.id().to_string();
    finish(pyodide.0.program("kill").args(["-TERM", &pid]), b"").ok();
    child.wait().unwrap();
    assert_eq!(denos("131"), Vec::<String>::new());
}

#[test]
fn errors_show_the_programs_own_frames_and_lines() {
    let pyodide = Pyodide::new();
    let output = pyodide.run(&[
        "-c",
        "import json\n\ndef f(x):\n    return json.loads(x)\n\nf('{')",
    ]);
    assert_eq!(output.status, 1);
    let expected = "Traceback (most recent call last):\n  File \"<sandbox>\", line 6, in <module>\n    f('{')\n    ~^^^^^\n  \
                    File \"<sandbox>\", line 4, in f\n    return json.loads(x)\n           ~~~~~~~~~~^^^\njson.decoder.JSONDecodeError: ";
    assert!(output.stderr.starts_with(expected), "{}", output.stderr);
    assert!(!output.stderr.contains("/lib"), "{}", output.stderr);
    let syntax = pyodide.run(&["-c", "x = 1\ndef f(:"]);
    assert!(
        syntax.stderr.starts_with("  File \"<sandbox>\", line 2\n"),
        "{}",
        syntax.stderr
    );
}

#[test]
fn programs_end_as_anywhere() {
    let pyodide = Pyodide::new();
    let code = "import atexit, inspect, pathlib\natexit.register(print, 'at exit')\nclass A: pass\n\
                print(inspect.getsource(A), pathlib.Path(__file__).parent.resolve())";
    assert_eq!(
        pyodide.run(&["-c", code]).ok(),
        "class A: pass\n /workspace\nat exit\n"
    );
    let ended = |code: &str, status: i64, said: &str| {
        let result = pyodide.result(code);
        assert_eq!(
            (&result["exit_code"], &result["meta"]["outcome"]),
            (&json!(status), &json!("exited")),
            "{result}"
        );
        assert!(result["stderr"].as_str().unwrap().contains(said), "{result}");
    };
    ended("raise KeyboardInterrupt", 130, "KeyboardInterrupt");
    ended("import sys; sys.stdout.close(); sys.stderr.close()", 0, "");
    ended(
        "import sys; sys.stdout = sys.stderr = None; 1/0",
        1,
        "ZeroDivisionError",
    );
}

#[test]
fn the_event_loop_works() {
    let pyodide = Pyodide::new();
    let code = "import asyncio\nasync def later():\n    await asyncio.sleep(0.01)\n    return 'slept'\n\
                print(asyncio.run(later()))\nprint(await later())\nawait asyncio.gather(later(), later())";
    assert_eq!(pyodide.run(&["-c", code]).ok(), "slept\nslept\n");
}

/// A start loads a part of Pyodide's WebAssembly; these programs call into the rest, from each kind of place.
#[test]
fn what_few_programs_need_is_there_too() {
    let pyodide = Pyodide::new();
    let code = "import decimal, hashlib, lzma, sqlite3\ndb = sqlite3.connect(':memory:')\n\
                db.create_function('twice', 1, lambda x: int(decimal.Decimal(x) * 2))\n\
                print(db.execute('select twice(21)').fetchone(), hashlib.sha3_256(b'x').hexdigest()[:8])\n\
                try:\n    db.execute('nonsense')\nexcept sqlite3.OperationalError as error:\n    print(error)\n\
                async def packed():\n    return len(lzma.decompress(lzma.compress(b'x' * 100_000)))\nprint(await packed())";
    let expected = "(42,) 741efa31\nnear \"nonsense\": syntax error\n100000\n";
    assert_eq!(pyodide.run(&["-c", code]).ok(), expected);
    let full = "import sqlite3\nx = []\nwhile True: x.append(bytearray(1 << 20))";
    let refused = pyodide.run(&["-c", full]);
    assert!(
        refused
            .stderr
            .contains("MemoryError\nhint: allow more with `--memory "),
        "{refused:?}"
    );
}

#[test]
fn an_endless_loop_is_killed_at_its_limit() {
    let pyodide = Pyodide::new();
    let output = pyodide.run(&[
        "--timeout",
        "1s",
        "--memory",
        "132MiB",
        "-c",
        "print('on', flush=True)\nwhile True: pass",
    ]);
    assert_eq!(output.status, 124, "{output:?}");
    assert_eq!(output.stdout, "on\n");
    assert_eq!(denos("132"), Vec::<String>::new());
    assert_eq!(fs::read_dir(pyodide.0.path("tmp")).unwrap().count(), 0);
}

/// Without control groups a resource limit counts V8's reserved address space as if it were used.
#[test]
fn an_ordinary_user_has_programs_and_their_limits() {
    play(World::new(Mode::OneShot, Place::User), |world| {
        let own = world.dir.path("work/pyodide");
        fs::create_dir(&own).unwrap();
        for part in ["deno-linux-x64-glibc-2.9.6", "pyodide-314.0.7"] {
            let mut copy = world.dir.program("cp");
            finish(copy.arg("-r").arg(installed().join(part)).arg(&own), b"").ok();
        }
        let user = fs::metadata(world.dir.path("work")).unwrap().uid().to_string();
        finish(world.dir.program("chown").args(["-R", &user]).arg(&own), b"").ok();
        let run = |code: &str| {
            let args = ["--runtime", "pyodide", "--timeout", "60s", "-c", code];
            let call = world.call(args).env("RINGFENCE_SKILLS_SANDBOX_DIRECTORY", &own);
            call.json()
        };
        run("print(6 * 7)").ended("exited", 0, 0);
        let taken = "print(len(bytearray(64 << 20)) >> 20)";
        assert_eq!(run(taken).stdout(), "64\n");
        let too_much = run("bytearray(160 << 20)");
        assert!(
            too_much.stderr().ends_with("MemoryError\n"),
            "{}",
            too_much.stderr()
        );
    });
}

#[test]
fn memory_ends_where_it_was_limited() {
    let pyodide = Pyodide::new();
    let taken = "x = bytearray(160 << 20)\nprint(len(x) >> 20)";
    assert_eq!(pyodide.run(&["--memory", "256MiB", "-c", taken]).ok(), "160\n");
    let refused = pyodide.run(&["-c", taken]);
    assert_eq!(refused.status, 1, "{refused:?}");
    assert!(
        refused
            .stderr
            .contains("MemoryError\nhint: allow more with `--memory "),
        "{refused:?}"
    );
}

#[test]
fn imports_are_refused_by_name() {
    let pyodide = Pyodide::new();
    let modules = [
        "os",
        "sys",
        "subprocess",
        "socket",
        "importlib",
        "builtins",
        "ctypes",
        "multiprocessing",
        "js",
        "pyodide_js",
        "pyodide.ffi",
    ];
    for module in modules {
        let output = pyodide.run(&["-c", &format!("import {module}")]);
        assert_eq!(output.status, 126, "{output:?}");
        let top = module.split('.').next().unwrap();
        assert!(
            output.stderr.contains(&format!("import of `{top}` is blocked")),
            "{output:?}"
        );
    }
    let library = "import json, re, math, datetime, collections, pathlib, shutil, tempfile, csv, sqlite3\nprint('fine')";
    assert_eq!(pyodide.run(&["-c", library]).ok(), "fine\n");
}

#[test]
fn there_is_no_network() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let code = format!("import socket\nsocket.create_connection(('127.0.0.1', {port}), 5)\nprint('reached')");
    let pyodide = Pyodide::new();
    let outside = finish(pyodide.0.program("/usr/bin/python3").args(["-c", &code]), b"");
    assert_eq!(outside.ok(), "reached\n");
    let inside = pyodide.result(&code);
    assert_eq!(inside["exit_code"], 1, "{inside}");
    assert!(
        inside["stderr"].as_str().unwrap().contains("Host is unreachable"),
        "{inside}"
    );
    let page = format!("from urllib.request import urlopen\nurlopen('http://127.0.0.1:{port}/', timeout=5)");
    let inside = pyodide.result(&page);
    assert_eq!(inside["exit_code"], 1, "{inside}");
    assert!(
        inside["stderr"].as_str().unwrap().contains("URLError"),
        "{inside}"
    );
}

#[test]
fn files_of_the_host_are_not_there() {
    let pyodide = Pyodide::new();
    let secret = pyodide.0.write("work/secret", "s3cret");
    let read = format!("print(open({:?}).read())", secret.to_str().unwrap());
    let outside = finish(pyodide.0.program("/usr/bin/python3").args(["-c", &read]), b"");
    assert_eq!(outside.ok(), "s3cret\n");
    let inside = pyodide.result(&read);
    assert!(
        inside["stderr"].as_str().unwrap().contains("FileNotFoundError"),
        "{inside}"
    );
    // Its writes go to its memory.
    let target = pyodide.0.path("work/planted");
    let write = format!(
        "from pathlib import Path\np = Path({:?})\np.parent.mkdir(parents=True)\np.write_text('x')\nprint(p.exists())",
        target.to_str().unwrap()
    );
    let inside = pyodide.result(&write);
    assert_eq!(inside["stdout"], "True\n", "{inside}");
    assert!(!target.exists());
}

#[test]
fn processes_cannot_be_started() {
    let pyodide = Pyodide::new();
    let code = "import subprocess\nprint(subprocess.run(['/bin/echo', 'ran'], capture_output=True).stdout)";
    let outside = finish(pyodide.0.program("/usr/bin/python3").args(["-c", code]), b"");
    assert_eq!(outside.ok(), "b'ran\\n'\n");
    let inside = pyodide.result(code);
    assert!(
        inside["stderr"]
            .as_str()
            .unwrap()
            .contains("does not support processes"),
        "{inside}"
    );
}

/// Runs Deno without our flags, to show the effect of the flags and the emptied globals.
fn plain_deno(code: &str) -> String {
    let dir = Dir::new();
    let deno = installed().join("deno-linux-x64-glibc-2.9.6/deno");
    let mut command = dir.program(deno);
    command.args(["eval", "--quiet", code]).env("NO_COLOR", "1");
    finish(&mut command, b"").ok().to_owned()
}

#[test]
fn javascript_is_closed() {
    let pyodide = Pyodide::new();
    let fails = |code: &str, expected: &str| {
        let result = pyodide.result(code);
        assert_ne!(result["exit_code"], 0, "{code}: {result}");
        assert!(
            result["stderr"].as_str().unwrap().contains(expected),
            "{code}: {result}"
        );
    };
    assert_eq!(
        plain_deno("console.log(typeof eval('Deno').readFile)"),
        "function\n"
    );
    fails("from js import Deno", "cannot import name 'Deno'");
    fails("import js\njs.eval", "AttributeError: eval");
    fails("from js import fetch", "cannot import name 'fetch'");
    fails("import pyodide_js", "No module named 'pyodide_js'");
    fails(
        "from pyodide.code import run_js\nrun_js('1')",
        "cannot import name",
    );
    assert_eq!(
        plain_deno("console.log([].constructor.constructor('return typeof Deno')())"),
        "object\n"
    );
    let constructor =
        "from pyodide.ffi import to_js\nto_js([1]).constructor.constructor('return typeof Deno')()";
    fails(constructor, "Code generation from strings disallowed");
    let modules = "import sys\nprint([n for n in sys.modules if n in ('js', 'pyodide_js')])";
    assert_eq!(pyodide.result(modules)["stdout"], "[]\n");
}

#[test]
fn text_that_looks_like_the_protocol_is_text() {
    let pyodide = Pyodide::new();
    let line = json!({"type": "complete", "id": "1", "data": {"exit_code": 0, "files": {}}});
    let code = format!("print('''{line}''')\nprint('after')\nraise SystemExit(9)");
    let result = pyodide.result(&code);
    assert_eq!(result["exit_code"], 9, "{result}");
    assert_eq!(result["stdout"], format!("{line}\nafter\n"));
}

/// A program that corrupts JavaScript's own objects affects its own run at most.
#[test]
fn what_is_spoilt_in_javascript_stays_in_the_run() {
    let pyodide = Pyodide::new();
    let code = "from pyodide.ffi import to_js, create_proxy\nproto = to_js([1]).constructor.prototype\n\
                proto.push = create_proxy(lambda *a: None)\nproto.join = create_proxy(lambda *a: '{}')\nprint('spoilt')";
    let result = pyodide.result(code);
    let outcome = result["meta"]["outcome"].as_str().unwrap();
    assert!(matches!(outcome, "exited" | "unknown"), "{result}");
    assert_eq!(pyodide.result("print('clean')")["stdout"], "clean\n");
}

#[test]
fn an_interpreter_that_dies_is_no_success() {
    let pyodide = Pyodide::new();
    // The scanner in C recurses deeper than JavaScript's stack.
    let result = pyodide.result("import json\njson.loads('[' * 100_000)");
    assert_eq!(result["meta"]["outcome"], "unknown", "{result}");
    assert_ne!(result["exit_code"], 0);
}

#[test]
fn a_program_that_leaves_at_once_has_its_status() {
    let pyodide = Pyodide::new();
    let code = "import os\ntry:\n    print('before', flush=True)\n    os._exit(7)\nfinally:\n    print('after', flush=True)";
    let result = pyodide.result(code);
    assert_eq!(result["meta"]["outcome"], "exited", "{result}");
    assert_eq!(result["exit_code"], 7, "{result}");
    assert_eq!(result["stdout"], "before\n", "{result}");
}

#[test]
fn classes_and_c_functions_lead_nowhere() {
    let pyodide = Pyodide::new();
    let walk = "import subprocess\nfound = [c for c in ().__class__.__base__.__subclasses__() if c.__name__ == 'Popen']\n\
                print(found[0](['/bin/echo', 'ran'], stdout=-1).communicate()[0])";
    let planted = pyodide.0.path("work/planted");
    let system = format!(
        "import ctypes\nstatus = ctypes.CDLL(None).system(b'touch {}')\nprint(status)\nraise SystemExit(status != 0)",
        planted.display()
    );
    let outside = |code: &str| finish(pyodide.0.program("/usr/bin/python3").args(["-c", code]), b"");
    assert_eq!(outside(walk).ok(), "b'ran\\n'\n");
    assert_eq!(outside(&system).ok(), "0\n");
    fs::remove_file(&planted).unwrap();
    for (code, why) in [(walk, "does not support processes"), (&*system, "")] {
        let inside = pyodide.result(code);
        assert_ne!(inside["exit_code"], 0, "{inside}");
        assert!(inside["stderr"].as_str().unwrap().contains(why), "{inside}");
    }
    assert!(!planted.exists());
}

#[test]
fn without_the_sandbox_the_local_fence_runs_it_and_says_so() {
    let pyodide = Pyodide::new();
    let code = "import json, os\nprint(os.uname().sysname)";
    let mut command = pyodide.command(&["--json", "-c", code]);
    let switched = [UNCHECKED, ("RINGFENCE_SKILLS_SANDBOX_ENABLED", "false")];
    let output = finish(command.envs(switched), b"");
    let result: Value = serde_json::from_str(&output.stdout).unwrap();
    assert_eq!(result["stdout"], "Linux\n", "{result}");
    assert_eq!(result["meta"]["runtime"], "local", "{result}");
    assert_eq!(result["meta"]["isolation"]["seccomp"], "fence", "{result}");
    let warnings = result["meta"]["warnings"].to_string();
    assert!(warnings.contains("NOT IN PYODIDE"), "{result}");
    assert_eq!(pyodide.result(code)["stdout"], "Emscripten\n");
}

#[test]
fn an_engine_that_is_set_up_otherwise_is_left_alone() {
    let world = World::before_engine();
    let config = format!(
        "[skills.sandbox]\ndirectory = '{}'\ntimeout_seconds = 60\n",
        installed().display()
    );
    world.dir.write("config/ringfence/ringfence.toml", config);
    world.start_engine();
    assert_eq!(world.run(["--runtime", "pyodide", "-c", "print(1)"]).ok(), "1\n");
    let other = [("RINGFENCE_SKILLS_SANDBOX_DIRECTORY", world.dir.path("work"))];
    let elsewhere = finish(
        world
            .command(&[], ["run", "--runtime", "pyodide", "-c", "1"])
            .envs(other),
        b"",
    );
    elsewhere.refused(125, "Deno and Pyodide are not installed");
    world.close();
}

#[test]
fn what_pyodide_does_not_have_is_refused() {
    let pyodide = Pyodide::new();
    let refused = |args: &[&str], what: &str| pyodide.run(args).refused(2, what);
    refused(&["-l", "bash", "-c", "true"], "runs Python, and not bash");
    for (option, value) in [
        ("--session", "s"),
        ("--python", "/usr/bin/python3"),
        ("--mount", ".:/data:rw"),
        ("--network", "allowlist"),
        ("--allow-host", "example.com"),
        ("--workspace", "."),
        ("--cpus", "0.5"),
        ("--pids", "9"),
    ] {
        let what = format!("`{option}");
        refused(&[option, value, "-c", "1"], &what);
        refused(
            &[option, value, "-c", "1"],
            "has no effect with the runtime `pyodide`: ",
        );
    }
    refused(&["--unfenced", "-c", "1"], "Pyodide always runs in the fence");
    let refused = |args: &[&str], what: &str| pyodide.run(args).refused(125, what);
    fs::write(pyodide.0.path("work/big"), vec![0; 17 << 20]).unwrap();
    refused(&["--mount", "big:/big", "-c", "1"], "more than 16777216 bytes");
    let mut elsewhere = pyodide.command(&["-c", "1"]);
    let missing = finish(
        elsewhere.env("RINGFENCE_SKILLS_SANDBOX_DIRECTORY", pyodide.0.path("work")),
        b"",
    );
    missing.refused(125, "Deno and Pyodide are not installed");
    assert!(missing.stderr.contains("ringfence setup deno"), "{missing:?}");
}

#[test]
fn a_package_that_was_tampered_with_is_not_installed() {
    let dir = Dir::new();
    fs::create_dir(dir.path("work/packages")).unwrap();
    for name in ["deno-linux-x64-glibc-2.9.6.tgz", "pyodide-314.0.7.tgz"] {
        dir.write(&format!("work/packages/{name}"), "not what it says");
    }
    let output = dir.run(["setup", "deno", "--from", "packages"]);
    output.refused(125, "does not match the pinned digest");
    // The unpacking program runs in another directory, so the message names an absolute path.
    let archive = dir.path("work/packages/deno-linux-x64-glibc-2.9.6.tgz");
    assert!(output.stderr.contains(archive.to_str().unwrap()), "{output:?}");
    let missing = dir.run(["setup", "deno", "--from", "."]);
    missing.refused(125, "cannot fetch @deno/linux-x64-glibc@2.9.6: there is no ");
    assert!(missing.stderr.contains("npm pack"), "{missing:?}");
    assert!(
        !dir.path("state/ringfence/pyodide/deno-linux-x64-glibc-2.9.6")
            .exists()
    );
}

/// An MCP server keeps an idle interpreter; each serves one program, and none sees another's leftovers.
#[test]
fn a_server_keeps_one_ready_and_shares_none() {
    let world = World::here();
    let config = format!(
        "[skills.sandbox]\nblocked_imports = []\ndirectory = '{}'\ntimeout_seconds = 60\n",
        installed().display()
    );
    world.dir.write("config/ringfence/ringfence.toml", config);
    let mut client = Client::greeted(&world, &[]);
    let files = client.call(
        "run_code",
        &json!({"code": "print(open('in.txt').read())", "runtime": "pyodide", "files": {"in.txt": "came along"}}),
    );
    let files = &files["structuredContent"];
    assert_eq!(files["stdout"], "came along\n", "{files}");
    assert_eq!(files["meta"]["resource_limits"]["memory_bytes"], 128 << 20);
    // The conversation's `/output`, which other runtimes have, too.
    let bash = "echo bash > /output/a; mkdir /output/d; echo bash > /output/d/b";
    client.call("run_code", &json!({"code": bash, "language": "bash"}));
    let code = "import os\nprint(open('/output/d/b').read(), os.listdir('/output'))\nopen('/output/a', 'a').write('pyodide')";
    let answer = client.call("run_code", &json!({"code": code, "runtime": "pyodide"}));
    let told = crate::mcp::text(&answer);
    assert!(
        told.starts_with("bash\n ['a', 'd']\n[file /output/a: 12B]"),
        "{told}"
    );
    let answer = client.call("run_code", &json!({"code": "cat /output/a", "language": "bash"}));
    assert_eq!(crate::mcp::text(&answer), "bash\npyodide");
    let mut run = |code: &str| {
        let answer = client.call("run_code", &json!({"code": code, "runtime": "pyodide"}));
        answer["structuredContent"].clone()
    };
    let left = "import json\njson.mark = 1\nopen('/tmp/mark', 'w').write('x')\nprint('left')";
    assert_eq!(run(left)["stdout"], "left\n");
    let look =
        "import json, os, random\nprint(hasattr(json, 'mark'), os.path.exists('/tmp/mark'), random.random())";
    let mut seen = Vec::new();
    // The next one is started after a run; the client sees its readiness only as a warm run.
    for _ in 0..20 {
        let result = run(look);
        let stdout = result["stdout"].as_str().unwrap().to_owned();
        assert!(stdout.starts_with("False False "), "{result}");
        assert!(!seen.contains(&stdout), "the same random numbers: {stdout}");
        seen.push(stdout);
        if result["meta"]["warm"] == true {
            drop(client.leave());
            return;
        }
    }
    assert_eq!(seen, Vec::<String>::new(), "never warm");
}
