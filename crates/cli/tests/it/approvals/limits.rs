//! Tool timeouts that a person may extend.

use std::net::TcpListener;

use serde_json::json;

use super::{ASK, ENDLESS, Gateway, SLOW, Use, listed, taken, timed_out, world};
use crate::support::eventually;
use crate::tools::Tools;

#[test]
fn a_yes_lets_a_tool_go_on_and_a_no_ends_it() {
    let world = world(ASK);
    let mut gateway = Gateway::of(&world);
    for options in [&[][..], &["--no-engine"]] {
        let slow = Use::of(&world, options, SLOW);
        let request = gateway.expect("approval_request");
        assert_eq!(
            (&request["kind"], &request["chatId"]),
            (&json!("soft_timeout"), &json!("local"))
        );
        let text = format!(
            "`run_code` has run for 200ms, its limit; may it go on, to 1m at most?\n{}",
            json!({"code": SLOW})
        );
        assert_eq!(request["command"], text);
        gateway.answer(&request, true);
        let closed = gateway.expect("approval_closed");
        assert_eq!(
            (&closed["id"], &closed["outcome"]),
            (&request["id"], &json!("approved"))
        );
        taken(&world, &request);
        let result = slow.let_go();
        assert_eq!(
            (&result["stdout"], &result["exit_code"]),
            (&json!("done\n"), &json!(0)),
            "{result}"
        );
        let warnings = result["meta"]["warnings"].to_string();
        assert!(
            warnings.contains("the limit of 200ms was extended by gateway, to 1m at most"),
            "{warnings}"
        );

        let endless = Use::of(&world, options, ENDLESS);
        let request = gateway.expect("approval_request");
        gateway.answer(&request, false);
        assert_eq!(gateway.expect("approval_closed")["outcome"], "rejected");
        let stderr = timed_out(&endless.result());
        assert!(
            stderr.contains("execution timed out after 200ms: gateway was asked to extend it and said no"),
            "{stderr}"
        );
    }
    drop(gateway);
    world.close();
}

#[test]
fn without_an_answer_the_tool_ends_and_without_a_gateway_at_once() {
    let world = world(&format!("{ASK}ask_timeout_secs = 0.3\n"));
    let unheard = Use::of(&world, &[], ENDLESS).result();
    let stderr = timed_out(&unheard);
    assert!(stderr.contains("no gateway is connected"), "{stderr}");
    assert!(listed(&world, &["--all"]).is_empty());
    let mut gateway = Gateway::of(&world);
    let ignored = Use::of(&world, &[], ENDLESS);
    let request = gateway.expect("approval_request");
    let closed = gateway.expect("approval_closed");
    assert_eq!(
        (&closed["id"], &closed["outcome"]),
        (&request["id"], &json!("expired"))
    );
    let stderr = timed_out(&ignored.result());
    assert!(stderr.contains("nobody answered within 300ms"), "{stderr}");
    // Too late.
    gateway.answer(&request, true);
    assert_eq!(gateway.expect("error")["error"], "late");
    drop(gateway);
    world.close();
}

#[test]
fn a_session_whose_evaluation_nobody_extends_is_told_to_have_timed_out() {
    let world = world(ASK);
    let result = world.tool(&[], "run_code", &json!({"code": ENDLESS, "session": "s"}));
    let stderr = timed_out(&result);
    assert!(
        stderr.contains("execution timed out after 200ms: no gateway")
            && stderr.contains("the session `s` was interrupted and keeps its variables"),
        "{stderr}"
    );
    world.close();
}

#[test]
fn a_person_sees_no_credentials_and_not_more_than_can_be_read() {
    let world = world(ASK);
    let mut gateway = Gateway::of(&world);
    let code = format!(
        "token = 'ghp_{}'\n# {}\n{ENDLESS}",
        "a1B2".repeat(9),
        "x".repeat(20_000)
    );
    let endless = Use::of(&world, &[], &code);
    let request = gateway.expect("approval_request");
    let text = request["command"].as_str().unwrap();
    assert!(!text.contains("a1B2a1B2") && text.len() < 5_000, "{text}");
    gateway.answer(&request, false);
    timed_out(&endless.result());
    drop(gateway);
    world.close();
}

