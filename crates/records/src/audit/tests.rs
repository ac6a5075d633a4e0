//! Tests of the audit log as a whole.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, UNIX_EPOCH};

use proptest::prelude::*;
use ringfence_network::redact::Redactor;
use serde_json::{Value, json};

use super::*;

mod retention;

const ROOMY: Limits = Limits {
    max_file_bytes: 1 << 20,
    max_files: 8,
    keep_host: Duration::ZERO,
};
/// Limits with which three records fill a file.
const TIGHT: Limits = Limits {
    max_file_bytes: 1_400,
    max_files: 400,
    keep_host: Duration::ZERO,
};

fn arguments(arguments: &Value) -> Arguments {
    Arguments::new(arguments, &Redactor::new([("", ""); 0]))
}

fn entry<'a>(tool: &'a str, arguments: &'a Arguments) -> Entry<'a> {
    Entry {
        started: UNIX_EPOCH + Duration::from_millis(1_795_299_300_123),
        who: AuditedCaller {
            scope: "ann",
            session: None,
            surface: "mcp",
            client: Some("client 1"),
        },
        tool,
        arguments,
        attempts: &[],
        judgement: None,
        decision: Decision::Allowed,
        outcome: Outcome::Answered,
        error: None,
        duration: Duration::from_micros(1_234),
        result: Some(Digest::of(b"answer")),
        on_host: false,
    }
}

fn add(log: &Log, tool: &str) -> Link {
    log.append(&entry(tool, &arguments(&json!({"n": tool}))))
        .unwrap()
        .unwrap()
}

fn add_some(log: &Log, count: usize) {
    for _ in 0..count {
        add(log, "t");
    }
}

/// Writes a log with `count` records and closes it.
fn written(count: usize, limits: Limits) -> tempfile::TempDir {
    let dir = private();
    let log = Log::open(dir.path(), limits).unwrap();
    for n in 0..count {
        add(&log, &format!("tool{n}"));
    }
    dir
}

fn private() -> tempfile::TempDir {
    let dir = tempfile::tempdir().unwrap();
    fs::set_permissions(dir.path(), fs::Permissions::from_mode(0o700)).unwrap();
    dir
}

fn current(dir: &tempfile::TempDir) -> PathBuf {
    files::current(dir.path())
}

#[track_caller]
fn intact(dir: &Path) -> Verified {
    verify(dir, None).unwrap()
}

#[track_caller]
fn broken(dir: &Path) -> ChainBreak {
    match verify(dir, None) {
        Err(Error::Broken(broken)) => broken,
        other => panic!("{other:?}"),
    }
}

/// Edits the lines of a file.
fn edit(path: &Path, change: impl FnOnce(&mut Vec<String>)) {
    let text = fs::read_to_string(path).unwrap();
    let mut lines: Vec<String> = text.lines().map(str::to_owned).collect();
    change(&mut lines);
    fs::write(path, lines.join("\n") + "\n").unwrap();
}

