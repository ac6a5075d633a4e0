//! Modules preloaded by a warm interpreter, and failing preloads.

use std::fs;
use std::path::{Path, PathBuf};

use crate::support::{Dir, eventually, finish};
use crate::world::{World, venv};

/// Modules by name, with their text: three good ones, and every way to fail.
const MODULES: &[(&str, &str)] = &[
    ("good", "value = 1"),
    ("ends", "raise SystemExit(3)"),
    ("interrupts", "raise KeyboardInterrupt"),
    (
        "strange",
        "class Odd(BaseException): pass\nraise Odd('odd\\n\\x1b[31m')",
    ),
    (
        "crashes",
        "import os, signal\nos.kill(os.getpid(), signal.SIGSEGV)",
    ),
    ("exits", "import os\nos._exit(0)"),
    (
        "leaves",
        "import threading, time\nthreading.Thread(target=time.sleep, args=(1000,), daemon=True).start()",
    ),
    ("hangs", "import threading\nthreading.Event().wait()"),
    ("prints", "print('x' * 300_000, flush=True)"),
    ("last", "import good"),
];

/// The failing ones, with their errors.
const FAILED: &[(&str, &str)] = &[
    ("nowhere", "ModuleNotFoundError: No module named 'nowhere'"),
    ("ends", "SystemExit: 3"),
    ("interrupts", "KeyboardInterrupt:"),
    ("strange", "Odd: odd"),
    ("crashes", "the interpreter ended while importing it"),
    ("exits", "the interpreter ended while importing it"),
    ("leaves", "it leaves threads running"),
    ("hangs", "or it took longer than 5s"),
];

/// Creates a virtual environment with the packages [`MODULES`]; returns its interpreter.
fn environment(dir: &Dir) -> PathBuf {
    let place = dir.path("venv");
    let mut make = dir.program("python3");
    finish(make.args(["-m", "venv", "--without-pip"]).arg(&place), b"").ok();
    let library = fs::read_dir(place.join("lib")).unwrap().next().unwrap().unwrap();
    for (name, text) in MODULES {
        let module = library.path().join("site-packages").join(format!("{name}.py"));
        fs::write(module, text).unwrap();
    }
    place.join("bin/python")
}

fn configure(dir: &Dir, python: &Path, modules: &[&str]) {
    let python = python.display();
    let text = format!(
        "[sandbox]\npython = '{python}'\npreload = {modules:?}\npreload_timeout = '5s'\nmemory = '512MiB'\n"
    );
    dir.write("config/ringfence/ringfence.toml", text);
}

/// Waits until programs get a pooled interpreter.
#[track_caller]
fn until_warm(world: &World) {
    eventually("a warm interpreter", || {
        world.json(["-c", "1"]).get("meta.warm") == true
    });
}

#[test]
fn a_module_that_cannot_be_imported_costs_nothing_but_itself() {
    let world = World::before_engine();
    let python = environment(&world.dir);
    let names: Vec<&str> = ["nowhere"]
        .into_iter()
        .chain(MODULES.iter().map(|(name, _)| *name))
        .collect();
    configure(&world.dir, &python, &names);
    world.start_engine();
    until_warm(&world);
    let code = format!("import sys\nprint(sorted(set({names:?}) & set(sys.modules)))");
    let run = world.json(["-c", &code]);
    assert_eq!(run.stdout(), "['good', 'last', 'prints']\n", "{run:?}");
    assert_eq!(run.get("meta.warm"), true);
    let warnings = run.get("meta.warnings").to_string();
    let log = world.engine_log();
    for (module, why) in FAILED {
        let told = format!("not preloaded: `{module}` cannot be imported beforehand");
        for place in [&warnings, &log] {
            let line = place.split(&told).nth(1).unwrap_or_default();
            assert!(line.get(..300).unwrap_or(line).contains(why), "{module}: {place}");
        }
        assert_eq!(log.matches(&told).count(), 1, "{log}");
    }
    assert!(!log.contains('\x1b'), "{log}");
    // A model gets no warnings about the preload.
    let text = world.tool(&[], "run_python_code", &serde_json::json!({"code": "print(1)"}));
    assert_eq!(text, "1\n");
    // Other languages are not affected.
    let bash = world.json(["-l", "bash", "-c", "true"]);
    assert!(bash.get("meta.warnings").is_null(), "{bash:?}");
    world.close();
}

#[test]
fn sessions_of_an_interpreter_with_modules_can_be_forked() {
    let world = World::before_engine();
    let python = environment(&world.dir);
    configure(&world.dir, &python, &["good", "crashes", "last"]);
    world.start_engine();
    until_warm(&world);
    world
        .run(["--session", "one", "-c", "import last\nx = last.good.value"])
        .ok();
    finish(&mut world.command(&[], ["session", "fork", "one", "two"]), b"").ok();
    assert_eq!(world.run(["--session", "two", "-c", "print(x + 1)"]).ok(), "2\n");
    world.close();
}

#[test]
fn doctor_tries_them() {
    let dir = Dir::new();
    let python = environment(&dir);
    let layer = |modules: &[&str]| {
        configure(&dir, &python, modules);
        let report = dir.run(["doctor", "--json"]);
        let report: serde_json::Value = serde_json::from_str(report.ok()).unwrap();
        let layers = report["layers"].as_array().unwrap().clone();
        layers.into_iter().find(|layer| layer["name"] == "preload")
    };
    assert_eq!(layer(&[]), None);
    let good = layer(&["good", "last"]).unwrap();
    assert_eq!(
        (&good["status"], &good["detail"]),
        (&"ok".into(), &"imported beforehand: good, last".into())
    );
    let bad = layer(&["good", "ends", "crashes"]).unwrap();
    assert_eq!(bad["status"], "missing", "{bad}");
    for module in ["ends", "crashes"] {
        let told = format!("`{module}` cannot be imported beforehand");
        assert!(bad["detail"].as_str().unwrap().contains(&told), "{bad}");
    }
}

#[test]
fn matplotlib_is_imported_beforehand() {
    let Some(python) = venv() else { return };
    let world = World::before_engine();
    world.dir.write(
        "config/ringfence/ringfence.toml",
        format!("[sandbox]\npython = '{python}'\npreload = ['matplotlib.pyplot']\nmemory = '512MiB'\n"),
    );
    world.start_engine();
    until_warm(&world);
    let code = "import sys\nassert 'matplotlib.pyplot' in sys.modules\nimport matplotlib.pyplot as plt\n\
                plt.plot([1, 2])\nplt.savefig('/output/chart.png')";
    let run = world.json(["-c", code]);
    run.ended("exited", 0, 0);
    assert_eq!(run.get("meta.warm"), true);
    assert!(run.get("meta.warnings").is_null(), "{run:?}");
    assert_eq!(run.get("meta.output_files")[0]["path"], "chart.png");
    world.close();
}

#[test]
fn a_list_of_processes_is_not_filled_with_our_program() {
    let world = World::before_engine();
    let python = environment(&world.dir);
    configure(&world.dir, &python, &["good"]);
    world.start_engine();
    until_warm(&world);
    let zygotes: Vec<String> = fs::read_dir("/proc")
        .unwrap()
        .filter_map(|entry| fs::read(entry.unwrap().path().join("cmdline")).ok())
        .map(|line| String::from_utf8_lossy(&line).replace('\0', " "))
        .filter(|line| line.contains(" zygote ") && line.contains(world.dir.path("venv").to_str().unwrap()))
        .collect();
    assert!(!zygotes.is_empty());
    for line in zygotes {
        assert!(line.len() < 2000, "{} characters: {line}", line.len());
    }
    world.close();
}
