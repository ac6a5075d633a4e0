//! Property tests: no generated path reaches outside.

use proptest::prelude::*;
use rustix::fs::inotify;

use super::*;

/// Names in the tree, including links of every kind, and other path components.
const STEPS: &[&str] = &[
    "a.txt",
    "d",
    "b.txt",
    "new",
    "..",
    ".",
    "",
    "/",
    "/workspace",
    "out",
    "out-far",
    "up",
    "here",
    "top",
    "proc",
    "loop",
    "dangling",
    "secret.txt",
    "root",
    "outside",
    "deep",
    "back",
    "~",
    "*",
    "\u{2025}",
    "..\\",
    "%2e%2e",
    "\n",
];

fn tree() -> World {
    let world = World::new();
    fs::create_dir_all(world.inside("d/deep")).unwrap();
    for (target, name) in [
        ("../outside", "out"),
        ("..", "up"),
        (".", "here"),
        ("/", "top"),
        ("/proc/self/root", "proc"),
        ("loop", "loop"),
        ("../outside/new", "dangling"),
        ("../../outside", "d/out"),
        ("../..", "d/up"),
        ("d/deep/../../..", "back"),
        ("../../../outside/secret.txt", "d/deep/secret.txt"),
        ("/workspace/d/..", "root"),
        ("/workspace/../outside", "outside"),
        ("up/outside/d", "d/deep/back"),
    ] {
        world.link(target, name);
    }
    world.link(world.outside(""), "out-far");
    world
}

fn every_tool(world: &World, path: &str) {
    let found = [
        world.root.read(path, 1, None).map(|found| found.to_string()),
        world.root.list(path).map(|found| format!("{:?}", found.entries)),
        world
            .root
            .write(path, b"broken in", WriteMode::Replace)
            .map(|_| String::new()),
        world
            .root
            .write(path, b"broken in", WriteMode::Append)
            .map(|_| String::new()),
        world.root.delete(path).map(|_| String::new()),
        world
            .root
            .write(path, b"again", WriteMode::Replace)
            .map(|_| String::new()),
    ];
    for found in found {
        let text = found.unwrap_or_else(|error| error.to_string());
        assert!(!text.contains(SECRET), "{path:?}: {text}");
    }
}

fn paths() -> impl Strategy<Value = String> {
    let steps = prop::collection::vec(prop::sample::select(STEPS), 1..9);
    prop_oneof![
        8 => steps.prop_map(|steps| steps.join("/")),
        1 => "[ -~]{0,30}",
        1 => any::<String>(),
    ]
}

/// Watches a directory outside: nothing in it may be opened, created, changed or removed.
fn watch(world: &World) -> OwnedFd {
    let watch = inotify::init(inotify::CreateFlags::NONBLOCK | inotify::CreateFlags::CLOEXEC).unwrap();
    let flags = inotify::WatchFlags::OPEN
        | inotify::WatchFlags::MODIFY
        | inotify::WatchFlags::ATTRIB
        | inotify::WatchFlags::CREATE
        | inotify::WatchFlags::DELETE
        | inotify::WatchFlags::MOVE;
    for place in ["", "d"] {
        inotify::add_watch(&watch, world.outside(place), flags).unwrap();
    }
    watch
}

fn has_seen_something(watch: &OwnedFd) -> bool {
    let mut room = [0_u8; 4096];
    rustix::io::read(watch, &mut room).is_ok()
}

#[test]
fn the_watch_sees_what_is_done_outside() {
    let world = tree();
    let watched = watch(&world);
    assert!(!has_seen_something(&watched));
    fs::read_to_string(world.inside("out/secret.txt")).unwrap();
    assert!(has_seen_something(&watched));
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 100, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn no_path_reaches_outside(paths in prop::collection::vec(paths(), 1..8)) {
        let world = tree();
        let watched = watch(&world);
        for path in &paths {
            every_tool(&world, path);
        }
        prop_assert!(!has_seen_something(&watched), "{:?}", paths);
        world.is_whole();
    }
}
