//! Programs that call functions of the host, and programs that attempt attacks.

mod consent;
mod ends;
mod examples;
mod files;
mod hostile;
mod kills;
mod official;
mod places;
mod pyodide;
mod reach;
pub(crate) mod servers;
mod web;

use std::io::{BufRead, BufReader, Write};
use std::os::unix::fs::PermissionsExt;

use serde_json::{Value, json};

use crate::support::{Dir, Output, eventually, finish};
use crate::tools::Tools;
use crate::world::{Run, World, everywhere};

const PROBE: &str = include_str!("probe.py");

/// The checks that every runtime's bridge must pass.
const CONFORMANCE: &str = include_str!("conformance.py");

everywhere!(
    a_program_can_rely_on_its_bridge,
    a_skill_that_dies_or_hangs_is_started_anew,
    a_skill_is_fenced,
);

/// Adds a file to the directory of skills in a world.
fn put(dir: &Dir, name: &str, text: &str) {
    std::fs::create_dir_all(dir.path("work/skills")).unwrap();
    dir.write(&format!("work/skills/{name}"), text);
}

/// Runs Python with the skills of the world's directory.
#[track_caller]
fn run(world: &World, options: &[&str], code: &str) -> Run {
    let all = [
        &["--skills", "skills", "--timeout", "60s"],
        options,
        &["-c", code],
    ];
    world.json(all.concat())
}

fn a_program_can_rely_on_its_bridge(world: &World) {
    put(&world.dir, "probe.py", PROBE);
    let run = run(world, &["--memory", "1GiB"], CONFORMANCE);
    assert_eq!(run.get("exit_code"), 0, "{run:#?}");
    let checks = CONFORMANCE
        .lines()
        .filter(|line| line.starts_with("def "))
        .count()
        - 1;
    let held = run.stdout().lines().filter(|line| line.starts_with("holds: "));
    assert_eq!(held.count(), checks, "{run:#?}");
}

fn a_skill_that_dies_or_hangs_is_started_anew(world: &World) {
    put(&world.dir, "probe.py", PROBE);
    world.dir.write(
        "config/ringfence/ringfence.toml",
        "[skills]\ncall_timeout = '5s'\n",
    );
    let code = "
assert (device.Probe.count(), device.Probe.count()) == (1, 2)
for act in (device.Probe.die, device.Probe.hang):
    try:
        act()
    except (RuntimeError, TimeoutError) as error:
        print(error)
    while True:
        try:
            print(device.Probe.count() < 3)
            break
        except TimeoutError:
            pass  # On a busy machine another process may take so long.
";
    let run = run(world, &[], code);
    let expected =
        "Probe.die: the process of its skill has ended\nTrue\n`Probe.hang` gave no result within 5s\nTrue\n";
    assert_eq!(run.stdout(), expected, "{run:#?}");
}

fn a_skill_is_fenced(world: &World) {
    put(&world.dir, "probe.py", PROBE);
    let run = run(world, &[], "print(device.Probe.look())");
    let seen = run.stdout().trim();
    // Without cells such paths exist, and the file-system rules deny access to their contents.
    let hidden = !seen.contains("/skills") && !seen.contains("docker.sock");
    assert!(hidden && !seen.contains("ConnectionRefused"), "{run:#?}");
    assert!(seen.contains("Error"), "{run:#?}");
}

#[test]
fn files_are_loaded_anew_when_they_change() {
    let world = World::here();
    put(
        &world.dir,
        "one.py",
        "class One:\n    def get(self) -> int:\n        return 1\n",
    );
    put(&world.dir, "_shared.py", "raise Exception\n");
    let code = "print(device.One.get(), dir(device))";
    let names = "'describe_function', 'search_skills'";
    assert_eq!(run(&world, &[], code).stdout(), format!("1 ['One', {names}]\n"));
    put(
        &world.dir,
        "one.py",
        "class One:\n    def get(self) -> int:\n        return 2\n",
    );
    put(
        &world.dir,
        "two.py",
        "class Two:\n    def get(self) -> int:\n        return 2\n",
    );
    assert_eq!(
        run(&world, &[], code).stdout(),
        format!("2 ['One', 'Two', {names}]\n")
    );
    world.close();
}

