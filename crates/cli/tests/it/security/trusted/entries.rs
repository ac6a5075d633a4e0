//! Protected names in the top directory that are no plain files or directories, have other names, or are too many.

use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileTypeExt, symlink};
use std::path::Path;

use serde_json::json;

use super::give;
use crate::containers::engines;
use crate::support::{Dir, Output, finish};
use crate::tools::Tools;
use crate::world::{World, own_uid, tests};

/// Creates links with protected names, to a directory, to a file and to nothing, and a pipe.
fn make(dir: &Dir) {
    fs::create_dir_all(dir.path("work/conf/vscode")).unwrap();
    fs::create_dir_all(dir.path("work/src")).unwrap();
    for name in ["conf/vscode/tasks.json", "conf/envrc", "src/main.py"] {
        dir.write(&format!("work/{name}"), "own");
    }
    for (target, name) in [
        ("conf/vscode", ".vscode"),
        ("conf/envrc", ".envrc"),
        ("conf/none", ".npmrc"),
        ("/nowhere", ".husky"),
    ] {
        symlink(target, dir.path("work").join(name)).unwrap();
    }
    finish(dir.program("mkfifo").arg(dir.path("work/.exrc")), b"").ok();
}

const TRY: &str = "import errno, os\n\
    def replace(name):\n    \
        open('src/new', 'w').close(); os.rename('src/new', name)\n\
    acts = [lambda name=name, act=act: act(name) for name in ['.vscode', '.envrc', '.npmrc', '.husky', '.exrc'] \
            for act in [os.unlink, replace]]\n\
    acts += [lambda path=path: open(path, 'a') for path in ['.vscode/tasks.json', 'conf/vscode/tasks.json', \
             '.vscode/new', '.envrc', 'conf/envrc', 'conf/none', '.npmrc']]\n\
    acts += [lambda: os.rename('conf', 'src/moved'), lambda: os.rename('conf/vscode', 'src/moved')]\n\
    for act in acts:\n    \
        try: act(); print('ok')\n    \
        except OSError as error: print(errno.errorcode[error.errno])\n\
    open('src/main.py', 'w').write('changed')\n";

#[track_caller]
fn they_stay(dir: &Dir, run: &Output, errors: &[&str]) {
    let printed = run.ok();
    assert_eq!(printed.lines().count(), 19, "{run:?}");
    assert!(printed.lines().all(|line| errors.contains(&line)), "{run:?}");
    let path = |name: &str| dir.path("work").join(name);
    for name in [".vscode", ".envrc", ".npmrc", ".husky"] {
        assert!(path(name).is_symlink(), "{name}");
    }
    assert!(fs::symlink_metadata(path(".exrc")).unwrap().file_type().is_fifo());
    assert!(!path("conf/none").exists());
    for name in [".vscode/tasks.json", ".envrc"] {
        assert_eq!(fs::read(path(name)).unwrap(), b"own", "{name}");
    }
    assert_eq!(fs::read(path("src/main.py")).unwrap(), b"changed");
}

fn links_and_pipes_are_kept(world: &World) {
    make(&world.dir);
    if world.uid() != own_uid() {
        give(&world.dir.path("work"), world.uid());
    }
    let run = world.run(["--workspace", ".", "-c", TRY]);
    they_stay(&world.dir, &run, &["EROFS", "EBUSY", "EXDEV"]);
    // New names are free.
    let other = world.run(["--workspace", ".", "-c", "open('new', 'w')"]);
    other.ok();
    // Outside nothing keeps them.
    fs::write(world.dir.path("work/.envrc"), "changed").unwrap();
    assert_eq!(fs::read(world.dir.path("work/conf/envrc")).unwrap(), b"changed");
}

tests!(one_shot, OneShot, Here, links_and_pipes_are_kept);
tests!(with_engine, Engine, Here, links_and_pipes_are_kept);
tests!(as_user, OneShot, User, links_and_pipes_are_kept);

