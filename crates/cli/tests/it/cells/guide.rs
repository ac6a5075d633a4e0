//! The commands of the guide.

use super::Lab;

const GUIDE: &str = include_str!("../../../../../docs/guide/sandboxes.md");

/// Returns the commands, and the line that each must print.
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
    let lab = Lab::new();
    // `ringfence` lies in the world's own directory.
    let path = std::env::var_os("PATH").unwrap();
    let path = format!("{}:{}", lab.world.dir.path("").display(), path.display());
    let commands = commands();
    assert!(commands.len() >= 20);
    for (command, expected) in commands {
        let mut shell = lab.world.dir.program("bash");
        let output = shell
            .args(["-uc", &format!("{{ {command}}} 2>&1")])
            .env("PATH", &path)
            .output()
            .unwrap();
        let printed = String::from_utf8(output.stdout).unwrap();
        assert!(printed.contains(expected), "{command}: {printed}");
    }
    lab.close();
}

#[test]
fn nothing_but_the_start_and_a_terminal_is_shown_unrun() {
    let fences = GUIDE.lines().filter(|line| line.starts_with("```"));
    let unrun = fences.step_by(2).filter(|fence| *fence != "```sh").count();
    assert_eq!(unrun, 2);
}
