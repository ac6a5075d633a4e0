//! Tests guests that connect to their proxy address.

use ringfence_jail::init::frames::{CONNECTION_WINDOW, MAX_CONNECTIONS_OF_CALL};

use super::*;

/// Returns a script with the address of its proxy in `door`.
fn python(code: &str) -> Start {
    let code = format!(
        "import os, socket, sys\n_, door = os.environ['P'].split('//')\ndoor = door.split(':')\n{code}"
    );
    Start {
        arguments: vec!["-I".to_owned(), "-S".to_owned(), "-c".to_owned(), code],
        proxy: vec!["P".to_owned()],
        ..start(Program::Command("python3".to_owned()))
    }
}

const CONNECT: &str = "connect = lambda: socket.create_connection((door[0], int(door[1])))\n";

impl Container {
    fn guest(&mut self, code: &str) -> u32 {
        self.begin(python(&format!("{CONNECT}{code}")))
    }

    fn next(&mut self) -> Report {
        self.receive().unwrap()
    }

    #[track_caller]
    fn connected(&mut self, call: u32) -> u32 {
        match self.next() {
            Report::Connected { connection, call: of } if of == call => connection,
            other => panic!("{other:?}"),
        }
    }

    /// Receives all data of a guest, without credit beyond the initial window.
    #[track_caller]
    fn heard(&mut self, wanted: u32, length: usize) -> Vec<u8> {
        let mut all = Vec::new();
        while all.len() < length {
            match self.next() {
                Report::Received { connection, bytes } if connection == wanted && !bytes.is_empty() => {
                    all.extend(bytes);
                }
                other => panic!("{other:?}"),
            }
        }
        all
    }

    fn deliver(&mut self, connection: u32, bytes: &[u8]) {
        let bytes = bytes.to_vec();
        self.send(&InitRequest::Deliver { connection, bytes });
    }
}

#[test]
fn a_connection_goes_both_ways_and_each_way_ends_by_itself() {
    let mut container = Container::new();
    let call = container.guest(
        "s = connect()\ns.sendall(b'question'); s.shutdown(socket.SHUT_WR)\nprint(s.makefile().read())",
    );
    let connection = container.connected(call);
    assert_eq!(container.heard(connection, 8), b"question");
    let end = Report::Received {
        connection,
        bytes: Vec::new(),
    };
    assert_eq!(container.next(), end);
    container.deliver(connection, b"ans");
    container.deliver(connection, b"wer");
    container.deliver(connection, b"");
    let outcome = container.finish(call);
    assert_eq!(
        (outcome.stdout.as_str(), outcome.end.fate),
        ("answer\n", Fate::Ended(0))
    );
}

#[test]
fn who_has_no_network_finds_nobody() {
    let mut container = Container::new();
    let with = container.guest("print(door[1], flush=True)\nimport signal; signal.pause()");
    let port = match container.next() {
        Report::Output { bytes, .. } => String::from_utf8(bytes).unwrap(),
        other => panic!("{other:?}"),
    };
    assert_eq!(port, "3128\n");
    // The first call's port is taken, so the second's is the next one.
    let second = container.guest("print(door[1])");
    assert_eq!(container.finish(second).stdout, "3129\n");
    let look =
        "for p in 3128 3129; do (exec 3<>/dev/tcp/127.0.0.1/$p) 2>/dev/null && echo $p; done; echo ${P-none}";
    container.send(&InitRequest::Kill { call: with });
    assert_eq!(container.finish(with).end.cut, Cut::Ordered);
    assert_eq!(container.bash(look).stdout, "none\n");
}

