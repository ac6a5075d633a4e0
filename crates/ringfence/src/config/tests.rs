//! Tests of the layers: order, provenance, rejections, and the snippets of the source documents.

use std::fs;

use ringfence_exec::trust::NamedPaths;
use serde_json::{Value, json};

use super::layers::{Loaded, Sources, load};
use super::problem::Problems;
use crate::env::Environment;

/// A system, a user and a project directory.
struct Dirs(tempfile::TempDir);

impl Dirs {
    fn new() -> Self {
        let dirs = Self(tempfile::tempdir().unwrap());
        for name in ["system", "user", "project"] {
            fs::create_dir(dirs.0.path().join(name)).unwrap();
        }
        dirs
    }
    fn with(self, name: &str, text: &str) -> Self {
        fs::write(self.0.path().join(name), text).unwrap();
        self
    }
    fn path(&self, name: &str) -> std::path::PathBuf {
        self.0.path().join(name)
    }
    fn load(&self, environment: &Environment, explicit: Option<&str>) -> Result<Loaded, Problems> {
        let loaded = load(&Sources {
            system_dir: self.path("system"),
            user_dir: Some(self.path("user")),
            project_dir: self.path("project"),
            explicit: explicit.map(|name| self.path(name)),
            environment,
            named: NamedPaths::default(),
        })?;
        match loaded.problems.is_empty() {
            true => Ok(loaded),
            false => Err(Problems(loaded.problems)),
        }
    }
}

fn value(loaded: &Loaded, key: &str) -> (Value, String) {
    let (_, value, origin) = loaded
        .values()
        .into_iter()
        .find(|(name, ..)| name == key)
        .unwrap();
    (value, origin.to_string())
}

/// Returns the single problem of a user file.
fn problem(name: &str, text: &str) -> String {
    let dirs = Dirs::new().with(&format!("user/{name}"), text);
    let Problems(problems) = dirs.load(&Environment::default(), None).unwrap_err();
    assert_eq!(problems.len(), 1, "{problems:?}");
    problems[0]
        .message
        .replace(&format!("{}/", dirs.path("user").display()), "")
}

/// Returns the single problem of a set of variables.
fn variable_problem<const N: usize>(variables: [(&str, &str); N]) -> String {
    let Problems(problems) = Dirs::new().load(&Environment::from(variables), None).unwrap_err();
    assert_eq!(problems.len(), 1, "{problems:?}");
    problems[0].message.clone()
}

#[test]
fn without_files_the_defaults_hold() {
    let loaded = Dirs::new().load(&Environment::default(), None).unwrap();
    assert_eq!(
        value(&loaded, "sandbox.memory"),
        (json!("256MiB"), "built-in".to_owned())
    );
    assert_eq!(
        value(&loaded, "sandbox.timeout"),
        (json!("30s"), "built-in".to_owned())
    );
    assert!(loaded.files.is_empty());
}

#[test]
fn later_layers_win_key_by_key() {
    let dirs = Dirs::new()
        .with(
            "system/ringfence.toml",
            "[sandbox]\nmemory = '40m'\npids = 1\ncpus = 1\ntimeout = 1\ndisk = '1m'\n",
        )
        .with(
            "user/ringfence.yaml",
            "sandbox:\n  memory: 50m\n  pids: 2\n  cpus: 2\n  timeout: 2\n",
        )
        .with(
            "project/ringfence.json",
            "{\"sandbox\": {\"memory\": \"60m\",\n \"pids\": 3,\n \"cpus\": 3}}",
        );
    let environment = Environment::from([
        ("RINGFENCE_SANDBOX_MEMORY", "70m"),
        ("RINGFENCE_SANDBOX_PIDS", "4"),
    ]);
    let loaded = dirs.load(&environment, None).unwrap();
    let at = |file: &str| dirs.path(file).display().to_string();
    assert_eq!(
        value(&loaded, "sandbox.memory"),
        (json!("70MiB"), "environment RINGFENCE_SANDBOX_MEMORY".to_owned())
    );
    assert_eq!(
        value(&loaded, "sandbox.pids"),
        (json!(4), "environment RINGFENCE_SANDBOX_PIDS".to_owned())
    );
    assert_eq!(
        value(&loaded, "sandbox.cpus"),
        (json!(3.0), at("project/ringfence.json:3"))
    );
    assert_eq!(
        value(&loaded, "sandbox.timeout"),
        (json!("2s"), at("user/ringfence.yaml:5"))
    );
    assert_eq!(
        value(&loaded, "sandbox.disk"),
        (json!("1MiB"), at("system/ringfence.toml:6"))
    );
    assert_eq!(
        value(&loaded, "sandbox.max_output"),
        (json!("10KiB"), "built-in".to_owned())
    );
    assert_eq!(loaded.files.len(), 3);
}

