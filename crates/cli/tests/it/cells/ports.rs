//! Ports of sandboxes, at addresses of this machine.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};

use super::{Lab, everywhere_with};
use crate::network::Server;

/// Answers on 8001 with what comes, in capitals.
pub(super) const UPPER: &str = r#"
import socket
server = socket.create_server(("127.0.0.1", 8001))
while True:
    connection, _ = server.accept()
    while data := connection.recv(65536):
        connection.sendall(data.upper())
    connection.close()
"#;

/// A port at an address of this machine, for as long as it lives.
pub(super) struct Forwarded {
    port: std::process::Child,
    address: SocketAddr,
}

impl Forwarded {
    pub(super) fn new(lab: &Lab, port: &str) -> Self {
        let mut child = lab.start(&["port", "lab", port, "--listen", "127.0.0.2:0"]);
        let mut line = String::new();
        let out = child.stdout.take().unwrap();
        BufReader::new(out).read_line(&mut line).unwrap();
        Self {
            port: child,
            address: line.trim().parse().unwrap(),
        }
    }

    /// Sends bytes, ends that direction, and returns everything that comes back.
    pub(super) fn ask(&self, bytes: &[u8]) -> String {
        let mut stream = TcpStream::connect(self.address).unwrap();
        stream.write_all(bytes).unwrap();
        stream.shutdown(Shutdown::Write).unwrap();
        let mut answer = Vec::new();
        // A connection that nobody took is reset, or ends.
        let _ = stream.read_to_end(&mut answer);
        String::from_utf8(answer).unwrap()
    }
}

impl Forwarded {
    /// Asserts that it ends with its sandbox, and says so.
    fn ends(mut self) {
        let mut told = String::new();
        self.port
            .stderr
            .take()
            .unwrap()
            .read_to_string(&mut told)
            .unwrap();
        assert!(told.contains("the sandbox has ended"), "{told}");
        assert_eq!(self.port.wait().unwrap().code(), Some(125));
    }
}

impl Drop for Forwarded {
    fn drop(&mut self) {
        self.port.kill().unwrap();
        self.port.wait().unwrap();
    }
}

#[test]
fn a_port_of_a_sandbox_is_reached_from_this_machine() {
    everywhere_with(&["--ports"], |lab| {
        lab.bash("echo hello > hello.txt").ok();
        let closed = Forwarded::new(lab, "8001");
        assert_eq!(closed.ask(b"anybody"), "");
        drop(closed);
        let servers = format!("python3 -m http.server 8000 & python3 -c '{UPPER}'");
        let mut serving = lab.start(&["exec", "lab", "--", "bash", "-c", &servers]);
        lab.bash("for port in 8000 8001; do until (: < /dev/tcp/127.0.0.1/$port) 2>/dev/null; do sleep 0.05; done; done")
        .ok();
        let web = Forwarded::new(lab, "8000");
        let answer = web.ask(b"GET /hello.txt HTTP/1.0\r\n\r\n");
        assert!(answer.starts_with("HTTP/1.0 200"), "{answer}");
        assert!(answer.ends_with("\r\n\r\nhello\n"), "{answer}");
        let shout = Forwarded::new(lab, "8001");
        let text = "words ".repeat(50_000);
        assert_eq!(shout.ask(text.as_bytes()), text.to_uppercase());
        drop(web);
        // It has sockets, so that a host can be opened to it.
        let page = Server::new();
        let fetch = format!("curl --silent {}", page.url());
        assert_eq!(lab.bash(&fetch).stdout, "");
        lab.set_hosts(&[&format!("127.0.0.1:{}", page.port)]);
        assert_eq!((lab.bash(&fetch).ok(), page.visits()), ("hello", 1));
        lab.sandbox(&["rm", "lab"]).ok();
        serving.wait().unwrap();
        shout.ends();
    });
}

#[test]
fn a_port_is_never_at_the_consoles_address() {
    let lab = Lab::with_sandbox();
    for listen in ["127.0.0.1:8000", "0.0.0.0:8000", "[::1]:8000", "localhost:8000"] {
        let output = lab.sandbox(&["port", "lab", "8000", "--listen", listen]);
        assert_eq!(output.status, 2, "{output:?}");
        assert!(output.stderr.contains("127.0.0.2:8080"), "{output:?}");
    }
    let output = lab.sandbox(&["port", "lab", "8000"]);
    assert_eq!(output.status, 125, "{output:?}");
    assert!(output.stderr.contains("created without ports"), "{output:?}");
    // Nor is the server's proxy inside at any.
    lab.sandbox(&["create", "--name", "open", "--ports"]).ok();
    let output = lab.sandbox(&["port", "open", "3128", "--listen", "127.0.0.2:0"]);
    assert_eq!(output.status, 125, "{output:?}");
    assert!(
        output
            .stderr
            .contains("port 3128 of the sandbox is the server's own"),
        "{output:?}"
    );
    lab.close();
}
