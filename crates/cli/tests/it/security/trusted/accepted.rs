//! Files that a program changed while they were not in use, and that are used afterwards.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;

use crate::support::{Output, finish};
use crate::world::{World, here};

here!(
    a_changed_configuration_is_not_believed,
    a_planted_path_file_shows_nothing,
    a_user_is_shown_nothing_of_another,
);

/// Runs `ringfence accept FILE`.
fn accept(world: &World, file: &str) -> Output {
    finish(&mut world.command(&[], ["accept", file]), b"")
}

/// The attack as it was found: the first run uses the file and protects it, the second one does not.
fn a_changed_configuration_is_not_believed(world: &World) {
    let canary = world.dir.path("canary").display().to_string();
    fs::create_dir(world.dir.path("work/conf")).unwrap();
    world
        .dir
        .write("work/conf/rf.toml", "[sandbox]\ntimeout = '20s'\n");
    let run = |more: &[&str]| {
        let args = [&["--config", "conf/rf.toml", "--workspace", "."], more].concat();
        world.run(args)
    };
    run(&["-c", "1"]).ok();
    run(&["-c", "1"]).ok();
    fs::create_dir(world.dir.path("opt")).unwrap();
    let server = world
        .dir
        .write("opt/server", format!("#!/bin/sh\necho > {canary}\n"));
    fs::set_permissions(&server, fs::Permissions::from_mode(0o755)).unwrap();
    let evil = format!(
        "\n[skills.servers.units]\ncommand = ['{}']\nfence = 'host'\n",
        server.display()
    );
    let plant = format!("open('/workspace/conf/rf.toml', 'a').write({evil:?})");
    world.run(["--workspace", ".", "-c", &plant]).ok();
    let code = "try: device.Units.x()\nexcept BaseException as error: print(error)";
    let call = ["--servers", "-c", code];
    let refused = run(&call);
    refused.refused(2, "refusing to use conf/rf.toml: programs could write in");
    assert!(
        refused.stderr.contains("`ringfence accept conf/rf.toml`"),
        "{refused:?}"
    );
    let check = ["--config", "conf/rf.toml", "config", "check"];
    let checked = finish(&mut world.command(&[], check), b"");
    checked.refused(2, "refusing to use");
    assert!(!PathBuf::from(&canary).exists());
    // Accepted, it is what it says.
    assert!(accept(world, "conf/rf.toml").ok().starts_with("accepted /"));
    run(&call);
    assert!(PathBuf::from(&canary).exists());
    assert!(accept(world, "conf").stderr.contains("expected a regular file"));
}

/// A `.pth` file in an environment that was not in use adds a directory of the host to the view of later
/// programs.
fn a_planted_path_file_shows_nothing(world: &World) {
    let secret = world.dir.path("secret").display().to_string();
    fs::create_dir_all(world.dir.path("work/src")).unwrap();
    fs::create_dir(&secret).unwrap();
    world.dir.write("secret/key", "s3cret");
    let make = |name: &str| {
        let mut make = world.dir.program("/usr/bin/python3");
        let env = world.dir.path("work").join(name);
        finish(make.args(["-m", "venv", "--without-pip"]).arg(&env), b"").ok();
        let version = fs::read_dir(env.join("lib")).unwrap().next().unwrap().unwrap();
        let file = version.path().join("site-packages/a.pth");
        file.strip_prefix(world.dir.path("work"))
            .unwrap()
            .display()
            .to_string()
    };
    let (file, own) = (make("env"), make("own"));
    let python = |env: &str| format!("{env}/bin/python3");
    let read = format!("print(open('{secret}/key').read())");
    // A project's own file, before any program came.
    world.dir.write(&format!("work/{own}"), format!("{secret}\n"));
    let used = ["--workspace", ".", "--python", &python("own"), "-c", &read];
    assert_eq!(world.run(used).ok(), "s3cret\n");

    let plant = format!("open('/workspace/{file}', 'w').write('{secret}\\n')");
    world.run(["--workspace", ".", "-c", &plant]).ok();
    let named = ["--python", &python("env"), "-c", &read];
    let refused = world.run(named);
    refused.refused(125, "cannot be used as a Python");
    assert!(refused.stderr.contains("a.pth` adds "), "{refused:?}");
    assert!(refused.stderr.contains("`ringfence accept`"), "{refused:?}");
    accept(world, &file).ok();
    assert_eq!(world.run(named).ok(), "s3cret\n");
    // What programs could write anyway needs nobody's word.
    let file = world.dir.path("work").join(&file);
    fs::remove_file(&file).unwrap();
    fs::write(&file, "../../../../src\n").unwrap();
    world.run(["--python", &python("env"), "-c", "1"]).ok();
    world.run(used).ok();
}

/// A directory of users was written by programs, and none of these could write all of it.
fn a_user_is_shown_nothing_of_another(world: &World) {
    let users = world.dir.path("users");
    let config = format!(
        "[permissions.filesystem]\nuserScope = 'user'\nuserRoot = '{}/{{user_id}}'\n",
        users.display()
    );
    world.dir.write("config/ringfence/ringfence.toml", config);
    let tool = |user: &str, code: &str| {
        let arguments = serde_json::json!({ "code": code });
        world.tool(&["--user", user], "run_python_code", &arguments)
    };
    tool(
        "ann",
        "import os; os.mkdir('lib'); open('lib/key', 'w').write('s3cret')",
    );
    tool("bob", "1");
    let env = users.join("bob/env");
    let mut make = world.dir.program("/usr/bin/python3");
    finish(make.args(["-m", "venv", "--without-pip"]).arg(&env), b"").ok();
    let version = fs::read_dir(env.join("lib")).unwrap().next().unwrap().unwrap();
    let secret = users.join("ann/lib");
    // As bob's program would.
    let file = version.path().join("site-packages/a.pth");
    fs::write(&file, format!("{}\n", secret.display())).unwrap();
    let python = env.join("bin/python3").display().to_string();
    let read = format!("print(open('{}/key').read())", secret.display());
    let named = ["--python", &python, "-c", &read];
    let refused = world.run(named);
    refused.refused(125, "cannot be used as a Python");
    assert!(refused.stderr.contains("a.pth` adds "), "{refused:?}");
    accept(world, &file.display().to_string()).ok();
    assert_eq!(world.run(named).ok(), "s3cret\n");
}
