//! Commands in a terminal: the caller's, of which every key reaches the sandbox.

use serde_json::{Value, json};

use super::{Lab, everywhere};
use crate::support::{Output, eventually, finish};

const DRIVER: &str = include_str!("terminal.py");

impl Lab {
    /// Runs `ringfence sandbox ARGS…` in a terminal, with these steps.
    fn in_terminal(&self, args: &[&str], steps: &[Value]) -> Output {
        let steps = Value::from(steps.to_vec()).to_string();
        let mut driver = self.world.dir.program("python3");
        driver
            .args(["-c", DRIVER, &steps])
            .arg(self.world.dir.path("ringfence"))
            .arg("sandbox")
            .args(args);
        finish(&mut driver, b"")
    }
}

fn send(text: &str) -> Value {
    json!({ "send": text })
}

fn expect(pattern: &str) -> Value {
    json!({ "expect": pattern })
}

#[test]
fn a_shell_in_a_terminal_has_its_keys_size_and_jobs() {
    everywhere(|lab| {
        let screen = [
            // What is typed is shown, so what is expected is computed.
            // Where text is pasted is marked by sequences that would be in its way.
            send("bind 'set enable-bracketed-paste off'; PS1='ready''> '; echo $TERM; stty size\r"),
            expect("xterm-256color\r\n24 80\r\nready> "),
            json!({"size": [40, 100]}),
            send("while [ \"$(stty size)\" != '40 100' ]; do :; done; echo $((6 * 7)) wide\r"),
            expect("42 wide\r\nready> "),
        ];
        let jobs = [
            // Ctrl-C ends what runs, not the shell.
            send("bash -c 'echo $((1000 + 1)); exec sleep 600'\r"),
            expect("1001\r\n"),
            send("\x03"),
            expect("ready> "),
            send("echo status $?\r"),
            expect("status 130\r\nready> "),
            // Ctrl-Z stops it, and the shell keeps it as a job.
            send("bash -c 'echo $((1000 + 2)); exec sleep 600'\r"),
            expect("1002\r\n"),
            send("\x1a"),
            expect("Stopped.*ready> "),
            // `wait` does not wait for a job that is still stopped; its end may be told before the prompt.
            send("kill %1; while [ \"$(jobs -s)\" ]; do :; done; wait; jobs; echo $((1000 + 3))\r"),
            expect("1003\r\n.*ready> "),
        ];
        let end = [send("tty; exit 7\r"), expect("/dev/pts/[0-9]+\r\n")];
        // Debian's gVisor sends no signals for keys.
        let jobs = if lab.is_in_gvisor() { &[][..] } else { &jobs };
        let steps = [&screen, jobs, &end].concat();
        for shell in [
            &["exec", "-it", "lab", "--", "bash", "--norc"][..],
            &["shell", "lab"],
        ] {
            let shown = lab.in_terminal(shell, &steps);
            assert_eq!(shown.status, 7, "{shown:?}");
        }
    });
}

#[test]
fn a_signal_ends_a_shell_with_what_runs_in_its_terminal() {
    everywhere(|lab| {
        for (name, signal) in [("TERM", 15), ("HUP", 1), ("INT", 2), ("QUIT", 3)] {
            let steps = [
                send("sleep 600 & echo $! > pid; echo $((1000 + 1))\r"),
                expect("1001\r\n"),
                json!({ "signal": signal }),
            ];
            let shown = lab.in_terminal(&["shell", "lab"], &steps);
            assert_eq!(shown.status, 128 + signal, "{name}: {shown:?}");
            eventually("what ran is gone", || lab.bash("kill -0 $(cat pid)").status != 0);
        }
        eventually("no shell is left", || lab.json(&["get", "lab"])["processes"] == 0);
    });
}

#[test]
fn an_end_of_input_ends_a_shell_in_a_terminal() {
    everywhere(|lab| {
        let steps = [
            send("PS1='ready''> '\r"),
            expect("ready> "),
            send("\x04"),
            expect("exit"),
        ];
        let shown = lab.in_terminal(&["shell", "lab"], &steps);
        assert_eq!(shown.status, 0, "{shown:?}");
        // Any program has it.
        let code = "import sys; print(sys.stdin.isatty(), sys.stdout.isatty())";
        let shown = lab.in_terminal(
            &["exec", "-it", "lab", "--", "python3", "-c", code],
            &[expect("True True\r\n")],
        );
        assert_eq!(shown.status, 0, "{shown:?}");
    });
}
