//! Code in a sandbox, which keeps what it defines.

use serde_json::json;

use super::{Lab, everywhere};
use crate::world::{World, venv};

#[test]
fn the_configured_python_runs_code_and_is_found_by_name() {
    let Some(python) = venv() else { return };
    let world = World::before_engine();
    let configured = format!("[engine]\npool_size = 1\n[sandbox]\npython = '{python}'\n");
    world.dir.write("config/ringfence/ringfence.toml", configured);
    world.start_engine();
    let lab = Lab::of(world);
    lab.sandbox(&["create", "--name", "lab"]).ok();
    let code = "import sys, numpy; print(sys.executable)";
    assert_eq!(
        lab.sandbox(&["run", "lab", "-c", code]).ok(),
        format!("{python}\n")
    );
    let named = lab.sandbox(&["exec", "lab", "--", "python3", "-c", code]);
    assert_eq!(named.ok(), format!("{python}3\n"));
    // A `PATH` of the caller's is the caller's.
    let plain = ["create", "--name", "plain", "--env", "PATH=/usr/bin:/bin"];
    lab.sandbox(&plain).ok();
    let missing = lab.sandbox(&["exec", "plain", "--", "python3", "-c", code]);
    assert!(missing.stderr.contains("No module named 'numpy'"), "{missing:?}");
    lab.close();
}

#[test]
fn python_keeps_its_state() {
    everywhere(|lab| {
        let run = |code: &str| lab.sandbox(&["run", "lab", "-c", code]);
        assert_eq!(run("x = 20; print('set')").ok(), "set\n");
        assert_eq!(run("x + 22").ok(), "42\n");
        let failed = run("import sys; print('aside', file=sys.stderr)\nraise ValueError('no')");
        assert_eq!((failed.status, failed.stdout.as_str()), (1, ""), "{failed:?}");
        assert!(
            failed.stderr.starts_with("aside\n") && failed.stderr.ends_with("ValueError: no\n"),
            "{failed:?}"
        );
        let file = lab.world.dir.write("work/more.py", "x += 1\nprint(x)\n");
        assert_eq!(lab.sandbox(&["run", "lab", file.to_str().unwrap()]).ok(), "21\n");
        assert_eq!(lab.sandbox_with(&["run", "lab", "-"], b"print(x)").ok(), "21\n");
        let told = lab.json(&["run", "lab", "-c", "print('p'); x"]);
        assert_eq!(
            (
                &told["stdout"],
                &told["value"],
                &told["exit_code"],
                &told["execution_count"]
            ),
            (&json!("p\n"), &json!("21"), &json!(0), &json!(6)),
            "{told}"
        );
        assert_eq!(run("print(1); display(2); 3").ok(), "1\n2\n3\n");
        // Files are shared with commands.
        run("open('/workspace/made', 'w').write('by code')").ok();
        assert_eq!(lab.sandbox(&["exec", "lab", "--", "cat", "made"]).ok(), "by code");
        lab.sandbox(&["run", "lab", "nosuch.py"])
            .refused(2, "cannot read nosuch.py");
        lab.sandbox(&["run", "lab"])
            .refused(2, "found nothing in standard input");
        assert_eq!(lab.sandbox(&["run", "lab", "-l", "cobol", "-c", "1"]).status, 2);
        assert_eq!(lab.json(&["get", "lab"])["contexts"], 1);
    });
}

/// Debian forbids pip to install beside its own packages (PEP 668), which a sandbox with hosts allows.
#[test]
fn pip_installs_for_the_interpreter_that_runs() {
    let lab = Lab::here();
    lab.sandbox(&["create", "--name", "lab", "--allow-host", "a.test"])
        .ok();
    let wheel = "import zipfile
with zipfile.ZipFile('/tmp/own-1-py3-none-any.whl', 'w') as wheel:
    wheel.writestr('own.py', 'x = 42')
    wheel.writestr('own-1.dist-info/METADATA', 'Metadata-Version: 2.1\\nName: own\\nVersion: 1\\n')
    wheel.writestr('own-1.dist-info/WHEEL', 'Wheel-Version: 1.0\\nRoot-Is-Purelib: true\\nTag: py3-none-any\\n')
    wheel.writestr('own-1.dist-info/RECORD', '')
%pip install --quiet --no-index /tmp/own-1-py3-none-any.whl
import own
own.x";
    let installed = lab.sandbox(&["run", "lab", "-c", wheel]);
    assert_eq!(installed.ok(), "42\n", "{installed:?}");
    lab.close();
}

/// The image of the containers has no Node.
#[test]
fn javascript_keeps_its_state() {
    everywhere(|lab| {
        let run = |code| lab.sandbox(&["run", "lab", "-l", "javascript", "-c", code]);
        match lab.runtime {
            "local" => {
                assert_eq!(run("const n = 20").ok(), "");
                assert_eq!(run("await Promise.resolve(n + 1)").ok(), "21\n");
                assert_eq!(lab.json(&["get", "lab"])["contexts"], 1);
            }
            _ => run("1").refused(125, "there is no program `node` in the sandbox"),
        }
    });
}

#[test]
fn bash_keeps_its_state() {
    everywhere(|lab| {
        let run = |code: &str| lab.sandbox(&["run", "lab", "-l", "bash", "-c", code]);
        assert_eq!(run("cd /tmp; N=7; f() { echo f $N; }").ok(), "");
        assert_eq!(run("pwd; f; false").stdout, "/tmp\nf 7\n");
        assert_eq!(run("(exit 9)").status, 9);
        let file = lab.world.dir.write("work/more.sh", "echo $N\n");
        assert_eq!(lab.sandbox(&["run", "lab", file.to_str().unwrap()]).ok(), "7\n");
        let late = lab.sandbox(&[
            "run",
            "lab",
            "-l",
            "bash",
            "--timeout",
            "300ms",
            "-c",
            "sleep 600",
        ]);
        assert_eq!(late.status, 124, "{late:?}");
        assert_eq!(run("echo $N").ok(), "7\n");
    });
}

#[test]
fn code_that_is_interrupted_keeps_its_state() {
    everywhere(|lab| {
        let run = |code: &str| lab.sandbox(&["run", "lab", "-c", code]);
        run("x = 5").ok();
        let late = lab.sandbox(&["run", "lab", "--timeout", "300ms", "-c", "while True: pass"]);
        assert_eq!(late.status, 124, "{late:?}");
        assert!(late.stderr.contains("has kept its state"), "{late:?}");
        assert_eq!(run("x").ok(), "5\n");
        // A person's Ctrl-C.
        let code = "x = 6; open('/workspace/on', 'w')\nwhile True: pass";
        let mut running = lab.start(&["run", "lab", "-c", code]);
        lab.appears("/workspace/on");
        lab.world.signal(&running, "INT");
        let ended = running.wait().unwrap();
        assert!(!ended.success(), "{ended:?}");
        assert_eq!(run("x").ok(), "6\n");
        // An interpreter that ends takes its state along, and says so.
        let lost = run("import os; os._exit(3)");
        assert_eq!(lost.status, 3, "{lost:?}");
        assert!(
            lost.stderr.contains("the state of its context is lost"),
            "{lost:?}"
        );
        assert_eq!(run("x").status, 1);
        let missing = run("import demo_absent");
        assert!(
            missing.stderr.contains("hint: ") && missing.stderr.contains("`demo_absent`"),
            "{missing:?}"
        );
        let asking = lab.json(&["run", "lab", "-c", "input()"]);
        assert!(
            asking["hints"][0].as_str().unwrap().contains("exec -i"),
            "{asking}"
        );
    });
}
