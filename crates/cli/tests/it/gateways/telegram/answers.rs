//! Questions in a chat, and their outcomes.

use serde_json::json;

use super::{ANN, Setting};
use crate::gateways::assert_over;
use crate::support::eventually;

#[test]
fn a_press_lets_the_command_run_and_the_message_tells_who() {
    let (setting, bot) = Setting::running("");
    let asking = setting.ask("touch made");
    let message = setting.fake.message(0);
    for part in [
        "A command asks to run on the host (risk ",
        "For local (apr_",
        "Open until ",
    ] {
        assert!(message.text.contains(part), "{part}: {message:?}");
    }
    assert_eq!(message.marked("pre"), "touch made");
    assert_eq!(setting.fake.world().wanted, json!(["callback_query"]));
    let labels: Vec<&str> = message.buttons.iter().map(|(label, _)| label.as_str()).collect();
    assert_eq!(
        labels[..3],
        ["Approve", "Reject", "Approve for the session"],
        "{labels:?}"
    );
    assert!(
        message
            .buttons
            .iter()
            .all(|(_, data)| !data.contains("touch") && !data.contains("apr_"))
    );
    assert!(!setting.made("made"));
    assert_eq!(setting.fake.press(&message, "Approve"), "Approving");
    assert_eq!(asking.end(), json!(""));
    assert!(setting.made("made"));
    let settled = setting.fake.settled(0);
    let by = format!("telegram user {ANN} (@user_{ANN})");
    assert!(
        settled.text.starts_with(&format!("Approved by {by}\n")),
        "{settled:?}"
    );
    assert_eq!(
        (settled.marked("pre").as_str(), settled.buttons.len()),
        ("touch made", 0)
    );
    let told = setting.world.dir.run(["approvals", "ls", "--all"]);
    assert!(told.ok().contains(&by), "{told:?}");
    setting.close(bot);
}

#[test]
fn a_no_is_told_as_a_no() {
    let (setting, bot) = Setting::running("");
    let asking = setting.ask("touch made");
    let message = setting.fake.message(0);
    assert_eq!(setting.fake.press(&message, "Reject"), "Rejecting");
    assert_eq!(asking.end()["error"]["type"], "rejected");
    assert!(!setting.made("made"));
    let settled = setting.fake.settled(0);
    assert!(
        settled
            .text
            .starts_with(&format!("Rejected by telegram user {ANN} ")),
        "{settled:?}"
    );
    setting.close(bot);
}

#[test]
fn a_question_that_nobody_answers_is_shown_to_have_expired() {
    let (setting, bot) = Setting::running("askTimeoutMin = '5s'");
    let asking = setting.ask("touch made");
    let message = setting.fake.message(0);
    assert_eq!(asking.end()["error"]["type"], "approval_timeout");
    let settled = setting.fake.settled(0);
    assert!(
        settled.text.starts_with("Expired: nobody answered in time\n"),
        "{settled:?}"
    );
    let late = setting
        .fake
        .send_press(ANN, super::GROUP, message.id, &message.button("Approve"));
    assert_over(&setting.fake.told(&late));
    assert!(!setting.made("made"));
    setting.close(bot);
}

#[test]
fn a_yes_for_the_session_and_one_for_good_are_offered_and_hold() {
    let (setting, bot) = Setting::running("");
    let asking = setting.ask("touch made");
    let message = setting.fake.message(0);
    assert_eq!(
        setting.fake.press(&message, "Always approve this text"),
        "Approving"
    );
    assert_eq!(asking.end(), json!(""));
    std::fs::remove_file(setting.world.dir.path("work/made")).unwrap();
    assert_eq!(setting.ask("touch made").end(), json!(""));
    assert!(setting.made("made"));
    // An interpreter with code is never allowed for good.
    let asking = setting.ask("python3 -c 'print(1)'");
    let message = setting.fake.message(1);
    assert!(
        message
            .buttons
            .iter()
            .all(|(label, _)| !label.starts_with("Always")),
        "{message:?}"
    );
    setting.fake.press(&message, "Reject");
    assert_eq!(asking.end()["error"]["type"], "rejected");
    std::fs::remove_file(setting.world.dir.path("state/ringfence/approved.toml")).unwrap();
    setting.close(bot);
}

