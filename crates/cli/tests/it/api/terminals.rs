//! Terminals over a WebSocket, with a third-party client.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::os::unix::net::UnixStream;

use serde_json::{Value, json};
use tokio_tungstenite::tungstenite::client::IntoClientRequest;
use tokio_tungstenite::tungstenite::protocol::frame::coding::CloseCode;
use tokio_tungstenite::tungstenite::{self, Message, WebSocket};

use super::keys::Holder;
use super::{Surface, loopback_address, world};

/// Returns the path of a new shell in a terminal, in the sandbox `lab`.
fn shell(ask: impl Fn(&str, &Value) -> Value) -> String {
    ask("POST /v1/sandboxes", &json!({"name": "lab"}));
    start(ask, &["bash", "--norc"], true)
}

/// Starts a program in a terminal, and returns the path to attach to it.
fn start(ask: impl Fn(&str, &Value) -> Value, command: &[&str], stdin: bool) -> String {
    let new = json!({"command": command, "stdin": stdin, "terminal": {"columns": 80, "rows": 24}});
    let pid = ask("POST /v1/sandboxes/lab/processes", &new)["pid"].clone();
    format!("/v1/sandboxes/lab/processes/{pid}/attach")
}

fn attach<S: Read + Write>(
    stream: S,
    host: &str,
    path: &str,
    headers: &[(&'static str, &str)],
) -> WebSocket<S> {
    let mut request = format!("ws://{host}{path}").into_client_request().unwrap();
    for (name, value) in headers {
        request.headers_mut().insert(*name, value.parse().unwrap());
    }
    tungstenite::client(request, stream).unwrap().0
}

fn send<S: Read + Write>(socket: &mut WebSocket<S>, message: Message) {
    socket.send(message).unwrap();
}

/// Reads what is shown until it has this text, and returns it.
fn read_until<S: Read + Write>(socket: &mut WebSocket<S>, text: &str) -> String {
    let mut shown = Vec::new();
    while !String::from_utf8_lossy(&shown).contains(text) {
        match socket.read().unwrap() {
            Message::Binary(bytes) => shown.extend_from_slice(&bytes),
            other => assert!(matches!(other, Message::Ping(_)), "{other:?}"),
        }
    }
    String::from_utf8_lossy(&shown).into_owned()
}

/// Reads texts and the code with which the server closes, leaving out what is shown.
fn rest<S: Read + Write>(socket: &mut WebSocket<S>) -> (Vec<Value>, Option<CloseCode>) {
    let mut texts = Vec::new();
    loop {
        match socket.read() {
            Ok(Message::Text(text)) => texts.push(serde_json::from_str(&text).unwrap()),
            Ok(Message::Close(frame)) => return (texts, frame.map(|frame| frame.code)),
            Ok(_) => {}
            Err(_) => return (texts, None),
        }
    }
}

#[test]
fn a_terminal_is_typed_at_resized_and_left() {
    let world = world();
    let surface = Surface::socket(&world);
    let path = shell(|line, body| surface.ask(line, &[], &body.to_string()).json());
    let attached = |from: &str| {
        let stream = UnixStream::connect(world.socket()).unwrap();
        attach(stream, "localhost", &format!("{path}{from}"), &[])
    };
    let mut socket = attached("");
    send(&mut socket, Message::binary("stty size; echo do''ne\n"));
    let shown = read_until(&mut socket, "done");
    assert!(shown.contains("24 80"), "{shown}");
    send(
        &mut socket,
        Message::text(r#"{"resize": {"columns": 100, "rows": 30}}"#),
    );
    send(&mut socket, Message::binary("stty size\n"));
    read_until(&mut socket, "30 100");
    // What a terminal has not is refused.
    let refused = |line: &str, body: &str, status: u16, what: &str| {
        let reply = surface.ask(line, &[], body);
        assert_eq!(reply.status, status, "{reply:?}");
        assert!(reply.body.contains(what), "{reply:?}");
    };
    let process = path.strip_suffix("/attach").unwrap();
    refused(&format!("POST {process}/stdin?end=true"), "", 409, "has no end");
    refused(
        &format!("POST {process}/resize"),
        r#"{"columns": 0, "rows": 10}"#,
        422,
        "columns",
    );
    // Whoever leaves leaves the process, and another sees what it has shown.
    drop(socket);
    let mut other = attached("?from=0");
    read_until(&mut other, "done");
    send(&mut other, Message::binary("exit 3\n"));
    let (texts, code) = rest(&mut other);
    assert_eq!(texts.last().unwrap()["end"]["exit_code"], 3, "{texts:?}");
    assert_eq!(code, Some(CloseCode::Normal));
    world.close();
}

#[test]
fn a_terminal_is_its_keys_and_ends_with_it() {
    let world = world();
    let (holder, stranger) = (Holder::new(&world, &[]), Holder::new(&world, &[]));
    let path = shell(|line, body| holder.ok(line, body));
    let address = loopback_address(&world);
    let bearer = holder.bearer.split_once(": ").unwrap().1;
    let attached_to = |path: &str| {
        let stream = TcpStream::connect(address).unwrap();
        attach(stream, &address.to_string(), path, &[("Authorization", bearer)])
    };
    let attached = || attached_to(&path);
    let mut socket = attached();
    send(&mut socket, Message::binary("echo he''re\n"));
    read_until(&mut socket, "here");

    let line = format!("GET {path}");
    let begin = [
        "Connection: Upgrade",
        "Upgrade: websocket",
        "Sec-WebSocket-Version: 13",
        "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==",
    ];
    let ask = |more: &[&str]| holder.surface.ask(&line, &[&begin[..], more].concat(), "");
    ask(&[]).refused(401, "unauthenticated");
    ask(&[&stranger.bearer]).refused(404, "not_found");
    ask(&[&holder.bearer, "Origin: http://page.test"]).refused(403, "permission_denied");
    let plain = holder.ask(&line, &json!({}));
    plain.refused(422, "invalid_arguments");
    let other = holder.ok(
        "POST /v1/sandboxes/lab/processes",
        &json!({"command": "cat", "stdin": true}),
    );
    let other = format!("GET /v1/sandboxes/lab/processes/{}/attach", other["pid"]);
    let headers = [&begin[..], &[&holder.bearer]].concat();
    holder.surface.ask(&other, &headers, "").refused(409, "conflict");

    let mut wrong = attached();
    send(&mut wrong, Message::text(r#"{"signal": 9}"#));
    assert_eq!(rest(&mut wrong).1, Some(CloseCode::Policy));
    let closed = start(|line, body| holder.ok(line, body), &["sleep", "1000"], false);
    let mut closed = attached_to(&closed);
    send(&mut closed, Message::binary("unread"));
    assert_eq!(rest(&mut closed).1, Some(CloseCode::Policy));
    let mut large = attached();
    let _ = large.send(Message::binary(vec![b'x'; 65 * 1024]));
    assert_eq!(rest(&mut large).1, None);

    world.dir.run(["keys", "revoke", &holder.id]).ok();
    assert_eq!(rest(&mut socket), (Vec::new(), None));
    world.close();
}
