//! A named configuration file below a writable directory.

use std::fs;
use std::path::Path;

use serde_json::json;

use super::{give, kept, trying};
use crate::containers::engines;
use crate::mcp::Client;
use crate::support::Dir;
use crate::world::{World, own_uid, tests};

const NAME: &str = "conf/deep/rf.toml";
const CONFIG: &str = "[sandbox]\ntimeout = '20s'\n";

fn put(dir: &Dir) {
    fs::create_dir_all(dir.path("work/conf/deep")).unwrap();
    dir.write(&format!("work/{NAME}"), CONFIG);
    dir.write("work/conf/key", "secret");
}

fn is_unchanged(dir: &Dir) -> bool {
    fs::read_to_string(dir.path("work").join(NAME)).unwrap() == CONFIG
}

fn it_is_kept(world: &World) {
    put(&world.dir);
    if world.uid() != own_uid() {
        give(&world.dir.path("work"), world.uid());
    }
    let run = |options: &[&str], code: &str| {
        let args = [&["--config", NAME], options, &["-c", code]].concat();
        world.run(args)
    };
    kept(run(&["--workspace", "."], &trying("/workspace", NAME)).ok());
    kept(run(&["--mount", "conf:/conf:rw"], &trying("/conf", "deep/rf.toml")).ok());
    assert!(is_unchanged(&world.dir));
    // Its directory as the workspace: the program may change the rest of it.
    let deep = run(&["--workspace", "conf/deep"], &trying("/workspace", "rf.toml"));
    kept(deep.ok());
    let beside = "open('/workspace/other.toml', 'w').close(); print('written')";
    assert_eq!(run(&["--workspace", "conf/deep"], beside).ok(), "written\n");
}

tests!(one_shot, OneShot, Here, it_is_kept);
tests!(with_engine, Engine, Here, it_is_kept);
tests!(as_user, OneShot, User, it_is_kept);

tests!(in_container, OneShot, Container, it_cannot_be_kept);
tests!(in_container_as_user, OneShot, ContainerUser, it_cannot_be_kept);

fn it_cannot_be_kept(world: &World) {
    put(&world.dir);
    let run = world.run([
        "--config",
        NAME,
        "--workspace",
        ".",
        "-c",
        &trying("/workspace", NAME),
    ]);
    run.refused(125, "cannot be protected without namespaces");
    assert!(is_unchanged(&world.dir));
}

/// The setting that the attack aimed at.
#[test]
fn no_client_switches_itself_on() {
    let world = World::here();
    put(&world.dir);
    let evil = "[hostExecution]\nenabled = true\nallowList = ['*']\n";
    let mut client = Client::greeted(&world, &["--config", NAME, "--workspace", "."]);
    for path in [NAME, "./conf/../conf/deep/rf.toml"] {
        let written = client.call("file_write", &json!({"path": path, "content": evil}));
        assert_eq!(written["isError"], true, "{written}");
    }
    let deleted = client.call("file_delete", &json!({"path": NAME}));
    assert_eq!(deleted["isError"], true, "{deleted}");
    kept(&client.python(&trying("/workspace", NAME)));
    client.leave().well();
    assert!(is_unchanged(&world.dir));
    world.close();
}

#[test]
fn containers_keep_it() {
    for engine in engines() {
        put(&engine.dir);
        give(&engine.dir.path("work"), 65_534);
        let code = trying("/workspace", NAME);
        let run = engine.run(&["--config", NAME, "--workspace", ".", "-c", &code]);
        kept(run.ok());
        assert!(is_unchanged(&engine.dir));
    }
}

/// A file with two hard links could be written through the other one.
#[test]
fn one_with_another_name_is_refused() {
    let world = World::here();
    put(&world.dir);
    fs::hard_link(world.dir.path("work").join(NAME), world.dir.path("work/alias")).unwrap();
    let run = world.run(["--config", NAME, "--workspace", ".", "-c", "print(1)"]);
    run.refused(125, "has several hard links");
    world.close();
}

/// The user's own configuration, if a program may write in the directory around it, also before it exists.
#[test]
fn nobody_makes_a_configuration_of_their_own() {
    let world = World::here();
    fs::remove_dir_all(world.dir.path("config/ringfence")).unwrap();
    let evil = "open('/config/ringfence/ringfence.toml', 'w').write('[hostExecution]\\nenabled = true\\n')";
    let mount = ["--mount", "../config:/config:rw", "-c"];
    let make = format!("import os\nos.makedirs('/config/ringfence', exist_ok=True)\n{evil}");
    let run = world.run(mount.into_iter().chain([&*make]));
    assert!(run.stderr.contains("Read-only file system"), "{run:?}");
    let file = world.dir.path("config/ringfence/ringfence.toml");
    assert!(!Path::new(&file).exists());
    world.close();
}
