//! Features that Python programs rely on, inside the fence.

use crate::support::finish;
use crate::world::{Mode, World, here, venv};

here!(
    the_program_is_main,
    threads_and_asyncio_work,
    processes_work_within_the_limit,
    the_standard_library_works,
    classes_of_main_can_be_pickled,
    what_is_at_exit_runs,
    no_two_runs_share_their_randomness,
    source_can_be_inspected,
    warnings_and_uncaught_hooks_work,
    exceptions_of_threads_and_groups_are_shown,
    odd_sources_run,
    a_virtual_environment_brings_its_packages,
    a_linked_virtual_environment_works,
    a_chart_comes_out,
    other_versions_work,
    python_behind_a_shim_is_found,
);

fn the_program_is_main(world: &World) {
    world.dir.write(
        "work/main.py",
        "import sys, __main__\nprint(__name__, __file__, sys.argv, __main__.__dict__ is globals())\n\
         print(__doc__, __package__, __spec__)\nif __name__ == '__main__':\n    print('main')\n",
    );
    assert_eq!(
        world.run(["main.py", "--", "a", "b"]).ok(),
        "__main__ main.py ['main.py', 'a', 'b'] True\nNone None None\nmain\n"
    );
    // Names of our worker are not visible to the program.
    let code = "print(sorted(name for name in globals() if not name.startswith('__')))\n\
                try:\n    receive_job\nexcept NameError:\n    print('clean')";
    assert_eq!(world.python(code), "[]\nclean\n");
    assert_eq!(world.python("\"\"\"The doc.\"\"\"\nprint(__doc__)"), "The doc.\n");
    assert_eq!(
        world
            .python("from __future__ import annotations\ndef f(a: nonsense): pass\nprint(f.__annotations__)"),
        "{'a': 'nonsense'}\n"
    );
}

fn threads_and_asyncio_work(world: &World) {
    let code = "import threading, time\nresults = []\ndef work(n):\n    time.sleep(0.01)\n    results.append(n)\n\
                for n in range(20):\n    threading.Thread(target=work, args=(n,)).start()\nimport atexit\n\
                atexit.register(lambda: print(len(results)))\nprint('main is done')";
    // Non-daemon threads are joined before the `atexit` handlers run.
    assert_eq!(world.python(code), "main is done\n20\n");
    let code = "import asyncio\nasync def child():\n    process = await asyncio.create_subprocess_exec('echo', 'hi', \
                stdout=asyncio.subprocess.PIPE)\n    return (await process.communicate())[0]\n\
                async def main():\n    a, b = await asyncio.gather(child(), asyncio.to_thread(sum, range(10)))\n    \
                print(a, b)\nasyncio.run(main())";
    assert_eq!(world.python(code), "b'hi\\n' 45\n");
}

fn processes_work_within_the_limit(world: &World) {
    let code = "import subprocess, os\nprint(subprocess.run(['sh', '-c', 'cat; exit 3'], input='x', text=True, \
                capture_output=True))\nprint(os.system('exit 2') >> 8, os.popen('echo popen').read())";
    assert_eq!(
        world.python(code),
        "CompletedProcess(args=['sh', '-c', 'cat; exit 3'], returncode=3, stdout='x', stderr='')\n2 popen\n\n"
    );
    for method in ["fork", "spawn", "forkserver"] {
        let code = format!(
            "import multiprocessing as mp\ndef square(n): return n * n\nif __name__ == '__main__':\n    \
             mp.set_start_method('{method}')\n    with mp.Pool(2) as pool:\n        print(pool.map(square, range(5)))\n"
        );
        world.dir.write("work/pool.py", &code);
        let run = world.json(["--timeout", "10s", "pool.py"]);
        match run.get("exit_code").as_i64() {
            Some(0) => assert_eq!(run.stdout(), "[0, 1, 4, 9, 16]\n", "{method}"),
            // A start method that cannot work must fail with an error.
            _ => assert!(
                method != "fork" && run.get("meta.outcome") == "exited",
                "{method}: {run:?}"
            ),
        }
    }
    let code = "from concurrent.futures import ProcessPoolExecutor as Pool\nimport multiprocessing as mp\n\
                with Pool(3, mp_context=mp.get_context('fork')) as pool: print(sum(pool.map(abs, range(-4, 1))))";
    assert_eq!(world.python(code), "10\n");
}

