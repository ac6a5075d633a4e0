//! `ringfence run --image`.

use std::fs;

use serde_json::Value;

use super::root_archive;
use crate::support::{Dir, Output, eventually, finish, start};
use crate::world::skip;

const NAME: &str = "test/root:1";

/// A directory with an imported root file system.
fn imported() -> Dir {
    let dir = Dir::new();
    let archive = root_archive(&dir);
    dir.run(["image", "import", archive.to_str().unwrap(), "--name", NAME])
        .ok();
    dir
}

fn on_image(dir: &Dir, args: &[&str]) -> Output {
    dir.run([&["run", "--image", NAME], args].concat())
}

#[test]
fn a_program_sees_the_image_and_not_the_host() {
    let dir = imported();
    let canary = dir.write("canary", "canary");
    let canary = canary.to_str().unwrap();
    // Outside, all of these exist.
    for path in [canary, "/etc/hostname", "/usr/bin/env", "/var/lib", "/root"] {
        assert!(fs::exists(path).unwrap(), "{path}");
    }
    let code = format!(
        "cat() {{ while read -r line; do echo \"$line\"; done < \"$1\"; }}\n\
         cat /etc/os-release; cat /app/data\n\
         for path in {canary} /etc/hostname /usr/bin/env /var/lib /root /sys/kernel /cell/canary; do\n\
         test -e $path && echo found $path; done\n\
         echo /*; pwd; echo $PATH; (echo x > /etc/new) 2>/dev/null || echo read-only\n\
         (echo x > /app/data) 2>/dev/null || echo read-only; (echo x > /cell/new) 2>/dev/null || echo read-only\n\
         echo kept > /output/file; echo x > /tmp/x"
    );
    let out = on_image(&dir, &["-l", "bash", "-c", &code, "-o", "out"]);
    let expected = "NAME=image\nof the image\n/app /bin /cell /code /dev /etc /lib /lib64 /mnt /opt /output /proc /run \
                    /tmp /usr /workspace\n/workspace\n\
                    /usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin\nread-only\nread-only\nread-only\n";
    assert_eq!(out.ok(), expected, "{out:?}");
    assert_eq!(fs::read_to_string(dir.path("work/out/file")).unwrap(), "kept\n");
}

#[test]
fn an_image_has_no_packages_of_this_machine() {
    let dir = imported();
    // Nobody answers there: an installation would fail.
    let config = "[packages]\nindex = 'http://127.0.0.1:9/simple'\ndefault = ['pandas']\n";
    dir.write("config/ringfence/ringfence.toml", config);
    let plain = dir.run(["run", "--no-engine", "-c", "print(1)"]);
    assert_eq!(plain.status, 125, "{plain:?}");
    let out = on_image(
        &dir,
        &["-c", "import os; print(os.path.exists('/opt/ringfence'))"],
    );
    assert_eq!(out.ok(), "False\n");
    let both = on_image(&dir, &["--with", "pandas", "-c", "print(1)"]);
    both.refused(
        2,
        "packages are built for this machine's interpreters, not for an image's",
    );
}

#[test]
fn its_python_runs_a_program() {
    let dir = imported();
    dir.write("work/helper.py", "def answer():\n    return 42\n");
    dir.write(
        "work/main.py",
        "import helper, sys\nprint(helper.answer(), sys.argv[1:], sys.stdin.read())\n",
    );
    let mut command = dir.command([
        "run", "--image", NAME, "-w", ".", "--stdin", "-", "main.py", "--", "a", "b",
    ]);
    assert_eq!(finish(&mut command, b"in").ok(), "42 ['a', 'b'] in\n");
    let out = on_image(
        &dir,
        &[
            "--json",
            "-c",
            "import os; print(os.getuid(), os.stat('/app/data').st_uid)",
        ],
    );
    let result: Value = serde_json::from_str(out.ok()).unwrap();
    assert_eq!(result["stdout"], "1000 1000\n", "{result:#}");
    assert_eq!(result["meta"]["image"]["reference"], "docker.io/test/root:1");
    assert_eq!(result["meta"]["warm"], false);
    assert_eq!(result["meta"]["isolation"]["seccomp"], "fence");
    let failed = on_image(&dir, &["-c", "raise SystemExit(3)"]);
    assert_eq!(failed.status, 3, "{failed:?}");
    let slow = on_image(&dir, &["--timeout", "300ms", "-c", "while True: pass"]);
    assert_eq!(slow.status, 124, "{slow:?}");
    on_image(&dir, &["-l", "javascript", "-c", "1"]).refused(2, "the image has no javascript on its PATH");
}

