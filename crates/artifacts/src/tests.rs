//! Tests of the artifact store.

use std::os::unix::fs::{PermissionsExt, symlink};
use std::time::{Duration, UNIX_EPOCH};

use ringfence_policy::{Bytes, Limits, Meta, OutputFile, RuntimeKind};

use super::*;

fn result(outcome: Outcome, exit_code: i32) -> ExecutionResult {
    ExecutionResult {
        stdout: "out hunter22\n".to_owned(),
        stderr: "err hunter22\n".to_owned(),
        exit_code,
        duration: 0.5,
        meta: Meta {
            stdout_bytes: 13,
            stderr_bytes: 13,
            ..Meta::of(RuntimeKind::Local, Language::Python, Limits::DEFAULT, outcome)
        },
    }
}

/// Limits the number of records, not their size.
fn keep(records: usize) -> Keep {
    Keep {
        records,
        bytes: u64::MAX,
        days: 0,
    }
}

/// Stores a failed run that started `millis` after 1970.
fn store(store: &Store, millis: u64, code: &str) -> PathBuf {
    store_of(&Scope::local(), store, millis, code)
}

/// Like [`store`], for a scope.
fn store_of(scope: &Scope, store: &Store, millis: u64, code: &str) -> PathBuf {
    let record = Record {
        scope,
        code,
        language: Language::Python,
        started: UNIX_EPOCH + Duration::from_millis(millis),
        result: &result(Outcome::Exited, 1),
        name: "report.py",
        args: &["--password=hunter22".to_owned()],
        env: &[
            ("API_KEY".to_owned(), "short".to_owned()),
            ("MODE".to_owned(), "hunter22".to_owned()),
        ],
        redactor: &Redactor::new([("PASSWORD", "hunter22")]),
    };
    store.store(StorePolicy::OnError, &record).unwrap().unwrap()
}

fn names(dir: &Path) -> Vec<String> {
    let entries = fs::read_dir(dir.join("executions")).unwrap();
    let mut names: Vec<String> = entries
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    names.sort();
    names
}

#[test]
fn a_record_is_complete_private_and_redacted() {
    let dir = tempfile::tempdir().unwrap();
    let path = store(
        &Store::new(dir.path(), keep(10)),
        1_795_299_300_123,
        "password = 'hunter22'",
    );
    let name = path.file_name().unwrap().to_str().unwrap();
    let (stamp, hash) = name.strip_suffix(".json").unwrap().split_once('_').unwrap();
    assert_eq!(stamp, "20261121T221500.123Z");
    assert!(
        hash.len() == 12 && hash.bytes().all(|byte| byte.is_ascii_hexdigit()),
        "{hash}"
    );
    assert_eq!(path.metadata().unwrap().permissions().mode() & 0o777, 0o600);
    assert_eq!(
        path.parent().unwrap().metadata().unwrap().permissions().mode() & 0o777,
        0o700
    );

    let text = fs::read_to_string(&path).unwrap();
    assert!(!text.contains("hunter22") && !text.contains("short"), "{text}");
    let json: serde_json::Value = serde_json::from_str(&text).unwrap();
    assert_eq!(json["code"], "password = '[redacted:PASSWORD]'");
    assert_eq!(json["language"], "python");
    assert_eq!(json["timestamp"], "2026-11-21T22:15:00.123Z");
    assert_eq!(json["result"]["stdout"], "out [redacted:PASSWORD]\n");
    assert_eq!(json["result"]["stderr"], "err [redacted:PASSWORD]\n");
    assert_eq!(json["result"]["exit_code"], 1);
    assert_eq!(json["metadata"]["args"][0], "--password=[redacted:PASSWORD]");
    assert_eq!(json["metadata"]["env"][0][1], "[redacted:API_KEY]");
    assert_eq!(json["metadata"]["env"][1][1], "[redacted:PASSWORD]");
    assert_eq!(names(dir.path()).len(), 1, "a temporary file was left");
}

