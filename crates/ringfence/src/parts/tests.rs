//! Tests of valid configurations, and of mistakes with their positions.

use std::fs;
use std::path::PathBuf;

use ringfence_exec::trust::NamedPaths;
use ringfence_policy::Scope;
use ringfence_tools::skills::Policy;

use super::{Parts, validate};
use crate::config::{Problem, Problems, Sources, load};
use crate::env::Environment;
use crate::paths::Paths;

/// Returns the parts of a configuration file's text, or its problems without the file's directory.
fn parts_of(text: &str) -> Result<Parts, Vec<Problem>> {
    let dir = tempfile::tempdir().unwrap();
    let root = dir.path().canonicalize().unwrap();
    for name in ["state", "run", "skills", "data"] {
        fs::create_dir(root.join(name)).unwrap();
    }
    fs::write(root.join("text"), "text").unwrap();
    let place = root.to_str().unwrap();
    let file = root.join("ringfence.toml");
    fs::write(&file, text.replace("ROOT", place)).unwrap();
    let environment = Environment::from([
        ("XDG_STATE_HOME", format!("{place}/state").as_str()),
        ("XDG_RUNTIME_DIR", format!("{place}/run").as_str()),
        ("TOKEN", "secret-token"),
    ]);
    let loaded = load(&Sources {
        system_dir: PathBuf::from("/none"),
        user_dir: None,
        project_dir: PathBuf::from("/none"),
        explicit: Some(file),
        environment: &environment,
        named: NamedPaths::default(),
    });
    let named = NamedPaths::default();
    let parts = loaded.and_then(|loaded| validate(&loaded, &environment, &Paths::new(&environment), named));
    parts.map_err(|Problems(problems)| {
        let cut = |text: &str| text.replace(&format!("{place}/"), "");
        let cut = |problem: Problem| Problem::new(cut(&problem.message), problem.hint);
        problems.into_iter().map(cut).collect()
    })
}

/// Returns the message of the one mistake in `text`.
#[track_caller]
fn mistake(text: &str) -> String {
    let problems = parts_of(text).unwrap_err();
    assert_eq!(problems.len(), 1, "{problems:?}");
    problems[0].message.clone()
}

#[test]
fn the_defaults_can_be_used() {
    let parts = parts_of("").unwrap();
    assert_eq!(parts.warnings, Vec::<String>::new());
    assert_eq!(parts.tools.chat.as_str(), "local");
}

#[test]
fn every_mistake_is_told_with_its_line() {
    let problems = parts_of(
        "[egress]\nallowed_hosts = ['a b', 'good.test', 'http://x']\n[permissions]\ndenied_tools = ['shel']\n",
    )
    .unwrap_err();
    let messages: Vec<_> = problems.iter().map(|problem| problem.message.as_str()).collect();
    assert_eq!(messages.len(), 3, "{messages:?}");
    assert!(
        messages[0].starts_with("ringfence.toml:2: `egress.allowed_hosts`: "),
        "{messages:?}"
    );
    assert!(
        messages[1].starts_with("ringfence.toml:2: `egress.allowed_hosts`: "),
        "{messages:?}"
    );
    assert_eq!(
        messages[2],
        "ringfence.toml:4: `permissions.denied_tools`: expected the name of a tool, found `shel`; did you mean `shell`?"
    );
}

