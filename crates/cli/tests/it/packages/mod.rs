//! `run --with`: packages are installed in a fence that reaches the index alone, kept, and shown read-only.

mod index;
mod npm;
mod preloaded;
mod registry;

use std::collections::BTreeMap;
use std::fs;

use serde_json::json;

use crate::api;
use crate::local_images::{import_of, root_archive};
use crate::support::{Output, entries, eventually, finish};
use crate::world::{Mode, Place, Run, World, here, play};
use index::{Index, Wheel, digest, link};

const BASE: Wheel = Wheel {
    name: "demo_base",
    version: "1.0",
    needs: &[],
    files: &[
        (
            "demo_base/__init__.py",
            "VALUE = 41\n\ndef main():\n    print('program', VALUE)\n",
        ),
        (
            "demo_base-1.0.dist-info/entry_points.txt",
            "[console_scripts]\ndemo-base = demo_base:main\n",
        ),
        ("demo_base/data/words.txt", "words\n"),
        // A module of the standard library is not replaced.
        ("statistics.py", "raise SystemExit('shadowed')\n"),
    ],
};

const TOP: Wheel = Wheel {
    name: "demo_top",
    version: "2.1",
    needs: &["demo-base<2"],
    files: &[("demo_top.py", "import demo_base\nVALUE = demo_base.VALUE + 1\n")],
};

/// A wheel with the metadata of another package.
const PRETENDING: Wheel = Wheel {
    name: "pretending",
    version: "1",
    needs: &[],
    files: &[("pretending-1.data/purelib/numpy-9.9.dist-info/METADATA", "")],
};

/// A program that needs [`BASE`], and prints 41.
const CODE: &str = "import demo_base; print(demo_base.VALUE)";

here!(packages_are_installed_once_and_kept);

crate::world::tests!(as_user, OneShot, User, packages_are_installed_once_and_kept);

#[track_caller]
fn run(world: &World, packages: &str, code: &str) -> Run {
    world.json(["--with", packages, "-c", code])
}

fn ringfence(world: &World, args: &[&str]) -> Output {
    finish(&mut world.command(&[], args), b"")
}

fn packages_are_installed_once_and_kept(world: &World) {
    let mut index = Index::configured(world, &[BASE, TOP]);
    let code = "import demo_top, statistics\nprint(demo_top.VALUE, demo_top.__file__, statistics.mean([1]))";
    let first = run(world, "demo-top", code);
    let expected = "42 /opt/ringfence/site-packages/demo_top.py 1\n";
    assert_eq!(first.stdout(), expected, "{first:?}");
    assert_eq!(
        *first.get("meta.packages"),
        json!(["demo-base==1.0", "demo-top==2.1"])
    );

    // Nobody is asked a second time, in whatever spelling.
    index.close();
    let asked = index.requests("/");
    let second = run(world, "Demo_Top", code);
    assert_eq!(second.stdout(), expected, "{second:?}");
    assert_eq!(index.requests("/"), asked);

    // Other interpreters of the program find them as well, compiled, and nobody can write them.
    let inside = "import errno, subprocess, sys, demo_base\n\
                  subprocess.run([sys.executable, '-c', 'import demo_top; print(demo_top.VALUE)'], check=True)\n\
                  subprocess.run(['demo-base'], check=True)\n\
                  print(demo_base.__spec__.cached, open(demo_base.__spec__.cached, 'rb').read(8)[4])\n\
                  for path in demo_base.__file__, demo_base.__path__[0] + '/new':\n\
                  \x20   try: open(path, 'a')\n\
                  \x20   except OSError as error: print(errno.errorcode[error.errno])";
    let written = run(world, "demo-top", inside);
    let lines: Vec<&str> = written.stdout().lines().collect();
    assert_eq!(
        (lines[0], lines[1], lines[3], lines[4]),
        ("42", "program 41", "EROFS", "EROFS"),
        "{written:?}"
    );
    assert!(
        lines[2].contains("__pycache__") && lines[2].ends_with(" 1"),
        "{written:?}"
    );

    // Outside it can be written, by this user alone; without `--with` there is nothing.
    let kept = world.dir.path("state/ringfence/packages/environments");
    let environment = kept.join(&entries(&kept)[0]);
    fs::write(environment.join("site-packages/demo_base/data/words.txt"), "w").unwrap();
    assert_eq!(entries(&kept).len(), 1);
    let without = world.json(["-c", "import demo_top"]);
    assert!(
        without
            .get("meta.hints")
            .to_string()
            .contains("`--with demo_top`"),
        "{without:?}"
    );

    let listed = ringfence(world, &["packages", "ls"]);
    assert!(
        listed.ok().contains("demo-base==1.0, demo-top==2.1"),
        "{listed:?}"
    );
    ringfence(world, &["packages", "rm", "--all"]).ok();
    let empty = ringfence(world, &["packages", "ls"]);
    assert_eq!(empty.ok(), "");
    assert_eq!(empty.stderr, "note: no packages are kept\n");
}

