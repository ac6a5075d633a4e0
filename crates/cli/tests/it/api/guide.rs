//! The commands of the guide.

use super::{KEY, Surface, world};

const GUIDE: &str = include_str!("../../../../../docs/guide/server.md");

/// Commands, and the line that each must print.
fn commands() -> Vec<(String, &'static str)> {
    let mut commands = Vec::new();
    for block in GUIDE.split("```sh\n").skip(1) {
        let mut command = String::new();
        for line in block.split("```").next().unwrap().lines() {
            match line.strip_prefix("# ") {
                Some(expected) => commands.push((std::mem::take(&mut command), expected)),
                None => command += &format!("{line}\n"),
            }
        }
        assert_eq!(command, "", "a command without its output");
    }
    commands
}

#[test]
fn every_command_of_the_guide_prints_what_it_says() {
    let world = world();
    let Surface::Tcp(address) = Surface::loopback(&world) else {
        unreachable!()
    };
    // `ringfence` lies in the world's own directory.
    let path = std::env::var_os("PATH").unwrap();
    let path = format!("{}:{}", world.dir.path("").display(), path.display());
    let commands = commands();
    assert!(commands.len() >= 6);
    for (command, expected) in commands {
        let mut shell = world.dir.program("bash");
        shell
            .args(["-euc", &command])
            .env("URL", format!("http://{address}"))
            .env("RINGFENCE_API_KEY", KEY)
            .env("PATH", &path);
        let output = shell.output().unwrap();
        let printed = String::from_utf8(output.stdout).unwrap();
        assert!(
            output.status.success() && printed.contains(expected),
            "{command}: {printed}"
        );
    }
    world.close();
}
