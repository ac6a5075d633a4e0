//! The packages of `cargo xtask dist`, made of the built binary and installed.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf, absolute};

use crate::support::{Dir, Output, entries, eventually, finish};
use crate::world::{repository, skip};

/// Runs a program, which must succeed.
#[track_caller]
fn done<A: AsRef<std::ffi::OsStr>>(
    dir: &Dir,
    program: impl AsRef<std::ffi::OsStr>,
    arguments: impl IntoIterator<Item = A>,
) -> String {
    finish(dir.program(program).args(arguments), b"").ok().to_owned()
}

/// Packs a copy without symbols, which take most of the time otherwise.
fn pack(dir: &Dir, out: &str) -> PathBuf {
    let binary = dir.path("bin/ringfence");
    if !binary.exists() {
        fs::create_dir_all(dir.path("bin")).unwrap();
        let strip = ["-o", binary.to_str().unwrap(), env!("CARGO_BIN_EXE_ringfence")];
        done(dir, "strip", strip);
    }
    let out = dir.path(out);
    let mut packing = dir.program("/usr/bin/python3");
    packing
        .arg(absolute(repository("xtask/dist/pack.py")).unwrap())
        .arg("--binary")
        .arg(&binary)
        .arg("--out")
        .arg(&out)
        .args(["--level", "1"])
        .env("SOURCE_DATE_EPOCH", "1700000000");
    finish(&mut packing, b"").ok();
    out
}

/// Returns the one package with this ending.
fn package(packed: &Path, ending: &str) -> String {
    let names = entries(packed);
    let paths = names
        .iter()
        .map(|name| packed.join(name).to_str().unwrap().to_owned());
    let path = paths.into_iter().find(|path| path.ends_with(ending));
    path.unwrap()
}

#[test]
fn each_package_installs_and_starts() {
    let python = repository("target/sdk-venv/bin/python");
    if !python.exists() {
        return skip("no target/sdk-venv (`cargo xtask setup` makes it)").unwrap_or_default();
    }
    let dir = Dir::new();
    let packed = pack(&dir, "one");
    same_bytes(&packed, &pack(&dir, "two"));
    digests_hold(&dir, &packed);
    wheel(&dir, &packed, &python);
    deb(&dir, &packed);
    npm(&dir, &packed);
    archive(&dir, &packed);
}

fn same_bytes(one: &Path, two: &Path) {
    let names = entries(one);
    assert_eq!((names.len(), &names), (10, &entries(two)));
    for name in names {
        let same = fs::read(one.join(&name)).unwrap() == fs::read(two.join(&name)).unwrap();
        assert!(same, "{name}");
    }
}

fn digests_hold(dir: &Dir, packed: &Path) {
    for name in entries(packed).iter().filter(|name| name.ends_with(".sha256")) {
        let check = format!("cd {} && sha256sum -c {name}", packed.display());
        done(dir, "sh", ["-euc", &check]);
    }
}

/// Installs the wheel without an index. Its program, and no other, starts the server of a sandbox.
fn wheel(dir: &Dir, packed: &Path, python: &Path) {
    let venv = dir.path("venv");
    done(dir, "/usr/bin/python3", ["-m", "venv", venv.to_str().unwrap()]);
    let wheel = package(packed, ".whl");
    let install = [
        "install",
        "--quiet",
        "--no-index",
        "--no-deps",
        "--disable-pip-version-check",
        &wheel,
    ];
    done(dir, venv.join("bin/pip"), install);
    let records = "import base64, hashlib, sys, zipfile\nwith zipfile.ZipFile(sys.argv[1]) as wheel:\n    \
                   record = next(name for name in wheel.namelist() if name.endswith('/RECORD'))\n    \
                   lines = [line.split(',') for line in wheel.read(record).decode().splitlines()]\n    \
                   assert sorted(line[0] for line in lines) == sorted(wheel.namelist())\n    \
                   for path, digest, _ in lines:\n        \
                   found = base64.urlsafe_b64encode(hashlib.sha256(wheel.read(path)).digest()).rstrip(b'=').decode()\n        \
                   assert path == record or digest == 'sha256=' + found, path\n";
    done(dir, "/usr/bin/python3", ["-c", records, &wheel]);
    let sites = "import sysconfig; print(sysconfig.get_path('purelib'))";
    let dependencies = done(dir, absolute(python).unwrap(), ["-c", sites]);
    let program = "from ringfence import Sandbox\nfrom ringfence._server import binary\n\
                   with Sandbox() as sandbox:\n    print(sandbox.run_code('6 * 7').text, binary())";
    let mut using = dir.program(venv.join("bin/python"));
    using
        .args(["-c", program])
        .env("PYTHONPATH", dependencies.trim())
        .env("PATH", "/usr/bin:/bin");
    let expected = format!("42 {}\n", venv.join("bin/ringfence").display());
    assert_eq!(finish(&mut using, b"").ok(), expected);
}

fn version(output: &Output) {
    assert_eq!(output.ok(), format!("ringfence {}\n", env!("CARGO_PKG_VERSION")));
}