#[test]
fn a_record_says_who_did_what_and_how_it_ended() {
    let dir = private();
    let log = Log::open(dir.path(), ROOMY).unwrap();
    let arguments = arguments(&json!({"code": "1", "password": "x"}));
    let link = log.append(&entry("run_code", &arguments)).unwrap().unwrap();
    let text = fs::read_to_string(current(&dir)).unwrap();
    let expected = json!({
        "sequence": 1, "previous": "0".repeat(64), "time": "2026-11-21T22:15:00.123Z",
        "who": {"scope": "ann", "session": null, "surface": "mcp", "client": "client 1"}, "tool": "run_code",
        "arguments": {"code": "1", "password": "[redacted:password]"},
        "arguments_digest": Digest::of(br#"{"code":"1","password":"x"}"#),
        "decision": "allowed", "outcome": "answered", "error": null, "duration_micros": 1234,
        "result_digest": Digest::of(b"answer"), "hash": link.hash,
    });
    assert_eq!(serde_json::from_str::<Value>(&text).unwrap(), expected);
    assert!(text.starts_with("{\"sequence\":1,\"previous\":\"0000"), "{text}");
    let (body, seal) = text.split_at(text.len() - 76);
    assert_eq!(seal, format!(",\"hash\":\"{}\"}}\n", Digest::of(body.as_bytes())));
}

#[test]
fn the_longest_record_fits_into_a_line() {
    let dir = private();
    let log = Log::open(dir.path(), ROOMY).unwrap();
    let long = "\u{1}".repeat(100_000);
    let members = (0..1_000).map(|n| (format!("password{n:0120}"), json!("x")));
    let widest = arguments(&Value::Object(members.collect()));
    let entry = Entry {
        who: AuditedCaller {
            scope: &long,
            session: Some(&long),
            surface: &long,
            client: Some(&long),
        },
        attempts: &vec![long.clone(); 100],
        error: Some(&long),
        ..entry(&long, &widest)
    };
    log.append(&entry).unwrap();
    assert_eq!(intact(dir.path()).records, 1);
}

#[test]
fn the_files_are_for_their_owner_alone() {
    let dir = tempfile::tempdir().unwrap();
    let below = dir.path().join("state/audit");
    Log::open(&below, ROOMY).unwrap();
    let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
    assert_eq!((mode(&below), mode(&files::current(&below))), (0o700, 0o600));
    fs::set_permissions(&below, fs::Permissions::from_mode(0o750)).unwrap();
    let error = Log::open(&below, ROOMY).unwrap_err();
    assert!(error.to_string().contains("others may enter it"), "{error}");
}

#[test]
fn a_link_or_a_pipe_in_the_place_of_the_log_is_refused() {
    let dir = private();
    let elsewhere = dir.path().join("elsewhere");
    fs::write(&elsewhere, "").unwrap();
    std::os::unix::fs::symlink(&elsewhere, current(&dir)).unwrap();
    assert!(matches!(
        Log::open(dir.path(), ROOMY),
        Err(Error::File { step: "open", .. })
    ));
    assert!(verify(dir.path(), None).is_err());
    assert_eq!(fs::read(&elsewhere).unwrap(), b"");
    fs::remove_file(current(&dir)).unwrap();
    let socket = std::os::unix::net::UnixListener::bind(current(&dir));
    assert!(socket.is_ok() && Log::open(dir.path(), ROOMY).is_err());
}

#[test]
fn nothing_in_the_file_steers_a_terminal() {
    let dir = private();
    let log = Log::open(dir.path(), ROOMY).unwrap();
    let nasty = "\u{1b}[2J\u{9b}31m\u{202e}\u{7f}\u{e0041}naïve";
    log.append(&entry(nasty, &arguments(&json!({ nasty: nasty }))))
        .unwrap();
    let text = fs::read_to_string(current(&dir)).unwrap();
    let hidden =
        |c: char| c.is_control() && c != '\n' || ('\u{200b}'..='\u{206f}').contains(&c) || c > '\u{e0000}';
    assert!(!text.contains(hidden) && text.contains("naïve"), "{text}");
    let record: Value = serde_json::from_str(&text).unwrap();
    assert_eq!(
        (&record["tool"], &record["arguments"][nasty]),
        (&json!(nasty), &json!(nasty))
    );
    assert_eq!(intact(dir.path()).records, 1);
}

#[test]
fn the_chain_goes_on_where_the_last_process_left_it() {
    let dir = written(3, ROOMY);
    let log = Log::open(dir.path(), ROOMY).unwrap();
    let head = add(&log, "later");
    let verified = intact(dir.path());
    assert_eq!(
        (verified.records, verified.first, verified.head),
        (4, Some(1), Some(head))
    );
}

#[test]
fn two_logs_that_append_in_turn_make_one_chain() {
    let dir = private();
    let logs = [(); 2].map(|()| Log::open(dir.path(), TIGHT).unwrap());
    for n in 0..40 {
        let link = add(&logs[n % 2], "t");
        assert_eq!(link.sequence, n as u64 + 1);
    }
    assert_eq!(intact(dir.path()).records, 40);
}

#[test]
fn rotation_keeps_the_chain_while_many_append() {
    let dir = private();
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                // Each opens its own files, like a separate process; two threads share each.
                let log = Log::open(dir.path(), TIGHT).unwrap();
                std::thread::scope(|scope| {
                    for _ in 0..2 {
                        scope.spawn(|| add_some(&log, 50));
                    }
                });
            });
        }
        // Readers work while writers append.
        for _ in 0..20 {
            intact(dir.path());
            tail(dir.path(), 5).unwrap();
        }
    });
    let verified = intact(dir.path());
    assert_eq!(
        (verified.records, verified.first, verified.repairs),
        (400, Some(1), 0)
    );
    assert!(verified.files > 100, "{verified:?}");
}