#[test]
fn a_program_that_runs_sees_no_change_of_a_file() {
    let world = World::here();
    let one = |number: u8| format!("class One:\n    def get(self) -> int:\n        return {number}\n");
    put(&world.dir, "one.py", &one(1));
    let code =
        "print(device.One.get(), flush=True); input(); print(device.One.get(), hasattr(device, 'Two'))";
    let options = [
        "run",
        "--skills",
        "skills",
        "--timeout",
        "60s",
        "--stdin",
        "-",
        "-c",
        code,
    ];
    let mut running = world
        .command(&[], options)
        .stdin(std::process::Stdio::piped())
        .stdout(std::process::Stdio::piped())
        .spawn()
        .unwrap();
    world.watch(running.id());
    let mut lines = BufReader::new(running.stdout.take().unwrap()).lines();
    let mut next = || lines.next().unwrap().unwrap();
    assert_eq!(next(), "1");
    put(&world.dir, "one.py", &one(2));
    put(
        &world.dir,
        "two.py",
        "class Two:\n    def get(self) -> int:\n        return 2\n",
    );
    running.stdin.take().unwrap().write_all(b"go on\n").unwrap();
    assert_eq!(next(), "1 False");
    running.wait().unwrap();
    let after = run(&world, &[], "print(device.One.get(), device.Two.get())");
    assert_eq!(after.stdout(), "2 2\n", "{after:#?}");
    world.close();
}

#[test]
fn a_file_that_cannot_be_loaded_takes_no_other_along() {
    let world = World::here();
    put(&world.dir, "probe.py", PROBE);
    put(&world.dir, "torn.py", "class Torn:\n    def x(:\n");
    put(&world.dir, "gone.py", "import os\nos._exit(3)\n");
    put(
        &world.dir,
        "mute.py",
        "class Mute:\n    def __init__(self, name): pass\n    def x(self): pass\n",
    );
    put(&world.dir, "greedy.py", "class Greedy:\n    def x(self): pass\n");
    put(&world.dir, "greedy.toml", "mounts = ['/proc:/host']\n");
    let run = run(
        &world,
        &[],
        "print(device.Probe.add(1), hasattr(device, 'Greedy'))",
    );
    assert_eq!(run.stdout(), "2 False\n", "{run:#?}");
    let warnings = run.get("meta.warnings").to_string();
    for told in [
        "torn.py: it could not be loaded: SyntaxError",
        "gone.py: it could not be loaded: its process ended",
        "`Mute` is not offered: it cannot be made: TypeError",
        "greedy.py: refusing to show",
        "`Probe.any_number` is not offered",
    ] {
        assert!(warnings.contains(told), "{told}: {warnings}");
    }
    world.close();
}

#[test]
fn a_manifest_gives_a_skill_its_files() {
    let world = World::here();
    let skill = "class Keys:\n    def set(self, text: str) -> None:\n        open('/data/a', 'w').write(text)\n    \
                 def get(self) -> str:\n        return open('/data/a').read()\n";
    put(&world.dir, "keys.py", skill);
    let denied = run(&world, &[], "device.Keys.set('x')");
    assert!(denied.stderr().contains("No such file"), "{denied:#?}");
    std::fs::create_dir(world.dir.path("work/skills/data")).unwrap();
    // On the host its process runs as another user.
    let open = std::fs::Permissions::from_mode(0o777);
    std::fs::set_permissions(world.dir.path("work/skills/data"), open).unwrap();
    put(&world.dir, "keys.toml", "mounts = ['data:/data:rw']\n");
    let kept = run(&world, &[], "device.Keys.set('x'); print(device.Keys.get())");
    assert_eq!(kept.stdout(), "x\n", "{kept:#?}");
    world.close();
}