#[test]
fn containers_keep_links_and_pipes() {
    for engine in engines() {
        make(&engine.dir);
        give(&engine.dir.path("work"), 65_534);
        let run = engine.run(&["--workspace", ".", "-c", TRY]);
        they_stay(&engine.dir, &run, &["EROFS", "EBUSY", "EXDEV"]);
        assert!(
            run.stderr
                .contains("adds and removes nothing in its top directory"),
            "{run:?}"
        );
    }
}

tests!(in_container, OneShot, Container, links_are_not_kept_there);

fn links_are_not_kept_there(world: &World) {
    make(&world.dir);
    let run = world.run(["--workspace", ".", "-c", TRY]);
    run.refused(125, "cannot be protected without namespaces");
}

#[test]
fn file_tools_reach_no_target() {
    let tools = Tools::new("").with(&["--workspace", "."]);
    make(&tools.dir);
    for path in [
        ".envrc",
        "conf/envrc",
        "conf/none",
        ".vscode/tasks.json",
        "conf/vscode/tasks.json",
        "conf/vscode/new",
    ] {
        let refused = tools.refused("file_write", json!({"path": path, "content": "x"}));
        assert!(refused.message.contains("is protected"), "{path}: {refused:?}");
    }
    tools.ask("file_write", json!({"path": "conf/other", "content": "x"}));
    assert_eq!(fs::read(tools.dir.path("work/conf/envrc")).unwrap(), b"own");
}

/// Other names of protected files, at the top and in `.git`.
fn other_names_are_kept(world: &World) {
    let work = world.dir.path("work");
    fs::create_dir_all(work.join(".git/hooks")).unwrap();
    fs::create_dir_all(work.join("deep/down")).unwrap();
    let pairs = [
        (".npmrc", "alias"),
        (".git/config", "deep/config"),
        (".git/hooks/pre-commit", "deep/down/hook"),
    ];
    for (file, alias) in pairs {
        world.dir.write(&format!("work/{file}"), "own");
        fs::hard_link(work.join(file), work.join(alias)).unwrap();
    }
    if world.uid() != own_uid() {
        give(&work, world.uid());
    }
    let code = "import errno\n\
        for path in ['alias', 'deep/config', 'deep/down/hook']:\n    \
            try: open(path, 'w').write('x'); print('ok')\n    \
            except OSError as error: print(errno.errorcode[error.errno])\n\
        open('deep/new', 'w').write('x')";
    let run = world.run(["--workspace", ".", "-c", code]);
    assert_eq!(run.ok(), "EROFS\n".repeat(3));
    for (file, alias) in pairs {
        assert_eq!(fs::read(work.join(file)).unwrap(), b"own", "{file}");
        // Outside it has its effect.
        fs::write(work.join(alias), "changed").unwrap();
        assert_eq!(fs::read(work.join(file)).unwrap(), b"changed", "{file}");
    }
}

tests!(aliases_one_shot, OneShot, Here, other_names_are_kept);
tests!(aliases_as_user, OneShot, User, other_names_are_kept);

/// A program that makes protected names without end takes no workspace from those that follow.
fn many_names_make_no_workspace_unusable(world: &World) {
    let work = world.dir.path("work");
    fs::create_dir(work.join("src")).unwrap();
    world.dir.write("work/.npmrc", "own");
    if world.uid() != own_uid() {
        give(&work, world.uid());
    }
    let make = "for number in range(4500): open(f'{number}.pth', 'w')\nopen('file', 'w').write('own')";
    world.run(["--workspace", ".", "-c", make]).ok();
    let code = "import errno, os\n\
        for act in [lambda: open('1.pth', 'w'), lambda: os.remove('.npmrc'), lambda: open('new.pth', 'w')]:\n    \
            try: act(); print('ok')\n    \
            except OSError as error: print(errno.errorcode[error.errno])\n\
        open('file', 'w').write('changed'); open('src/new', 'w').write('x')";
    let run = world.run(["--workspace", ".", "-c", code]);
    assert_eq!(run.ok(), "EROFS\n".repeat(3));
    assert!(run.stderr.contains("more than 256 protected names"), "{run:?}");
    assert_eq!(fs::read(work.join("file")).unwrap(), b"changed");
    for entry in fs::read_dir(&work).unwrap() {
        let path = entry.unwrap().path();
        if path.extension().is_some_and(|end| end == "pth") {
            fs::remove_file(path).unwrap();
        }
    }
    let again = world.run(["--workspace", ".", "-c", "open('new', 'w'); print('made')"]);
    assert_eq!(again.ok(), "made\n");
    assert!(!again.stderr.contains("protected names"), "{again:?}");
}

