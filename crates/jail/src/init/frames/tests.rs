//! Round trips of frames, and bytes that are not frames.

use std::time::Duration;

use super::*;
use crate::mount_point::{FileIdentity, Mounted};

const SECRET: Secret = *b"0123456789abcdef";

fn orders() -> Vec<InitRequest> {
    let start = |program| InitRequest::Start {
        call: 7,
        start: Box::new(Start {
            program,
            arguments: vec!["a b".to_owned(), String::new()],
            environment: vec![("K".to_owned(), "v=w".to_owned())],
            directory: "/workspace".to_owned(),
            input: true,
            timeout: Duration::from_millis(1500),
            proxy: vec!["http_proxy".to_owned()],
            bridge: true,
            terminal: Some(TerminalSize {
                columns: 80,
                rows: 24,
            }),
            user: Some("ada".to_owned()),
        }),
    };
    let (name, code) = ("main".to_owned(), "ö\n".to_owned());
    vec![
        InitRequest::Hello(Hello {
            version: VERSION,
            secret: SECRET,
            python: vec!["-c".to_owned(), "pass".to_owned()],
            output: "/output".to_owned(),
            mount_points: vec!["/workspace".to_owned()],
            leftovers: Leftovers::Keep,
        }),
        start(Program::Python {
            name: name.clone(),
            code: code.clone(),
        }),
        start(Program::Bash { name, code }),
        start(Program::Command("env".to_owned())),
        start(Program::Files),
        InitRequest::Input {
            call: 7,
            bytes: vec![0xff; MAX_PIECE],
        },
        InitRequest::InputEnd { call: 7 },
        InitRequest::Kill { call: u32::MAX },
        InitRequest::Credit { call: 1, bytes: 5 },
        InitRequest::Signal {
            call: 1,
            signal: 2,
            to: Recipient::Group,
        },
        InitRequest::Drain { call: 1 },
        InitRequest::EndAll,
        InitRequest::Resize {
            call: 1,
            size: TerminalSize {
                columns: 1,
                rows: u16::MAX,
            },
        },
        InitRequest::Deliver {
            connection: 2,
            bytes: vec![1; MAX_PIECE],
        },
        InitRequest::Deliver {
            connection: 2,
            bytes: Vec::new(),
        },
        InitRequest::Allow {
            connection: 2,
            bytes: u32::MAX,
        },
        InitRequest::Drop { connection: 2 },
    ]
}

fn reports() -> Vec<Report> {
    let end = |fate| Report::End {
        call: 3,
        end: End {
            fate,
            cut: Cut::Deadline,
            left: true,
            warm: false,
            out_of_memory: true,
            cpu_micros: u64::MAX,
            max_rss: 1,
            output: 9,
        },
    };
    vec![
        Report::Ready(Ready {
            version: 1,
            python: Some("/usr/bin/python3".to_owned()),
            bash: None,
            mount_points: [Mounted::Nothing, Mounted::ReadOnly, Mounted::Writable]
                .map(|mounted| MountPoint {
                    file: (mounted != Mounted::Nothing).then_some(FileIdentity {
                        device: 1,
                        inode: u64::MAX,
                        born: 3,
                    }),
                    mounted,
                })
                .to_vec(),
        }),
        Report::Output {
            call: 3,
            stream: Stream::Stdout,
            bytes: Vec::new(),
        },
        Report::Output {
            call: 3,
            stream: Stream::Stderr,
            bytes: b"\0x".to_vec(),
        },
        end(Fate::Ended(-9)),
        end(Fate::NotStarted {
            step: "start the program".to_owned(),
            errno: 2,
        }),
        end(Fate::Lost),
        Report::Taken { call: 3, bytes: 9 },
        Report::Started { call: 3, pid: 12 },
        Report::Drained { call: 3 },
        Report::AllEnded,
        Report::Broken("why".to_owned()),
        Report::Connected {
            connection: 1,
            call: 3,
        },
        Report::Bridged {
            connection: 2,
            call: 3,
        },
        Report::Received {
            connection: 1,
            bytes: b"GET".to_vec(),
        },
        Report::Delivered {
            connection: 1,
            bytes: 2,
        },
        Report::Dropped { connection: 1 },
    ]
}

#[test]
fn frames_are_read_as_they_were_written_however_they_are_cut() {
    for size in [1, 5, HEADER, 1000, usize::MAX] {
        let (mut bytes, mut reader, mut read) = (Vec::new(), FrameReader::default(), Vec::new());
        orders().iter().for_each(|order| order.write(&mut bytes));
        for piece in bytes.chunks(size) {
            reader.push(piece);
            while let Some(order) = reader.order().unwrap() {
                read.push(order);
            }
        }
        assert_eq!(read, orders(), "{size}");
    }
    let (mut bytes, mut reader) = (Vec::new(), FrameReader::of_init(SECRET));
    reports()
        .iter()
        .for_each(|report| report.write(&SECRET, &mut bytes));
    reader.push(&bytes);
    let read: Vec<Report> = std::iter::from_fn(|| reader.report().unwrap()).collect();
    assert_eq!(read, reports());
}

#[track_caller]
fn refused(bytes: &[u8], expected: FrameError) {
    let mut reader = FrameReader::default();
    reader.push(bytes);
    assert_eq!(reader.order(), Err(expected));
}

#[test]
fn what_is_no_order_is_refused() {
    refused(b"\x42\0\0\0\0\0\0\0\0", FrameError::Type(STDOUT));
    refused(b"\0\0\0\0\0\0\0\0\0", FrameError::Type(0));
    refused(b"\x06\0\0\0\0\x05\0\0\0\0\0\0\0\0", FrameError::Payload);
    refused(b"\x06\0\0\0\0\x03\0\0\0\0\0\0", FrameError::Payload);
    refused(
        b"\x01\0\0\0\0\x18\0\0\0\x01\0\0\x000123456789abcdef\xff\xff\xff\xff",
        FrameError::Payload,
    );
}

#[test]
fn a_length_is_refused_before_its_bytes_are_waited_for() {
    refused(
        b"\x03\0\0\0\0\x01\0\x01\0",
        FrameError::Long {
            length: MAX_PIECE + 1,
            most: MAX_PIECE,
        },
    );
    refused(
        b"\x02\0\0\0\0\xff\xff\xff\xff",
        FrameError::Long {
            length: u32::MAX as usize,
            most: MAX_START,
        },
    );
}

#[test]
fn what_the_init_did_not_write_is_no_report() {
    let mut bytes = Vec::new();
    Report::Taken { call: 1, bytes: 2 }.write(&SECRET, &mut bytes);
    let check = |bytes: &[u8], expected| {
        let mut reader = FrameReader::of_init(SECRET);
        reader.push(bytes);
        assert_eq!(reader.report(), expected);
    };
    check(&bytes, Ok(Some(Report::Taken { call: 1, bytes: 2 })));
    check(&bytes[..10], Ok(None));
    check(&bytes[16..], Err(FrameError::Foreign));
    check(b"x", Err(FrameError::Foreign));
    bytes[15] ^= 1;
    check(&bytes, Err(FrameError::Foreign));
}