#[test]
fn a_long_command_is_shown_in_full_before_it_can_be_approved() {
    let (setting, bot) = Setting::running("");
    let command = format!("touch made # {}", "long ".repeat(1_800));
    let asking = setting.ask(&command);
    setting.fake.message(2);
    let messages = setting.fake.world().messages.clone();
    let shown: String = messages.iter().map(|message| message.marked("pre")).collect();
    assert_eq!(shown, command);
    let (last, earlier) = messages.split_last().unwrap();
    assert!(
        earlier.iter().all(|message| message.buttons.is_empty()),
        "{messages:?}"
    );
    assert!(
        last.text.contains("part 3 of 3") && !setting.made("made"),
        "{last:?}"
    );
    setting.fake.press(last, "Approve");
    assert_eq!(asking.end(), json!(""));
    assert!(setting.made("made"));
    assert!(setting.fake.settled(2).text.starts_with("Approved by "));
    setting.close(bot);
}

#[test]
fn what_cannot_be_seen_is_written_out_and_what_cannot_be_shown_cannot_be_approved() {
    let (setting, bot) = Setting::running("");
    let asking = setting.ask("touch 'a\u{202e}b\u{7}' # <b>*bold*</b> @everyone \u{455}");
    let message = setting.fake.message(0);
    let expected = "touch 'a\\u{202e}b\\u{7}' # <b>*bold*</b> @everyone \u{455}";
    assert_eq!(message.marked("pre"), expected);
    assert!(
        message.text.contains("U+202E") && message.text.contains("U+0455"),
        "{message:?}"
    );
    assert!(!message.text.contains(['\u{202e}', '\u{7}']), "{message:?}");
    setting.fake.press(&message, "Reject");
    assert_eq!(asking.end()["error"]["type"], "rejected");
    setting.fake.settled(0);

    let asking = setting.ask(&format!("touch made # {}", "\u{7}".repeat(9_900)));
    eventually("its buttons", || {
        setting
            .fake
            .world()
            .messages
            .last()
            .is_some_and(|message| !message.buttons.is_empty())
    });
    let last = setting.fake.world().messages.last().unwrap().clone();
    assert_eq!(last.buttons.len(), 1, "{last:?}");
    assert!(
        last.text.contains("too long to be shown in full here"),
        "{last:?}"
    );
    // Nor by a forged press.
    let forged = last.button("Reject").replacen('d', "a", 1);
    let words = setting.fake.press_with(&last, &forged);
    assert!(words.contains("not offered"), "{words}");
    setting.fake.press(&last, "Reject");
    assert_eq!(asking.end()["error"]["type"], "rejected");
    assert!(!setting.made("made"));
    setting.close(bot);
}

#[test]
fn notices_are_told_without_markup() {
    let (setting, bot) = Setting::running("notifyList = ['touch *']");
    assert_eq!(setting.ask("touch made").end(), json!(""));
    let message = setting.fake.message(0);
    assert!(
        message.text.contains("touch made") && message.buttons.is_empty(),
        "{message:?}"
    );
    assert_eq!(message.marked("code"), message.text);
    setting.close(bot);
}

#[test]
fn the_first_of_two_gateways_wins_and_the_chat_shows_it() {
    let (setting, bot) = Setting::running("");
    let asking = setting.ask("touch made");
    let message = setting.fake.message(0);
    let listed = setting.world.dir.run(["approvals", "ls", "--json"]);
    let listed: serde_json::Value = serde_json::from_str(listed.ok()).unwrap();
    let line = format!("approve {}\n", listed[0]["id"].as_str().unwrap());
    let mut terminal = setting.world.command(&[], ["gateway", "terminal"]);
    let said = crate::support::finish(&mut terminal, line.as_bytes());
    assert!(said.ok().contains("approved by terminal"), "{said:?}");
    assert_eq!(asking.end(), json!(""));
    let settled = setting.fake.settled(0);
    assert!(settled.text.starts_with("Approved by terminal\n"), "{settled:?}");
    let late = setting
        .fake
        .send_press(ANN, super::GROUP, message.id, &message.button("Reject"));
    assert_over(&setting.fake.told(&late));
    setting.close(bot);
}
