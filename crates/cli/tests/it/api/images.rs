//! `/v1/images`, with a registry on the loopback address.

use std::collections::HashMap;
use std::fs;
use std::io::Read;

use serde_json::{Value, json};

use super::keys::Holder;
use super::{Surface, world};
use crate::local_images::pulls::{Registry, answers};
use crate::local_images::root_archive;
use crate::support::eventually;
use crate::world::World;

#[test]
fn an_operator_pulls_lists_and_removes_images() {
    let world = world();
    let admin = Holder::new(&world, &["--rights", "admin"]);
    let registry = Registry::start(answers(&root_archive(&world.dir)));
    let name = format!("127.0.0.1:{}/app:1", registry.port);
    let create = json!({"image": name});
    let socket = Surface::socket(&world);
    let made = |status: u16| {
        let reply = socket.ask("POST /v1/sandboxes", &[], &create.to_string());
        assert_eq!(reply.status, status, "{reply:?}");
        reply.json()
    };
    made(404);
    let pulled = admin.ok("POST /v1/images", &json!({"reference": name}));
    assert_eq!(
        (&pulled["image"]["references"], &pulled["was_there"]),
        (&json!([name]), &json!(false))
    );
    assert_eq!(
        admin.ok("GET /v1/images", &Value::Null)["images"],
        json!([pulled["image"]])
    );
    let sandbox = made(200);
    let again = events(&admin, &name);
    let (last, before) = again.split_last().unwrap();
    assert!(
        last.0 == "result" && last.1["was_there"] == true && before.is_empty(),
        "{again:?}"
    );
    let removed = admin.ok(&format!("DELETE /v1/images?image={name}"), &Value::Null);
    assert_eq!(removed["files"], "in_use");
    let line = format!("DELETE /v1/sandboxes/{}", sandbox["id"].as_str().unwrap());
    assert_eq!(socket.ask(&line, &[], "").status, 200);
    assert_eq!(admin.ok("GET /v1/images", &Value::Null)["images"], json!([]));
    admin
        .ask(&format!("DELETE /v1/images?image={name}"), &Value::Null)
        .refused(404, "not_found");
    let audited = world.dir.run(["audit", "tail", "--json"]);
    for what in ["image.pull", "image.remove", &name] {
        assert!(audited.ok().contains(what), "{what}: {audited:?}");
    }
    close(world);
}

/// Stops the server, which has been asked for images; nothing else is left.
pub(super) fn close(world: World) {
    world.stop_engine("TERM");
    fs::remove_dir_all(world.dir.path("state/ringfence/images")).unwrap();
    world.close();
}

/// Pulls an image, and returns the events.
fn events(admin: &Holder, name: &str) -> Vec<(String, Value)> {
    let body = json!({ "reference": name }).to_string();
    let headers = [&*admin.bearer, "Accept: text/event-stream"];
    let reply = admin.surface.ask("POST /v1/images", &headers, &body);
    assert_eq!(reply.status, 200, "{reply:?}");
    let parsed = reply.body.split("\n\n").filter_map(|event| {
        let (name, data) = event.split_once("\ndata: ")?;
        let name = name.strip_prefix("event: ")?;
        Some((name.to_owned(), serde_json::from_str(data).unwrap()))
    });
    parsed.collect()
}

#[test]
fn a_pull_says_how_far_it_is() {
    let world = world();
    let admin = Holder::new(&world, &["--rights", "admin"]);
    let registry = Registry::start(answers(&root_archive(&world.dir)));
    let events = events(&admin, &format!("127.0.0.1:{}/app:1", registry.port));
    let (last, progress) = events.split_last().unwrap();
    assert!(last.0 == "result" && last.1["was_there"] == false, "{events:?}");
    let (name, newest) = progress.last().unwrap();
    assert_eq!(
        (&**name, &newest["layer"], &newest["layers"]),
        ("progress", &json!(1), &json!(1))
    );
    assert_eq!(newest["received"], newest["size"]);
    close(world);
}

#[test]
fn what_cannot_be_pulled_says_why() {
    let world = world();
    let admin = Holder::new(&world, &["--rights", "admin"]);
    let registry = Registry::start(HashMap::new());
    let missing = format!("127.0.0.1:{}/app:1", registry.port);
    let pull = |reference: &str| admin.ask("POST /v1/images", &json!({ "reference": reference }));
    let reply = pull(&missing);
    reply.refused(422, "invalid_arguments");
    assert!(reply.body.contains("the registry has no such image"), "{reply:?}");
    pull("Not A Reference").refused(422, "invalid_arguments");
    let failed = events(&admin, &missing);
    assert!(
        matches!(&failed[..], [(name, error)] if name == "error" && error["error"]["type"] == "invalid_arguments"),
        "{failed:?}"
    );
    close(world);
}

/// A client that goes away cancels its pull, and makes room for others.
#[test]
fn only_so_many_pulls_run_at_once() {
    let world = world();
    let admin = Holder::new(&world, &["--rights", "admin"]);
    let registry = Registry::start(HashMap::new());
    let silent = json!({"reference": format!("127.0.0.1:{}/silent/app:1", registry.port)}).to_string();
    let headers = [&*admin.bearer, "Accept: text/event-stream"];
    let pulls = [(); 2].map(|()| {
        let mut pull = admin.surface.send("POST /v1/images", &headers, &silent);
        // Its head is sent once it has begun.
        pull.read_exact(&mut [0; 16]).unwrap();
        pull
    });
    let reply = admin.surface.ask("POST /v1/images", &headers, &silent);
    reply.refused(429, "busy");
    assert!(reply.head.contains("retry-after: "), "{reply:?}");
    drop(pulls);
    let missing = json!({"reference": format!("127.0.0.1:{}/app:1", registry.port)});
    eventually("a pull has room", || {
        admin.ask("POST /v1/images", &missing).status == 422
    });
    close(world);
}

/// Images are of the operator's machine: no other right opens them.
#[test]
fn other_keys_reach_no_images() {
    let world = world();
    let others = Holder::new(&world, &["--rights", "run,sandboxes"]);
    for line in ["GET /v1/images", "POST /v1/images", "DELETE /v1/images?image=a"] {
        others
            .ask(line, &json!({"reference": "127.0.0.1:9/app:1"}))
            .refused(403, "permission_denied");
    }
    world.close();
}
