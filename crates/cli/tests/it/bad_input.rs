//! Invalid input fails with one error line and one hint, and leaves nothing behind.

use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};

use crate::support::{Output, entries};
use crate::world::{Mode, Place, World, here, play};

here!(
    bad_values_are_wrong_usage,
    unusable_sources_are_refused,
    mounts_that_would_expose_are_refused,
    a_bad_configuration_refuses_the_run,
    a_missing_interpreter_is_named,
    options_without_effect_are_refused,
    unusable_inputs_and_outputs_are_refused,
    odd_variables_are_refused,
);

/// Asserts that the command line was rejected, with one error and one hint.
#[track_caller]
fn misused(output: &Output, words: &str) {
    assert_eq!((output.status, output.stdout.as_str()), (2, ""), "{output:?}");
    let errors: Vec<_> = output
        .stderr
        .lines()
        .filter(|line| line.starts_with("error: "))
        .collect();
    assert!(
        errors.len() == 1 && errors[0].contains(words),
        "{words}: {output:?}"
    );
    let way_on = |line: &str| line.starts_with("hint: ") || line.starts_with("For more information");
    assert!(output.stderr.lines().any(way_on), "{output:?}");
}

fn bad_values_are_wrong_usage(world: &World) {
    for (args, words) in [
        (
            &["-l", "cobol", "-c", "1"][..],
            "known are python, bash and javascript",
        ),
        (&["-r", "cloud", "-c", "1"], "unknown runtime `cloud`"),
        (&["--timeout", "0", "-c", "1"], "between 1ms and 24h"),
        (&["--timeout", "1000000000", "-c", "1"], "between 1ms and 24h"),
        (&["--timeout", "-5s", "-c", "1"], ""),
        (&["--timeout", "soon", "-c", "1"], "soon"),
        (&["--memory", "lots", "-c", "1"], "lots"),
        (&["--memory", "0", "-c", "1"], "0"),
        (
            &["--memory", "99999999999999999999GiB", "-c", "1"],
            "99999999999999999999GiB",
        ),
        (&["--memory", "15MiB", "-c", "1"], "between 16MiB and 64TiB"),
        (&["--cpus", "0", "-c", "1"], "0"),
        (&["--cpus", "NaN", "-c", "1"], "NaN"),
        (&["--pids", "0", "-c", "1"], "0"),
        (&["--pids", "-1", "-c", "1"], ""),
        (&["--env", "=x", "-c", "1"], "NAME=value"),
        (&["--env", "NAME", "-c", "1"], "NAME=value"),
        (&["--user", "../../etc", "-c", "1"], "user id"),
        (&["--user", "", "-c", "1"], "user id"),
        (&["--mount", "nowhere", "-c", "1"], "nowhere"),
        (&["--mount", ".:/etc", "-c", "1"], "/etc"),
        (&["--mount", ".:relative", "-c", "1"], "relative"),
        (&["--isolation", "some", "-c", "1"], "some"),
        (&["--no-such-option"], "--no-such-option"),
        (&["-c", "1", "file.py"], "cannot be used with"),
    ] {
        misused(&world.run(args), words);
    }
    let more = world.run(["--cpus", "1000", "-c", "1"]);
    more.refused(125, "cpus `1000` is out of range; it must be between 0.01 and");
}

fn unusable_sources_are_refused(world: &World) {
    world.dir.write("work/latin1.py", b"print(1)\nprint('\xe9')\n");
    world.dir.write("work/nul.sh", b"echo 1\necho \0 2\n");
    world.dir.write("work/big.js", vec![b'/'; 50 << 20]);
    symlink("loop.py", world.dir.path("work/loop.py")).unwrap();
    for (args, words) in [
        (&["missing.py"][..], "cannot read missing.py"),
        (&["."], "is a directory"),
        (&["missing/sub.py"], "cannot read missing/sub.py"),
        (&["loop.py"], "cannot read loop.py"),
        (&["latin1.py"], "not UTF-8 text (line 2)"),
        (&["nul.sh"], "NUL character (line 2)"),
        (&["big.js"], "longer than 8 MiB"),
        (&["/dev/null/x"], "cannot read"),
        (&["/proc/self/mem"], "cannot read"),
    ] {
        world.run(args).refused(2, words);
    }
    let big = world.call(["-"]).stdin(vec![b'#'; 50 << 20]);
    big.output().refused(2, "longer than 8 MiB");
    world
        .call(["-"])
        .stdin(b"\xff\xfe")
        .output()
        .refused(2, "not UTF-8");
    world.call(["-"]).stdin(b"a\0b").output().refused(2, "NUL");
    // Reading an endless source stops at the maximum length.
    world.run(["/dev/zero"]).refused(2, "");
    assert!(
        entries(&world.dir.path("state"))
            .iter()
            .all(|name| name == "ringfence")
    );
}

fn mounts_that_would_expose_are_refused(world: &World) {
    fs::create_dir_all(world.dir.path("state/ringfence")).unwrap();
    symlink(world.dir.path("state"), world.dir.path("work/link")).unwrap();
    for (mount, words) in [
        ("/no/such:/data", "cannot use /no/such"),
        ("../state:/data", "would expose"),
        ("../state/ringfence:/data:ro", "would expose"),
        ("link:/data", "would expose"),
        ("../run:/data", "would expose"),
        ("/:/data", "refusing to show /"),
        ("/proc:/data", "refusing to show /proc"),
        ("/sys/fs/cgroup:/data", "refusing to show /sys"),
        ("/dev:/data", "refusing to show /dev"),
        ("/run:/data", "refusing to show /run"),
    ] {
        world.run(["--mount", mount, "-c", "print(1)"]).refused(2, words);
    }
    world
        .run(["--mount", ".:/data", "--mount", "/usr:/data", "-c", "1"])
        .refused(2, "two mounts at /data");
    world
        .run(["--output", "../state/ringfence/x", "-c", "1"])
        .refused(2, "would expose");
}

