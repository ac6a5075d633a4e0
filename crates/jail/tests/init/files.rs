//! File operations of the built program, as an ordinary user.

use std::fs::{self, Permissions};
use std::io::Write;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Output, Stdio};

use ringfence_jail::init::files::{
    Entry, FileError, FileErrorKind, ListLine, Operation, SkipReason, TreeReport,
};

/// An id without rights.
const NOBODY: u32 = 65_534;

/// The one who runs the program.
#[derive(Debug, Clone, Copy)]
enum User {
    /// The user of the tests, root in the gate.
    Ours,
    Nobody,
}

fn run(user: User, operation: &Operation, input: &[u8]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_ringfence-init"));
    command.args(operation.arguments());
    if let User::Nobody = user {
        command.uid(NOBODY).gid(NOBODY);
    }
    output(&mut command, input)
}

fn output(command: &mut Command, input: &[u8]) -> Output {
    let streams = command.stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut process = streams.stderr(Stdio::piped()).spawn().unwrap();
    // An operation that refuses reads no input.
    let _ = process.stdin.take().unwrap().write_all(input);
    process.wait_with_output().unwrap()
}

/// Returns the error of a failed operation: the only thing on standard error.
fn error(output: &Output) -> FileError {
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    serde_json::from_slice(&output.stderr).unwrap()
}

fn text(path: &Path) -> String {
    path.to_str().unwrap().to_owned()
}

/// A directory that everybody may enter and write to, with a file and a directory of the test user alone.
fn shared() -> tempfile::TempDir {
    let dir = tempfile::tempdir().unwrap();
    let path = |name: &str| dir.path().join(name);
    fs::create_dir(path("locked")).unwrap();
    fs::write(path("locked/inside"), "secret").unwrap();
    fs::write(path("private"), "secret").unwrap();
    fs::write(path("public"), "text").unwrap();
    for (name, mode) in [
        ("locked", 0o700),
        ("private", 0o600),
        ("public", 0o644),
        (".", 0o777),
    ] {
        fs::set_permissions(path(name), Permissions::from_mode(mode)).unwrap();
    }
    dir
}

/// Each operation succeeds as the owner, and is denied to others with the kernel's error.
#[test]
fn the_kernel_decides_with_the_rights_of_the_user() {
    let dir = shared();
    let path = |name: &str| text(&dir.path().join(name));
    let range = ringfence_jail::init::files::FileRange {
        offset: 0,
        length: None,
    };
    let operations = [
        Operation::Read {
            path: path("private"),
            range,
        },
        Operation::Stat {
            path: path("locked/inside"),
        },
        Operation::List {
            path: path("locked"),
            depth: 1,
            after: None,
        },
        Operation::Archive { path: path("locked") },
        Operation::MakeDirectory {
            path: path("locked/new"),
        },
        Operation::Write {
            path: path("locked/written"),
            mode: None,
            size: Some(4),
        },
        Operation::Copy {
            from: path("private"),
            to: path("copy"),
        },
        Operation::Move {
            from: path("locked/inside"),
            to: path("moved"),
        },
        Operation::Remove {
            path: path("locked/new"),
        },
    ];
    for operation in operations {
        let denied = error(&run(User::Nobody, &operation, b"text"));
        let found = (denied.kind, denied.errno);
        // 13 is EACCES.
        assert_eq!(found, (FileErrorKind::Denied, 13), "{operation:?}: {denied}");
        let done = run(User::Ours, &operation, b"text");
        assert!(done.status.success(), "{operation:?}: {done:?}");
    }
    let names = fs::read_dir(dir.path()).unwrap();
    let mut names: Vec<_> = names.map(|entry| entry.unwrap().file_name()).collect();
    names.sort();
    assert_eq!(names, ["copy", "locked", "moved", "private", "public"]);
}

