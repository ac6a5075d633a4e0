//! Malformed messages: answered or ignored, and the next message is handled.

use serde_json::{Value, json};

use super::Client;
use crate::world::World;

/// Sends `line`; returns the error code and id of the answer, if one precedes that of the next request.
fn said_to(client: &mut Client, line: &[u8]) -> Option<(i64, Value)> {
    client.write([line, b"\n"].concat());
    let ping = client.request("ping", &json!({}));
    let first = client.next();
    if first["id"] == ping && first.get("result").is_some() {
        return None;
    }
    assert_eq!(client.next()["id"], ping, "after {first}");
    Some((first["error"]["code"].as_i64().unwrap(), first["id"].clone()))
}

#[test]
fn what_is_no_message_is_answered_and_does_no_harm() {
    let world = World::here();
    let mut client = Client::greeted(&world, &[]);
    let mut check = |line: &[u8], expected: Option<(i64, Value)>| {
        let shown = String::from_utf8_lossy(&line[..line.len().min(100)]).into_owned();
        assert_eq!(said_to(&mut client, line), expected, "{shown}");
    };
    let nobody = |code| Some((code, Value::Null));
    check(b"garbage", nobody(-32700));
    check(b"{\"jsonrpc\":\"2.0\",\"id\":1,", nobody(-32700));
    check(b"{\"jsonrpc\":\"2.0\",\"method\":\"\xff\xfe\"}", nobody(-32700));
    check(&[b'{'; 5000], nobody(-32700));
    check(&b"[".repeat(1_000_000), nobody(-32700));
    check(b"\0\0\0\0", nobody(-32700));
    check(b"{}", nobody(-32600));
    check(b"[]", nobody(-32600));
    check(b"5", nobody(-32600));
    check(br#"[{"jsonrpc":"2.0","id":91,"method":"ping"}]"#, nobody(-32600));
    check(
        br#"{"jsonrpc":"1.0","id":92,"method":"ping"}"#,
        Some((-32600, json!(92))),
    );
    check(br#"{"id":93,"method":"ping"}"#, Some((-32600, json!(93))));
    check(br#"{"jsonrpc":"2.0","id":null,"method":"ping"}"#, nobody(-32600));
    check(br#"{"jsonrpc":"2.0","id":{},"method":"ping"}"#, nobody(-32600));
    check(
        br#"{"jsonrpc":"2.0","id":"text","method":"no/such"}"#,
        Some((-32601, json!("text"))),
    );
    check(
        br#"{"jsonrpc":"2.0","id":94,"method":"tools/call","params":[1]}"#,
        Some((-32600, json!(94))),
    );
    check(
        br#"{"jsonrpc":"2.0","id":95,"method":"tools/call","params":{"name":"run_code","arguments":"x"}}"#,
        Some((-32602, json!(95))),
    );
    check(
        br#"{"jsonrpc":"2.0","id":96,"method":"logging/setLevel","params":{"level":"loud"}}"#,
        Some((-32602, json!(96))),
    );
    check(b"", None);
    check(br#"{"jsonrpc":"2.0","method":"no/such/thing"}"#, None);
    check(br#"{"jsonrpc":"2.0","id":97,"result":{}}"#, None);
    check(
        br#"{"jsonrpc":"2.0","id":98,"error":{"code":1,"message":"x"}}"#,
        None,
    );
    check(
        br#"{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":99}}"#,
        None,
    );
    assert_eq!(client.python("print(6 * 7)"), "42\n");
    client.leave().well();
    world.close();
}

#[test]
fn an_endless_line_takes_no_memory_and_no_turn() {
    let world = World::here();
    let mut client = Client::greeted(&world, &[]);
    assert_eq!(client.python("print(1)"), "1\n");
    let before = resident_kib(client.pid());
    for _ in 0..256 {
        client.write([b'x'; 1 << 20]);
    }
    let error = client.next();
    assert_eq!(error["error"]["code"], -32600, "{error}");
    assert!(
        error["error"]["message"]
            .as_str()
            .unwrap()
            .contains("longer than"),
        "{error}"
    );
    let grown = resident_kib(client.pid()).saturating_sub(before);
    assert!(grown < 64 * 1024, "grew by {grown} KiB");
    // The line is not complete: the following bytes belong to it.
    client.write(b"{\"jsonrpc\":\"2.0\",\"id\":500,\"method\":\"ping\"}\n");
    assert_eq!(client.python("print(2)"), "2\n");
    client.leave().well();
    world.close();
}

fn resident_kib(pid: u32) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    let kib = line.unwrap().trim().trim_end_matches(" kB");
    kib.parse().unwrap()
}

#[test]
fn before_the_greeting_only_what_the_protocol_allows_is_answered() {
    let world = World::here();
    let mut client = Client::start(&world, &[]);
    client.write(b"garbage\n");
    assert_eq!(client.next()["error"]["code"], -32700);
    client.tell("notifications/initialized", &json!({}));
    client.send(&json!({"jsonrpc": "2.0", "id": 77, "result": {}}));
    let ping = client.ask("ping", &json!({}));
    assert_eq!(ping["result"], json!({}));
    let early = client.ask("tools/list", &json!({}));
    assert_eq!(early["error"]["code"], -32602, "{early}");
    let greeting = client.greet(&json!({}));
    assert_eq!(greeting["serverInfo"]["name"], "ringfence");
    assert_eq!(client.python("print(3)"), "3\n");
    client.leave().well();
    world.close();
}

#[test]
fn the_protocols_version_is_agreed_upon() {
    let world = World::here();
    for (wanted, agreed) in [
        ("2024-11-05", "2024-11-05"),
        ("2025-06-18", "2025-06-18"),
        ("2025-11-25", "2025-11-25"),
        ("1999-01-01", "2025-11-25"),
    ] {
        let mut client = Client::start(&world, &[]);
        let about = json!({
            "protocolVersion": wanted,
            "capabilities": {},
            "clientInfo": {"name": "by hand", "version": "1"},
        });
        let greeting = client.ask("initialize", &about);
        assert_eq!(greeting["result"]["protocolVersion"], agreed, "{greeting}");
        client.leave().well();
    }
    world.close();
}

#[test]
fn ids_come_back_as_they_were() {
    let world = World::here();
    let mut client = Client::greeted(&world, &[]);
    for id in [
        json!(0),
        json!(-5),
        json!("x"),
        json!(""),
        json!(9_007_199_254_740_993_i64),
    ] {
        client.send(&json!({"jsonrpc": "2.0", "id": id, "method": "ping"}));
        assert_eq!(client.next(), json!({"jsonrpc": "2.0", "id": id, "result": {}}));
    }
    client.leave().well();
    world.close();
}
