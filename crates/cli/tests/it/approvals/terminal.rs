//! `ringfence gateway terminal`, driven by a script.

use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, ChildStdout, Stdio};

use super::{ASK, ENDLESS, SLOW, Use, timed_out, world};
use crate::world::World;

struct Terminal {
    child: Child,
    stdin: Option<ChildStdin>,
    stdout: BufReader<ChildStdout>,
}

impl Terminal {
    fn of(world: &World, options: &[&str]) -> Self {
        let args = [&["gateway", "terminal"], options].concat();
        let mut child = world
            .command(&[], args)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        world.watch(child.id());
        Self {
            stdin: child.stdin.take(),
            stdout: BufReader::new(child.stdout.take().unwrap()),
            child,
        }
    }

    /// Returns the next line that contains `part`.
    #[track_caller]
    fn until(&mut self, part: &str) -> String {
        loop {
            let mut line = String::new();
            assert_ne!(
                self.stdout.read_line(&mut line).unwrap(),
                0,
                "it ended before `{part}`"
            );
            if line.contains(part) {
                return line;
            }
        }
    }

    fn write(&mut self, line: &str) {
        let stdin = self.stdin.as_mut().unwrap();
        stdin.write_all(line.as_bytes()).unwrap();
    }
}

#[test]
fn a_script_answers_by_number_and_by_id() {
    let world = world(ASK);
    let mut terminal = Terminal::of(&world, &[]);
    terminal.until("connected");
    let slow = Use::of(&world, &[], SLOW);
    terminal.until("[1] a tool has reached its time limit");
    terminal.until("    | `run_code` has run for 200ms");
    terminal.write("what\na 1\n");
    terminal.until("write a, s or d");
    terminal.until("[1] approved by terminal");
    assert_eq!(slow.let_go()["stdout"], "done\n");

    let endless = Use::of(&world, &[], ENDLESS);
    let line = terminal.until("[2] a tool");
    let id = line
        .split_whitespace()
        .find(|word| word.starts_with("apr_"))
        .unwrap();
    terminal.write(&format!("deny {}\n", id.trim_end_matches(')')));
    terminal.until("[2] rejected by terminal");
    let stderr = timed_out(&endless.result());
    assert!(
        stderr.contains("terminal was asked to extend it and said no"),
        "{stderr}"
    );

    // It reconnects to the next server by itself, and exits cleanly on a signal.
    world.stop_engine("KILL");
    terminal.until("the server has gone");
    world.start_engine();
    terminal.until("connected");
    world.signal(&terminal.child, "INT");
    assert_eq!(terminal.child.wait().unwrap().code(), Some(0));
    world.close();
}

#[test]
fn the_end_of_input_ends_it_once_every_answer_is_settled() {
    let world = world(ASK);
    let mut terminal = Terminal::of(&world, &["--chat", "local"]);
    terminal.until("connected");
    let endless = Use::of(&world, &[], ENDLESS);
    terminal.until("[1] a tool");
    terminal.write("d\n");
    drop(terminal.stdin.take());
    terminal.until("[1] rejected");
    assert_eq!(terminal.child.wait().unwrap().code(), Some(0));
    timed_out(&endless.result());
    world.close();
}
