//! Retention: no use of a tool pushes out a host command, and a log records its removals.

use std::fs::File;
use std::time::SystemTime;

use super::*;

const DAY: Duration = Duration::from_secs(24 * 60 * 60);

/// Default limits.
const USUAL: Limits = Limits {
    max_file_bytes: 16 << 20,
    max_files: 16,
    keep_host: DAY,
};

/// Two files with three records each.
const SMALL: Limits = Limits {
    max_files: 2,
    keep_host: DAY,
    ..TIGHT
};

fn command<'a>(name: &'a str, arguments: &'a Arguments, outcome: Outcome) -> Entry<'a> {
    Entry {
        on_host: true,
        outcome,
        ..entry(name, arguments)
    }
}

fn refused(arguments: &Arguments) -> Entry<'_> {
    Entry {
        decision: Decision::Refused,
        outcome: Outcome::Failed,
        error: Some("permission_denied"),
        result: None,
        ..entry("host_exec", arguments)
    }
}

/// Returns the tools of all records in a directory's log, oldest first.
fn tools(dir: &Path) -> Vec<String> {
    let lines = tail(dir, 100_000).unwrap();
    let tool = |line: &String| {
        let record: Value = serde_json::from_str(line).unwrap();
        record["tool"].as_str().map(str::to_owned)
    };
    lines.iter().filter_map(tool).collect()
}

fn length(dir: &Path) -> u64 {
    let files = fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().path());
    files
        .filter_map(|path| fs::metadata(path).ok())
        .map(|meta| meta.len())
        .sum()
}

#[test]
fn sixteen_thousand_refused_calls_push_nothing_out() {
    let dir = private();
    let log = Log::open(dir.path(), USUAL).unwrap();
    let few = arguments(&json!({"command": "rm x"}));
    for outcome in [Outcome::Begun, Outcome::Answered] {
        log.append(&command("host_exec", &few, outcome)).unwrap();
    }
    let many = arguments(&json!(vec!["x".repeat(4_000); 4]));
    for _ in 0..16_000 {
        log.append(&refused(&many)).unwrap();
    }
    drop(log);
    let verified = intact(dir.path());
    assert_eq!((verified.first, verified.files), (Some(1), 1));
    // A burst of a hundred refusals is recorded, and one more per second of the test; all others are counted.
    let alone = 16_000 - verified.counted;
    assert!((100..1_000).contains(&alone), "{verified:?}");
    assert!((2 + 100 + 159..1_500).contains(&verified.records), "{verified:?}");
    assert!(length(dir.path()) < 1 << 20, "{}", length(dir.path()));
    assert_eq!(tools(dir.path())[0], "host_exec");
    assert_eq!(tools(&host(dir.path())), ["host_exec"; 2]);
}

#[test]
fn what_is_refused_is_recorded_in_short_with_the_digest_of_the_whole() {
    let dir = private();
    let log = Log::open(dir.path(), USUAL).unwrap();
    let many = arguments(&json!({"code": "x".repeat(4_000), "list": vec![1; 1_000]}));
    log.append(&refused(&many)).unwrap();
    let record: Value = serde_json::from_str(&tail(dir.path(), 1).unwrap()[0]).unwrap();
    assert!(record.to_string().len() < 2_000, "{record}");
    assert_eq!(record["arguments_digest"], json!(many)["arguments_digest"]);
}

#[test]
fn other_uses_push_out_no_command_of_the_host() {
    let dir = private();
    let log = Log::open(dir.path(), SMALL).unwrap();
    let few = arguments(&json!({"command": "rm x"}));
    for outcome in [Outcome::Begun, Outcome::Answered] {
        log.append(&command("host_exec", &few, outcome)).unwrap();
    }
    add_some(&log, 100);
    assert!(!tools(dir.path()).contains(&"host_exec".to_owned()));
    assert_eq!(tools(&host(dir.path())), ["host_exec"; 2]);
    assert_eq!(intact(&host(dir.path())).records, 2);
    // The log of uses records since when it goes on, and that the records before were removed.
    let verified = intact(dir.path());
    let first = verified.first.unwrap();
    assert!(first > 90, "{verified:?}");
    assert_eq!(verified.removed.unwrap().last, first - 1);
    assert!(verified.removed_at.is_some());
}