#[test]
fn what_cannot_be_installed_is_an_error_with_advice() {
    play(Some(World::here()), refusals_have_advice);
}

fn refusals_have_advice(world: &World) {
    let base = BASE.bytes(world);
    let file = format!("/files/{}", BASE.file());
    let hostile = Wheel {
        name: "hostile",
        version: "1",
        needs: &[],
        files: &[("../../../../../../tmp/ringfence-evil.py", "")],
    };
    let traversing = hostile.bytes(world);
    let pretending = PRETENDING.bytes(world);
    let pages = BTreeMap::from([
        (
            "/simple/demo-base/".to_owned(),
            link(&file, &digest(world, &base)),
        ),
        (
            "/simple/forged/".to_owned(),
            link("/files/forged-1-py3-none-any.whl", &"0".repeat(64)),
        ),
        (
            "/simple/source/".to_owned(),
            link("/files/source-1.tar.gz", &"0".repeat(64)),
        ),
        (
            "/simple/hostile/".to_owned(),
            link(&format!("/files/{}", hostile.file()), &digest(world, &traversing)),
        ),
        (format!("/files/{}", hostile.file()), traversing),
        (
            "/simple/pretending/".to_owned(),
            link(
                &format!("/files/{}", PRETENDING.file()),
                &digest(world, &pretending),
            ),
        ),
        (format!("/files/{}", PRETENDING.file()), pretending),
        ("/files/forged-1-py3-none-any.whl".to_owned(), base.clone()),
        (file, base),
    ]);
    let mut index = Index::serve(pages);
    index.configure(world, "");
    let refused = |packages: &str, status: i32, what: &str| {
        world
            .run([&format!("--with={packages}"), "-c", "print(1)"])
            .refused(status, what);
    };
    refused("nowhere", 125, "the index has no package `nowhere`");
    refused(
        "demo-base==9",
        125,
        "`demo-base==9`, or no wheel of it for this Python and machine; the latest are 1.0",
    );
    refused("source", 125, "the index has no package `source`, or no wheel");
    refused("forged", 125, "does not match the hash");
    refused("hostile", 125, "pip failed");
    refused("pretending", 125, "brings the metadata of another");
    refused("https://example.invalid/a.whl", 2, "names a place");
    refused("./a.whl", 2, "names a place");
    refused(
        "lodash@4",
        2,
        "is written as for npm; for Python write `lodash==4`",
    );
    refused("--pre", 2, "`--pre` is not a package");
    index.close();
    refused("demo-base", 125, "the index could not be reached: 127.0.0.1");
    let packages = world.dir.path("state/ringfence/packages");
    assert_eq!(entries(&packages), ["environments", "install.lock", "requests"]);
    assert_eq!(entries(&packages.join("environments")), [""; 0]);
    assert!(!std::path::Path::new("/tmp/ringfence-evil.py").exists());
}

