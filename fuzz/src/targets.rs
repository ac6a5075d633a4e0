//! The targets: everything that parses untrusted bytes, with the properties that must hold for every input.

use std::fmt::Display;
use std::path::{Component, Path};
use std::str::FromStr;

use ringfence_exec::bridge::{Message, MessageDecoder};
use ringfence_images::{self as images, Reference};
use ringfence_imports as imports;
use ringfence_jail::init::files::{Record, copy_content};
use ringfence_jail::init::frames::{FrameReader, Secret};
use ringfence_jail::protocol::{Command, Event};
use ringfence_network::fetch::Url;
use ringfence_policy::cascade::{self, Part, Pattern, Verdict, decide};

use ringfence_gateway_protocol as gateway;
use ringfence_jupyter::{Incoming, Protocol};
use ringfence_mcp as mcp;
use ringfence_multipart::Form;
use ringfence_packages::{Ecosystem, Requirement};
use ringfence_policy::{
    Bytes, Cidr, Cpus, EnvName, ExecutionResult, Host, HostPattern, Mount, Pids, Scope, Timeout, UserRoot,
    UserScope, shell,
};
use ringfence_records::approval;
use ringfence_tools::files::{Entry, Root, Rules};
use ringfence_tools::skills::{Events, read_message};

use crate::{output, tar_archives};

/// A function that panics on a finding, with its seeds.
pub(crate) struct Target {
    pub(crate) name: &'static str,
    pub(crate) run: fn(&[u8]),
    pub(crate) seeds: &'static [&'static [u8]],
}

