//! The specification's cases of commands on the host and of approvals, except those of a model's score.

use std::fs;

use serde_json::{Value, json};

use super::{Asker, Through, answer, asked, question, requests, ringfence, state, world};
use crate::approvals::Gateway;
use crate::tools::Tools;
use crate::world::World;

/// The lists of the specification, with one command on each that can run anywhere.
const LISTS: &str = "[hostExecution]\nenabled = true\n\
    allowList = ['vcgencmd measure_temp', 'df -h', 'free -m', 'uptime', 'systemctl status *', 'docker ps', 'ls *']\n\
    notifyList = ['systemctl restart klaw-*', 'docker restart *', 'touch *']\n";

/// Returns the decision about a command, without running it.
fn decided(tools: &Tools, command: &str) -> String {
    let checked = tools.dir.run(["policy", "check", "--json", "--", command]);
    let object: Value = serde_json::from_str(checked.ok()).unwrap();
    object["decision"].as_str().unwrap().to_owned()
}

#[track_caller]
fn all(verdict: &str, commands: &[&str]) {
    let tools = Tools::new(LISTS);
    for command in commands {
        assert_eq!(decided(&tools, command), verdict, "{command}");
    }
}

#[test]
fn command_in_allow_list_executes_immediately() {
    let tools = Tools::new(LISTS);
    let said = tools.ask("host_exec", json!({"command": "df -h"}));
    assert!(said.as_str().unwrap().contains("Filesystem"), "{said}");
    tools.dir.write("work/seen", "");
    assert_eq!(tools.ask("host_exec", json!({"command": "ls seen"})), "seen\n");
    assert_eq!(
        tools.dir.run(["approvals", "ls", "--all", "--json"]).ok().trim(),
        "[]"
    );
}

#[test]
fn command_in_notify_list_executes_and_sends_notification() {
    let world = world(LISTS, true);
    let mut gateway = Gateway::of(&world);
    assert_eq!(
        Asker::start(&world, Through::Engine, "touch made").end(),
        json!("")
    );
    assert!(world.dir.path("work/made").exists());
    let told = gateway.expect("message");
    assert_eq!(
        (&told["chatId"], &told["text"]),
        (&json!("local"), &json!("runs on the host: touch made"))
    );
    drop(gateway);
    world.close();
}

#[test]
fn allow_list_uses_glob_matching() {
    all(
        "allow",
        &[
            "vcgencmd measure_temp",
            "df -h",
            "free -m",
            "uptime",
            "systemctl status nginx",
            "systemctl status nginx klaw-engine",
            "systemctl status 'nginx'",
            "docker ps",
            "ls -la /var/log",
            "ls",
            "df -h; uptime",
            "ls /tmp | ls",
        ],
    );
    // No other commands: no other words, no further ones, no hidden parts.
    all(
        "review",
        &[
            "vcgencmd measure_temp x",
            "vcgencmd measure_volts",
            "vcgencmd",
            "df -h /",
            "df",
            "df -hT",
            "free -m -s 1",
            "uptime -p",
            "systemctl",
            "systemctl stop nginx",
            "systemctl restart nginx",
            "systemctl --host=evil status nginx",
            "systemctl status -H evil nginx",
            "systemctl statusx",
            "docker ps -a",
            "docker psx",
            "/tmp/ls -la",
            "./ls",
            "lsx",
            "LS",
            "ls; rm -rf x",
            "ls && rm x",
            "ls $(rm x)",
            "ls `rm x`",
            "ls > x",
            "ls\nrm x",
            "ls & rm x",
            "ls <(rm x)",
            "LD_PRELOAD=./x.so ls",
            "PATH=. ls",
            "sudo ls",
            "env ls",
            "xargs ls",
            "bash -c ls",
            "l\\s; rm x",
            "ls ${x@P}",
            "eval ls",
            "alias ls=rm; ls x",
            "ls() { rm x; }; ls",
        ],
    );
}

#[test]
fn notify_list_uses_glob_matching() {
    all(
        "notify",
        &[
            "systemctl restart klaw-engine",
            "systemctl restart klaw-",
            "docker restart web",
            "docker restart web db",
            "df -h && docker restart web",
        ],
    );
    all(
        "review",
        &[
            "systemctl restart",
            "systemctl restart nginx",
            "systemctl restart klaw",
            "systemctl restart klaw-engine nginx",
            "systemctl restart klaw-engine --root=/x",
            "systemctl restart klaw-$(id)",
            "systemctl restart klaw-../nginx",
            "systemctl stop klaw-engine",
            "docker restarting web",
            "docker -H tcp://evil:1 restart web",
            "docker restart web; docker rm web",
            "docker restart web | sh",
            "docker --config=. restart web",
            "docker rm web",
        ],
    );
}

#[test]
fn user_approves_command_command_executes() {
    let world = world(LISTS, false);
    let line = "cp /etc/hostname copy";
    let asker = Asker::start(&world, Through::Tool, line);
    let id = asked(&world, line);
    assert!(!world.dir.path("work/copy").exists());
    answer(&world, "approve", &id);
    assert_eq!(asker.end(), json!(""));
    assert!(world.dir.path("work/copy").exists());
    world.close();
}

#[test]
fn user_denies_command_returns_rejection_error() {
    let world = world(LISTS, false);
    let line = "cp /etc/hostname copy";
    let asker = Asker::start(&world, Through::Tool, line);
    answer(&world, "deny", &asked(&world, line));
    let error = asker.end()["error"].clone();
    assert_eq!(error["type"], "rejected", "{error}");
    assert!(!world.dir.path("work/copy").exists());
    world.close();
}

