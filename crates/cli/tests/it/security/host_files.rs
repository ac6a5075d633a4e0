//! Threat: files of the host, read, written or merely seen.

use std::fs;
use std::path::Path;

use super::fence::{Fence, PYTHON};
use super::probe::{Probe, deny, deny_all, probe};
use crate::support::{entries, finish};

/// All of these exist outside.
const UNSEEN: &[Probe] = &[
    probe("home directories", "ENOENT", "os.stat('/home')"),
    probe("root's home", "ENOENT", "os.stat('/root')"),
    probe("variable data", "ENOENT", "os.stat('/var/lib')"),
    probe("logs", "ENOENT", "os.stat('/var/log')"),
    probe("the kernel's devices", "ENOENT", "os.stat('/sys/kernel')"),
    probe("the boot files", "ENOENT", "os.stat('/boot')"),
    probe("passwords", "ENOENT", "os.open('/etc/shadow', os.O_RDONLY)"),
    probe("who may become root", "ENOENT", "os.stat('/etc/security')"),
    probe("private keys", "ENOENT", "os.stat('/etc/ssl/private')"),
    probe("the list of the root", "EACCES", "os.listdir('/')"),
    probe("the list of /run", "EACCES", "os.listdir('/run')"),
];

const UNWRITABLE: &[Probe] = &[
    probe(
        "a new file in /usr",
        "EROFS",
        "open('/usr/ringfence-test', 'x').close()\nos.unlink('/usr/ringfence-test')",
    ),
    probe(
        "a new file in /etc",
        "EROFS",
        "open('/etc/ringfence-test', 'x').close()\nos.unlink('/etc/ringfence-test')",
    ),
    probe(
        "a new file in /",
        "EROFS",
        "open('/ringfence-test', 'x').close()\nos.unlink('/ringfence-test')",
    ),
    probe(
        "a new directory in /run",
        "EROFS",
        "os.mkdir('/run/ringfence-test')\nos.rmdir('/run/ringfence-test')",
    ),
    probe(
        "a new directory in /dev",
        "EROFS",
        "os.mkdir('/dev/ringfence-test')\nos.rmdir('/dev/ringfence-test')",
    ),
    probe("a program", "EACCES", "os.open('/usr/bin/env', os.O_WRONLY)"),
    probe(
        "the list of users",
        "EACCES",
        "os.open('/etc/passwd', os.O_WRONLY)",
    ),
    probe(
        "the rights of a program",
        "EROFS",
        "os.chmod('/usr/bin/env', 0o755)",
    ),
];

#[test]
fn the_hosts_files_are_not_there() {
    if let Some(fence) = Fence::root() {
        deny_all(&fence, UNSEEN);
    }
}

#[test]
fn the_system_cannot_be_changed() {
    if let Some(fence) = Fence::root() {
        deny_all(&fence, UNWRITABLE);
    }
}

#[test]
fn temporary_files_of_the_host_are_not_there() {
    let Some(fence) = Fence::root() else { return };
    let secret = fence.dir.write("secret", "secret");
    let read = probe("a temporary file", "ENOENT", "os.open(ARGS[0], os.O_RDONLY)");
    deny(&fence, &[], &read, &[secret.to_str().unwrap()]);
    for way in [
        "/proc/self/root",
        "/proc/self/cwd/..",
        "/workspace/../..",
        "/tmp/..",
    ] {
        deny_inside(
            &fence,
            &format!("os.open('{way}{}', os.O_RDONLY)", secret.display()),
        );
    }
}

#[track_caller]
fn deny_inside(fence: &Fence, act: &str) {
    let output = fence.inside(&[], &super::probe::program(act), &[]);
    assert_eq!(super::probe::verdict(&output), "errno ENOENT", "{act}");
}

#[test]
fn the_project_is_neither_seen_nor_touched() {
    let Some(fence) = Fence::root() else { return };
    fence.dir.write("work/main.py", "original");
    let look = probe("a file of the project", "ENOENT", "os.stat('main.py')");
    deny(&fence, &[], &look, &[]);
    let write =
        "import os\nopen('main.py', 'w').write('changed')\nopen('new', 'w').close()\nprint(os.getcwd())";
    assert_eq!(fence.printed(&[], write), "/workspace\n");
    assert_eq!(
        fs::read_to_string(fence.dir.path("work/main.py")).unwrap(),
        "original"
    );
    assert_eq!(entries(&fence.dir.path("work")), ["main.py"]);
}

