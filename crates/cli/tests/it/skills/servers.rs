//! MCP servers whose tools programs call, and servers that attempt attacks.

use std::io::{BufRead, BufReader};
use std::os::unix::fs::PermissionsExt;

use serde_json::{Value, json};

use crate::mcp::Client;
use crate::network::Server;
use crate::support::{Dir, Output, eventually, finish};
use crate::world::{Run, World, everywhere};

const SERVER: &str = include_str!("server.py");

everywhere!(a_server_is_a_skill);

/// Returns a configuration entry that starts the server.
pub(crate) fn entry(name: &str, mode: &str, more: &str) -> String {
    format!("[skills.servers.{name}]\ncommand = ['python3', '-c', '''{SERVER}''', '{mode}']\n{more}\n")
}

fn configure(dir: &Dir, skills: &str, entries: &[String]) {
    let text = format!("[skills]\n{skills}\n{}", entries.concat());
    dir.write("config/ringfence/ringfence.toml", text);
}

/// Runs Python with the configured servers.
#[track_caller]
fn run(world: &World, code: &str) -> Run {
    world.json(["--servers", "--timeout", "120s", "-c", code])
}

/// Returns a program's output for each line of code that it tries.
#[track_caller]
fn tried(world: &World, lines: &[&str]) -> (Vec<String>, Run) {
    let code = format!(
        "for line in {lines:?}:\n    try:\n        print(repr(eval(line)))\n    \
         except Exception as error:\n        print(f'{{type(error).__name__}}: {{error}}')\n"
    );
    let run = run(world, &code);
    (run.stdout().lines().map(str::to_owned).collect(), run)
}

fn a_server_is_a_skill(world: &World) {
    configure(&world.dir, "", &[entry("my-server", "noise", "")]);
    let (told, run) = tried(
        world,
        &[
            "device.my_server.add_numbers(1, b=2)",
            "device.my_server.add_numbers(1, 'x')",
            "device.my_server.echo('é\\n')",
            "device.my_server.picture()",
            "device.my_server.fail()",
            "device.my_server.nothing()",
            "device.my_server.read('/etc/shadow')",
            "__import__('inspect').signature(device.my_server.add_numbers)",
            "device.my_server.add_numbers.__doc__",
            "len(dir(device.my_server)) > 10",
        ],
    );
    let expected = [
        "3",
        "TypeError: my_server.add_numbers: `b`: \"x\" is not of type \"integer\"; it is called as add_numbers(a: int, b: int) -> int",
        "'é\\n'",
        "[{'type': 'image', 'data': 'aGk=', 'mimeType': 'image/png'}, 'hi']",
        "RuntimeError: my_server.fail: no: <path> is [31m gone",
        "AttributeError: not found: `my_server` has no function `nothing`; it has",
        "RuntimeError: my_server.read: PermissionError",
        "<Signature (a: int, b: int) -> int>",
        "'The tool add-numbers.\\nMore.'",
        "True",
    ];
    assert_eq!(told.len(), expected.len(), "{run:#?}");
    for (told, expected) in told.iter().zip(expected) {
        let other = expected.replace("PermissionError", "FileNotFoundError");
        assert!(
            told.starts_with(expected) || told.starts_with(&other),
            "{told}\n{expected}\n{run:#?}"
        );
    }
}

#[test]
fn a_server_that_dies_is_asked_anew() {
    let world = World::here();
    configure(&world.dir, "", &[entry("s", "", "")]);
    let lines = ["device.s.count()", "device.s.die()", "device.s.count()"];
    let (told, run) = tried(&world, &lines);
    let died = "RuntimeError: s.die: the server cannot be asked: its process ended: dying now";
    assert_eq!(told, ["'1'", died, "'1'"], "{run:#?}");
    let journal = std::fs::read_to_string(world.dir.path("state/ringfence/servers/s.log"));
    // The journal of the last start, which printed nothing.
    assert_eq!(journal.unwrap(), "");
    world.close();
}

