//! Tests of links of every kind, and of alternative spellings of a path.

use super::*;

#[test]
fn a_link_that_leads_out_is_refused() {
    let world = World::new();
    world.link(world.outside("secret.txt"), "absolute");
    world.link("../outside/secret.txt", "relative");
    world.link("../../outside/secret.txt", "d/from-below");
    world.link("absolute", "twice");
    for name in ["absolute", "relative", "d/from-below", "twice"] {
        assert_eq!(
            fs::read_to_string(world.inside(name)).unwrap(),
            SECRET,
            "works outside"
        );
        denied(world.root.read(name, 1, None), Kind::Outside);
        denied(world.root.list(name), Kind::Outside);
        for mode in [WriteMode::Replace, WriteMode::Append] {
            denied(world.root.write(name, b"broken in", mode), Kind::Outside);
        }
    }
    // The link itself belongs to the workspace: it is deleted without its target.
    assert_eq!(world.root.delete("absolute").unwrap().kind, EntryKind::Symlink);
    world.is_whole();
}

#[test]
fn a_parent_that_is_a_link_out_is_refused() {
    let world = World::new();
    world.link("../outside", "out");
    world.link(world.outside(""), "d/out");
    world.link("../..", "d/up");
    for path in [
        "out/secret.txt",
        "out/d/b.txt",
        "out/./secret.txt",
        "out//d/../secret.txt",
        "d/out/secret.txt",
        "d/up/outside/secret.txt",
        "../outside/secret.txt",
        "d/../../outside/secret.txt",
        "/workspace/../outside/secret.txt",
        "/workspace/out/secret.txt",
    ] {
        if !path.starts_with('/') {
            assert!(
                fs::read_to_string(world.inside(path)).is_ok(),
                "{path} works outside"
            );
        }
        denied(world.root.read(path, 1, None), Kind::Outside);
        denied(world.root.list(path), Kind::Outside);
        world.refuses_to_change(path, Kind::Outside);
    }
    for path in ["out/new.txt", "out/new/deep.txt", "d/up/new.txt", "../new.txt"] {
        world.refuses_to_change(path, Kind::Outside);
    }
    denied(world.root.list("out"), Kind::Outside);
    denied(world.root.list(".."), Kind::Outside);
    world.is_whole();
}

#[test]
fn going_up_behind_a_link_goes_up_from_its_target() {
    let world = World::new();
    fs::create_dir(world.inside("d/e")).unwrap();
    fs::write(world.inside("b.txt"), "not this one").unwrap();
    world.link("d/e", "l");
    for path in ["l/../b.txt", "d/e/../b.txt", "l/../../a.txt", "d/../a.txt"] {
        assert_eq!(
            world.text(path),
            fs::read_to_string(world.inside(path)).unwrap(),
            "{path}"
        );
    }
    assert_eq!(world.text("l/../b.txt"), "below");
    // Lexically this stays inside; through the link it does not.
    world.link("../../outside/d", "d/up");
    let path = "d/up/../secret.txt";
    assert_eq!(
        fs::read_to_string(world.inside(path)).unwrap(),
        SECRET,
        "works outside"
    );
    denied(world.root.read(path, 1, None), Kind::Outside);
    world.refuses_to_change(path, Kind::Outside);
    world.is_whole();
}

#[test]
fn links_that_stay_inside_work() {
    let world = World::new();
    world.link("a.txt", "near");
    world.link("../a.txt", "d/far");
    world.link("d/../d", "around");
    world.link("/workspace/a.txt", "as-code-sees-it");
    world.link(world.inside("a.txt"), "as-the-host-sees-it");
    for path in [
        "near",
        "d/far",
        "around/far",
        "as-code-sees-it",
        "as-the-host-sees-it",
    ] {
        assert_eq!(world.text(path), "inside", "{path}");
    }
    assert_eq!(world.root.list("around").unwrap().entries.len(), 2);
    world.root.write("near", b"changed", WriteMode::Replace).unwrap();
    world.root.write("d/far", b" twice", WriteMode::Append).unwrap();
    assert_eq!(
        fs::read_to_string(world.inside("a.txt")).unwrap(),
        "changed twice"
    );
    assert!(
        world.inside("near").is_symlink(),
        "the target was replaced, not the link"
    );
    assert_eq!(world.root.delete("near").unwrap().kind, EntryKind::Symlink);
    assert_eq!(world.text("a.txt"), "changed twice");
    // A link to a file that does not exist yet refers to that file.
    world.link("d/later.txt", "early");
    denied(world.root.read("early", 1, None), Kind::NotFound);
    world.root.write("early", b"made", WriteMode::Append).unwrap();
    assert_eq!(fs::read_to_string(world.inside("d/later.txt")).unwrap(), "made");
}