/// Texts with one mistake each, and the beginning of its message after the file name.
const MISTAKES: &[(&str, &str)] = &[
    (
        "[sandbox]\npreload = ['num py']",
        ":2: `sandbox.preload`: expected the name of a Python module such as `numpy`, found `num py`",
    ),
    (
        "[sandbox]\npython = 'bin/python'",
        ":2: `sandbox.python`: expected an absolute path or the bare name of a program, found the relative path `bin/python`",
    ),
    (
        "[sandbox]\njavascript = 'ROOT/text'",
        ":2: `sandbox.javascript`: expected a program; there is no interpreter at text: it is not executable",
    ),
    (
        "[engine]\nmax_concurrent = 0",
        ":2: `engine.max_concurrent`: expected 1 to 4096, found 0",
    ),
    (
        "[audit]\nmax_files = 1",
        ":2: `audit.max_files`: expected 2 to 500, found 1",
    ),
    (
        "[audit]\ndir = 'ROOT/text/x'",
        ":2: `audit.dir`: expected a directory, or one that can be made",
    ),
    (
        "[codeExecution]\nvolumeMounts = ['/run/no-such/docker.sock:/engine:ro']",
        ":2: `codeExecution.volumeMounts`: `/run/no-such/docker.sock:/engine:ro`: ",
    ),
    (
        "[codeExecution]\nvolumeMounts = ['ROOT/none/docker.sock:/engine:ro']",
        ":2: `codeExecution.volumeMounts`: ",
    ),
    (
        "[skills]\npath = 'ROOT/text'",
        ":2: `skills.path`: expected a directory of skill files, found text: it is not a directory",
    ),
    ("[skills]\npath = 'ROOT'", ":2: `skills.path`: refusing to show"),
    ("[skills]\nask = ['a b']", ":2: `skills.ask`: "),
    (
        "[skills.sandbox]\npackages = 'ROOT/none'",
        ":2: `skills.sandbox.packages`: expected a directory of wheels",
    ),
    (
        "[permissions.filesystem]\nuser_scope = 'user'\nuser_root = 'data/{user}'",
        ":3: `permissions.filesystem.user_root`: ",
    ),
    (
        "[permissions.filesystem]\nuser_root = '../x'",
        ":2: `permissions.filesystem.user_root`: ",
    ),
    (
        "[permissions.filesystem]\nuser_scope = 'user'\nuser_root = 'ROOT/state/ringfence/{user_id}'",
        ":3: `permissions.filesystem.user_root`: it would expose",
    ),
    (
        "[permissions.filesystem]\nprotected = ['/etc']",
        ":2: `permissions.filesystem.protected`: expected a name",
    ),
    (
        "[permissions.shell]\ncontainer_image = 'A B'",
        ":2: `permissions.shell.container_image`: ",
    ),
    (
        "[permissions.tool_limits]\nrun_cod_timeout_secs = 3",
        ":2: unknown key `permissions.tool_limits.run_cod_timeout_secs`; did you mean `permissions.tool_limits.run_code_timeout_secs`?",
    ),
    (
        "[codeExecution]\ndockerImage = ''",
        ":2: `codeExecution.dockerImage`: ",
    ),
    (
        "[codeExecution]\nvolumeMounts = ['/proc:/data']",
        ":2: `codeExecution.volumeMounts`: `/proc:/data:ro`: refusing to show",
    ),
    (
        "[codeExecution]\nvolumeMounts = ['ROOT/data:/a', 'ROOT/skills:/a']",
        ":2: `codeExecution.volumeMounts`: two mounts at /a",
    ),
    (
        "[codeExecution]\nmaxMemory = 256",
        ":2: `codeExecution.maxMemory`: expected memory between 16MiB and 64TiB, found `256`, which is 256 bytes; did you mean `256m`?",
    ),
    (
        "[templates.mine]\nmemory_limit = '256'",
        ":2: `templates.mine.memory_limit`: expected memory between",
    ),
    ("[templates.mine]\nimage = 'A B'", ":2: `templates.mine.image`: "),
    (
        "[templates.mine]\nallowed_hosts = ['a b']",
        ":2: `templates.mine.allowed_hosts`: ",
    ),
    (
        "[templates.ai-provider]\nallowed_hosts = ['api.example.com']",
        ":2: `templates.ai-provider.allowed_hosts`: the seccomp filter `strict` allows no network",
    ),
    ("[gateway]\nchats = ['a b']", ":2: `gateway.chats`: "),
    (
        "[gateway.telegram]\nbase_url = 'http://bots.example'",
        ":2: `gateway.telegram.base_url`: expected an https address",
    ),
    (
        "[gateway.telegram]\ntoken_file = 'ROOT/none'",
        ":2: `gateway.telegram.token_file`: expected a file with a token",
    ),
    (
        "[gateway.discord]\ngateway_url = 'x'",
        ":2: `gateway.discord.gateway_url`: ",
    ),
    (
        "[hostExecution]\nallowList = ['']",
        ":2: `hostExecution.allowList`: ",
    ),
    (
        "[hostExecution.preValidation]\nmodel = 'none'",
        ":2: `hostExecution.preValidation.model`: ",
    ),
    (
        "[hostExecution.preValidation]\ntimeoutMs = 120000",
        ":2: `hostExecution.preValidation.timeoutMs`: expected at most 1m, found 2m",
    ),
    (
        "[egress]\nca_file = 'ROOT/text'",
        ":2: `egress.ca_file`: expected a file of certificates",
    ),
    (
        "[[egress.inject]]\nhost = 'a.test'\nheader = 'A'",
        ":1: `egress.inject`: for `a.test`: set exactly one of",
    ),
];