#[test]
fn an_installation_reaches_no_host_but_the_index() {
    play(Some(World::here()), |world| {
        let base = BASE.bytes(world);
        let file = format!("/files/{}", BASE.file());
        let other = Index::serve(BTreeMap::from([(file.clone(), base.clone())]));
        let there = format!("http://127.0.0.1:{}{file}", other.port);
        let page = link(&there, &digest(world, &base));
        let index = Index::serve(BTreeMap::from([("/simple/demo-base/".to_owned(), page)]));

        index.configure(world, "");
        let denied = world.run(["--with", "demo-base", "-c", ""]);
        denied.refused(
            125,
            &format!("could not be reached: 127.0.0.1:{} refused", other.port),
        );
        assert_eq!(other.requests("/"), 0);

        // Only the list of hosts was in the way.
        index.configure(world, &format!("hosts = ['127.0.0.1:{}']\n", other.port));
        let allowed = run(world, "demo-base", CODE);
        assert_eq!(allowed.stdout(), "41\n", "{allowed:?}");
        assert_eq!(other.requests(&file), 1);
    });
}

#[test]
fn an_interpreter_without_pip_installs_with_its_bundled_one() {
    play(Some(World::here()), |world| {
        let _index = Index::configured(world, &[BASE]);
        let venv = world.dir.path("plain");
        let make = ["-m", "venv", "--without-pip"];
        finish(world.dir.program("/usr/bin/python3").args(make).arg(&venv), b"").ok();
        let python = venv.join("bin/python").display().to_string();
        let code =
            "import demo_base, importlib.util; print(demo_base.VALUE, importlib.util.find_spec('pip'))";
        let ran = world.json(["--python", &python, "--with", "demo-base", "-c", code]);
        assert_eq!(ran.stdout(), "41 None\n", "{ran:?}");
    });
}

#[test]
fn runs_at_once_install_once() {
    play(Some(World::here()), |world| {
        let index = Index::configured(world, &[BASE]);
        let started: Vec<_> = (0..3)
            .map(|_| world.call(["--with", "demo-base", "-c", CODE]).start())
            .collect();
        for child in started {
            let output = child.wait_with_output().unwrap();
            assert_eq!(String::from_utf8_lossy(&output.stdout), "41\n", "{output:?}");
        }
        assert_eq!(index.requests("/files/"), 1);
    });
}

#[test]
fn packages_in_use_stay() {
    play(Some(World::here()), |world| {
        let _index = Index::configured(world, &[BASE]);
        let code =
            "import demo_base; print('ready', flush=True); input(); import demo_base.data; print('found')";
        let mut child = world
            .call(["--with", "demo-base", "--stdin", "-", "-c", code])
            .start();
        let mut line = String::new();
        std::io::BufRead::read_line(
            &mut std::io::BufReader::with_capacity(1, child.stdout.as_mut().unwrap()),
            &mut line,
        )
        .unwrap();
        let left = ringfence(world, &["packages", "rm", "--all"]);
        assert!(left.stderr.contains("are in use and were left"), "{left:?}");
        std::io::Write::write_all(child.stdin.as_mut().unwrap(), b"\n").unwrap();
        let output = child.wait_with_output().unwrap();
        assert_eq!(String::from_utf8_lossy(&output.stdout), "found\n", "{output:?}");
        assert_eq!(ringfence(world, &["packages", "rm", "--all"]).ok(), "");
        assert_eq!(ringfence(world, &["packages", "ls"]).ok(), "");
    });
}

#[test]
fn packages_of_a_private_index_belong_to_their_user() {
    play(Some(World::here()), |world| {
        let mut index = Index::configured(world, &[BASE]);
        let of = |user: &str| world.run(["--user", user, "--with", "demo-base", "-c", CODE]);
        of("ann").ok();
        index.close();
        of("ann").ok();
        of("bob").refused(125, "the index could not be reached");
    });
}

