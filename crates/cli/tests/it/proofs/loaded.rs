//! Code that an approved command loads without naming it: what is swapped, or put in its place, is asked about
//! again.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Stdio;

use serde_json::{Value, json};

use super::{Asker, ON, Through, answer, asked, question, ringfence, world};
use crate::support::finish;
use crate::world::{World, skip};

const TALK: [&str; 2] = ["--session", "talk"];

/// A line, the files that it starts with, and a file that an agent swaps or adds.
struct Row {
    line: &'static str,
    files: &'static [(&'static str, &'static str)],
    swap: (&'static str, &'static str),
}

const ROWS: &[Row] = &[
    Row {
        line: "python3 job.py",
        files: &[
            ("job.py", "from pkg.sub import mod\n"),
            ("pkg/__init__.py", ""),
            ("pkg/sub/__init__.py", ""),
            ("pkg/sub/mod.py", ""),
        ],
        swap: ("pkg/sub/mod.py", PY),
    },
    Row {
        line: "python3 job.py",
        files: &[
            ("job.py", "import pkg.mod\n"),
            ("pkg/__init__.py", ""),
            ("pkg/mod.py", ""),
        ],
        swap: ("pkg/__init__.py", PY),
    },
    Row {
        line: "python3 job.py",
        files: &[("job.py", "x=1; import helper\n"), ("helper.py", "")],
        swap: ("helper.py", PY),
    },
    Row {
        line: "python3 job.py",
        files: &[("job.py", "import os, \\\n helper\n"), ("helper.py", "")],
        swap: ("helper.py", PY),
    },
    // A module that the library imports.
    Row {
        line: "python3 job.py",
        files: &[("job.py", "import json\n")],
        swap: ("re.py", PY),
    },
    Row {
        line: "make x",
        files: &[
            ("Makefile", "x:\n\t$(MAKE) -C sub y\n"),
            ("sub/Makefile", "y:\n\ttrue\n"),
        ],
        swap: ("sub/Makefile", "y:\n\ttouch ../evil\n"),
    },
    Row {
        line: "make x",
        files: &[("Makefile", "include mk/*.mk\nx:\n\ttrue\n"), ("mk/a.mk", "")],
        swap: ("mk/b.mk", "made := $(shell touch evil)\n"),
    },
    Row {
        line: "make x",
        files: &[("Makefile", "x:\n\ttrue\n")],
        swap: ("GNUmakefile", "x:\n\ttouch evil\n"),
    },
    Row {
        line: "npm run x",
        files: &[
            ("package.json", r#"{"scripts": {"x": "tool"}}"#),
            ("node_modules/.bin/tool", "#!/bin/sh\n"),
        ],
        swap: ("node_modules/.bin/tool", "#!/bin/sh\ntouch evil\n"),
    },
    Row {
        line: "npm run x",
        files: &[("package.json", r#"{"scripts": {"x": "ls"}}"#)],
        swap: ("node_modules/.bin/ls", "#!/bin/sh\ntouch evil\n"),
    },
    Row {
        line: "node app.js",
        files: &[("app.js", "try { require('left') } catch (e) {}\n")],
        swap: ("node_modules/left/index.js", JS),
    },
    Row {
        line: "node app.js",
        files: &[
            ("app.js", "require('./lib')\n"),
            ("lib/package.json", r#"{"main": "a.js"}"#),
            ("lib/a.js", ""),
            ("lib/b.js", JS),
        ],
        swap: ("lib/package.json", r#"{"main": "b.js"}"#),
    },
    Row {
        line: "perl a.pl",
        files: &[("a.pl", "use lib '.'; use Helper;\n"), ("Helper.pm", "1;\n")],
        swap: ("Helper.pm", "system('touch evil'); 1;\n"),
    },
    Row {
        line: "sqlite3 :memory: '.read a.sql'",
        files: &[("a.sql", ".read b.sql\n"), ("b.sql", "select 1;\n")],
        swap: ("b.sql", ".shell touch evil\n"),
    },
];

const PY: &str = "open('evil', 'w')\n";
const JS: &str = "require('fs').writeFileSync('evil', '')\n";

fn write(work: &Path, name: &str, text: &str) {
    let path = work.join(name);
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(&path, text).unwrap();
    fs::set_permissions(path, fs::Permissions::from_mode(0o755)).unwrap();
}

/// Runs a line outside the product. Returns `false` if its program is absent, which is a failure in CI.
fn outside(world: &World, line: &str) -> bool {
    let mut command = world.dir.program("bash");
    command.args(["-c", line]).current_dir(world.dir.path("work"));
    command.env(
        "PATH",
        "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
    );
    let output = finish(&mut command, b"");
    if output.status == 127 {
        let _: Option<()> = skip(&format!("not installed: {line}"));
    }
    output.status != 127
}

#[test]
fn what_is_swapped_between_the_question_and_the_yes_does_not_run() {
    for row in ROWS {
        let world = world(ON, false);
        let work = world.dir.path("work");
        row.files.iter().for_each(|(name, text)| write(&work, name, text));
        let asker = Asker::start(&world, Through::Tool, row.line);
        let id = asked(&world, row.line);
        write(&work, row.swap.0, row.swap.1);
        answer(&world, "approve", &id);
        let said = asker.end();
        assert_eq!(said["error"]["type"], "permission_denied", "{}: {said}", row.line);
        let message = said["error"]["message"].as_str().unwrap();
        // The file, or the directory that was made with it.
        let named = |path: &Path| {
            message.ends_with(&format!(
                "/{} changed while the command was reviewed",
                path.display()
            ))
        };
        assert!(
            Path::new(row.swap.0).ancestors().any(named),
            "{}: {said}",
            row.line
        );
        assert!(!work.join("evil").exists(), "{}", row.line);
        // The attack is one: outside the product it runs.
        if outside(&world, row.line) {
            assert!(work.join("evil").exists(), "{}", row.line);
        }
        world.close();
    }
}

#[test]
fn what_is_swapped_after_a_yes_for_the_session_is_asked_about_again() {
    for row in ROWS {
        let world = world(ON, false);
        let work = world.dir.path("work");
        row.files.iter().for_each(|(name, text)| write(&work, name, text));
        granted(&world, row.line);
        // The same files run unasked.
        let again = Asker::with(&world, Through::Tool, &TALK, row.line).end();
        assert!(again["error"].is_null(), "{}: {again}", row.line);
        write(&work, row.swap.0, row.swap.1);
        let asker = Asker::with(&world, Through::Tool, &TALK, row.line);
        answer(&world, "deny", &asked(&world, row.line));
        let said = asker.end();
        assert_eq!(said["error"]["type"], "rejected", "{}: {said}", row.line);
        assert!(!work.join("evil").exists(), "{}", row.line);
        world.close();
    }
}

/// Approves a line for the session, and lets it end.
#[track_caller]
fn granted(world: &World, line: &str) -> Value {
    let asker = Asker::with(world, Through::Tool, &TALK, line);
    let id = asked(world, line);
    ringfence(world, &["approvals", "approve", &id, "--session"]).ok();
    asker.end()
}

/// A mapping that is written again, before the kernel has written it out, changes no time of its file.
#[test]
fn a_file_that_is_changed_through_memory_is_asked_about_again() {
    const WRITER: &str = "import mmap, sys\n\
        file = open('helper.py', 'r+b')\n\
        map = mmap.mmap(file.fileno(), 0)\n\
        map[:4] = b'#ok\\n'\n\
        print(flush=True)\n\
        sys.stdin.readline()\n\
        map[:] = b\"open('evil', 'w')\\n\"\n";
    let world = world(ON, false);
    let work = world.dir.path("work");
    write(&work, "job.py", "import helper\n");
    write(&work, "helper.py", "#ok\n#2345678901234");
    let mut command = world.dir.program("python3");
    let mut writer = command
        .args(["-c", WRITER])
        .current_dir(&work)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut ready = [0];
    std::io::Read::read_exact(writer.stdout.as_mut().unwrap(), &mut ready).unwrap();
    granted(&world, "python3 job.py");
    assert_eq!(
        Asker::with(&world, Through::Tool, &TALK, "python3 job.py").end(),
        json!("")
    );
    drop(writer.stdin.take());
    writer.wait().unwrap();
    let asker = Asker::with(&world, Through::Tool, &TALK, "python3 job.py");
    answer(&world, "deny", &asked(&world, "python3 job.py"));
    assert_eq!(asker.end()["error"]["type"], "rejected");
    assert!(!work.join("evil").exists() && outside(&world, "python3 job.py"));
    assert!(work.join("evil").exists());
    world.close();
}

#[test]
fn a_project_that_is_too_large_to_bind_is_approved_once() {
    let world = world(ON, false);
    let work = world.dir.path("work");
    write(&work, "job.sh", "touch good\n");
    let large = fs::File::create(work.join("data")).unwrap();
    large.set_len(65 << 20).unwrap();
    let asker = Asker::with(&world, Through::Tool, &TALK, "sh job.sh");
    let question = question(&world, "sh job.sh");
    let id = question["id"].as_str().unwrap();
    assert_eq!(question["lasting"], "once", "{question}");
    assert!(
        question["reasons"]
            .to_string()
            .contains("more files than can be watched"),
        "{question}"
    );
    ringfence(&world, &["approvals", "approve", id, "--session"])
        .refused(125, "cannot be remembered for that long");
    answer(&world, "approve", id);
    assert_eq!(asker.end(), json!(""));
    assert!(work.join("good").exists());
    world.close();
}