#[test]
fn an_explicit_file_takes_the_place_of_the_three() {
    let dirs = Dirs::new()
        .with("user/ringfence.toml", "nonsense = 1")
        .with("project/other.yaml", "sandbox: {python: /usr/bin/python3}");
    let loaded = dirs
        .load(&Environment::default(), Some("project/other.yaml"))
        .unwrap();
    assert_eq!(value(&loaded, "sandbox.python").0, json!("/usr/bin/python3"));
    assert!(dirs.load(&Environment::default(), Some("missing.toml")).is_err());
}

#[test]
fn mistyped_keys_are_named_with_file_line_and_suggestion() {
    assert_eq!(
        problem("ringfence.toml", "[sandbox]\npids = 3\nmemry = '1g'\n"),
        "ringfence.toml:3: unknown key `sandbox.memry`; did you mean `sandbox.memory`?"
    );
    assert_eq!(
        problem(
            "ringfence.yaml",
            "hostExecution:\n  preValidation:\n    riskTreshold: 5\n"
        ),
        "ringfence.yaml:3: unknown key `hostExecution.preValidation.riskTreshold`; \
         did you mean `hostExecution.preValidation.riskThreshold`?"
    );
    assert_eq!(
        problem("ringfence.json", "{\n\"timeout\": 5}"),
        "ringfence.json:2: unknown key `timeout`; did you mean `sandbox.timeout`?"
    );
}

#[test]
fn bad_values_name_the_key_the_place_and_what_was_expected() {
    for (text, expected) in [
        (
            "[sandbox]\nmemory = '10 parsecs'",
            "ringfence.toml:2: `sandbox.memory`: `10 parsecs` is not a size; write it like",
        ),
        (
            "[sandbox]\ntimeout = 0",
            "ringfence.toml:2: `sandbox.timeout`: timeout `0` is out of range; it must be between",
        ),
        ("[sandbox]\ntimeout = -5", "out of range"),
        (
            "[sandbox]\nmemory = 0",
            "`sandbox.memory`: memory `0` is out of range; it must be between 16MiB and",
        ),
        (
            "[sandbox]\ndisk = '1KiB'",
            "`sandbox.disk`: disk `1KiB` is out of range; it must be between 64KiB and",
        ),
        (
            "[sandbox]\nmemory = true",
            "`sandbox.memory`: expected a number, or a text with a unit, found true",
        ),
        (
            "[sandbox]\ntype = 'vm'",
            "`sandbox.type`: `vm` is not one of `local`",
        ),
        (
            "sandbox = 5",
            "ringfence.toml:1: `sandbox` is a section, not a value",
        ),
        (
            "[hostExecution.preValidation]\nriskThreshold = 11",
            "must be between 0 and 10",
        ),
        (
            "[permissions.tool_limits]\nrun_code_timeout_secs = 0",
            "`permissions.tool_limits.run_code_timeout_secs`: timeout",
        ),
        ("[sandbox]\nmax_output = 1\nmaxOutput = 2", "is set twice"),
        ("[codeExecution]\nvolumeMounts = ['/a']", "is not a mount"),
        (
            "[codeExecution]\nvolumeMounts = [{hostPath = '/a', guest = '/b'}]",
            "expected `HOST:GUEST[:ro|rw]`, or `hostPath`, `containerPath`",
        ),
        (
            "[codeExecution]\nvolumeMounts = [{hostPath = '/a', containerPath = '/etc'}]",
            "`/etc` cannot be mounted on",
        ),
        (
            "[sandbox]\npass_env = ['A=b']",
            "is not a valid name of an environment variable",
        ),
    ] {
        let message = problem("ringfence.toml", text);
        assert!(message.contains(expected), "{text}: {message}");
    }
}

