//! The console's page in a real browser, driven by a script that reports its checks.

use std::fs;
use std::io::{BufRead, BufReader};
use std::process::Stdio;

use serde_json::Value;

use super::{CONFIG, link, world};
use crate::world::{World, repository, skip};

const PROGRAM: &str = include_str!("browser.py");

/// The expected checks, each reported once.
const CHECKS: [&str; 18] = [
    "a wrong link shows the door",
    "the link opens the page and leaves the address",
    "a link opens one browser",
    "a question appears without a reload",
    "what is pressed as it appears approves nothing",
    "it is approved by keyboard and the call returns",
    "the other tab sees it",
    "a question is rejected and the call returns",
    "a question expires",
    "what an agent wrote is text",
    "every button is reached by tab",
    "another site reads and changes nothing",
    "a link from another site closes no session",
    "a cookie that another port was sent opens nothing",
    "everything can be read by day and by night",
    "a lost connection is told",
    "the next engine asks for the link",
    "nothing came from elsewhere and nothing was complained about",
];

/// Returns the browser, and the Python that drives it, if installed.
fn prerequisites() -> Option<(String, String)> {
    let python = match repository("target/browser-venv").canonicalize() {
        Ok(directory) => directory.join("bin/python").display().to_string(),
        Err(_) => return skip("no target/browser-venv (`cargo xtask setup` makes it)"),
    };
    let path = std::env::var_os("PATH").unwrap();
    let chromium = std::env::split_paths(&path)
        .map(|directory| directory.join("chromium"))
        .find(|file| file.is_file());
    match chromium {
        Some(chromium) => Some((python, chromium.display().to_string())),
        None => skip("no chromium (`cargo xtask setup` installs it)"),
    }
}

#[test]
fn a_person_answers_on_the_page() {
    let Some((python, chromium)) = prerequisites() else {
        return;
    };
    let world = world();
    let link = link(&world);
    let (base, _) = link.split_once("/#").unwrap();
    let pictures = repository("target/screenshots");
    fs::create_dir_all(&pictures).unwrap();
    let program = world.dir.write("work/browser.py", PROGRAM);
    let mut command = world.dir.program(python);
    command
        .arg(program)
        .arg(world.dir.path("ringfence"))
        .args([&chromium, base])
        .arg(pictures.canonicalize().unwrap());
    let mut browser = command.stdout(Stdio::piped()).spawn().unwrap();
    // The next server must listen where the page looks for it.
    let address = link.split('/').nth(2).unwrap();
    let config = CONFIG.replace("127.0.0.1:0", address);
    world.dir.write("config/ringfence/ringfence.toml", config);
    let told = listen(&world, BufReader::new(browser.stdout.take().unwrap()));
    assert!(browser.wait().unwrap().success(), "met until then: {told:#?}");
    assert_eq!(told, CHECKS);
    world.close();
}

/// Returns the checks that the script reports; stops and starts the server on its request.
fn listen(world: &World, lines: impl BufRead) -> Vec<String> {
    let mut met = Vec::new();
    for line in lines.lines() {
        let told: Value = serde_json::from_str(&line.unwrap()).unwrap();
        match told["please"].as_str() {
            Some("stop") => assert_eq!(world.stop_engine("TERM"), Some(0)),
            Some("start") => world.start_engine(),
            _ => met.push(told["met"].as_str().unwrap().to_owned()),
        }
    }
    met
}
