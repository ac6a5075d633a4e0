//! Wrong usage, and commands that only print.

use crate::support::{Dir, entries};

#[test]
fn wrong_usage_ends_with_two() {
    let dir = Dir::new();
    for args in [
        &["run", "-c", "1", "x.py"][..],
        &["run", "-l", "cobol", "-c", "1"],
        &["run", "--timeout", "0", "-c", "1"],
        &["run", "--timeout", "1000000000", "-c", "1"],
        &["run", "--no-such-option"],
        &["no-such-command"],
        &[],
    ] {
        let output = dir.run(args);
        assert_eq!(output.status, 2, "{args:?}: {output:?}");
        assert!(
            output.stdout.is_empty() && !output.stderr.is_empty(),
            "{args:?}: {output:?}"
        );
    }
}

#[test]
fn only_regular_files_are_accepted() {
    let dir = Dir::new();
    dir.write("work/file", b"x = 1\n");
    std::fs::create_dir(dir.path("work/sub")).unwrap();
    assert!(dir.run(["accept", "file"]).ok().starts_with("accepted "));
    for (name, found) in [("sub", "found something else"), ("none", "found none")] {
        let output = dir.run(["accept", name]);
        assert_eq!(output.status, 2, "{name}: {output:?}");
        assert!(output.stderr.contains(found), "{name}: {output:?}");
    }
}

#[test]
fn bad_programs_are_refused_and_leave_nothing_behind() {
    let dir = Dir::new();
    dir.write("work/latin1.py", b"print('\xe9')");
    dir.write("work/nul.py", b"print('\0')");
    dir.write("work/big.py", vec![b'#'; 50 << 20]);
    for (args, what) in [
        (&["run", "missing.py"][..], "cannot read missing.py"),
        (&["run", "."], "is a directory"),
        (&["run", "latin1.py"], "not UTF-8"),
        (&["run", "nul.py"], "NUL"),
        (&["run", "big.py"], "longer than 8 MiB"),
        (
            &["run", "-c", "1", "--mount", "/no/such:/data"],
            "cannot use /no/such",
        ),
        (&["run", "-c", "1", "--mount", "../state:/data"], "would expose"),
        (
            &["run", "-c", "1", "--mount", "/:/data"],
            "refusing to show / to the program",
        ),
        (&["run", "-c", "1", "--python", "./no-python"], "no interpreter"),
        (&["run", "-c", "1", "--stdin", "missing"], "cannot read missing"),
        (&["run", "-c", "1", "-o", "nul.py"], "is not a directory"),
        (&["run", "-", "--stdin", "-"], "cannot be both"),
    ] {
        dir.run(args).refused(2, what);
    }
    assert!(entries(&dir.path("state")).is_empty() && entries(&dir.path("run")).is_empty());
}

#[test]
fn help_and_version_teach() {
    let dir = Dir::new();
    assert!(dir.run(["--help"]).ok().contains("Examples:"));
    assert!(dir.run(["run", "--help"]).ok().contains("--mount"));
    assert!(dir.run(["--version"]).ok().starts_with("ringfence "));
}

#[test]
fn completions_and_the_manual_are_printed() {
    let dir = Dir::new();
    assert!(dir.run(["completions", "bash"]).ok().contains("complete -F"));
    let manual = dir.run(["man"]);
    assert!(manual.ok().contains(".TH ringfence 1") && manual.stdout.contains("max\\-output"));
    let page = dir.run(["help-markdown"]);
    assert!(page.ok().contains("## `ringfence run`") && page.stdout.contains("## `ringfence config show`"));
}

#[test]
fn the_filter_is_printed_for_both_processors() {
    let dir = Dir::new();
    for arch in ["x86_64", "aarch64"] {
        let printed = dir.run(["seccomp", "show", "fence", "--arch", arch]);
        let document: serde_json::Value = serde_json::from_str(printed.ok()).unwrap();
        assert_ne!(document["defaultAction"], "SCMP_ACT_ALLOW", "{arch}");
        assert!(
            document["syscalls"]
                .as_array()
                .is_some_and(|rules| !rules.is_empty()),
            "{arch}"
        );
    }
    dir.run(["seccomp", "show", "nothing"])
        .refused(2, "unknown seccomp profile `nothing`");
}

#[test]
fn colours_only_when_asked_for() {
    let dir = Dir::new();
    assert!(!dir.run(["run", "missing.py"]).stderr.contains('\u{1b}'));
    assert!(
        dir.run(["--color", "always", "run", "missing.py"])
            .stderr
            .contains("\u{1b}[1;31merror")
    );
    // The parser's own messages too, wherever the option stands.
    for (args, is_coloured) in [
        (["run", "--color", "always", "--bogus"], true),
        (["--color=always", "run", "--bogus", "-c1"], true),
        (["--color", "never", "run", "--bogus"], false),
        (["run", "-c1", "--bogus", "--json"], false),
    ] {
        let output = dir.run(args);
        assert_eq!(output.status, 2, "{output:?}");
        assert!(output.stderr.contains("--bogus"), "{output:?}");
        assert_eq!(output.stderr.contains('\u{1b}'), is_coloured, "{output:?}");
        assert!(!output.stdout.contains('\u{1b}'), "{output:?}");
    }
}

#[test]
fn stored_runs_are_listed_and_shown() {
    let dir = Dir::new();
    assert_eq!(dir.run(["artifacts", "ls", "--json"]).ok().trim(), "[]");
    std::fs::create_dir_all(dir.path("state/ringfence/artifacts/executions")).unwrap();
    dir.write(
        "state/ringfence/artifacts/executions/20260101_bad.json",
        "{\"code\": \"1 + 1\"}",
    );
    let list = dir.run(["artifacts", "ls"]);
    assert_eq!(list.ok(), "NAME          OUTCOME\n20260101_bad  unreadable\n");
    assert!(dir.run(["artifacts", "show", "2026"]).ok().contains("1 + 1"));
    dir.run(["artifacts", "show", "nothing"])
        .refused(125, "no stored run");
    dir.run(["artifacts", "show", "../../../etc/passwd"])
        .refused(125, "no stored run");
}

#[test]
fn a_reader_that_stops_reading_ends_it_like_sigpipe() {
    let dir = Dir::new();
    let mut command = dir.command(["config", "schema"]);
    let (reader, writer) = std::io::pipe().unwrap();
    drop(reader);
    let mut child = command
        .stdout(writer)
        .stderr(std::process::Stdio::piped())
        .spawn()
        .unwrap();
    drop(command);
    assert_eq!(child.wait().unwrap().code(), Some(128 + 13));
}
