//! Templates of E2B's clients.

use super::{KEYED, Reply, run_client};
use crate::api::{self, KEY, Surface};
use crate::audit::records;
use crate::local_images::root_archive_with;
use crate::support::finish;
use crate::world::{World, own_uid, skip};

/// Programs that steps run.
const PROGRAMS: &[&str] = &[
    "/usr/bin/bash",
    "/usr/bin/cat",
    "/usr/bin/chmod",
    "/usr/bin/chown",
    "/usr/bin/cp",
    "/usr/bin/id",
    "/usr/bin/ln",
    "/usr/bin/ls",
    "/usr/bin/mkdir",
    "/usr/bin/rm",
    "/usr/bin/sleep",
    "/usr/bin/stat",
];

#[test]
fn the_client_of_e2b_builds_templates() {
    if own_uid() != 0 {
        return skip("only root has the fence `box`").unwrap_or_default();
    }
    let world = World::before_engine();
    let archive = root_archive_with(&world.dir, PROGRAMS);
    let import = [
        "image",
        "import",
        archive.to_str().unwrap(),
        "--name",
        "test/tools:1",
    ];
    finish(&mut world.command(&[], import), b"").ok();
    let config = "[engine]\nlisten = '127.0.0.1:0'\npool_size = 1\n";
    world.dir.write("config/ringfence/ringfence.toml", config);
    world.start_engine_with(
        &[("RINGFENCE_API_KEY", KEY)],
        &["--template-image", "test/tools:1"],
    );
    run_client(&world, include_str!("templates.py"));
    let surface = Surface::loopback(&world);
    // A template that nobody named, and an address that nobody was given.
    let hash = "0".repeat(64);
    let ask = |line: &str, body: &str| surface.ask(line, &[KEYED], body);
    let created: Reply = ask("POST /v3/templates", r#"{"name": "own"}"#);
    assert_eq!(created.status, 202, "{created:?}");
    let id = created.json()["templateID"].as_str().unwrap().to_owned();
    ask(&format!("GET /templates/{id}/files/..%2Fx"), "").failed(400, "no SHA-256");
    let address = format!("/templates/{id}/files/{hash}");
    ask(&format!("PUT {address}"), "x").failed(404, "no files with this hash");
    assert_eq!(ask(&format!("GET {address}"), "").status, 201);
    let put = |line: &str| surface.ask(line, &[], "x");
    put(&format!("PUT {address}?upload=0")).failed(401, "the key is missing");
    put(&format!("PUT {address}")).failed(401, "the key is missing");
    tags_are_those_of_one_key(&world, &surface);
    a_build_ends_with_its_key(&world, &surface);
    what_is_built_is_recorded(&world);
    commands_of_templates_count_as_runs(&world, &surface);
    world.stop_engine("TERM");
    std::fs::remove_dir_all(world.dir.path("state/ringfence/images")).unwrap();
    world.close();
}

fn what_is_built_is_recorded(world: &World) {
    let records = records(&world.dir);
    for name in [
        "template.create",
        "template.upload",
        "template.tag",
        "template.untag",
    ] {
        let is_there = records.iter().any(|record| record["tool"] == name);
        assert!(is_there, "{name} is not in {records:#?}");
    }
    let mut builds = records.iter().map(|record| record["arguments"].to_string());
    let build = builds.find(|arguments| arguments.contains("\"MODE\"")).unwrap();
    assert!(
        build.contains("\"ENV\"") && !build.contains("\"fast\""),
        "{build}"
    );
}

fn tags_are_those_of_one_key(world: &World, surface: &Surface) {
    let steps = r#"{"fromImage": "test/tools:1", "steps": []}"#;
    let created = surface
        .ask("POST /v3/templates", &[KEYED], r#"{"name": "mine:v1"}"#)
        .json();
    assert_eq!(created["tags"], serde_json::json!(["v1"]));
    let [id, build] = ["templateID", "buildID"].map(|name| created[name].as_str().unwrap());
    let started = surface.ask(
        &format!("POST /v2/templates/{id}/builds/{build}"),
        &[KEYED],
        steps,
    );
    assert_eq!(started.status, 202, "{started:?}");
    let status = format!("GET /templates/{id}/builds/{build}/status");
    while !surface.ask(&status, &[KEYED], "").body.contains("\"ready\"") {}
    let key = world.dir.run(["keys", "create", "other"]).ok().trim().to_owned();
    let other = format!("X-API-Key: {key}");
    let tags = r#"{"target": "mine:v1", "tags": ["own"]}"#;
    let removal = r#"{"name": "mine", "tags": ["v1"]}"#;
    for (line, body) in [
        ("POST /templates/tags", tags),
        ("DELETE /templates/tags", removal),
        ("GET /templates/mine/tags", ""),
    ] {
        surface
            .ask(line, &[&other], body)
            .failed(404, "you have built no template `mine");
    }
    assert_eq!(surface.ask("POST /templates/tags", &[KEYED], tags).status, 201);
    let listed = surface.ask("GET /templates/mine/tags", &[KEYED], "").json();
    let names: Vec<_> = listed.as_array().unwrap().iter().map(|tag| &tag["tag"]).collect();
    assert_eq!(names, ["v1", "own"]);
    assert_eq!(
        surface.ask("DELETE /templates/tags", &[KEYED], removal).status,
        204
    );
    let removal = r#"{"name": "mine", "tags": ["own"]}"#;
    assert_eq!(
        surface.ask("DELETE /templates/tags", &[KEYED], removal).status,
        204
    );
    surface
        .ask("GET /templates/mine/tags", &[KEYED], "")
        .failed(404, "you have built no template");
    world.dir.run(["keys", "revoke", &key[..11]]).ok();
}

fn a_build_ends_with_its_key(world: &World, surface: &Surface) {
    let key = world
        .dir
        .run(["keys", "create", "builder"])
        .ok()
        .trim()
        .to_owned();
    let header = format!("X-API-Key: {key}");
    let ask = |line: &str, body: &str| surface.ask(line, &[&header], body);
    let created = ask("POST /v3/templates", r#"{"name": "own"}"#).json();
    let [id, build] = ["templateID", "buildID"].map(|name| created[name].as_str().unwrap());
    // Of another key's client it is none.
    let status = format!("GET /templates/{id}/builds/{build}/status");
    surface
        .ask(&status, &[KEYED], "")
        .failed(404, "is not being made");
    let steps =
        r#"{"fromImage": "test/tools:1", "steps": [{"type": "RUN", "args": ["echo begun; sleep 1000"]}]}"#;
    let started = ask(&format!("POST /v2/templates/{id}/builds/{build}"), steps);
    assert_eq!(started.status, 202, "{started:?}");
    while !ask(&status, "").body.contains("\"begun\"") {}
    let running = || {
        let metrics = Surface::socket(world).ask("GET /metrics", &[], "");
        metrics.body.contains("ringfence_sandboxes{state=\"running\"} 1")
    };
    assert!(running());
    world.dir.run(["keys", "revoke", &key[..11]]).ok();
    while running() {}
}

/// Steps of a build and start commands are programs that a key's quota of runs counts.
fn commands_of_templates_count_as_runs(world: &World, surface: &Surface) {
    let key = world
        .dir
        .run(["keys", "create", "bounded", "--quota-runs", "4"])
        .ok()
        .trim()
        .to_owned();
    let header = format!("X-API-Key: {key}");
    let ask = |line: &str, body: &str| surface.ask(line, &[&header], body);
    let build = |name: &str, body: &str| {
        let created = ask("POST /v3/templates", &format!(r#"{{"name": "{name}"}}"#)).json();
        let [id, build] = ["templateID", "buildID"].map(|name| created[name].as_str().unwrap());
        let started = ask(&format!("POST /v2/templates/{id}/builds/{build}"), body);
        assert_eq!(started.status, 202, "{started:?}");
        let status = format!("GET /templates/{id}/builds/{build}/status");
        loop {
            let told = ask(&status, "");
            if ["error", "ready"].iter().any(|end| told.json()["status"] == *end) {
                return told.body;
            }
        }
    };
    // A start command for each sandbox.
    let told = build(
        "starts",
        r#"{"fromImage": "test/tools:1", "startCmd": "sleep 100"}"#,
    );
    assert!(told.contains("\"ready\""), "{told}");
    let built: serde_json::Value = serde_json::from_str(&told).unwrap();
    let remove = format!("DELETE /templates/{}", built["templateID"].as_str().unwrap());
    let sandbox = || ask("POST /sandboxes", r#"{"templateID": "starts"}"#);
    for _ in 0..2 {
        assert_eq!(sandbox().status, 201);
    }
    // Two of three steps are within the rest.
    let step = |number| format!(r#"{{"type": "RUN", "args": ["echo step-$(({number} + 40))"]}}"#);
    let steps = [1, 2, 3].map(step).join(", ");
    let told = build(
        "steps",
        &format!(r#"{{"fromImage": "test/tools:1", "steps": [{steps}]}}"#),
    );
    assert!(
        told.contains("step-41") && told.contains("step-42") && !told.contains("step-43"),
        "{told}"
    );
    const USED_UP: &str = "the quota of the key is used up: 4 of 4 runs today";
    assert!(told.contains(USED_UP), "{told}");
    let refused = sandbox();
    assert!(
        refused.status == 429 && refused.body.contains(USED_UP),
        "{refused:?}"
    );
    assert_eq!(ask(&remove, "").status, 204);
    world.dir.run(["keys", "revoke", &key[..11]]).ok();
}

#[test]
fn without_an_image_of_the_operator_nothing_is_built() {
    let world = api::world();
    let refused = Surface::loopback(&world).ask("POST /v3/templates", &[KEYED], r#"{"name": "own"}"#);
    refused.failed(501, "--template-image");
    let never = finish(
        &mut world.command(&[], ["serve", "--template-image", "not/An:image"]),
        b"",
    );
    assert_eq!(never.status, 2, "{never:?}");
    assert!(never.stderr.contains("--template-image: "), "{never:?}");
    world.close();
}
