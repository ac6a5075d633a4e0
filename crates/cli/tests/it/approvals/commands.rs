//! `ringfence approvals` without a server.

use std::path::PathBuf;
use std::thread::JoinHandle;

use ringfence_policy::{Scope, Timeout};
use ringfence_records::approval::{Chat, CommandContext, Decision, Kind, Lasting, Question, Service};
use serde_json::{Value, json};

use crate::support::{Dir, eventually};

/// Asks a question, as a program that embeds the library would.
fn ask(dir: &Dir, text: &str) -> JoinHandle<Decision> {
    let state: PathBuf = dir.path("state/ringfence");
    let question = Question {
        kind: Kind::Command {
            reasons: vec!["apt: installs packages".to_owned(), "it starts in /x".to_owned()],
            risk: Some(8),
            lasting: Lasting::Offered,
            place: CommandContext::default(),
        },
        text: text.to_owned(),
        scope: Scope::local(),
        session: None,
        chat: Chat::local(),
        patience: Timeout::seconds(60),
    };
    std::thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .unwrap();
        runtime.block_on(Service::at(&state).ask(question)).unwrap()
    })
}

fn listed(dir: &Dir, options: &[&str]) -> Vec<Value> {
    let output = dir.run([&["approvals", "ls", "--json"], options].concat());
    serde_json::from_str(output.ok()).unwrap()
}

fn only(dir: &Dir) -> String {
    eventually("one question waits", || listed(dir, &[]).len() == 1);
    listed(dir, &[])[0]["id"].as_str().unwrap().to_owned()
}

#[test]
fn a_person_lists_approves_and_denies_without_an_engine() {
    let dir = Dir::new();
    assert_eq!(dir.run(["approvals", "ls"]).ok(), "nothing waits for an answer\n");
    let by = "ringfence approvals".to_owned();

    let asking = ask(&dir, "apt upgrade\u{202e} -y\nid");
    let id = only(&dir);
    let shown = dir.run(["approvals", "ls"]);
    assert!(shown.ok().contains("command, risk 8"), "{shown:?}");
    assert!(
        shown.stdout.contains("    | apt upgrade\\u{202e} -y\n    | id\n")
            && shown.stdout.contains("    - apt: installs packages\n"),
        "{shown:?}"
    );
    assert!(
        dir.run(["approvals", "approve", &id[..12]])
            .ok()
            .starts_with("approved")
    );
    assert_eq!(asking.join().unwrap(), Decision::Approved { by: by.clone() });
    dir.run(["approvals", "deny", &id])
        .refused(125, "no longer pending");

    let asking = ask(&dir, "x");
    dir.run(["approvals", "deny", &only(&dir)]).ok();
    assert_eq!(asking.join().unwrap(), Decision::Rejected { by: by.clone() });

    let asking = ask(&dir, "y");
    dir.run(["approvals", "deny", &only(&dir), "--session"]).ok();
    assert_eq!(asking.join().unwrap(), Decision::Rejected { by: by.clone() });
    assert_eq!(
        ask(&dir, "y").join().unwrap(),
        Decision::Rejected {
            by: "a denial for the session".to_owned()
        }
    );

    let asking = ask(&dir, "ls -l");
    dir.run(["approvals", "approve", &only(&dir), "--always"]).ok();
    assert_eq!(asking.join().unwrap(), Decision::Approved { by });
    let again = ask(&dir, "ls -l").join().unwrap();
    assert_eq!(
        again,
        Decision::Approved {
            by: "a lasting approval".to_owned()
        }
    );
    let file = std::fs::read_to_string(dir.path("state/ringfence/approved.toml")).unwrap();
    assert!(file.contains("text = \"ls -l\""), "{file}");
    let standing = dir.run(["approvals", "ls", "--standing"]);
    assert!(standing.ok().contains("    | ls -l\n"), "{standing:?}");
    let standing = listed(&dir, &["--standing"]);
    let id = standing[0]["id"].as_str().unwrap();
    dir.run(["approvals", "revoke", "none"])
        .refused(125, "expected the id of one standing approval, found 0");
    assert!(
        dir.run(["approvals", "revoke", &id[..6]])
            .ok()
            .starts_with("revoked")
    );
    let standing = dir.run(["approvals", "ls", "--standing"]);
    assert_eq!(standing.ok(), "no command is approved always\n");

    let states: Vec<Value> = listed(&dir, &["--all"])
        .into_iter()
        .map(|request| request["state"].clone())
        .collect();
    assert_eq!(
        states,
        ["consumed", "rejected", "rejected", "consumed"].map(|state| json!(state))
    );
}

#[test]
fn what_is_no_question_cannot_be_answered() {
    let dir = Dir::new();
    dir.run(["approvals", "approve", "apr_0001"])
        .refused(125, "no pending question");
    let guessed = format!("apr_{}", "0".repeat(32));
    dir.run(["approvals", "deny", &guessed])
        .refused(125, "no pending question");
    // A prefix below the minimum length is rejected.
    let asking = ask(&dir, "x");
    let id = only(&dir);
    dir.run(["approvals", "approve", &id[..6]])
        .refused(125, "too short for the id of a pending question");
    let short = dir.run(["approvals", "approve", "apr_"]);
    short.refused(125, "too short");
    assert!(short.stderr.contains("at least 4 of its digits"), "{short:?}");
    dir.run(["approvals", "deny", &id]).ok();
    asking.join().unwrap();
}