tests!(
    many_one_shot,
    OneShot,
    Here,
    many_names_make_no_workspace_unusable
);
tests!(
    many_with_engine,
    Engine,
    Here,
    many_names_make_no_workspace_unusable
);
tests!(many_as_user, OneShot, User, many_names_make_no_workspace_unusable);

#[test]
fn containers_work_among_many_names() {
    for engine in engines() {
        for number in 0..4_500 {
            engine.dir.write(&format!("work/{number}.pth"), "own");
        }
        engine.dir.write("work/file", "own");
        give(&engine.dir.path("work"), 65_534);
        let code = "import errno\n\
            try: open('1.pth', 'w'); print('ok')\n\
            except OSError as error: print(errno.errorcode[error.errno])\n\
            open('file', 'w').write('changed')";
        let run = engine.run(&["--workspace", ".", "-c", code]);
        assert_eq!(run.ok(), "EROFS\n");
        assert!(run.stderr.contains("more than 256 protected names"), "{run:?}");
        assert_eq!(fs::read(engine.dir.path("work/file")).unwrap(), b"changed");
    }
}

/// Names that are no text fit into no message to a launcher.
#[test]
fn a_name_that_is_no_text_makes_no_workspace_unusable() {
    let world = World::here();
    let bytes = |name: &'static [u8]| Path::new(std::ffi::OsStr::from_bytes(name));
    for name in [b"\xff.pth".as_slice(), b"\xff"] {
        fs::write(world.dir.path("work").join(bytes(name)), "own").unwrap();
        world.dir.write("work/file", "own");
        let code = "open('file', 'w').write('changed'); print('ran')";
        assert_eq!(world.run(["--workspace", ".", "-c", code]).ok(), "ran\n");
    }
    world.close();
}

/// Too many protected names can be removed by a tool, but not what a person has named.
#[test]
fn file_tools_remove_what_is_too_much() {
    let tools = Tools::new("").with(&["--workspace", "."]);
    for name in ["1.pth", ".npmrc"] {
        tools.dir.write(&format!("work/{name}"), "own");
        let refused = tools.refused("file_delete", json!({"path": name}));
        assert!(refused.message.contains("is protected"), "{name}: {refused:?}");
    }
    for number in 0..300 {
        tools.dir.write(&format!("work/{number}.pth"), "own");
    }
    tools.ask("file_delete", json!({"path": "1.pth"}));
    assert!(!tools.dir.path("work/1.pth").exists());
    for name in [".npmrc", "src/1.pth"] {
        let refused = tools.refused("file_delete", json!({"path": name}));
        assert!(refused.message.contains("is protected"), "{name}: {refused:?}");
    }
}

