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
                     lambda: open('objects/x', 'w'), lambda: os.rename('refs', 'y'), \
                     lambda: open('commondir', 'w').write('objects'), lambda: open('config.worktree', 'w')]:\n    \
             try: print('ok', act())\n    \
             except OSError as error: print(errno.errorcode[error.errno])",
        settings(canary)
    )
}

#[track_caller]
fn nothing_came_of_it(printed: &str, errors: &[&str]) {
    assert_eq!(printed.lines().count(), 8, "{printed}");
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
        give(&engine.dir.path("work"), 65_534);
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

/// Returns the files of a repository without `objects` and `refs` beside its `HEAD`.
fn indirect(dir: &Dir) -> Vec<(&'static str, String)> {
    let worktree = dir.path("work").display().to_string();
    let evil = format!(
        "[core]\n\tbare = false\n\tworktree = {worktree}\n\tfsmonitor = \"touch {}; false\"\n",
        dir.path("canary").display()
    );
    let config = "[core]\n\trepositoryformatversion = 1\n[extensions]\n\tworktreeConfig = true\n";
    let head = "ref: refs/heads/main\n";
    [
        ("sub/objects/x", ""),
        ("sub/refs/heads/x", ""),
        ("sub/config", config),
        ("HEAD", head),
        ("commondir", "sub\n"),
        ("config.worktree", &evil),
    ]
    .map(|(path, text)| (path, text.to_owned()))
    .into()
}

#[track_caller]
fn it_is_none_yet(dir: &Dir) {
    for name in ["commondir", "config.worktree"] {
        assert!(!dir.path("work").join(name).exists(), "{name}");
    }
    status(dir);
    assert!(!dir.path("canary").exists());
    // Outside it has its effect.
    for (path, text) in indirect(dir) {
        let path = dir.path("work").join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }
    status(dir);
    assert!(dir.path("canary").exists());
}

#[test]
fn file_tools_lead_to_no_other_store() {
    let tools = Tools::new("").with(&["--workspace", "."]);
    for (path, text) in indirect(&tools.dir) {
        let arguments = json!({"path": path, "content": text + "x"});
        if ["commondir", "config.worktree"].contains(&path) {
            let refused = tools.refused("file_write", arguments);
            assert!(refused.message.contains("git repository"), "{path}: {refused:?}");
        } else {
            tools.ask("file_write", arguments);
        }
    }
    it_is_none_yet(&tools.dir);
}

/// Leaves these files in `/output`.
fn leaving(files: &[(&str, String)]) -> String {
    let make = |(path, text): &(&str, String)| {
        format!(
            "path = '/output/{path}'\nos.makedirs(os.path.dirname(path), exist_ok=True)\nopen(path, 'w').write({text:?})\n"
        )
    };
    format!("import os\n{}", files.iter().map(make).collect::<String>())
}

#[test]
fn deliveries_lead_to_no_other_store() {
    let world = World::here();
    let run = world.run(["--output", ".", "-c", &leaving(&indirect(&world.dir))]);
    let told = "commondir could not be copied: a git repository without a working tree lies there, or would";
    assert!(run.stderr.contains(told), "{run:?}");
    assert!(world.dir.path("work/HEAD").exists());
    it_is_none_yet(&world.dir);
    world.close();
}

#[test]
fn containers_deliver_none_either() {
    for engine in engines() {
        let run = engine.run(&["--output", ".", "-c", &leaving(&indirect(&engine.dir))]);
        assert!(run.stderr.contains("commondir could not be copied"), "{run:?}");
        it_is_none_yet(&engine.dir);
    }
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