fn deb(dir: &Dir, packed: &Path) {
    let root = dir.path("root");
    let deb = package(packed, ".deb");
    done(dir, "dpkg-deb", ["-x", &deb, root.to_str().unwrap()]);
    version(&finish(
        dir.program(root.join("usr/bin/ringfence")).arg("--version"),
        b"",
    ));
    let fields = done(dir, "dpkg-deb", ["-f", &deb]);
    assert!(
        fields.contains("Package: ringfence\n") && fields.contains("Depends: libc6 (>= 2."),
        "{fields}"
    );
    let listed = done(dir, "dpkg-deb", ["-c", &deb]);
    assert!(
        listed.lines().all(|line| line.contains(" root/root ")),
        "{listed}"
    );
    for path in [
        "man/man1/ringfence.1.gz",
        "completions/ringfence",
        "systemd/user/ringfence.service",
    ] {
        assert!(listed.contains(path), "{path}: {listed}");
    }
}

/// Installs packages of npm in a directory of their own, without a registry.
fn npm_install(dir: &Dir, name: &str, packages: &[String]) -> PathBuf {
    let place = dir.path(name);
    fs::create_dir_all(&place).unwrap();
    let mut install = dir.program("npm");
    install
        .args([
            "install",
            "--offline",
            "--no-audit",
            "--no-fund",
            "--ignore-scripts",
        ])
        .args(packages)
        .current_dir(&place);
    finish(&mut install, b"").ok();
    place
}

/// Runs a program for Node.js with the client, where no other program is on PATH.
fn node(dir: &Dir, place: &Path, program: &str) -> Output {
    let mut client = dir.program("node");
    client
        .args(["--input-type=module", "--eval", program])
        .current_dir(place)
        .env("PATH", "/usr/bin:/bin");
    finish(&mut client, b"")
}

/// Prints what a call of the client ends with.
const LIST: &str = "import { Sandbox } from 'ringfence';\n\
                    await Sandbox.list(OPTIONS).then(console.log, (error) => console.log(error.name, error.message));";

fn npm(dir: &Dir, packed: &Path) {
    let version = env!("CARGO_PKG_VERSION");
    let client = package(packed, &format!("/ringfence-{version}.tgz"));
    let program = package(packed, &format!("-x64-{version}.tgz"));
    let place = npm_install(dir, "npm", &[client.clone(), program]);
    launches(dir, &place.join("node_modules/.bin/ringfence"));
    let run = "import { Sandbox, Client } from 'ringfence';\n\
               const sandbox = await Sandbox.create();\n\
               console.log((await sandbox.runCode('6 * 7')).text, (await new Client().run('print(1)')).stdout.trim());\n\
               await sandbox.kill();";
    assert_eq!(node(dir, &place, run).ok(), "42 1\n");
    let socket = dir.path("run/ringfence/engine.sock");
    eventually("the server ends with its client", || {
        UnixStream::connect(&socket).is_err()
    });
    let refused = node(dir, &place, &LIST.replace("OPTIONS", "{ autostart: false }"));
    assert!(
        refused.ok().contains("no server listens at"),
        "{}",
        refused.stdout
    );
    another_program(dir, &place);

    // On another machine npm leaves the program out.
    let alone = npm_install(dir, "alone", &[client]);
    let missing = node(dir, &alone, &LIST.replace("OPTIONS", ""));
    assert!(
        missing.ok().contains("install @ringfence/linux-x64"),
        "{}",
        missing.stdout
    );
    let launcher = finish(&mut dir.program(alone.join("node_modules/.bin/ringfence")), b"");
    assert_eq!(launcher.status, 125, "{}", launcher.stderr);
    assert!(
        launcher
            .stderr
            .contains("@ringfence/linux-x64 with the program is not installed")
    );
}

fn launches(dir: &Dir, launcher: &Path) {
    version(&finish(dir.program(launcher).arg("--version"), b""));
    let run = |code: &str| finish(dir.program(launcher).args(["run", "-c", code]), b"");
    let output = run("import sys; print(1); sys.exit(3)");
    assert_eq!((output.stdout.as_str(), output.status), ("1\n", 3));
    assert_eq!(run("import os; os.kill(os.getpid(), 9)").status, 137);
}

/// Replaces Ringfence's program by another, as an attacker with the package's name could. Neither client nor launcher starts it.
fn another_program(dir: &Dir, place: &Path) {
    let program = place.join("node_modules/@ringfence/linux-x64/bin/ringfence");
    fs::remove_file(&program).unwrap();
    let started = dir.path("started");
    fs::write(&program, format!("#!/bin/sh\ntouch {}\n", started.display())).unwrap();
    fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).unwrap();
    done(dir, &program, [""; 0]);
    assert!(started.exists(), "it would run");
    fs::remove_file(&started).unwrap();
    let refused = node(dir, place, &LIST.replace("OPTIONS", ""));
    let why = "is not the program that this package was made with";
    assert!(refused.ok().contains(why), "{}", refused.stdout);
    let launcher = finish(&mut dir.program(place.join("node_modules/.bin/ringfence")), b"");
    assert_eq!(launcher.status, 125, "{}", launcher.stderr);
    assert!(launcher.stderr.contains(why), "{}", launcher.stderr);
    assert!(!started.exists());
}

fn archive(dir: &Dir, packed: &Path) {
    let root = dir.path("archive");
    fs::create_dir_all(&root).unwrap();
    let options = [
        "--strip-components=1",
        "-xzf",
        &package(packed, ".tar.gz"),
        "-C",
        root.to_str().unwrap(),
    ];
    done(dir, "tar", options);
    version(&finish(dir.program(root.join("ringfence")).arg("--version"), b""));
}
