//! Outages of the gateway, the server and Telegram.

use std::time::Duration;

use serde_json::json;

use super::fake::Fault;
use super::{ANN, GROUP, Setting};
use crate::support::eventually;

#[test]
fn what_waited_before_the_gateway_is_asked_and_a_gateway_that_starts_anew_asks_anew() {
    let setting = Setting::new("");
    setting.world.start_engine();
    let asking = setting.ask("touch made");
    eventually("the question waits", || {
        let listed = setting.world.dir.run(["approvals", "ls", "--json"]);
        listed.ok().contains("apr_")
    });
    let bot = setting.bot();
    let old = setting.fake.message(0);
    bot.stop(&setting.world, "KILL");
    // Sent before there is a gateway.
    let unheard = setting
        .fake
        .send_press(ANN, GROUP, old.id, &old.button("Approve"));
    let bot = setting.bot();
    let message = setting.fake.message(1);
    assert_eq!(message.marked("pre"), "touch made");
    assert!(setting.fake.told(&unheard).contains("outdated"));
    let outdated = setting
        .fake
        .send_press(ANN, GROUP, old.id, &old.button("Approve"));
    assert!(setting.fake.told(&outdated).contains("outdated"));
    assert!(!setting.made("made"));
    setting.fake.press(&message, "Approve");
    assert_eq!(asking.end(), json!(""));
    setting.close(bot);
}

#[test]
fn an_engine_that_is_killed_and_starts_again_does_not_ask_twice() {
    let (setting, bot) = Setting::running("");
    let asking = setting.ask("touch made");
    let message = setting.fake.message(0);
    setting.world.stop_engine("KILL");
    bot.until("the server has gone");
    let unheard = setting.fake.press(&message, "Approve");
    assert!(unheard.contains("the server does not answer"), "{unheard}");
    setting.world.start_engine();
    bot.until("still waits");
    setting.fake.press(&message, "Approve");
    assert_eq!(asking.end(), json!(""));
    assert!(setting.made("made"));
    setting.fake.settled(0);
    assert_eq!(setting.fake.world().messages.len(), 1);
    setting.close(bot);
}

#[test]
fn what_ended_while_the_engine_was_away_loses_its_buttons() {
    let (setting, bot) = Setting::running("");
    let asking = setting.ask("touch made");
    setting.fake.message(0);
    setting.world.stop_engine("KILL");
    bot.until("the server has gone");
    let listed = setting.world.dir.run(["approvals", "ls", "--json"]);
    let listed: serde_json::Value = serde_json::from_str(listed.ok()).unwrap();
    setting
        .world
        .dir
        .run(["approvals", "deny", listed[0]["id"].as_str().unwrap()])
        .ok();
    assert_eq!(asking.end()["error"]["type"], "rejected");
    setting.world.start_engine();
    let settled = setting.fake.settled(0);
    assert!(
        settled
            .text
            .starts_with("It no longer waits; it ended while the server was away\n"),
        "{settled:?}"
    );
    setting.close(bot);
}

#[test]
fn a_call_that_fails_is_made_again_and_nothing_is_said_twice() {
    let setting = Setting::new("");
    setting.world.start_engine();
    setting.fake.world().faults.extend([
        ("getMe", Fault::BadGateway),
        ("getUpdates", Fault::Dropped),
        ("getUpdates", Fault::BadGateway),
        ("sendMessage", Fault::Dropped),
        ("sendMessage", Fault::BadGateway),
        ("sendMessage", Fault::Busy(1)),
        ("editMessageText", Fault::Busy(1)),
        ("editMessageText", Fault::Dropped),
    ]);
    let bot = setting.bot();
    bot.until("telegram knows this bot as @fence_bot");
    setting.fake.called("getUpdates", 3);
    let asking = setting.ask("touch made");
    let message = setting.fake.message(0);
    for words in ["status 502 without an answer", "telegram asks to wait 1s"] {
        bot.until(words);
    }
    setting.fake.press(&message, "Approve");
    assert_eq!(asking.end(), json!(""));
    let settled = setting.fake.settled(0);
    assert!(settled.text.starts_with("Approved by "), "{settled:?}");
    assert_eq!((setting.fake.world().messages.len(), settled.edits), (1, 1));
    assert!(setting.fake.world().faults.is_empty());
    setting.close(bot);
}

#[test]
fn a_chat_that_cannot_be_written_to_holds_up_nothing() {
    let (setting, bot) = Setting::running("");
    setting
        .fake
        .world()
        .faults
        .push_back(("sendMessage", Fault::Forbidden));
    let lost = setting.ask("touch lost");
    bot.until(
        "a message is not posted: telegram rejects the request: Forbidden: bot was blocked by the user",
    );
    let asking = setting.ask("touch made");
    let message = setting.fake.message(0);
    setting.fake.press(&message, "Approve");
    assert_eq!(asking.end(), json!(""));
    lost.killed();
    setting.close(bot);
}

#[test]
fn a_slow_telegram_delays_no_press() {
    let (setting, bot) = Setting::running("");
    let first = setting.ask("touch first");
    let message = setting.fake.message(0);
    setting.fake.world().slow = Some(("sendMessage", Duration::from_secs(60)));
    let second = setting.ask("touch second");
    setting.fake.called("sendMessage", 2);
    setting.fake.press(&message, "Approve");
    assert_eq!(first.end(), json!(""));
    assert!(setting.made("first") && !setting.made("second"));
    second.killed();
    setting.close(bot);
}
