//! Rejected button presses.

use serde_json::json;

use super::{ANN, EVE, GROUP, Setting};
use crate::gateways::assert_over;

#[test]
fn only_the_people_and_the_chat_that_are_configured_may_answer() {
    let (setting, bot) = Setting::running("");
    let asking = setting.ask("touch made");
    let message = setting.fake.message(0);
    let approve = message.button("Approve");
    for (user, chat) in [(EVE, GROUP), (ANN, GROUP - 1), (ANN, ANN), (EVE, EVE)] {
        let press = setting.fake.send_press(user, chat, message.id, &approve);
        assert_eq!(
            setting.fake.told(&press),
            "You may not answer here.",
            "{user} {chat}"
        );
        bot.until(&format!(
            "a press of telegram user {user} (@user_{user}) is ignored"
        ));
    }
    let mut other = message.clone();
    other.id += 1;
    let words = setting.fake.press_with(&other, &approve);
    assert!(words.contains("asked in another message"), "{words}");
    assert!(!setting.made("made"));
    // The same press by Ann, in that chat, is accepted.
    setting.fake.press(&message, "Approve");
    assert_eq!(asking.end(), json!(""));
    setting.close(bot);
}

#[test]
fn what_was_made_up_or_is_of_another_question_has_no_effect() {
    let (setting, bot) = Setting::running("");
    let first = setting.ask("touch first");
    let old = setting.fake.message(0);
    let id = setting.world.dir.run(["approvals", "ls", "--json"]);
    let id: serde_json::Value = serde_json::from_str(id.ok()).unwrap();
    let id = id[0]["id"].as_str().unwrap();
    let token = old.button("Approve")[1..].to_owned();
    for data in [
        String::new(),
        "a".to_owned(),
        id.to_owned(),
        format!("a{id}"),
        format!("a{}", id.trim_start_matches("apr_")),
        format!("a{}", "0".repeat(32)),
        format!("x{token}"),
        format!("a{}", token.to_uppercase()),
        format!("a{token}0"),
        "\u{202e}\u{0}".to_owned(),
        "a".repeat(100_000),
    ] {
        let press = setting.fake.send_press(ANN, GROUP, old.id, &data);
        assert!(setting.fake.told(&press).contains("outdated"), "{data}");
    }
    setting.fake.press(&old, "Reject");
    assert_eq!(first.end()["error"]["type"], "rejected");
    setting.fake.settled(0);

    let second = setting.ask("touch second");
    let message = setting.fake.message(1);
    for place in [old.id, message.id] {
        let press = setting.fake.send_press(ANN, GROUP, place, &old.button("Approve"));
        assert!(setting.fake.told(&press).contains("outdated"));
    }
    assert!(!setting.made("first") && !setting.made("second"));
    setting.fake.press(&message, "Reject");
    assert_eq!(second.end()["error"]["type"], "rejected");
    setting.close(bot);
}

#[test]
fn a_second_press_changes_nothing() {
    let (setting, bot) = Setting::running("");
    let asking = setting.ask("touch made");
    let message = setting.fake.message(0);
    assert_eq!(setting.fake.press(&message, "Reject"), "Rejecting");
    let approve = message.button("Approve");
    let presses = [(); 8].map(|()| setting.fake.send_press(ANN, GROUP, message.id, &approve));
    for press in presses {
        assert_over(&setting.fake.told(&press));
    }
    assert_eq!(asking.end()["error"]["type"], "rejected");
    assert!(!setting.made("made"));
    assert!(setting.fake.settled(0).text.starts_with("Rejected by"));
    setting.close(bot);
}

#[test]
fn what_is_no_press_is_passed_over() {
    let (setting, bot) = Setting::running("");
    for odd in [
        json!({"message": {"text": "/approve"}}),
        json!({"callback_query": {"id": 5}}),
        json!({"callback_query": {"id": "x", "from": {"id": ANN, "is_bot": false, "first_name": "A"}, "inline_message_id": "1"}}),
        json!({"something_later": {"deep": [1, 2, 3]}}),
    ] {
        setting.fake.send(odd);
    }
    let asking = setting.ask("touch made");
    let message = setting.fake.message(0);
    setting.fake.press(&message, "Approve");
    assert_eq!(asking.end(), json!(""));
    setting.close(bot);
}