#[test]
fn all_problems_are_reported_at_once() {
    let dirs = Dirs::new()
        .with("system/ringfence.toml", "[sandbox]\nmemory = 'x'\npids = 0\n")
        .with("user/ringfence.json", "{")
        .with("project/ringfence.yaml", "a: 1");
    let Problems(problems) = dirs
        .load(&Environment::from([("SANDBOX_TYPE", "vm")]), None)
        .unwrap_err();
    assert_eq!(problems.len(), 5, "{problems:?}");
}

#[test]
fn what_the_fence_cannot_be_asked_for_does_not_exist() {
    for text in [
        "[codeExecution]\nprivileged = true",
        "[codeExecution]\nnetwork = 'host'",
        "[sandbox]\nunfenced = true",
    ] {
        assert!(problem("ringfence.toml", text).contains("unknown key"), "{text}");
    }
}

#[test]
fn a_hostile_project_cannot_weaken_the_fence() {
    for (key, text) in [
        ("sandbox.isolation", "sandbox: {\nisolation: best-effort}"),
        ("sandbox.isolation", "sandbox: {\nisolation: best_effort}"),
        ("sandbox.python", "sandbox: {\npython: ./evil/python}"),
        ("sandbox.python", "sandbox: {\npython: bash}"),
        ("sandbox.javascript", "sandbox: {\njavascript: /tmp/evil}"),
        (
            "sandbox.pass_env",
            "sandbox: {\npassEnv: [AWS_SECRET_ACCESS_KEY]}",
        ),
        ("sandbox.blocked_imports", "sandbox: {\nblocked_imports: []}"),
        ("artifacts.dir", "artifacts: {\ndir: /home/ann/.ssh}"),
        ("artifacts.keep", "artifacts: {\nkeep: 0}"),
    ] {
        let dirs = Dirs::new().with("project/ringfence.yaml", text);
        let Problems(problems) = dirs.load(&Environment::default(), None).unwrap_err();
        assert_eq!(problems.len(), 1, "{text}: {problems:?}");
        let place = dirs.path("project/ringfence.yaml").display().to_string();
        let expected = format!("{place}:2: `{key}` may not be set by a project's own file: ");
        assert!(problems[0].message.starts_with(&expected), "{text}: {problems:?}");
        assert!(problems[0].hint.contains("--config"), "{text}");
        // As the user's own configuration the same text is valid.
        assert!(
            dirs.load(&Environment::default(), Some("project/ringfence.yaml"))
                .is_ok(),
            "{text}"
        );
    }
}

#[test]
fn a_project_may_not_undo_what_the_user_asked_for() {
    let dirs = Dirs::new()
        .with(
            "user/ringfence.toml",
            "[sandbox]\ntype = 'docker'\nisolation = 'required'\nblock_dangerous_imports = true\n",
        )
        .with(
            "project/ringfence.toml",
            "[sandbox]\ntype = 'local'\nisolation = 'auto'\nblock_dangerous_imports = false\n",
        );
    let Problems(problems) = dirs.load(&Environment::default(), None).unwrap_err();
    assert_eq!(problems.len(), 3, "{problems:?}");
}

#[test]
fn the_specifications_variables_are_read() {
    let loaded = Dirs::new()
        .load(
            &Environment::from([
                ("SANDBOX_TYPE", "docker"),
                ("SANDBOX_TIMEOUT_SEC", "7"),
                ("SANDBOX_MAX_OUTPUT_KB", "20"),
                ("SANDBOX_BLOCK_DANGEROUS_IMPORTS", "True"),
                ("SANDBOX_STORE_CODE", "never"),
                ("DOCKER_IMAGE", "antigravity-sandbox:latest"),
                ("DOCKER_NETWORK_ENABLED", "true"),
                ("DOCKER_CPU_LIMIT", "0.25"),
                ("DOCKER_MEMORY_LIMIT", "512m"),
            ]),
            None,
        )
        .unwrap();
    for (key, expected) in [
        ("sandbox.type", json!("docker")),
        ("sandbox.timeout", json!("7s")),
        ("sandbox.max_output", json!("20KiB")),
        ("sandbox.block_dangerous_imports", json!(true)),
        ("artifacts.store", json!("never")),
        ("sandbox.docker.image", json!("antigravity-sandbox:latest")),
        ("sandbox.docker.network_enabled", json!(true)),
        ("sandbox.docker.cpu_limit", json!(0.25)),
        ("sandbox.docker.memory_limit", json!("512MiB")),
    ] {
        assert_eq!(value(&loaded, key).0, expected, "{key}");
    }
}