pub(crate) const TARGETS: &[Target] = &[
    Target {
        name: "policy_values",
        run: policy_values,
        seeds: &[
            b"10KiB",
            b"256m",
            b"1.5s",
            b"500ms",
            b"2m",
            b"0.5",
            b"64",
            b"/data:/mnt/data:ro",
            b"PATH",
            b"Scikit_Learn[Plots] <2, >= 1.3",
            b"pandas>=1,<2,numpy",
            b"local",
            b"18446744073709551615GiB",
            b"1e308",
            b"{\"stdout\":\"\",\"stderr\":\"\",\"exit_code\":0,\"duration\":0.1,\"meta\":{\"runtime\":\"local\"}}",
        ],
    },
    Target {
        name: "file_paths",
        run: file_paths,
        seeds: &[
            b"main.rs",
            b"/workspace/./main.rs",
            b"../Cargo.toml",
            b"a/../../src/main.rs",
            b"/proc/self/root/etc/passwd",
            b"data/users/{user_id}",
            b"{user_id}/{session_id}/..",
            "\u{ff0e}git/.g\u{200c}it/GIT~1".as_bytes(),
        ],
    },
    Target {
        name: "egress_values",
        run: egress_values,
        seeds: &[
            b"example.com",
            b"*.example.com:8443",
            b"2130706433",
            b"0x7f.0.0.1",
            b"0177.1",
            b"[::ffff:127.0.0.1]",
            b"fe80::1%eth0",
            b"xn--mnchen-3ya.example.",
            b"127.0.0.0/8",
            b"fd00::/8",
            b"http://a.test:8080/x/../y?z=%20#w",
            b"https://[2001:db8::1]/",
            b"http://user:pass@a.test\\@b.test/",
        ],
    },
    Target {
        name: "engine_frames",
        run: engine_frames,
        seeds: &[
            b"\x01\x02\x00\x00\x00{}\x04\x00\x00\x00\x00",
            b"\x10\x03\x00\x00\x00abc\x11\x00\x00\x00\x00",
            b"\x02\xff\xff\xff\xff",
            b"{\"code\":\"print(1)\",\"name\":\"a.py\",\"language\":\"python\",\"args\":[],\"env\":[[\"A\",\"b\"]],\"limits\":{\"timeout\":30.0,\"max_output\":10240,\"memory\":268435456,\"cpus\":1.0,\"pids\":64,\"disk\":67108864},\"mounts\":[[\"/tmp\",\"/data\",false]],\"scope\":\"local\",\"fence\":\"default\",\"interpreter\":null,\"output_directory\":null,\"stream\":false,\"stdin\":false}",
        ],
    },
    Target {
        name: "mcp_lines",
        run: mcp_lines,
        seeds: &[
            b"{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"tools/call\",\"params\":{\"name\":\"shell\",\"arguments\":{\"args\":[\"a\"]}}}",
            b"{\"jsonrpc\":\"2.0\",\"method\":\"notifications/cancelled\",\"params\":{\"requestId\":\"x\"}}",
            b"{\"jsonrpc\":\"2.0\",\"id\":2,\"result\":{\"roots\":[{\"uri\":\"file:///a%20b\"}]}}",
            b"{\"jsonrpc\":\"1.0\",\"id\":9223372036854775808,\"method\":null}",
            b"file://localhost/a%C3%A9/../b?c#d",
        ],
    },
    Target {
        name: "gateway_lines",
        run: gateway_lines,
        seeds: &[
            b"{\"type\":\"hello\",\"version\":1,\"chats\":[\"telegram_1\"],\"name\":\"phone\"}\n",
            b"{\"type\":\"approval_response\",\"id\":\"apr_001\",\"approved\":true,\"remember\":{\"uses\":5}}\n{}\n",
            b"{\"type\":\"approval_request\",\"id\":\"a\",\"chatId\":\"local\",\"command\":\"x\",\"riskScore\":8,\"timeout\":300}",
            b"{\"type\":\"approval_closed\",\"id\":\"a\",\"outcome\":\"expired\",\"by\":null}",
            b"apr_0123456789abcdef0123456789abcdef",
            b"telegram_-100:7",
        ],
    },
    Target {
        name: "launcher_packets",
        run: launcher_packets,
        seeds: &[
            b"\"Ready\"",
            b"{\"Exited\":{\"id\":1,\"status\":-9,\"cpu_micros\":5,\"max_rss\":9}}",
            b"{\"Failed\":{\"id\":0,\"step\":\"mount /proc\",\"errno\":1}}",
            b"{\"Kill\":{\"id\":18446744073709551615}}",
            b"{\"ZygoteReports\":{\"text\":\"import 0\"}}",
        ],
    },
    Target {
        name: "agent_frames",
        run: agent_frames,
        seeds: &[
            b"\x05\x07\0\0\0\0\0\0\0\x06\x07\0\0\0\x04\0\0\0\0\x01\0\0",
            b"\x02\x01\0\0\0\x2a\0\0\0\x01\x04\0\0\0main\x02\0\0\0ls\x01\0\0\0\x01\0\0\0a\0\0\0\0\x01\0\0\0/\x01\xe8\x03\0\0\0\0\0\0",
            b"\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\x42\x01\0\0\0\x03\0\0\0abc",
            b"\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\x44\x01\0\0\0\x25\0\0\0\0\xf7\xff\xff\xff\0\0\0\0\x01\0\x01\0\x05\0\0\0\0\0\0\0\x09\0\0\0\0\0\0\0\x25\x23\x22\x84\xe4\x9c\xf2\xcb",
            b"\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\x41\0\0\0\0\x0e\0\0\0\x01\0\0\0\x01\x04\0\0\0/bin\0",
        ],
    },
    Target {
        name: "container_files",
        run: container_files,
        seeds: &[
            b"D\x01\0\0\0aF\x23\0\0\0\x07\0\0\0\0\0\0\0\x02\0\0\0\0\0\0\0\xa4\x01\0\0\0\0\0\0\0\0\0\0\0\0\0\0a/bhiE\x01\0\0\0\x01",
            b"K\x09\0\0\0\x07\0\0\0\0\0\0\0aS\x01\0\0\0aG\x01\0\0\0aL\x05\0\0\0\x03../xE\x01\0\0\0\0",
        ],
    },
    Target {
        name: "tar_archives",
        run: tar_archives::run,
        seeds: &[&tar_archives::SEED],
    },
    Target {
        name: "image_documents",
        run: image_documents,
        seeds: &[
            b"registry.test:5000/team/app__x:1.2@sha256:e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855",
            b"python:3.12-slim",
            b"[::1]:5000/a",
            b"Bearer realm=\"https://auth.test/token\",service=\"registry.test\",scope=\"repository:a/b:pull\"",
            b"{\"schemaVersion\":2,\"manifests\":[{\"digest\":\"sha256:e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855\",\"size\":1,\"platform\":{\"os\":\"linux\",\"architecture\":\"amd64\"}}]}",
            b"{\"architecture\":\"amd64\",\"os\":\"linux\",\"config\":{\"Env\":null,\"WorkingDir\":\"/a\"},\"rootfs\":{\"diff_ids\":[]}}",
        ],
    },
    Target {
        name: "upload_forms",
        run: upload_forms,
        seeds: &[b"--x\r\nContent-Disposition: form-data; name=\"a\"; filename=\"b/c\"\r\n\r\n1\r\n--x--"],
    },
    Target {
        name: "kernel_messages",
        run: kernel_messages,
        seeds: &[
            br#"{"header":{"msg_id":"1","msg_type":"execute_request","date":null},"content":{"code":"1"},"channel":"shell"}"#,
            b"\x06\0\0\0\0\0\0\0\x38\0\0\0\0\0\0\0\x3d\0\0\0\0\0\0\0\x58\0\0\0\0\0\0\0\x5a\0\0\0\0\0\0\0\x5c\0\0\0\0\0\0\0\x5e\0\0\0\0\0\0\0\
            shell{\"msg_id\":\"\",\"msg_type\":\"\"}{}{}{}",
        ],
    },
    Target {
        name: "server_messages",
        run: server_messages,
        seeds: &[
            b"\x07: hi\r\nevent: message\r\nid: 1\r\nretry: 500\r\ndata: {\"jsonrpc\":\"2.0\",\r\ndata: \"id\":1}\r\n\r\ndata:two\n\n",
            b"\x01id: 7\ndata:\n\nid: 8\ndata: cut",
            b"{\"jsonrpc\":\"2.0\",\"id\":1,\"result\":{\"tools\":[],\"nextCursor\":\"a\"}}",
            b"{\"method\":\"notifications/tools/list_changed\"}",
            b"{\"id\":-1,\"error\":{\"code\":-32602,\"message\":\"\\ud800\"}}",
            b"[[[[[[[[1e400,18446744073709551616,-0.0]]]]]]]]",
        ],
    },
    Target {
        name: "bridge_lines",
        run: bridge_lines,
        seeds: &[
            b"{\"type\":\"call\",\"id\":\"1\",\"data\":{\"path\":\"A.b\",\"args\":[1,\"x\"],\"kwargs\":{\"c\":null}}}\n",
            b"{\"type\":\"error\",\"id\":\"1\",\"data\":{\"kind\":\"cancelled\",\"error\":\"\\ud83d\\ude00\"}}\n{\"type\"",
            b"{\"type\":\"result\",\"id\":\"\",\"data\":{\"value\":[[[{\"a\":1e308}]]]}}\n",
        ],
    },
    Target {
        name: "import_check",
        run: import_check,
        seeds: &[
            b"import os\n",
            b"from os import path as p, sep\n",
            b"__import__('subprocess')\nimportlib.import_module(\"socket\")\n",
            b"import importlib as i\ni.import_module('o' 's')\n",
            b"def f(a=lambda: [x for x in (1, {2: 3})]):\n    if a:\n        import shutil\n",
            "f\"{x!r:>{width}} {'os'}\"\nimport \u{ff4f}s\n".as_bytes(),
            b"match x:\n  case {'a': [1, *r]}: import os; pass\n",
            b"((((((((((((((((",
            b"a.b.c.d[0](1)(2)\n\\\n\t\x0c# import os\n\"\"\"import os\"\"\"\n",
        ],
    },
    Target {
        name: "command_lines",
        run: command_lines,
        seeds: &[
            b"ls -la | grep x && cat 'a b' \"$c\" > f",
            b"find . -name '*.rs' -exec grep -l {} + -delete",
            b"for x in a; do $(rm $x) `id`; done; f() { ls; }",
            b"case $x in a|b) ls;; esac <<E\n$(id)\nE\n",
            b"env -i nice timeout 5 xargs -0 bash -c 'sed -n 1p'",
            b"git -c a=b log --outp x; awk '{print > \"x\"}'",
            b"sed 's/[/]/x/;e' ${x:-$(y)} $'\\x41' <(ls) 2>&1 &>x",
            b"for f in *.txt src/{a,b}.rs $(git ls-files); do [[ -f $f && ! $f == a* ]] && cat \"$f\"; done",
            b"cd src && while IFS= read -r x y; do [ -n \"$x\" ] || break; sort ${x%y} $HOME/{1..3}; done < a",
        ],
    },
    Target {
        name: "output_capture",
        run: output::output_capture,
        seeds: &["\u{4}hello\nw\u{f6}rld \u{1f600}\n".as_bytes(), b"\x10\xff\xfe\xf0\x9f\x98", b"\x00abc", b"\x01\x80\x80\x80\x80"],
    },
    Target {
        name: "session_results",
        run: output::session_results,
        seeds: &[
            b"\0\0\0\0\x01\x01\x0atext/plain\0\x01\0\0\0x",
            b"\x02\0\0\0\0\x01\x09image/png\0\x09\0\0\0\x89PNG\r\n\x1a\n\0",
            b"\0\0\0\0\0\x01\x10application/json\x02\x09\0\0\0[[1e9]] {}",
            b"\0\0\0\0\0\x01\x1eapplication/vnd.plotly.v1+json\x01\xff\xff\xff\xff",
        ],
    },
    Target {
        name: "redaction",
        run: output::redaction,
        seeds: &[
            b"\x18key is s3cr3t-Value!42, again s3cr3t-Value!42",
            b"\x1eczNjcjN0LVZhbHVlITQy 7333637233742d56616c7565213432 s3cr3t%2DValue%2142",
            b"\x03ghp_0123456789abcdefghijABCDEFGHIJ012345 AKIAIOSFODNN7EXAMPLE",
            b"\x02https://user:s3cr3t-Value!42@example.org/ -----BEGIN PRIVATE KEY-----\nMIIB\n-----END PRIVATE KEY-----",
            b"\x40Authorization: Bearer eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxIn0.abcdefghijklmnop sk-s3cr3t-Value!42",
        ],
    },
];

