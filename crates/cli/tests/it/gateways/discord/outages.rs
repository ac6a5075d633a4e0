//! Rate limits, lost connections, and exits of the server and of the bot: nothing is lost, and nothing is
//! sent twice.

use serde_json::json;

use super::fake::{Fault, Message};
use super::{ANN, CHANNEL, Setting};
use crate::support::eventually;

/// Denies through the bot, and asserts that this arrives.
#[track_caller]
fn deny(setting: &Setting, message: &Message) {
    let answer = setting.fake.press_after_a_look(message, "Reject", ANN);
    assert_eq!(answer, json!({"type": 6}));
}

#[test]
fn whatever_becomes_of_a_call_a_question_is_posted_once_and_settled() {
    for faults in [
        vec![Fault::Limited(300, false)],
        vec![Fault::Limited(300, true), Fault::Limited(10, true)],
        vec![Fault::Page(502), Fault::Page(500)],
        vec![Fault::Unheard, Fault::Page(503), Fault::Unheard],
    ] {
        let (setting, bot) = Setting::running("");
        let calls = faults.len() + 1;
        setting.fake.state().faults = faults.clone().into();
        let asking = setting.ask("touch made");
        let message = setting.fake.message(0);
        eventually("the question is posted", || {
            setting.fake.count("POST", "/messages") == calls
        });
        setting.fake.state().faults = faults.clone().into();
        eventually("a no", || {
            let answer = setting.fake.press(&message, &message.button("Reject"), ANN);
            answer == json!({"type": 6})
        });
        assert_eq!(asking.end()["error"]["type"], "rejected");
        setting.fake.settled(0);
        eventually("the end is told", || setting.fake.count("PATCH", "") == calls);
        assert_eq!(setting.fake.state().messages.len(), 1, "{faults:?}");
        assert_eq!(setting.fake.count("POST", "/messages"), calls, "{faults:?}");
        setting.close(bot);
    }
}

#[test]
fn a_limit_is_waited_for_as_long_as_told() {
    for fault in [
        Fault::Limited(1500, true),
        Fault::Limited(1500, false),
        Fault::Spent(1500),
    ] {
        let (setting, bot) = Setting::running("");
        setting.fake.state().faults = [fault].into();
        let askings = ["touch one", "touch two"].map(|command| setting.ask(command));
        let messages = [0, 1].map(|index| setting.fake.message(index));
        messages.iter().for_each(|message| deny(&setting, message));
        for asking in askings {
            assert_eq!(asking.end()["error"]["type"], "rejected");
        }
        let posts = setting.fake.count("POST", "/messages");
        assert_eq!(
            posts,
            2 + usize::from(matches!(fault, Fault::Limited(..))),
            "{fault:?}"
        );
        assert_eq!(setting.fake.state().too_early, 0, "{fault:?}");
        setting.close(bot);
    }
}

#[test]
fn a_connection_that_is_lost_is_resumed_with_what_was_missed() {
    let (setting, bot) = Setting::running("");
    let asking = setting.ask("touch one");
    let message = setting.fake.message(0);
    let lose: [&dyn Fn(); 4] = [
        &|| setting.fake.cut(),
        &|| setting.fake.close(4000),
        &|| setting.fake.say(json!({"op": 7, "d": null})),
        &|| setting.fake.say(json!({"op": 9, "d": true})),
    ];
    for (times, lose) in lose.iter().enumerate() {
        lose();
        setting.fake.greeted(times + 2);
    }
    let state = setting.fake.state();
    let opcodes: Vec<u64> = state
        .hellos
        .iter()
        .map(|hello| hello["op"].as_u64().unwrap())
        .collect();
    drop(state);
    assert_eq!(opcodes, [2, 6, 6, 6, 6]);
    // Pressed while no bot is connected.
    setting.fake.cut();
    deny(&setting, &message);
    assert_eq!(asking.end()["error"]["type"], "rejected");
    setting.fake.settled(0);
    assert_eq!(setting.fake.state().messages.len(), 1);
    setting.close(bot);
}

