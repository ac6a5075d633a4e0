//! Commands on the host and their questions as root, as a user, and both in a container.

use serde_json::{Value, json};

use super::{Asker, ON, Through, answer, asked, ringfence, state};
use crate::support::eventually;
use crate::world::{Mode, World};

macro_rules! in_every_place {
    ($($name:ident),+ $(,)?) => {
        crate::world::everywhere!($($name),+);
        crate::world::tests!(in_container_as_user, OneShot, ContainerUser, $($name),+);
        crate::world::tests!(in_container_as_user_with_engine, Engine, ContainerUser, $($name),+);
    };
}

in_every_place!(
    what_is_allowed_runs_and_what_is_asked_waits,
    nobody_answers_and_others_ask_on
);

fn configure(world: &World, more: &str) {
    world
        .dir
        .write("config/ringfence/ringfence.toml", format!("{ON}{more}"));
}

fn through(world: &World) -> Through {
    match world.mode {
        Mode::OneShot => Through::Tool,
        Mode::Engine => Through::Engine,
    }
}

fn what_is_allowed_runs_and_what_is_asked_waits(world: &World) {
    configure(world, "");
    let start = |line: &str| Asker::start(world, through(world), line);
    assert_eq!(start("ls | wc -l").end(), json!("0\n"));
    for (verdict, line, expected) in [
        ("deny", "touch denied", Value::Null),
        ("approve", "touch approved", json!("")),
        (
            "approve",
            "bash -c 'id -u; setsid sleep 1000 & echo x > written'",
            Value::Null,
        ),
    ] {
        let asker = start(line);
        answer(world, verdict, &asked(world, line));
        let said = asker.end();
        match verdict {
            "deny" => assert_eq!(said["error"]["type"], "rejected", "{said}"),
            _ if expected.is_null() => assert_eq!(said.as_str().unwrap().lines().count(), 1, "{said}"),
            _ => assert_eq!(said, expected),
        }
    }
    assert_eq!(start("ls").end(), json!("approved\nwritten\n"));
    // Through the MCP server, which has its own directory.
    let asker = Asker::start(world, Through::Mcp, "touch mine && ls");
    answer(world, "approve", &asked(world, "touch mine && ls"));
    let said = asker.end();
    assert_eq!(said["result"]["content"][0]["text"], "mine\n", "{said}");
    ringfence(world, &["audit", "verify"]).ok();
}

fn nobody_answers_and_others_ask_on(world: &World) {
    configure(world, "askTimeoutMin = '500ms'\n");
    let said = Asker::start(world, through(world), "touch late").end();
    assert_eq!(said["error"]["type"], "approval_timeout", "{said}");
    configure(world, "");
    let asker = Asker::start(world, through(world), "touch made");
    let id = asked(world, "touch made");
    answer(world, "approve", &id);
    assert_eq!(asker.end(), json!(""));
    eventually("it is taken", || state(world, &id) == "consumed");
    assert_eq!(Asker::start(world, through(world), "ls").end(), json!("made\n"));
}