#[test]
fn the_oldest_files_are_removed_and_the_rest_still_verifies() {
    let limits = Limits {
        max_files: 3,
        ..TIGHT
    };
    let dir = written(30, limits);
    let verified = intact(dir.path());
    // Each removal has a record of its own.
    let removals = 7;
    assert_eq!(
        (verified.files, verified.head.unwrap().sequence),
        (3, 30 + removals)
    );
    assert!(verified.first.unwrap() > 20, "{verified:?}");
    let removed = verified.removed.unwrap();
    assert_eq!(removed.last, verified.first.unwrap() - 1);
    // Between two files: the chain continues from the closed one.
    fs::rename(current(&dir), dir.path().join("audit-000000000999.jsonl")).unwrap();
    assert_eq!(broken(dir.path()).line, 1);
}

#[test]
fn a_writer_that_died_between_two_files_leaves_nothing_to_repair() {
    let dir = written(2, ROOMY);
    let closed = dir.path().join("audit-000000000001.jsonl");
    fs::rename(current(&dir), closed).unwrap();
    assert_eq!(intact(dir.path()).records, 2);
    let log = Log::open(dir.path(), ROOMY).unwrap();
    assert_eq!(add(&log, "t").sequence, 3);
    assert_eq!(intact(dir.path()).records, 3);
}

#[test]
fn a_record_torn_at_any_byte_is_cut_off_and_all_before_are_kept() {
    let dir = written(3, ROOMY);
    let whole = fs::read(current(&dir)).unwrap();
    let last = whole[..whole.len() - 1]
        .iter()
        .rposition(|byte| *byte == b'\n')
        .unwrap()
        + 1;
    for cut in last..whole.len() {
        fs::write(current(&dir), &whole[..cut]).unwrap();
        let torn = intact(dir.path());
        assert_eq!((torn.records, torn.torn_bytes), (2, (cut - last) as u64));
        let log = Log::open(dir.path(), ROOMY).unwrap();
        let repairs = u64::from(cut > last);
        let verified = intact(dir.path());
        assert_eq!(
            (verified.records, verified.repairs, verified.torn_bytes),
            (2 + repairs, repairs, 0)
        );
        add(&log, "next");
        assert_eq!(intact(dir.path()).records, 3 + repairs);
        if repairs == 0 {
            continue;
        }
        let repair: Value = serde_json::from_str(&tail(dir.path(), 2).unwrap()[0]).unwrap();
        assert_eq!(repair["repair"]["bytes"], cut - last);
        assert_eq!(
            repair["repair"]["digest"],
            Digest::of(&whole[last..cut]).to_string()
        );
    }
}

#[test]
fn the_first_record_of_a_file_may_be_torn_too() {
    let dir = written(1, ROOMY);
    let whole = fs::read(current(&dir)).unwrap();
    fs::write(current(&dir), &whole[..100]).unwrap();
    Log::open(dir.path(), ROOMY).unwrap();
    let verified = intact(dir.path());
    assert_eq!(
        (verified.records, verified.repairs, verified.first),
        (1, 1, Some(1))
    );
}

#[test]
fn another_writer_repairs_what_a_dead_one_left_behind() {
    let dir = written(1, ROOMY);
    let alive = Log::open(dir.path(), ROOMY).unwrap();
    add(&alive, "a");
    let mut bytes = fs::read(current(&dir)).unwrap();
    bytes.extend_from_slice(b"{\"sequence\":3,\"prev");
    fs::write(current(&dir), bytes).unwrap();
    assert_eq!(add(&alive, "b").sequence, 4);
    assert_eq!(intact(dir.path()).repairs, 1);
}

