//! Tests of `ringfence config`.

use serde_json::Value;

use crate::support::{Dir, entries, finish, start};

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
        (
            "ringfence.yaml",
            include_str!("../../../ringfence/tests/snippets/execution-tools.yaml"),
        ),
        (
            "ringfence.yaml",
            include_str!("../../../ringfence/tests/snippets/execution-container.yaml"),
        ),
        (
            "ringfence.yaml",
            include_str!("../../../ringfence/tests/snippets/pyodide.yaml"),
        ),
        (
            "ringfence.toml",
            include_str!("../../../ringfence/tests/snippets/kernel-limits.toml"),
        ),
    ] {
        checked(name, text);
        let tree: Value = if name.ends_with("toml") {
            toml::from_str(text).unwrap()
        } else {
            serde_saphyr::from_str(text).unwrap()
        };
        checked("ringfence.toml", &toml::to_string(&tree).unwrap());
        // JSON text is valid YAML.
        checked("ringfence.yaml", &tree.to_string());
        checked("ringfence.json", &tree.to_string());
    }
}

/// Asserts that `config check` accepts `text` in the working directory.
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

/// Invalid user configurations: text, and the error of every command after the file name.
const UNUSABLE: &[(&str, &str)] = &[
    (
        "[permissions.tool_limits]\nrun_cod_timeout_secs = 5",
        ":2: unknown key `permissions.tool_limits.run_cod_timeout_secs`; did you mean",
    ),
    (
        "[permissions]\ndenied_tools = ['shel']",
        ":2: `permissions.denied_tools`: expected the name of a tool, found `shel`; did you mean `shell`?",
    ),
    (
        "[permissions.filesystem]\nuser_scope = 'user'\nuser_root = 'files'",
        ":3: `permissions.filesystem.user_root`: the root of user files `files` needs `{user_id}`",
    ),
    (
        "[codeExecution]\nvolumeMounts = ['SOCKET:/docker.sock']",
        ":2: `codeExecution.volumeMounts`: `SOCKET:/docker.sock:ro`: refusing to show",
    ),
    (
        "[codeExecution]\nvolumeMounts = ['/proc:/host']",
        ":2: `codeExecution.volumeMounts`: `/proc:/host:ro`: refusing to show",
    ),
    (
        "[egress]\nallowed_hosts = ['good.test', 'http://bad.test']",
        ":2: `egress.allowed_hosts`: ",
    ),
    (
        "[[egress.inject]]\nhost = 'a.test'\nheader = 'X-Key'",
        ":1: `egress.inject`: for `a.test`: set exactly one of `value_env` and `value_file`",
    ),
    (
        "[skills]\npath = '/dev/null'",
        ":2: `skills.path`: expected a directory of skill files, found /dev/null: ",
    ),
    (
        "[skills.servers.files]\nfence = 'fenced'\nenv = ['A']",
        ":2: `skills.servers.files`: it has neither `command` nor `url`",
    ),
    (
        "[templates.mine]\nimage = 'No Image'",
        ":2: `templates.mine.image`: ",
    ),
    (
        "[templates.mine]\nseccomp_profile = 'loose'",
        ":2: `templates.mine.seccomp_profile`: ",
    ),
    (
        "[sandbox.docker]\nmemory_limit = 256",
        ":2: `sandbox.docker.memory_limit`: expected memory between 16MiB and 64TiB, found `256`, which is 256 bytes; did you \
         mean `256m`?",
    ),
    ("[sandbox]\ntimeout = '5 parsecs'", ":2: `sandbox.timeout`: "),
    (
        "[sandbox]\npython = '/no/such/python'",
        ":2: `sandbox.python`: expected a program; there is no interpreter at /no/such/python",
    ),
    ("[gateway]\nchats = ['no chat']", ":2: `gateway.chats`: "),
    (
        "[gateway.discord]\ntoken_env = 'not.a.name'",
        ":2: `gateway.discord.token_env`: expected the name of an environment variable",
    ),
    (
        "[hostExecution.preValidation]\nmodel = 'nothing'",
        ":2: `hostExecution.preValidation.model`: ",
    ),
    (
        "[engine]\nmax_concurrent = 0",
        ":2: `engine.max_concurrent`: expected 1 to 4096, found 0",
    ),
];

#[test]
fn what_cannot_be_used_is_the_same_error_in_every_command() {
    for (text, expected) in UNUSABLE {
        let dir = Dir::new();
        let socket = dir.path("docker.sock");
        let _listening = std::os::unix::net::UnixListener::bind(&socket).unwrap();
        let here = |text: &str| text.replace("SOCKET", socket.to_str().unwrap());
        let file = dir.write("config/ringfence/ringfence.toml", here(text));
        let expected = format!("error: {}{}", file.display(), here(expected));
        let mut told = Vec::new();
        for arguments in [
            &["config", "check"][..],
            &["serve"],
            &["mcp"],
            &["tool", "run_code", "{\"code\": \"print(1)\"}"],
            &["run", "-c", "print(1)"],
            &["doctor"],
            &["policy", "check", "--", "ls"],
        ] {
            let output = refusal(&mut dir.command(arguments));
            assert!(
                output.starts_with(&expected),
                "{arguments:?}\n{output}\n{expected}"
            );
            told.push(output);
        }
        assert!(told.iter().all(|other| *other == told[0]), "{told:#?}");
        assert_eq!(entries(&dir.path("run")), Vec::<String>::new(), "{text}");
    }
}

