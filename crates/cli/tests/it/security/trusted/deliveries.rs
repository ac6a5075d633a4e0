//! Files that a program delivers to its caller.

use std::fs;

use serde_json::Value;

use super::all;
use crate::containers::engines;
use crate::support::{Dir, Output};
use crate::world::{World, here};

/// Creates a file under each name that a workspace protects, and an allowed one.
const LEAVE: &str = "import os\n\
    for path in ['.git/config', '.git/hooks/post-checkout', 'sub/.Git/config', 'sub/.envrc', '.venv/bin/python', \
                 'lib/a.pth', 'lib/A.PTH', 'venv/x', 'welcome', 'sub/welcome']:\n    \
        os.makedirs(os.path.dirname('/output/' + path), exist_ok=True)\n    \
        open('/output/' + path, 'w').write('delivered')";

/// Creates a project with files of these names.
fn project(dir: &Dir) -> Vec<(String, Vec<u8>)> {
    for name in [".git/hooks", "sub/.git", "lib", ".venv/bin"] {
        fs::create_dir_all(dir.path("work").join(name)).unwrap();
    }
    for name in [".git/config", "sub/.git/config", ".venv/bin/python", "lib/a.pth"] {
        dir.write(&format!("work/{name}"), "own");
    }
    all(dir, "work")
}

#[track_caller]
fn only_the_welcome_came(dir: &Dir, before: &[(String, Vec<u8>)], run: &Output) {
    run.ok();
    let mut after = all(dir, "work");
    for name in ["work/welcome", "work/sub/welcome"] {
        let path = dir.path(name).display().to_string();
        let place = after
            .iter()
            .position(|(found, text)| *found == path && text == b"delivered");
        after.remove(place.unwrap_or_else(|| panic!("{name}: {run:?}")));
    }
    assert_eq!(after, before);
    for name in [
        ".git",
        "sub/.Git",
        "sub/.envrc",
        ".venv",
        "lib/a.pth",
        "lib/A.PTH",
        "venv",
    ] {
        let told = format!(
            "warning: {name} was not copied: programs of the host execute or obey files of that name"
        );
        assert!(run.stderr.contains(&told), "{name}: {run:?}");
    }
}

here!(
    what_is_protected_is_left,
    nothing_is_delivered_below_a_protected_name,
    what_ringfence_relies_on_is_left,
);

fn what_is_protected_is_left(world: &World) {
    let before = project(&world.dir);
    let run = world.run(["--output", ".", "-c", LEAVE]);
    only_the_welcome_came(&world.dir, &before, &run);
    let json = world.json(["--output", "out", "-c", LEAVE]);
    let files = json.get("meta.output_files").as_array().unwrap();
    let files: Vec<&Value> = files.iter().map(|file| &file["path"]).collect();
    assert_eq!(files, ["sub/welcome", "welcome"]);
}

#[test]
fn containers_leave_it_too() {
    for engine in engines() {
        let before = project(&engine.dir);
        let run = engine.run(&["--output", ".", "-c", LEAVE]);
        only_the_welcome_came(&engine.dir, &before, &run);
    }
}

fn nothing_is_delivered_below_a_protected_name(world: &World) {
    project(&world.dir);
    let leave = "open('/output/x', 'w').write('x')";
    assert_eq!(world.run(["--output", "lib", "-c", leave]).status, 0);
    for directory in [".git", ".git/hooks", "sub/.git/new/deep", ".venv", "new/.GIT"] {
        let run = world.run(["--output", directory, "-c", leave]);
        run.refused(
            2,
            "is protected: programs of the host execute or obey files there",
        );
        assert!(!world.dir.path("work").join(directory).join("x").exists());
    }
    assert!(!world.dir.path("work/new").exists());
}

fn what_ringfence_relies_on_is_left(world: &World) {
    fs::create_dir_all(world.dir.path("work/conf/skills")).unwrap();
    let skill = "class One:\n    def get(self) -> int:\n        return 1\n";
    world.dir.write("work/conf/skills/one.py", skill);
    let path = world.dir.path("work/conf/skills").display().to_string();
    world
        .dir
        .write("work/conf/rf.toml", format!("[skills]\npath = '{path}'\n"));
    let before = all(&world.dir, "work/conf");
    let leave = "import os\n\
        for path in ['rf.toml', 'skills/one.py', 'skills/evil.py', 'skills/sub/x']:\n    \
            os.makedirs(os.path.dirname('/output/' + path), exist_ok=True)\n    \
            open('/output/' + path, 'w').write('delivered')";
    let run = world.run(["--config", "conf/rf.toml", "--output", "conf", "-c", leave]);
    run.ok();
    for name in ["rf.toml", "skills/one.py", "skills/evil.py", "skills/sub/x"] {
        let told = format!("{name} could not be copied: Ringfence itself relies on files there");
        assert!(run.stderr.contains(&told), "{name}: {run:?}");
    }
    assert_eq!(all(&world.dir, "work/conf"), before);
    let into = world.run(["--config", "conf/rf.toml", "--output", "conf/skills", "-c", leave]);
    into.refused(2, "Ringfence itself relies on files in");
}