/// A parsed value must format as text that parses to the same value.
fn policy_values(input: &[u8]) {
    let _ = serde_json::from_slice::<ExecutionResult>(input);
    let Ok(text) = std::str::from_utf8(input) else {
        return;
    };
    stable::<Bytes>(text);
    stable::<Timeout>(text);
    stable::<Cpus>(text);
    stable::<Pids>(text);
    stable::<Mount>(text);
    stable::<Requirement>(text);
    if let Ok(npm) = Requirement::parse(Ecosystem::Npm, text) {
        assert_eq!(Requirement::parse(Ecosystem::Npm, &npm.to_string()), Ok(npm));
    }
    for ecosystem in [Ecosystem::Python, Ecosystem::Npm] {
        let _ = ringfence_packages::parse_list(ecosystem, text);
    }
    let _ = text.parse::<EnvName>();
    let _ = text.parse::<Scope>();
}

fn stable<T: FromStr + Display + PartialEq>(text: &str) {
    let Ok(value) = text.parse::<T>() else { return };
    let printed = value.to_string();
    assert!(
        printed.parse::<T>().is_ok_and(|again| again == value),
        "{text:?} prints as {printed:?}"
    );
}

/// For any path, a file tool stays in its directory and reports so; a template never leads upwards.
fn file_paths(input: &[u8]) {
    thread_local!(static ROOT: Root = {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
        Root::open(&path, Rules::standard()).expect("these sources are there")
    });
    let Ok(text) = std::str::from_utf8(input) else {
        return;
    };
    ROOT.with(|root| {
        if let Ok(found) = root.read(text, 1, Some(1)) {
            assert!(
                found.to_string().starts_with("//! "),
                "{text:?} is none of these sources"
            );
        }
        if let Ok(found) = root.list(text) {
            let ours = |entry: &Entry| entry.name.ends_with(".rs");
            assert!(found.entries.iter().all(ours), "{text:?} is another directory");
        }
    });
    let Ok(template) = UserRoot::new(UserScope::User, text) else {
        return;
    };
    let session = "s".parse().expect("a letter is an id");
    let path = template.resolve(&Scope::local(), Some(&session));
    let path = path.expect("both are given").expect("each user has one");
    assert!(
        path.components().all(|name| name != Component::ParentDir),
        "{text:?} goes up"
    );
}