#[test]
fn a_server_that_takes_longer_to_start_than_a_call_may_is_there_in_the_end() {
    let world = World::here();
    let data = world.dir.path("work/data");
    std::fs::create_dir(&data).unwrap();
    // Its process runs as another user.
    std::fs::set_permissions(&data, std::fs::Permissions::from_mode(0o777)).unwrap();
    let mounts = format!("mounts = ['{}:/data:rw']", data.canonicalize().unwrap().display());
    let skills = "call_timeout = '2s'\nstart_timeout = '100s'";
    configure(&world.dir, skills, &[entry("s", "slow", &mounts)]);
    let code = "
late = False
try:
    device.s.die()
except (RuntimeError, TimeoutError):
    pass
while True:
    try:
        count = device.s.count()
        if late:
            print(count)
            break
    except TimeoutError:
        if not late:
            print('late', flush=True)
        late = True
    except RuntimeError:
        pass  # It was still about to die.
";
    let mut running = world
        .command(&[], ["run", "--servers", "--timeout", "120s", "-c", code])
        .stdout(std::process::Stdio::piped())
        .spawn()
        .unwrap();
    world.watch(running.id());
    let mut lines = BufReader::new(running.stdout.take().unwrap()).lines();
    assert_eq!(lines.next().unwrap().unwrap(), "late");
    let starts = || std::fs::read_to_string(data.join("starts")).unwrap();
    eventually("it was started anew", || starts() == "xx");
    world.dir.write("work/data/go", "");
    let count: u32 = lines.next().unwrap().unwrap().parse().unwrap();
    running.wait().unwrap();
    // A restart would have reset the count; a late result counts, but is not delivered.
    assert!(count >= 1);
    assert_eq!(starts(), "xx");
    world.close();
}

#[test]
fn a_call_that_nobody_waits_for_is_taken_back() {
    let world = World::here();
    configure(&world.dir, "call_timeout = '60s'", &[entry("s", "", "")]);
    let code = "
import asyncio

async def main():
    hanging = asyncio.create_task(device.s.wait.aio())
    await device.s.is_waiting.aio()
    hanging.cancel()
    print(await device.s.taken_back.aio())

asyncio.run(main())
";
    let run = run(&world, code);
    assert_eq!(run.stdout(), "yes\n", "{run:#?}");
    world.close();
}

#[test]
fn a_server_says_when_its_tools_change() {
    let world = World::here();
    configure(&world.dir, "", &[entry("s", "", "")]);
    let mut client = Client::greeted(&world, &[]);
    let found = |client: &mut Client| {
        let found = client.call("search_skills", &json!({"query": "grown"}));
        found["structuredContent"]["functions"].as_array().unwrap().len()
    };
    assert_eq!(found(&mut client), 0);
    let code = "print(device.s.grow(), 's.grown' in str(device.search_skills('grown')))";
    // A program's functions do not change while it runs.
    let told = client.python(code);
    assert_eq!(told.lines().next(), Some("grown False"), "{told}");
    assert_eq!(found(&mut client), 1);
    // It is still the same process.
    let told = client.python("print(device.s.count())");
    assert_eq!(told.lines().next(), Some("2"), "{told}");
    client.leave().well();
    world.close();
}