#[test]
fn every_program_and_tool_has_the_configured_packages() {
    play(Some(World::here()), |world| {
        let index = Index::of(world, &[BASE, TOP]);
        index.configure(world, "default = ['demo-base']\n");
        assert_eq!(world.run(["-c", CODE]).ok(), "41\n");
        let answer = world.tool(&[], "run_python_code", &json!({"code": CODE}));
        assert!(answer.to_string().contains("41"), "{answer}");
        let both = run(
            world,
            "demo-top",
            "import demo_base, demo_top; print(demo_top.VALUE)",
        );
        assert_eq!(both.stdout(), "42\n", "{both:?}");
        // Each installation is a run of its own in the audit log, with what it reached.
        ringfence(world, &["audit", "verify"]).ok();
        let log = ringfence(world, &["audit", "tail", "--json"]);
        let installs = log.ok().lines().filter(|line| line.contains("\"install.py\""));
        let reached = format!("127.0.0.1:{} connected", index.port);
        let reached = installs.filter(|line| line.contains(&reached)).count();
        assert_eq!(reached, 2, "{log:?}");
        // Nothing is left out without a word where a mount hides it.
        let hidden = world.run(["--mount", ".:/opt", "-c", CODE]);
        hidden.refused(2, "lies where the packages are");
        // What cannot have any runs as before.
        assert_eq!(world.run(["-l", "bash", "-c", "echo bash"]).ok(), "bash\n");
        assert_eq!(
            world.run(["--unfenced", "-c", "print('unfenced')"]).ok(),
            "unfenced\n"
        );
    });
}

/// Starts a server with `demo-top` in `packages.default`.
fn with_defaults(world: &World) -> Index {
    let index = Index::of(world, &[BASE, TOP]);
    index.configure(world, "default = ['demo-top']\n");
    world.start_engine();
    index
}

const TOP_VALUE: &str = "import demo_top; print(demo_top.VALUE)";

/// Removes all packages, once nobody uses them.
fn remove_packages(world: &World) {
    eventually("nobody uses them", || {
        ringfence(world, &["packages", "rm", "--all"]).status == 0
            && ringfence(world, &["packages", "ls"]).ok().is_empty()
    });
}

#[test]
fn sessions_have_the_configured_packages() {
    let world = World::before_engine();
    let mut index = with_defaults(&world);
    // Each evaluation has them, and the programs that it starts.
    let first = world.json(["--session", "lab", "-c", TOP_VALUE]);
    assert_eq!(first.stdout(), "42\n", "{first:?}");
    assert_eq!(
        *first.get("meta.packages"),
        json!(["demo-base==1.0", "demo-top==2.1"])
    );
    let child = "import subprocess, sys; _ = subprocess.run([sys.executable, '-c', 'import demo_top; print(1)'], check=True)";
    assert_eq!(world.run(["--session", "lab", "-c", child]).ok(), "1\n");
    ringfence(&world, &["session", "fork", "lab", "fork"]).ok();
    ringfence(&world, &["session", "new", "new"]).ok();
    assert_eq!(world.run(["--session", "new", "-c", TOP_VALUE]).ok(), "42\n");
    let call = json!({"language": "python", "code": TOP_VALUE, "session": "tool"}).to_string();
    let called = api::Surface::socket(&world).ask("POST /v1/tools/run_code", &[], &call);
    assert!(called.body.contains("42\\n"), "{called:?}");

    // Beside files of the caller's, with or without these in a later evaluation; not beneath them.
    world.dir.write("work/data", "own");
    let mounted = ["--session", "mounted", "--mount", "data:/data", "-c"];
    let both = format!("{TOP_VALUE}; print(open('/data').read())");
    for args in [&mounted[..], &mounted, &["--session", "mounted", "-c"]] {
        let args: Vec<&str> = args.iter().copied().chain([both.as_str()]).collect();
        assert_eq!(world.run(args).ok(), "42\nown\n");
    }
    let hidden = world.run(["--session", "hidden", "--mount", ".:/opt", "-c", TOP_VALUE]);
    assert!(
        hidden.stderr.contains("lies where the packages are"),
        "{hidden:?}"
    );
    // A session that was created with others keeps these.
    let named = ["--session", "named", "--with", "demo-base", "-c", TOP_VALUE];
    assert_eq!(world.run(named).ok(), "42\n");
    assert_eq!(world.run(["--session", "named", "-c", TOP_VALUE]).ok(), "42\n");

    // They stay for as long as one has them; without them nothing begins.
    index.close();
    let left = ringfence(&world, &["packages", "rm", "--all"]);
    assert!(left.stderr.contains("are in use and were left"), "{left:?}");
    for name in ["lab", "new", "tool", "mounted", "named"] {
        ringfence(&world, &["session", "rm", name]).ok();
    }
    // So have copies.
    let left = ringfence(&world, &["packages", "rm", "--all"]);
    assert!(left.stderr.contains("are in use and were left"), "{left:?}");
    assert_eq!(world.run(["--session", "fork", "-c", TOP_VALUE]).ok(), "42\n");
    ringfence(&world, &["session", "rm", "fork"]).ok();
    remove_packages(&world);
    let new = ringfence(&world, &["session", "new", "lab"]);
    new.refused(125, "the index could not be reached");
    let run = world.run(["--session", "lab", "-c", "1"]);
    run.refused(125, "the index could not be reached");
    world.close();
}

