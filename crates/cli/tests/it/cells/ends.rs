//! Ends of sandboxes: expiry, the server's stop, and containers beside them.

use std::fs;

use super::{Lab, Venue, everywhere, everywhere_with};
use crate::containers::engines;
use crate::network::Server;
use crate::support::{eventually, eventually_none, finish};

#[test]
fn a_sandbox_expires_with_what_runs_in_it() {
    let lab = Lab::here();
    let id = lab.json(&["create", "--name", "lab", "--timeout", "3s"])["id"]
        .as_str()
        .unwrap()
        .to_owned();
    let running = lab.sandbox(&["exec", "lab", "--", "sleep", "600"]);
    assert_eq!(running.status, 125, "{running:?}");
    assert!(running.stderr.contains("the sandbox has ended"), "{running:?}");
    eventually("it is gone", || lab.json(&["ls"]) == serde_json::json!([]));
    for name in ["lab", &id] {
        lab.sandbox(&["get", name])
            .refused(125, &format!("the sandbox `{name}` expired at 20"));
    }
    // To another user it is as a name that never was.
    lab.sandbox(&["get", "--user", "bob", &id])
        .refused(125, &format!("there is no sandbox `{id}`"));
    lab.close();
}

/// Returns the command lines that contain a text.
pub(super) fn running(text: &str) -> Vec<String> {
    let read = |entry: std::io::Result<fs::DirEntry>| fs::read(entry.ok()?.path().join("cmdline")).ok();
    let lines = fs::read_dir("/proc").unwrap().filter_map(read);
    let lines = lines.map(|line| String::from_utf8_lossy(&line).into_owned());
    lines.filter(|line| line.contains(text)).collect()
}

#[test]
fn an_end_of_the_server_ends_everything() {
    for signal in ["TERM", "KILL"] {
        let lab = Lab::with_sandbox();
        // Found in the process table by its argument, which no other test has.
        let mark = format!("{}.00{}", 31_536_000 + std::process::id(), signal.len());
        lab.bash(&format!("(sleep {mark} & setsid sleep {mark} &) >/dev/null 2>&1"))
            .ok();
        let mut attached = lab.start(&["exec", "lab", "--", "sleep", &mark]);
        eventually("all run", || {
            running(&mark)
                .iter()
                .filter(|line| line.starts_with("sleep"))
                .count()
                == 3
        });
        lab.world.stop_engine(signal);
        assert_eq!(attached.wait().unwrap().code(), Some(125));
        eventually_none("processes", || running(&mark));
        lab.sandbox(&["ls"]).refused(125, "");
        // The next server removes what a killed one has left.
        lab.world.start_engine();
        assert_eq!(lab.json(&["ls"]), serde_json::json!([]));
        lab.close();
    }
}

#[test]
fn a_command_ends_with_its_client() {
    everywhere(|lab| {
        // What an earlier command has left stays.
        lab.bash("sleep 600 > /dev/null 2>&1 & echo $! > left").ok();
        for (signal, options) in [("TERM", &[][..]), ("HUP", &["-i"]), ("KILL", &[])] {
            let command = [
                "lab",
                "--",
                "bash",
                "-c",
                "sleep 600 & echo $! > pid; touch on; wait",
            ];
            let mut attached = lab.start(&[&["exec"], options, &command].concat());
            lab.appears("/workspace/on");
            lab.world.signal(&attached, signal);
            attached.wait().unwrap();
            eventually("its process is gone", || {
                lab.bash("kill -0 $(cat pid)").status != 0
            });
            lab.bash("kill -0 $(cat left) && rm on").ok();
        }
        eventually("no command is left", || {
            lab.json(&["get", "lab"])["processes"] == 0
        });
    });
}

#[test]
fn a_removal_ends_what_runs() {
    let lab = Lab::with_sandbox();
    let mut attached = lab.start(&["exec", "lab", "--", "bash", "-c", "touch on; exec sleep 600"]);
    lab.appears("/workspace/on");
    lab.sandbox(&["rm", "lab"]).ok();
    assert_eq!(attached.wait().unwrap().code(), Some(125));
    lab.close();
}

#[test]
fn containers_of_templates_take_their_own_path() {
    for engine in engines() {
        let lab = Lab::with_sandbox();
        let name = format!("cells-{}", std::process::id());
        let template = ["--template", "code-executor"];
        let create = ["create", "--engine", engine.name, "--name", &name];
        let made = lab.json(&[&create[..], &template].concat());
        let full = format!("fw-sandbox-{name}");
        assert_eq!(made[0]["name"], full.as_str());
        assert_eq!(
            lab.sandbox(&["run", &name, "--", "echo", "inside"]).ok(),
            "inside\n"
        );
        assert_eq!(lab.json(&["ls"]).as_array().unwrap().len(), 2);
        for args in [
            &["exec", &name, "--", "true"][..],
            &["run", &name, "-c", "1"],
            &["files", &name],
            &["get", &name],
        ] {
            lab.sandbox(args)
                .refused(125, "does not work in containers of a template");
        }
        lab.sandbox(&["pause", &name]).ok();
        lab.sandbox(&["resume", &name]).ok();
        lab.sandbox(&["rm", &name]).ok();
        // Without a template the option is `--runtime`.
        let made = lab.json(&create);
        assert_eq!(
            (&made["runtime"], &made["name"]),
            (&engine.name.into(), &name.as_str().into())
        );
        assert_eq!(
            lab.sandbox(&["exec", &name, "--", "echo", "inside"]).ok(),
            "inside\n"
        );
        lab.sandbox(&["rm", &name]).ok();
        lab.close();
    }
}