/// A parsed host, range or URL must format as text that parses to the same value. No accepted name may be one
/// that a resolver could parse as an address.
fn egress_values(input: &[u8]) {
    let Ok(text) = std::str::from_utf8(input) else {
        return;
    };
    stable::<Host>(text);
    stable::<HostPattern>(text);
    stable::<Cidr>(text);
    stable::<Url>(text);
    if let Ok(Host::Name(name)) = text.parse::<Host>() {
        assert!(!name.as_str().split('.').all(is_number), "{name}");
        assert!(
            name.as_str().bytes().all(|byte| byte.is_ascii_graphic()),
            "{name}"
        );
    }
}

/// Returns `true` for a part of an address in the syntax of `inet_aton`.
fn is_number(part: &str) -> bool {
    let hexadecimal = part.strip_prefix("0x").or_else(|| part.strip_prefix("0X"));
    match hexadecimal {
        Some(digits) => digits.bytes().all(|byte| byte.is_ascii_hexdigit()),
        None => part.bytes().all(|byte| byte.is_ascii_digit()),
    }
}

/// An invalid message gets one error on one line; a valid path is one on this machine.
fn mcp_lines(bytes: &[u8]) {
    if let Some(answer) = mcp::refusal(bytes) {
        assert_eq!(
            answer.iter().position(|byte| *byte == b'\n'),
            Some(answer.len() - 1)
        );
        let answer: serde_json::Value = serde_json::from_slice(&answer).expect("an answer is JSON");
        assert!(answer["error"]["code"].is_i64(), "{answer}");
    }
    if let Some(path) = mcp::path_of(&String::from_utf8_lossy(bytes)) {
        assert!(path.is_absolute());
        assert!(!path.as_os_str().as_encoded_bytes().contains(&0));
    }
}