#[test]
fn a_server_has_what_its_entry_gives_it_and_no_more() {
    let world = World::here();
    let data = world.dir.path("work/data");
    std::fs::create_dir_all(&data).unwrap();
    world.dir.write("work/data/note", "hello");
    let data = data.canonicalize().unwrap();
    let mounts = format!("mounts = ['{}:/data']", data.display());
    configure(
        &world.dir,
        "",
        &[
            entry("plain", "", ""),
            entry("given", "", &format!("{mounts}\nenv = ['A=b', 'HOME']")),
            entry("free", "", "fence = 'host'\nenv = ['HOME']"),
            entry("lost", "", "mounts = ['/no/such/directory:/host']"),
        ],
    );
    let note = data.join("note");
    let outside = format!("device.free.read('{}')", note.display());
    let inside = format!("device.given.read('{}')", note.display());
    let (told, run) = tried(
        &world,
        &[
            "device.plain.read('/data/note')",
            "device.given.read('/data/note')",
            &inside,
            &outside,
            "device.plain.env('A')",
            "device.given.env('A')",
            "device.given.env('HOME') == device.free.env('HOME')",
            "hasattr(device, 'lost')",
        ],
    );
    let absent = "FileNotFoundError: [Errno 2] No such file or directory";
    let expected = [
        &format!("RuntimeError: plain.read: {absent}"),
        "'hello'",
        &format!("RuntimeError: given.read: {absent}"),
        "'hello'",
        "'nothing'",
        "'b'",
        "True",
        "False",
    ];
    assert_eq!(told.len(), expected.len(), "{run:#?}");
    for (told, expected) in told.iter().zip(expected) {
        assert!(told.starts_with(expected), "{told}\n{expected}");
    }
    let warnings = run.get("meta.warnings").to_string();
    assert!(warnings.contains("lost: there is no `"), "{warnings}");
    world.close();
}

#[test]
fn a_hostile_server_is_bounded() {
    let world = World::here();
    let modes = ["endless", "huge", "deep", "control", "long", "liar"];
    let entries: Vec<String> = modes.iter().map(|mode| entry(mode, mode, "")).collect();
    configure(&world.dir, "call_timeout = '60s'", &entries);
    let (told, run) = tried(
        &world,
        &[
            "len([name for name in dir(device.endless) if name[0] == 't'])",
            "len([name for name in dir(device.huge) if name[0] == 't'])",
            "hasattr(device, 'deep')",
            "device.control.say___31m.__doc__",
            "hasattr(device, 'long')",
            "device.liar.echo('true')",
            "device.liar.flood(size=2_000_000)",
            "device.liar.flood(size=100_000_000)",
            "device.liar.echo('still here')",
        ],
    );
    let expected = [
        "32",
        "128",
        "False",
        "'Do what I say.[31m'",
        "False",
        "'true'",
        "RuntimeError: a result of 2000",
        "RuntimeError: liar.flood: the server cannot be asked: it sent a message of more than 4194304 bytes",
        "'still here'",
    ];
    assert_eq!(told.len(), expected.len(), "{run:#?}");
    for (told, expected) in told.iter().zip(expected) {
        assert!(told.starts_with(expected), "{told}\n{expected}\n{run:#?}");
    }
    let warnings = run.get("meta.warnings").to_string();
    for told in [
        "endless: its list of tools has more than 32 pages",
        "huge: it has more than 128 tools",
        "deep: the server cannot be asked: it sent what cannot be read: a line holds values that are nested deeper",
        "`control.say_",
        "long: the server cannot be asked: it sent a message of more than",
    ] {
        assert!(warnings.contains(told), "{told}: {warnings}");
    }
    world.close();
}

#[test]
fn a_mute_server_takes_no_skill_along() {
    let world = World::here();
    super::put(&world.dir, "probe.py", super::PROBE);
    configure(&world.dir, "start_timeout = '1s'", &[entry("mute", "mute", "")]);
    let code = "print(device.Probe.add(1), hasattr(device, 'mute'))";
    let options = ["--servers", "--skills", "skills", "--timeout", "120s", "-c", code];
    let run = world.json(options);
    assert_eq!(run.stdout(), "2 False\n", "{run:#?}");
    let warnings = run.get("meta.warnings").to_string();
    assert!(warnings.contains("mute: it did not say within"), "{warnings}");
    world.close();
}

#[test]
fn a_server_that_stops_reading_holds_up_no_end() {
    let world = World::here();
    configure(&world.dir, "call_timeout = '1s'", &[entry("s", "deaf", "")]);
    let code = "
import asyncio

async def main():
    calls = [device.s.echo.aio('x' * 900_000) for _ in range(16)]
    print(*{type(told).__name__ for told in await asyncio.gather(*calls, return_exceptions=True)})

asyncio.run(main())
";
    let run = run(&world, code);
    assert_eq!(run.stdout(), "TimeoutError\n", "{run:#?}");
    world.close();
}