#[test]
fn nothing_is_made_for_a_run_that_is_not_wanted() {
    let dir = tempfile::tempdir().unwrap();
    let redactor = Redactor::new([("A", "b")]);
    let result = result(Outcome::Exited, 0);
    let (code, name, started) = ("", "", UNIX_EPOCH);
    let record = Record {
        scope: &Scope::local(),
        code,
        language: Language::Bash,
        started,
        result: &result,
        name,
        args: &[],
        env: &[],
        redactor: &redactor,
    };
    assert_eq!(
        Store::new(dir.path(), keep(10))
            .store(StorePolicy::OnError, &record)
            .unwrap(),
        None
    );
    assert!(!dir.path().join("executions").exists());
    assert_eq!(Store::new(dir.path(), keep(10)).list(10).unwrap(), []);
}

#[test]
fn equal_records_get_names_of_their_own() {
    let dir = tempfile::tempdir().unwrap();
    let artifacts = Store::new(dir.path(), keep(10));
    let first = store(&artifacts, 1, "x");
    let second = store(&artifacts, 1, "x");
    assert_ne!(first, second);
    assert_eq!(names(dir.path()).len(), 2);
}

#[test]
fn a_link_at_the_target_is_not_followed() {
    let dir = tempfile::tempdir().unwrap();
    let victim = dir.path().join("victim");
    fs::write(&victim, "untouched").unwrap();
    let artifacts = Store::new(dir.path(), keep(10));
    let target = store(&artifacts, 1, "x");
    fs::remove_file(&target).unwrap();
    symlink(&victim, &target).unwrap();
    assert_ne!(store(&artifacts, 1, "x"), target);
    assert_eq!(fs::read_to_string(&victim).unwrap(), "untouched");
    // Nor is it read.
    assert!(matches!(
        artifacts.show(target.file_stem().unwrap().to_str().unwrap()),
        Err(Error::File { .. })
    ));
}

#[test]
fn a_failure_leaves_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let artifacts = Store::new(dir.path(), keep(10));
    let stored = store(&artifacts, 1, "x");
    let name = stored.file_stem().unwrap().to_str().unwrap();
    for number in 1..MAX_SAME_NAME {
        fs::write(dir.path().join(format!("executions/{name}-{number}.json")), "").unwrap();
    }
    let before = names(dir.path());
    assert!(matches!(
        artifacts.write(name, b"y"),
        Err(Error::File { step: "write", .. })
    ));
    assert_eq!(names(dir.path()), before);
}

#[test]
fn only_the_newest_are_kept() {
    let dir = tempfile::tempdir().unwrap();
    let artifacts = Store::new(dir.path(), keep(3));
    for second in 0..6 {
        store(&artifacts, second * 1_000, "x");
    }
    let stamps: Vec<String> = names(dir.path())
        .iter()
        .map(|name| name[9..15].to_owned())
        .collect();
    assert_eq!(stamps, ["000003", "000004", "000005"]);
}

#[test]
fn one_users_flood_costs_no_other_a_record() {
    let dir = tempfile::tempdir().unwrap();
    let artifacts = Store::new(
        dir.path(),
        Keep {
            bytes: 100_000,
            ..Keep::DEFAULT
        },
    );
    let (ann, bob): (Scope, Scope) = ("ann".parse().unwrap(), "bob".parse().unwrap());
    let first = store_of(&ann, &artifacts, 0, "x");
    let long = "y".repeat(20_000);
    for second in 1..20 {
        store_of(&bob, &artifacts, second * 1_000, &long);
    }
    assert!(first.exists());
    let names = names(dir.path());
    let bytes = names.iter().map(|name| {
        fs::metadata(dir.path().join("executions").join(name))
            .unwrap()
            .len()
    });
    let bytes: u64 = bytes.sum();
    assert!(names.len() == 5 && bytes <= 100_000, "{bytes} bytes in {names:?}");
    // The newest is kept, however large.
    let huge = store_of(&bob, &artifacts, 100_000, &"z".repeat(200_000));
    assert!(huge.exists());
}

