//! The interpreter in use, in a workspace or a mount.

use std::fs;
use std::path::Path;

use serde_json::json;

use super::{all, give, kept, trying};
use crate::containers::engines;
use crate::mcp::{Client, text};
use crate::support::{Dir, eventually, finish};
use crate::tools::Tools;
use crate::world::{Mode, Place, World, own_uid, play, tests};

/// The uid of programs in root's containers.
const NOBODY: u32 = 65_534;

/// Creates a virtual environment two directories deep, which no name protects.
fn make(dir: &Dir, python: &str) {
    fs::create_dir_all(dir.path("work/tools/deep")).unwrap();
    let mut make = dir.program(python);
    let venv = dir.path("work/tools/deep/env");
    finish(make.args(["-m", "venv", "--without-pip"]).arg(&venv), b"").ok();
    finish(
        dir.program("cp").args(["-a"]).arg(&venv).arg(dir.path("copy")),
        b"",
    )
    .ok();
}

const ENV: &str = "tools/deep/env";

/// Asserts that the attempts succeed outside, without protection, on the same files.
#[track_caller]
fn works_outside(dir: &Dir) {
    let root = dir.path("outside");
    fs::create_dir_all(root.join("tools/deep")).unwrap();
    let copy = [dir.path("work").join(ENV), root.join(ENV)];
    finish(dir.program("cp").arg("-a").args(copy), b"").ok();
    let code = trying(root.to_str().unwrap(), &format!("{ENV}/pyvenv.cfg"));
    let mut python = dir.program("/usr/bin/python3");
    let printed = finish(python.args(["-c", &code]), b"");
    assert!(printed.ok().lines().any(|line| line == "ok"), "{printed:?}");
    fs::remove_dir_all(root).unwrap();
}

fn is_kept_whole(world: &World) {
    make(&world.dir, "/usr/bin/python3");
    works_outside(&world.dir);
    let user = world.uid();
    if user != own_uid() {
        give(&world.dir.path("work"), user);
    }
    let before = all(&world.dir, &format!("work/{ENV}"));
    let python = world.dir.path("work").join(ENV).join("bin/python3");
    let python = python.to_str().unwrap();
    for name in [ENV.to_owned(), format!("{ENV}/pyvenv.cfg"), format!("{ENV}/bin")] {
        let run = world.run([
            "--workspace",
            ".",
            "--python",
            python,
            "-c",
            &trying("/workspace", &name),
        ]);
        kept(run.ok());
        let mount = ["--mount", "tools:/tools:rw", "--python", python, "-c"];
        let below = name.strip_prefix("tools/").unwrap();
        kept(
            world
                .run(mount.into_iter().chain([&*trying("/tools", below)]))
                .ok(),
        );
    }
    // A later run, in another language: the interpreter was in use.
    let script = format!("cd /workspace/{ENV}; touch x 2>&1; rm pyvenv.cfg 2>&1; ln -s / bin/x 2>&1; true");
    let bash = world.run(["--workspace", ".", "-l", "bash", "-c", &script]);
    assert_eq!(bash.ok().matches("Read-only file system").count(), 3, "{bash:?}");
    let beside =
        "open('/workspace/tools/deep/beside', 'w'); open('/workspace/beside', 'w'); print('written')";
    let run = world.run(["--workspace", ".", "--python", python, "-c", beside]);
    assert_eq!(run.ok(), "written\n");
    assert_eq!(before, all(&world.dir, &format!("work/{ENV}")));
}

tests!(one_shot, OneShot, Here, is_kept_whole);
tests!(as_user, OneShot, User, is_kept_whole);