#[test]
fn sandboxes_have_the_configured_packages() {
    let world = World::before_engine();
    let base = Index::configured(&world, &[BASE]);
    run(&world, "demo-base", "");
    let listed = ringfence(&world, &["packages", "ls", "--json"]);
    let listed: serde_json::Value = serde_json::from_str(listed.ok()).unwrap();
    drop(base);
    let mut index = with_defaults(&world);
    let sandbox = |args: &[&str]| ringfence(&world, &[&["sandbox"], args].concat());
    let about =
        |name: &str| -> serde_json::Value { serde_json::from_str(sandbox(&["get", name]).ok()).unwrap() };
    sandbox(&["create", "--name", "unasked"]).ok();
    assert_eq!(sandbox(&["run", "unasked", "-c", TOP_VALUE]).ok(), "42\n");
    let names = json!(["demo-base==1.0", "demo-top==2.1"]);
    assert_eq!(about("unasked")["packages"], names);
    let warnings = about("unasked")["warnings"].to_string();
    assert!(!warnings.contains("packages"), "{warnings}");
    sandbox(&["create", "--name", "asked", "--with", "demo-base"]).ok();
    assert_eq!(sandbox(&["run", "asked", "-c", TOP_VALUE]).ok(), "42\n");
    // A set that is named by its key alone is what it is, and the answer says so.
    let body = json!({"name": "key", "packages": listed[0]["id"]}).to_string();
    let created = api::Surface::socket(&world).ask("POST /v1/sandboxes", &[], &body);
    assert_eq!(
        created.json()["packages"],
        json!(["demo-base==1.0"]),
        "{created:?}"
    );
    let lacks = "the named packages take the place of `packages.default`, and lack: demo-top";
    let warnings = created.json()["warnings"].to_string();
    assert!(warnings.contains(lacks), "{created:?}");
    // Nor are interpreters of an image those that they were installed for.
    let archive = root_archive(&world.dir);
    ringfence(&world, &import_of(&archive)).ok();
    let on_image = sandbox(&["create", "--name", "image", "--image", "test/root:1"]);
    assert!(
        on_image.stderr.contains("`packages.default` is left out"),
        "{on_image:?}"
    );
    assert!(about("image")["packages"].is_null());

    index.close();
    let left = ringfence(&world, &["packages", "rm", "--all"]);
    assert!(left.stderr.contains("are in use and were left"), "{left:?}");
    sandbox(&["rm", "unasked", "asked", "key", "image"]).ok();
    remove_packages(&world);
    sandbox(&["create"]).refused(125, "the index could not be reached");
    world.stop_engine("TERM");
    fs::remove_dir_all(world.dir.path("state/ringfence/images")).unwrap();
    world.close();
}

#[test]
fn old_packages_serve_while_the_index_is_away() {
    play(Some(World::here()), |world| {
        let mut index = Index::configured(world, &[BASE]);
        let warnings = |run: &Run| run.get("meta.warnings").to_string();
        run(world, "demo-base", CODE);
        let aged = || {
            let request = remembered(world);
            let mut answer: serde_json::Value = serde_json::from_slice(&fs::read(&request).unwrap()).unwrap();
            answer["resolved"] = json!(0);
            fs::write(request, answer.to_string()).unwrap();
        };
        // Open versions are resolved anew after a week.
        aged();
        let before = index.requests("/simple/");
        let renewed = run(world, "demo-base", CODE);
        assert!(!warnings(&renewed).contains("week"), "{renewed:?}");
        assert!(index.requests("/simple/") > before);
        aged();
        index.close();
        let old = run(world, "demo-base", CODE);
        assert_eq!(old.stdout(), "41\n", "{old:?}");
        assert!(warnings(&old).contains("more than a week ago"), "{old:?}");
    });
}

