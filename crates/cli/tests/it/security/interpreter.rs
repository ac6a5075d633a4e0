//! Threat: an interpreter that a guest has written or changed, and that Ringfence queries before it runs
//! code.

use std::fs;
use std::net::TcpListener;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;

use super::fence::{Fence, PYTHON, USER};
use crate::support::{eventually, finish};

/// A planted program. It creates a file if it runs outside every fence, and then behaves normally.
struct Planted {
    venv: PathBuf,
    canary: PathBuf,
}

/// The ways to run code at the start of an interpreter.
const WAYS: &[fn(&Planted)] = &[Planted::path_file, Planted::module, Planted::program];

impl Planted {
    fn new(fence: &Fence) -> Self {
        let venv = fence.dir.path("work/.venv");
        let mut make = fence.command(PYTHON.as_ref());
        finish(make.args(["-m", "venv", "--without-pip"]).arg(&venv), b"").ok();
        let canary = fence.dir.path("home/canary");
        Self { venv, canary }
    }

    fn code(&self) -> String {
        format!("open({:?}, 'w').close()", self.canary)
    }

    fn site(&self) -> PathBuf {
        let versions = fs::read_dir(self.venv.join("lib")).unwrap();
        versions.last().unwrap().unwrap().path().join("site-packages")
    }

    fn path_file(&self) {
        let line = format!("import os; {}\n", self.code());
        fs::write(self.site().join("a.pth"), line).unwrap();
    }

    /// Plants a package of the environment, as some install one.
    fn module(&self) {
        let code = format!("try: {}\nexcept OSError: pass\n", self.code());
        fs::write(self.site().join("hooks.py"), code).unwrap();
        fs::write(self.site().join("a.pth"), "import hooks\n").unwrap();
    }

    /// Replaces the program itself.
    fn program(&self) {
        let script = format!(
            "#!/bin/bash\n: 2>/dev/null > {}\nexec {PYTHON} \"$@\"\n",
            self.canary.display()
        );
        self.replace(&script);
    }

    fn replace(&self, script: &str) {
        let program = self.venv.join("bin/python3");
        fs::remove_file(&program).unwrap();
        fs::write(&program, script).unwrap();
        fs::set_permissions(program, fs::Permissions::from_mode(0o755)).unwrap();
    }

    /// Returns `true` if it ran outside of a fence.
    fn ran(&self) -> bool {
        fs::remove_file(&self.canary).is_ok()
    }
}

/// Checks each way to plant a program, with each way to query the interpreter.
#[track_caller]
fn asked_in_a_fence(fence: impl Fn() -> Option<Fence>) {
    for plant in WAYS {
        let Some(fence) = fence() else { return };
        let planted = Planted::new(&fence);
        plant(&planted);
        let venv = planted.venv.display().to_string();
        let python = format!("{venv}/bin/python3");
        // Outside it has its effect.
        finish(fence.command(python.as_ref()).args(["-c", ""]), b"").ok();
        assert!(planted.ran());

        let path = format!("PATH={venv}/bin:/usr/bin:/bin");
        let sandbox = format!("RINGFENCE_SANDBOX_PYTHON={python}");
        let run = ["run", "--no-engine", "-c", "print('any later run')"];
        let tool = [
            "tool",
            "run_python_code",
            "{\"code\": \"print()\"}",
            "--no-engine",
        ];
        for (variable, args) in [
            (
                "A=b",
                &["run", "--no-engine", "--python", &python, "-c", "print()"][..],
            ),
            (&path, &run),
            (&sandbox, &run),
            (&sandbox, &tool),
            (&path, &["doctor", "--json"]),
        ] {
            let output = finish(&mut fence.product(variable, args), b"");
            assert!(!planted.ran(), "{variable} {args:?}: {output:?}");
        }
    }
}

#[test]
fn as_root() {
    asked_in_a_fence(Fence::root);
}

#[test]
fn as_an_ordinary_user() {
    asked_in_a_fence(super::ordinary_user::fence);
}

#[test]
fn as_root_without_namespaces() {
    asked_in_a_fence(|| Fence::container(0));
}

#[test]
fn as_a_user_without_namespaces() {
    asked_in_a_fence(|| Fence::container(USER));
}

/// The output of a queried interpreter appears in the error that the user reads.
#[track_caller]
fn sees_and_reaches_nothing(fence: Option<Fence>) {
    let Some(fence) = fence else { return };
    let planted = Planted::new(&fence);
    let secret = fence.dir.write("home/secret", "s3cret\n");
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let python = planted.venv.join("bin/python3").display().to_string();
    let asked = |script: String| {
        planted.replace(&format!("#!/bin/bash\n{script}\n"));
        let outside = finish(&mut fence.command(python.as_ref()), b"");
        let mut run = fence.product(
            "API_KEY=s3cret",
            &["run", "--no-engine", "--python", &python, "-c", "1"],
        );
        (outside, finish(&mut run, b""))
    };
    let read = format!("read -r text < {} && echo \"read $text\" >&2", secret.display());
    let (outside, inside) = asked(read);
    assert!(outside.stderr.contains("read s3cret"), "{outside:?}");
    inside.refused(125, "cannot be used as a Python");
    assert!(inside.stderr.contains("No such file or directory"), "{inside:?}");

    let (_, inside) = asked("echo \"key $API_KEY\" >&2".to_owned());
    assert!(inside.stderr.contains("key \n"), "{inside:?}");

    let (outside, inside) = asked(format!(": > /dev/tcp/127.0.0.1/{port} && echo reached >&2"));
    if !fence.is_contained() {
        assert!(outside.stderr.contains("reached"), "{outside:?}");
        listener.accept().unwrap();
    }
    assert!(!inside.stderr.contains("reached"), "{inside:?}");
    listener.set_nonblocking(true).unwrap();
    assert!(listener.accept().is_err());
}

#[test]
fn of_root_sees_and_reaches_nothing() {
    sees_and_reaches_nothing(Fence::root());
}

#[test]
fn of_an_ordinary_user_sees_and_reaches_nothing() {
    sees_and_reaches_nothing(super::ordinary_user::fence());
}

#[test]
fn it_is_ended_in_time_with_what_it_started() {
    let Some(fence) = Fence::root() else { return };
    let planted = Planted::new(&fence);
    let python = planted.venv.join("bin/python3").display().to_string();
    let name = fence.dir.path("home").display().to_string();
    for script in [
        format!("sleep 1000 & exec -a {name} sleep 1001"),
        "exec yes".to_owned(),
    ] {
        planted.replace(&format!("#!/bin/bash\n{script}\n"));
        let mut run = fence.product("A=b", &["run", "--no-engine", "--python", &python, "-c", "1"]);
        finish(&mut run, b"").refused(125, "it did not answer within 5s");
    }
    eventually("nothing of it is left", || {
        let processes = fs::read_dir("/proc").unwrap().flatten();
        let named =
            |process: fs::DirEntry| fs::read_to_string(process.path().join("cmdline")).unwrap_or_default();
        !processes.map(named).any(|line| line.contains(&name))
    });
}