#[test]
fn mistakes_of_values_hide_none_of_parts() {
    let text = "[hostExecution.preValidation]\nriskThreshold = 50\n[egress]\nallowed_hosts = ['http://x/']\n[sandbox]\nunknown = 1\n";
    let problems = parts_of(text).unwrap_err();
    let messages: Vec<&str> = problems.iter().map(|problem| problem.message.as_str()).collect();
    for part in ["riskThreshold", "egress.allowed_hosts", "sandbox.unknown"] {
        assert!(
            messages.iter().any(|message| message.contains(part)),
            "{part}: {messages:?}"
        );
    }
    let at = |(message, line): (&&str, i32)| message.starts_with(&format!("ringfence.toml:{line}: "));
    assert!(messages.iter().zip([2, 4, 6]).all(at), "{messages:?}");
}

#[test]
fn mistakes_name_key_line_and_what_was_found() {
    for (text, expected) in MISTAKES {
        let told = mistake(text);
        assert!(
            told.starts_with(&format!("ringfence.toml{expected}")),
            "{text}\n{told}"
        );
    }
}

#[test]
fn a_token_in_the_place_of_its_variables_name_is_not_repeated() {
    let told = mistake("[gateway.discord]\ntoken_env = 'MTk4NjIy.Cl2FMQ.ZnCjm1'");
    assert!(
        told.starts_with("ringfence.toml:2: `gateway.discord.token_env`: expected"),
        "{told}"
    );
    assert!(!told.contains("ZnCjm1"), "{told}");
}

#[test]
fn what_may_come_later_is_a_warning() {
    let parts = parts_of("[codeExecution]\nvolumeMounts = ['/none/such:/data']\n").unwrap();
    assert_eq!(parts.containers.mounts.len(), 1);
    assert!(
        parts.warnings[0].contains("`codeExecution.volumeMounts`: there is no /none/such"),
        "{parts:?}"
    );
    // The snippet of the source document, as it is printed there.
    for text in [
        "[skills]\npath = 'ROOT/none'",
        "[skills]\npath = './no-such-skills'",
    ] {
        let warnings = parts_of(text).unwrap().warnings;
        assert!(
            warnings[0].contains("`skills.path`: there is no directory"),
            "{warnings:?}"
        );
    }
    let strict = "[templates.mine]\nseccomp_profile = 'strict'\noci_runtime = 'runsc'\n";
    let warnings = parts_of(strict).unwrap().warnings;
    assert!(
        warnings[0].contains("`templates.mine.oci_runtime`: no sandbox can be created"),
        "{warnings:?}"
    );
}

#[test]
fn a_chat_that_no_gateway_serves_is_a_warning() {
    let check = |chats: &str, rest: &str, expected: Option<&str>| {
        let text = format!("[gateway]\nchats = [{chats}]\n{rest}");
        let warnings = parts_of(&text).unwrap().warnings;
        assert_eq!(warnings.len(), usize::from(expected.is_some()), "{warnings:?}");
        let words = expected.unwrap_or_default();
        assert!(
            warnings.iter().all(|warning| warning.contains(words)),
            "{warnings:?}"
        );
    };
    let telegram = "[gateway.telegram]\nchats = [1]\n";
    let meant =
        "ringfence.toml:2: `gateway.chats`: no gateway serves `telegrm_1`; did you mean `telegram_1`?";
    check("'telegrm_1'", telegram, Some(meant));
    check(
        "'telegram_7777777'",
        telegram,
        Some("no gateway serves `telegram_7777777`"),
    );
    check("'discord_5'", "", Some("no gateway serves `discord_5`"));
    check("'locl'", "", Some("did you mean `local`?"));
    check("'telegram_1'", telegram, None);
    check("'discord_5'", "[gateway.discord]\nchannels = [5]\n", None);
    check("'local', 'matrix_room'", "", None);
}