#[test]
fn the_specifications_defaults_hold() {
    let loaded = Dirs::new()
        .load(&Environment::from([("RINGFENCE_LOG", "x")]), None)
        .unwrap();
    for (key, expected) in [
        ("sandbox.type", json!("local")),
        ("sandbox.max_output", json!("10KiB")),
        ("sandbox.block_dangerous_imports", json!(false)),
        ("artifacts.store", json!("on_error")),
        ("sandbox.docker.network_enabled", json!(false)),
        ("sandbox.docker.cpu_limit", json!(0.5)),
        ("sandbox.docker.memory_limit", json!("256MiB")),
    ] {
        assert_eq!(value(&loaded, key).0, expected, "{key}");
    }
}

#[test]
fn any_key_has_a_variable() {
    let loaded = Dirs::new()
        .load(
            &Environment::from([
                ("RINGFENCE_HOST_EXECUTION_ALLOW_LIST", "ls *, df -h"),
                ("RINGFENCE_CODE_EXECUTION_KEEP_ALIVE", "false"),
                ("RINGFENCE_PERMISSIONS_TOOL_LIMITS_HTTP_FETCH_TIMEOUT_SECS", "9"),
                ("RINGFENCE_TEMPLATES_CODE_EXECUTOR_MAX_PIDS", "12"),
                ("RINGFENCE_SANDBOX_TIMEOUT", "3s"),
                ("SANDBOX_TIMEOUT_SEC", "8"),
                ("RINGFENCE_SANDBOX_CPUS", ""),
            ]),
            None,
        )
        .unwrap();
    assert_eq!(
        value(&loaded, "hostExecution.allowList").0,
        json!(["ls *", "df -h"])
    );
    assert_eq!(value(&loaded, "codeExecution.keepAlive").0, json!(false));
    assert_eq!(
        value(&loaded, "permissions.tool_limits.http_fetch_timeout_secs").0,
        json!(9.0)
    );
    assert_eq!(value(&loaded, "templates.code-executor.max_pids").0, json!(12));
    assert_eq!(value(&loaded, "sandbox.timeout").0, json!("3s"));
    assert_eq!(value(&loaded, "sandbox.cpus").1, "built-in");
}

#[test]
fn bad_variables_are_named() {
    assert!(
        variable_problem([("SANDBOX_TIMEOUT_SEC", "soon")])
            .starts_with("SANDBOX_TIMEOUT_SEC: `sandbox.timeout`: `soon` is not")
    );
    assert!(variable_problem([("SANDBOX_MAX_OUTPUT_KB", "10KB")]).contains("not a number of kilobytes"));
    assert!(variable_problem([("DOCKER_NETWORK_ENABLED", "perhaps")]).contains("neither `true` nor `false`"));
    assert!(variable_problem([("RINGFENCE_SANDBOX_PIDS", "0")]).contains("must be between 1 and"));
    assert_eq!(
        variable_problem([("RINGFENCE_SANDBOX_MEMRY", "1g")]),
        "unknown environment variable RINGFENCE_SANDBOX_MEMRY; did you mean RINGFENCE_SANDBOX_MEMORY?"
    );
    assert!(variable_problem([("RINGFENCE_SANDBX_MEMORY", "1g")]).contains("did you mean"));
    assert!(
        variable_problem([("RINGFENCE_SANDBOX_FROBNICATE", "1")]).starts_with("unknown environment variable")
    );
}

#[test]
fn another_programs_variables_are_not_our_business() {
    let environment = Environment::from([("RINGFENCE_LOG", "debug"), ("RINGFENCE_RELEASE_NUMBER", "7")]);
    assert!(Dirs::new().load(&environment, None).is_ok());
}

/// The snippet in the specification of the execution tools.
const X: &str = include_str!("../../tests/snippets/execution-tools.yaml");

/// The snippet in the plan of the Pyodide sandbox.
const P: &str = include_str!("../../tests/snippets/pyodide.yaml");

