//! Programs that Ringfence starts outside a fence, found by the user's PATH.

use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};

use crate::support::finish;
use crate::world::World;

/// Plants a program of that name in a directory of the PATH; returns the file that it creates when it runs.
fn planted(world: &World, name: &str) -> String {
    let canary = world.dir.path("canary").display().to_string();
    let script = format!("#!/bin/sh\necho ran > {canary}\n");
    format!(
        "import os\nos.makedirs('bin', exist_ok=True)\nopen('bin/{name}', 'w').write({script:?})\nos.chmod('bin/{name}', 0o755)"
    )
}

#[test]
fn set_up_starts_nothing_that_a_program_wrote() {
    let world = World::here();
    let canary = world.dir.path("canary");
    let path = world.dir.path("work/bin").display().to_string();
    let set_up = || {
        let mut command = world.command(&[], ["setup", "deno"]);
        // No registry is contacted: there is no other npm.
        finish(command.env("PATH", &path), b"")
    };
    // A program of the user's own is started.
    fs::create_dir(world.dir.path("work/bin")).unwrap();
    let own = format!("#!/bin/sh\necho ran > {}\n", canary.display());
    world.dir.write("work/bin/npm", own);
    fs::set_permissions(world.dir.path("work/bin/npm"), PermissionsExt::from_mode(0o755)).unwrap();
    assert_ne!(set_up().status, 0);
    assert!(canary.exists());
    fs::remove_file(&canary).unwrap();
    world
        .run(["--workspace", ".", "-c", &planted(&world, "npm")])
        .ok();
    let refused = set_up();
    assert_ne!(refused.status, 0);
    assert!(
        refused
            .stderr
            .contains("is left out of the PATH: programs could write in"),
        "{refused:?}"
    );
    assert!(!canary.exists());
    world.close();
}

/// The bench measures interpreters without a fence beside those in one.
#[test]
fn the_bench_starts_nothing_that_a_program_wrote() {
    let world = World::here();
    let python = world.dir.path("work/bin/python3");
    world
        .run(["--workspace", ".", "-c", &planted(&world, "python3")])
        .ok();
    let config = format!("[sandbox]\npython = '{}'\n", python.display());
    world.dir.write("config/ringfence/ringfence.toml", config);
    let bench = finish(&mut world.command(&[], ["bench", "python"]), b"");
    assert_eq!(bench.status, 125, "{bench:?}");
    assert!(bench.stderr.contains("where programs could write"), "{bench:?}");
    // Outside it has its effect.
    finish(&mut world.dir.program(&python), b"").ok();
    assert!(world.dir.path("canary").exists());
    world.close();
}

/// A directory of the PATH where no program writes holds a link to a file that one could write.
#[test]
fn what_a_link_on_the_path_leads_to_is_not_started() {
    let world = World::here();
    let canary = world.dir.path("canary");
    for name in ["work/bin", "path"] {
        fs::create_dir(world.dir.path(name)).unwrap();
    }
    let names = ["bwrap", "npm"];
    for name in names {
        let target = world.dir.path("work/bin").join(name);
        symlink(target, world.dir.path("path").join(name)).unwrap();
        world.run(["--workspace", ".", "-c", &planted(&world, name)]).ok();
        // Outside it has its effect.
        finish(&mut world.dir.program(world.dir.path("path").join(name)), b"").ok();
        fs::remove_file(&canary).unwrap();
    }
    let start = |path: &str, args: &[&str]| {
        let mut command = world.command(&[], args);
        finish(command.env("PATH", path), b"")
    };
    let path = world.dir.path("path").display().to_string();
    start(&path, &["setup", "deno"]).refused(125, "where programs could write");
    let bench = start(&format!("{path}:/usr/bin:/bin"), &["bench", "run-cold"]);
    assert!(bench.stdout.contains("refusing to start"), "{bench:?}");
    assert!(!canary.exists());
    world.close();
}