#[test]
fn a_pattern_that_matches_nothing_is_told() {
    let of = |list: &str| parts_of(&format!("[hostExecution]\n{list}\n"));
    let empty = mistake("[hostExecution]\nallowList = [\"'' x\"]\n");
    assert!(empty.contains("the program's name is empty"), "{empty}");
    let warnings = of("allowList = ['python *', 'ls *']").unwrap().warnings;
    assert_eq!(warnings.len(), 1, "{warnings:?}");
    assert!(
        warnings[0].contains("`hostExecution.allowList`: `python *`: it does not let `python x` run: a star"),
        "{warnings:?}"
    );
    let warnings = of("allowList = ['df -h']\nnotifyList = ['df -h']")
        .unwrap()
        .warnings;
    assert!(warnings[0].contains("`df -h` never notifies"), "{warnings:?}");
}

#[test]
fn lists_become_rules() {
    let rules = parts_of(
        "[skills]\nallow = ['Weather.*', 'ann: Notes.add', 'ann:Notes.list']\nnotify = ['Notes.*']\nask = ['Notes.delete']\n",
    )
    .unwrap()
    .skills
    .rules;
    let (ann, bob): (Scope, Scope) = ("ann".parse().unwrap(), "bob".parse().unwrap());
    for (scope, path, expected) in [
        (&ann, "Notes.add", true),
        (&ann, "Notes.list", true),
        (&ann, "Weather.today", false),
        (&bob, "Weather.today", true),
        (&bob, "Notes.add", false),
    ] {
        assert_eq!(rules.allows(scope, path), expected, "{path}");
    }
    assert_eq!(rules.policy("Notes.delete", Policy::Allow), Policy::Ask);
    for wrong in ["Notes", "a b:Notes.add", "ann:Notes"] {
        let told = mistake(&format!("[skills]\nallow = ['{wrong}']"));
        assert!(told.starts_with("ringfence.toml:2: `skills.allow`"), "{told}");
    }
}

#[test]
fn a_server_is_started_or_reached() {
    let server = |entry: &str| parts_of(&format!("[skills.servers.x-y]\n{entry}"));
    for entry in [
        "command = ['a', 'b']\nmounts = ['/usr:/b']\nhosts = ['a.test:1']",
        "command = ['a', '/b']\nenv = ['TOKEN', 'A=b', 'NONE']\nfence = 'host'\ndata = ['/b']",
        "url = 'http://a.test/mcp'\nheaders = [{header = 'X-Key', value_env = 'TOKEN'}]",
    ] {
        assert_eq!(server(entry).unwrap().skills.servers.len(), 1, "{entry}");
    }
    for (entry, told) in [
        ("command = []", "neither `command` nor `url`"),
        ("command = ['a']\nurl = 'http://a.test'", "both"),
        ("url = 'http://a.test'\nhosts = ['b.test']", "that is started"),
        ("url = 'ftp://a.test'", "scheme"),
        (
            "command = ['a']\nheaders = [{header = 'A', value_env = 'B'}]",
            "with a `url`",
        ),
        (
            "command = ['a']\nfence = 'host'\nhosts = ['a.test']",
            "every host",
        ),
        ("command = ['a']\ndata = ['/b']", "for a server on the host"),
        (
            "command = ['a']\nfence = 'host'\ndata = ['b']",
            "expected absolute paths, found `b`",
        ),
        ("command = ['a']\nenv = ['=x']", "`env`"),
        ("command = ['a']\nhosts = ['http://a.test']", "`hosts`"),
        ("command = ['a']\nmounts = ['x']", "`mounts`"),
        ("command = ['a']\nmounts = ['ROOT/state:/x']", "refusing to show"),
        (
            "url = 'http://a.test'\nheaders = [{header = 'A'}]",
            "exactly one of",
        ),
        (
            "url = 'http://a.test'\nheaders = [{header = 'Host', value_env = 'TOKEN'}]",
            "must not be sent in this header",
        ),
    ] {
        let problems = server(entry).unwrap_err();
        let message = &problems[0].message;
        assert!(
            message.starts_with("ringfence.toml:2: `skills.servers.x-y`: "),
            "{message}"
        );
        assert!(message.contains(told), "{entry}: {message}");
    }
}

#[test]
fn names_of_servers_are_those_of_python() {
    let two = "[skills.servers.a-b]\ncommand = ['x']\n[skills.servers.a_b]\ncommand = ['x']\n";
    assert!(mistake(two).contains("is `a_b` already"));
    let parts = parts_of("[skills.servers.my-files]\ncommand = ['x']\n").unwrap();
    assert_eq!(parts.skills.servers[0].name, "my_files");
}
