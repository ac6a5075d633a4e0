//! Questions in a channel, and the results of button presses.

use serde_json::json;

use super::fake::Message;
use super::{ANN, CHANNEL, EVE, Setting};
use crate::gateways::assert_over;
use crate::support::eventually;

/// Returns the ephemeral reply to a press.
#[track_caller]
fn whispered(answer: &serde_json::Value) -> String {
    assert_eq!(
        (&answer["type"], &answer["data"]["flags"]),
        (&json!(4), &json!(64)),
        "{answer}"
    );
    answer["data"]["content"].as_str().unwrap().replace('\\', "")
}

/// Denies the request, and asserts that this is accepted.
#[track_caller]
fn deny(setting: &Setting, message: &Message) {
    let answer = setting.fake.press_after_a_look(message, "Reject", ANN);
    assert_eq!(answer, json!({"type": 6}));
}

#[test]
fn a_press_lets_the_command_run_and_the_message_tells_who() {
    let (setting, bot) = Setting::running("");
    let asking = setting.ask("touch made");
    let message = setting.fake.message(0);
    let content = message.content();
    for part in [
        "A command asks to run on the host",
        "```\ntouch made\n```",
        "risk ",
        "Expires <t:",
    ] {
        assert!(content.contains(part), "{part}: {content}");
    }
    let labels: Vec<String> = message.buttons().into_iter().map(|(label, _)| label).collect();
    assert_eq!(labels[..2], ["Approve", "Reject"], "{labels:?}");
    assert_eq!(
        setting.fake.press_after_a_look(&message, "Approve", ANN),
        json!({"type": 6})
    );
    assert_eq!(asking.end(), json!(""));
    assert!(setting.made("made"));
    let settled = setting.fake.settled(0);
    assert!(settled.content().contains("```\ntouch made\n```"), "{settled:?}");
    assert!(
        settled
            .content()
            .ends_with(&format!("**Approved by user{ANN} on Discord**")),
        "{settled:?}"
    );
    // A closed question stays closed.
    let again = setting.fake.press(&message, &message.button("Reject"), ANN);
    assert_over(&whispered(&again));
    bot.until(&format!("user {ANN} answers"));
    setting.close(bot);
}

#[test]
fn a_no_is_told_as_a_no_and_a_second_press_changes_nothing() {
    let (setting, bot) = Setting::running("");
    let asking = setting.ask("touch made");
    let message = setting.fake.message(0);
    deny(&setting, &message);
    let second = setting.fake.press(&message, &message.button("Approve"), ANN);
    assert!(!whispered(&second).is_empty());
    assert_eq!(asking.end()["error"]["type"], "rejected");
    assert!(!setting.made("made"));
    assert!(
        setting
            .fake
            .settled(0)
            .content()
            .ends_with(&format!("**Rejected by user{ANN} on Discord**"))
    );
    setting.close(bot);
}

#[test]
fn presses_of_others_elsewhere_and_of_other_buttons_count_for_nothing() {
    let (setting, bot) = Setting::running("");
    let asking = setting.ask("touch made");
    let message = setting.fake.message(0);
    let approve = message.button("Approve");
    let mut refused = Vec::new();
    let mut check = |answer: serde_json::Value, why: &str| {
        let told = whispered(&answer);
        assert!(told.contains(why), "{told}");
        refused.push(told);
    };
    check(
        setting.fake.press(&message, &approve, EVE),
        "not one of the configured approvers",
    );
    check(
        setting.fake.press_in(CHANNEL + 1, &message, &approve, ANN),
        "no approvals are requested",
    );
    let mut guessed = approve.clone();
    guessed.replace_range(30.., "000");
    check(setting.fake.press(&message, &guessed, ANN), "outdated");
    for data in ["a", "", "x", "\u{202e}", "apr_001", &"a".repeat(100)] {
        check(setting.fake.press(&message, data, ANN), "outdated");
    }
    let mut foreign = message.clone();
    foreign.id += 1;
    crate::support::eventually("a press in another message", || {
        whispered(&setting.fake.press(&foreign, &approve, ANN)).contains("another message")
    });
    // A question that cannot be approved for good.
    let offered: Vec<String> = message.buttons().into_iter().map(|(label, _)| label).collect();
    if !offered.iter().any(|label| label.starts_with("Always")) {
        let always = approve.replacen('a', "w", 1);
        check(setting.fake.press(&message, &always, ANN), "not offered");
    }
    assert!(!setting.made("made"));
    assert_eq!(setting.fake.message(0).edits, 0);
    // The question is still pending.
    deny(&setting, &message);
    assert_eq!(asking.end()["error"]["type"], "rejected");
    bot.until(&format!("a press of user {EVE} counts for nothing"));
    setting.close(bot);
}

#[test]
fn an_approval_for_the_session_asks_no_second_time() {
    let (setting, bot) = Setting::running("");
    let asking = setting.ask("touch made");
    let message = setting.fake.message(0);
    let labels = message.buttons();
    let Some((label, _)) = labels.iter().find(|(label, _)| label.contains("session")) else {
        panic!("{labels:?}")
    };
    setting.fake.press_after_a_look(&message, label, ANN);
    assert_eq!(asking.end(), json!(""));
    setting.close(bot);
}

