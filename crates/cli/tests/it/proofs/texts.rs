//! Misleading texts of an agent, in every place where a person reads them.

use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::net::UnixStream;
use std::process::Stdio;

use serde_json::{Value, json};

use super::{Asker, ON, Through, answer, question, requests, ringfence, world};
use crate::approvals::Gateway;
use crate::support::{finish, start};

/// Commands that look like something else, with the escaped part that a person must see.
const HOSTILE: &[(&str, &str)] = &[
    ("touch a\0b", "\\u{0}"),
    ("touch a\rrm b", "\\u{d}"),
    ("touch \u{1b}[2K\u{1b}[1Aok", "\\u{1b}"),
    ("touch \u{1b}]0;title\u{7}", "\\u{7}"),
    ("touch \u{9b}31m", "\\u{9b}"),
    ("touch \u{202e}gpj.exe\u{202c}", "\\u{202e}"),
    ("touch \u{2066}x\u{2069}", "\\u{2066}"),
    ("touch a\u{200b}b\u{2060}c\u{feff}", "\\u{200b}"),
    ("touch a\u{ad}b", "\\u{ad}"),
    ("touch a\u{e0041}\u{e0042}", "\\u{e0041}"),
    ("touch \u{3164}", "\\u{3164}"),
    ("touch a\u{8}\u{8}\u{7f}", "\\u{8}"),
    ("touch a\u{2028}b\u{85}c", "\\u{2028}"),
    ("touch r\u{43e}\u{43e}t", "U+043E"),
    ("touch \u{ff52}\u{ff4d}", "U+FF52"),
];

/// Asserts that a text neither controls a terminal nor hides anything.
#[track_caller]
fn harmless(text: &str) {
    let hides = |c: char| {
        (c.is_control() && c != '\n')
            || matches!(
                c,
                '\u{ad}'
                    | '\u{61c}'
                    | '\u{115f}'
                    | '\u{1160}'
                    | '\u{180e}'
                    | '\u{3164}'
                    | '\u{feff}'
                    | '\u{ffa0}'
            )
            || matches!(c, '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}' | '\u{e0000}'..='\u{e0fff}')
    };
    let found: Vec<char> = text.chars().filter(|c| hides(*c)).collect();
    assert!(found.is_empty(), "{found:?} in {text:?}");
}

#[test]
fn no_text_hides_anything_from_whoever_is_asked() {
    let world = world(ON, true);
    let mut terminal = world.command(&[], ["gateway", "terminal"]);
    let mut terminal = terminal
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    world.watch(terminal.id());
    let mut stdout = BufReader::new(terminal.stdout.take().unwrap());
    let mut until = |part: &str| {
        let mut text = String::new();
        while !text.contains(part) {
            assert_ne!(stdout.read_line(&mut text).unwrap(), 0, "{text}");
        }
        text
    };
    until("connected");
    for (line, shown) in HOSTILE {
        let asker = Asker::start(&world, Through::Tool, line);
        let found = question(&world, line);
        // The exact text is stored and sent.
        assert_eq!(found["text"], *line);
        let listed = ringfence(&world, &["approvals", "ls"]);
        let text = until("to deny");
        for text in [listed.ok(), &text] {
            harmless(text);
            assert!(text.contains(shown), "{line:?}: {text}");
        }
        let id = found["id"].as_str().unwrap();
        let denied = ringfence(&world, &["approvals", "deny", id]);
        harmless(denied.ok());
        harmless(&until("rejected"));
        assert_eq!(asker.end()["error"]["type"], "rejected", "{line:?}");
        for args in [
            &["approvals", "ls", "--all"][..],
            &["audit", "tail"],
            &["policy", "check", "--", &line.replace('\0', "")],
            &["policy", "explain", "--", &line.replace('\0', "")],
        ] {
            let output = ringfence(&world, args);
            harmless(output.ok());
            harmless(&output.stderr);
        }
    }
    drop(terminal.stdin.take());
    terminal.wait().unwrap();
    world.close();
}