#[test]
fn mounts_and_variables_are_the_callers() {
    let dir = imported();
    dir.write("work/data", "mounted");
    let code = "read -r a < /mnt/deep/data; read -r b < /srv/data; echo $a $b $PATH $A";
    let mounts = ["--mount", ".:/mnt/deep", "--mount", ".:/srv"];
    let out = on_image(
        &dir,
        &[
            &mounts[..],
            &["--env", "PATH=/own", "--env", "A=b", "-l", "bash", "-c", code],
        ]
        .concat(),
    );
    assert_eq!(out.stdout, "mounted mounted /own b\n", "{out:?}");
}

#[test]
fn what_cannot_have_an_image_is_refused() {
    let dir = imported();
    for option in [
        &["--unfenced"][..],
        &["--session", "a"],
        &["--python", "/usr/bin/python3"],
        &["--servers"],
        &["--runtime", "docker"],
        &["--runtime", "pyodide"],
    ] {
        let out = on_image(&dir, &[option, &["-c", "1"]].concat());
        assert_eq!(out.status, 2, "{option:?}: {out:?}");
        assert!(out.stderr.contains("--image"), "{out:?}");
    }
}

#[test]
fn a_server_does_not_run_it_on_its_own_files() {
    let dir = imported();
    let mut serve = start(dir.command(["serve"]).stdin(std::process::Stdio::null()));
    let socket = dir.path("run/ringfence/engine.sock");
    eventually("the server listens", || socket.exists());
    let out = on_image(&dir, &["-c", "print(open('/etc/os-release').read())"]);
    assert_eq!(out.ok(), "NAME=image\n\n", "{out:?}");
    serve.kill().unwrap();
    serve.wait().unwrap();
}

#[test]
fn a_running_image_is_not_removed() {
    let dir = imported();
    let code = "print('up', flush=True)\ninput()\nprint(open('/app/data').read())";
    let mut child = start(&mut dir.command(["run", "--image", NAME, "--stdin", "-", "-c", code]));
    let mut line = [0; 3];
    std::io::Read::read_exact(child.stdout.as_mut().unwrap(), &mut line).unwrap();
    let removed = dir.run(["image", "rm", NAME]);
    removed.ok();
    assert!(
        removed.stderr.contains("a run or sandbox uses the image"),
        "{removed:?}"
    );
    on_image(&dir, &["-c", "1"]).refused(125, "there is no image");
    drop(child.stdin.take());
    let out = child.wait_with_output().unwrap();
    // The program's input ended, which `input` raises: its own failure shows that its files are still there.
    assert_eq!(out.status.code(), Some(1), "{out:?}");
    dir.run(["image", "import", "missing"])
        .refused(125, "cannot read missing");
    assert!(
        String::from_utf8_lossy(&out.stderr).contains("EOFError"),
        "{out:?}"
    );
}

#[test]
fn an_image_of_docker_runs_without_docker() {
    let dir = Dir::new();
    let archive = dir.path("saved.tar");
    let save = ["save", "-o", archive.to_str().unwrap(), "ringfence-test:latest"];
    let saved = finish(dir.program("docker").args(save), b"");
    if saved.status != 0 {
        return skip::<()>("no docker with the image ringfence-test:latest").unwrap_or_default();
    }
    let imported = dir.run(["image", "import", archive.to_str().unwrap()]);
    assert!(
        imported
            .ok()
            .starts_with("docker.io/library/ringfence-test:latest  sha256:"),
        "{imported:?}"
    );
    let out = dir.run([
        "run",
        "--image",
        "ringfence-test",
        "-c",
        "import sys; print(sys.prefix)",
    ]);
    assert_eq!(out.ok(), "/usr\n", "{out:?}");
}
