//! The server's gateway socket, from a gateway's side.

use std::os::unix::fs::PermissionsExt;

use serde_json::json;

use super::{ASK, ENDLESS, Gateway, SLOW, Use, timed_out, world};

#[test]
fn the_first_of_two_gateways_wins_and_the_other_shows_it() {
    let world = world(ASK);
    let (mut one, mut two) = (Gateway::of(&world), Gateway::of(&world));
    one.say(&json!({"type": "hello", "version": 1, "name": "phone", "os": "any"}));
    let slow = Use::of(&world, &[], SLOW);
    let [request, same] = [&mut one, &mut two].map(|gateway| gateway.expect("approval_request"));
    assert_eq!(
        (&request["id"], &request["digest"]),
        (&same["id"], &same["digest"])
    );
    one.answer(&request, true);
    for gateway in [&mut one, &mut two] {
        let closed = gateway.expect("approval_closed");
        assert_eq!(
            (&closed["outcome"], &closed["by"]),
            (&json!("approved"), &json!("phone"))
        );
    }
    two.answer(&request, false);
    let late = two.expect("error");
    assert_eq!((&late["id"], &late["error"]), (&request["id"], &json!("late")));
    assert_eq!(slow.let_go()["stdout"], "done\n");
    drop((one, two));
    world.close();
}

#[test]
fn only_what_was_asked_can_be_answered_and_only_where_it_was_asked() {
    let world = world(&format!("{ASK}[gateway]\nchats = ['telegram_1']\n"));
    let mut asked = Gateway::of(&world);
    let mut other = Gateway::of(&world);
    other.say(&json!({"type": "hello", "version": 1, "chats": ["telegram_2"]}));
    // The reply shows that the greeting was read.
    other.say(&json!({"type": "later"}));
    assert_eq!(other.expect("error")["error"], "unknown_type");
    let endless = Use::of(&world, &[], ENDLESS);
    let request = asked.expect("approval_request");
    assert_eq!(request["chatId"], "telegram_1");
    let response = |id: &serde_json::Value| json!({"type": "approval_response", "id": id, "approved": true});
    let mut elsewhere = response(&request["id"]);
    elsewhere["chatId"] = "telegram_2".into();
    let mut other_text = response(&request["id"]);
    other_text["digest"] = "0".repeat(64).into();
    for (message, error) in [
        (response(&json!("apr_001")), "unknown"),
        (response(&json!(format!("apr_{}", "0".repeat(32)))), "unknown"),
        (elsewhere, "unknown"),
        (other_text, "other_text"),
    ] {
        asked.say(&message);
        let answer = asked.expect("error");
        assert_eq!(
            (&answer["id"], &answer["error"]),
            (&message["id"], &json!(error)),
            "{message}"
        );
    }
    // A gateway of another chat never received it.
    other.say(&response(&request["id"]));
    assert_eq!(other.expect("error")["error"], "unknown");
    asked.answer(&request, false);
    asked.expect("approval_closed");
    timed_out(&endless.result());
    drop((asked, other));
    world.close();
}

#[test]
fn what_breaks_the_protocol_is_told_and_left() {
    let world = world(ASK);
    let socket = world.dir.path("run/ringfence/gateway.sock");
    assert_eq!(socket.metadata().unwrap().permissions().mode() & 0o777, 0o600);
    for text in [
        "garbage\n",
        "{}\n",
        "{\"type\":\"hello\",\"version\":2}\n",
        "{\"type\":\"hello\",\"chats\":[\"a b\"]}\n",
    ] {
        let mut gateway = Gateway::of(&world);
        gateway.send(text);
        assert_eq!(gateway.expect("error")["error"], "malformed", "{text}");
        gateway.ended();
    }
    let mut gateway = Gateway::of(&world);
    // The server may hang up before the whole line is sent.
    let long = "x".repeat(300 * 1024);
    let _ = std::io::Write::write_all(gateway.reader.get_mut(), long.as_bytes());
    assert_eq!(gateway.expect("error")["error"], "malformed");
    gateway.ended();
    // The next gateway is served normally.
    drop(Gateway::of(&world));
    world.close();
    assert!(!socket.exists());
}
