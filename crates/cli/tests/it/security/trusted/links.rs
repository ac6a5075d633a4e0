//! Links that a program has planted in the place of a path that a user will name.

use std::fs;
use std::os::unix::fs::symlink;

use crate::support::entries;
use crate::world::{World, everywhere};

everywhere!(planted_links_are_not_followed);

/// The ways to name a path: to read, to write, as a workspace, as an output directory.
const WAYS: &[&[&str]] = &[
    &["--mount", "PLACE:/data:ro"],
    &["--mount", "PLACE:/data:rw"],
    &["--workspace", "PLACE"],
    &["--output", "PLACE"],
    &["--output", "PLACE/below"],
];

fn planted_links_are_not_followed(world: &World) {
    let secret = world.dir.path("secret");
    fs::create_dir(&secret).unwrap();
    world.dir.write("secret/key", "s3cret");
    let plant = format!(
        "import os\nos.makedirs('sub', exist_ok=True)\nos.symlink({:?}, 'sub/planted')",
        secret.display().to_string()
    );
    if world.container() {
        // Without a mount, the guest needs write permission there.
        fs::set_permissions(
            world.dir.path("work"),
            std::os::unix::fs::PermissionsExt::from_mode(0o777),
        )
        .unwrap();
    }
    world.run(["--workspace", ".", "-c", &plant]).ok();
    let planted = world.dir.path("work/sub/planted");
    // Outside it leads to its target.
    assert_eq!(fs::read(planted.join("key")).unwrap(), b"s3cret");
    let absolute = planted.display().to_string();
    let use_it = "import os\n\
        for place in ['/data', '.']:\n    \
            if os.path.exists(place + '/key'): print(open(place + '/key').read())\n\
        open(os.environ['RINGFENCE_OUTPUT'] + '/left', 'w').write('left')";
    for place in ["sub/planted", "./sub/../sub/planted", &absolute] {
        for way in WAYS {
            let way: Vec<String> = way.iter().map(|word| word.replace("PLACE", place)).collect();
            let args = way.iter().map(String::as_str).chain(["-c", use_it]);
            let run = world.run(args);
            run.refused(125, "refusing to follow the link");
            let words = format!("name what it leads to: {}", secret.display());
            assert!(run.stderr.contains(&words), "{run:?}");
        }
    }
    assert_eq!(entries(&secret), ["key"]);
}

/// Writable directories are remembered, independent of the working directory and of later renames.
#[test]
fn they_are_known_from_elsewhere() {
    let world = World::here();
    let secret = world.dir.path("secret");
    for directory in ["secret", "work/here", "work/mounted"] {
        fs::create_dir_all(world.dir.path(directory)).unwrap();
    }
    let secret = secret.to_str().unwrap();
    let plant = format!("import os\nos.symlink({secret:?}, '/data/planted')");
    world.run(["--mount", "mounted:/data:rw", "-c", &plant]).ok();
    fs::rename(world.dir.path("work/mounted"), world.dir.path("elsewhere")).unwrap();
    let named = format!("{}:/data", world.dir.path("elsewhere/planted").display());
    let mut run = world.command(&[], ["run", "--no-engine", "--mount", &named, "-c", "1"]);
    run.current_dir(world.dir.path("work/here"));
    crate::support::finish(&mut run, b"").refused(125, "refusing to follow the link");
    world.close();
}

/// Outside writable directories, links are the user's own.
#[test]
fn a_persons_own_links_are_followed() {
    let world = World::here();
    for directory in ["real", "own"] {
        fs::create_dir(world.dir.path(directory)).unwrap();
    }
    world.dir.write("real/file", "there");
    symlink("../real", world.dir.path("own/link")).unwrap();
    let read = "print(open('/data/file').read())";
    let run = world.run(["--mount", "../own/link:/data", "-c", read]);
    assert_eq!(run.ok(), "there\n");
    let leave = "open('/output/left', 'w').write('left')";
    world.run(["--output", "../own/link/out", "-c", leave]).ok();
    assert_eq!(entries(&world.dir.path("real")), ["file", "out"]);
    world.close();
}
