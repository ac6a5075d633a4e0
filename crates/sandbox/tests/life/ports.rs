//! Ports: both directions of a connection, its end, and no way from a port to anywhere else.

use std::net::TcpListener;
use std::path::{Path, PathBuf};

use ringfence_policy::Pids;
use ringfence_sandbox::{Error, ErrorKind, NewSandbox, PROXY_PORT, PortReader, Sandbox, SandboxLimits};

use crate::support::{Server, Test, line, run, say, with_server};

pub(crate) const TESTS: &[Test] = &[
    (
        "a_port_is_reached_in_both_directions",
        a_port_is_reached_in_both_directions,
    ),
    (
        "a_port_leads_to_its_sandbox_alone",
        a_port_leads_to_its_sandbox_alone,
    ),
    (
        "a_sandbox_without_ports_has_no_sockets",
        a_sandbox_without_ports_has_no_sockets,
    ),
    (
        "the_proxy_of_a_sandbox_has_no_visitors",
        the_proxy_of_a_sandbox_has_no_visitors,
    ),
    ("connections_are_bounded", connections_are_bounded),
    (
        "buffers_of_sockets_are_a_part_of_the_memory",
        buffers_of_sockets_are_a_part_of_the_memory,
    ),
];

/// Answers each connection on the port 8080 with what it sends, in capitals, and `bye` at its end.
const SHOUT: &str = r#"python3 -c '
import socket, threading
server = socket.create_server(("127.0.0.1", 8080), backlog=64)
def serve(connection):
    while data := connection.recv(65536):
        connection.sendall(data.upper())
    connection.sendall(b"bye")
    connection.close()
    open("/tmp/closed", "a").write("x")
open("/tmp/up", "w")
while True:
    threading.Thread(target=serve, args=(server.accept()[0],), daemon=True).start()
'"#;

async fn with_ports(server: &Server) -> std::sync::Arc<Sandbox> {
    let new = NewSandbox {
        ports: true,
        ..NewSandbox::default()
    };
    server.sandboxes.create(&server.scope, new).await.unwrap()
}

/// Starts [`SHOUT`], and waits until it listens.
async fn shout(sandbox: &Sandbox) {
    sandbox.start(line(SHOUT)).await.unwrap();
    say(sandbox, "until [ -e /tmp/up ]; do sleep 0.01; done").await;
}

/// Reads this many bytes, or up to the end.
async fn read(reader: &mut PortReader, count: usize) -> Vec<u8> {
    let mut all = Vec::new();
    while all.len() < count {
        match reader.next().await.unwrap() {
            Some(bytes) => all.extend(bytes),
            None => break,
        }
    }
    all
}

fn a_port_is_reached_in_both_directions() {
    with_server(async |server| {
        let sandbox = with_ports(&server).await;
        let error = sandbox.connect(8080).await.unwrap_err();
        assert!(matches!(error, Error::NothingListens(8080)), "{error}");
        assert_eq!(error.kind(), ErrorKind::NotFound);
        shout(&sandbox).await;
        let (mut reader, sending) = sandbox.connect(8080).await.unwrap();
        for word in ["one", "two"] {
            sending.send(word.into()).await.unwrap();
            assert_eq!(read(&mut reader, 3).await, word.to_uppercase().as_bytes());
        }
        // More than all buffers on the way hold, while nobody reads.
        let large = vec![b'a'; 1 << 20];
        let send = async {
            for piece in large.chunks(64 * 1024) {
                sending.send(piece.to_vec()).await.unwrap();
            }
            // Half of the connection ends; the rest of the other half still comes.
            drop(sending);
        };
        let ((), answer) = tokio::join!(send, read(&mut reader, usize::MAX));
        assert_eq!(answer.len(), large.len() + 3);
        assert!(answer.starts_with(b"AAA") && answer.ends_with(b"Abye"));
        // A reader that is dropped closes the connection, too.
        let (reader, sending) = sandbox.connect(8080).await.unwrap();
        drop((reader, sending));
        say(
            &sandbox,
            "until [ \"$(cat /tmp/closed)\" = xx ]; do sleep 0.01; done",
        )
        .await;
    });
}

