//! The audit log from the command line: an intact one, a changed one, and a growing one.

use std::fs;
use std::io::{BufRead, BufReader};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::{Duration, UNIX_EPOCH};

use ringfence_network::redact::Redactor;
use ringfence_records::audit::{Arguments, AuditedCaller, Decision, Entry, Limits, Link, Log, Outcome};
use serde_json::{Value, json};

use crate::support::{Dir, Output, entries, finish};
use crate::world::{Mode, Place, World, play};

/// A directory with an audit log of a few records.
struct Logged {
    dir: Dir,
    log: Log,
}

impl Logged {
    fn new(records: usize) -> Self {
        let dir = Dir::new();
        // Small enough to rotate files.
        let limits = Limits {
            max_file_bytes: 2_000,
            max_files: 100,
            keep_host: Duration::ZERO,
        };
        let log = Log::open(&dir.path("state/ringfence/audit"), limits).unwrap();
        let logged = Self { dir, log };
        for n in 0..records {
            logged.add(&format!("tool{n}"));
        }
        logged
    }

    fn add(&self, tool: &str) -> Link {
        let redactor = Redactor::new([("", ""); 0]);
        let arguments = Arguments::new(&json!({"text": "a\u{1b}[2Jb\u{202e}c"}), &redactor);
        let entry = Entry {
            attempts: &[],
            judgement: None,
            started: UNIX_EPOCH + Duration::from_millis(1_795_299_300_123),
            who: AuditedCaller {
                scope: "ann",
                session: None,
                surface: "mcp",
                client: None,
            },
            tool,
            arguments: &arguments,
            decision: Decision::Allowed,
            outcome: Outcome::Answered,
            error: None,
            duration: Duration::from_micros(1_200),
            result: None,
            on_host: false,
        };
        self.log.append(&entry).unwrap().unwrap()
    }

    fn directory(&self) -> PathBuf {
        self.dir.path("state/ringfence/audit")
    }

    fn json(&self, args: &[&str]) -> Value {
        let output = self.dir.run([&["audit", "verify", "--json"], args].concat());
        serde_json::from_str(&output.stdout).unwrap()
    }
}

fn change(path: &Path, from: &str, to: &str) {
    let text = fs::read_to_string(path).unwrap();
    assert!(text.contains(from));
    fs::write(path, text.replacen(from, to, 1)).unwrap();
}

#[test]
fn an_intact_log_verifies_and_its_head_can_be_noted() {
    let logged = Logged::new(9);
    let head = logged.add("last");
    let output = logged.dir.run(["audit", "verify"]);
    assert_eq!(
        output.ok(),
        format!("intact: 10 records, 1 to 10, in 3 files\nhead: {head}\n")
    );
    let verified = logged.json(&[]);
    assert_eq!(verified["intact"], true);
    assert_eq!(verified["head"]["hash"], head.hash.to_string());
    let noted = head.to_string();
    logged.add("later");
    logged.dir.run(["audit", "verify", "--head", &noted]).ok();
    let other = format!("10:{}", "0".repeat(64));
    let output = logged.dir.run(["audit", "verify", "--head", &other]);
    output.refused(125, "record 10 is not the one that was noted");
    assert_eq!(logged.dir.run(["audit", "verify", "--head", "10"]).status, 2);
}

#[test]
fn a_changed_log_is_refused_with_the_file_and_the_line() {
    let logged = Logged::new(9);
    change(
        &logged.directory().join("audit-000000000005.jsonl"),
        "tool5",
        "tool6",
    );
    let output = logged.dir.run(["audit", "verify"]);
    output.refused(125, "audit-000000000005.jsonl, line 2: it was modified");
    let broken = logged.json(&[]);
    assert_eq!(
        (&broken["intact"], &broken["line"], &broken["sequence"]),
        (&json!(false), &json!(2), &json!(6))
    );
}

/// Verifies the log with the script of the guide, which is independent of Ringfence.
#[test]
fn anybody_can_check_the_log() {
    let guide = include_str!("../../../../docs/guide/audit.md");
    let script = guide.split("```python\n").nth(1).unwrap();
    let script = script.split("```").next().unwrap();
    let logged = Logged::new(9);
    let head = logged.add("last");
    let check = || {
        let mut python = logged.dir.program("python3");
        finish(python.args(["-c", script]).arg(logged.directory()), b"")
    };
    assert_eq!(check().ok(), format!("{head}\n"));
    change(&logged.directory().join("audit.jsonl"), "ann", "eve");
    let output = check();
    assert!(
        output.status == 1 && output.stderr.contains("audit.jsonl, line 1: changed"),
        "{output:?}"
    );
    fs::remove_file(logged.directory().join("audit-000000000005.jsonl")).unwrap();
    assert!(check().stderr.contains("audit.jsonl, line 1"));
}