#[test]
fn a_cap_holds_whatever_the_person_says() {
    let world = world(&ASK.replace("hard_timeout_secs = 60", "hard_timeout_secs = 1.5"));
    let mut gateway = Gateway::of(&world);
    let endless = Use::of(&world, &[], ENDLESS);
    let request = gateway.expect("approval_request");
    gateway.answer(&request, true);
    let result = endless.result();
    // Less than the cap if the program started late.
    let stderr = timed_out(&result);
    assert!(
        stderr.contains("execution timed out after 1") && !stderr.contains("200ms"),
        "{result}"
    );
    let warnings = result["meta"]["warnings"].to_string();
    assert!(
        warnings.contains("extended by gateway, to 1500ms at most"),
        "{warnings}"
    );
    drop(gateway);
    world.close();
}

#[test]
fn a_tool_that_ends_by_itself_takes_its_question_back() {
    let world = world(ASK);
    let mut gateway = Gateway::of(&world);
    let slow = Use::of(&world, &[], SLOW);
    gateway.expect("approval_request");
    assert_eq!(slow.let_go()["stdout"], "done\n");
    assert_eq!(gateway.expect("approval_closed")["outcome"], "abandoned");
    drop(gateway);
    world.close();
}

#[test]
fn a_yes_for_the_session_asks_no_more_in_it() {
    let world = world(ASK);
    let mut gateway = Gateway::of(&world);
    let session = ["--session", "talk", "--no-engine"];
    let first = Use::of(&world, &session, SLOW);
    let request = gateway.expect("approval_request");
    assert_eq!(request["remember"], json!(["once", "session"]));
    let answer =
        json!({"type": "approval_response", "id": request["id"], "approved": true, "remember": "always"});
    gateway.say(&answer);
    assert_eq!(gateway.expect("error")["error"], "not_remembered");
    let answer =
        json!({"type": "approval_response", "id": request["id"], "approved": true, "remember": "session"});
    gateway.say(&answer);
    gateway.expect("approval_closed");
    taken(&world, &request);
    assert_eq!(first.let_go()["stdout"], "done\n");
    let second = Use::of(&world, &session, "import time; time.sleep(2); print('done')").result();
    assert_eq!(second["stdout"], "done\n");
    assert!(
        second["meta"]["warnings"]
            .to_string()
            .contains("an approval for the session")
    );
    assert_eq!(listed(&world, &["--all"]).len(), 1);
    drop(gateway);
    world.close();
}

#[test]
fn an_asker_that_is_killed_leaves_no_question() {
    let world = world(ASK);
    let mut gateway = Gateway::of(&world);
    let mut endless = Use::of(&world, &[], ENDLESS);
    let request = gateway.expect("approval_request");
    endless.child.kill().unwrap();
    endless.child.wait().unwrap();
    let closed = gateway.expect("approval_closed");
    assert_eq!(
        (&closed["id"], &closed["outcome"]),
        (&request["id"], &json!("abandoned"))
    );
    gateway.answer(&request, true);
    assert_eq!(gateway.expect("error")["error"], "late");
    eventually("nothing waits", || listed(&world, &[]).is_empty());
    drop(gateway);
    world.close();
}

#[test]
fn an_engine_that_is_killed_neither_loses_nor_repeats_a_question() {
    let world = world(ASK);
    let mut gateway = Gateway::of(&world);
    let slow = Use::of(&world, &["--no-engine"], SLOW);
    let request = gateway.expect("approval_request");
    world.stop_engine("KILL");
    gateway.ended();
    world.start_engine();
    let mut gateway = Gateway::of(&world);
    let again = gateway.expect("approval_request");
    assert_eq!(
        (&again["id"], &again["digest"]),
        (&request["id"], &request["digest"])
    );
    gateway.answer(&again, true);
    assert_eq!(gateway.expect("approval_closed")["outcome"], "approved");
    world.stop_engine("KILL");
    world.start_engine();
    taken(&world, &request);
    assert_eq!(slow.let_go()["stdout"], "done\n");
    let history = listed(&world, &["--all"]);
    assert_eq!((history.len(), &history[0]["state"]), (1, &json!("consumed")));
    world.close();
}

#[test]
fn a_tool_that_the_kernel_drops_answers_who_decided() {
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = silent.local_addr().unwrap();
    let tools = Tools::new(&format!(
        "[permissions.tool_limits]\nat_limit = 'ask'\nhttp_timeout_secs = 0.2\n\
         [egress]\nallowed_hosts = ['{address}']\nprivate_networks = ['127.0.0.0/8']\n"
    ));
    let refused = tools.refused("http_fetch", json!({"url": format!("http://{address}/")}));
    assert_eq!(refused.kind, "timeout");
    assert!(
        refused
            .message
            .contains("`http_fetch` timed out after 200ms: no gateway is connected"),
        "{}",
        refused.message
    );
}