/// A gateway's line is parsed faithfully, or rejected; names are plain.
fn gateway_lines(bytes: &[u8]) {
    for line in bytes.split(|byte| *byte == b'\n') {
        let _ = gateway::parse_from_server(line);
        if let Ok(message) = gateway::parse_from_gateway(line) {
            let written = serde_json::to_vec(&message).expect("a message can be written");
            assert_eq!(gateway::parse_from_gateway(&written), Ok(message));
        }
    }
    let text = String::from_utf8_lossy(bytes);
    if let Ok(id) = text.parse::<approval::Id>() {
        assert_eq!((id.as_str(), id.as_str().len()), (&*text, 36));
    }
    if let Ok(chat) = text.parse::<approval::Chat>() {
        assert!(
            chat.as_str().bytes().all(|byte| byte.is_ascii_graphic()),
            "{chat:?}"
        );
    }
}

/// A packet is parsed faithfully, or rejected.
fn launcher_packets(input: &[u8]) {
    let _ = serde_json::from_slice::<Command>(input);
    let Ok(event) = serde_json::from_slice::<Event>(input) else {
        return;
    };
    let written = serde_json::to_vec(&event).expect("events can be written");
    assert_eq!(
        serde_json::from_slice::<Event>(&written).expect("what was written can be read"),
        event
    );
}