/// Returns the error of a command that fails; kills one that does not.
fn refusal(command: &mut std::process::Command) -> String {
    use std::io::{BufRead, BufReader};
    let mut child = start(command);
    drop(child.stdin.take());
    let mut lines = BufReader::new(child.stderr.take().unwrap()).lines();
    let first = lines.next().map(Result::unwrap).unwrap_or_default();
    if !first.starts_with("error: ") {
        child.kill().unwrap();
        child.wait().unwrap();
        return format!("not refused: {first}");
    }
    let told: Vec<String> = lines.map(Result::unwrap).collect();
    let output = child.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(2), "{first}");
    assert_eq!(String::from_utf8_lossy(&output.stdout), "");
    assert!(
        told.len() == 1 && told[0].starts_with("hint: "),
        "{first}\n{told:?}"
    );
    [first, told[0].clone()].join("\n")
}

#[test]
fn variables_that_were_likely_meant_are_told() {
    let dir = Dir::new();
    for (name, value, meant) in [
        ("SANDBOX_TYP", "docker", "SANDBOX_TYPE"),
        ("SANDBOX_TIMEOUT", "5", "SANDBOX_TIMEOUT_SEC"),
        ("DOCKER_MEMORY", "64m", "DOCKER_MEMORY_LIMIT"),
    ] {
        let warning =
            format!("warning: the environment variable {name} sets nothing; did you mean {meant}?\n");
        for arguments in [
            &["run", "-c", "print(1)"][..],
            &["config", "check"],
            &["tool", "--list"],
        ] {
            let output = finish(dir.command(arguments).env(name, value), b"");
            output.ok();
            assert!(output.stderr.contains(&warning), "{arguments:?}: {output:?}");
        }
    }
    let output = finish(
        dir.command(["config", "check"])
            .env("SANDBOX_SUPPORTED_LANGUAGES", "python"),
        b"",
    );
    assert!(output.stderr.contains("are always supported"), "{output:?}");
    let output = finish(
        dir.command(["config", "check"]).env("RINGFENCE_TIMEOUT", "5"),
        b"",
    );
    assert!(
        output.stderr.contains("RINGFENCE_TIMEOUT sets nothing"),
        "{output:?}"
    );
    let output = finish(
        dir.command(["run", "-c", "print(1)"])
            .env("DOCKER_MEMORY_LIMIT", "256"),
        b"",
    );
    output.refused(
        2,
        "DOCKER_MEMORY_LIMIT: `sandbox.docker.memory_limit`: expected memory between",
    );
    assert!(output.stderr.contains("did you mean `256m`?"), "{output:?}");
}

#[test]
fn an_unfenced_shell_is_a_warning_of_the_check() {
    let dir = Dir::new();
    for (keys, expected) in [
        ("runner = 'host'", true),
        ("runner = 'container'\ncontainer_fallback = 'host'", true),
        ("runner = 'container'", false),
        ("runner = 'fenced'\ncontainer_fallback = 'host'", false),
    ] {
        dir.write(
            "config/ringfence/ringfence.toml",
            format!("[permissions.shell]\n{keys}\n"),
        );
        let checked = dir.run(["config", "check"]);
        checked.ok();
        let warned = checked
            .stderr
            .contains("no list, no risk score and no approval applies");
        assert_eq!(warned, expected, "{keys}: {checked:?}");
    }
}

#[test]
fn a_run_tells_which_settings_of_the_project_do_not_count() {
    let dir = Dir::new();
    dir.write("work/ringfence.toml", "[egress]\nallowed_hosts = ['a.test']\n");
    let run = dir.run(["run", "-c", "print(1)"]);
    assert_eq!(run.ok(), "1\n");
    assert!(
        run.stderr.contains("`egress.allowed_hosts` does not count"),
        "{run:?}"
    );
}

#[test]
fn the_check_takes_a_file() {
    let dir = Dir::new();
    dir.write("work/other.toml", "[sandbox]\nmemry = '1g'\n");
    dir.run(["config", "check"]).ok();
    dir.run(["config", "check", "other.toml"])
        .refused(2, "other.toml:2: unknown key `sandbox.memry`");
    dir.write("work/other.toml", "[sandbox]\nmemory = '1g'\n");
    assert_eq!(
        dir.run(["config", "check", "other.toml"]).ok(),
        "ok: other.toml\n"
    );
    assert_eq!(
        dir.run(["--config", "a.toml", "config", "check", "b.toml"])
            .status,
        2
    );
}