/// Uses of modules, with the expected output.
const STANDARD: &[(&str, &str)] = &[
    (
        "import sqlite3; c = sqlite3.connect('x.db'); c.execute('create table t(a)'); c.execute('insert into t values(7)'); c.commit(); print(c.execute('select a from t').fetchall())",
        "[(7,)]\n",
    ),
    (
        "import tempfile, os; d = tempfile.mkdtemp(); print(os.path.dirname(d)); f = tempfile.TemporaryFile(); f.write(b'x'); print(f.tell())",
        "/tmp\n1\n",
    ),
    (
        "import ctypes; print(ctypes.CDLL(None).abs(-5)); print(ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_int)(lambda n: n + 1)(1))",
        "5\n2\n",
    ),
    (
        "import os, getpass, pathlib; print(os.getuid(), getpass.getuser(), pathlib.Path.home(), os.getcwd())",
        "1000 sandbox /workspace /workspace\n",
    ),
    (
        "import decimal, fractions, statistics, zoneinfo, datetime; print(datetime.datetime(2026, 7, 1, tzinfo=zoneinfo.ZoneInfo('Europe/Paris')).isoformat())",
        "2026-07-01T00:00:00+02:00\n",
    ),
    (
        "import mmap; m = mmap.mmap(-1, 4096); m[:3] = b'abc'; print(m[:3])",
        "b'abc'\n",
    ),
    (
        "import socket; a, b = socket.socketpair(); a.send(b'hi'); print(b.recv(9))",
        "b'hi'\n",
    ),
    (
        "import select, os; r, w = os.pipe(); e = select.epoll(); e.register(r); os.write(w, b'x'); print(len(e.poll(1)))",
        "1\n",
    ),
    (
        "import multiprocessing.shared_memory as s; m = s.SharedMemory(create=True, size=64); m.buf[0] = 9; print(m.buf[0]); m.close(); m.unlink()",
        "9\n",
    ),
    (
        "import signal; signal.signal(signal.SIGALRM, lambda *_: print('alarm')); signal.setitimer(signal.ITIMER_REAL, 0.01); signal.pause()",
        "alarm\n",
    ),
    (
        "import zipfile, tarfile, gzip, bz2, lzma, io; print(lzma.decompress(lzma.compress(b'x')))",
        "b'x'\n",
    ),
    (
        "import importlib.resources, email, html, json, xml.etree.ElementTree as e, csv; print(e.fromstring('<a b=\"c\"/>').get('b'))",
        "c\n",
    ),
    (
        "import locale, sys; print(sys.stdout.encoding.lower(), sys.getfilesystemencoding(), 'é' == '\\u00e9')",
        "utf-8 utf-8 True\n",
    ),
    (
        "import shutil; print(shutil.which('python3') is not None, shutil.which('bash'))",
        "True /usr/bin/bash\n",
    ),
    (
        "import sys, subprocess; print(subprocess.check_output([sys.executable, '-c', 'print(2)']))",
        "b'2\\n'\n",
    ),
    (
        "import time; a = time.monotonic(); time.sleep(0.01); print(time.monotonic() - a >= 0.01, time.time() > 1.6e9)",
        "True True\n",
    ),
    (
        "import cProfile, io, pstats; p = cProfile.Profile(); p.runcall(sum, [1]); print('ok')",
        "ok\n",
    ),
    (
        "import site, sys; print(all(isinstance(p, str) for p in sys.path), help is not None)",
        "True True\n",
    ),
];