#[test]
fn a_full_log_of_young_commands_takes_no_more() {
    let dir = private();
    let log = Log::open(dir.path(), SMALL).unwrap();
    let few = arguments(&json!({"command": "rm x"}));
    let begin = |number: usize| {
        let name = format!("command{number}");
        log.append(&command(&name, &few, Outcome::Begun)).map(drop)
    };
    let full = (0..100).find_map(|number| begin(number).err().map(|error| (number, error)));
    let (number, error) = full.unwrap();
    assert!(matches!(error, Error::Crowded { .. }), "{error}");
    assert!(
        error.to_string().contains("none of it is older than 1 days"),
        "{error}"
    );
    let kept = tools(&host(dir.path()));
    assert_eq!(kept.first().map(String::as_str), Some("command0"));
    assert_eq!(kept.len(), number);
    // The end of a begun command and people's answers are always recorded.
    log.append(&command("command0", &few, Outcome::Answered)).unwrap();
    answers(dir.path()).append(&answer("rm x")).unwrap();
    assert_eq!(intact(&host(dir.path())).records, number as u64 + 2);
    // Once they are old enough, they are removed.
    for (_, path) in files::closed(&host(dir.path())).unwrap() {
        let old = SystemTime::now() - 2 * DAY;
        File::options()
            .write(true)
            .open(path)
            .unwrap()
            .set_modified(old)
            .unwrap();
    }
    begin(number).unwrap();
    let verified = intact(&host(dir.path()));
    assert!(
        verified.removed.is_some() && verified.first > Some(1),
        "{verified:?}"
    );
}

fn answers(dir: &Path) -> AnswerLog {
    AnswerLog::new(dir.to_owned(), SMALL, Redactor::new([("TOKEN", "s3cr3t-t0k3n")]))
}

fn answer(text: &str) -> Answered<'_> {
    Answered {
        id: "apr_1",
        kind: "command",
        digest: Digest::of(text.as_bytes()),
        text,
        scope: "ann",
        session: None,
        chat: "local",
        approved: true,
        remember: "once",
        by: "console",
    }
}

#[test]
fn an_answer_is_recorded_without_credentials() {
    let dir = private();
    answers(dir.path())
        .append(&answer("curl -H s3cr3t-t0k3n x"))
        .unwrap();
    let record: Value = serde_json::from_str(&tail(&host(dir.path()), 1).unwrap()[0]).unwrap();
    assert_eq!(record["answer"]["by"], "console");
    assert_eq!(record["answer"]["approved"], true);
    let text = record["answer"]["text"].as_str().unwrap();
    assert!(text.starts_with("curl -H ") && !text.contains("s3cr3t"), "{text}");
}

#[test]
fn records_that_are_gone_without_a_word_are_missed() {
    let dir = written(30, TIGHT);
    let (_, oldest) = files::closed(dir.path()).unwrap().remove(0);
    fs::remove_file(oldest).unwrap();
    let broken = broken(dir.path());
    assert_eq!((broken.line, broken.sequence), (1, Some(1)));
    assert!(
        broken.what.contains("no record says that they were removed"),
        "{broken}"
    );
    // A record that announces the removal of fewer does not suffice either.
    let dir = written(
        30,
        Limits {
            max_files: 3,
            ..TIGHT
        },
    );
    let (_, oldest) = files::closed(dir.path()).unwrap().remove(0);
    fs::remove_file(oldest).unwrap();
    assert!(matches!(verify(dir.path(), None), Err(Error::Broken(_))));
}
