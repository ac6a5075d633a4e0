//! MCP servers in a fence: no program writes what their scripts import.

use std::fs;

use crate::containers::engines;
use crate::support::{Dir, Output, finish};
use crate::world::{World, tests};

const PLANT: &str = "open('units.py', 'w').write('print(\"planted\")'); print('wrote')";

/// Configures a server in a fence; `ROOT` is the workspace.
fn configure(dir: &Dir, entry: &str) {
    let entry = entry.replace("ROOT", &dir.path("work").display().to_string());
    dir.write(
        "config/ringfence/ringfence.toml",
        format!("[skills.servers.units]\n{entry}\n"),
    );
}

fn plant(world: &World, workspace: &str) -> Output {
    world.run(["--workspace", workspace, "-c", PLANT])
}

fn imported(dir: &Dir, directory: &str) -> String {
    format!(
        "the MCP server `units` imports code from {}",
        dir.path(directory).display()
    )
}

fn a_module_beside_its_script_is_not_planted(world: &World) {
    let dir = &world.dir;
    dir.write("work/server.py", "import units\n");
    assert_eq!(plant(world, ".").ok(), "wrote\n");
    let mut server = dir.program("python3");
    let run = finish(server.arg("server.py").env("PYTHONDONTWRITEBYTECODE", "1"), b"");
    assert_eq!(run.ok(), "planted\n");
    fs::remove_file(dir.path("work/units.py")).unwrap();
    configure(
        dir,
        "command = ['python3', '/srv/server.py']\nmounts = ['ROOT:/srv']",
    );
    plant(world, ".").refused(125, &imported(dir, "work"));
    assert!(!dir.path("work/units.py").exists());
    fs::create_dir(dir.path("work/package")).unwrap();
    plant(world, "package").refused(125, &imported(dir, "work"));
    // What the server itself may write is data.
    configure(
        dir,
        "command = ['python3', '/srv/server.py']\nmounts = ['ROOT:/srv', 'ROOT/package:/data:rw']",
    );
    assert_eq!(plant(world, "package").ok(), "wrote\n");
    plant(world, ".").refused(125, &imported(dir, "work"));
}

tests!(one_shot, OneShot, Here, a_module_beside_its_script_is_not_planted);
tests!(
    with_engine,
    Engine,
    Here,
    a_module_beside_its_script_is_not_planted
);

#[test]
fn containers_plant_nothing() {
    for engine in engines() {
        let dir = &engine.dir;
        dir.write("work/server.py", "import units\n");
        configure(
            dir,
            "command = ['python3', '/srv/server.py']\nmounts = ['ROOT:/srv']",
        );
        let run = engine.run(&["--workspace", ".", "-c", PLANT]);
        assert_ne!(run.status, 0, "{run:?}");
        assert!(run.stderr.contains(&imported(dir, "work")), "{run:?}");
        assert!(!dir.path("work/units.py").exists());
    }
}

/// A script that is not there yet, and one in a directory of its own.
#[test]
fn nobody_creates_its_script() {
    let world = World::here();
    let dir = &world.dir;
    let entry = "command = ['python3', '/srv/dist/server.py']\nmounts = ['ROOT:/srv']";
    let create = "import os\nos.makedirs('dist', exist_ok=True)\nopen('dist/server.py', 'w').write('x')";
    let here = |code: &str| world.run(["--workspace", ".", "-c", code]);
    here(create).ok();
    fs::remove_dir_all(dir.path("work/dist")).unwrap();
    configure(dir, entry);
    here(create).refused(125, &imported(dir, "work"));
    assert!(!dir.path("work/dist").exists());
    fs::create_dir(dir.path("work/dist")).unwrap();
    let run = here(create);
    assert!(run.stderr.contains("Read-only file system"), "{run:?}");
    assert_eq!(here("open('new', 'w'); print('wrote')").ok(), "wrote\n");
    world.close();
}