fn a_bad_configuration_refuses_the_run(world: &World) {
    for (text, words) in [
        ("[sandbox]\ntimeout = 0\n", "`sandbox.timeout`"),
        ("[sandbox]\nmemry = '1g'\n", "did you mean `sandbox.memory`"),
        ("[sandbox\n", "ringfence.toml"),
        (
            "[sandbox]\npython = '/no/such/python'\n",
            "there is no interpreter at /no/such/python",
        ),
        ("[sandbox]\npython = 'relative/python'\n", "relative path"),
    ] {
        world.dir.write("config/ringfence/ringfence.toml", text);
        world.run(["-c", "print(1)"]).refused(2, words);
    }
    fs::remove_file(world.dir.path("config/ringfence/ringfence.toml")).unwrap();
    for (name, value) in [
        ("SANDBOX_TIMEOUT_SEC", "soon"),
        ("SANDBOX_TYPE", "mainframe"),
        ("SANDBOX_STORE_CODE", "sometimes"),
        ("SANDBOX_MAX_OUTPUT_KB", "-1"),
        ("SANDBOX_BLOCK_DANGEROUS_IMPORTS", "perhaps"),
    ] {
        let refused = world.call(["-c", "print(1)"]).env(name, value).output();
        refused.refused(2, name);
    }
    assert_eq!(world.run(["-c", "print(1)"]).ok(), "1\n");
}

fn a_missing_interpreter_is_named(world: &World) {
    world
        .run(["--python", "/no/such/python", "-c", "1"])
        .refused(2, "there is no interpreter at /no/such/python");
    world.run(["--python", "no-such-python", "-c", "1"]).refused(
        2,
        "`--python`: expected a program, found none called `no-such-python`",
    );
    world.dir.write("work/not-python", "#!/bin/sh\necho no\n");
    world
        .run(["--python", "./not-python", "-c", "1"])
        .refused(2, "not-python: it is not executable");
    fs::set_permissions(
        world.dir.path("work/not-python"),
        fs::Permissions::from_mode(0o755),
    )
    .unwrap();
    world
        .run(["--python", "./not-python", "-c", "1"])
        .refused(125, "not-python");
    world
        .run(["--python", ".", "-c", "1"])
        .refused(2, "no interpreter");
}

fn options_without_effect_are_refused(world: &World) {
    for (args, words) in [
        (
            &["--unfenced", "--mount", ".:/data", "-c", "1"][..],
            "`--mount` has no effect with an unfenced run",
        ),
        (
            &["--unfenced", "--network", "none", "-c", "1"],
            "`--network none` has no effect with an unfenced run",
        ),
        (
            &["--skills", ".", "-l", "bash", "-c", "true"],
            "skills are called from Python, not from bash",
        ),
    ] {
        world.run(args).refused(2, words);
    }
}

fn unusable_inputs_and_outputs_are_refused(world: &World) {
    world.dir.write("work/file", "");
    for (args, words) in [
        (&["--stdin", "missing", "-c", "1"][..], "cannot read missing"),
        (&["--stdin", ".", "-c", "1"], "is a directory"),
        (&["--output", "file", "-c", "1"], "is not a directory"),
        (&["--stdin", "-", "-"], "cannot be both"),
    ] {
        world.run(args).refused(2, words);
    }
    world
        .run(["--output", "file/below", "-c", "open('/output/x', 'w')"])
        .refused(2, "file");
}

fn odd_variables_are_refused(world: &World) {
    use std::ffi::OsStr;
    use std::os::unix::ffi::OsStrExt;
    let odd = OsStr::from_bytes(b"A=\xff");
    let output = world.run([OsStr::new("--env"), odd, OsStr::new("-c"), OsStr::new("1")]);
    assert_eq!(
        (output.status, output.stderr.matches("error: ").count()),
        (2, 1),
        "{output:?}"
    );
    let long = format!("LONG={}", "x".repeat(100_000));
    assert_eq!(
        world
            .run(["--env", &long, "-c", "import os; print(len(os.environ['LONG']))"])
            .ok(),
        "100000\n"
    );
}

#[test]
fn an_unreadable_file_is_refused() {
    play(World::new(Mode::OneShot, Place::User), |world| {
        let secret = world.dir.write("work/secret.py", "print(1)");
        fs::set_permissions(&secret, fs::Permissions::from_mode(0o600)).unwrap();
        world.run(["secret.py"]).refused(2, "cannot read secret.py");
        world
            .run(["--stdin", "secret.py", "-c", "1"])
            .refused(2, "cannot read secret.py");
        // A program cannot read what its user cannot.
        let mounted = world.json(["--mount", "/root:/data", "-c", "import os; os.listdir('/data')"]);
        assert!(mounted.stderr().contains("PermissionError"), "{mounted:?}");
        let directory = world.dir.path("work/theirs");
        fs::create_dir(&directory).unwrap();
        world
            .run(["--output", "theirs", "-c", "open('/output/x', 'w')"])
            .refused(2, "theirs");
    });
}
