//! The program without its settings.
#![allow(
    clippy::disallowed_methods,
    clippy::unwrap_used,
    reason = "a test starts the program and fails by panicking"
)]

use std::io::Write;
use std::process::{Command, Stdio};

/// Returns status and error output for these settings.
fn start(settings: &str) -> (Option<i32>, String) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_ringfence-gateway"));
    command.stdin(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    child
        .stdin
        .take()
        .unwrap()
        .write_all(settings.as_bytes())
        .unwrap();
    let ended = child.wait_with_output().unwrap();
    (ended.status.code(), String::from_utf8(ended.stderr).unwrap())
}

#[test]
fn settings_are_checked_before_anything_is_sent() {
    let own = env!("CARGO_PKG_VERSION");
    let telegram = |version: &str, base_url: &str, users: &str| {
        format!(
            r#"{{"version":"{version}","token":"1:x","socket":"/none","service":{{"telegram":{{"base_url":"{base_url}","chats":[1],"users":[{users}]}}}}}}"#
        )
    };
    for (settings, status, error) in [
        (String::new(), 2, "expected settings on standard input"),
        (telegram("0", "https://127.0.0.1", "1"), 125, "found version 0"),
        (
            telegram(own, "http://192.0.2.1", "1"),
            2,
            "neither encrypted nor on this machine",
        ),
        (telegram(own, "https://127.0.0.1", ""), 2, "no user is configured"),
    ] {
        let (found, said) = start(&settings);
        assert_eq!(found, Some(status), "{settings}: {said}");
        assert!(
            said.contains(error) && said.contains("hint: "),
            "{settings}: {said}"
        );
    }
}