/// The two snippets in the plan of the kernel's limits.
const K: &str = include_str!("../../tests/snippets/kernel-limits.toml");

/// The keys named in the text of the specification of the execution tools.
const X_CONTAINER: &str = include_str!("../../tests/snippets/execution-container.yaml");

/// Loads `tree` in each format, in each spelling, from the user's and from the project's directory, and
/// returns the effective values, which must be the same everywhere except for ignored settings of a project's
/// file.
fn in_every_format(tree: &Value) -> Value {
    let spellings = [
        tree.clone(),
        renamed(tree, &super::keys::snake),
        renamed(tree, &camel),
    ];
    let mut seen: Vec<Value> = Vec::new();
    for tree in &spellings {
        let json = serde_json::to_string_pretty(tree).unwrap();
        let toml = toml::to_string(tree).unwrap();
        // JSON text is YAML too; block style is covered by the snippets that are YAML as printed.
        for (format, text) in [("json", &json), ("yaml", &json), ("toml", &toml)] {
            for dir in ["user", "project"] {
                let name = format!("{dir}/ringfence.{format}");
                let dirs = Dirs::new().with(&name, text);
                let loaded = dirs
                    .load(&Environment::default(), None)
                    .unwrap_or_else(|problems| panic!("{name}: {problems}"));
                assert!(dir == "project" || loaded.passed_over.is_empty());
                if loaded.passed_over.is_empty() {
                    seen.push(serde_json::to_value(loaded.config).unwrap());
                }
            }
        }
    }
    assert!(seen.windows(2).all(|pair| pair[0] == pair[1]));
    seen.remove(0)
}

fn renamed(tree: &Value, spell: &dyn Fn(&str) -> String) -> Value {
    match tree {
        Value::Object(fields) => fields
            .iter()
            .map(|(name, value)| (spell(name), renamed(value, spell)))
            .collect(),
        other => other.clone(),
    }
}

fn camel(name: &str) -> String {
    let mut words = name.split('_');
    let first = words.next().unwrap_or_default().to_owned();
    words.fold(first, |name, word| {
        format!("{name}{}{}", word[..1].to_uppercase(), &word[1..])
    })
}

fn as_printed(name: &str, text: &str) {
    for dir in ["user", "project"] {
        let dirs = Dirs::new().with(&format!("{dir}/{name}"), text);
        assert!(dirs.load(&Environment::default(), None).is_ok(), "{dir}/{name}");
    }
}

#[test]
fn the_snippet_of_the_execution_tools_loads_unchanged() {
    as_printed("ringfence.yaml", X);
    let config = in_every_format(&serde_saphyr::from_str(X).unwrap());
    assert_eq!(config["hostExecution"]["allowList"][6], "ls *");
    assert_eq!(
        config["hostExecution"]["preValidation"]["model"],
        "anthropic/claude-haiku"
    );
    let config = in_every_format(&serde_saphyr::from_str(X_CONTAINER).unwrap());
    assert_eq!(config["codeExecution"]["allowNetwork"], true);
    assert_eq!(config["codeExecution"]["volumeMounts"][0], "/srv/data:/data:ro");
}

#[test]
fn the_snippet_of_the_pyodide_sandbox_loads_unchanged() {
    as_printed("ringfence.yaml", P);
    let config = in_every_format(&serde_saphyr::from_str(P).unwrap());
    assert_eq!(config["skills"]["path"], "./skills");
    assert_eq!(config["skills"]["sandbox"]["timeout_seconds"], 5.0);
}

#[test]
fn the_snippets_of_the_kernels_limits_load_unchanged() {
    as_printed("ringfence.toml", K);
    let config = in_every_format(&toml::from_str(K).unwrap());
    assert_eq!(config["permissions"]["filesystem"]["user_scope"], "user");
    assert_eq!(config["permissions"]["tool_limits"]["max_output_bytes"], "1MiB");
}

