//! Events in the lives of sandboxes, names of copies, and removals of several.

use std::io::{BufRead, BufReader, Read};
use std::process::{Child, ChildStdout};

use serde_json::{Value, json};

use super::Lab;
use crate::api::Surface;

/// `ringfence sandbox events --json` that runs.
struct Following {
    child: Child,
    lines: BufReader<ChildStdout>,
}

impl Following {
    /// Starts it, and waits until it follows.
    fn start(lab: &Lab, args: &[&str]) -> Self {
        let mut child = lab.start(&[&["events", "--json"], args].concat());
        let mut following = Self {
            lines: BufReader::new(child.stdout.take().unwrap()),
            child,
        };
        assert_eq!(following.next()["type"], "ready");
        following
    }

    #[track_caller]
    fn next(&mut self) -> Value {
        let mut line = String::new();
        self.lines.read_line(&mut line).unwrap();
        let event = serde_json::from_str(&line);
        assert!(event.is_ok(), "{line:?}");
        event.unwrap()
    }

    /// Asserts that the next events have these types; returns the last one.
    #[track_caller]
    fn are(&mut self, types: &[&str]) -> Value {
        let mut last = Value::Null;
        for expected in types {
            last = self.next();
            assert_eq!(last["type"], *expected, "{last}");
            assert!(last["time"].is_string() && last["sandbox"].is_string(), "{last}");
        }
        last
    }

    /// Asserts that it ends, without another event.
    #[track_caller]
    fn ends(mut self) {
        let mut rest = String::new();
        self.lines.read_to_string(&mut rest).unwrap();
        assert_eq!(rest, "");
        assert_eq!(self.child.wait().unwrap().code(), Some(0));
    }
}

#[test]
fn the_events_of_a_life_are_told_to_its_owner() {
    let lab = Lab::with_sandbox();
    let id = lab.json(&["get", "lab"])["id"].clone();
    let (mut one, mut all) = (Following::start(&lab, &["lab"]), Following::start(&lab, &[]));
    // Another user's sandbox of the same name is nothing to them.
    lab.sandbox(&["events", "--user", "bob", "lab"])
        .refused(125, "there is no sandbox `lab`");
    lab.sandbox(&["create", "--user", "bob", "--name", "lab"]).ok();
    lab.sandbox(&["rm", "--user", "bob", "lab"]).ok();
    let surface = Surface::socket(&lab.world);
    let reply = surface.ask("POST /v1/sandboxes/lab/timeout", &[], r#"{"timeout": 600}"#);
    let until = one.are(&["expiry_changed"]);
    assert_eq!(
        (&until["sandbox"], &until["name"]),
        (&id, &json!("lab")),
        "{until}"
    );
    assert_eq!(until["expires_at"], reply.json()["expires_at"]);
    assert_eq!(lab.sandbox(&["fork", "lab", "--name", "copy"]).ok(), "copy\n");
    let copy = lab.json(&["get", "copy"])["id"].clone();
    assert_eq!(one.are(&["forked"])["copies"], json!([copy]));
    lab.sandbox(&["snapshot", "create", "lab", "--name", "kept"]).ok();
    assert!(one.are(&["snapshot_created"])["snapshot"].is_string());
    let can_pause = lab.sandbox(&["pause", "lab"]).status == 0;
    if can_pause {
        // Without effect, and so without an event.
        lab.sandbox(&["pause", "lab"]).ok();
        lab.sandbox(&["resume", "lab"]).ok();
        one.are(&["paused", "resumed"]);
    }
    lab.sandbox(&["snapshot", "rm", "kept"]).ok();
    lab.sandbox(&["rm", "lab"]).ok();
    assert_eq!(one.are(&["removed"])["reason"], "it was removed");
    one.ends();
    all.are(&["expiry_changed", "created", "forked", "snapshot_created"]);
    if can_pause {
        all.are(&["paused", "resumed"]);
    }
    all.are(&["removed"]);
    lab.sandbox(&["create", "--name", "brief", "--timeout", "1s"])
        .ok();
    let expired = all.are(&["created", "expired"]);
    assert_eq!(
        (&expired["name"], &expired["reason"]),
        (&json!("brief"), &json!("it has expired"))
    );
    lab.close();
    // The stream ends with the server.
    assert!(all.child.wait().unwrap().code().is_some());
}

#[test]
fn several_are_removed_in_spite_of_one_that_is_missing() {
    let lab = Lab::with_sandbox();
    lab.sandbox(&["fork", "lab", "--name", "lab"]).refused(125, "lab");
    assert_eq!(
        lab.sandbox(&["fork", "lab", "--name", "x", "--count", "2"])
            .status,
        2
    );
    for name in ["b", "c"] {
        assert_eq!(
            lab.sandbox(&["fork", "lab", "--name", name]).ok(),
            format!("{name}\n")
        );
    }
    let removed = lab.sandbox(&["rm", "lab", "nosuch", "b"]);
    removed.refused(125, "there is no sandbox `nosuch`");
    let names: Vec<Value> = lab
        .json(&["ls"])
        .as_array()
        .unwrap()
        .iter()
        .map(|one| one["name"].clone())
        .collect();
    assert_eq!(names, ["c"]);
    assert_eq!(lab.sandbox(&["rm"]).status, 2);
    lab.close();
}
