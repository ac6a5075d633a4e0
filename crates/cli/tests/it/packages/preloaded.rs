//! Packages that are imported before their programs come, behind the fence of these.

use std::fs;
use std::net::TcpListener;

use super::index::{Index, Wheel};
use super::{BASE, TOP, ringfence, run};
use crate::support::{eventually, eventually_none, finish};
use crate::world::{Mode, Place, Run, World, play};

/// A package that tries what a package must not, and leaves what it can, when it is imported.
const HOSTILE: Wheel = Wheel {
    name: "hostile",
    version: "1",
    needs: &[],
    files: &[(
        "hostile.py",
        "import errno, os, socket\n\
         TOKEN = os.urandom(8).hex()\n\
         LEFT = open('/tmp/left', 'w+')\n\
         def tried(act, *arguments):\n\
         \x20   try: return act(*arguments) and 'done'\n\
         \x20   except OSError as error: return errno.errorcode[error.errno]\n\
         def connect(port):\n\
         \x20   with socket.socket() as one: one.connect(('127.0.0.1', port)); return True\n\
         def attack(place, port):\n\
         \x20   return [tried(open, place), tried(open, place + '-planted', 'w'), tried(connect, port)]\n\
         def targets():\n\
         \x20   import targets\n\
         \x20   return targets.PLACE, targets.PORT\n\
         TRIED = attack(*targets())\n",
    )],
};

/// A package of which no copy of an interpreter can be made.
const THREADED: Wheel = Wheel {
    name: "threaded",
    version: "1",
    needs: &[],
    files: &[(
        "threaded.py",
        "import threading\nthreading.Thread(target=threading.Event().wait, daemon=True).start()\n",
    )],
};

/// A package that writes to the working directory, and looks at it, when it is imported.
const WRITER: Wheel = Wheel {
    name: "writer",
    version: "1",
    needs: &[],
    files: &[(
        "writer.py",
        "import errno, os\n\
         SEEN = sorted(os.listdir('.'))\n\
         try: TRIED = open('planted', 'w').write('x')\n\
         except OSError as error: TRIED = errno.errorcode[error.errno]\n",
    )],
};

/// Runs a program with packages until they are imported beforehand.
#[track_caller]
fn preloaded(world: &World, args: &[&str]) -> Run {
    let mut last = None;
    eventually_none("runs that import their packages themselves", || {
        let run = last.insert(world.json(args.iter().copied()));
        let is_preloaded = run.get("meta.preloaded") == true;
        (!is_preloaded)
            .then(|| format!("{run:?}"))
            .into_iter()
            .collect::<Vec<_>>()
    });
    last.unwrap()
}

#[test]
fn packages_are_imported_before_their_programs_come() {
    play(World::new(Mode::Engine, Place::Here), |world| {
        let _index = Index::configured(world, &[BASE, TOP]);
        let code = "import sys\nprint('demo_top' in sys.modules, 'demo_base' in sys.modules)\n\
                    import demo_top\nprint(demo_top.VALUE, sys.argv[1:], sys.stdin.read(), __name__)";
        let args = ["--with", "demo-top", "--stdin", "-", "-c", code, "--", "a"];
        let first = world.json(args);
        assert_eq!(first.stdout(), "False False\n42 ['a']  __main__\n", "{first:?}");
        let next = preloaded(world, &args);
        assert_eq!(next.stdout(), "True True\n42 ['a']  __main__\n", "{next:?}");
        assert_eq!(*next.get("meta.warm"), true);
        assert!(next.get("meta.warnings").is_null(), "{next:?}");

        // A program leaves nothing to the next.
        let leaves = "import demo_top\nprint(getattr(demo_top, 'left', 0))\ndemo_top.left = 1\n\
                      print(len(open('/tmp/left', 'a').name))\nimport os\nprint(os.listdir('/tmp'))";
        let leave = || preloaded(world, &["--with", "demo-top", "-c", leaves]);
        let expected = "0\n9\n['left']\n";
        assert_eq!((leave().stdout(), leave().stdout()), (expected, expected));
        // Its status, its errors and its limits are those of any other.
        let fails = preloaded(world, &["--with", "demo-top", "-c", "raise SystemExit(7)"]);
        fails.ended("exited", 7, 7);
        let raises = preloaded(world, &["--with", "demo-top", "-c", "1 / 0"]);
        assert!(
            raises.stderr().contains("line 1, in <module>\n    1 / 0"),
            "{raises:?}"
        );
        let slow = [
            "--with",
            "demo-top",
            "--timeout",
            "200ms",
            "-c",
            "while True: pass",
        ];
        preloaded(world, &slow).ended("timed_out", -1, 124);
        // A network and more cores go without.
        for more in [["--allow-host", "127.0.0.1"], ["--cpus", "2"]] {
            let other = world.json([&more[..], &["--with", "demo-top", "-c", "print(1)"]].concat());
            assert!(other.get("meta.preloaded").is_null(), "{other:?}");
            assert_eq!(other.stdout(), "1\n", "{other:?}");
        }
        // Removed packages are installed anew, and seen.
        eventually("nobody uses them", || {
            ringfence(world, &["packages", "rm", "--all"]).status == 0
                && ringfence(world, &["packages", "ls"]).ok().is_empty()
        });
        assert_eq!(
            run(world, "demo-top", "import demo_top; print(demo_top.VALUE)").stdout(),
            "42\n"
        );
    });
}

