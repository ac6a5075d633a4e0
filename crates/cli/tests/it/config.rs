//! `ringfence config`.

use serde_json::Value;

use crate::support::{Dir, finish};

fn json(text: &str) -> Value {
    serde_json::from_str(text).unwrap()
}

#[test]
fn show_tells_the_value_and_its_origin() {
    let dir = Dir::new();
    dir.write("config/ringfence/ringfence.yaml", "sandbox:\n  pids: 9\n");
    dir.write("work/ringfence.toml", "[sandbox]\nmemory = '1g'\n");
    let mut command = dir.command(["config", "show", "--json"]);
    let shown = finish(command.env("SANDBOX_TIMEOUT_SEC", "7"), b"");
    let shown = json(shown.ok());
    assert_eq!(shown["sandbox.memory"]["value"], "1GiB");
    assert_eq!(shown["sandbox.memory"]["origin"], "./ringfence.toml:2");
    assert_eq!(
        shown["sandbox.timeout"]["origin"],
        "environment SANDBOX_TIMEOUT_SEC"
    );
    assert!(
        shown["sandbox.pids"]["origin"]
            .as_str()
            .unwrap()
            .ends_with("config/ringfence/ringfence.yaml:2")
    );
    assert_eq!(shown["sandbox.cpus"]["origin"], "built-in");

    let text = dir.run(["config", "show"]);
    let line = text
        .ok()
        .lines()
        .find(|line| line.starts_with("sandbox.memory"))
        .unwrap()
        .to_owned();
    assert!(
        line.contains("\"1GiB\"") && line.ends_with("# ./ringfence.toml:2"),
        "{line}"
    );
}

#[test]
fn check_reports_every_problem_and_ends_with_two() {
    let dir = Dir::new();
    assert!(
        dir.run(["config", "check"])
            .ok()
            .starts_with("ok: no configuration file")
    );
    dir.write("work/ringfence.toml", "[sandbox]\nmemry = '1g'\npids = 0\n");
    let checked = dir.run(["config", "check"]);
    assert_eq!(checked.status, 2);
    let errors: Vec<_> = checked
        .stderr
        .lines()
        .filter(|line| line.starts_with("error: "))
        .collect();
    assert_eq!(errors.len(), 2, "{checked:?}");
    assert!(
        checked
            .stderr
            .contains("./ringfence.toml:2: unknown key `sandbox.memry`; did you mean `sandbox.memory`?")
    );
}

#[test]
fn check_refuses_what_a_run_would_refuse() {
    let dir = Dir::new();
    dir.write(
        "config/ringfence/ringfence.toml",
        "[sandbox]\npython = '/no/such/python'\n",
    );
    dir.run(["config", "check"])
        .refused(2, "there is no interpreter at /no/such/python");
}

#[test]
fn a_bad_configuration_refuses_the_run() {
    let dir = Dir::new();
    dir.write("work/ringfence.json", "{\"sandbox\": {\"timeout\": 0}}");
    dir.run(["run", "-c", "print(1)"])
        .refused(2, "./ringfence.json:1: `sandbox.timeout`");
}

#[test]
fn a_hostile_project_is_refused_unless_named() {
    let dir = Dir::new();
    dir.write("work/ringfence.yaml", "sandbox:\n  pids: 9\n  passEnv: [HOME]\n");
    let refusal =
        "./ringfence.yaml:3: `sandbox.pass_env` may not be set by a project's own file: it would hand";
    dir.run(["run", "-c", "print(1)"]).refused(2, refusal);
    dir.run(["config", "check"]).refused(2, refusal);
    dir.run(["--config", "ringfence.yaml", "config", "check"]).ok();
}

#[test]
fn the_snippets_of_the_source_documents_are_good_in_a_project() {
    for (name, text) in [
        ("ringfence.yaml", include_str!("../snippets/execution-tools.yaml")),
        (
            "ringfence.yaml",
            include_str!("../snippets/execution-container.yaml"),
        ),
        ("ringfence.yaml", include_str!("../snippets/pyodide.yaml")),
        ("ringfence.toml", include_str!("../snippets/kernel-limits.toml")),
    ] {
        checked(name, text);
        let tree: Value = if name.ends_with("toml") {
            toml::from_str(text).unwrap()
        } else {
            serde_saphyr::from_str(text).unwrap()
        };
        checked("ringfence.toml", &toml::to_string(&tree).unwrap());
        // JSON text is YAML too.
        checked("ringfence.yaml", &tree.to_string());
        checked("ringfence.json", &tree.to_string());
    }
}

/// That `config check` accepts `text` in the working directory.
#[track_caller]
fn checked(name: &str, text: &str) {
    let dir = Dir::new();
    dir.write(&format!("work/{name}"), text);
    assert_eq!(dir.run(["config", "check"]).ok(), format!("ok: ./{name}\n"));
}

#[test]
fn schema_is_json_schema() {
    let dir = Dir::new();
    let schema = json(dir.run(["config", "schema"]).ok());
    assert_eq!(schema["$schema"], "https://json-schema.org/draft/2020-12/schema");
    assert!(
        dir.run(["config", "schema", "--markdown"])
            .ok()
            .starts_with("# Configuration")
    );
}

#[test]
fn a_variable_that_is_not_text_is_an_error() {
    use std::os::unix::ffi::OsStrExt;
    let dir = Dir::new();
    let mut command = dir.command(["config", "check"]);
    let checked = finish(
        command.env("SANDBOX_TYPE", std::ffi::OsStr::from_bytes(b"\xff")),
        b"",
    );
    checked.refused(2, "SANDBOX_TYPE: not UTF-8 text");
}

#[test]
fn a_socket_in_the_place_of_the_project_file_is_refused() {
    let dir = Dir::new();
    std::os::unix::net::UnixListener::bind(dir.path("work/ringfence.toml")).unwrap();
    dir.run(["config", "check"]).refused(2, "not a regular file");
}