/// A server with an interpreter in the workspace: its warm workers, and sessions, see it read-only, too.
fn by_an_engine(place: Place) {
    let Some(world) = World::new(Mode::OneShot, place) else {
        return;
    };
    make(&world.dir, "/usr/bin/python3");
    let site = fs::read_dir(world.dir.path("work").join(ENV).join("lib")).unwrap();
    let site = site.last().unwrap().unwrap().path().join("site-packages");
    fs::write(site.join("preloaded.py"), "").unwrap();
    if world.uid() != own_uid() {
        give(&world.dir.path("work"), world.uid());
    }
    let python = world.dir.path("work").join(ENV).join("bin/python3");
    let config = format!(
        "[sandbox]\npython = '{}'\npreload = ['preloaded']\n",
        python.display()
    );
    world.dir.write("config/ringfence/ringfence.toml", config);
    let world = world.with_engine();
    let name = format!("{ENV}/pyvenv.cfg");
    // Protected modules of the workspace may be preloaded before programs run.
    eventually("a worker of the workspace is warm", || {
        let code = "import sys; print('preloaded' in sys.modules)";
        let run = world.json(["--workspace", ".", "-c", code]);
        run.get("meta.warm") == true && run.stdout() == "True\n"
    });
    kept(
        world
            .run(["--workspace", ".", "-c", &trying("/workspace", &name)])
            .ok(),
    );
    let session = ["--workspace", ".", "--session", "one", "-c"];
    kept(
        world
            .run(session.into_iter().chain([&*trying("/workspace", &name)]))
            .ok(),
    );
    play(Some(world), |_| ());
}

#[test]
fn by_an_engine_of_root() {
    by_an_engine(Place::Here);
}

#[test]
fn by_an_engine_of_an_ordinary_user() {
    by_an_engine(Place::User);
}

/// Without mounts no part of a directory can be protected, so the run is refused.
fn is_refused_without_namespaces(place: Place) {
    let Some(world) = World::new(Mode::OneShot, place) else {
        return;
    };
    make(&world.dir, "/usr/bin/python3");
    let python = world.dir.path("work").join(ENV).join("bin/python3");
    let python = python.to_str().unwrap();
    let code = ["--python", python, "-c", "print(1)"];
    assert_eq!(world.run(code).ok(), "1\n");
    let refused = world.run(["--workspace", "."].into_iter().chain(code));
    refused.refused(125, "cannot be protected without namespaces");
    let work = world.dir.path("work").display().to_string();
    let mount = format!("{work}:{work}:rw");
    world
        .run(["--mount", &mount].into_iter().chain(code))
        .refused(125, "cannot be protected without namespaces");
    // An interpreter outside the writable directories needs no protection.
    let tools = world.dir.path("work/tools").display().to_string();
    let other = format!("{tools}:{tools}:ro");
    assert_eq!(world.run(["--mount", &other].into_iter().chain(code)).ok(), "1\n");
    world.close();
}

#[test]
fn is_refused_to_root_without_namespaces() {
    is_refused_without_namespaces(Place::Container);
}

#[test]
fn is_refused_to_a_user_without_namespaces() {
    is_refused_without_namespaces(Place::ContainerUser);
}

/// A protected name in the top directory has its own Landlock rule.
fn one_of_a_protected_name_is_kept(place: Place) {
    let Some(world) = World::new(Mode::OneShot, place) else {
        return;
    };
    let mut make = world.dir.program("/usr/bin/python3");
    let venv = world.dir.path("work/.venv");
    finish(make.args(["-m", "venv", "--without-pip"]).arg(&venv), b"").ok();
    fs::create_dir(world.dir.path("work/open")).unwrap();
    let guest = if world.uid() == 0 { NOBODY } else { world.uid() };
    give(&world.dir.path("work"), guest);
    let before = all(&world.dir, "work/.venv");
    let code = "import errno, os\n\
        for act in [lambda: open('.venv/pyvenv.cfg', 'w'), lambda: open('.venv/bin/new', 'w'), \
                    lambda: os.remove('.venv/bin/python3'), lambda: os.rename('.venv', 'open/venv'), \
                    lambda: os.rename('.venv/pyvenv.cfg', 'open/x'), lambda: os.link('.venv/pyvenv.cfg', 'open/x')]:\n    \
            try: print('ok', act())\n    \
            except OSError as error: print(errno.errorcode[error.errno])\n\
        print(open('open/beside', 'w').name)";
    let run = world.run(["--workspace", ".", "--python", ".venv/bin/python", "-c", code]);
    let denied = run.ok().strip_suffix("open/beside\n").unwrap();
    let known = |line: &str| ["EACCES", "EXDEV", "EPERM"].contains(&line);
    assert!(
        denied.lines().count() == 6 && denied.lines().all(known),
        "{run:?}"
    );
    assert_eq!(before, all(&world.dir, "work/.venv"));
    world.close();
}