#[test]
fn unreadable_entries_are_listed_and_reported() {
    let dir = shared();
    let path = text(dir.path());
    let listed = |user| {
        let output = run(
            user,
            &Operation::List {
                path: path.clone(),
                depth: 9,
                after: None,
            },
            b"",
        );
        let lines = String::from_utf8(output.stdout).unwrap();
        let entries = lines
            .lines()
            .filter_map(|line| match serde_json::from_str(line).unwrap() {
                ListLine::Entry(entry) => Some(entry),
                ListLine::End(end) => {
                    assert!(end.complete);
                    None
                }
            });
        entries
            .map(|entry: Entry| (entry.name, entry.unreadable))
            .collect::<Vec<_>>()
    };
    let entry = |name: &str, unreadable| (name.to_owned(), unreadable);
    assert_eq!(
        listed(User::Nobody),
        [
            entry("locked", true),
            entry("private", false),
            entry("public", false)
        ]
    );
    assert_eq!(listed(User::Ours)[1], entry("inside", false));

    let output = run(User::Nobody, &Operation::Archive { path }, b"");
    assert!(output.status.success());
    let report: TreeReport = serde_json::from_slice(&output.stderr).unwrap();
    let named: Vec<_> = report
        .named
        .iter()
        .map(|named| (named.path.as_str(), named.reason))
        .collect();
    assert_eq!(
        named,
        [("locked", SkipReason::Denied), ("private", SkipReason::Denied)]
    );
    assert_eq!((report.entries, report.bytes), (1, 4));
}

#[test]
fn a_caller_who_vanishes_leaves_the_old_file() {
    let dir = shared();
    let path = text(&dir.path().join("public"));
    let operation = |size| Operation::Write {
        path: path.clone(),
        mode: None,
        size,
    };
    let short = error(&run(User::Ours, &operation(Some(9)), b"par"));
    assert_eq!(short.kind, FileErrorKind::Invalid, "{short}");
    assert_eq!(fs::read(&path).unwrap(), b"text");
    assert!(run(User::Ours, &operation(None), b"par").status.success());
    assert_eq!(fs::read(&path).unwrap(), b"par");
    assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 3);
}

/// The end of the input of a cancelled write is not the end of its file.
#[test]
fn a_cancelled_operation_leaves_nothing_unfinished() {
    let dir = shared();
    let path = |name: &str| text(&dir.path().join(name));
    // The signal waits for the operation, which starts in the shell's process.
    let cancelled = "kill -TERM $$; exec \"$0\" \"$@\"";
    let check = |operation: &Operation, input: &[u8]| {
        let mut command = Command::new("env");
        command.args(["--block-signal=TERM", "sh", "-c", cancelled]);
        command.arg(env!("CARGO_BIN_EXE_ringfence-init"));
        let failed = error(&output(command.args(operation.arguments()), input));
        // 125 is ECANCELED.
        assert_eq!(failed.errno, 125, "{operation:?}: {failed}");
    };
    let write = Operation::Write {
        path: path("public"),
        mode: None,
        size: None,
    };
    check(&write, b"par");
    assert_eq!(fs::read(path("public")).unwrap(), b"text");
    let copy = |from: &str| Operation::Copy {
        from: path(from),
        to: path("copy"),
    };
    check(&copy("public"), b"");
    check(&copy("locked"), b"");
    assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 3);
    assert!(run(User::Ours, &write, b"whole").status.success());
}

#[test]
fn arguments_that_are_no_operation_are_invalid() {
    let program = env!("CARGO_BIN_EXE_ringfence-init");
    let check = |arguments: &[&str]| {
        let output = Command::new(program).args(arguments).output().unwrap();
        assert_eq!(error(&output).kind, FileErrorKind::Invalid, "{arguments:?}");
        assert!(output.stdout.is_empty());
    };
    check(&["stat", "relative"]);
    check(&["stat"]);
    check(&["format", "/"]);
    check(&["remove", "/"]);
    check(&["remove", ""]);
}