/// Returns the only record of a request for packages.
fn remembered(world: &World) -> std::path::PathBuf {
    let requests = world.dir.path("state/ringfence/packages/requests");
    requests.join(&entries(&requests)[0])
}

#[test]
fn a_sandbox_has_packages_while_it_lives() {
    play(World::new(Mode::Engine, Place::Here), |world| {
        let _index = Index::configured(world, &[BASE, TOP]);
        let sandbox = |args: &[&str]| ringfence(world, &[&["sandbox"], args].concat());
        sandbox(&["create", "--name", "lab", "--with", "demo-top"]).ok();
        let code = "import demo_top; print(demo_top.VALUE, demo_top.__file__)";
        let expected = "42 /opt/ringfence/site-packages/demo_top.py\n";
        assert_eq!(sandbox(&["run", "lab", "-c", code]).ok(), expected);
        assert_eq!(
            sandbox(&["exec", "lab", "--", "python3", "-c", code]).ok(),
            expected
        );
        let write = sandbox(&[
            "exec",
            "lab",
            "--",
            "touch",
            "/opt/ringfence/site-packages/demo_top.py",
        ]);
        assert!(write.stderr.contains("Read-only file system"), "{write:?}");
        let left = ringfence(world, &["packages", "rm", "--all"]);
        assert!(left.stderr.contains("are in use and were left"), "{left:?}");
        let copy = sandbox(&["fork", "lab"]).ok().trim().to_owned();
        sandbox(&["rm", "lab"]).ok();
        assert_eq!(sandbox(&["run", &copy, "-c", code]).ok(), expected);
        sandbox(&["rm", &copy]).ok();
        let removed = ringfence(world, &["packages", "rm", "--all"]);
        assert!(removed.stderr.contains("removed the packages"), "{removed:?}");
        assert_eq!(ringfence(world, &["packages", "ls"]).ok(), "");
    });
}

#[test]
fn a_session_has_packages_while_it_lives() {
    play(World::new(Mode::Engine, Place::Here), |world| {
        let _index = Index::configured(world, &[BASE, TOP]);
        let run = |args: &[&str]| ringfence(world, &[&["run", "--session", "lab"], args].concat());
        let first = run(&["--with", "demo-top", "-c", "import demo_top; x = demo_top.VALUE"]);
        first.ok();
        assert_eq!(
            run(&["-c", "print(x, demo_top.__file__)"]).ok(),
            "42 /opt/ringfence/site-packages/demo_top.py\n"
        );
        assert_eq!(run(&["--with", "demo-top", "-c", "print(x)"]).ok(), "42\n");
        let write = "try: open(demo_top.__file__, 'a')\nexcept OSError as error: print(error.errno)";
        assert_eq!(run(&["-c", write]).ok(), "30\n");
        // What it was made with stays.
        let other = run(&["--with", "demo-base", "-c", "1"]);
        assert!(other.stderr.contains("was created with another"), "{other:?}");
        let plain = ["run", "--session", "plain", "-c", "import demo_top"];
        let missing = ringfence(world, &plain);
        assert!(
            missing.stderr.contains("No module named 'demo_top'"),
            "{missing:?}"
        );
        let left = ringfence(world, &["packages", "rm", "--all"]);
        assert!(left.stderr.contains("are in use and were left"), "{left:?}");
        assert_eq!(
            run(&["-c", "import demo_base; print(demo_base.VALUE)"]).ok(),
            "41\n"
        );
        ringfence(world, &["session", "rm", "lab"]).ok();
        ringfence(world, &["session", "rm", "plain"]).ok();
        remove_packages(world);
    });
}