#[test]
fn one_of_a_protected_name_is_kept_from_guests_of_root_without_namespaces() {
    one_of_a_protected_name_is_kept(Place::Container);
}

#[test]
fn one_of_a_protected_name_is_kept_from_a_users_guests_without_namespaces() {
    one_of_a_protected_name_is_kept(Place::ContainerUser);
}

/// The attack as it was found.
#[test]
fn nobody_uses_what_only_the_path_finds_in_a_workspace() {
    let world = World::here();
    let venv = world.dir.path("work/.venv");
    let mut make = world.dir.program("/usr/bin/python3");
    finish(make.args(["-m", "venv", "--without-pip"]).arg(&venv), b"").ok();
    let path = format!("{}/bin:/usr/bin:/bin", venv.display());
    let canary = world.dir.path("canary");
    let plant = format!(
        "import glob; p = glob.glob('/workspace/.venv/lib/python3*/site-packages')\n\
         open(p[0] + '/a.pth', 'w').write('import os; open({canary:?}, \"w\").write(str(os.getuid()))\\n')"
    );
    let found = world.call(["--workspace", ".", "-c", &plant]).env("PATH", &path);
    found.output().refused(125, "only the PATH leads to it");
    let named = world.run(["--workspace", ".", "--python", ".venv/bin/python", "-c", &plant]);
    assert!(named.stderr.contains("Read-only file system"), "{named:?}");
    let later = world.call(["-c", "print('any later run')"]).env("PATH", &path);
    assert_eq!(later.output().ok(), "any later run\n");
    assert!(!canary.exists());
    // A bare name is looked up on the PATH.
    let bare = world.call(["--workspace", ".", "--python", "python3", "-c", "1"]);
    bare.env("PATH", path)
        .output()
        .refused(125, "only the PATH leads to it");
    world.close();
}

#[test]
fn file_tools_leave_it_alone() {
    let tools = Tools::new("");
    make(&tools.dir, "/usr/bin/python3");
    let python = tools.dir.path("work").join(ENV).join("bin/python3");
    let config = format!("[sandbox]\npython = '{}'\n", python.display());
    tools.dir.write("config/ringfence/ringfence.toml", config);
    let alias = tools.dir.path("work/alias");
    std::os::unix::fs::symlink("tools/deep/env/bin", alias).unwrap();
    let before = all(&tools.dir, &format!("work/{ENV}"));
    let tools = tools.with(&["--workspace", "."]);
    for path in [
        &format!("{ENV}/pyvenv.cfg"),
        &format!("{ENV}/new/x"),
        "alias/activate",
        "alias/new",
    ] {
        let refused = tools.refused("file_write", json!({"path": path, "content": "x"}));
        assert!(
            refused.message.contains("Ringfence itself relies on"),
            "{path}: {refused:?}"
        );
        let added = json!({"path": path, "content": "x", "append": true});
        assert!(tools.refused("file_write", added).message.contains("relies on"));
    }
    let refused = tools.refused("file_delete", json!({"path": format!("{ENV}/pyvenv.cfg")}));
    assert!(refused.message.contains("relies on"), "{refused:?}");
    assert_eq!(before, all(&tools.dir, &format!("work/{ENV}")));
    tools.ask("file_write", json!({"path": "tools/deep/beside", "content": "x"}));
    tools.ask("file_delete", json!({"path": "alias"}));
}