#[test]
fn the_commands_list_describe_and_call() {
    let dir = Dir::new();
    put(&dir, "probe.py", PROBE);
    let skills = |args: &[&str]| -> Output {
        let args = [&["skills"], args, &["--skills", "skills"]].concat();
        dir.run(args)
    };
    let listed = skills(&["ls", "adds"]);
    assert_eq!(
        listed.ok(),
        "Probe.add(a: int, b: int = 1, *, minus: bool = False) -> int\n    Adds two numbers.\n"
    );
    assert!(
        listed.stderr.contains("`Probe.any_number` is not offered"),
        "{listed:?}"
    );
    assert_eq!(skills(&["call", "device.Probe.add", "[1, 2]"]).ok(), "3\n");
    let described = skills(&["describe", "device.Probe.add"]);
    assert!(described.ok().starts_with("def add(a: int"), "{described:?}");
    let whole: Value = serde_json::from_str(skills(&["describe", "Probe.add", "--json"]).ok()).unwrap();
    assert_eq!(whole["arguments"]["required"], json!(["a"]));
    assert_eq!(skills(&["call", "Probe.add", "[1, 2]"]).ok(), "3\n");
    assert_eq!(
        skills(&["call", "Probe.add", r#"{"a": 1, "minus": true}"#]).ok(),
        "0\n"
    );
    let wrong = skills(&["call", "Probe.add"]);
    wrong.refused(2, "it needs `a`");
    let missing = skills(&["call", "Probe.nope"]);
    missing.refused(125, "error: not found");
    let unknown = skills(&["describe", "Probe.nope"]);
    // Commands in hints can be run as they are printed.
    for (failed, printed) in [
        (wrong, "def add("),
        (missing, "Probe.add("),
        (unknown, "Probe.add("),
    ] {
        let words = hinted(&failed.stderr);
        let words: Vec<&str> = words.split(' ').skip(1).collect();
        let shown = dir.run(words);
        assert!(shown.ok().contains(printed), "{failed:?}: {shown:?}");
    }
    dir.write("work/odd name.toml", "[skills]\npath = 'skills'\n");
    let options = ["--config", "odd name.toml", "--user", "ann"];
    let missing = dir.run([&["skills", "call", "Probe.nope"], &options[..]].concat());
    let command = "`ringfence skills ls --user ann --config 'odd name.toml'`";
    assert!(missing.stderr.contains(command), "{missing:?}");
    skills(&["call", "Probe.add", "7"]).refused(2, "neither an object nor an array");
    dir.run(["skills", "ls"]).refused(2, "there are no skills");
    dir.run(["skills", "ls", "--skills", "none"])
        .refused(2, "cannot use none");
}

/// Returns the command in a hint.
fn hinted(stderr: &str) -> &str {
    let hint = stderr.lines().find(|line| line.starts_with("hint: ")).unwrap();
    hint.split('`').nth(1).unwrap()
}

#[test]
fn a_missing_directory_has_no_skills_and_no_program_makes_it() {
    let dir = Dir::new();
    let path = dir.path("work/skills");
    let config = format!("[skills]\npath = '{}'\n", path.display());
    dir.write("config/ringfence/ringfence.toml", config);
    let missing = format!("`skills.path`: there is no directory {}", path.display());
    let listed = dir.run(["skills", "ls"]);
    assert!(
        listed.status == 2 && listed.stderr.contains(&missing),
        "{listed:?}"
    );
    let told = dir.run(["config", "check"]);
    assert!(told.stderr.contains(&missing), "{told:?}");
    assert_eq!(told.status, 0);
    // It is made before a program can make it, which then finds it read-only.
    let code = "import os; os.makedirs('skills', exist_ok=True); open('skills/x.py', 'w')";
    let run = dir.run(["run", "--workspace", ".", "-c", code]);
    assert!(run.stderr.contains("Read-only file system"), "{run:?}");
    assert_eq!(std::fs::read_dir(&path).unwrap().count(), 0);
    let beside = dir.run(["run", "--workspace", ".", "-c", "open('x.py', 'w')"]);
    assert_eq!(beside.ok(), "");
}

#[test]
fn problems_name_the_configured_directory() {
    let dir = Dir::new();
    put(&dir, "one.py", "class One:\n    def get(self): pass\n");
    put(&dir, "one.toml", "frob = 1\n");
    let path = dir.path("work/skills");
    let config = format!("[skills]\npath = '{}'\n", path.display());
    dir.write("config/ringfence/ringfence.toml", config);
    let listed = dir.run(["skills", "ls"]);
    let told = format!(
        "{}/one.py: its manifest cannot be used: one.toml:1: unknown field `frob`, expected one of",
        path.display()
    );
    listed.refused(125, &told);
    dir.write("work/skills/one.toml", "hosts = ['a b']\n");
    let listed = dir.run(["skills", "ls"]);
    let told = format!("warning: {}/one.py: ", path.display());
    assert!(listed.stderr.starts_with(&told), "{listed:?}");
    assert!(
        listed
            .stderr
            .contains("note: there are no functions: see the warnings"),
        "{listed:?}"
    );
}

#[test]
fn tools_find_functions_and_code_calls_them() {
    let tools = Tools::new("");
    put(&tools.dir, "probe.py", PROBE);
    let offered = |tools: &Tools| {
        let listed = tools.dir.run(["tool", "--list", "--json"]);
        listed.ok().contains("\"search_skills\"")
    };
    assert!(!offered(&tools));
    assert_eq!(tools.refused("search_skills", json!({})).kind, "not_found");
    let config = format!(
        "[skills]\npath = '{}'\nallow = ['Probe.*', 'bob:Pace.nap']\nmax_calls = 3\n",
        tools.dir.path("work/skills").display()
    );
    tools.dir.write("config/ringfence/ringfence.toml", config);
    assert!(offered(&tools));
    let found = tools.ask("search_skills", json!({"query": "adds"}));
    assert_eq!(found["functions"][0]["path"], "Probe.add");
    let described = tools.ask("describe_function", json!({"path": "Probe.add"}));
    assert!(described.as_str().unwrap().starts_with("def add("), "{described}");
    // As in the search results.
    let described = tools.ask("describe_function", json!({"path": "device.Probe.add"}));
    assert!(described.as_str().unwrap().starts_with("def add("), "{described}");
    let refused = tools.refused("describe_function", json!({"path": "Pace.nap"}));
    assert_eq!(refused.kind, "not_found");
    let code = json!({"code": "print([device.Probe.add(n) for n in range(9)])"});
    let ran = tools.ask("run_code", code);
    assert!(
        ran["stderr"].as_str().unwrap().contains("a run may make 3 calls"),
        "{ran:#}"
    );
    assert!(
        ran["meta"]["warnings"].to_string().contains("may make 3 calls"),
        "{ran:#}"
    );
    let code = json!({"code": "print(device.Probe.add(1))"});
    assert_eq!(
        tools
            .ask("run_python_code", code.clone())
            .as_str()
            .unwrap()
            .lines()
            .next(),
        Some("2")
    );
    let bob = tools.with(&["--user", "bob"]);
    let told = bob.ask("run_python_code", code);
    assert!(
        told.as_str()
            .unwrap()
            .contains("there is no skill `Probe`; there is Pace"),
        "{told}"
    );
    let audit = std::fs::read_to_string(bob.dir.path("state/ringfence/audit/audit.jsonl")).unwrap();
    assert!(audit.contains("\"tool\":\"device.Probe.add\""), "{audit}");
}

/// A program with one call that needs approval and one that notifies.
const TOLD: &str = "device.Probe.count(); print(device.Probe.add(41))";

#[test]
fn a_person_decides_about_a_call() {
    decided(
        &["run", "--skills", "skills", "--timeout", "60s", "-c", TOLD],
        "42\n",
    );
}

#[test]
fn a_person_decides_about_a_call_of_a_tools_program() {
    let code = json!({"code": TOLD, "timeout": 60}).to_string();
    decided(&["tool", "run_python_code", &code, "--no-engine"], "42\n");
}

/// Asserts the messages of a command that waits for approval, and its output afterwards.
#[track_caller]
fn decided(command: &[&str], expected: &str) {
    let world = World::here();
    put(&world.dir, "probe.py", PROBE);
    put(
        &world.dir,
        "probe.toml",
        "[policy]\n'Probe.add' = 'ask'\n'Probe.count' = 'notify'\n",
    );
    let path = world.dir.path("work/skills");
    let config = format!("[skills]\npath = '{}'\n", path.display());
    world.dir.write("config/ringfence/ringfence.toml", config);
    let running = world
        .command(&[], command)
        .stdout(std::process::Stdio::piped())
        .stderr(std::process::Stdio::piped())
        .spawn()
        .unwrap();
    world.watch(running.id());
    let mut id = String::new();
    eventually("the question is there", || {
        let listed = finish(&mut world.command(&[], ["approvals", "ls", "--json"]), b"");
        let listed: Value = serde_json::from_str(listed.ok()).unwrap();
        id = listed[0]["id"].as_str().unwrap_or_default().to_owned();
        assert!(
            id.is_empty() || listed[0]["text"] == "Probe.add {\n  \"a\": 41\n}",
            "{listed}"
        );
        !id.is_empty()
    });
    finish(&mut world.command(&[], ["approvals", "approve", &id]), b"").ok();
    let output = running.wait_with_output().unwrap();
    let stdout = String::from_utf8_lossy(&output.stdout);
    assert!(stdout.starts_with(expected), "{output:?}");
    let told = format!(
        "note: local calls Probe.count: {{}}\nnote: a call of a skill waits for your answer (`ringfence approvals approve {id}`, or \
         `ringfence approvals deny {id}`): | Probe.add {{ \"a\": 41 }}\n"
    );
    // Beside warnings of functions that are not offered.
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(stderr.starts_with(&told), "{stderr}");
    world.close();
}