#[test]
fn a_server_over_http_is_shown_its_credential_and_nobody_else() {
    let dir = Dir::new();
    let server = Server::new();
    let header = "{ header = 'Authorization', prefix = 'Bearer ', value_env = 'TOKEN' }";
    let web = format!(
        "[skills.servers.web]\nurl = '{}'\nheaders = [{header}]\n",
        server.url()
    );
    configure(&dir, "", &[web]);
    let mut listing = dir.command(["skills", "ls"]);
    let listed = finish(listing.env("TOKEN", "secret-token"), b"");
    // It answers, but not MCP.
    assert!(
        listed
            .stderr
            .contains("web: its response is not a message of the protocol"),
        "{listed:?}"
    );
    let heard = server.text();
    assert!(heard.starts_with("POST /page HTTP/1.1"), "{heard}");
    assert!(heard.contains("authorization: Bearer secret-token"), "{heard}");
    assert!(!format!("{listed:?}").contains("secret-token"), "{listed:?}");
    // Without the variable no request is made.
    let missing = dir.run(["skills", "ls"]);
    assert!(
        missing.stderr.contains("the variable `TOKEN` is not set"),
        "{missing:?}"
    );
    assert_eq!(server.visits(), 1);
}

#[test]
fn rules_hold_for_servers_and_commands_show_them() {
    let dir = Dir::new();
    configure(
        &dir,
        "allow = ['s.*', 'bob:s.echo']\nask = ['s.fail']\nask_timeout = '1s'",
        &[entry("s", "", "")],
    );
    let skills = |args: &[&str]| -> Output { dir.run([&["skills"], args].concat()) };
    let listed = skills(&["ls", "numbers"]);
    let expected = "s.add_numbers(a: int, b: int) -> int\n    The tool add-numbers.\n";
    assert!(listed.ok().starts_with(expected), "{listed:?}");
    let described = skills(&["describe", "s.add_numbers", "--json"]);
    let whole: Value = serde_json::from_str(described.ok()).unwrap();
    assert_eq!(whole["arguments"]["required"], json!(["a", "b"]));
    assert_eq!(skills(&["call", "s.add_numbers", "[1, 2]"]).ok(), "3\n");
    skills(&["call", "s.count", "--user", "bob"]).refused(125, "not found");
    let unanswered = skills(&["call", "s.fail"]);
    let told: Vec<&str> = unanswered.stderr.lines().collect();
    assert_eq!(unanswered.status, 125, "{unanswered:?}");
    assert!(
        told[0].starts_with("note: a call of a skill waits for your answer (")
            && told[0].ends_with("): | s.fail {}"),
        "{told:?}"
    );
    assert!(told[1].starts_with("error: approval_timeout"), "{told:?}");
    let audit = std::fs::read_to_string(dir.path("state/ringfence/audit/audit.jsonl")).unwrap();
    assert!(audit.contains("\"tool\":\"device.s.add_numbers\""), "{audit}");
    configure(&dir, "", &[]);
    dir.run(["run", "--servers", "-c", "1"])
        .refused(2, "no MCP servers are configured");
}

#[test]
fn a_projects_file_names_no_server() {
    let dir = Dir::new();
    dir.write("work/ringfence.toml", entry("evil", "", "fence = 'host'"));
    let run = dir.run(["skills", "ls"]);
    assert_eq!(run.status, 2, "{run:?}");
    for told in [
        "`skills.servers.evil.command` does not count",
        "error: there are no skills\n",
    ] {
        assert!(run.stderr.contains(told), "{told}: {run:?}");
    }
    // The same text in the user's own configuration is accepted.
    configure(&dir, "", &[entry("good", "", "")]);
    let listed = dir.run(["skills", "ls", "echo"]);
    assert!(listed.ok().starts_with("good.echo("), "{listed:?}");
    assert!(!listed.stdout.contains("evil"), "{listed:?}");
}
