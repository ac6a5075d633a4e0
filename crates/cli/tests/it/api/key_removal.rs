//! Keys that are removed with everything that the server keeps for them.

use std::path::PathBuf;

use serde_json::json;

use super::keys::{Holder, create_expired};
use super::run::lives;
use super::{Surface, world};
use crate::support::eventually;
use crate::world::World;

/// Creates a key whose holder has made a sandbox and a snapshot of it, a session, and a program whose failure is recorded.
fn busy_holder(world: &World) -> Holder {
    let holder = Holder::new(world, &[]);
    holder.ok("POST /v1/sandboxes", &json!({"name": "own"}));
    holder.ok("POST /v1/sandboxes/own/snapshots", &json!({}));
    holder.ok("POST /v1/run", &json!({"code": "x = 1", "session": "own"}));
    holder.ok("POST /v1/run", &json!({"code": "raise SystemExit(3)"}));
    holder
}

/// Returns the files of snapshots.
fn snapshots(world: &World) -> Vec<PathBuf> {
    let directory = world.dir.path("state/ringfence/snapshots");
    let entries = std::fs::read_dir(directory).into_iter().flatten();
    entries.map(|entry| entry.unwrap().path()).collect()
}

/// Returns the numbers of sandboxes and of files of snapshots.
fn kept(world: &World) -> (String, usize) {
    let text = Surface::socket(world).ask("GET /metrics", &[], "").body;
    let series = r#"ringfence_sandboxes{state="running"} "#;
    let count = text.lines().find_map(|line| line.strip_prefix(series));
    (count.unwrap().to_owned(), snapshots(world).len())
}

#[test]
fn a_request_that_is_under_way_leaves_nothing_behind_a_removed_key() {
    let world = world();
    let holder = Holder::new(&world, &["--tenant", "team"]);
    let headers = [holder.bearer.as_str(), "Content-Length: 2"];
    let mut streams: Vec<_> = (0..4)
        .map(|_| holder.surface.send("POST /v1/sandboxes", &headers, "{"))
        .collect();
    // They are known before the key is revoked: an answer has come since.
    holder.ok("GET /v1/sandboxes", &json!({}));
    world.dir.run(["keys", "revoke", &holder.id]).ok();
    let line = format!("DELETE /v1/keys/{}", holder.id);
    assert_eq!(Surface::socket(&world).ask(&line, &[], "").status, 200);
    for stream in &mut streams {
        let _ = stream.write_all(b"}");
        let mut answer = Vec::new();
        let _ = stream.read_to_end(&mut answer);
        assert!(
            !answer.starts_with(b"HTTP/1.1 200"),
            "{}",
            String::from_utf8_lossy(&answer)
        );
    }
    let heir = Holder::new(&world, &["--tenant", "team"]);
    assert_eq!(heir.ok("GET /v1/sandboxes", &json!({}))["sandboxes"], json!([]));
    world.close();
}

/// Returns the number of stored runs.
fn stored(world: &World) -> usize {
    let listed = world.dir.run(["artifacts", "ls", "--json"]);
    serde_json::from_str::<Vec<serde_json::Value>>(listed.ok())
        .unwrap()
        .len()
}

#[test]
fn a_run_that_a_removal_ends_is_not_stored_after_it() {
    let world = world();
    let (holder, other) = (Holder::new(&world, &[]), Holder::new(&world, &[]));
    other.ok("POST /v1/run", &json!({"code": "raise SystemExit(3)"}));
    let mark = format!("rf-removal-{}", std::process::id());
    let code = format!("exec -a {mark} sleep 1000");
    let body = json!({"code": code, "language": "bash", "timeout": 50}).to_string();
    let run = || holder.surface.send("POST /v1/run", &[&holder.bearer], &body);
    let streams: Vec<_> = (0..4).map(|_| run()).collect();
    eventually("a program runs", || lives(&mark));
    world.dir.run(["keys", "revoke", &holder.id]).ok();
    world.dir.run(["keys", "rm", &holder.id]).ok();
    // A killed run is stored, too: it was before its key was gone.
    assert!(!lives(&mark));
    assert_eq!(stored(&world), 1);
    drop(streams);
    other.ok("POST /v1/run", &json!({"code": "raise SystemExit(3)"}));
    assert_eq!(stored(&world), 2);
    world.close();
}

#[test]
fn stored_runs_stay_as_long_as_their_tenant() {
    let world = world();
    let holders = ["team", "team", "other"].map(|team| Holder::new(&world, &["--tenant", team]));
    for holder in &holders {
        holder.ok("POST /v1/run", &json!({"code": "raise SystemExit(3)"}));
    }
    for (holder, left) in holders.iter().zip([3, 1, 0]) {
        world.dir.run(["keys", "revoke", &holder.id]).ok();
        world.dir.run(["keys", "rm", &holder.id]).ok();
        assert_eq!(stored(&world), left);
    }
    world.close();
}

#[test]
fn a_key_is_removed_with_what_it_has_made_once_it_has_ended() {
    let world = world();
    let (ended, other) = (busy_holder(&world), busy_holder(&world));
    assert_eq!(kept(&world), ("2".to_owned(), 4));
    let socket = Surface::socket(&world);
    let line = format!("DELETE /v1/keys/{}", ended.id);
    let in_force = socket.ask(&line, &[], "");
    in_force.refused(409, "conflict");
    assert!(in_force.body.contains("ringfence keys revoke"), "{in_force:?}");
    let remove = |id: &str| world.dir.run(["keys", "rm", id]);
    remove(&ended.id).refused(125, "neither revoked nor expired");
    ended.ask(&line, &json!({})).refused(403, "permission_denied");

    world.dir.run(["keys", "revoke", &ended.id]).ok();
    assert!(world.dir.run(["keys", "ls"]).ok().contains("revoked"));
    assert_eq!(kept(&world), ("2".to_owned(), 4));
    assert_eq!(socket.ask(&line, &[], "").status, 200);
    assert_eq!(kept(&world), ("1".to_owned(), 2));
    assert_eq!(stored(&world), 1);
    socket.ask(&line, &[], "").refused(404, "not_found");
    remove(&ended.id).refused(125, "there is no key");
    let listed = world.dir.run(["keys", "ls"]);
    assert!(!listed.ok().contains(&ended.id) && listed.stdout.contains(&other.id));
    let log = world.dir.run(["audit", "tail", "--json"]);
    assert!(
        log.ok().contains(&format!("\"client\":\"{}\"", ended.id)),
        "{log:?}"
    );
    assert!(log.stdout.contains("key.remove"), "{log:?}");
    assert_eq!(other.ask("GET /v1/sandboxes/own", &json!({})).status, 200);

    // Through the command, with a server and without.
    let expired = create_expired(&world).1;
    remove(expired["id"].as_str().unwrap()).ok();
    world.stop_engine("TERM");
    remove(&other.id).refused(125, "neither revoked nor expired");
    world.dir.run(["keys", "revoke", &other.id]).ok();
    remove(&other.id).ok();
    assert!(snapshots(&world).is_empty());
    assert_eq!(stored(&world), 0);
    assert_eq!(world.dir.run(["keys", "ls"]).ok(), "");
    world.close();
}