#[test]
fn what_the_engine_does_not_want_waits_and_nobody_else_does() {
    let mut container = Container::new();
    let call = container.guest("s = connect()\ns.sendall(b'x' * 1_000_000)\nprint(s.recv(2))");
    let connection = container.connected(call);
    let window = CONNECTION_WINDOW as usize;
    assert_eq!(container.heard(connection, window).len(), window);
    // No data arrives while another call runs from start to end.
    assert_eq!(container.bash("echo other").stdout, "other\n");
    container.send(&InitRequest::Allow {
        connection,
        bytes: 1_000_000 - CONNECTION_WINDOW,
    });
    assert_eq!(
        container.heard(connection, 1_000_000 - window).len(),
        1_000_000 - window
    );
    container.deliver(connection, b"ok");
    assert_eq!(container.finish(call).stdout, "b'ok'\n");
}

#[test]
fn what_a_guest_does_not_read_is_bounded() {
    let mut container = Container::new();
    let call = container.guest("s = connect()\nimport signal; signal.pause()");
    let connection = container.connected(call);
    let piece = vec![0; CONNECTION_WINDOW as usize];
    // Each chunk is accepted until the kernel's buffers are full.
    let dropped = loop {
        container.deliver(connection, &piece);
        container.deliver(connection, &piece);
        match container.next() {
            Report::Delivered { .. } => {}
            Report::Dropped { connection } => break connection,
            other => panic!("{other:?}"),
        }
    };
    assert_eq!(dropped, connection);
    container.send(&InitRequest::Kill { call });
    container.finish(call);
}

#[test]
fn only_so_many_connect_at_once_and_the_others_wait() {
    let mut container = Container::new();
    let count = MAX_CONNECTIONS_OF_CALL as u32;
    let call = container.guest(&format!(
        "all = [connect() for _ in range({count} + 1)]\nall[-1].sendall(b'last')\nprint(all[-1].recv(9))"
    ));
    let open: Vec<u32> = (0..count).map(|_| container.connected(call)).collect();
    assert_eq!(open, (1..=count).collect::<Vec<_>>());
    // Another call still gets its turn.
    assert_eq!(container.bash("echo other").stdout, "other\n");
    container.send(&InitRequest::Drop { connection: 1 });
    let last = container.connected(call);
    assert_eq!(container.heard(last, 4), b"last");
    container.deliver(last, b"bye");
    let outcome = container.finish(call);
    assert_eq!(outcome.stdout, "b'bye'\n");
}

#[test]
fn the_end_of_a_call_is_the_end_of_its_connections() {
    let mut container = Container::new();
    let call = container.guest("s = connect()\nos._exit(7)");
    let connection = container.connected(call);
    let outcome = loop {
        match container.next() {
            Report::Received { bytes, .. } => assert!(bytes.is_empty()),
            Report::Dropped { .. } => {}
            Report::End { call: of, end } if of == call => break end,
            other => panic!("{other:?}"),
        }
    };
    assert_eq!(outcome.fate, Fate::Ended(7));
    // Messages that cross the end of a call do no harm.
    container.deliver(connection, b"late");
    container.send(&InitRequest::Allow { connection, bytes: 1 });
    container.send(&InitRequest::Drop { connection });
    container.deliver(4711, b"never was");
    assert_eq!(container.bash("echo on").stdout, "on\n");
}

#[test]
fn what_was_said_whole_is_passed_on_and_half_of_it_is_not_waited_for() {
    let mut container = Container::new();
    let code = "s = connect()\nsys.stdin.readline()\ndata = b''\n\
                try:\n while part := s.recv(65536): data += part\nexcept OSError: pass\nprint(len(data))";
    let whole = container.begin(Start {
        input: true,
        ..python(&format!("{CONNECT}{code}"))
    });
    let connection = container.connected(whole);
    let piece = vec![0; CONNECTION_WINDOW as usize];
    container.deliver(connection, &piece);
    container.deliver(connection, b"");
    container.send(&InitRequest::Drop { connection });
    container.send(&InitRequest::Input {
        call: whole,
        bytes: b"\n".to_vec(),
    });
    let outcome = container.finish(whole);
    assert_eq!(outcome.stdout, format!("{}\n", piece.len()));
}
