//! Repositories without a working tree: git obeys their settings in place.

use std::fs;
use std::path::Path;

use serde_json::json;

use super::{all, give};
use crate::containers::engines;
use crate::support::{Dir, Output, finish};
use crate::tools::Tools;
use crate::world::{World, own_uid, tests};

/// Creates such a repository, whose settings git obeys as those of a working tree.
fn make(dir: &Dir) {
    let mut git = dir.program("git");
    finish(git.args(["init", "-q", "--bare"]).arg(dir.path("work")), b"").ok();
    fs::create_dir_all(dir.path("work/hooks")).unwrap();
    dir.write(
        "work/config",
        "[core]\n\trepositoryformatversion = 0\n\tworktree = .\n",
    );
}

/// Returns settings that run a program at a user's `git status`.
fn settings(canary: &Path) -> String {
    let canary = canary.display();
    format!(
        "[core]\n\trepositoryformatversion = 0\n\tworktree = .\n\tfsmonitor = \"touch {canary}; false\"\n"
    )
}

/// Runs `git status` as a user.
fn status(dir: &Dir) -> Output {
    let mut git = dir.program("git");
    git.args(["-c", "safe.directory=*", "status"])
        .current_dir(dir.path("work"));
    finish(&mut git, b"")
}

fn trying(canary: &Path) -> String {
    format!(
        "import errno, os\n\
         evil = {:?}\n\
         for act in [lambda: open('config', 'w').write(evil), lambda: os.rename('config', 'x'), \
                     lambda: os.remove('config'), lambda: open('hooks/post-index-change', 'w'), \
                     lambda: open('objects/x', 'w'), lambda: os.rename('refs', 'y')]:\n    \
             try: print('ok', act())\n    \
             except OSError as error: print(errno.errorcode[error.errno])",
        settings(canary)
    )
}

#[track_caller]
fn nothing_came_of_it(printed: &str, errors: &[&str]) {
    assert_eq!(printed.lines().count(), 6, "{printed}");
    assert!(printed.lines().all(|line| errors.contains(&line)), "{printed}");
}

fn it_is_kept(world: &World) {
    make(&world.dir);
    let guest = if world.container() && world.uid() == 0 {
        65_534
    } else {
        world.uid()
    };
    if guest != own_uid() {
        give(&world.dir.path("work"), guest);
    }
    let canary = world.dir.path("canary");
    let before = all(&world.dir, "work");
    let run = world.run(["--workspace", ".", "-c", &trying(&canary)]);
    let errors: &[&str] = match world.container() {
        true => &["EACCES", "EXDEV", "EPERM"],
        false => &["EROFS", "EBUSY", "EXDEV"],
    };
    nothing_came_of_it(run.ok(), errors);
    assert_eq!(all(&world.dir, "work"), before);
    status(&world.dir);
    assert!(!canary.exists());
    // Outside it has its effect.
    world.dir.write("work/config", settings(&canary));
    status(&world.dir);
    assert!(canary.exists());
}

tests!(one_shot, OneShot, Here, it_is_kept);
tests!(with_engine, Engine, Here, it_is_kept);
tests!(as_user, OneShot, User, it_is_kept);
tests!(in_container, OneShot, Container, it_is_kept);

#[test]
fn containers_keep_it() {
    for engine in engines() {
        make(&engine.dir);
        give(&engine.dir.path("."), 65_534);
        let canary = engine.dir.path("canary");
        let run = engine.run(&["--workspace", ".", "-c", &trying(&canary)]);
        nothing_came_of_it(run.ok(), &["EROFS", "EBUSY", "EXDEV"]);
        status(&engine.dir);
        assert!(!canary.exists());
    }
}

#[test]
fn file_tools_make_and_change_none() {
    let tools = Tools::new("").with(&["--workspace", "."]);
    let canary = tools.dir.path("canary");
    let refused = |path: &str| {
        let refused = tools.refused("file_write", json!({"path": path, "content": settings(&canary)}));
        assert!(refused.message.contains("git repository"), "{path}: {refused:?}");
    };
    for path in ["config", "objects/x"] {
        tools.ask("file_write", json!({"path": path, "content": settings(&canary)}));
    }
    tools.ask("file_write", json!({"path": "refs/heads/x", "content": "x"}));
    refused("HEAD");
    refused("head");
    status(&tools.dir);
    assert!(!canary.exists());
    tools.dir.write("work/HEAD", "ref: refs/heads/main\n");
    for path in ["config", "hooks/x", "objects/y"] {
        refused(path);
    }
    let deleted = tools.refused("file_delete", json!({"path": "config"}));
    assert!(deleted.message.contains("git repository"), "{deleted:?}");
    // Outside it has its effect.
    status(&tools.dir);
    assert!(canary.exists());
}

#[test]
fn nothing_is_delivered_to_one() {
    let world = World::here();
    make(&world.dir);
    let before = all(&world.dir, "work");
    let canary = world.dir.path("canary");
    let leave = format!("open('/output/config', 'w').write({:?})", settings(&canary));
    let into = world.run(["--output", ".", "-c", &leave]);
    assert!(
        into.stderr
            .contains("a git repository without a working tree lies there"),
        "{into:?}"
    );
    assert_eq!(all(&world.dir, "work"), before);
    let whole = "import os\n\
        for name in ['objects', 'refs']: os.mkdir('/output/' + name); open(f'/output/{name}/x', 'w')\n\
        open('/output/HEAD', 'w').write('ref: refs/heads/main')";
    let fresh = world.run(["--output", "new", "-c", whole]);
    assert!(
        fresh
            .stderr
            .contains("a git repository without a working tree lies there, or would"),
        "{fresh:?}"
    );
    let there = |name: &str| world.dir.path("work/new").join(name).exists();
    assert!(!["HEAD", "objects", "refs"].into_iter().all(there));
    world.close();
}