#[test]
fn a_last_line_that_is_no_record_is_cut_off_as_well_and_two_are_not() {
    let dir = written(2, ROOMY);
    let whole = fs::read(current(&dir)).unwrap();
    fs::write(current(&dir), [&whole[..], &[0; 40], b"\n"].concat()).unwrap();
    assert_eq!(broken(dir.path()).line, 3);
    Log::open(dir.path(), ROOMY).unwrap();
    assert_eq!(intact(dir.path()).repairs, 1);
    for end in [&b"a\nb\n"[..], b"a\nb", &[b'x'; 70_000], &[0; 200_000]] {
        fs::write(current(&dir), [&whole[..], end].concat()).unwrap();
        let error = Log::open(dir.path(), ROOMY).unwrap_err();
        assert!(matches!(error, Error::Damaged(_)), "{error}");
        let kept = fs::read(current(&dir)).unwrap();
        assert_eq!(kept.len(), whole.len() + end.len());
    }
}

#[test]
fn a_long_record_before_a_torn_one_is_found() {
    let dir = private();
    let log = Log::open(dir.path(), ROOMY).unwrap();
    let long = arguments(&json!(vec!["\u{1}".repeat(5_000); 9]));
    log.append(&entry("long", &long)).unwrap();
    log.append(&entry("long", &long)).unwrap();
    drop(log);
    let whole = fs::read(current(&dir)).unwrap();
    fs::write(current(&dir), &whole[..whole.len() - 2]).unwrap();
    Log::open(dir.path(), ROOMY).unwrap();
    assert_eq!((intact(dir.path()).records, intact(dir.path()).repairs), (2, 1));
}

#[test]
fn every_kind_of_tampering_is_found_in_its_place() {
    type Change = fn(&mut Vec<String>);
    let changes: [(Change, u64, &str); 7] = [
        (
            |lines| lines[2] = lines[2].replace("tool2", "tool9"),
            3,
            "hash does not match",
        ),
        (|lines| drop(lines.remove(1)), 2, "here should be record 2, not 3"),
        (|lines| lines.swap(2, 3), 3, "here should be record 3, not 4"),
        (
            |lines| lines.insert(1, lines[0].clone()),
            2,
            "here should be record 2, not 1",
        ),
        (|lines| lines[4].truncate(50), 5, "no record"),
        (|lines| lines.insert(3, String::new()), 4, "no record"),
        (
            |lines| lines[1].push_str(&"x".repeat(70_000)),
            2,
            "longer than any record",
        ),
    ];
    for (change, line, what) in changes {
        let dir = written(6, ROOMY);
        edit(&current(&dir), change);
        let broken = broken(dir.path());
        assert_eq!((broken.line, &broken.file), (line, &current(&dir)), "{broken}");
        assert!(broken.what.contains(what), "{broken}");
        assert_eq!(broken.sequence, Some(line), "{broken}");
    }
}

#[test]
fn a_record_that_was_written_anew_does_not_fit_into_the_chain() {
    let dir = written(4, ROOMY);
    edit(&current(&dir), |lines| {
        let body = lines[1].replace("tool1", "tool8");
        let body = &body[..body.len() - 75];
        lines[1] = format!("{body},\"hash\":\"{}\"}}", Digest::of(body.as_bytes()));
    });
    let broken = broken(dir.path());
    assert_eq!((broken.line, broken.sequence), (3, Some(3)));
    assert!(broken.what.contains("does not follow on record 2"), "{broken}");
}

#[test]
fn a_file_that_is_gone_cut_or_replaced_is_named() {
    let closed = |dir: &Path, at: usize| files::closed(dir).unwrap()[at].1.clone();
    let check = |change: fn(&Path, &Path), line: u64, what: &str| {
        let dir = written(12, TIGHT);
        let changed = closed(dir.path(), 1);
        change(&changed, &closed(dir.path(), 2));
        let broken = broken(dir.path());
        assert!(broken.line == line && broken.what.contains(what), "{broken}");
    };
    check(
        |changed, _| fs::remove_file(changed).unwrap(),
        1,
        "here should be record 4, not 7",
    );
    check(|changed, _| fs::write(changed, "").unwrap(), 1, "empty");
    check(
        |changed, other| fs::write(changed, fs::read(other).unwrap()).unwrap(),
        1,
        "name says 4",
    );
    check(
        |changed, _| fs::write(changed, &fs::read(changed).unwrap()[..900]).unwrap(),
        2,
        "ends within",
    );
    check(
        |changed, _| {
            let foreign = written(12, ROOMY);
            edit(&current(&foreign), |lines| drop(lines.drain(..3)));
            edit(&current(&foreign), |lines| {
                lines[0] = lines[0].replace("ann", "eve")
            });
            fs::rename(current(&foreign), changed).unwrap();
        },
        1,
        "hash does not match",
    );
}

