//! Features that bash and JavaScript programs rely on, inside the fence.

use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use crate::support::Dir;
use crate::world::{World, here};

here!(
    bash_has_its_tools,
    bash_fails_as_told,
    background_jobs_end_with_the_script,
    pip_without_a_network_fails_at_once,
    node_has_its_modules,
    node_fails_as_told,
    a_module_file_is_a_module,
    files_choose_their_language,
);

#[track_caller]
fn prints(world: &World, language: &str, code: &str, expected: &str) {
    let output = world.run(["-l", language, "-c", code]);
    assert_eq!((output.ok(), output.stderr.as_str()), (expected, ""), "{code}");
}

fn bash_has_its_tools(world: &World) {
    for (code, expected) in [
        (
            "printf 'b\\na\\nb\\n' | sort | uniq -c | awk '{print $2 $1}'",
            "a1\nb2\n",
        ),
        (
            "cat <<'END'\n$HOME `x`\nEND\ncat <<<$((6 * 7))",
            "$HOME `x`\n42\n",
        ),
        ("diff <(echo a) <(echo a) && echo same", "same\n"),
        (
            "declare -A m=([k]=v); a=(1 2 3); echo ${m[k]} ${a[@]:1} ${#a[@]}",
            "v 2 3 3\n",
        ),
        (
            "echo $(( $(seq 100 | wc -l) )) | tee file; cat file",
            "100\n100\n",
        ),
        ("[[ abc123 =~ ([0-9]+) ]] && echo ${BASH_REMATCH[1]}", "123\n"),
        ("mkfifo p; echo through > p & cat p", "through\n"),
        ("trap 'echo trapped' EXIT; echo body", "body\ntrapped\n"),
        (
            "coproc cat; echo x >&${COPROC[1]}; read y <&${COPROC[0]}; echo $y",
            "x\n",
        ),
        (
            "echo $PWD $HOME $USER ~; id -un",
            "/workspace /workspace sandbox /workspace\nsandbox\n",
        ),
        (
            "sed 's/a/b/' <<<aa; grep -c x <<<x; tr a-z A-Z <<<up; find . -name none; date -u -d @0 +%F",
            "ba\n1\nUP\n1970-01-01\n",
        ),
        (
            "x() { local a=$1; return $a; }; x 4; echo $?; (exit 5); echo $?",
            "4\n5\n",
        ),
        (
            "time -p true 2>/dev/null; exec 3>f; echo to three >&3; cat f",
            "to three\n",
        ),
        (
            "tar cf - /etc/hostname 2>/dev/null | tar tf -; gzip <<<x | gunzip",
            "etc/hostname\nx\n",
        ),
    ] {
        let output = world.run(["-l", "bash", "-c", code]);
        assert_eq!(output.ok(), expected, "{code}: {output:?}");
    }
}

fn bash_fails_as_told(world: &World) {
    for (code, status, stderr) in [
        ("set -e; echo a; false; echo b", 1, ""),
        ("set -o pipefail; false | true", 1, ""),
        ("set -u; echo $none", 1, "none: unbound variable"),
        (
            "no-such-command",
            127,
            "line 1: no-such-command: command not found",
        ),
        ("/etc/hostname", 126, "Permission denied"),
        ("echo 'unclosed", 2, "unexpected EOF"),
        ("exit 300", 44, ""),
        ("kill -TERM $$", 143, ""),
    ] {
        let output = world.run(["-l", "bash", "-c", code]);
        assert_eq!(output.status, status, "{code}: {output:?}");
        assert!(output.stderr.contains(stderr), "{code}: {output:?}");
        assert!(
            !stderr.is_empty() || output.stderr.is_empty(),
            "{code}: {output:?}"
        );
    }
}

fn background_jobs_end_with_the_script(world: &World) {
    let run = world.json([
        "-l",
        "bash",
        "-c",
        "sleep 1000 & nohup setsid sleep 1001 >/dev/null 2>&1 & disown -a; echo done",
    ]);
    run.ended("exited", 0, 0);
    assert_eq!(run.stdout(), "done\n");
    assert!(run.seconds() < 5.0, "{run:?}");
}

fn pip_without_a_network_fails_at_once(world: &World) {
    let code = "pip() { python3 -m pip install --disable-pip-version-check --target /tmp/x six 2>&1; }\n\
                PIP_RETRIES=1 pip | grep -c Retrying\n\
                pip | grep -c Retrying\n\
                pip | grep -o 'No matching distribution'";
    prints(world, "bash", code, "1\n0\nNo matching distribution\n");
}

