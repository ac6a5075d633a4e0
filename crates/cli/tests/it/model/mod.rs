//! Stage 3 of `host_exec`: a model scores the risk, over real HTTP in both formats.

mod answers;
mod injection;
mod keys;

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;

use serde_json::{Value, json};

use crate::host_exec::Asking;
use crate::providers::{FORMATS, Format, Provider, Reply};
use crate::tools::Tools;

const KEY: &str = "sk-very-secret-0123456789";

/// Creates a setting with this model API, and the key in a file. `more` is added to `preValidation`.
fn asking(provider: &Provider, format: Format, more: &str) -> Tools {
    let base = format!("http://127.0.0.1:{}/v1", provider.port);
    let tools = Tools::new("");
    let file = tools.dir.write("config/key", format!("{KEY}\n"));
    fs::set_permissions(&file, Permissions::from_mode(0o600)).unwrap();
    let key = format!("apiKeyFile = '{}'\n", file.display());
    tools.dir.write(
        "config/ringfence/ringfence.toml",
        configured(format, &base, &(key + more)),
    );
    tools
}

fn configured(format: Format, base: &str, more: &str) -> String {
    let model = format.model();
    format!(
        "[hostExecution]\nenabled = true\naskTimeoutMin = '{}'\n\
         [hostExecution.preValidation]\nmodel = '{model}'\nbaseUrl = '{base}'\n{more}\n",
        if more.contains("# impatient") {
            "100ms"
        } else {
            "1m"
        },
    )
}

/// Gives the person a short timeout.
const IMPATIENT: &str = "# impatient\n";

/// Returns the audit record of the last command.
fn judged(tools: &Tools) -> String {
    let log = tools.dir.run(["audit", "tail", "--json"]);
    let last: Value = serde_json::from_str(log.ok().lines().last().unwrap()).unwrap();
    last["judgement"].as_str().unwrap().to_owned()
}

/// Asserts that the command needed approval, and returns its record.
#[track_caller]
fn was_asked(tools: &Tools, command: &str) -> String {
    let refused = tools.refused("host_exec", json!({ "command": command }));
    assert_eq!(refused.kind, "approval_timeout", "{refused:?}");
    judged(tools)
}

#[test]
fn a_risk_below_the_threshold_runs_without_asking() {
    for format in FORMATS {
        let provider = Provider::saying(format, "4");
        let tools = asking(&provider, format, "");
        let ran = tools.ask("host_exec", json!({"command": "echo ran"}));
        assert_eq!(ran, json!("ran\n"));
        assert_eq!(
            judged(&tools),
            format!(
                "review (preValidation), risk at least 0; {}: 4; risk 4, threshold 5; let run by the model",
                format.model()
            )
        );
        // Scores are not cached: the program behind a name can change.
        tools.ask("host_exec", json!({"command": "echo ran"}));
        assert_eq!(provider.requests().len(), 2);
        // The outgoing connection is recorded.
        let log = tools.dir.run(["audit", "tail", "--json"]);
        let connected = format!("\"attempts\":[\"127.0.0.1:{} connected", provider.port);
        assert!(log.ok().contains(&connected), "{log:?}");
    }
}

#[test]
fn a_risk_at_or_above_the_threshold_is_asked_about() {
    for format in FORMATS {
        for (score, threshold) in [("5", 5), ("10", 5), ("3", 3), ("0", 0)] {
            let provider = Provider::saying(format, score);
            let tools = asking(&provider, format, &format!("riskThreshold = {threshold}"));
            let asking = Asking::of(&tools, "echo ran");
            let question = asking.question();
            assert_eq!(question["risk"].to_string(), score, "{question}");
            // With a threshold of 0 no score could let it run, so none is requested.
            let first = question["reasons"][0].as_str().unwrap();
            let said = format!("the model {} scores the risk {score} of 10", format.model());
            assert_eq!(first == said, threshold > 0, "{question}");
            asking.answer("deny");
            assert_eq!(asking.end()["error"]["type"], "rejected");
            let log = judged(&tools);
            let end = format!("; risk {score}, threshold {threshold}; rejected by ");
            assert!(log.contains(&end), "{log}");
        }
    }
}

#[test]
fn a_person_says_yes_where_the_model_does_not() {
    let provider = Provider::saying(Format::OpenAi, "9");
    let tools = asking(&provider, Format::OpenAi, "");
    let asking = Asking::of(&tools, "echo ran");
    asking.answer("approve");
    assert_eq!(asking.end(), json!("ran\n"));
    let log = judged(&tools);
    assert!(
        log.contains("openai/small: 9; risk 9, threshold 5; approved by "),
        "{log}"
    );
}

