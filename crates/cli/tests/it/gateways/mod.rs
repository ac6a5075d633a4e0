//! Gateways to chat services, each against a fake service.

mod discord;
mod telegram;

use std::fs::{self, File};
use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};

use serde_json::{Value, json};

use crate::support::eventually;
use crate::world::World;

/// Replies to a press on a closed question. The gateway forgets the question once the chat service has
/// confirmed the edit, which is after the fake service shows it: until then it replies with the outcome.
const OVER: [&str; 3] = ["already answered", "too late", "outdated"];

/// Asserts that a press was rejected because its question is closed.
#[track_caller]
fn assert_over(answer: &str) {
    assert!(OVER.iter().any(|words| answer.contains(words)), "{answer}");
}

/// A running gateway, and the secret that it must never print.
struct Bot {
    child: Child,
    log: PathBuf,
    token: &'static str,
}

/// A call of `host_exec` that waits for its answer.
struct Asking(Child);

impl Bot {
    /// Starts `ringfence gateway ARGS…`.
    fn start(world: &World, args: &[&str], env: &[(&str, &str)], token: &'static str) -> Self {
        let env: Vec<_> = env
            .iter()
            .map(|(name, value)| (name.into(), value.into()))
            .collect();
        let log = (0..)
            .map(|number| world.dir.path(&format!("home/bot{number}.log")))
            .find(|log| !log.exists())
            .unwrap();
        let file = File::create(&log).unwrap();
        let child = world
            .command(&env, [&["gateway"], args].concat())
            .stdin(Stdio::null())
            .stdout(file.try_clone().unwrap())
            .stderr(file)
            .spawn()
            .unwrap();
        world.watch(child.id());
        Self { child, log, token }
    }

    fn said(&self) -> String {
        fs::read_to_string(&self.log).unwrap()
    }

    #[track_caller]
    fn until(&self, words: &str) {
        eventually(words, || self.said().contains(words));
    }

    /// Asserts that it exits by itself, with this reason and a hint.
    #[track_caller]
    fn ended(mut self, status: i32, words: &str) {
        let ended = self.child.wait().unwrap().code();
        let said = self.said();
        assert_eq!(ended, Some(status), "{said}");
        assert!(said.contains(words) && said.contains("\nhint: "), "{said}");
        assert!(!said.contains(self.token), "{said}");
    }

    /// Stops it with a signal; it must exit cleanly if it can.
    #[track_caller]
    fn stop(mut self, world: &World, signal: &str) {
        world.signal(&self.child, signal);
        let status = self.child.wait().unwrap().code();
        assert_eq!(status, (signal != "KILL").then_some(0), "{}", self.said());
        assert!(!self.said().contains(self.token), "{}", self.said());
    }
}

/// Leftovers of a failed test would run for ever.
impl Drop for Bot {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Asking {
    fn of(world: &World, command: &str, options: &[&str]) -> Self {
        let arguments = json!({ "command": command }).to_string();
        let args = [&["tool", "host_exec", &arguments, "--json"], options].concat();
        let mut tool = world.command(&[], args);
        let child = tool.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
        world.watch(child.id());
        Self(child)
    }

    /// Kills the asker.
    fn killed(mut self) {
        self.0.kill().unwrap();
        self.0.wait().unwrap();
    }

    fn end(mut self) -> Value {
        let mut printed = String::new();
        let mut stdout = self.0.stdout.take().unwrap();
        stdout.read_to_string(&mut printed).unwrap();
        self.0.wait().unwrap();
        serde_json::from_str(&printed).unwrap()
    }
}

/// Ends a world, and asserts that nothing is left and that the token is nowhere.
#[track_caller]
fn close(world: World, token: &str) {
    for file in files(&world.dir.path("")) {
        let contents = fs::read(&file).unwrap_or_default();
        let found = contents.windows(token.len()).any(|part| part == token.as_bytes());
        assert!(!found, "the token is in {}", file.display());
    }
    world.close();
}

/// Returns all regular files below a directory, except the binary.
fn files(dir: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in fs::read_dir(dir).into_iter().flatten().flatten() {
        match entry.file_type() {
            Ok(kind) if kind.is_dir() => found.extend(files(&entry.path())),
            Ok(kind) if kind.is_file() && entry.file_name() != "ringfence" => found.push(entry.path()),
            _ => {}
        }
    }
    found
}