fn node_has_its_modules(world: &World) {
    for (code, expected) in [
        (
            "const fs = require('fs'); fs.writeFileSync('a', 'x'); console.log(fs.readdirSync('.'), process.cwd())",
            "[ 'a' ] /workspace\n",
        ),
        (
            "console.log(require('child_process').execSync('echo sub; id -un').toString())",
            "sub\nsandbox\n\n",
        ),
        (
            "const { Worker } = require('worker_threads'); new Worker('require(\"worker_threads\").parentPort.postMessage(6 * 7)', { eval: true }).on('message', console.log)",
            "42\n",
        ),
        (
            "setTimeout(() => console.log('later'), 300); setImmediate(() => console.log('soon')); console.log('now')",
            "now\nsoon\nlater\n",
        ),
        (
            "(async () => { for await (const x of (async function* () { yield 1; yield 2 })()) console.log(x) })()",
            "1\n2\n",
        ),
        (
            "const c = require('crypto'); console.log(c.createHash('sha256').update('').digest('hex').slice(0, 8), c.randomUUID().length)",
            "e3b0c442 36\n",
        ),
        (
            "const z = require('zlib'); console.log(z.gunzipSync(z.gzipSync('x')).toString())",
            "x\n",
        ),
        (
            "require('fs').promises.readFile('/etc/hostname', 'utf8').then((text) => console.log(text.trim()))",
            "sandbox\n",
        ),
        (
            "console.log(10n ** 20n, 'é'.normalize('NFD').length, new Intl.NumberFormat('en').format(12345))",
            "100000000000000000000n 2 12,345\n",
        ),
        (
            "console.log(__filename.split('/').pop(), require.main === module)",
            "main.js true\n",
        ),
    ] {
        prints(world, "javascript", code, expected);
    }
    let child = "const { spawn } = require('child_process'); const p = spawn('cat'); p.stdout.pipe(process.stdout); p.stdin.end('piped')";
    prints(world, "javascript", child, "piped");
}

fn node_fails_as_told(world: &World) {
    for (code, status, stderr) in [
        ("process.exit(5)", 5, ""),
        ("process.exitCode = 6", 6, ""),
        (
            "console.log('a')\nthrow new TypeError('thrown')",
            1,
            "TypeError: thrown",
        ),
        (
            "Promise.reject(new Error('nobody caught it'))",
            1,
            "nobody caught it",
        ),
        ("let x = ;", 1, "SyntaxError"),
        (
            "require('no-such-module')",
            1,
            "Cannot find module 'no-such-module'",
        ),
        (
            "process.kill(process.pid, 'SIGKILL'); setTimeout(() => {}, 1000)",
            137,
            "",
        ),
    ] {
        let output = world.run(["-l", "javascript", "-c", code]);
        assert_eq!(output.status, status, "{code}: {output:?}");
        assert!(output.stderr.contains(stderr), "{code}: {output:?}");
    }
    // The line number in an error is that of the program.
    let output = world.run(["-l", "javascript", "-c", "\n\nnull.x"]);
    assert!(
        output.stderr.contains("main.js:3\n") || output.stderr.contains("main.js:3:"),
        "{output:?}"
    );
    let memory = world.json([
        "-l",
        "javascript",
        "--memory",
        "150MiB",
        "-c",
        "const a = []; while (true) a.push(Buffer.alloc(1 << 20, 1))",
    ]);
    assert_ne!(memory.output.status, 0, "{memory:?}");
    let timeout = world.json([
        "-l",
        "javascript",
        "--timeout",
        "500ms",
        "-c",
        "console.log('x'); while (true);",
    ]);
    timeout.ended("timed_out", -1, 124);
    assert_eq!(timeout.stdout(), "x\n");
}

fn a_module_file_is_a_module(world: &World) {
    world.dir.write("work/program.mjs", "import { basename } from 'node:path';\nconsole.log(basename(import.meta.url), await Promise.resolve(1));\n");
    assert_eq!(world.run(["program.mjs"]).ok(), "program.mjs 1\n");
    world.dir.write("work/program.cjs", "console.log(typeof require)");
    assert_eq!(world.run(["program.cjs"]).ok(), "function\n");
}

fn files_choose_their_language(world: &World) {
    for (name, text, expected) in [
        ("a.py", "print(1)", "1\n"),
        ("a.sh", "echo 2", "2\n"),
        ("a.bash", "echo 3", "3\n"),
        ("a.js", "console.log(4)", "4\n"),
        ("plain", "#!/usr/bin/env node\nconsole.log(5)", "5\n"),
        ("other", "#!/bin/sh\necho 6", "6\n"),
        ("none", "print(7)", "7\n"),
        ("with space & odd.sh", "echo 8", "8\n"),
        ("-dash.js", "console.log(9)", "9\n"),
    ] {
        world.dir.write(&format!("work/{name}"), text);
        assert_eq!(world.run([format!("./{name}")]).ok(), expected, "{name}");
    }
}

/// The engine of `sandbox.javascript` is used, and one that would find nothing in the fence is refused.
#[test]
fn a_named_javascript_engine_is_used() {
    let dir = Dir::new();
    let print = ["run", "-l", "javascript", "-c", "console.log(process.execPath)"];
    let first = dir.run(print).ok().trim().to_owned();
    for name in ["engine", "script"] {
        std::fs::create_dir(dir.path(name)).unwrap();
    }
    dir.write("engine/node", std::fs::read(&first).unwrap());
    dir.write("script/node", format!("#!/bin/sh\nexec {first} \"$@\"\n"));
    for name in ["engine/node", "script/node"] {
        std::fs::set_permissions(dir.path(name), PermissionsExt::from_mode(0o755)).unwrap();
    }
    let name_it = |engine: &Path| {
        let config = format!("[sandbox]\njavascript = '{}'\n", engine.display());
        dir.write("config/ringfence/ringfence.toml", config);
    };
    name_it(&dir.path("engine/node"));
    let named = format!("{}\n", dir.path("engine/node").display());
    assert_eq!(dir.run(print).ok(), named);
    assert!(dir.run(["doctor"]).stdout.contains(named.trim()));
    name_it(&dir.path("script/node"));
    dir.run(print)
        .refused(125, "expected the program of Node.js or Deno, found");
    assert!(
        dir.run(["doctor"])
            .stdout
            .contains("expected the program of Node.js or Deno")
    );
}