#[test]
fn a_link_to_nothing_outside_makes_nothing_there() {
    let world = World::new();
    world.link("../outside/new.txt", "dangling");
    world.link("../../outside/new", "d/dangling");
    fs::write(world.inside("dangling"), "through it").unwrap();
    assert!(world.outside("new.txt").exists(), "works outside");
    fs::remove_file(world.outside("new.txt")).unwrap();
    for path in ["dangling", "d/dangling/x.txt"] {
        for mode in [WriteMode::Replace, WriteMode::Append] {
            denied(world.root.write(path, b"broken in", mode), Kind::Outside);
        }
    }
    world.is_whole();
}

#[test]
fn loops_end() {
    let world = World::new();
    world.link("loop", "loop");
    world.link("pong", "ping");
    world.link("ping", "pong");
    world.link("grow/grow", "grow");
    for path in ["loop", "ping", "pong/x", "grow"] {
        denied(world.root.read(path, 1, None), Kind::InvalidPath);
        denied(
            world.root.write(path, b"x", WriteMode::Replace),
            Kind::InvalidPath,
        );
    }
    assert_eq!(world.root.delete("loop").unwrap().kind, EntryKind::Symlink);
}

#[test]
fn magic_links_are_no_way_out() {
    let world = World::new();
    let secret = fs::File::open(world.outside("secret.txt")).unwrap();
    let number = secret.as_raw_fd();
    world.link("/proc/self/root", "root");
    world.link("/proc/self/cwd", "cwd");
    world.link(format!("/proc/self/fd/{number}"), "fd");
    world.link(world.inside("root"), "again");
    assert_eq!(
        fs::read_to_string(world.inside("fd")).unwrap(),
        SECRET,
        "works outside"
    );
    for path in ["root/etc/passwd", "cwd", "fd", "again/etc/passwd"] {
        denied(world.root.read(path, 1, None), Kind::Outside);
    }
    // Magic links inside the root are treated by their text alone.
    let root = Root::open(Path::new("/proc/self"), Rules::standard());
    denied(root, Kind::WrongKind);
    let process = format!("/proc/{}", std::process::id());
    let root = Root::open(Path::new(&process), Rules::standard()).unwrap();
    for path in ["root/etc/passwd", "cwd", "exe", &format!("fd/{number}")] {
        assert!(
            fs::metadata(Path::new(&process).join(path)).is_ok(),
            "{path} works outside"
        );
        denied(root.read(path, 1, None), Kind::Outside);
    }
}

#[test]
fn an_absolute_path_is_one_below_the_workspace() {
    let world = World::new();
    let here = world.inside("a.txt");
    for path in [
        "/workspace/a.txt",
        "/workspace/./d/../a.txt",
        "//workspace//a.txt",
        here.to_str().unwrap(),
    ] {
        assert_eq!(world.text(path), "inside", "{path}");
    }
    assert_eq!(world.root.list("/workspace").unwrap().entries.len(), 2);
    assert_eq!(world.root.list("/workspace/").unwrap().entries.len(), 2);
    let there = world.outside("secret.txt");
    assert_eq!(fs::read_to_string(&there).unwrap(), SECRET, "works outside");
    let near = format!("{}x/secret.txt", world.root.path().display());
    for path in [
        there.to_str().unwrap(),
        &near,
        "/",
        "/etc/passwd",
        "/workspaces/a.txt",
        "/workspacea.txt",
        "/proc/self/environ",
    ] {
        denied(world.root.read(path, 1, None), Kind::Outside);
        world.refuses_to_change(path, Kind::Outside);
    }
}

