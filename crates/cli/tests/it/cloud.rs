//! The runtime `e2b`: who may choose it, and the service. Runs in it are those of the suite of scenarios.

use serde_json::{Value, json};

use crate::network::Server;
use crate::support::{Output, finish};
use crate::world::World;

const KEY: &str = "e2b_0000000000000000000000000000000000000000";

/// A machine whose user has a key of a service, which answers with nonsense.
struct Lab {
    world: World,
    server: Server,
    key: &'static str,
}

impl Lab {
    fn new() -> Self {
        let world = World::here();
        Self {
            world,
            server: Server::new(),
            key: KEY,
        }
    }

    fn url(&self) -> String {
        format!("http://127.0.0.1:{}", self.server.port)
    }

    fn run(&self, args: &[&str], stdin: &str) -> Output {
        let mut command = self.world.command(&[], args);
        command
            .env("E2B_API_URL", self.url())
            .env("E2B_SANDBOX_URL", self.url());
        if !self.key.is_empty() {
            command.env("E2B_API_KEY", self.key);
        }
        finish(&mut command, stdin.as_bytes())
    }

    /// Checks the error of a command, and that the service was asked nothing.
    #[track_caller]
    fn refuses(&self, args: &[&str], status: i32, parts: &[&str]) {
        let before = self.server.visits();
        let output = self.run(args, "");
        assert_eq!(output.status, status, "{output:?}");
        let text = format!("{}{}", output.stdout, output.stderr);
        for part in parts {
            assert!(text.contains(part), "no {part:?} in {output:?}");
        }
        assert!(!text.contains(KEY), "{output:?}");
        assert_eq!(self.server.visits(), before, "{args:?}");
    }
}

const RUN: &[&str] = &["run", "--no-engine", "--json", "-r", "e2b", "-c", "1"];

#[test]
fn nothing_is_sent_unless_you_chose_it() {
    let lab = Lab::new();
    // It is asked if its user chooses it, and its nonsense is no result.
    let asked = lab.run(RUN, "");
    assert_eq!((asked.status, lab.server.visits()), (125, 1), "{asked:?}");
    assert!(asked.stdout.contains("the service"), "{asked:?}");

    let required = [RUN, &["--isolation", "required"]].concat();
    lab.refuses(&required, 125, &["runtime_unavailable", "all are required"]);
    let arguments = json!({"code": "1", "runtime": "e2b"}).to_string();
    let tool = ["tool", "run_code", &arguments, "--json", "--no-engine"];
    lab.refuses(&tool, 125, &["runtime_unavailable", "not available to callers"]);

    let project = |text: &str| lab.world.dir.write("work/ringfence.toml", text);
    let python = &["run", "--no-engine", "-c", "1"];
    for (text, key) in [
        ("[sandbox]\ntype = 'e2b'\n", "sandbox.type"),
        ("[sandbox.e2b]\ndomain = 'evil.example'\n", "sandbox.e2b.domain"),
        (
            "[sandbox.e2b]\napi_url = 'https://evil.example'\n",
            "sandbox.e2b.api_url",
        ),
        (
            "[sandbox.e2b]\napi_key_file = '/etc/passwd'\n",
            "sandbox.e2b.api_key_file",
        ),
        ("[sandbox.e2b]\ntemplate = 'evil'\n", "sandbox.e2b.template"),
    ] {
        project(text);
        lab.refuses(python, 2, &[key, "to whom your programs and files are sent"]);
    }
    project("");

    let keyless = Lab { key: "", ..lab };
    keyless.refuses(
        RUN,
        125,
        &["runtime_unavailable", "its key is missing", "E2B_API_KEY"],
    );
    let malformed = Lab {
        key: "two words",
        ..keyless
    };
    malformed.refuses(RUN, 125, &["runtime_unavailable", "its key is empty"]);
    malformed.world.close();
}

/// Addresses that others could listen at are refused, and only where they are used.
#[test]
fn an_address_without_encryption_is_for_this_machine_alone() {
    let world = World::here();
    let run = |args: &[&str]| {
        let mut command = world.command(&[], args);
        command
            .env("E2B_API_KEY", KEY)
            .env("E2B_API_URL", "http://10.0.0.7:3000");
        finish(&mut command, b"")
    };
    let refused = run(RUN);
    assert_eq!(refused.status, 125, "{refused:?}");
    let error: Value = serde_json::from_str(&refused.stdout).unwrap();
    assert_eq!(error["error"]["type"], "runtime_unavailable", "{error}");
    assert!(
        error["error"]["message"].as_str().unwrap().contains("plain http"),
        "{error}"
    );
    let elsewhere = run(&["run", "--no-engine", "-c", "print(1)"]);
    assert_eq!(
        (elsewhere.status, elsewhere.stdout.as_str()),
        (0, "1\n"),
        "{elsewhere:?}"
    );
    world.close();
}
