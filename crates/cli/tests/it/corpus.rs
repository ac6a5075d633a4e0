//! The shared programs: each prints exactly the expected output, and its negative twin fails.

use std::fs;

use serde_json::Value;

use crate::world::{World, here, repository, skip};

here!(every_program_passes_and_its_twin_fails);

fn every_program_passes_and_its_twin_fails(world: &World) {
    let path = repository("../shared/corpora/programs_python.jsonl");
    let Ok(text) = fs::read_to_string(&path) else {
        // Distributed beside the repository, so that CI may lack it.
        return tell();
    };
    let rows: Vec<Value> = text
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    assert!(!rows.is_empty());
    for row in rows {
        let (id, field) = (&row["id"], |name: &str| row[name].as_str().unwrap().to_owned());
        let run = world.json(["-c", &field("program")]);
        assert_eq!(run.stdout(), field("expected_stdout"), "{id}: {run:?}");
        assert_eq!(run.get("exit_code"), &row["expected_exit"], "{id}: {run:?}");
        let twin = world.json(["-c", &field("negative_program")]);
        assert_ne!(twin.get("exit_code"), 0, "{id}: {twin:?}");
        assert!(
            twin.stderr().contains("Traceback (most recent call last)"),
            "{id}: {twin:?}"
        );
    }
}

fn tell() {
    if std::env::var_os("CI").is_none() {
        skip::<()>("no ../shared/corpora/programs_python.jsonl");
    }
}
