//! Launchers and zygotes that die before a program has begun: it is started once more, and never twice.

use std::process::{Child, Stdio};
use std::thread;

use serde_json::{Value, json};

use super::{BEARER, Reply, Surface, networked, world};
use crate::leftovers::processes;
use crate::network::Server;
use crate::support::{eventually, finish};
use crate::world::World;

/// Returns the launchers of a server: the children of those that represent them on the host.
fn launchers(world: &World) -> Vec<u32> {
    let server = world.engine_pid().unwrap();
    let all = processes();
    let representatives: Vec<u32> = all
        .iter()
        .filter(|process| process.parent == server)
        .map(|process| process.pid)
        .collect();
    let ours = all
        .iter()
        .filter(|process| representatives.contains(&process.parent) && process.command.contains("__jail"));
    ours.map(|process| process.pid).collect()
}

/// Returns the warm interpreters below launchers.
fn zygotes(world: &World) -> Vec<u32> {
    let launchers = launchers(world);
    let ours = processes()
        .into_iter()
        .filter(|process| launchers.contains(&process.parent) && process.command.contains("zygote"));
    ours.map(|process| process.pid).collect()
}

fn signal(world: &World, all: &[u32], signal: &str) {
    if !all.is_empty() {
        let all = all.iter().map(ToString::to_string);
        // Some may have ended.
        finish(world.dir.program("kill").arg("-s").arg(signal).args(all), b"");
    }
}

/// Starts a shell that kills each child of the server as soon as there is one, without a process of its own for it.
fn killer(world: &World) -> Child {
    let server = world.engine_pid().unwrap();
    let kill = format!(
        "while :; do read -ra all < /proc/{server}/task/{server}/children; kill -KILL ${{all[@]}}; done"
    );
    let mut shell = world.dir.program("bash");
    shell.args(["-c", &kill]).stderr(Stdio::null());
    shell.spawn().unwrap()
}

fn run(surface: &Surface, body: &Value) -> Reply {
    surface.ask("POST /v1/run", &[BEARER], &body.to_string())
}

fn at_work(world: &World) -> bool {
    let metrics = Surface::socket(world).ask("GET /metrics", &[], "").body;
    metrics.contains("ringfence_calls_at_work 1\n")
}

/// Runs a program whose launcher, or zygote, sleeps when it comes, and is killed once it has come.
fn run_killed(world: &World, body: &Value, victims: &[u32]) -> Value {
    assert!(!victims.is_empty());
    signal(world, victims, "STOP");
    let surface = Surface::loopback(world);
    let reply = thread::scope(|scope| {
        let running = scope.spawn(|| run(&surface, body));
        eventually("the call is at work", || at_work(world));
        signal(world, victims, "KILL");
        running.join().unwrap()
    });
    assert_eq!(reply.status, 200, "{reply:?}");
    reply.json()
}

#[test]
fn a_program_whose_launcher_died_before_it_began_runs_in_another() {
    let world = world();
    let surface = Surface::loopback(&world);
    // Python's has an idle worker, which needs no launcher to begin.
    for (language, code) in [("bash", "echo ran"), ("javascript", "console.log('ran')")] {
        let body = json!({"code": code, "language": language});
        // It has a launcher then.
        assert_eq!(run(&surface, &body).json()["stdout"], "ran\n", "{language}");
        let result = run_killed(&world, &body, &launchers(&world));
        assert_eq!(
            (&result["stdout"], &result["exit_code"]),
            (&json!("ran\n"), &json!(0)),
            "{language}"
        );
        signal(&world, &launchers(&world), "KILL");
        assert_eq!(run(&surface, &body).json()["stdout"], "ran\n", "{language}");
    }
    // One that died before is not even asked.
    let body = json!({"code": "print('ran')", "language": "python"});
    assert_eq!(run(&surface, &body).json()["stdout"], "ran\n");
    signal(&world, &launchers(&world), "KILL");
    eventually("they have ended", || launchers(&world).is_empty());
    assert_eq!(run(&surface, &body).json()["stdout"], "ran\n");
    world.close();
}

#[test]
fn a_program_whose_zygote_died_before_it_began_runs_without_it() {
    let page = Server::new();
    // Programs with a network get no idle worker.
    let world = networked(&page);
    let get = format!(
        "import urllib.request as r\nprint(r.urlopen('{}').read().decode())",
        page.url()
    );
    let body = json!({"code": get, "language": "python"});
    let surface = Surface::loopback(&world);
    eventually("a zygote is warm", || {
        run(&surface, &body).json()["meta"]["warm"] == true
    });
    let visits = page.visits();
    let result = run_killed(&world, &body, &zygotes(&world));
    assert_eq!(result["stdout"], "hello\n");
    assert_eq!(page.visits(), visits + 1, "it ran once");
    world.close();
}

#[test]
fn if_launchers_keep_dying_the_server_says_so_and_that_nothing_began() {
    let world = world();
    let surface = Surface::loopback(&world);
    let body = json!({"code": "echo ran", "language": "bash"});
    assert_eq!(run(&surface, &body).status, 200);
    signal(&world, &launchers(&world), "STOP");
    let reply = thread::scope(|scope| {
        let running = scope.spawn(|| run(&surface, &body));
        eventually("the call is at work", || at_work(&world));
        let mut killer = killer(&world);
        let reply = running.join().unwrap();
        killer.kill().unwrap();
        killer.wait().unwrap();
        reply
    });
    reply.refused(503, "runtime_unavailable");
    assert!(reply.head.contains("retry-after: "), "{reply:?}");
    assert_eq!(run(&surface, &body).json()["stdout"], "ran\n");
    world.close();
}

#[test]
fn a_program_whose_launcher_died_in_its_midst_is_not_started_again() {
    let page = Server::new();
    let world = networked(&page);
    let get = format!(
        "import time, urllib.request as r\nr.urlopen('{}').read()\ntime.sleep(600)",
        page.url()
    );
    let body = json!({"code": get, "language": "python"});
    let surface = Surface::loopback(&world);
    let reply = thread::scope(|scope| {
        let running = scope.spawn(|| run(&surface, &body));
        eventually("it has begun", || page.visits() == 1);
        signal(&world, &launchers(&world), "KILL");
        running.join().unwrap()
    });
    assert_ne!(reply.json()["exit_code"], 0, "{reply:?}");
    assert_eq!(page.visits(), 1, "it ran once");
    world.close();
}