#[test]
fn a_projects_word_about_permissions_is_passed_over_where_it_would_give_more() {
    let dirs = Dirs::new().with("project/ringfence.toml", K);
    let loaded = dirs.load(&Environment::default(), None).unwrap();
    assert_eq!(value(&loaded, "permissions.shell.runner").0, json!("fenced"));
    let place = dirs.path("project/ringfence.toml").display().to_string();
    let [told] = &loaded.passed_over[..] else {
        panic!("{:?}", loaded.passed_over)
    };
    assert!(told.starts_with(&format!("{place}:")), "{told}");
    assert!(
        told.contains("`permissions.shell.runner` does not count"),
        "{told}"
    );
    let trusted = dirs.load(&Environment::default(), Some("project/ringfence.toml"));
    assert_eq!(
        value(&trusted.unwrap(), "permissions.shell.runner").0,
        json!("host")
    );
}

#[test]
fn what_the_specifications_variables_say_may_stand_in_a_file() {
    let config = in_every_format(&json!({
        "sandbox": {
            "type": "local", "timeout": 30, "max_output": "10KiB", "block_dangerous_imports": false,
            "docker": {
                "image": "antigravity-sandbox:latest", "network_enabled": false,
                "cpu_limit": 0.5, "memory_limit": "256m",
            },
        },
        "artifacts": {"store": "on_error"},
    }));
    assert_eq!(config["sandbox"]["docker"]["image"], "antigravity-sandbox:latest");
}

#[test]
fn mounts_are_texts_or_objects() {
    let text = "[codeExecution]\nvolumeMounts = ['/a:/b', {hostPath = '/c', containerPath = '/d'}, \
                {host_path = '/e', container_path = '/f', read_only = false}]\n[templates.mine]\nplugin_name = 'x'\n";
    let loaded = Dirs::new().with("user/ringfence.toml", text);
    let loaded = loaded.load(&Environment::default(), None).unwrap();
    let expected = json!(["/a:/b:ro", "/c:/d:ro", "/e:/f:rw"]);
    assert_eq!(value(&loaded, "codeExecution.volumeMounts").0, expected);
    assert_eq!(value(&loaded, "templates.mine.plugin_name").0, json!("x"));
}

#[test]
fn templates_are_overridden_key_by_key_and_may_be_added() {
    let dirs = Dirs::new().with(
        "user/ringfence.toml",
        "[templates.code-executor]\nmemory_limit = '512MiB'\n[templates.mine]\nmax_duration = 1500\nseccomp_profile = 'strict'\noci_runtime = 'runsc'\n",
    );
    let loaded = dirs.load(&Environment::default(), None).unwrap();
    assert_eq!(
        value(&loaded, "templates.code-executor.memory_limit").0,
        json!("512MiB")
    );
    assert_eq!(value(&loaded, "templates.code-executor.max_pids").0, json!(100));
    assert_eq!(value(&loaded, "templates.mine.max_duration").0, json!("1500ms"));
    assert_eq!(value(&loaded, "templates.mine.network_mode").0, json!("none"));
    assert_eq!(value(&loaded, "templates.mine.oci_runtime").0, json!("runsc"));
    assert_eq!(
        value(&loaded, "templates.code-executor.oci_runtime").0,
        json!("default")
    );
}

#[test]
fn a_wrong_value_in_a_template_is_named_with_what_was_expected() {
    let check = |line: &str, key: &str, expected: &str| {
        let text = format!("[templates.code-executor]\n{line}\n");
        let dirs = Dirs::new().with("user/ringfence.toml", &text);
        let Problems(problems) = dirs.load(&Environment::default(), None).unwrap_err();
        let message = &problems[0].message;
        assert!(message.contains(key) && message.contains(expected), "{message}");
    };
    check(
        "memory_limit = 'much'",
        "templates.code-executor.memory_limit",
        "256MiB",
    );
    check("cpu_limit = 0", "templates.code-executor.cpu_limit", "0");
    check(
        "seccomp_profile = 'none'",
        "templates.code-executor.seccomp_profile",
        "standard-net",
    );
    check(
        "oci_runtime = 'kata'",
        "templates.code-executor.oci_runtime",
        "runsc",
    );
}

#[test]
fn a_file_that_is_not_there_or_not_text_is_named() {
    let dirs = Dirs::new();
    fs::write(dirs.path("user/ringfence.toml"), b"a = '\xff'").unwrap();
    let Problems(problems) = dirs.load(&Environment::default(), None).unwrap_err();
    assert!(
        problems[0].message.contains("ringfence.toml: cannot be read"),
        "{problems:?}"
    );
}