#[test]
fn a_log_that_does_not_begin_at_the_beginning_is_told_from_one_whose_oldest_are_gone() {
    let dir = written(3, ROOMY);
    edit(&current(&dir), |lines| drop(lines.remove(0)));
    assert!(broken(dir.path()).what.contains("records 1 to 1 are missing"));
    let other = written(1, ROOMY);
    edit(&current(&other), |lines| {
        let body = lines[0].replace(&"0".repeat(64), &"1".repeat(64));
        let body = &body[..body.len() - 75];
        lines[0] = format!("{body},\"hash\":\"{}\"}}", Digest::of(body.as_bytes()));
    });
    assert!(broken(other.path()).what.contains("does not begin"));
}

#[test]
fn a_noted_head_shows_that_the_newest_records_are_gone_or_others() {
    let dir = written(5, ROOMY);
    let head = intact(dir.path()).head.unwrap();
    assert!(verify(dir.path(), Some(&head)).is_ok());
    let noted: Link = head.to_string().parse().unwrap();
    let add_one = Log::open(dir.path(), ROOMY).unwrap();
    add(&add_one, "later");
    assert!(verify(dir.path(), Some(&noted)).is_ok());
    edit(&current(&dir), |lines| lines.truncate(3));
    assert_eq!(intact(dir.path()).records, 3);
    let error = verify(dir.path(), Some(&noted)).unwrap_err().to_string();
    assert!(
        error.contains("record 5") && error.contains("was removed"),
        "{error}"
    );
    let other = Link {
        hash: Digest::of(b""),
        sequence: 2,
    };
    let error = verify(dir.path(), Some(&other)).unwrap_err().to_string();
    assert!(error.contains("line 2: record 2 is not the one"), "{error}");
    assert!(matches!(
        verify(private().path(), Some(&noted)),
        Err(Error::Gone { sequence: 5, .. })
    ));
    let limits = Limits {
        max_files: 2,
        ..TIGHT
    };
    let turned = written(12, limits);
    let first = Link { sequence: 1, ..noted };
    let error = verify(turned.path(), Some(&first)).unwrap_err().to_string();
    assert!(error.contains("older than all"), "{error}");
}

#[test]
fn records_removed_under_a_living_writer_leave_a_gap() {
    let dir = private();
    let log = Log::open(dir.path(), ROOMY).unwrap();
    add_some(&log, 5);
    edit(&current(&dir), |lines| lines.truncate(3));
    add(&log, "t");
    assert!(broken(dir.path()).what.contains("here should be record 4, not 6"));
}

#[test]
fn a_removed_log_is_begun_again() {
    let dir = private();
    let below = dir.path().join("audit");
    let log = Log::open(&below, ROOMY).unwrap();
    add(&log, "t");
    fs::remove_dir_all(&below).unwrap();
    assert_eq!(add(&log, "t").sequence, 2);
    assert!(broken(&below).what.contains("records 1 to 1 are missing"));
}

#[test]
fn nothing_is_replaced_by_a_closed_file() {
    let dir = written(3, TIGHT);
    let foreign = dir.path().join("audit-000000000001.jsonl");
    fs::write(&foreign, "mine").unwrap();
    let log = Log::open(dir.path(), TIGHT).unwrap();
    let error = log.append(&entry("t", &arguments(&json!({})))).unwrap_err();
    assert!(error.to_string().contains("rename the full log"), "{error}");
    assert_eq!(fs::read(&foreign).unwrap(), b"mine");
}

#[test]
fn a_log_that_cannot_be_written_is_an_error() {
    // Fails for root, too, who may write everywhere else.
    for place in ["/proc/self/audit", "/dev/null/audit"] {
        let error = Log::open(Path::new(place), ROOMY).unwrap_err();
        assert!(matches!(error, Error::File { .. }), "{error}");
    }
    let empty = private();
    assert_eq!(intact(&empty.path().join("missing")), Verified::default());
}