#[test]
fn what_is_printed_steers_no_terminal() {
    let logged = Logged::new(6);
    logged.add("\u{9b}31m\u{1b}]0;x\u{7}");
    for args in [&["audit", "tail"][..], &["audit", "tail", "--json", "-n", "7"]] {
        let output = logged.dir.run(args);
        let text = output.ok();
        assert_eq!(text.lines().count(), 7);
        let steers = |c: char| c.is_control() && c != '\n' || c == '\u{202e}';
        assert!(!text.contains(steers), "{text:?}");
    }
    let last = logged.dir.run(["audit", "tail", "-n", "1"]);
    assert!(
        last.ok().contains("ann (mcp)") && last.ok().contains("1.2ms"),
        "{last:?}"
    );
    // Nor does foreign text in the file.
    let current = logged.directory().join("audit.jsonl");
    fs::write(current, "\u{1b}[2J\u{202e}\n").unwrap();
    for args in [
        &["audit", "tail", "-n", "1"][..],
        &["audit", "tail", "--json", "-n", "1"],
    ] {
        let output = logged.dir.run(args);
        assert!(output.ok().ends_with("\\u{1b}[2J\\u{202e}\n"), "{output:?}");
    }
}

#[test]
fn who_follows_sees_what_is_appended_until_interrupted() {
    let logged = Logged::new(2);
    let mut child = logged
        .dir
        .command(["audit", "tail", "-n", "1", "--follow", "--json"])
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let mut next = || -> Value { serde_json::from_str(&lines.next().unwrap().unwrap()).unwrap() };
    assert_eq!(next()["tool"], "tool1");
    // More than fits one file.
    for n in 2..12 {
        logged.add(&format!("tool{n}"));
    }
    for n in 2..12 {
        let record = next();
        assert_eq!(
            (&record["tool"], &record["sequence"]),
            (&json!(format!("tool{n}")), &json!(n + 1))
        );
    }
    let pid = child.id().to_string();
    assert!(
        logged
            .dir
            .program("kill")
            .args(["-INT", &pid])
            .status()
            .unwrap()
            .success()
    );
    assert!(child.wait().unwrap().success());
    assert!(lines.next().is_none());
}

#[test]
fn a_log_that_was_never_written_is_empty() {
    let dir = Dir::new();
    assert_eq!(dir.run(["audit", "verify"]).ok(), "intact: no records\n");
    assert_eq!(dir.run(["audit", "tail"]).ok(), "");
}

#[test]
fn the_users_configuration_says_where_and_a_projects_does_not() {
    let dir = Dir::new();
    let text = format!("[audit]\ndir = \"{}\"\n", dir.path("elsewhere").display());
    dir.write("config/ringfence/ringfence.toml", &text);
    fs::create_dir(dir.path("elsewhere")).unwrap();
    dir.write("elsewhere/audit.jsonl", "no record\n");
    dir.run(["audit", "verify"])
        .refused(125, "elsewhere/audit.jsonl, line 1");
    fs::remove_file(dir.path("config/ringfence/ringfence.toml")).unwrap();
    dir.write("work/ringfence.toml", &text);
    dir.run(["audit", "verify"])
        .refused(2, "`audit.dir` may not be set by a project's own file");
}

#[test]
fn a_log_that_may_not_be_read_is_an_error() {
    let dir = Dir::new();
    fs::create_dir_all(dir.path("state/ringfence")).unwrap();
    fs::set_permissions(dir.path("state/ringfence"), fs::Permissions::from_mode(0o700)).unwrap();
    dir.write("state/ringfence/audit", "a file in the place of the directory");
    for command in ["verify", "tail"] {
        dir.run(["audit", command]).refused(125, "cannot open");
    }
}

/// Arguments of a `ringfence tool` call that its schema rejects quickly.
const REFUSED: [&str; 4] = ["tool", "run_code", "{\"code\": 1}", "--no-engine"];

/// Returns the records of the log, the oldest first.
pub(crate) fn records(dir: &Dir) -> Vec<Value> {
    let output = dir.run(["audit", "tail", "--json", "-n", "1000"]);
    let lines = output.ok().lines();
    lines.map(|line| serde_json::from_str(line).unwrap()).collect()
}