#[test]
fn a_new_session_has_its_packages_in_every_surface() {
    play(Some(api::world()), |world| {
        let index = Index::configured(world, &[BASE, TOP]);
        let session = |args: &[&str]| ringfence(world, &[&["session"], args].concat());
        let new = ["new", "lab", "--memory", "128MiB", "--with"];
        session(&[&new[..], &["demo-top"]].concat()).ok();
        let asked = index.requests("/");
        let taken = session(&[&new[..], &["Demo_Top"]].concat());
        assert!(taken.stderr.contains("`lab`"), "{taken:?}");
        assert_eq!(index.requests("/"), asked);
        let code = "import demo_top, subprocess, sys; print(demo_top.VALUE, flush=True)\n\
                    _ = subprocess.run([sys.executable, '-c', 'import demo_base; print(demo_base.VALUE)'], check=True)";
        let run = ringfence(world, &["run", "--session", "lab", "-c", code]);
        assert_eq!(run.ok(), "42\n41\n");
        let call = json!({"language": "python", "code": code, "session": "lab"}).to_string();
        let called = api::Surface::socket(world).ask("POST /v1/tools/run_code", &[], &call);
        assert!(called.body.contains("42\\n41\\n"), "{called:?}");
        // They are not removed before it ends.
        let left = ringfence(world, &["packages", "rm", "--all"]);
        assert!(left.stderr.contains("are in use and were left"), "{left:?}");
        let unknown = session(&["new", "other", "--with", "demo-absent"]);
        assert_eq!(unknown.status, 125, "{unknown:?}");
        assert!(unknown.stderr.contains("no package `demo-absent`"), "{unknown:?}");
        let listed = session(&["ls"]);
        assert_eq!(listed.ok().lines().count(), 2, "{listed:?}");
        session(&["rm", "lab"]).ok();
        remove_packages(world);
    });
}

#[test]
fn keys_of_the_api_open_no_packages() {
    play(Some(api::world()), |world| {
        let _index = Index::configured(world, &[BASE]);
        run(world, "demo-base", "");
        let listed = ringfence(world, &["packages", "ls", "--json"]);
        let listed: serde_json::Value = serde_json::from_str(listed.ok()).unwrap();
        let create = |surface: api::Surface, headers: &[&str], key: &serde_json::Value| {
            surface.ask(
                "POST /v1/sandboxes",
                headers,
                &json!({"packages": key}).to_string(),
            )
        };
        let key = &listed[0]["id"];
        let owner = create(api::Surface::socket(world), &[], key);
        assert_eq!(owner.status, 200, "{owner:?}");
        let denied = create(api::Surface::loopback(world), &[api::BEARER], key);
        assert_eq!(denied.status, 403, "{denied:?}");
        assert_eq!(denied.json()["error"]["type"], "permission_denied");
        let unknown = create(api::Surface::socket(world), &[], &json!("0".repeat(64)));
        assert_eq!(unknown.status, 422, "{unknown:?}");
    });
}

#[test]
fn a_virtual_environment_is_named_and_not_used() {
    let world = World::here();
    let hint = "`--python .venv/bin/python` runs with its packages";
    let run = || world.run(["-c", "import nowhere"]);
    assert!(!run().stderr.contains(hint));
    fs::create_dir_all(world.dir.path("work/.venv/bin")).unwrap();
    let planted = world
        .dir
        .write("work/.venv/bin/python", "#!/bin/sh\ntouch ../executed\n");
    fs::set_permissions(planted, std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
    let found = run();
    assert!(found.stderr.contains(hint), "{found:?}");
    assert!(!world.run(["-c", "1 / 0"]).stderr.contains(hint));
    assert!(!world.dir.path("executed").exists());
    world.close();
}

#[test]
fn only_fenced_python_and_javascript_of_this_machine_have_packages() {
    let world = World::new(Mode::OneShot, Place::Here).unwrap();
    for (args, what) in [
        (
            &["-l", "bash", "-c", "true"][..],
            "packages are for Python and JavaScript, and this program is bash",
        ),
        (
            &["--runtime", "docker", "-c", ""],
            "the runtime `docker` has no packages",
        ),
        (&["--mount", ".:/opt", "-c", ""], "lies where the packages are"),
    ] {
        world.run([&["--with", "demo"], args].concat()).refused(2, what);
    }
    let unfenced = ["run", "--with", "demo", "--unfenced", "-c", ""];
    let refused = ringfence(&world, &unfenced);
    assert_eq!(refused.status, 2, "{refused:?}");
    assert!(refused.stderr.contains("cannot be used with"), "{refused:?}");
}