#[test]
fn the_newest_lines_come_last_and_across_files() {
    let dir = written(10, TIGHT);
    let sequences = |lines: &[String]| -> Vec<u64> {
        let record = |line: &String| line::open(line.as_bytes()).unwrap().sequence;
        lines.iter().map(record).collect()
    };
    assert_eq!(sequences(&tail(dir.path(), 5).unwrap()), [6, 7, 8, 9, 10]);
    assert_eq!(tail(dir.path(), 100).unwrap().len(), 10);
    assert!(tail(dir.path(), 0).unwrap().is_empty());
}

#[test]
fn who_follows_sees_each_record_once_however_the_files_turn() {
    let dir = written(2, TIGHT);
    let begun = tail(dir.path(), 1).unwrap();
    let mut follow = Follow::behind(dir.path(), &begun);
    let mut seen = Vec::new();
    let mut poll = || {
        let each = |line: &str| {
            seen.push(line::open(line.as_bytes()).unwrap().sequence);
            Ok(())
        };
        follow.poll(each).unwrap();
        seen.len()
    };
    assert_eq!(poll(), 0);
    let log = Log::open(dir.path(), TIGHT).unwrap();
    for (appended, expected) in [(1, 1), (0, 1), (1, 2), (10, 12), (4, 16), (0, 16)] {
        add_some(&log, appended);
        assert_eq!(poll(), expected);
    }
    // A torn line is not a record, before and after its truncation.
    let whole = fs::read(current(&dir)).unwrap();
    fs::write(current(&dir), [&whole[..], b"{\"sequence\":"].concat()).unwrap();
    assert_eq!(poll(), 16);
    add(&log, "t");
    assert_eq!(poll(), 18);
    assert_eq!(seen, (3..=20).collect::<Vec<_>>());
}

#[test]
fn who_follows_sees_the_line_after_one_that_is_too_long() {
    let dir = private();
    let long = "x".repeat(MAX_LINE);
    let mut text = format!("{long}rest\n");
    fs::write(current(&dir), &text).unwrap();
    let mut follow = Follow::behind(dir.path(), &[]);
    let mut poll = || {
        let mut seen = Vec::new();
        let each = |line: &str| {
            seen.push(line.to_owned());
            Ok(())
        };
        follow.poll(each).unwrap();
        seen
    };
    assert_eq!(poll(), [long.as_str(), "rest"]);
    text += "next\n";
    fs::write(current(&dir), &text).unwrap();
    assert_eq!(poll(), ["next"]);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn any_changed_byte_is_found(at in 0.0..1.0, flip in 1_u8..) {
        static LOG: std::sync::LazyLock<(Vec<u8>, usize)> = std::sync::LazyLock::new(|| {
            let dir = written(5, ROOMY);
            let bytes = fs::read(current(&dir)).unwrap();
            let lines = bytes.iter().filter(|byte| **byte == b'\n').count();
            (bytes, lines)
        });
        let (whole, lines) = &*LOG;
        let at = (at * whole.len() as f64) as usize;
        let mut bytes = whole.clone();
        bytes[at] ^= flip;
        let dir = private();
        fs::write(current(&dir), &bytes).unwrap();
        let broken = broken(dir.path());
        let line = 1 + whole[..at].iter().filter(|byte| **byte == b'\n').count();
        prop_assert!(line <= *lines);
        prop_assert_eq!(broken.line, line as u64);
    }

    #[test]
    fn no_bytes_make_a_reader_fail_otherwise_than_by_saying_so(bytes in prop::collection::vec(any::<u8>(), 0..4_000)) {
        let dir = private();
        fs::write(current(&dir), &bytes).unwrap();
        let result = verify(dir.path(), None);
        let expected = matches!(result, Err(Error::Broken(_)) | Ok(Verified { records: 0, .. }));
        prop_assert!(expected, "{:?}", result);
        prop_assert!(tail(dir.path(), 10).is_ok());
        let opened = Log::open(dir.path(), ROOMY);
        prop_assert!(matches!(opened, Ok(_) | Err(Error::Damaged(_))));
    }
}