#[test]
fn each_use_of_a_tool_is_recorded_whatever_came_of_it() {
    let dir = Dir::new();
    let code = json!({"code": "print(input)", "password": "x"}).to_string();
    for (tool, arguments) in [
        ("run_python_code", r#"{"code": "print(1)"}"#),
        ("run_code", r#"{"code": "while True: pass", "timeout": "200ms"}"#),
        ("run_python_code", &code),
        ("no_such_tool", "{}"),
        ("file_read", r#"{"path": "missing"}"#),
    ] {
        dir.run(["tool", tool, arguments, "--user", "ann", "--workspace", "."]);
    }
    let records = records(&dir);
    let told: Vec<_> = records
        .iter()
        .map(|record| {
            ["tool", "decision", "outcome", "error"].map(|name| record[name].as_str().unwrap_or("-"))
        })
        .collect();
    let expected = [
        ["run_python_code", "allowed", "answered", "-"],
        ["run_code", "allowed", "answered", "-"],
        ["run_python_code", "refused", "failed", "invalid_arguments"],
        ["no_such_tool", "refused", "failed", "not_found"],
        ["file_read", "allowed", "failed", "not_found"],
    ];
    assert_eq!(told, expected);
    assert_eq!(records[2]["arguments"]["password"], "[redacted:password]");
    assert_eq!(
        records[0]["who"],
        json!({"scope": "ann", "session": null, "surface": "cli", "client": null})
    );
    dir.run(["audit", "verify"]).ok();
}

#[test]
fn processes_that_append_at_once_make_one_chain_across_files() {
    let dir = Dir::new();
    dir.write(
        "config/ringfence/ringfence.toml",
        "[audit]\nmax_file = \"2KiB\"\nmax_files = 100\n",
    );
    for _ in 0..5 {
        let mut children = [(); 8].map(|()| {
            let mut command = dir.command(REFUSED);
            command
                .stdout(Stdio::null())
                .stderr(Stdio::null())
                .spawn()
                .unwrap()
        });
        for child in &mut children {
            assert_eq!(child.wait().unwrap().code(), Some(2));
        }
    }
    let verified = dir.run(["audit", "verify"]);
    assert!(
        verified.ok().starts_with("intact: 40 records, 1 to 40, in "),
        "{verified:?}"
    );
    assert!(entries(&dir.path("state/ringfence/audit")).len() > 5);
}

#[test]
fn the_next_process_repairs_what_a_killed_one_left() {
    let dir = Dir::new();
    dir.run(REFUSED);
    let current = dir.path("state/ringfence/audit/audit.jsonl");
    let whole = fs::read_to_string(&current).unwrap();
    fs::write(&current, whole.clone() + &whole[..200]).unwrap();
    let verified = dir.run(["audit", "verify"]);
    assert!(verified.ok().contains("torn: 200 bytes"), "{verified:?}");
    dir.run(REFUSED);
    let verified = dir.run(["audit", "verify"]);
    assert!(verified.ok().starts_with("intact: 3 records"), "{verified:?}");
    assert_eq!(records(&dir)[1]["repair"]["bytes"], 200);
}

#[test]
fn no_tool_runs_where_nothing_can_be_recorded() {
    let dir = Dir::new();
    // A path where no directory can ever be is rejected as configuration; otherwise the kernel fails the
    // mkdir.
    for (place, status, message) in [
        ("/proc/self/audit", 125, "cannot make"),
        (
            "/dev/null/audit",
            2,
            "`audit.dir`: expected a directory, or one that can be made",
        ),
    ] {
        let config = format!("[audit]\ndir = \"{place}\"\n");
        dir.write("config/ringfence/ringfence.toml", config);
        let marked = r#"{"path": "made", "content": "x"}"#;
        let output = dir.run(["tool", "file_write", marked, "--workspace", "."]);
        output.refused(status, message);
        assert!(!dir.path("work/made").exists());
    }
}

#[test]
fn a_full_disk_keeps_the_answer_back_and_the_log_whole() {
    let dir = Dir::new();
    // Files are limited to 4 KiB, as on a full disk. SIGXFSZ would kill the process.
    let script = "trap '' XFSZ; ulimit -f 4; exec \"$@\"";
    let limited = || {
        let mut command = dir.program("bash");
        command
            .args(["-c", script, "bash", env!("CARGO_BIN_EXE_ringfence")])
            .args(REFUSED);
        finish(&mut command, b"")
    };
    let kept_back = |output: &Output| output.stderr.contains("could not be recorded");
    let mut recorded = 0;
    while !kept_back(&limited()) {
        recorded += 1;
        assert!(recorded < 20);
    }
    assert!(recorded > 3 && kept_back(&limited()));
    let verified = dir.run(["audit", "verify"]);
    let expected = format!("intact: {recorded} records");
    assert!(
        verified.ok().starts_with(&expected) && !verified.stdout.contains("torn"),
        "{verified:?}"
    );
    // With free space again, recording works.
    dir.run(REFUSED).refused(2, "invalid_arguments");
    assert_eq!(records(&dir).len(), recorded + 1);
}

#[test]
fn the_log_is_shown_to_no_program() {
    let dir = Dir::new();
    let elsewhere = dir.path("home/logs");
    fs::create_dir(&elsewhere).unwrap();
    fs::set_permissions(&elsewhere, fs::Permissions::from_mode(0o700)).unwrap();
    let config = format!("[audit]\ndir = \"{}\"\n", elsewhere.display());
    dir.write("config/ringfence/ringfence.toml", config);
    for exposing in [dir.path("home"), elsewhere] {
        let exposing = exposing.display().to_string();
        let mount = format!("{exposing}:/x:rw");
        dir.run(["run", "--mount", &mount, "-c", "1"])
            .refused(2, "would expose Ringfence's audit log");
        let list = ["tool", "file_list", r#"{"path": "."}"#, "--workspace", &exposing];
        dir.run(list).refused(2, "would expose Ringfence's audit log");
    }
}

/// Returns the newest records, oldest first.
fn tail(world: &World, count: &str) -> Vec<Value> {
    let output = world.dir.run(["audit", "tail", "--json", "-n", count]);
    let lines = output.ok().lines();
    lines.map(|line| serde_json::from_str(line).unwrap()).collect()
}

/// Runs everything that a record of a run can say, here or through the server.
fn runs_are_recorded(mode: Mode) {
    play(World::new(mode, Place::Here), |world| {
        let secret = [
            "-c",
            "token = 'ghp_0123456789abcdefghijABCDEFGHIJ012345'; raise SystemExit(3)",
        ];
        assert_eq!(world.run(secret).status, 3);
        world
            .run([
                "--mount",
                "/usr/share:/data",
                "-l",
                "bash",
                "-c",
                "echo $1",
                "--",
                "x",
            ])
            .ok();
        let blocked = world
            .call(["-c", "import socket"])
            .env("SANDBOX_BLOCK_DANGEROUS_IMPORTS", "true");
        assert_eq!(blocked.output().status, 126);
        assert_eq!(world.run(["--runtime", "e2b", "-c", "1"]).status, 125);
        let records = tail(world, "4");
        let facts = |record: &Value| {
            let of = |name: &str| record[name].as_str().unwrap_or("-").to_owned();
            [of("tool"), of("decision"), of("outcome"), of("error")].join(" ")
        };
        assert_eq!(
            records.iter().map(facts).collect::<Vec<_>>(),
            [
                "run allowed answered -",
                "run allowed answered -",
                "run refused failed blocked",
                "run allowed failed runtime_unavailable",
            ]
        );
        assert_eq!(records[0]["who"]["surface"], "cli");
        let code = records[0]["arguments"]["code"].as_str().unwrap();
        assert!(code.starts_with("token = '[redacted"), "{code}");
        assert_eq!(
            records[1]["arguments"],
            json!({
                "args": ["x"], "code": "echo $1", "language": "bash", "mounts": ["/usr/share:/data:ro"], "name": "<string>",
                "runtime": "local",
            })
        );
        world.dir.run(["audit", "verify"]).ok();
    });
}

#[test]
fn runs_are_recorded_without_a_server() {
    runs_are_recorded(Mode::OneShot);
}

#[test]
fn runs_of_a_server_are_recorded_once() {
    runs_are_recorded(Mode::Engine);
}

#[test]
fn a_run_that_cannot_be_recorded_says_so() {
    let dir = Dir::new();
    let log = dir.path("state/ringfence/audit");
    fs::create_dir_all(&log).unwrap();
    fs::set_permissions(&log, fs::Permissions::from_mode(0o777)).unwrap();
    let output = dir.run(["run", "-c", "print(1)"]);
    assert_eq!((output.ok(), output.status), ("1\n", 0));
    assert!(
        output.stderr.contains("the run is not in the audit log"),
        "{output:?}"
    );
}
