//! The commands of the guide.

use super::{KEY, loopback_address, world};
use crate::guides::{bash, commands};

const GUIDE: &str = include_str!("../../../../../docs/guide/server.md");

#[test]
fn every_command_of_the_guide_prints_what_it_says() {
    let world = world();
    let url = format!("http://{}", loopback_address(&world));
    let commands = commands(GUIDE);
    assert!(commands.len() >= 6);
    for (command, expected) in commands {
        let mut shell = bash(&world.dir);
        shell.args(["-euc", &command]);
        shell.env("URL", &url).env("RINGFENCE_API_KEY", KEY);
        let output = shell.output().unwrap();
        let printed = String::from_utf8(output.stdout).unwrap();
        assert!(
            output.status.success() && printed.contains(expected),
            "{command}: {printed}"
        );
    }
    world.close();
}
