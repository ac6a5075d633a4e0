//! The key of a model's API: its sources, its absence, and its secrecy.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use serde_json::json;

use super::{IMPATIENT, KEY, asking, configured, was_asked};
use crate::providers::{FORMATS, Format, Provider, Reply};
use crate::support::{Output, finish};
use crate::tools::Tools;

fn with_variable(tools: &Tools, variable: &str, command: &str) -> Output {
    let arguments = json!({ "command": command }).to_string();
    let mut tool = tools.dir.command(["tool", "host_exec", &arguments]);
    finish(tool.env(variable, KEY).env("RUST_BACKTRACE", "1"), b"")
}

#[track_caller]
fn shows_the_key(format: Format, request: &str) {
    let header = match format {
        Format::Anthropic => format!("\r\nx-api-key: {KEY}\r\n"),
        Format::OpenAi => format!("\r\nauthorization: Bearer {KEY}\r\n"),
    };
    assert!(request.contains(&header), "{request}");
}

#[test]
fn it_comes_from_a_variable_or_a_file() {
    for format in FORMATS {
        let provider = Provider::saying(format, "0");
        let base = format!("http://127.0.0.1:{}", provider.port);
        let usual = match format {
            Format::Anthropic => "ANTHROPIC_API_KEY",
            Format::OpenAi => "OPENAI_API_KEY",
        };
        for (more, variable) in [("", usual), ("apiKeyEnv = 'OTHER_KEY'", "OTHER_KEY")] {
            let tools = Tools::new(&configured(format, &base, more));
            assert_eq!(with_variable(&tools, variable, "echo ran").ok(), "ran\n");
            shows_the_key(format, &provider.requests().pop().unwrap());
        }
        let tools = asking(&provider, format, "");
        tools.ask("host_exec", json!({"command": "echo ran"}));
        shows_the_key(format, &provider.requests().pop().unwrap());
        // A local API may need no key, if its owner configures this.
        let tools = Tools::new(&configured(format, &base, "apiKeyEnv = ''"));
        tools.ask("host_exec", json!({"command": "echo ran"}));
        assert!(!provider.requests().pop().unwrap().contains(KEY));
    }
}

#[test]
fn without_one_the_person_is_asked_and_told_what_to_do() {
    for format in FORMATS {
        let provider = Provider::saying(format, "0");
        let base = format!("http://127.0.0.1:{}", provider.port);
        let more = format!("apiKeyEnv = 'OTHER_KEY'\n{IMPATIENT}");
        let tools = Tools::new(&configured(format, &base, &more));
        let log = was_asked(&tools, "echo ran");
        assert!(
            log.contains("no score, its key is missing: the variable `OTHER_KEY` is not set"),
            "{log}"
        );
        assert_eq!(provider.requests(), [""; 0]);
        let checked = tools.dir.run(["config", "check"]);
        checked.ok();
        for words in ["cannot be asked", "`OTHER_KEY` is not set", "apiKeyFile"] {
            assert!(checked.stderr.contains(words), "{checked:?}");
        }
    }
}

#[test]
fn a_file_is_read_anew_for_each_question() {
    // A long-running server must notice a changed key, and a removed one.
    let provider = Provider::saying(Format::OpenAi, "0");
    let tools = asking(&provider, Format::OpenAi, IMPATIENT);
    let file = tools.dir.path("config/key");
    fs::set_permissions(&file, Permissions::from_mode(0o644)).unwrap();
    tools
        .dir
        .run(["tool", "host_exec", r#"{"command": "echo ran"}"#])
        .refused(2, "the file of its key is open to others (mode 644)");
    tools.dir.run(["config", "check"]).refused(2, "apiKeyFile");
    fs::remove_file(&file).unwrap();
    tools.dir.run(["config", "check"]).refused(2, "cannot be read");
    assert_eq!(provider.requests(), [""; 0]);
}

#[test]
fn what_can_never_work_is_refused_at_once() {
    for (more, words) in [
        ("model = 'mistral/small'", "must be `anthropic` or `openai`"),
        ("model = 'small'", "`provider/model`"),
        ("model = 'openai/a b'", "the model's name"),
        (
            "model = 'openai/a'\nbaseUrl = 'http://models.example.com/v1'",
            "plain http",
        ),
        (
            "model = 'openai/a'\nbaseUrl = 'https://me:pass@a.test/'",
            "user name or password",
        ),
        ("model = 'openai/a'\nbaseUrl = 'models'", "malformed"),
        ("model = 'openai/a'\ntimeoutMs = 60001", "expected at most 1m"),
        (
            "model = 'openai/a'\napiKeyEnv = 'sk-very-secret-0123456789'",
            "expected the name of a variable",
        ),
    ] {
        let config = format!("[hostExecution]\nenabled = true\n[hostExecution.preValidation]\n{more}");
        let tools = Tools::new(&config);
        for command in [
            &["config", "check"][..],
            &["tool", "host_exec", r#"{"command": "ls"}"#],
        ] {
            let refused = tools.dir.run(command);
            refused.refused(2, words);
            assert!(!refused.stderr.contains("secret"), "{refused:?}");
        }
    }
}

/// Returns every file below a directory that contains the key.
fn holders(directory: &Path) -> Vec<String> {
    let mut found = Vec::new();
    for entry in fs::read_dir(directory).unwrap().flatten() {
        let path = entry.path();
        if path.is_dir() {
            found.extend(holders(&path));
        } else if let Ok(bytes) = fs::read(&path)
            && bytes.windows(KEY.len()).any(|window| window == KEY.as_bytes())
        {
            found.push(entry.file_name().to_string_lossy().into_owned());
        }
    }
    found
}

#[test]
fn nobody_but_the_server_sees_it() {
    for format in FORMATS {
        // An API that echoes the key in every possible way.
        let provider = Provider::new(move |request| {
            let aloud = format!("{KEY} {}", format.says("0"));
            match request {
                broken if broken.contains("echo b") => Reply::Whole(aloud),
                failed if failed.contains("echo f") => {
                    Reply::with(&format!("401 {KEY}\r\nX-Key: {KEY}"), &aloud)
                }
                wrong if wrong.contains("echo w") => Reply::body(&format.says(KEY)),
                _ => Reply::body(&format.says("0")),
            }
        });
        let base = format!("http://127.0.0.1:{}", provider.port);
        let tools = Tools::new(&configured(
            format,
            &base,
            &format!("apiKeyEnv = 'MODEL_KEY'\n{IMPATIENT}"),
        ));
        let mut seen = Vec::new();
        for command in ["echo b", "echo f", "echo w", "echo good", "echo \"[$MODEL_KEY]\""] {
            seen.push(with_variable(&tools, "MODEL_KEY", command));
        }
        assert!(provider.requests().iter().all(|request| request.contains(KEY)));
        assert_eq!(seen[3].ok(), "good\n");
        // A command on the host does not inherit it.
        assert_eq!(seen[4].ok(), "[]\n");
        for args in [
            &["config", "show"][..],
            &["config", "show", "--json"],
            &["config", "check"],
            &["audit", "tail", "--json"],
            &["approvals", "ls", "--json"],
            &["artifacts", "ls"],
        ] {
            let mut command = tools.dir.command(args);
            seen.push(finish(command.env("MODEL_KEY", KEY), b""));
        }
        for output in &seen {
            assert!(
                !output.stdout.contains(KEY) && !output.stderr.contains(KEY),
                "{output:?}"
            );
        }
        assert_eq!(holders(&tools.dir.path("")), [""; 0]);
    }
}