#[test]
fn errors_and_notices_hide_nothing() {
    let world = world(&format!("{ON}notifyList = ['touch *']\n"), true);
    let mut gateway = Gateway::of(&world);
    let mut terminal = world.command(&[], ["gateway", "terminal"]);
    let mut terminal = terminal
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    world.watch(terminal.id());
    for line in ["cat '/no/\u{e9}\u{430}'", "touch '\u{430}'"] {
        Asker::start(&world, Through::Tool, line).end();
    }
    assert!(
        gateway.expect("message")["text"]
            .as_str()
            .unwrap()
            .contains('\u{430}')
    );
    // An error that repeats the agent's name for something.
    let name = "x\u{202e}\u{1b}[2Jy";
    let (line, path) = (
        format!("cp /etc/hostname '{name}'"),
        world.dir.path("work").join(name),
    );
    let mut command = world.command(&[], ["tool", "host_exec", "-", "--no-engine"]);
    let mut asker = start(&mut command);
    let arguments = json!({"command": line}).to_string();
    asker
        .stdin
        .take()
        .unwrap()
        .write_all(arguments.as_bytes())
        .unwrap();
    let id = question(&world, &line)["id"].as_str().unwrap().to_owned();
    std::fs::write(&path, "").unwrap();
    answer(&world, "approve", &id);
    let output = asker.wait_with_output().unwrap();
    let text = String::from_utf8(output.stderr).unwrap();
    assert!(text.contains("changed while"), "{text}");
    harmless(&text);
    drop(terminal.stdin.take());
    let mut shown = String::new();
    terminal
        .stdout
        .take()
        .unwrap()
        .read_to_string(&mut shown)
        .unwrap();
    terminal.wait().unwrap();
    harmless(&shown);
    drop(gateway);
    world.close();
}

#[test]
fn ten_thousand_characters_are_asked_about_whole_and_one_more_is_refused() {
    let world = world(ON, true);
    let mut gateway = Gateway::of(&world);
    for filling in ["a", "\u{e9}", "\u{1f600}", "\u{1b}"] {
        let line = format!("rm -f {}", filling.repeat(10_000 - 6));
        let asker = Asker::start(&world, Through::Engine, &line);
        let request = gateway.expect("approval_request");
        assert_eq!(request["command"], json!(line));
        let listed = ringfence(&world, &["approvals", "ls"]);
        harmless(listed.ok());
        let shown = listed
            .stdout
            .matches(if filling == "\u{1b}" { "\\u{1b}" } else { filling })
            .count();
        assert!(shown >= 10_000 - 6, "{shown}");
        gateway.answer(&request, false);
        gateway.expect("approval_closed");
        assert_eq!(asker.end()["error"]["type"], "rejected");
        let longer = Asker::start(&world, Through::Engine, &format!("{line}{filling}")).end();
        assert_eq!(longer["error"]["type"], "invalid_arguments", "{filling}");
    }
    assert_eq!(requests(&world).len(), 4);
    drop(gateway);
    world.close();
}

#[test]
fn bytes_that_are_no_text_answer_nothing() {
    let world = world(ON, true);
    let line = "touch made";
    let asker = Asker::start(&world, Through::Engine, line);
    let id = question(&world, line)["id"].as_str().unwrap().to_owned();
    let yes = |id: &[u8], tail: &[u8]| {
        let head = b"{\"type\":\"approval_response\",\"approved\":true,\"id\":\"";
        [&head[..], id, b"\"", tail, b"}\n"].concat()
    };
    let (half, whole) = (&id.as_bytes()[..10], id.as_bytes());
    for bytes in [
        yes(&[half, b"\xff\xfe"].concat(), b""),
        yes(whole, b",\"by\":\"\xc3\x28\""),
        yes(whole, b",\"by\":\"\xed\xa0\x80\""),
        yes(&[whole, b"\0"].concat(), b""),
        yes(&[whole, b"\\u0000"].concat(), b""),
        yes(&[b"\xef\xbb\xbf", whole].concat(), b""),
        [&yes(whole, b"")[..20], b"\r\n"].concat(),
        b"\xff\xff\xff\xff\n".to_vec(),
        b"\0\n".to_vec(),
    ] {
        let mut stream = UnixStream::connect(world.dir.path("run/ringfence/gateway.sock")).unwrap();
        stream.write_all(&bytes).unwrap();
        let answered = BufReader::new(stream).lines().map_while(Result::ok);
        let mut answered = answered.map(|line| serde_json::from_str::<Value>(&line).unwrap());
        let error = answered.find(|message| message["type"] == "error").unwrap();
        assert!(
            ["malformed", "unknown"].contains(&error["error"].as_str().unwrap()),
            "{error}"
        );
        assert_eq!(question(&world, line)["id"], id.as_str());
    }
    // A gateway may choose any name; others see it escaped.
    let mut gateway = Gateway::of(&world);
    gateway.say(&json!({"type": "approval_response", "id": id, "approved": false, "by": "ann\u{202e}\u{1b}[2J\n[1] approved"}));
    let rejected = asker.end();
    assert_eq!(rejected["error"]["type"], "rejected", "{rejected}");
    let listed = ringfence(&world, &["approvals", "ls", "--all"]);
    assert!(listed.ok().contains("denied by ann\\u{202e}"), "{listed:?}");
    harmless(&listed.stdout);
    let tail = finish(&mut world.command(&[], ["audit", "tail"]), b"");
    harmless(tail.ok());
    drop(gateway);
    world.close();
}
