//! Threat: tool arguments that exceed their meaning, or that falsify records and errors.

use std::fs;

use serde_json::{Value, json};

use crate::tools::Tools;

/// Returns the only record of the audit log, as stored.
#[track_caller]
fn record(tools: &Tools) -> String {
    let log = fs::read_to_string(tools.dir.path("state/ringfence/audit/audit.jsonl")).unwrap();
    assert_eq!(log.lines().count(), 1, "{log}");
    log
}

#[test]
fn credentials_in_a_request_are_in_no_record() {
    let tools = Tools::new("");
    let secrets = [
        "in-the-url",
        "in-a-header",
        "in-a-cookie",
        "in-the-json",
        "in-a-file",
    ];
    let arguments = json!({
        "url": "https://a.test/?page=1&access_token=in-the-url",
        "method": "POST",
        "headers": {"Authorization": "Basic in-a-header", "Cookie": "sid=in-a-cookie"},
        "body": "{\"user\": \"ann\", \"password\": \"in-the-json\"}&client_secret=in-a-file",
    });
    // No host is allowed; the attempt is recorded nevertheless.
    assert_eq!(tools.refused("http_fetch", arguments).kind, "permission_denied");
    let record = record(&tools);
    assert!(record.contains("page=1") && record.contains("ann"), "{record}");
    for secret in secrets {
        assert!(!record.contains(secret), "{secret}: {record}");
    }
}

#[test]
fn an_error_names_its_kind_once() {
    let tools = Tools::new("");
    let refused = tools.refused("run_code", json!({"code": "", "runtime": "e2b"}));
    assert_eq!(refused.kind, "runtime_unavailable");
    assert!(refused.message.starts_with("the runtime `e2b`"), "{refused:?}");
}

#[test]
fn of_two_members_with_one_name_the_record_has_the_one_that_counted() {
    let tools = Tools::new("");
    let twice = r#"{"code": "print('one')", "code": "print('two')"}"#;
    let output = tools.dir.run(["tool", "run_python_code", twice]);
    assert_eq!(output.ok(), "two\n");
    let record: Value = serde_json::from_str(&record(&tools)).unwrap();
    assert_eq!(record["arguments"], json!({"code": "print('two')"}));
}

#[test]
fn names_that_steer_a_terminal_are_shown_and_not_sent() {
    let tools = Tools::new("");
    let evil = "\u{1b}[2J\u{9b}31m\u{202e}\nx";
    let named = tools.dir.run(["tool", evil, "{}"]);
    named.refused(125, "there is no tool");
    let member = json!({evil: 1, "code": ""}).to_string();
    let member = tools.dir.run(["tool", "run_python_code", &member]);
    member.refused(2, "was unexpected");
    let tail = tools.dir.run(["audit", "tail"]);
    assert_eq!(tail.ok().lines().count(), 2, "{tail:?}");
    for shown in [&named.stderr, &member.stderr, &tail.stdout] {
        assert!(!shown.contains(['\u{1b}', '\u{9b}', '\u{202e}']), "{shown:?}");
    }
}

#[test]
fn a_project_takes_no_more_of_the_machine_than_the_person_gave() {
    let tools = Tools::new("");
    for (section, key, own, beyond) in [
        ("engine", "pool_size", "1", "1000000"),
        ("engine", "max_sessions", "1", "1000000"),
        ("sandbox", "max_output", "'1MiB'", "'8000GiB'"),
    ] {
        tools
            .dir
            .write("work/ringfence.toml", format!("[{section}]\n{key} = {own}\n"));
        assert_eq!(
            tools.ask("run_python_code", json!({"code": "print(1)"})),
            "1\n",
            "{key}"
        );
        tools
            .dir
            .write("work/ringfence.toml", format!("[{section}]\n{key} = {beyond}\n"));
        let refused = tools.dir.run(["tool", "run_python_code", "{\"code\": \"\"}"]);
        refused.refused(2, &format!("`{section}.{key}`"));
    }
}