#[test]
fn a_scopes_records_go_and_no_others() {
    let dir = tempfile::tempdir().unwrap();
    let artifacts = Store::new(dir.path(), keep(10));
    let (ann, bob): (Scope, Scope) = ("ann".parse().unwrap(), "bob".parse().unwrap());
    artifacts.remove_of(&ann).unwrap();
    let gone = [1, 1, 2].map(|millis| store_of(&ann, &artifacts, millis, "x"));
    let kept = [&bob, &Scope::local()].map(|scope| store_of(scope, &artifacts, 1, "x"));
    for scope in [&ann, &Scope::local()] {
        artifacts.remove_of(scope).unwrap();
        assert!(gone.iter().all(|path| !path.exists()));
        assert!(kept.iter().all(|path| path.exists()));
    }
}

#[test]
fn records_go_with_age() {
    let dir = tempfile::tempdir().unwrap();
    let days = |days| Store::new(dir.path(), Keep { days, ..keep(10) });
    let old = store(&days(0), 1, "x");
    let now = UNIX_EPOCH.elapsed().unwrap().as_millis() as u64;
    days(0).sweep(None);
    assert!(old.exists());
    let young = store(&days(1), now, "x");
    assert!(!old.exists() && young.exists());
}

#[test]
fn a_listing_is_newest_first_bounded_and_names_broken_files() {
    let dir = tempfile::tempdir().unwrap();
    let artifacts = Store::new(dir.path(), keep(10));
    for second in 1..4 {
        store(&artifacts, second * 1_000, "x");
    }
    fs::write(dir.path().join("executions/99990101T000000.000Z_0.json"), "{").unwrap();
    fs::write(dir.path().join("executions/notes.txt"), "").unwrap();
    let listed = artifacts.list(3).unwrap();
    assert_eq!(listed.len(), 3);
    assert_eq!(
        (listed[0].name.as_str(), &listed[0].summary),
        ("99990101T000000.000Z_0", &None)
    );
    let summary = listed[1].summary.as_ref().unwrap();
    assert_eq!(
        (summary.timestamp.as_str(), summary.outcome),
        ("1970-01-01T00:00:03.000Z", Outcome::Exited)
    );
    assert_eq!(
        listed[2].summary.as_ref().unwrap().timestamp,
        "1970-01-01T00:00:02.000Z"
    );
    assert!(listed[1].bytes > 100);
}

#[test]
fn an_unambiguous_prefix_is_enough() {
    let dir = tempfile::tempdir().unwrap();
    let artifacts = Store::new(dir.path(), keep(10));
    store(&artifacts, 1_000, "first");
    store(&artifacts, 1_000, "first");
    store(&artifacts, 2_000, "second");
    assert!(artifacts.show("19700101T000002").unwrap().contains("second"));
    assert!(matches!(
        artifacts.show("1970"),
        Err(Error::Ambiguous { count: 3, .. })
    ));
    assert!(matches!(artifacts.show("2000"), Err(Error::NotFound(_))));
    // A full name matches exactly, even if it is a prefix of another one.
    let full = artifacts.list(10).unwrap().pop().unwrap().name;
    assert!(artifacts.show(&full).unwrap().contains("first"));
    assert!(artifacts.show(&format!("{full}.json")).unwrap().contains("first"));
}

#[test]
fn no_name_leads_out_of_the_directory() {
    let dir = tempfile::tempdir().unwrap();
    fs::write(dir.path().join("secret.json"), "{}").unwrap();
    let artifacts = Store::new(dir.path(), keep(10));
    store(&artifacts, 1, "x");
    let names = "../secret ..  /etc/passwd . .hidden a/b a\0b x..y";
    for name in names.split(' ') {
        assert!(matches!(artifacts.show(name), Err(Error::Name(_))), "{name:?}");
    }
}

const SECRET: &str = "s3cr3t-Value!42";