fn the_standard_library_works(world: &World) {
    for (code, expected) in STANDARD {
        assert_eq!(world.python(code), *expected, "{code}");
    }
}

fn classes_of_main_can_be_pickled(world: &World) {
    let code = "import pickle, copy\nfrom dataclasses import dataclass\nfrom enum import Enum\nfrom typing import NamedTuple, get_type_hints\n\
                @dataclass\nclass Point:\n    x: int\n    y: 'int' = 2\nclass Kind(Enum):\n    A = 1\n\
                class Pair(NamedTuple):\n    a: Point\nback = pickle.loads(pickle.dumps([Point(1), Kind.A, Pair(Point(3))]))\n\
                print(back, back[1] is Kind.A, get_type_hints(Point))";
    assert_eq!(
        world.python(code),
        "[Point(x=1, y=2), <Kind.A: 1>, Pair(a=Point(x=3, y=2))] True {'x': <class 'int'>, 'y': <class 'int'>}\n"
    );
}

fn what_is_at_exit_runs(world: &World) {
    let code = "import atexit, sys\natexit.register(print, 'second')\natexit.register(print, 'first')\n\
                sys.stdout.write('unflushed ')\nsys.exit(3)";
    let run = world.json(["-c", code]);
    run.ended("exited", 3, 3);
    assert_eq!(run.stdout(), "unflushed first\nsecond\n");
    let code = "import atexit\n@atexit.register\ndef broken(): raise ValueError('at exit')\nprint('done')";
    let run = world.json(["-c", code]);
    assert!(
        run.stdout() == "done\n" && run.stderr().contains("ValueError: at exit"),
        "{run:?}"
    );
    // Output written in various ways arrives in the order of its flushes.
    let code = "import os, sys\nprint('a', end='', flush=True)\nos.write(1, b'b')\nos.system('printf c')\nsys.stdout.write('d')";
    assert_eq!(world.python(code), "abcd");
    // Finalisers of generators and files run too.
    let run = world.json([
        "--output",
        "out",
        "-c",
        "f = open('/output/x', 'w')\nf.write('kept')",
    ]);
    assert_eq!(
        run.get("meta.output_files")[0]["bytes"],
        4,
        "a file that was not closed lost its contents"
    );
}

fn no_two_runs_share_their_randomness(world: &World) {
    let code = "import random, uuid, secrets, os, tempfile\nprint(random.random())\nprint(uuid.uuid4())\n\
                print(secrets.token_hex())\nprint(os.urandom(8))\nprint(next(tempfile._get_candidate_names()))\n\
                print(random.SystemRandom().random())\nprint(random.Random().random())";
    let runs = [world.python(code), world.python(code), world.python(code)];
    for (number, line) in runs[0].lines().enumerate() {
        for other in &runs[1..] {
            assert_ne!(other.lines().nth(number), Some(line), "{runs:?}");
        }
    }
    let seeded = "import random; random.seed(7); print(random.random())";
    assert_eq!(world.python(seeded), world.python(seeded));
    // Workers of one zygote share its hash seed, until the zygote is renewed.
    let hash = "print(hash('text'))";
    let here = world.python(hash);
    if world.mode == Mode::Engine {
        world.stop_engine("TERM");
        world.start_engine();
    }
    assert_ne!(world.python(hash), here);
}

fn source_can_be_inspected(world: &World) {
    let code = "import inspect\ndef f():\n    return 1\nprint(inspect.getsource(f), end='')\n";
    world.dir.write("work/source.py", code);
    assert_eq!(world.run(["source.py"]).ok(), "def f():\n    return 1\n");
}