#[test]
fn a_session_that_is_gone_is_begun_anew() {
    let (setting, bot) = Setting::running("");
    let asking = setting.ask("touch made");
    let message = setting.fake.message(0);
    setting.fake.state().forget_session();
    setting.fake.cut();
    // It tries to resume, is rejected, and identifies.
    setting.fake.greeted(3);
    eventually("a bot that listens", || {
        setting.fake.state().hellos.last().unwrap()["op"] == 2
    });
    deny(&setting, &message);
    assert_eq!(asking.end()["error"]["type"], "rejected");
    assert_eq!(setting.fake.state().messages.len(), 1);
    setting.close(bot);
}

#[test]
fn a_connection_on_which_nothing_is_answered_is_left() {
    let setting = Setting::new("");
    setting.fake.state().heartbeat_interval = 400;
    setting.world.start_engine();
    let bot = setting.bot();
    eventually("three heartbeats", || setting.fake.state().heartbeats >= 3);
    setting.fake.state().mute = true;
    let greetings = setting.fake.state().hellos.len();
    setting.fake.greeted(greetings + 1);
    setting.fake.state().mute = false;
    assert_eq!(setting.fake.state().hellos.last().unwrap()["op"], 6);
    let asking = setting.ask("touch made");
    deny(&setting, &setting.fake.message(0));
    assert_eq!(asking.end()["error"]["type"], "rejected");
    setting.close(bot);
}

#[test]
fn an_engine_that_is_killed_does_not_have_its_questions_asked_twice() {
    let (setting, bot) = Setting::running("");
    let asking = setting.ask("touch made");
    let message = setting.fake.message(0);
    setting.world.stop_engine("KILL");
    bot.until("the server has gone");
    let answer = setting.fake.press(&message, &message.button("Reject"), ANN);
    assert_eq!(answer["type"], 4, "{answer}");
    let told = answer["data"]["content"].as_str().unwrap();
    assert!(told.contains("the server does not answer"), "{told}");
    setting.world.start_engine();
    bot.until("still waits");
    deny(&setting, &message);
    assert_eq!(asking.end()["error"]["type"], "rejected");
    setting.fake.settled(0);
    assert_eq!(setting.fake.state().messages.len(), 1);
    setting.close(bot);
}

#[test]
fn what_ends_while_the_engine_is_away_is_shown_as_ended() {
    let (setting, bot) = Setting::running("");
    let asking = setting.ask("touch made");
    setting.fake.message(0);
    setting.world.stop_engine("KILL");
    bot.until("the server has gone");
    let listed = setting.world.dir.run(["approvals", "ls", "--json"]);
    let listed: serde_json::Value = serde_json::from_str(listed.ok()).unwrap();
    let id = listed[0]["id"].as_str().unwrap();
    setting.world.dir.run(["approvals", "deny", id]).ok();
    assert_eq!(asking.end()["error"]["type"], "rejected");
    setting.world.start_engine();
    let settled = setting.fake.settled(0);
    assert!(settled.content().contains("no longer waits"), "{settled:?}");
    setting.close(bot);
}

#[test]
fn buttons_of_a_bot_that_has_ended_are_void() {
    let (setting, bot) = Setting::running("");
    let asking = setting.ask("touch made");
    let old = setting.fake.message(0);
    bot.stop(&setting.world, "TERM");
    let bot = setting.bot();
    setting.fake.greeted(2);
    let fresh = setting.fake.message(1);
    assert_ne!(old.button("Approve"), fresh.button("Approve"));
    let answer = setting.fake.press(&old, &old.button("Approve"), ANN);
    let told = answer["data"]["content"].as_str().unwrap();
    assert!(told.contains("outdated"), "{told}");
    // Nor is a new button valid in an old message.
    let answer = setting.fake.press(&old, &fresh.button("Approve"), ANN);
    assert_eq!(answer["type"], 4, "{answer}");
    assert!(!setting.made("made"));
    deny(&setting, &fresh);
    assert_eq!(asking.end()["error"]["type"], "rejected");
    setting.close(bot);
}

#[test]
fn a_discord_that_is_not_there_yet_is_waited_for() {
    let setting = Setting::new("");
    setting.fake.state().channels.clear();
    setting.world.start_engine();
    setting.fake.state().away = true;
    let bot = setting.bot();
    eventually("a try", || setting.fake.state().visits > 1);
    setting.fake.state().channels.push(CHANNEL);
    setting.fake.state().away = false;
    setting.fake.greeted(1);
    setting.close(bot);
}
