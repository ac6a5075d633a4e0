//! MCP servers on the host: their code lies where no program may write.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use serde_json::json;

use crate::containers::engines;
use crate::mcp::Client;
use crate::support::{Dir, Output};
use crate::world::{World, tests};

const SERVER: &str = include_str!("../../skills/server.py");

/// Plants a module that the server's script imports.
const PLANT: &str = "open('/workspace/json.py', 'w').write('planted'); print('planted')";

/// Writes a configuration with a server of this command, in which `ROOT` is the workspace.
fn configure(dir: &Dir, entry: &str) {
    let root = dir.path("work").display().to_string();
    let text = format!("[skills.servers.units]\n{}\n", entry.replace("ROOT", &root));
    dir.write("config/ringfence/ringfence.toml", text);
}

fn on_host(dir: &Dir, entry: &str) {
    configure(dir, &format!("{entry}\nfence = 'host'"));
}

fn refusal(tree: &Path, path: &Path) -> String {
    format!(
        "refusing to let the program write in {}: the MCP server `units` runs on the host, and its command or \
         environment leads to {}",
        tree.display(),
        path.display()
    )
}

/// Asserts that a run was refused for the server.
#[track_caller]
fn refused(run: &Output) {
    run.refused(125, "the MCP server `units` runs");
}

fn plant(world: &World) -> Output {
    world.run(["--workspace", ".", "-c", PLANT])
}

fn a_module_beside_its_script_is_not_planted(world: &World) {
    let dir = &world.dir;
    fs::write(dir.path("work/server.py"), SERVER).unwrap();
    let planted = dir.path("work/json.py");
    // Without the server, a program writes there.
    if world.container() {
        fs::set_permissions(dir.path("work"), fs::Permissions::from_mode(0o777)).unwrap();
    }
    let plant_here = format!("open('{}', 'w').write('planted')", planted.display());
    let plant_here = if world.container() { &plant_here } else { PLANT };
    world.run(["--workspace", ".", "-c", plant_here]).ok();
    assert!(planted.exists());
    fs::remove_file(&planted).unwrap();
    on_host(dir, "command = ['python3', 'ROOT/server.py']");
    let told = refusal(&dir.path("work"), &dir.path("work/server.py"));
    let run = world.run(["--workspace", ".", "-c", plant_here]);
    run.refused(125, &told);
    assert!(run.stderr.contains("list it in the server's `data`"), "{run:?}");
    assert!(!planted.exists());
}

tests!(one_shot, OneShot, Here, a_module_beside_its_script_is_not_planted);
tests!(
    with_engine,
    Engine,
    Here,
    a_module_beside_its_script_is_not_planted
);
tests!(
    in_container,
    OneShot,
    Container,
    a_module_beside_its_script_is_not_planted
);

#[test]
fn no_way_to_write_leads_there() {
    let world = World::here();
    let dir = &world.dir;
    fs::write(dir.path("work/server.py"), SERVER).unwrap();
    on_host(dir, "command = ['python3', 'ROOT/server.py']");
    let told = refusal(&dir.path("work"), &dir.path("work/server.py"));
    let tool = world.tool(
        &["--workspace", "."],
        "file_write",
        &json!({"path": "json.py", "content": "planted"}),
    );
    assert!(tool.to_string().contains(&told), "{tool}");
    let mount = world.run(["--mount", ".:/data:rw", "-c", "open('/data/json.py', 'w')"]);
    mount.refused(125, &told);
    let output = world.run(["--output", ".", "-c", "open('/output/json.py', 'w')"]);
    output.refused(125, &told);
    let mut client = Client::greeted(&world, &["--workspace", "."]);
    let written = client.call("file_write", &json!({"path": "json.py", "content": "planted"}));
    assert!(written.to_string().contains(&told), "{written}");
    let run = client.call("run_code", &json!({"language": "python", "code": PLANT}));
    assert!(run.to_string().contains(&told), "{run}");
    drop(client.leave());
    assert!(!dir.path("work/json.py").exists());
    // What only reads is let.
    world.run(["--mount", ".:/data", "-c", "print(1)"]).ok();
    world.run(["-c", "print(1)"]).ok();
    world.close();
}

/// Words that were once taken for data: each leads to code that a program could write.
#[test]
fn every_word_counts() {
    let world = World::here();
    let dir = &world.dir;
    fs::create_dir_all(dir.path("work/x/src")).unwrap();
    for name in ["x/units", "x/env.sh", "x/hook.cjs", "x/Makefile", "x/Cargo.toml"] {
        dir.write(&format!("work/{name}"), "");
    }
    for entry in [
        "command = ['env', 'MODE=plain', 'ROOT/x/units']",
        "command = ['timeout', '60', 'ROOT/x/units']",
        "command = ['python3', '-W', 'ignore', 'ROOT/x/units']",
        "command = ['sh', '-c', 'exec ROOT/x/units']",
        "command = ['make', 'serve', '-f', 'ROOT/x/Makefile']",
        "command = ['make', '-CROOT/x', 'serve']",
        "command = ['go', 'run', 'ROOT/x/src']",
        "command = ['cargo', 'run', '--manifest-path=ROOT/x/Cargo.toml']",
        "command = ['bash', '/bin/true']\nenv = ['BASH_ENV=ROOT/x/env.sh']",
        "command = ['node', '/none.js']\nenv = ['NODE_OPTIONS=--require ROOT/x/hook.cjs']",
        "command = ['units']\nenv = ['PATH=/usr/bin:ROOT/x']",
        // Nothing is there yet.
        "command = ['node', 'ROOT/dist/index.js']",
    ] {
        configure(dir, entry);
        let fenced = plant(&world);
        assert!(!fenced.stderr.contains("runs on the host"), "{entry}: {fenced:?}");
        on_host(dir, entry);
        refused(&plant(&world));
    }
    world.close();
}

