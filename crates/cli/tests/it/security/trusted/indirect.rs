//! Paths that protected names and the settings of git lead to: links, stores, included settings, hooks, and
//! other names of the same files.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;

use serde_json::json;

use super::{all, give};
use crate::containers::engines;
use crate::support::{Dir, Output, finish};
use crate::tools::Tools;
use crate::world::{World, own_uid, tests};

/// Tries to change what its arguments name. Prints each result: `ok`, or the error.
const TRY: &str = "import errno, os, sys\n\
    def attempt(act):\n    \
        try: act(); print('ok')\n    \
        except OSError as error: print(errno.errorcode[error.errno])\n\
    for file in FILES:\n    \
        attempt(lambda: open(file, 'a').write(EVIL))\n    \
        attempt(lambda: os.rename(file, 'moved'))\n    \
        attempt(lambda: os.remove(file))\n    \
        above = os.path.dirname(file)\n    \
        if above: attempt(lambda: os.rename(above, 'above'))\n";

fn trying(files: &[&str], evil: &str) -> String {
    format!("FILES = {files:?}\nEVIL = {evil:?}\n{TRY}")
}

#[track_caller]
fn all_failed(run: &Output) {
    let printed = run.ok();
    let errors = ["EROFS", "EBUSY", "EXDEV"];
    assert!(!printed.is_empty(), "{run:?}");
    assert!(printed.lines().all(|line| errors.contains(&line)), "{run:?}");
}

fn fsmonitor(canary: &Path) -> String {
    format!("\n[core]\n\tfsmonitor = \"touch {}; false\"\n", canary.display())
}

fn git(dir: &Dir, args: &[&str]) {
    let mut git = dir.program("git");
    git.args(["-c", "safe.directory=*"])
        .args(args)
        .current_dir(dir.path("work"));
    finish(&mut git, b"");
}

/// Prepares a directory with a repository.
type Prepare = fn(&Dir);

/// Ways in which git comes to believe a file that is not in a directory `.git`, with that file.
const WAYS: &[(&str, Prepare)] = &[
    ("store/config", |dir| {
        git(dir, &["init", "-q", "--separate-git-dir=store"])
    }),
    ("store.git/config", |dir| {
        git(dir, &["init", "-q"]);
        fs::rename(dir.path("work/.git"), dir.path("work/store.git")).unwrap();
        symlink("store.git", dir.path("work/.git")).unwrap();
    }),
    ("deep/down/store/config", |dir| {
        fs::create_dir_all(dir.path("work/deep/down")).unwrap();
        git(dir, &["init", "-q", "--separate-git-dir=deep/down/store"]);
    }),
    ("shared.gitconfig", |dir| {
        git(dir, &["init", "-q"]);
        git(dir, &["config", "include.path", "../shared.gitconfig"]);
        dir.write("work/shared.gitconfig", "");
    }),
    ("conf/two", |dir| {
        git(dir, &["init", "-q"]);
        git(dir, &["config", "includeIf.gitdir:**.path", "../one"]);
        fs::create_dir(dir.path("work/conf")).unwrap();
        dir.write("work/one", "[include]\n\tpath = \"conf/two\" # again\n");
        dir.write("work/conf/two", "");
    }),
    ("conf/git", |dir| {
        git(dir, &["init", "-q"]);
        fs::create_dir(dir.path("work/conf")).unwrap();
        fs::rename(dir.path("work/.git/config"), dir.path("work/conf/git")).unwrap();
        symlink("../conf/git", dir.path("work/.git/config")).unwrap();
    }),
];

fn git_believes_no_program(world: &World) {
    let canary = world.dir.path("canary");
    for (file, make) in WAYS {
        again(&world.dir);
        make(&world.dir);
        if world.uid() != own_uid() {
            give(&world.dir.path("work"), world.uid());
        }
        let before = all(&world.dir, "work");
        all_failed(&world.run(["--workspace", ".", "-c", &trying(&[file], &fsmonitor(&canary))]));
        assert_eq!(all(&world.dir, "work"), before, "{file}");
        git(&world.dir, &["status"]);
        assert!(!canary.exists(), "{file}");
        believed_outside(&world.dir, file);
    }
}

tests!(one_shot, OneShot, Here, git_believes_no_program);
tests!(with_engine, Engine, Here, git_believes_no_program);
tests!(as_user, OneShot, User, git_believes_no_program);
tests!(in_container, OneShot, Container, it_cannot_be_kept);

/// Empties the workspace.
fn again(dir: &Dir) {
    let canary = dir.path("canary");
    if canary.exists() {
        fs::remove_file(canary).unwrap();
    }
    for entry in fs::read_dir(dir.path("work")).unwrap() {
        let path = entry.unwrap().path();
        match path.is_dir() && !path.is_symlink() {
            true => fs::remove_dir_all(path).unwrap(),
            false => fs::remove_file(path).unwrap(),
        }
    }
}

/// Shows that git runs what is written there from outside.
#[track_caller]
fn believed_outside(dir: &Dir, file: &str) {
    let canary = dir.path("canary");
    let path = dir.path("work").join(file);
    let text = fs::read_to_string(&path).unwrap() + &fsmonitor(&canary);
    fs::write(&path, text).unwrap();
    git(dir, &["status"]);
    assert!(canary.exists(), "{file}");
}

fn it_cannot_be_kept(world: &World) {
    for (file, make) in WAYS {
        again(&world.dir);
        make(&world.dir);
        let run = world.run(["--workspace", ".", "-c", "print('ran')"]);
        run.refused(125, "cannot be protected without namespaces");
        believed_outside(&world.dir, file);
    }
}