#[test]
fn sessions_and_sandboxes_find_packages_imported() {
    play(World::new(Mode::Engine, Place::Here), |world| {
        let _index = Index::configured(world, &[BASE, TOP]);
        preloaded(world, &["--with", "demo-top", "-c", "1"]);
        let session = |args: &[&str]| ringfence(world, &[&["session"], args].concat());
        session(&["new", "lab", "--with", "demo-top"]).ok();
        let there = "import sys; print('demo_top' in sys.modules); x = 1";
        let evaluate = |id: &str, code: &str| {
            let ran = ringfence(world, &["run", "--session", id, "-c", code]);
            ran.ok().to_owned()
        };
        assert_eq!(evaluate("lab", there), "True\n");
        session(&["fork", "lab", "copy"]).ok();
        assert_eq!(
            evaluate("copy", "print(x, sys.modules['demo_top'].VALUE)"),
            "1 42\n"
        );
        // Other interpreters that a session starts find them, too.
        let other = "import subprocess\nprint(subprocess.run([sys.executable, '-c', 'import demo_top'], check=True).returncode)";
        assert_eq!(evaluate("copy", other), "0\n");
        session(&["rm", "lab"]).ok();
        session(&["rm", "copy"]).ok();

        let sandbox = |args: &[&str]| ringfence(world, &[&["sandbox"], args].concat());
        sandbox(&["create", "--name", "lab", "--with", "demo-top"]).ok();
        assert_eq!(sandbox(&["run", "lab", "-c", there]).ok(), "True\n");
        assert_eq!(sandbox(&["run", "lab", "-c", "print(x)"]).ok(), "1\n");
        sandbox(&["rm", "lab"]).ok();
    });
}

