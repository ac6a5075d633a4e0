//! Records of what is done with sandboxes.

use serde_json::Value;

use super::Lab;
use crate::audit::records;
use crate::support::finish;

#[test]
fn what_changes_a_sandbox_or_runs_in_it_is_in_the_audit_log() {
    let lab = Lab::with_sandbox();
    lab.sandbox(&["exec", "lab", "--", "echo", "hello"]).ok();
    lab.sandbox(&["run", "lab", "-c", "x = 'told'"]).ok();
    lab.sandbox_with(&["cp", "-", "lab:/tmp/new"], b"content").ok();
    lab.sandbox(&["cp", "lab:/tmp/none", "-"]).refused(125, "");
    lab.sandbox(&["fork", "lab"]).ok();
    lab.sandbox(&["snapshot", "create", "lab", "--name", "kept"]).ok();
    lab.sandbox(&["snapshot", "rm", "kept"]).ok();
    lab.sandbox(&["rm", "lab"]).ok();
    let records = records(&lab.world.dir);
    let named = |name: &str| -> &Value {
        let found = records.iter().find(|record| record["tool"] == name);
        found.unwrap_or_else(|| panic!("{name} is not in {records:#?}"))
    };
    for (name, part) in [
        ("sandbox.create", "\"lab\""),
        ("sandbox.exec", "\"hello\""),
        ("sandbox.run", "x = 'told'"),
        ("sandbox.write", "path=%2Ftmp%2Fnew"),
        ("sandbox.read", "path=%2Ftmp%2Fnone"),
        ("sandbox.fork", "\"count\":1"),
        ("sandbox.snapshot", "\"kept\""),
        ("snapshot.remove", "/v1/snapshots/kept"),
        ("sandbox.remove", "/v1/sandboxes/lab"),
    ] {
        let record = named(name);
        assert!(record.to_string().contains(part), "{part} is not in {record}");
        assert_eq!(record["who"]["surface"], "http");
        let failed = name == "sandbox.read";
        assert_eq!(
            record["outcome"],
            if failed { "failed" } else { "answered" },
            "{record}"
        );
    }
    assert_eq!(named("sandbox.read")["error"], "not_found");
    let verified = finish(&mut lab.world.command(&[], ["audit", "verify"]), b"");
    verified.ok();
    lab.close();
}
