//! Tests of special files and special names.

use std::io::Write;
use std::os::unix::fs::MetadataExt;
use std::os::unix::net::UnixListener;

use rustix::fs::{FileType, mknodat};

use super::*;

#[test]
fn pipes_and_sockets_are_not_opened() {
    let world = World::new();
    mknodat(CWD, world.inside("pipe"), FileType::Fifo, Mode::RWXU, 0).unwrap();
    let _listener = UnixListener::bind(world.inside("socket")).unwrap();
    world.link("pipe", "to-pipe");
    // Opened for both, so that it does not block: works outside.
    let end = fs::File::options()
        .read(true)
        .write(true)
        .open(world.inside("pipe"));
    (&end.unwrap()).write_all(b"x").unwrap();
    // The pipe has no reader and no writer: opening it for one of the two would block forever.
    for path in ["pipe", "socket", "to-pipe"] {
        denied(world.root.read(path, 1, None), Kind::WrongKind);
        denied(world.root.list(path), Kind::WrongKind);
        for mode in [WriteMode::Replace, WriteMode::Append] {
            denied(world.root.write(path, b"x", mode), Kind::WrongKind);
        }
    }
    let kinds: Vec<_> = world
        .root
        .list(".")
        .unwrap()
        .entries
        .iter()
        .map(|entry| entry.kind)
        .collect();
    assert!(kinds.contains(&EntryKind::Fifo) && kinds.contains(&EntryKind::Socket));
    assert_eq!(world.root.delete("pipe").unwrap().kind, EntryKind::Fifo);
}

#[test]
fn devices_are_not_opened() {
    let root = Root::open(Path::new("/dev"), Rules::standard()).unwrap();
    for name in ["zero", "null", "random", "full"] {
        assert!(
            fs::File::open(Path::new("/dev").join(name)).is_ok(),
            "{name} works outside"
        );
        denied(root.read(name, 1, None), Kind::WrongKind);
        for mode in [WriteMode::Replace, WriteMode::Append] {
            denied(root.write(name, b"x", mode), Kind::WrongKind);
        }
    }
}

#[test]
fn a_sparse_file_takes_no_memory() {
    let world = World::new();
    let file = fs::File::create(world.inside("sparse")).unwrap();
    file.set_len(1 << 40).unwrap();
    let found = world.root.read("sparse", 1, None).unwrap();
    assert_eq!(found.bytes, 1 << 40);
    assert!(matches!(found.body, Body::Binary { .. }), "{found:?}");
    assert!(matches!(
        world.root.read("sparse", u64::MAX, None).unwrap().body,
        Body::Binary { .. }
    ));
    denied(
        world.root.write("sparse", b"x", WriteMode::Append),
        Kind::TooLarge,
    );
    world.root.write("sparse", b"small", WriteMode::Replace).unwrap();
    assert_eq!(world.text("sparse"), "small");
}

#[test]
fn a_hard_link_is_no_way_to_change_what_lies_outside() {
    let world = World::new();
    fs::hard_link(world.outside("secret.txt"), world.inside("hard")).unwrap();
    let mut file = fs::File::options()
        .append(true)
        .open(world.inside("hard"))
        .unwrap();
    file.write_all(b"!").unwrap();
    let secret = fs::read_to_string(world.outside("secret.txt")).unwrap();
    assert_eq!(secret, format!("{SECRET}!"), "works outside");
    fs::write(world.outside("secret.txt"), SECRET).unwrap();

    // Only a process with rights outside can have created the hard link, and has shared the content by that.
    assert_eq!(world.text("hard"), SECRET);
    denied(world.root.write("hard", b"!", WriteMode::Append), Kind::WrongKind);
    world.root.write("hard", b"own", WriteMode::Replace).unwrap();
    assert_eq!(world.text("hard"), "own");
    world.is_whole();
    world.root.write("hard", b"!", WriteMode::Append).unwrap();
    assert_eq!(world.text("hard"), "own!");
    fs::hard_link(world.outside("secret.txt"), world.inside("other")).unwrap();
    world.root.delete("other").unwrap();
    world.is_whole();
}