/// A connection from inside to a port of this machine's loopback address.
fn dial(port: u16) -> String {
    format!(
        "python3 -c 'import socket, errno
try:
    socket.create_connection((\"127.0.0.1\", {port}), 5)
    print(\"connected\")
except OSError as error:
    print(errno.errorcode[error.errno])'"
    )
}

fn a_port_leads_to_its_sandbox_alone() {
    with_server(async |server| {
        let outside = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = outside.local_addr().unwrap().port();
        // It works here.
        std::net::TcpStream::connect(("127.0.0.1", port)).unwrap();
        let (sandbox, other) = (with_ports(&server).await, with_ports(&server).await);
        assert_eq!(say(&sandbox, &dial(port)).await, "ECONNREFUSED\n");
        shout(&sandbox).await;
        assert_eq!(say(&sandbox, &dial(8080)).await, "connected\n");
        // Another sandbox has its own loopback interface.
        assert_eq!(say(&other, &dial(8080)).await, "ECONNREFUSED\n");
        let error = other.connect(8080).await.unwrap_err();
        assert!(matches!(error, Error::NothingListens(8080)), "{error}");
        // And no interface beside it.
        let interfaces = say(&sandbox, "tail -n +3 /proc/net/dev | cut -d : -f 1").await;
        assert_eq!(interfaces.trim(), "lo");
        assert_eq!(sandbox.info().allowed_hosts, Vec::<String>::new());
        assert_eq!(say(&sandbox, "env | grep -ci proxy || :").await, "0\n");
    });
}

fn the_proxy_of_a_sandbox_has_no_visitors() {
    with_server(async |server| {
        let sandbox = with_ports(&server).await;
        // Its programs reach it, which is what it is for.
        assert_eq!(say(&sandbox, &dial(PROXY_PORT)).await, "connected\n");
        let error = sandbox.connect(PROXY_PORT).await.unwrap_err();
        assert!(matches!(error, Error::OwnPort(PROXY_PORT)), "{error}");
        assert_eq!(error.kind(), ErrorKind::InvalidArguments);
        // The next port is theirs.
        let error = sandbox.connect(PROXY_PORT + 1).await.unwrap_err();
        assert!(matches!(error, Error::NothingListens(_)), "{error}");
    });
}

fn a_sandbox_without_ports_has_no_sockets() {
    with_server(async |server| {
        let sandbox = server.sandbox().await;
        let listen =
            "python3 -c 'import socket; socket.create_server((\"127.0.0.1\", 8080)); print(\"listens\")'";
        let ran = run(&sandbox, listen).await;
        assert_eq!(ran.end.exit_code, 1, "{ran:?}");
        assert!(ran.stderr.text.contains("[Errno 13]"), "EACCES: {ran:?}");
        let error = sandbox.connect(8080).await.unwrap_err();
        assert!(matches!(error, Error::NoPorts), "{error}");
        let with = with_ports(&server).await;
        assert_eq!(say(&with, listen).await, "listens\n");
    });
}

fn connections_are_bounded() {
    with_server(async |server| {
        let new = NewSandbox {
            ports: true,
            limits: SandboxLimits {
                pids: Pids::try_from(512).unwrap(),
                ..SandboxLimits::default()
            },
            ..NewSandbox::default()
        };
        let sandbox = server.sandboxes.create(&server.scope, new).await.unwrap();
        shout(&sandbox).await;
        let mut all = Vec::new();
        for _ in 0..16 {
            all.push(sandbox.connect(8080).await.unwrap());
        }
        let error = sandbox.connect(8080).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::LimitExceeded, "{error}");
        say(&sandbox, "echo there is room for commands").await;
        drop(all);
        sandbox.connect(8080).await.unwrap();
    });
}

/// Version 1 of control groups counts them apart from all other memory.
fn buffers_of_sockets_are_a_part_of_the_memory() {
    with_server(|server| async move {
        let without = server.sandbox().await;
        let files = limits_of_buffers();
        let [file] = &files[..] else {
            return eprintln!("skipped: this kernel does not count the buffers of sockets apart: {files:?}");
        };
        let limit = |file: &Path| {
            std::fs::read_to_string(file)
                .unwrap()
                .trim()
                .parse::<u64>()
                .unwrap()
        };
        let memory = SandboxLimits::default().memory.0;
        // Without a network there are no buffers.
        assert!(limit(file) > memory, "{}", limit(file));
        let with = with_ports(&server).await;
        let of_ports: Vec<PathBuf> = limits_of_buffers()
            .into_iter()
            .filter(|other| other != file)
            .collect();
        let of_ports: Vec<u64> = of_ports.iter().map(|file| limit(file)).collect();
        assert_eq!(of_ports, [memory / 4]);
        drop((without, with));
    });
}

/// Returns the files with the limit on the buffers of sockets, of the groups of this process's guests.
fn limits_of_buffers() -> Vec<PathBuf> {
    let own = format!("ringfence-{}-", std::process::id());
    let mut found = Vec::new();
    let mut left = vec![PathBuf::from("/sys/fs/cgroup/memory")];
    while let Some(directory) = left.pop() {
        let file = directory.join("memory.kmem.tcp.limit_in_bytes");
        let parent = directory.parent().and_then(Path::file_name).unwrap_or_default();
        if parent.to_string_lossy().starts_with(&own) && file.exists() {
            found.push(file);
        }
        let entries = std::fs::read_dir(directory).into_iter().flatten().flatten();
        left.extend(entries.map(|entry| entry.path()).filter(|path| path.is_dir()));
    }
    found
}
