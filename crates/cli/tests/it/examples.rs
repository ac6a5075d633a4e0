//! Every program of `examples/` prints the text in `examples/expected/`.

use std::fs;
use std::path::{Path, PathBuf};

use crate::support::entries;
use crate::world::{World, here, repository, venv};

here!(every_example_prints_what_is_expected);

fn program(name: &str) -> String {
    std::path::absolute(repository("examples").join(name))
        .unwrap()
        .display()
        .to_string()
}

fn programs() -> Vec<String> {
    let names = entries(&repository("examples")).into_iter();
    names
        .filter(|name| [".py", ".sh", ".js"].iter().any(|ending| name.ends_with(ending)))
        .collect()
}

fn every_example_prints_what_is_expected(world: &World) {
    let venv = venv();
    for name in programs() {
        let path = program(&name);
        let mut args = vec!["--output", "out"];
        if ["chart.py", "dataframe.py"].contains(&name.as_str()) {
            let Some(python) = &venv else { continue };
            args.extend(["--memory", "512MiB", "--python", python]);
        }
        args.push(&path);
        let call = match name.as_str() {
            "greeting.py" => {
                args.extend(["--stdin", "-", "--env", "GREETING=Welcome", "--", "Ada"]);
                world.call(args).stdin("one\ntwo\n")
            }
            _ => world.call(args),
        };
        let output = call.output();
        let expected = Path::new("examples/expected").join(&name).with_extension("out");
        let expected = fs::read_to_string(repository(expected.to_str().unwrap())).unwrap();
        assert_eq!(
            (output.ok(), output.stderr.as_str()),
            (expected.as_str(), ""),
            "{name}"
        );
    }
}

#[test]
fn the_table_lists_every_example() {
    let table = fs::read_to_string(repository("examples/README.md")).unwrap();
    let expected: Vec<PathBuf> = entries(&repository("examples/expected"))
        .iter()
        .map(PathBuf::from)
        .collect();
    for name in programs() {
        assert!(table.contains(&format!("| `{name}` |")), "{name}");
        assert!(
            expected.contains(&Path::new(&name).with_extension("out")),
            "{name}"
        );
    }
}