#[test]
fn configuration_of_the_host_is_read_and_not_changed() {
    let world = World::new();
    for path in [
        ".git/hooks/x",
        "d/.vscode/tasks.json",
        "ringfence.toml",
        "d/.envrc",
    ] {
        let path = world.inside(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, "mine").unwrap();
    }
    fs::create_dir(world.inside(".husky")).unwrap();
    world.link(".git", "innocent");
    world.link("d/.envrc", "harmless.txt");
    for path in [
        ".git/hooks/x",
        "innocent/hooks/x",
        "/workspace/.git/hooks/x",
        "d/.vscode/tasks.json",
        "d/../d/.vscode/tasks.json",
        "ringfence.toml",
        "d/.envrc",
    ] {
        assert_eq!(world.text(path), "mine", "{path}");
        fs::write(world.inside(path.trim_start_matches("/workspace/")), "mine").expect("works outside");
        world.refuses_to_change(path, Kind::Protected);
        assert_eq!(world.text(path), "mine", "{path}");
    }
    denied(
        world.root.write("harmless.txt", b"x", WriteMode::Replace),
        Kind::Protected,
    );
    denied(world.root.delete(".husky"), Kind::Protected);
    assert_eq!(world.root.list("innocent").unwrap().entries.len(), 1);
    // The link is not a configuration; its target is.
    world.root.delete("harmless.txt").unwrap();
    assert_eq!(world.text("d/.envrc"), "mine");
}

#[test]
fn configuration_that_is_absent_is_not_made() {
    let world = World::new();
    world.link(".envrc", "innocent");
    world.link("../.husky", "d/innocent");
    for path in [
        ".git/hooks/pre-commit",
        ".GIT/hooks/pre-commit",
        ".g\u{200c}it/config",
        "GIT~1/config",
        "d/.git",
        "d/deep/er/.claude/settings.json",
        "conftest.py",
        "d/conftest.py",
        "sitecustomize.py",
        ".envrc",
        "d/innocent/pre-commit",
        ".git/../free.txt",
    ] {
        world.refuses_to_change(path, Kind::Protected);
    }
    for mode in [WriteMode::Replace, WriteMode::Append] {
        denied(world.root.write("innocent", b"x", mode), Kind::Protected);
    }
    assert_eq!(names(&world.inside("")), ["a.txt", "d", "innocent"]);
    assert_eq!(names(&world.inside("d")), ["b.txt", "innocent"]);
    fs::write(world.inside("innocent"), "echo taken over").unwrap();
    assert!(world.inside(".envrc").exists(), "works outside");
    for path in [".gitignore", ".github/x.yml", "git", "d/my.envrc"] {
        world.root.write(path, b"x", WriteMode::Replace).unwrap();
    }
}

#[test]
fn what_is_protected_is_the_callers_choice() {
    let rules = Rules {
        protected: Protected::new([".github/workflows", "d"]),
        ..Rules::standard()
    };
    let world = World::with(rules);
    world.refuses_to_change(".github/workflows/ci.yml", Kind::Protected);
    world.refuses_to_change("d/b.txt", Kind::Protected);
    world
        .root
        .write(".github/x.yml", b"x", WriteMode::Replace)
        .unwrap();
    world.root.write(".git/config", b"x", WriteMode::Replace).unwrap();
}

#[test]
fn a_file_that_nobody_may_write_stays() {
    let world = World::new();
    fs::set_permissions(
        world.inside("a.txt"),
        std::os::unix::fs::PermissionsExt::from_mode(0o444),
    )
    .unwrap();
    for mode in [WriteMode::Replace, WriteMode::Append] {
        denied(world.root.write("a.txt", b"x", mode), Kind::Protected);
    }
    assert_eq!(world.text("a.txt"), "inside");
}

#[test]
fn a_new_file_belongs_to_whom_its_directory_belongs() {
    let world = World::new();
    // Only root can chown; any other user owns everything anyway.
    let _ = std::os::unix::fs::chown(world.inside("d"), Some(65_534), Some(65_534));
    let owner = fs::metadata(world.inside("d")).unwrap().uid();
    world.root.write("d/new/x.txt", b"x", WriteMode::Replace).unwrap();
    for path in ["d/new", "d/new/x.txt"] {
        assert_eq!(fs::metadata(world.inside(path)).unwrap().uid(), owner, "{path}");
    }
    world.root.write("d/new/x.txt", b"y", WriteMode::Replace).unwrap();
    assert_eq!(fs::metadata(world.inside("d/new/x.txt")).unwrap().uid(), owner);
}