/// `SECRET` in the encodings in which a program may print it, generated with other programs.
const FORMS: &[&str] = &[
    SECRET,
    "czNjcjN0LVZhbHVlITQy",
    "7333637233742d56616c7565213432",
    "7333637233742D56616C7565213432",
    "s3cr3t-Value%2142",
];

/// Returns the result recorded for a run whose output `writes` was captured with this limit.
fn recorded(limit: u64, writes: &[&[u8]], outcome: Outcome) -> ExecutionResult {
    let mut capture = output::Capture::new(Bytes(limit));
    for write in writes {
        capture.push(write);
    }
    let text = capture.finish().text;
    let mut result = result(outcome, 1);
    result.stdout.clone_from(&text);
    result.stderr = text;
    if outcome == Outcome::TimedOut {
        result.stderr.push_str("\nexecution timed out after 1s\n");
    }
    let record = Record {
        scope: &Scope::local(),
        code: "",
        language: Language::Bash,
        started: UNIX_EPOCH,
        result: &result,
        name: "",
        args: &[],
        env: &[],
        redactor: &Redactor::new([("API_KEY", SECRET)]),
    };
    redacted(&record).result
}

/// Asserts that neither stream shows four consecutive bytes of `form`, the shortest leak that counts.
#[track_caller]
fn assert_hidden(result: &ExecutionResult, form: &str) {
    for text in [&result.stdout, &result.stderr] {
        for part in form.as_bytes().windows(4) {
            let shown = text.as_bytes().windows(4).any(|shown| shown == part);
            assert!(!shown, "{form} in {text}");
        }
    }
}

#[test]
fn a_secret_cut_anywhere_by_truncation_does_not_show() {
    for form in FORMS {
        for from in 0..form.len() {
            for to in from + 1..=form.len() {
                // The head ends `from` bytes into the secret, the tail starts `to` bytes into it.
                let (head, tail) = (from + 30, form.len() - to + 30);
                let (before, after) = (30 + tail.saturating_sub(head), 30 + head.saturating_sub(tail));
                let printed = format!("{}{form}{}", ".".repeat(before), ".".repeat(after));
                let limit = 2 * head.max(tail) as u64;
                let result = recorded(limit, &[printed.as_bytes()], Outcome::Exited);
                assert!(result.stdout.contains("(output truncated)"));
                assert_hidden(&result, form);
            }
        }
    }
}

#[test]
fn a_secret_printed_in_two_writes_does_not_show() {
    for form in FORMS {
        for at in 0..=form.len() {
            let (first, second) = form.as_bytes().split_at(at);
            let result = recorded(100, &[b"key: ", first, second, b" ok\n"], Outcome::Exited);
            assert_eq!(result.stdout, "key: [redacted:API_KEY] ok\n");
        }
    }
}

#[test]
fn a_secret_that_a_kill_interrupts_does_not_show() {
    for form in FORMS {
        for at in 0..form.len() {
            let result = recorded(100, &[b"key: ", &form.as_bytes()[..at]], Outcome::TimedOut);
            assert_hidden(&result, form);
            assert!(result.stderr.ends_with("\nexecution timed out after 1s\n"));
        }
    }
}

#[test]
fn variables_of_the_run_and_names_of_its_files_are_redacted() {
    let mut result = result(Outcome::Exited, 0);
    result.stdout = format!("new {SECRET}");
    result.meta.warnings = vec![format!("not kept: {SECRET}")];
    result.meta.output_files = vec![OutputFile {
        path: SECRET.to_owned(),
        bytes: 1,
    }];
    let record = Record {
        scope: &Scope::local(),
        code: SECRET,
        language: Language::Bash,
        started: UNIX_EPOCH,
        result: &result,
        name: SECRET,
        args: &[SECRET.to_owned()],
        env: &[("API_KEY".to_owned(), SECRET.to_owned())],
        redactor: &Redactor::from_environment([]),
    };
    let text = serde_json::to_string(&redacted(&record)).unwrap();
    assert!(!text.contains(SECRET), "{text}");
    assert_eq!(text.matches("[redacted:API_KEY]").count(), 7, "{text}");
}