fn warnings_and_uncaught_hooks_work(world: &World) {
    let run = world.json(["-c", "import warnings\nwarnings.warn('careful')"]);
    assert!(
        run.stderr().starts_with("<string>:2: UserWarning: careful\n"),
        "{run:?}"
    );
    let code = "import sys\nsys.excepthook = lambda kind, value, trace: print('hook', kind.__name__, trace.tb_lineno)\nraise KeyError(1)";
    let run = world.json(["-c", code]);
    run.ended("exited", 1, 1);
    assert_eq!((run.stdout(), run.stderr()), ("hook KeyError 3\n", ""));
    let run = world.json(["-c", "import logging\nlogging.error('x %s', 1)"]);
    assert_eq!(run.stderr(), "ERROR:root:x 1\n");
}

fn exceptions_of_threads_and_groups_are_shown(world: &World) {
    let code = "import threading\ndef f():\n    raise OSError('in a thread')\nt = threading.Thread(target=f)\nt.start()\nt.join()\nprint('on')";
    let run = world.json(["-c", code]);
    run.ended("exited", 0, 0);
    assert!(
        run.stderr().contains("line 3, in f") && run.stderr().contains("OSError: in a thread"),
        "{run:?}"
    );
    let run = world.json(["-c", "def f(n): return f(n + 1)\nf(0)"]);
    run.ended("exited", 1, 1);
    assert!(
        run.stderr().contains("RecursionError") && run.stderr().contains("more times]"),
        "{run:?}"
    );
    let run = world.json(["-c", "raise KeyboardInterrupt"]);
    assert_eq!(run.output.status, 130, "{run:?}");
    assert!(run.stderr().ends_with("KeyboardInterrupt\n"), "{run:?}");
    // An exception whose `__str__` fails does not break the report.
    let code = "class E(Exception):\n    def __str__(self): raise ValueError\nraise E";
    assert!(
        world
            .json(["-c", code])
            .stderr()
            .contains("exception str() failed")
    );
}

fn odd_sources_run(world: &World) {
    world.run(["-c", ""]).ok();
    assert_eq!(world.python("# only a comment"), "");
    world.dir.write(
        "work/bom.py",
        b"\xef\xbb\xbfprint('with a mark')\r\nprint('crlf')\r\n",
    );
    assert_eq!(world.run(["bom.py"]).ok(), "with a mark\ncrlf\n");
    world
        .dir
        .write("work/cookie.py", "# -*- coding: utf-8 -*-\nprint('é')\n");
    assert_eq!(world.run(["cookie.py"]).ok(), "é\n");
    assert_eq!(
        world.python("print('\u{1f600}', len('\u{1f600}'))"),
        "\u{1f600} 1\n"
    );
    let long = format!("x = '{}'\nprint(len(x))", "y".repeat(3_000_000));
    world.dir.write("work/long.py", long);
    assert_eq!(world.run(["long.py"]).ok(), "3000000\n");
    world.dir.write("work/ends without newline.py", "print(__file__)");
    assert_eq!(
        world.run(["ends without newline.py"]).ok(),
        "ends without newline.py\n"
    );
    let deep = format!("x = {}1{}", "(".repeat(5000), ")".repeat(5000));
    let run = world.json(["-c", &deep]);
    run.ended("exited", 1, 1);
    assert!(run.stderr().contains("too many nested parentheses"), "{run:?}");
}

fn a_virtual_environment_brings_its_packages(world: &World) {
    let Some(python) = venv() else { return };
    let code = "import sys, numpy as np, pandas as pd\na = np.random.default_rng(1).random((400, 400))\n\
                print(np.allclose(np.linalg.inv(a) @ a, np.eye(400)), sys.prefix != sys.base_prefix)\n\
                print(pd.DataFrame({'k': list('aab'), 'v': [1, 2, 3]}).groupby('k').v.sum().to_dict())\n\
                import threading\nthreads = [threading.Thread(target=np.dot, args=(a, a)) for _ in range(4)]\n\
                [t.start() for t in threads]\n[t.join() for t in threads]\nprint('threads')";
    let output = world.run(["--python", &python, "--memory", "1GiB", "-c", code]);
    assert_eq!(output.ok(), "True True\n{'a': 3, 'b': 3}\nthreads\n");
    world.dir.write(
        "config/ringfence/ringfence.toml",
        format!("[sandbox]\npython = '{python}'\n"),
    );
    let configured = world.run([
        "--memory",
        "1GiB",
        "-c",
        "import numpy; print(numpy.arange(3).sum())",
    ]);
    assert_eq!(configured.ok(), "3\n");
    let plain = world.json(["--python", "/usr/bin/python3", "-c", "import numpy"]);
    assert!(
        plain
            .stderr()
            .contains("ModuleNotFoundError: No module named 'numpy'"),
        "{plain:?}"
    );
}