#[test]
fn approval_timeout_returns_timeout_error() {
    let world = world(&format!("{LISTS}askTimeoutMin = '200ms'"), false);
    for through in [Through::Tool, Through::Mcp] {
        let ended = Asker::start(&world, through, "cp /etc/hostname copy").end();
        assert!(
            ended.to_string().contains("nobody answered within 200ms"),
            "{ended}"
        );
        let text = ended.to_string();
        assert!(
            text.contains("approval_timeout") && !text.contains("\"rejected\""),
            "{ended}"
        );
    }
    assert!(
        requests(&world)
            .iter()
            .all(|request| request["state"] == "expired")
    );
    assert!(!world.dir.path("work/copy").exists());
    world.close();
}

#[test]
fn pre_validation_disabled_skips_llm_and_goes_straight_to_ask() {
    // A model is configured and unreachable, but never contacted.
    let config = format!("{LISTS}[hostExecution.preValidation]\nenabled = false\nmodel = 'anthropic/none'\n");
    let world = world(&config, false);
    let line = "cp /etc/hostname copy";
    let checked = ringfence(&world, &["policy", "check", "--json", "--", line]);
    let object: Value = serde_json::from_str(checked.ok()).unwrap();
    assert_eq!(
        (&object["decision"], &object["stage"]),
        (&json!("review"), &json!("ask"))
    );
    let asker = Asker::start(&world, Through::Tool, line);
    answer(&world, "deny", &asked(&world, line));
    assert_eq!(asker.end()["error"]["type"], "rejected");
    world.close();
}

#[test]
fn host_exec_disabled_returns_error() {
    let world = world(&LISTS.replace("enabled = true", "enabled = false"), false);
    for through in [Through::Tool, Through::Mcp] {
        let said = Asker::start(&world, through, "touch made").end().to_string();
        assert!(
            said.contains("host_exec") || said.contains("switched off"),
            "{said}"
        );
    }
    assert!(!world.dir.path("work/made").exists());
    world.close();
}

#[test]
fn request_approval_sends_approval_request_and_waits() {
    let world = world(LISTS, true);
    let mut gateway = Gateway::of(&world);
    let line = "cp /etc/hostname copy";
    let mut asker = Asker::start(&world, Through::Engine, line);
    let request = gateway.expect("approval_request");
    assert_eq!(
        (&request["command"], &request["chatId"]),
        (&json!(line), &json!("local"))
    );
    assert!(request["riskScore"].as_u64().unwrap() >= 6, "{request}");
    let left = request["timeout"].as_u64().unwrap();
    assert!((290..=300).contains(&left), "{request}");
    assert_eq!(asker.child.try_wait().unwrap(), None);
    assert!(!world.dir.path("work/copy").exists());
    gateway.answer(&request, false);
    gateway.expect("approval_closed");
    asker.end();
    drop(gateway);
    world.close();
}

#[test]
fn handle_response_completes_pending_deferred() {
    let world = world(LISTS, true);
    let mut gateway = Gateway::of(&world);
    for (approved, outcome, state_after) in [(true, "approved", "consumed"), (false, "rejected", "rejected")]
    {
        let asker = Asker::start(&world, Through::Mcp, "cp /etc/hostname copy");
        let request = gateway.expect("approval_request");
        gateway.answer(&request, approved);
        assert_eq!(gateway.expect("approval_closed")["outcome"], outcome);
        let said = asker.end().to_string();
        assert_eq!(said.contains("rejected"), !approved, "{said}");
        assert_eq!(state(&world, request["id"].as_str().unwrap()), state_after);
    }
    drop(gateway);
    world.close();
}

#[test]
fn timeout_completes_with_false() {
    let world = world(&format!("{LISTS}askTimeoutMin = '300ms'"), true);
    let mut gateway = Gateway::of(&world);
    let asker = Asker::start(&world, Through::Engine, "cp /etc/hostname copy");
    let request = gateway.expect("approval_request");
    assert_eq!(gateway.expect("approval_closed")["outcome"], "expired");
    assert_eq!(asker.end()["error"]["type"], "approval_timeout");
    // A late approval has no effect.
    gateway.answer(&request, true);
    assert_eq!(gateway.expect("error")["error"], "late");
    assert!(!world.dir.path("work/copy").exists());
    drop(gateway);
    world.close();
}

#[test]
fn notify_sends_outbound_message() {
    // Also to a gateway that connects later.
    let world = World::before_engine();
    world.dir.write("config/ringfence/ringfence.toml", LISTS);
    Asker::start(&world, Through::Tool, "touch made").end();
    world.start_engine();
    let mut gateway = Gateway::of(&world);
    assert_eq!(gateway.expect("message")["text"], "runs on the host: touch made");
    drop(gateway);
    world.close();
}

#[test]
fn unknown_approval_response_id_is_ignored() {
    let world = world(LISTS, true);
    let mut gateway = Gateway::of(&world);
    let line = "cp /etc/hostname copy";
    let asker = Asker::start(&world, Through::Engine, line);
    let request = gateway.expect("approval_request");
    for id in ["apr_001".to_owned(), format!("apr_{}", "0".repeat(32))] {
        gateway.say(&json!({"type": "approval_response", "id": id, "approved": true}));
        assert_eq!(gateway.expect("error")["error"], "unknown");
    }
    assert_eq!(question(&world, line)["id"], request["id"]);
    assert!(fs::metadata(world.dir.path("work/copy")).is_err());
    gateway.answer(&request, false);
    assert_eq!(asker.end()["error"]["type"], "rejected");
    drop(gateway);
    world.close();
}