#[test]
fn a_root_is_known_by_the_path_it_was_opened_by_and_by_its_real_one() {
    let world = World::new();
    symlink("root", world.directory.path().join("alias")).unwrap();
    let root = Root::open(&world.directory.path().join("alias/d"), Rules::standard()).unwrap();
    for known in ["alias/d/b.txt", "root/d/b.txt"] {
        let path = world.directory.path().join(known);
        assert_eq!(text_of(&root, path.to_str().unwrap()), "below", "{known}");
    }
}

#[test]
fn texts_that_name_nothing_are_refused() {
    let world = World::new();
    let long = "x/".repeat(2_048);
    let many = "./d/../".repeat(512) + "a.txt";
    for path in [
        "",
        "\0",
        "a.txt\0",
        "a.txt\0/../../outside/secret.txt",
        &long,
        &many,
        &"x".repeat(256),
    ] {
        denied(world.root.read(path, 1, None), Kind::InvalidPath);
        denied(world.root.list(path), Kind::InvalidPath);
        world.refuses_to_change(path, Kind::InvalidPath);
    }
}

#[test]
fn two_roots_do_not_reach_each_other() {
    let world = World::new();
    let users: Vec<Root> = ["ann", "bob"]
        .map(|user| {
            Root::create(
                &world.directory.path().join("data/users").join(user),
                Rules::standard(),
                None,
            )
            .unwrap()
        })
        .into();
    for (own, other) in [(0, 1), (1, 0)] {
        let (own, other) = (&users[own], &users[other]);
        other
            .write("mine.txt", SECRET.as_bytes(), WriteMode::Replace)
            .unwrap();
        let name = other.path().file_name().unwrap().to_str().unwrap();
        symlink(other.path(), own.path().join("neighbour")).unwrap();
        symlink(format!("../{name}"), own.path().join("sibling")).unwrap();
        let absolute = other.path().join("mine.txt");
        for path in [
            absolute.to_str().unwrap(),
            "neighbour/mine.txt",
            "sibling/mine.txt",
            &format!("../{name}/mine.txt"),
            &format!("/workspace/../{name}/mine.txt"),
        ] {
            denied(own.read(path, 1, None), Kind::Outside);
            denied(own.list(path), Kind::Outside);
            denied(own.delete(path), Kind::Outside);
            denied(own.write(path, b"broken in", WriteMode::Replace), Kind::Outside);
            denied(own.write(path, b"broken in", WriteMode::Append), Kind::Outside);
        }
        assert_eq!(text_of(other, "mine.txt"), SECRET);
    }
}

#[test]
fn a_root_is_the_directory_that_was_opened_whatever_its_path_leads_to() {
    let world = World::new();
    fs::rename(world.root.path(), world.directory.path().join("moved")).unwrap();
    symlink("outside", world.root.path()).unwrap();
    let secret = world.root.path().join("secret.txt");
    assert_eq!(fs::read_to_string(&secret).unwrap(), SECRET, "works outside");
    denied(world.root.read(secret.to_str().unwrap(), 1, None), Kind::NotFound);
    assert_eq!(world.text("a.txt"), "inside");
    world.root.write("new.txt", b"x", WriteMode::Replace).unwrap();
    assert!(world.directory.path().join("moved/new.txt").exists());
    assert!(!world.outside("new.txt").exists());
}

#[test]
fn a_root_is_no_link() {
    let world = World::new();
    let path = |name: &str| world.directory.path().join(name);
    symlink("outside", path("link")).unwrap();
    symlink("nowhere", path("dangling")).unwrap();
    symlink("outside/nowhere", path("dangling-parent")).unwrap();
    for open in [Root::open, |path: &Path, rules| Root::create(path, rules, None)] {
        for name in ["link", "link/", "link/.", "outside/secret.txt"] {
            denied(open(&path(name), Rules::standard()), Kind::WrongKind);
        }
        // A link on the way to the root belongs to the user.
        assert_eq!(
            names(open(&path("link/d"), Rules::standard()).unwrap().path()),
            ["b.txt"]
        );
    }
    denied(Root::open(&path("missing"), Rules::standard()), Kind::NotFound);
    denied(Root::open(Path::new(""), Rules::standard()), Kind::InvalidPath);
    for name in ["dangling", "dangling/x", "dangling-parent/x/y"] {
        denied(
            Root::create(&path(name), Rules::standard(), None),
            Kind::WrongKind,
        );
    }
    assert!(!world.outside("nowhere").exists() && !path("nowhere").exists());
}
