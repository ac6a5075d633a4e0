//! `/readyz`.

use std::fs;

use super::{BEARER, CONFIG, KEY, Surface};
use crate::world::{SmallDisk, World};

#[test]
fn a_server_that_cannot_record_is_not_ready() {
    let world = World::before_engine();
    let Some(disk) = SmallDisk::mount(&world.dir, "audit", "1m") else {
        return;
    };
    let logs = world.dir.path("audit");
    let config = format!("{CONFIG}[audit]\ndir = '{}'\n", logs.display());
    world.dir.write("config/ringfence/ringfence.toml", config);
    world.start_engine_with(&[("RINGFENCE_API_KEY", KEY)], &[]);
    let surface = Surface::loopback(&world);
    let ready = || surface.ask("GET /readyz", &[], "");
    let run = || surface.ask("POST /v1/run", &[BEARER], r#"{"code": "print(1)"}"#);
    assert_eq!((ready().status, run().status), (200, 200));

    let filler = logs.join("filler");
    fs::write(&filler, vec![0; 2 << 20]).unwrap_err();
    let reply = ready();
    assert_eq!(reply.status, 503, "{reply:?}");
    assert_eq!(reply.json()["error"]["type"], "runtime_unavailable");
    assert_eq!(surface.ask("GET /healthz", &[], "").status, 200);
    // As it says, nothing is done that could not be recorded.
    let reply = run();
    assert!(
        reply.status == 503 && reply.body.contains("was not used"),
        "{reply:?}"
    );
    let reply = surface.ask("POST /v1/sandboxes", &[BEARER], r#"{"name": "unrecorded"}"#);
    assert!(
        reply.status == 503 && reply.body.contains("was not done"),
        "{reply:?}"
    );
    let sandboxes = surface.ask("GET /v1/sandboxes", &[BEARER], "");
    assert_eq!(
        sandboxes.json()["sandboxes"],
        serde_json::json!([]),
        "{sandboxes:?}"
    );

    fs::remove_file(&filler).unwrap();
    assert_eq!((ready().status, run().status), (200, 200));
    assert_eq!(world.stop_engine("TERM"), Some(0));
    drop(disk);
    world.close();
}