#[test]
fn a_private_umask_does_not_hold_up_a_guest() {
    let Some(fence) = Fence::root() else { return };
    let with_umask = |words: &[&str]| {
        let mut command = fence.command(Path::new("/bin/sh"));
        command.args(["-c", "umask 077; exec \"$@\"", "sh"]).args(words);
        finish(&mut command, b"")
    };
    assert_eq!(with_umask(&["sh", "-c", "umask"]).ok(), "0077\n");
    let program = env!("CARGO_BIN_EXE_ringfence");
    let code = "umask; echo x > made; stat -c %a made /tmp /workspace";
    for language in ["bash", "python"] {
        let python = format!("import os; print(end=os.popen({code:?}).read())");
        let code = if language == "bash" { code } else { &python };
        let inside = with_umask(&[program, "run", "-l", language, "-c", code]);
        assert_eq!(inside.ok(), "0077\n600\n755\n755\n", "{language}");
    }
}

#[test]
fn the_callers_environment_stays_outside() {
    let Some(fence) = Fence::root() else { return };
    let code = "import os\nprint(*sorted(os.environ))\nprint('s3cret' in open('/proc/self/environ').read())";
    let mut outside = fence.command(Path::new(PYTHON));
    let outside = finish(outside.env("API_KEY", "s3cret").args(["-I", "-c", code]), b"");
    assert!(outside.ok().contains("API_KEY") && outside.stdout.contains("True"));
    let mut inside = fence.ringfence(&["--env", "GIVEN=1", "-c", code]);
    let inside = finish(inside.env("API_KEY", "s3cret"), b"");
    let names = "GIVEN HOME LANG LOGNAME MPLCONFIGDIR PATH PIP_RETRIES RINGFENCE_OUTPUT SHELL TMPDIR USER npm_config_fetch_retries\nFalse\n";
    assert_eq!(inside.ok(), names);
}

#[test]
fn variables_that_steer_the_loader_do_not_arrive() {
    let Some(fence) = Fence::root() else { return };
    let code = "import os, sys\nprint(sys.flags.verbose, 'LD_PRELOAD' in os.environ)";
    let mut inside = fence.ringfence(&["-c", code]);
    let inside = inside.env("PYTHONVERBOSE", "1").env("BASH_ENV", "/etc/profile");
    let inside = finish(inside.env("LD_PRELOAD_32", "x").env("PYTHONPATH", "/root"), b"");
    assert_eq!(inside.ok(), "0 False\n");
}

#[test]
fn the_host_has_another_name() {
    let Some(fence) = Fence::root() else { return };
    let code = "import os, socket\nprint(os.uname().nodename, socket.gethostname())";
    let host = fs::read_to_string("/proc/sys/kernel/hostname").unwrap();
    assert_eq!(fence.outside(code, &[]).ok(), format!("{0} {0}\n", host.trim()));
    assert_eq!(fence.printed(&[], code), "sandbox sandbox\n");
}

/// Everything below an interpreter's prefix is mounted: it must not contain a path that must stay hidden.
#[test]
fn an_environment_around_the_state_directory_is_refused() {
    let Some(fence) = Fence::root() else { return };
    // Not below /tmp, which is private to every cell.
    let home = tempfile::tempdir_in("/srv").unwrap();
    let venv = home.path().join("ann");
    let make = ["-m", "venv", "--without-pip", venv.to_str().unwrap()];
    finish(fence.command(Path::new(PYTHON)).args(make), b"").ok();
    let state = venv.join(".local/state");
    fs::create_dir_all(state.join("ringfence")).unwrap();
    let python = venv.join("bin/python");
    let mut command = fence.command(Path::new(env!("CARGO_BIN_EXE_ringfence")));
    let output = finish(
        command
            .args(["run", "--no-engine", "--python", python.to_str().unwrap(), "-c"])
            .args(["import os, sys\nprint(os.listdir(sys.prefix + '/.local/state'))"])
            .env("HOME", &venv)
            .env_remove("XDG_STATE_HOME"),
        b"",
    );
    assert!(
        output.stdout.is_empty() && [2, 125].contains(&output.status),
        "{output:?}"
    );
    assert!(output.stderr.contains("hint: "), "{output:?}");
}