/// A program that leads a protected name to the workspace itself takes it from nobody.
fn a_link_to_the_top_leaves_the_workspace(world: &World) {
    let work = world.dir.path("work");
    fs::create_dir(work.join("src")).unwrap();
    world.dir.write("work/file", "own");
    if world.uid() != own_uid() {
        give(&work, world.uid());
    }
    for target in [".", "..", "src/.."] {
        let plant = format!("import os; os.symlink({target:?}, '.vscode')");
        world.run(["--workspace", ".", "-c", &plant]).ok();
        let code = "import errno, os\n\
            for act in [lambda: open('tasks.json', 'w'), lambda: open('file', 'a'), lambda: os.remove('.vscode')]:\n    \
                try: act(); print('ok')\n    \
                except OSError as error: print(errno.errorcode[error.errno])\n\
            open('src/new', 'w').write('x')";
        let run = world.run(["--workspace", ".", "-c", code]);
        let printed = run.ok();
        assert_eq!(printed.lines().count(), 3, "{run:?}");
        assert!(
            printed.lines().all(|line| ["EROFS", "EACCES"].contains(&line)),
            "{run:?}"
        );
        assert!(run.stderr.contains(".vscode` leads to that directory"), "{run:?}");
        assert_eq!(fs::read(work.join("src/new")).unwrap(), b"x");
        // Outside nothing keeps the file, nor the link.
        fs::write(work.join(".vscode/file"), "own").unwrap();
        fs::remove_file(work.join(".vscode")).unwrap();
        fs::remove_file(work.join("src/new")).unwrap();
        world.run(["--workspace", ".", "-c", "open('file', 'a')"]).ok();
    }
}

tests!(
    top_one_shot,
    OneShot,
    Here,
    a_link_to_the_top_leaves_the_workspace
);
tests!(
    top_with_engine,
    Engine,
    Here,
    a_link_to_the_top_leaves_the_workspace
);
tests!(top_as_user, OneShot, User, a_link_to_the_top_leaves_the_workspace);

#[test]
fn containers_work_beside_a_link_to_the_top() {
    for engine in engines() {
        fs::create_dir(engine.dir.path("work/src")).unwrap();
        engine.dir.write("work/file", "own");
        symlink(".", engine.dir.path("work/.vscode")).unwrap();
        give(&engine.dir.path("work"), 65_534);
        let code = "import errno\n\
            try: open('file', 'w'); print('ok')\n\
            except OSError as error: print(errno.errorcode[error.errno])\n\
            open('src/new', 'w').write('x')";
        let run = engine.run(&["--workspace", ".", "-c", code]);
        assert_eq!(run.ok(), "EROFS\n");
        assert!(run.stderr.contains(".vscode` leads to that directory"), "{run:?}");
        assert_eq!(fs::read(engine.dir.path("work/file")).unwrap(), b"own");
        assert_eq!(fs::read(engine.dir.path("work/src/new")).unwrap(), b"x");
    }
}

/// Settings of git that name the workspace as the directory of hooks: its files are hooks.
#[test]
fn hooks_at_the_top_are_kept() {
    let world = World::here();
    let git = |args: &[&str]| finish(world.dir.program("git").args(args), b"").ok().to_owned();
    git(&["init", "-q"]);
    git(&["config", "core.hooksPath", "."]);
    fs::create_dir(world.dir.path("work/src")).unwrap();
    world.dir.write("work/pre-commit", "own");
    let code = "import errno\n\
        for name in ['pre-commit', 'pre-push']:\n    \
            try: open(name, 'w').write('evil'); print('ok')\n    \
            except OSError as error: print(errno.errorcode[error.errno])\n\
        open('src/new', 'w')";
    let run = world.run(["--workspace", ".", "-c", code]);
    assert_eq!(run.ok(), "EROFS\n".repeat(2));
    assert!(
        run.stderr.contains(".git/config` leads to that directory"),
        "{run:?}"
    );
    // Above the workspace no program made it: nothing of the repository is given away.
    fs::create_dir(world.dir.path("work/.git/hooks/below")).unwrap();
    let within = world.run(["--workspace", ".git/hooks", "-c", "1"]);
    within.refused(125, "programs of the host execute or obey files there");
    world.close();
}

#[test]
fn file_tools_work_beside_a_link_to_the_top() {
    let tools = Tools::new("").with(&["--workspace", "."]);
    symlink(".", tools.dir.path("work/.vscode")).unwrap();
    let refused = tools.refused("file_write", json!({"path": "tasks.json", "content": "x"}));
    assert!(refused.message.contains("is protected"), "{refused:?}");
    tools.ask("file_write", json!({"path": "src/new", "content": "x"}));
    fs::remove_file(tools.dir.path("work/.vscode")).unwrap();
    tools.ask("file_write", json!({"path": "tasks.json", "content": "x"}));
}