#[test]
fn without_a_model_a_person_is_asked() {
    let provider = Provider::saying(Format::OpenAi, "0");
    let tools = asking(
        &provider,
        Format::OpenAi,
        &format!("enabled = false\n{IMPATIENT}"),
    );
    assert!(was_asked(&tools, "echo ran").starts_with("review (ask), risk at least 0; "));
    let no_model = "[hostExecution]\nenabled = true\naskTimeoutMin = '100ms'\n[hostExecution.preValidation]\nenabled = true";
    tools.dir.write("config/ringfence/ringfence.toml", no_model);
    assert_eq!(
        was_asked(&tools, "echo ran"),
        "review (ask), risk at least 0; nobody answered"
    );
    assert_eq!(provider.requests(), [""; 0]);
}

#[test]
fn where_no_score_could_let_it_run_no_model_is_asked() {
    let provider = Provider::saying(Format::OpenAi, "0");
    let tools = asking(&provider, Format::OpenAi, IMPATIENT);
    tools.dir.write("work/old", "x");
    for (command, floor) in [
        ("rm -rf old", 9),
        ("touch made", 6),
        ("frobnicate", 5),
        ("echo $(", 9),
    ] {
        let log = was_asked(&tools, command);
        let begin = format!("review (ask), risk at least {floor}; risk {floor}, threshold 5; ");
        assert!(log.starts_with(&begin), "{command}: {log}");
    }
    assert_eq!(provider.requests(), [""; 0]);
    assert!(tools.dir.path("work/old").exists() && !tools.dir.path("work/made").exists());
}

#[test]
fn what_changed_while_the_model_thought_does_not_run() {
    for format in FORMATS {
        let tools = Tools::new("");
        let script = tools.dir.write("work/notes", "safe");
        let body = format.says("0");
        let provider = Provider::new(move |_| {
            if fs::read_to_string(&script).unwrap() == "safe" {
                fs::write(&script, "swapped").unwrap();
            }
            Reply::body(&body)
        });
        let base = format!("http://127.0.0.1:{}", provider.port);
        let config = configured(format, &base, "apiKeyEnv = ''");
        tools.dir.write("config/ringfence/ringfence.toml", config);
        let refused = tools.refused("host_exec", json!({"command": "cat notes"}));
        assert_eq!(refused.kind, "permission_denied");
        assert!(refused.message.contains("notes changed"), "{}", refused.message);
        // An unchanged file is printed.
        assert_eq!(
            tools.ask("host_exec", json!({"command": "cat notes"})),
            json!("swapped")
        );
    }
}

#[test]
fn checking_asks_nobody_and_explaining_says_who_would_be_asked() {
    let provider = Provider::saying(Format::Anthropic, "0");
    let tools = asking(&provider, Format::Anthropic, "riskThreshold = 7");
    let checked = tools.dir.run(["policy", "check", "--json", "--", "df -h"]);
    let checked: Value = serde_json::from_str(checked.ok()).unwrap();
    assert_eq!(
        (&checked["decision"], &checked["stage"]),
        (&json!("review"), &json!("preValidation"))
    );
    let explained = |command: &str| {
        let said = tools.dir.run(["policy", "explain", "--", command]);
        said.ok().lines().last().unwrap().to_owned()
    };
    assert_eq!(
        explained("touch made"),
        "the model anthropic/small would be asked for a score: below 7 it would run, otherwise you would be asked"
    );
    assert_eq!(
        explained("rm -rf x"),
        "you would be asked, and no model: no score leads below the floor of 9, and you are asked from 7 on"
    );
    assert_eq!(
        explained("echo $("),
        "you would be asked, and no model: what cannot be read is not scored"
    );
    assert_eq!(provider.requests(), [""; 0]);
}

#[test]
fn a_project_chooses_neither_the_model_nor_who_answers_for_it() {
    let (ours, theirs) = (
        Provider::saying(Format::OpenAi, "9"),
        Provider::saying(Format::OpenAi, "0"),
    );
    let tools = asking(&ours, Format::OpenAi, IMPATIENT);
    let base = format!("http://127.0.0.1:{}", theirs.port);
    tools.dir.write(
        "work/ringfence.toml",
        format!(
            "[hostExecution.preValidation]\nmodel = 'openai/theirs'\nbaseUrl = '{base}'\napiKeyEnv = 'HOME'\n\
             apiKeyFile = '/etc/passwd'\ncaFile = '/etc/passwd'\nriskThreshold = 10"
        ),
    );
    assert!(was_asked(&tools, "echo ran").contains("openai/small: 9; risk 9, threshold 5; "));
    assert_eq!((ours.requests().len(), theirs.requests().len()), (1, 0));
    let checked = tools.dir.run(["config", "check"]);
    for key in [
        "model",
        "baseUrl",
        "apiKeyEnv",
        "apiKeyFile",
        "caFile",
        "riskThreshold",
    ] {
        let passed_over = format!("`hostExecution.preValidation.{key}` does not count");
        assert!(checked.stderr.contains(&passed_over), "{key}: {checked:?}");
    }
}