/// Reads memory of its own, then of the init.
const MEMORY: &str = "
for pid in 'self', '1':
    try:
        with open(f'/proc/{pid}/maps') as maps: print(bool(maps.read()))
        open(f'/proc/{pid}/mem', 'rb')
        print('opened')
    except OSError as error:
        print(type(error).__name__)
";

#[test]
fn programs_do_not_reach_the_init() {
    everywhere(|lab| {
        let memory = lab.sandbox(&["exec", "lab", "--", "python3", "-c", MEMORY]);
        let lines: Vec<&str> = memory.ok().lines().collect();
        let denied = |line: &&str| ["PermissionError", "FileNotFoundError"].contains(line);
        // gVisor shows the addresses of other programs' memory, and the memory to none.
        let shown = usize::from(lab.is_in_gvisor());
        assert!(
            lines[..2] == ["True", "opened"] && lines[2 + shown..].iter().all(denied) && lines.len() > 2,
            "{memory:?}"
        );
        // Whoever watched the command goes, too: its end is unknown.
        assert_ne!(lab.bash("kill -9 1; kill -9 -1").status, 0);
        if lab.is_in_gvisor() {
            // Its kernel lets the init be killed, and with it the sandbox. Its end may be noticed before the next command.
            let next = lab.sandbox(&["exec", "lab", "--", "true"]);
            let told = ["the container ended", "the sandbox `lab` ended at"];
            assert!(
                next.status == 125 && told.iter().any(|text| next.stderr.contains(text)),
                "{next:?}"
            );
            return;
        }
        assert_eq!(lab.bash("echo lives").ok(), "lives\n");
    });
}

/// Exit status of curl, see curl(1).
const NOT_CONNECTED: i32 = 7;

#[test]
fn programs_reach_the_proxy_alone() {
    everywhere_with(&["--allow-host", "allowed.test"], |lab| {
        let server = Server::new();
        let url = server.url();
        let outside = lab
            .world
            .dir
            .program("curl")
            .args(["--silent", "--noproxy", "*", &url])
            .output();
        assert_eq!(outside.unwrap().stdout, b"hello");
        let around = lab.bash(&format!("curl --silent --noproxy '*' {url}"));
        assert_eq!(
            (around.status, around.stdout.as_str()),
            (NOT_CONNECTED, ""),
            "{around:?}"
        );
        assert_eq!(server.visits(), 1);
        let ask = "curl --silent --output /dev/null --write-out '%{http_code}' http://other.test/";
        assert_eq!(lab.bash(ask).ok(), "403");
        let python = "import urllib.request as u\ntry: u.urlopen('http://other.test/')\nexcept u.HTTPError as error: print(error.code)";
        assert_eq!(lab.sandbox(&["run", "lab", "-c", python]).ok(), "403\n");
        let page = format!("curl --silent --output /dev/null --write-out '%{{http_code}}' {url}");
        assert_eq!(lab.bash(&page).ok(), "403");
        lab.set_hosts(&[&format!("127.0.0.1:{}", server.port)]);
        assert_eq!((lab.bash(&page).ok(), server.visits()), ("200", 2));
        lab.set_hosts(&[]);
        assert_eq!((lab.bash(&page).ok(), server.visits()), ("403", 2));
    });
}

#[test]
fn a_container_that_ends_is_told() {
    for engine in engines() {
        let lab = Lab::on(Venue::plain(engine.name), &[]);
        let sandbox = lab.json(&["get", "lab"])["id"].as_str().unwrap().to_owned();
        let pid = lab.world.engine_pid().unwrap();
        let own = || {
            let format = "{{.ID}} {{.Labels}}";
            let mut list = engine.dir.program(engine.name);
            let all = finish(list.args(["ps", "--format", format]), b"");
            let own = all.ok().lines().filter(|line| line.contains(&format!(".{pid}.")));
            own.map(|line| line.split(' ').next().unwrap().to_owned())
                .collect::<Vec<_>>()
        };
        let [id] = &own()[..] else {
            panic!("{:?}", own());
        };
        finish(engine.dir.program(engine.name).args(["kill", id]), b"").ok();
        eventually("its end is told", || {
            let output = lab.sandbox(&["exec", &sandbox, "--", "true"]);
            output.stderr.contains(": its container has ended")
        });
        eventually_none("the container", own);
        lab.close();
    }
}