#[test]
fn containers_keep_it() {
    for engine in engines() {
        let canary = engine.dir.path("canary");
        for (file, make) in WAYS {
            again(&engine.dir);
            make(&engine.dir);
            give(&engine.dir.path("work"), 65_534);
            let code = trying(&[file], &fsmonitor(&canary));
            all_failed(&engine.run(&["--workspace", ".", "-c", &code]));
            git(&engine.dir, &["status"]);
            assert!(!canary.exists(), "{file}");
            believed_outside(&engine.dir, file);
        }
    }
}

#[test]
fn file_tools_and_deliveries_leave_it() {
    let tools = Tools::new("").with(&["--workspace", "."]);
    let world = World::here();
    for (file, make) in WAYS {
        again(&tools.dir);
        make(&tools.dir);
        let refused = tools.refused("file_write", json!({"path": file, "content": "x"}));
        assert!(refused.message.contains("is protected"), "{file}: {refused:?}");
        let deleted = tools.refused("file_delete", json!({"path": file}));
        assert!(deleted.message.contains("is protected"), "{file}: {deleted:?}");
        believed_outside(&tools.dir, file);
        again(&world.dir);
        make(&world.dir);
        let before = all(&world.dir, "work");
        let leave = format!(
            "import os\npath = '/output/{file}'\nos.makedirs(os.path.dirname(path), exist_ok=True)\n\
             open(path, 'w').write('x')"
        );
        let run = world.run(["--output", ".", "-c", &leave]);
        assert!(run.stderr.contains("could not be copied"), "{file}: {run:?}");
        assert_eq!(all(&world.dir, "work"), before, "{file}");
    }
    world.close();
}

/// Settings that are included but do not exist: whoever creates them is believed.
#[test]
fn nobody_creates_what_git_would_believe() {
    let world = World::here();
    let canary = world.dir.path("canary");
    for file in ["shared.gitconfig", "conf/shared"] {
        again(&world.dir);
        fs::create_dir(world.dir.path("work/conf")).unwrap();
        world.dir.write("work/file", "");
        git(&world.dir, &["init", "-q"]);
        git(&world.dir, &["config", "include.path", &format!("../{file}")]);
        let code = format!(
            "import errno\n\
             try: open({file:?}, 'w').write({:?})\n\
             except OSError as error: print(errno.errorcode[error.errno])\n\
             open('file', 'w').write('changed')",
            fsmonitor(&canary)
        );
        let run = world.run(["--workspace", ".", "-c", &code]);
        assert_eq!(run.ok(), "EROFS\n");
        assert_eq!(
            run.stderr.contains("names a path there that does not exist"),
            file == "shared.gitconfig"
        );
        assert_eq!(fs::read(world.dir.path("work/file")).unwrap(), b"changed");
        world.dir.write(&format!("work/{file}"), "");
        believed_outside(&world.dir, file);
    }
    world.close();
}

/// Hooks are believed wherever they lie.
#[test]
fn hooks_elsewhere_are_kept() {
    let world = World::here();
    git(&world.dir, &["init", "-q"]);
    git(&world.dir, &["config", "core.hooksPath", "scripts/hooks"]);
    fs::create_dir_all(world.dir.path("work/scripts/hooks")).unwrap();
    fs::create_dir_all(world.dir.path("work/tools")).unwrap();
    world.dir.write("work/tools/check.sh", "");
    symlink(
        "../../tools/check.sh",
        world.dir.path("work/scripts/hooks/pre-commit"),
    )
    .unwrap();
    let before = all(&world.dir, "work");
    let code = trying(&["scripts/hooks/pre-push", "tools/check.sh"], "evil");
    let run = world.run(["--workspace", ".", "-c", &code]);
    let printed = run.ok();
    let errors = ["EROFS", "EBUSY", "EXDEV", "ENOENT"];
    assert!(printed.lines().all(|line| errors.contains(&line)), "{run:?}");
    assert_eq!(all(&world.dir, "work"), before);
    world.close();
}

/// A home directory that only git may know could lead anywhere.
#[test]
fn settings_below_an_unknown_home_are_refused() {
    let world = World::here();
    git(&world.dir, &["init", "-q"]);
    for (user, known) in [("~/", true), ("~root/", true), ("~nobody-at-all/", false)] {
        let key = ["config", "core.hooksPath", &format!("{user}none")];
        git(&world.dir, &key);
        let run = world.run(["--workspace", ".", "-c", "print('ran')"]);
        match known {
            true => assert_eq!(run.ok(), "ran\n", "{user}"),
            false => run.refused(125, ".git/config leads to ~nobody-at-all/none"),
        }
    }
    world.close();
}

/// As many hooks as git has in a directory, each a link.
#[test]
fn many_hooks_make_no_workspace_unusable() {
    let world = World::here();
    git(&world.dir, &["init", "-q"]);
    let long = "long-".repeat(30);
    fs::create_dir(world.dir.path("work").join(&long)).unwrap();
    fs::create_dir_all(world.dir.path("work/.git/hooks")).unwrap();
    for number in 0..120 {
        let file = format!("work/{long}/{number}");
        let hook = world.dir.path("work/.git/hooks").join(number.to_string());
        symlink(world.dir.write(&file, "own"), hook).unwrap();
    }
    let code = format!(
        "import errno\n\
         try: open('{long}/119', 'w')\n\
         except OSError as error: print(errno.errorcode[error.errno])"
    );
    assert_eq!(world.run(["--workspace", ".", "-c", &code]).ok(), "EROFS\n");
    world.close();
}