/// A path outside whose code lies inside: by a link, a virtual environment, or a script's first line.
#[test]
fn what_a_word_leads_to_counts() {
    let world = World::here();
    let dir = &world.dir;
    fs::create_dir_all(dir.path("work/env/bin")).unwrap();
    fs::create_dir_all(dir.path("work/env/lib")).unwrap();
    fs::create_dir(dir.path("opt")).unwrap();
    std::os::unix::fs::symlink("/usr/bin/python3", dir.path("work/env/bin/python")).unwrap();
    std::os::unix::fs::symlink(dir.path("work/env/bin/python"), dir.path("opt/python")).unwrap();
    dir.write("work/env/pyvenv.cfg", "home = /usr/bin\n");
    let line = format!("#!{}\n", dir.path("work/env/bin/python").display());
    dir.write("opt/script", line);
    for name in ["python", "script"] {
        let path = dir.path("opt").join(name);
        on_host(dir, &format!("command = ['{}', '-m', 'units']", path.display()));
        refused(&plant(&world));
        refused(&world.run(["--workspace", "env/lib", "-c", "print(1)"]));
    }
    world.close();
}

#[test]
fn another_name_of_its_file_is_found() {
    let world = World::here();
    let dir = &world.dir;
    fs::create_dir_all(dir.path("opt/deps")).unwrap();
    let program = dir.write("opt/units", "#!/bin/sh\n");
    fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).unwrap();
    // Cargo leaves one of its own.
    fs::hard_link(&program, dir.path("opt/deps/units-0")).unwrap();
    on_host(dir, &format!("command = ['{}']", program.display()));
    assert_eq!(plant(&world).ok(), "planted\n");
    fs::create_dir(dir.path("work/other")).unwrap();
    fs::hard_link(&program, dir.path("work/other/alias")).unwrap();
    plant(&world).refused(125, "other/alias is a hard link to it");
    world.close();
}

#[test]
fn what_is_declared_as_data_stays_writable() {
    let world = World::here();
    let dir = &world.dir;
    on_host(dir, "command = ['npx', '-y', 'files', 'ROOT']");
    refused(&plant(&world));
    on_host(dir, "command = ['npx', '-y', 'files', 'ROOT']\ndata = ['ROOT']");
    assert_eq!(plant(&world).ok(), "planted\n");
    on_host(
        dir,
        "command = ['python3', 'ROOT/tools/server.py', 'ROOT']\ndata = ['ROOT']",
    );
    refused(&plant(&world));
    configure(dir, "command = ['npx', 'files', 'ROOT']\ndata = ['ROOT']");
    plant(&world).refused(2, "`data` is for a server on the host");
    world.close();
}

#[test]
fn a_check_says_so_in_advance() {
    let world = World::here();
    let dir = &world.dir;
    on_host(dir, "command = ['python3', 'ROOT/dist/server.py']");
    let told = refusal(&dir.path("work"), &dir.path("work/dist/server.py"));
    let checked = dir.run(["config", "check"]);
    checked.ok();
    assert!(checked.stderr.contains(&told), "{checked:?}");
    let doctor = dir.run(["doctor"]);
    assert!(doctor.stdout.contains(&told), "{doctor:?}");
    on_host(dir, "command = ['python3', '/opt/units/server.py']");
    assert_eq!(dir.run(["config", "check"]).stderr, "");
    let doctor = dir.run(["doctor"]);
    assert!(doctor.stdout.contains("MCP servers on the host"), "{doctor:?}");
    assert!(!doctor.stdout.contains("refusing to let"), "{doctor:?}");
    world.close();
}

#[test]
fn containers_write_nowhere_near() {
    for engine in engines() {
        let dir = &engine.dir;
        fs::write(dir.path("work/server.py"), SERVER).unwrap();
        on_host(dir, "command = ['python3', 'ROOT/server.py']");
        let told = refusal(&dir.path("work"), &dir.path("work/server.py"));
        let run = engine.run(&["--workspace", ".", "-c", PLANT]);
        assert_ne!(run.status, 0, "{run:?}");
        assert!(run.stderr.contains(&told), "{run:?}");
        assert!(!dir.path("work/json.py").exists());
    }
}