/// A record is parsed faithfully, and its path has plain components only.
fn container_files(input: &[u8]) {
    let (mut rest, mut written) = (input, Vec::new());
    while let Ok(record) = Record::read(&mut rest) {
        let path = match &record {
            Record::Known { path, .. } | Record::File { path, .. } => Some(path),
            Record::Same(path) | Record::Directory(path) | Record::Gone(path) => Some(path),
            Record::Left { .. } | Record::State(_) | Record::End { .. } => None,
        };
        let names = path.map(|path| path.as_path().components());
        assert!(names.is_none_or(|mut names| names.all(|name| matches!(name, Component::Normal(_)))));
        written.clear();
        record.write(&mut written).expect("memory takes all");
        assert_eq!(
            Record::read(&mut &written[..]).expect("what was written can be read"),
            record
        );
        if let Record::File { size, .. } = record {
            let size = size.min(1 << 16);
            copy_content(size, &mut rest, &mut std::io::sink()).expect("memory takes all");
        }
    }
}

/// A frame is parsed faithfully, in chunks of any size, or rejected.
fn agent_frames(input: &[u8]) {
    let secret = Secret::default();
    let (mut orders, mut reports) = (FrameReader::default(), FrameReader::of_init(secret));
    let (mut written, mut ended) = (Vec::new(), false);
    for piece in input.chunks(7) {
        orders.push(piece);
        while let (false, Ok(Some(order))) = (ended, orders.order()) {
            order.write(&mut written);
        }
        ended |= orders.order().is_err();
    }
    assert!(
        input.starts_with(&written),
        "an order is written otherwise than it was read"
    );
    let (mut written, mut ended) = (Vec::new(), false);
    for piece in input.chunks(7) {
        reports.push(piece);
        while let (false, Ok(Some(report))) = (ended, reports.report()) {
            report.write(&secret, &mut written);
        }
        ended |= reports.report().is_err();
    }
    assert!(
        input.starts_with(&written),
        "a report is written otherwise than it was read"
    );
}

/// Any text is checked without a panic or a stack overflow, and findings lie in the source.
fn import_check(input: &[u8]) {
    let source = String::from_utf8_lossy(input);
    let blocklist: Vec<String> = imports::DEFAULT_BLOCKLIST
        .iter()
        .map(|module| (*module).to_owned())
        .collect();
    let Ok(imports::Findings::Blocked(found)) = imports::check(&source, &blocklist) else {
        return;
    };
    assert!(!found.is_empty());
    for import in &found {
        assert!(blocklist.contains(&import.module), "{import:?}");
        assert!(import.line >= 1 && import.column >= 1, "{import:?}");
    }
    assert!(!imports::message(&found, "sandbox.blocked_imports").is_empty());
}

/// Any line gets a verdict, which appended text never makes milder; an allowed line was parsed in full.
fn command_lines(input: &[u8]) {
    thread_local!(static RULES: cascade::Rules = cascade::Rules {
        allow: ["@read-only", "ls *"].map(|text| text.parse().expect("it is a pattern")).to_vec(),
        ..cascade::Rules::default()
    });
    let Ok(line) = std::str::from_utf8(input) else {
        return;
    };
    RULES.with(|rules| {
        let decision = decide(line, rules);
        assert!(decision.floor <= 10 && !decision.reasons.is_empty(), "{line:?}");
        if decision.verdict == Verdict::Allow {
            // A change of directory alone needs no list.
            let is_cd = |part: &Part| part.findings.is_empty() && part.text.starts_with("cd ");
            let matched = |part: &Part| (part.matched.is_some() || is_cd(part)) && part.floor <= 1;
            assert!(decision.parts.iter().all(matched), "{line:?}");
            if let Some(argv) = &decision.argv {
                let again = decide(&shell::quote(argv), rules);
                assert_eq!(again.argv.as_ref(), Some(argv), "{line:?}");
            }
        }
        // A continued line, or a here document, makes the appended text something other than a command.
        if !line.ends_with('\\') && !line.contains("<<") {
            let longer = decide(&format!("{line}\nrm x"), rules);
            assert_eq!(longer.verdict, Verdict::Review, "{line:?}");
        }
    });
    let _ = line.parse::<Pattern>();
}