#[test]
fn an_import_beforehand_is_behind_the_fence_of_its_programs() {
    play(World::new(Mode::Engine, Place::Here), |world| {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let secret = world.dir.write("work/secret", "secret");
        let planted = secret.with_file_name("secret-planted");
        let targets = format!("PLACE, PORT = '{}', {port}\n", secret.display());
        let targets = Wheel {
            name: "targets",
            version: "1",
            needs: &[],
            files: Vec::leak(vec![("targets.py", &*String::leak(targets))]),
        };
        let index = Index::configured(world, &[HOSTILE, targets]);

        // Outside, all of it works.
        let place = world.dir.path("outside");
        fs::create_dir_all(&place).unwrap();
        for wheel in ["hostile-1-py3-none-any.whl", "targets-1-py3-none-any.whl"] {
            let unpack = ["-m", "zipfile", "-e"];
            finish(
                world
                    .dir
                    .program("python3")
                    .args(unpack)
                    .arg(world.dir.path(wheel))
                    .arg(&place),
                b"",
            )
            .ok();
        }
        let mut outside = world.dir.program("python3");
        let code = "import hostile; print(*hostile.TRIED)";
        let outside = finish(outside.env("PYTHONPATH", &place).args(["-c", code]), b"");
        assert_eq!(outside.ok(), "done done done\n");
        fs::remove_file(&planted).unwrap();

        let code = "import sys\nassert 'hostile' in sys.modules\nimport hostile, errno\nprint(*hostile.TRIED)\n\
                    try: hostile.LEFT.read()\nexcept OSError as error: print(errno.errorcode[error.errno])\n\
                    print(hostile.TOKEN)\nhostile.TOKEN = 'changed'";
        let of = |user: &str| {
            let args = ["--user", user, "--with", "hostile,targets", "-c"];
            preloaded(world, &[&args[..], &["1"]].concat());
            preloaded(world, &[&args[..], &[code]].concat())
        };
        let ann = of("ann");
        let lines: Vec<&str> = ann.stdout().lines().collect();
        assert_eq!(lines[..2], ["ENOENT ENOENT EACCES", "EBADF"], "{ann:?}");
        assert!(!planted.exists());
        // Programs of one user share what an import made, and no program changes it; those of another have their own.
        let again = of("ann");
        let bob = of("bob");
        assert_eq!(again.stdout(), ann.stdout());
        assert_ne!(bob.stdout().lines().last(), ann.stdout().lines().last());
        drop((index, listener));
    });
}

#[test]
fn an_import_beforehand_does_not_see_the_workspace_of_its_programs() {
    play(World::new(Mode::Engine, Place::Here), |world| {
        let _index = Index::configured(world, &[WRITER, BASE, TOP]);
        let workspace = world.dir.path("work/project");
        let file = |name: &str| workspace.join(name);
        fs::create_dir_all(&workspace).unwrap();
        fs::write(file("data"), "of a person").unwrap();
        let with = |package: &str, code: &str| {
            let args = ["--workspace", "project", "--with", package, "-c", code];
            args.map(str::to_owned)
        };
        // A program may write there, and so may what it imports.
        let code = "import writer; print(writer.SEEN, writer.TRIED)";
        let first = world.json(with("writer", code));
        assert_eq!(first.stdout(), "['data'] 1\n", "{first:?}");
        fs::remove_file(file("planted")).unwrap();

        let code = "import writer; print(writer.SEEN, writer.TRIED)\n\
                    print(open('data').read(), open('made', 'w').write('x'))";
        let [idle, used] = ["1", code].map(|code| with("writer", code));
        preloaded(world, &idle.each_ref().map(String::as_str));
        let next = world.json(used.each_ref().map(String::as_str));
        assert_eq!(next.stdout(), "[] EROFS\nof a person 1\n", "{next:?}");
        assert!(!file("planted").exists() && file("made").exists());

        // A module of the workspace is meant by its programs, wherever it was imported from beforehand.
        let args = with("demo-top", "import demo_base; print(demo_base.__file__)");
        let args = args.each_ref().map(String::as_str);
        assert!(!preloaded(world, &args).stdout().starts_with("/workspace"));
        fs::write(file("demo_base.py"), "").unwrap();
        let own = world.json(args);
        assert_eq!(own.stdout(), "/workspace/demo_base.py\n", "{own:?}");
        assert!(own.get("meta.preloaded").is_null(), "{own:?}");
        fs::remove_file(file("demo_base.py")).unwrap();
        assert!(!preloaded(world, &args).stdout().starts_with("/workspace"));
    });
}

#[test]
fn packages_that_leave_threads_are_imported_by_their_programs() {
    play(World::new(Mode::Engine, Place::Here), |world| {
        let _index = Index::configured(world, &[THREADED]);
        let mut last = None;
        eventually("a warning", || {
            let run = run(world, "threaded", "import threaded; print('there')");
            let told = run
                .get("meta.warnings")
                .to_string()
                .contains("they leave threads running");
            last = Some(run);
            told
        });
        let last = last.unwrap();
        assert_eq!(last.stdout(), "there\n", "{last:?}");
        assert!(last.get("meta.preloaded").is_null(), "{last:?}");
    });
}