/// Planted by code that an MCP client ran, and by its file tools.
#[test]
fn a_client_leaves_it_alone() {
    let world = World::here();
    make(&world.dir, "/usr/bin/python3");
    let python = world.dir.path("work").join(ENV).join("bin/python3");
    let config = format!("[sandbox]\npython = '{}'\n", python.display());
    world.dir.write("config/ringfence/ringfence.toml", config);
    let mut client = Client::greeted(&world, &["--workspace", "."]);
    kept(&client.python(&trying("/workspace", &format!("{ENV}/pyvenv.cfg"))));
    let write = json!({"path": format!("{ENV}/a.pth"), "content": "x"});
    assert!(text(&client.call("file_write", &write)).contains("is protected"));
    client.leave().well();
    world.close();
}

/// A program in a container writes in the workspace of the fence's interpreter.
#[test]
fn containers_keep_it_too() {
    for engine in engines() {
        let dir = &engine.dir;
        make(dir, "/usr/bin/python3");
        give(&dir.path("work"), NOBODY);
        give(&dir.path("work"), NOBODY);
        let python = dir.path("work").join(ENV).join("bin/python3");
        let config = format!(
            "[sandbox]\npython = '{}'\n[codeExecution]\ncontainerRuntime = '{}'\n",
            python.display(),
            engine.name
        );
        dir.write("config/ringfence/ringfence.toml", config);
        let code = trying("/workspace", &format!("{ENV}/pyvenv.cfg"));
        kept(engine.run(&["--workspace", ".", "-c", &code]).ok());
        let mount = [
            "--mount",
            "tools:/tools:rw",
            "-c",
            &trying("/tools", "deep/env/pyvenv.cfg"),
        ];
        kept(engine.run(&mount).ok());
        let arguments = json!({"language": "python", "code": code}).to_string();
        let kept_container = ["tool", "sandbox_exec", &arguments, "--workspace", "."];
        let printed = dir.run(kept_container);
        let told = printed.ok().lines().filter(|line| line.starts_with('E'));
        kept(&told.collect::<Vec<_>>().join("\n"));
        assert!(!printed.stdout.lines().any(|line| line == "ok"), "{printed:?}");
        // It may write beside it.
        let beside = "open('/workspace/tools/deep/beside', 'w'); print('written')";
        assert_eq!(engine.run(&["--workspace", ".", "-c", beside]).ok(), "written\n");
    }
}

/// An environment directly in a project's directory: the workspace is its prefix.
#[test]
fn a_prefix_around_the_workspace_is_kept_by_its_parts() {
    let world = World::here();
    let work = world.dir.path("work");
    let mut make = world.dir.program("/usr/bin/python3");
    finish(make.args(["-m", "venv", "--without-pip"]).arg(&work), b"").ok();
    let before = fs::read(work.join("pyvenv.cfg")).unwrap();
    let run = |name: &str| {
        let code = trying("/workspace", name);
        world.run(["--workspace", ".", "--python", "bin/python3", "-c", &code])
    };
    for name in ["pyvenv.cfg", "bin", "lib"] {
        kept(run(name).ok());
    }
    assert_eq!(fs::read(work.join("pyvenv.cfg")).unwrap(), before);
    assert!(Path::new(&work).join("bin/python3").is_symlink());
    // A workspace inside its libraries cannot be protected from programs.
    let inside = world.run(["--workspace", "lib", "--python", "bin/python3", "-c", "1"]);
    inside.refused(125, "Ringfence itself relies on files in");
    world.close();
}

/// More interpreters than are kept in the cache: those that were in use before stay as they are.
#[test]
fn none_of_many_is_forgotten() {
    let world = World::here();
    let name = |number: usize| format!("env{number}");
    let python = |number: usize| format!("{}/bin/python3", name(number));
    for number in 0..10 {
        let mut make = world.dir.program("/usr/bin/python3");
        finish(make.args(["-m", "venv", "--without-pip", &name(number)]), b"").ok();
        world.run(["--python", &python(number), "-c", "1"]).ok();
    }
    for number in [0, 9] {
        let tried = trying("/workspace", &format!("{}/pyvenv.cfg", name(number)));
        kept(world.run(["--workspace", ".", "-c", &tried]).ok());
    }
    let beside = "open('/workspace/beside', 'w'); print('written')";
    assert_eq!(world.run(["--workspace", ".", "-c", beside]).ok(), "written\n");
    world.close();
}