/// Frames are decoded without loss, and anything else is rejected. A payload is also parsed as a request.
fn engine_frames(input: &[u8]) {
    let mut buffer = input.to_vec();
    let mut taken = 0;
    while let Ok(Some(frame)) = ringfence_server::frame::decode(&mut buffer) {
        taken += 5 + frame.payload.len();
        assert_eq!(&input[taken - frame.payload.len()..taken], frame.payload);
    }
    assert_eq!(taken + buffer.len(), input.len(), "bytes were lost or made up");
    if let Ok(run) = serde_json::from_slice::<ringfence_server::wire::Run>(input) {
        let _ = run.spec();
    }
}

/// The first byte is the chunk size. Chunking never changes the messages, and a serialized message parses
/// again.
fn bridge_lines(input: &[u8]) {
    let [chunk, stream @ ..] = input else { return };
    let heard = |size: usize| {
        let mut decoder = MessageDecoder::default();
        let mut messages = Vec::new();
        for chunk in stream.chunks(size) {
            decoder.push(chunk);
            loop {
                match decoder.take() {
                    Ok(Some(message)) => messages.push(message),
                    Ok(None) => break,
                    Err(error) => return (messages, Some(error)),
                }
            }
        }
        (messages, None)
    };
    let whole = heard(stream.len().max(1));
    assert_eq!(whole, heard(usize::from(*chunk).max(1)));
    for message in whole.0 {
        assert!(Message::parse(&message.line()).is_ok(), "{message:?}");
    }
}

/// Documents of registries are read without a panic, and a reference in full means itself.
fn image_documents(input: &[u8]) {
    images::read_all(input);
    let text = String::from_utf8_lossy(input);
    if let Ok(reference) = text.parse::<Reference>() {
        assert_eq!(reference.to_string().parse(), Ok(reference));
    }
}

/// A message of a kernel's client is parsed, or rejected, in both protocols.
fn kernel_messages(input: &[u8]) {
    for protocol in [Protocol::Json, Protocol::V1] {
        let _ = Incoming::parse(protocol, input);
    }
}

/// The contents of a form's parts lie in it, one behind the other.
fn upload_forms(input: &[u8]) {
    let form = Form::parse("multipart/form-data; boundary=x", input);
    let parts = form.iter().flat_map(|form| &form.parts);
    assert!(parts.map(|part| part.content.len()).sum::<usize>() <= input.len());
}

/// The first byte is the chunk size. Chunking never changes the events; a parsed one can be serialized and
/// parsed again.
fn server_messages(input: &[u8]) {
    let [chunk, stream @ ..] = input else { return };
    let heard = |size: usize| {
        let mut events = Events::default();
        let chunks = stream.chunks(size);
        let taken: Result<Vec<_>, _> = chunks.map(|chunk| events.take(chunk)).collect();
        (
            taken.map(|taken| taken.concat()),
            events.last().map(<[u8]>::to_vec),
            events.pause(),
        )
    };
    let whole = heard(stream.len().max(1));
    assert_eq!(whole, heard(usize::from(*chunk).max(1)));
    let events = whole.0.unwrap_or_default();
    for message in events.iter().map(Vec::as_slice).chain([stream, input]) {
        if let Ok(Some(value)) = read_message(message) {
            let again = read_message(value.to_string().as_bytes());
            assert!(matches!(again, Ok(Some(_))), "{value}");
        }
    }
}