fn a_linked_virtual_environment_works(world: &World) {
    let Some(python) = venv() else { return };
    let environment = std::path::Path::new(&python).parent().unwrap().parent().unwrap();
    std::os::unix::fs::symlink(environment, world.dir.path("work/link")).unwrap();
    let output = world.run([
        "--python",
        "link/bin/python",
        "-c",
        "import sys; print(sys.prefix != sys.base_prefix)",
    ]);
    assert_eq!(output.ok(), "True\n");
}

/// Any versions of pyenv from 3.9 on; there may be none.
fn other_versions_work(world: &World) {
    let versions =
        std::path::PathBuf::from(std::env::var_os("HOME").unwrap_or_default()).join(".pyenv/versions");
    for version in std::fs::read_dir(versions).into_iter().flatten().flatten() {
        let name = version.file_name().to_string_lossy().into_owned();
        let minor: Option<u32> = name
            .strip_prefix("3.")
            .and_then(|rest| rest.split('.').next()?.parse().ok());
        let python = version.path().join("bin/python3");
        if !python.exists() {
            continue;
        }
        let python = python.display().to_string();
        let code = "import sys, json, sqlite3, ctypes\nprint('%d.%d' % sys.version_info[:2])\nexit(3)";
        let output = world.run(["--python", &python, "-c", code]);
        match minor {
            Some(9..) => {
                let expected = name.rsplit_once('.').unwrap().0;
                assert_eq!(
                    (output.status, output.stdout.trim()),
                    (3, expected),
                    "{name}: {output:?}"
                );
                let failed = world.json(["--python", &python, "-c", "def f():\n    1 / 0\nf()"]);
                let text = failed.stderr();
                assert!(
                    text.contains("line 3, in <module>") && text.contains("line 2, in f"),
                    "{name}: {text}"
                );
            }
            _ => output.refused(125, "3.9"),
        }
    }
}

fn a_chart_comes_out(world: &World) {
    let Some(python) = venv() else { return };
    let code = "import matplotlib\nmatplotlib.use('Agg')\nimport matplotlib.pyplot as plt\nplt.plot([1, 2])\nplt.savefig('/output/c.png')";
    let run = world.json([
        "--python",
        &python,
        "--memory",
        "1GiB",
        "--timeout",
        "60s",
        "-o",
        "out",
        "-c",
        code,
    ]);
    run.ended("exited", 0, 0);
    let image = std::fs::read(world.dir.path("work/out/c.png")).unwrap();
    assert!(
        image.starts_with(b"\x89PNG\r\n\x1a\n") && image.len() > 5000,
        "{}",
        image.len()
    );
}

fn python_behind_a_shim_is_found(world: &World) {
    std::fs::create_dir(world.dir.path("work/shims")).unwrap();
    let shim = world
        .dir
        .write("work/shims/python3", "#!/bin/sh\nexec /usr/bin/python3 \"$@\"\n");
    finish(world.dir.program("chmod").arg("755").arg(&shim), b"").ok();
    let mut path = world.dir.path("work/shims").into_os_string();
    path.push(":/usr/bin:/bin");
    let output = world
        .call(["-c", "import sys; print(sys.executable)"])
        .env("PATH", path)
        .output();
    assert_eq!(output.ok(), "/usr/bin/python3\n");
}
