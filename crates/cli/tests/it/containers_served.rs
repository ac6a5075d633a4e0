//! Runs in containers that an engine of ours makes.

use std::process::{Child, Stdio};

use crate::containers::{Engine, engines};
use crate::support::{Output, entries, eventually, eventually_none, finish};
use crate::world::World;

/// An engine of ours, and a container engine.
struct Place {
    world: World,
    engine: Engine,
}

fn places() -> Vec<Place> {
    let place = |engine| {
        let world = World::before_engine();
        world.start_engine();
        Place { world, engine }
    };
    engines().into_iter().map(place).collect()
}

impl Place {
    fn run(&self, args: &[&str]) -> Output {
        let first = ["run", "--runtime", self.engine.name];
        let all = first.iter().chain(args);
        finish(&mut self.world.command(&[], all), b"")
    }

    fn start(&self, args: &[&str]) -> Child {
        let first = ["run", "--runtime", self.engine.name];
        let all = first.iter().chain(args);
        let mut command = self.world.command(&[], all);
        command
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null());
        command.spawn().unwrap()
    }

    /// The containers that our engine has made and that run.
    fn running(&self) -> Vec<String> {
        self.engine.running(self.world.engine_pid().unwrap())
    }
}

const SLEEP: &[&str] = &["-c", "import time; time.sleep(600)", "--timeout", "600s"];

#[test]
fn the_engine_makes_the_container_and_ends_it_with_its_caller() {
    for place in places() {
        let mut child = place.start(SLEEP);
        eventually("the container runs", || place.running().len() == 1);
        place.world.signal(&child, "TERM");
        assert_eq!(child.wait().unwrap().code(), Some(130));
        eventually_none("the container", || place.running());
        let mut child = place.start(SLEEP);
        eventually("the container runs", || place.running().len() == 1);
        let pid = place.world.engine_pid().unwrap();
        place.world.stop_engine("TERM");
        assert_eq!(place.engine.left_by(pid), Vec::<String>::new());
        assert_ne!(child.wait().unwrap().code(), Some(0));
        assert_eq!(entries(&place.world.dir.path("tmp")), Vec::<String>::new());
    }
}

#[test]
fn an_engine_that_is_set_up_otherwise_is_left_alone() {
    for place in places() {
        let all = ["run", "--runtime", place.engine.name, "-c", "print(1)"];
        let mut command = place.world.command(&[], all);
        let output = finish(command.env("DOCKER_IMAGE", "no-such-image:1"), b"");
        output.refused(125, "there is no image no-such-image:1");
        assert_eq!(place.run(&["-c", "print(1)"]).ok(), "1\n");
    }
}