#[test]
fn what_an_agent_writes_cannot_leave_its_block_or_call_anybody() {
    let (setting, bot) = Setting::running("");
    let command = "echo '```' '@everyone' '<@300000000000000001>' \u{202e}\u{200b} # **x** [a](http://b)\n\ntouch made\n";
    let asking = setting.ask(command);
    // The fake itself rejects messages that could ping anybody.
    let message = setting.fake.message(0);
    let content = message.content();
    let fences = content.matches("```").count();
    assert_eq!(fences, 4, "two blocks: {content}");
    let block = content.split("```").nth(1).unwrap();
    assert!(block.contains("'\\u{60}\\u{60}\\u{60}' '@everyone'"), "{content}");
    assert!(
        block.contains("\\u{202e}\\u{200b} # **x** [a](http://b)\n\ntouch made"),
        "{content}"
    );
    assert!(!content.contains(['\u{202e}', '\u{200b}']), "{content}");
    deny(&setting, &message);
    assert_eq!(asking.end()["error"]["type"], "rejected");
    setting.close(bot);
}

#[test]
fn a_long_text_comes_as_a_file_and_without_one_it_cannot_be_approved() {
    let (setting, bot) = Setting::running("");
    let words: String = (0..1500).map(|number| format!(" {number:05}")).collect();
    let command = format!("touch{words} made");
    let asking = setting.ask(&command);
    let message = setting.fake.message(0);
    assert_eq!(message.file.as_deref(), Some(command.as_str()));
    assert!(message.content().contains("question.txt"), "{message:?}");
    assert!(!message.content().contains("00042"), "{message:?}");
    setting.fake.press_after_a_look(&message, "Approve", ANN);
    asking.end();
    assert!(setting.made("made"));
    assert!(
        setting.fake.settled(0).content().contains("Approved"),
        "{message:?}"
    );

    setting.fake.state().files_allowed = false;
    let asking = setting.ask(&command);
    let message = setting.fake.message(1);
    assert!(
        message.content().contains("cannot be approved here"),
        "{message:?}"
    );
    assert_eq!(message.file, None);
    let labels: Vec<String> = message.buttons().into_iter().map(|(label, _)| label).collect();
    assert_eq!(labels, ["Reject"]);
    // Nor by a press with a forged button.
    let made_up = message.button("Reject").replacen('d', "a", 1);
    let mut told = String::new();
    eventually("a press after the bot knows its message", || {
        told = whispered(&setting.fake.press(&message, &made_up, ANN)).to_owned();
        !told.contains("read the request first")
    });
    assert!(told.contains("not offered"), "{told}");
    deny(&setting, &message);
    assert_eq!(asking.end()["error"]["type"], "rejected");
    setting.close(bot);
}

#[test]
fn a_question_whose_time_is_up_says_so() {
    let (setting, bot) = Setting::running("askTimeoutMin = '2s'");
    let asking = setting.ask("touch made");
    let message = setting.fake.message(0);
    assert_eq!(asking.end()["error"]["type"], "approval_timeout");
    let settled = setting.fake.settled(0);
    assert!(settled.content().contains("Expired"), "{settled:?}");
    let late = setting.fake.press(&message, &message.button("Approve"), ANN);
    assert_over(&whispered(&late));
    assert!(!setting.made("made"));
    setting.close(bot);
}

#[test]
fn an_answer_that_was_given_elsewhere_is_shown() {
    let (setting, bot) = Setting::running("");
    let asking = setting.ask("touch made");
    setting.fake.message(0);
    let listed = setting.world.dir.run(["approvals", "ls", "--json"]);
    let listed: serde_json::Value = serde_json::from_str(listed.ok()).unwrap();
    let id = listed[0]["id"].as_str().unwrap();
    setting.world.dir.run(["approvals", "approve", id]).ok();
    assert_eq!(asking.end(), json!(""));
    let settled = setting.fake.settled(0);
    assert!(
        settled.content().ends_with("**Approved by ringfence approvals**"),
        "{settled:?}"
    );
    setting.close(bot);
}

#[test]
fn what_waited_before_the_bot_came_is_asked_once_each() {
    let setting = Setting::new("");
    setting.world.start_engine();
    let askings = ["touch one", "touch two", "touch three"].map(|command| setting.ask(command));
    crate::support::eventually("three questions", || {
        let listed = setting.world.dir.run(["approvals", "ls", "--json"]);
        listed.ok().matches("\"id\"").count() == 3
    });
    let bot = setting.bot();
    for index in 0..3 {
        let message = setting.fake.message(index);
        deny(&setting, &message);
    }
    for asking in askings {
        assert_eq!(asking.end()["error"]["type"], "rejected");
    }
    (0..3).for_each(|index| drop(setting.fake.settled(index)));
    assert_eq!(setting.fake.state().messages.len(), 3);
    setting.close(bot);
}

#[test]
fn what_is_only_told_has_no_buttons() {
    let (setting, bot) = Setting::running("notifyList = ['touch *']");
    assert_eq!(setting.ask("touch made").end(), json!(""));
    assert!(setting.made("made"));
    let message = setting.fake.message(0);
    assert!(message.buttons().is_empty(), "{message:?}");
    let content = message.content();
    assert!(
        content.starts_with("```\n") && content.contains("touch made"),
        "{content}"
    );
    setting.close(bot);
}
