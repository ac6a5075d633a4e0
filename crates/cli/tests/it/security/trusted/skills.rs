//! A directory of skills below a writable directory: the natural layout of a project.

use std::fs;
use std::os::unix::fs::PermissionsExt;

use serde_json::json;

use super::{all, give, kept, trying};
use crate::containers::engines;
use crate::mcp::Client;
use crate::support::Dir;
use crate::world::{World, own_uid, tests};

pub(super) const SKILL: &str = "class One:\n    def get(self) -> int:\n        return 1\n";

pub(super) fn put(dir: &Dir) {
    fs::create_dir_all(dir.path("work/skills")).unwrap();
    dir.write("work/skills/one.py", SKILL);
    dir.write("work/skills/one.toml", "[policy]\n'One.get' = 'notify'\n");
}

/// The attacked paths.
const NAMES: &[&str] = &["skills/one.py", "skills/one.toml", "skills"];

fn they_are_kept(world: &World) {
    put(&world.dir);
    if world.uid() != own_uid() {
        give(&world.dir.path("work"), world.uid());
    }
    let before = all(&world.dir, "work/skills");
    for name in NAMES {
        let code = trying("/workspace", name);
        kept(
            world
                .run(["--skills", "skills", "--workspace", ".", "-c", &code])
                .ok(),
        );
    }
    let mount = ["--skills", "skills", "--mount", ".:/data:rw", "-c"];
    let code = trying("/data", "skills/one.py");
    kept(world.run(mount.into_iter().chain([&*code])).ok());
    assert_eq!(all(&world.dir, "work/skills"), before);
    // A protected skill can be called.
    let called = world.run([
        "--skills",
        "skills",
        "--workspace",
        ".",
        "-c",
        "print(device.One.get())",
    ]);
    assert_eq!(called.ok(), "1\n");
    let inside = ["--skills", "skills", "--workspace", "skills", "-c", "1"];
    world
        .run(inside)
        .refused(125, "Ringfence itself relies on files in");
}

tests!(one_shot, OneShot, Here, they_are_kept);
tests!(with_engine, Engine, Here, they_are_kept);
tests!(as_user, OneShot, User, they_are_kept);

tests!(in_container, OneShot, Container, they_cannot_be_kept);
tests!(in_container_as_user, OneShot, ContainerUser, they_cannot_be_kept);

fn they_cannot_be_kept(world: &World) {
    put(&world.dir);
    let run = world.run(["--skills", "skills", "--workspace", ".", "-c", "print(1)"]);
    run.refused(125, "cannot be protected without namespaces");
}

fn configured(dir: &Dir) {
    put(dir);
    let config = format!("[skills]\npath = '{}'\n", dir.path("work/skills").display());
    dir.write("config/ringfence/ringfence.toml", config);
}

#[test]
fn a_session_leaves_them_alone() {
    let world = World::before_engine();
    configured(&world.dir);
    world.start_engine();
    for name in NAMES {
        let code = trying("/workspace", name);
        kept(
            world
                .run(["--workspace", ".", "--session", "one", "-c", &code])
                .ok(),
        );
    }
    crate::world::play(Some(world), |_| ());
}

#[test]
fn a_client_leaves_them_alone() {
    let world = World::here();
    configured(&world.dir);
    let before = all(&world.dir, "work/skills");
    let mut client = Client::greeted(&world, &["--workspace", "."]);
    for path in [
        "skills/evil.py",
        "skills/evil.toml",
        "skills/one.toml",
        "./skills/../skills/one.py",
    ] {
        let written = client.call("file_write", &json!({"path": path, "content": "x"}));
        assert_eq!(written["isError"], true, "{written}");
    }
    let deleted = client.call("file_delete", &json!({"path": "skills/one.toml"}));
    assert_eq!(deleted["isError"], true, "{deleted}");
    kept(&client.python(&trying("/workspace", "skills/one.py")));
    client.leave().well();
    assert_eq!(all(&world.dir, "work/skills"), before);
    world.close();
}

#[test]
fn containers_leave_them_alone() {
    for engine in engines() {
        let dir = &engine.dir;
        put(dir);
        let config = format!(
            "[skills]\npath = '{}'\n[codeExecution]\ncontainerRuntime = '{}'\n",
            dir.path("work/skills").display(),
            engine.name
        );
        dir.write("config/ringfence/ringfence.toml", config);
        give(&dir.path("work"), 65_534);
        let before = all(dir, "work/skills");
        for name in NAMES {
            let code = trying("/workspace", name);
            kept(engine.run(&["--workspace", ".", "-c", &code]).ok());
            let arguments = json!({"language": "python", "code": code}).to_string();
            let printed = dir.run(["tool", "sandbox_exec", &arguments, "--workspace", "."]);
            let told = printed.ok().lines().filter(|line| line.starts_with('E'));
            kept(&told.collect::<Vec<_>>().join("\n"));
            assert!(!printed.stdout.lines().any(|line| line == "ok"), "{printed:?}");
        }
        assert_eq!(all(dir, "work/skills"), before);
    }
}

/// A skill may write below its directory only if its manifest grants this.
#[test]
fn no_skill_writes_in_its_own_directory() {
    let world = World::here();
    put(&world.dir);
    let skill = "class Self:\n    def write(self, path: str) -> None:\n        open(path, 'w').write('x')\n";
    world.dir.write("work/skills/own.py", skill);
    fs::create_dir(world.dir.path("work/skills/data")).unwrap();
    for name in ["work/skills", "work/skills/data"] {
        fs::set_permissions(world.dir.path(name), fs::Permissions::from_mode(0o777)).unwrap();
    }
    let call = |manifest: &str, path: &str| {
        world
            .dir
            .write("work/skills/own.toml", format!("mounts = ['{manifest}']"));
        let code = format!("device.Self.write({path:?})");
        world.run(["--skills", "skills", "-c", &code])
    };
    call("data:/data:rw", "/data/x").ok();
    assert!(world.dir.path("work/skills/data/x").exists());
    let own = call(".:/own:rw", "/own/evil.toml");
    assert!(own.stderr.contains("refusing to let it write at /own"), "{own:?}");
    let around = call("..:/around:rw", "/around/skills/evil.toml");
    assert!(around.stderr.contains("Read-only file system"), "{around:?}");
    assert!(!world.dir.path("work/skills/evil.toml").exists());
    world.close();
}
