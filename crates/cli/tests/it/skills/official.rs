//! The example servers of the official Python SDK, started in a fence and over HTTP, called by programs.

use std::io::{BufRead, BufReader};
use std::path::PathBuf;
use std::process::Stdio;

use crate::mcp::official::installed;
use crate::support::Dir;
use crate::world::{Run, World};

fn sdk() -> PathBuf {
    installed("target/mcp-venv")
}

fn examples() -> PathBuf {
    installed("target/mcp-examples").canonicalize().unwrap()
}

/// Returns a configuration entry that runs `code`, with the SDK and its examples mounted.
fn entry(name: &str, code: &str, example: &str) -> String {
    let (sdk, examples) = (sdk(), examples());
    let (sdk, examples) = (sdk.display(), examples.display());
    format!(
        "[skills.servers.{name}]\ncommand = ['{sdk}/bin/python', '-c', '{code}', '{examples}/{example}']\n\
         mounts = ['{sdk}:{sdk}', '{examples}:{examples}']\n"
    )
}

/// Runs an example that only defines a server.
const RUN: &str = r#"import runpy, sys; runpy.run_path(sys.argv[1])["mcp"].run()"#;

/// Runs an example that runs itself.
const MAIN: &str = r#"import runpy, sys; runpy.run_path(sys.argv[1], run_name="__main__")"#;

/// The SDK's server with all features, on standard input and output.
const EVERYTHING: &str =
    r#"import sys; sys.path.insert(0, sys.argv[1]); from mcp_everything_server.server import mcp; mcp.run()"#;

#[track_caller]
fn run(world: &World, entries: &[String], code: &str) -> Run {
    let text = format!(
        "[skills]\ncall_timeout = '60s'\nstart_timeout = '60s'\n{}",
        entries.concat()
    );
    world.dir.write("config/ringfence/ringfence.toml", text);
    let run = world.json(["--servers", "--timeout", "180s", "-c", code]);
    assert_eq!(run.get("exit_code"), 0, "{run:#?}");
    assert_eq!(run.stdout(), "done\n", "{run:#?}");
    run
}

#[test]
fn example_servers_are_skills_of_a_program() {
    let world = World::here();
    let entries = [
        entry("weather", RUN, "mcpserver/weather_structured.py"),
        entry("tank", RUN, "mcpserver/complex_inputs.py"),
        entry("greet", RUN, "mcpserver/parameter_descriptions.py"),
        entry("direct", MAIN, "snippets/servers/direct_execution.py"),
    ];
    run(&world, &entries, include_str!("official.py"));
    world.close();
}

#[test]
fn the_server_that_does_everything_is_a_skill_on_its_streams() {
    let world = World::here();
    let entries = [entry("everything", EVERYTHING, "servers/everything-server")];
    run(&world, &entries, include_str!("everything.py"));
    world.close();
}

#[test]
fn the_server_that_does_everything_is_a_skill_over_http() {
    let world = World::here();
    let mut server = serve(&world.dir);
    let stderr = BufReader::new(server.stderr.take().unwrap());
    let mut lines = stderr.lines().map(Result::unwrap);
    let at = lines.find_map(|line| {
        let (_, rest) = line.split_once("Uvicorn running on ")?;
        Some(rest.split(' ').next()?.to_owned())
    });
    let entry = format!("[skills.servers.everything]\nurl = '{}/mcp'\n", at.unwrap());
    run(&world, &[entry], include_str!("everything.py"));
    // The server receives the end of our session.
    assert!(lines.any(|line| line.contains("Terminating session")));
    server.kill().unwrap();
    server.wait().unwrap();
    world.close();
}

fn serve(dir: &Dir) -> std::process::Child {
    let mut command = dir.program(sdk().join("bin/python"));
    command
        .args(["-m", "mcp_everything_server", "--port", "0"])
        .env("PYTHONPATH", examples().join("servers/everything-server"))
        .env("PYTHONUNBUFFERED", "1")
        .stdout(Stdio::null())
        .stderr(Stdio::piped());
    command.spawn().unwrap()
}
