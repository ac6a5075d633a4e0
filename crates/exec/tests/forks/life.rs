//! Tests the life cycle and limits of forks.

use std::io::Read;

use ringfence_cgroup::{Group, GroupLimits, Hierarchy};
use ringfence_jail::protocol::{Event, Guest as Origin, LauncherSpec};

use crate::Test;
use crate::launcher::{TestLauncher, Wish, plain_session};

pub(crate) const TESTS: &[Test] = &[
    (
        "life::a_fork_ends_with_the_status_that_the_kernel_gives",
        a_fork_ends_with_its_status,
    ),
    (
        "life::killing_a_fork_kills_its_own_cell_only",
        killing_a_fork_kills_its_own_cell_only,
    ),
    (
        "life::the_session_can_end_its_forks",
        the_session_can_end_its_forks,
    ),
    ("life::forks_outlive_their_session", forks_outlive_their_session),
    ("life::a_killed_session_is_cleared", a_killed_session_is_cleared),
    (
        "life::what_cannot_be_forked_is_refused",
        what_cannot_be_forked_is_refused,
    ),
    ("life::a_second_thread_is_refused", a_second_thread_is_refused),
    (
        "life::forks_of_forks_go_as_deep_as_the_kernel_lets_them",
        forks_of_forks,
    ),
    (
        "life::a_hundred_forks_leave_nothing",
        a_hundred_forks_leave_nothing,
    ),
    (
        "life::nothing_outlives_the_launcher",
        nothing_outlives_the_launcher,
    ),
];

/// Tests that need root: control groups require a hierarchy that ordinary users rarely have.
pub(crate) const AS_ROOT: &[Test] = &[
    (
        "life::limits_hold_for_the_fork_alone",
        limits_hold_for_the_fork_alone,
    ),
    (
        "life::an_ordinary_user_can_do_the_same",
        an_ordinary_user_can_do_the_same,
    ),
];

const ESRCH: i32 = 3;
const EBUSY: i32 = 16;
const EINVAL: i32 = 22;
const ENOSPC: i32 = 28;
const ENOTSUP: i32 = 95;
const ECANCELED: i32 = 125;

fn a_fork_ends_with_its_status() {
    let mut launcher = TestLauncher::open();
    let mut session = launcher.session();
    let mut fork = launcher.fork(&mut session).unwrap();
    let id = fork.id;
    fork.send("print('out', flush=True)\nos.write(2, b'err')\nos._exit(7)");
    assert_eq!(fork.printed(), ("out\n".to_owned(), "err".to_owned()));
    assert_eq!(launcher.await_exit(id), 7);
    launcher.await_gone(id);
    let mut fork = launcher.fork(&mut session).unwrap();
    fork.send("os.abort()");
    assert_eq!(launcher.await_exit(fork.id), -6);
    launcher.await_gone(fork.id);
    launcher.end(session.id);
}

fn killing_a_fork_kills_its_own_cell_only() {
    let mut launcher = TestLauncher::open();
    let mut session = launcher.session();
    let mut forks = [0, 1].map(|_| launcher.fork(&mut session).unwrap());
    let before = launcher.processes().len();
    forks[0].evaluate("child = os.fork()\nif child == 0:\n    os.setsid()\n    os.read(3, 1)");
    assert_eq!(launcher.processes().len(), before + 1);
    launcher.kill(forks[0].id);
    assert_eq!(launcher.await_exit(forks[0].id), -9);
    launcher.await_gone(forks[0].id);
    // The fork, its child and its cell's init are reaped by the session's init.
    assert_eq!(forks[1].evaluate("result = 1 + 1"), "2");
    assert_eq!(session.evaluate("result = 1 + 1"), "2");
    let next = launcher.fork(&mut session).unwrap();
    launcher.await_processes(before);
    launcher.end(next.id);
}

/// Lets a session kill its forks: it is in an ancestor pid namespace, which cannot be changed.
fn the_session_can_end_its_forks() {
    let mut launcher = TestLauncher::open();
    let mut session = launcher.session();
    let fork = launcher.fork(&mut session).unwrap();
    session.evaluate("for pid in range(3, 300):\n    attempt(lambda: os.kill(pid, 9))");
    assert_eq!(launcher.await_exit(fork.id), -9);
    launcher.await_gone(fork.id);
    assert_eq!(session.evaluate("result = 1"), "1");
}

fn forks_outlive_their_session() {
    let mut launcher = TestLauncher::open();
    let mut session = launcher.session();
    let id = session.id;
    let mut forks = [0, 1].map(|_| launcher.fork(&mut session).unwrap());
    session.send("os._exit(5)");
    assert_eq!(launcher.await_exit(id), 5);
    assert_eq!(forks[0].evaluate("result = 'on'"), "on");
    // Its own forks do not depend on the session.
    let mut grandchild = launcher.fork(&mut forks[0]).unwrap();
    assert_eq!(
        launcher.begin_and_fail(&Wish::new(Origin::ForkOf { of: id })),
        ("find the session to fork".to_owned(), ESRCH)
    );
    let gone = |event: &Event| matches!(event, Event::Gone { id: about } if *about == id);
    launcher.end(forks[1].id);
    launcher.kill(forks[0].id);
    assert_eq!(launcher.await_exit(forks[0].id), -9);
    assert_eq!(grandchild.evaluate("result = 'on'"), "on");
    assert!(
        !launcher.has_come(gone),
        "the session's cell holds those of its forks"
    );
    launcher.end(grandchild.id);
    launcher.await_gone(forks[0].id);
    launcher.await_gone(id);
}

/// Kills the other processes of a killed session, hidden ones included, but not its forks.
fn a_killed_session_is_cleared() {
    let mut launcher = TestLauncher::open();
    let mut session = launcher.session();
    let mut fork = launcher.fork(&mut session).unwrap();
    let few = launcher.processes().len();
    session.evaluate(
        "for _ in range(20):\n    if os.fork() == 0:\n        os.setsid()\n        os.read(3, 1)\n\
         if sibling() == 0:\n    os.read(3, 1)",
    );
    assert!(launcher.processes().len() >= few + 20);
    launcher.kill(session.id);
    assert_eq!(launcher.await_exit(session.id), -9);
    // The init is sequential: it reports the fork's end after clearing the cell.
    let mut inner = launcher.fork(&mut fork).unwrap();
    assert_eq!(inner.evaluate("result = 1"), "1");
    launcher.end(inner.id);
    launcher.end(fork.id);
    launcher.await_gone(session.id);
    // Itself and its zygote.
    launcher.await_processes(2);
}

fn what_cannot_be_forked_is_refused() {
    let mut launcher = TestLauncher::open();
    let of = |of| Wish::new(Origin::ForkOf { of });
    assert_eq!(
        launcher.begin_and_fail(&of(99)),
        ("find the session to fork".to_owned(), ESRCH)
    );
    let guest = launcher.spawn(&Wish::new(Origin::Fork)).unwrap();
    assert_eq!(
        launcher.begin_and_fail(&of(guest.id)),
        ("fork a guest that is not a session".to_owned(), ENOTSUP)
    );
    let mut session = launcher.session();
    session.send("result = fork()");
    let first = launcher.begin(&of(session.id));
    let second = launcher.begin_and_fail(&of(session.id));
    assert_eq!(second, ("fork a session that is being forked".to_owned(), EBUSY));
    // One reply per command: of two concurrent calls, one finds the other's fork pending.
    let told = [session.receive(), session.evaluate("result = fork()")];
    assert!(told.contains(&format!("-{ECANCELED}")), "{told:?}");
    assert!(told.contains(&"0".to_owned()), "{told:?}");
    let fork = launcher.finish(first).unwrap();
    launcher.end(fork.id);
    // Without namespaces, there are no cells.
    let mut flat = TestLauncher::start(&LauncherSpec::Flat);
    for origin in [plain_session(), Origin::ForkOf { of: 1 }] {
        assert_eq!(flat.begin_and_fail(&Wish::new(origin)).1, ENOTSUP);
    }
    mismatched_filters_are_refused(&mut launcher);
}

fn mismatched_filters_are_refused(launcher: &mut TestLauncher) {
    let step = "match the filter to the guest".to_owned();
    let movable = Wish {
        movable: true,
        ..Wish::new(Origin::Fork)
    };
    let fixed = Wish {
        movable: false,
        ..Wish::new(plain_session())
    };
    assert_eq!(launcher.begin_and_fail(&movable), (step.clone(), EINVAL));
    assert_eq!(launcher.begin_and_fail(&fixed), (step, EINVAL));
}

fn a_second_thread_is_refused() {
    let mut launcher = TestLauncher::open();
    let mut session = launcher.session();
    session.evaluate("import threading\nstop = threading.Event()\nthread = threading.Thread(target=stop.wait)\nthread.start()");
    let refused = launcher.fork(&mut session).err().unwrap();
    assert_eq!(
        refused,
        ("fork a session that has more than one thread".to_owned(), EBUSY)
    );
    session.evaluate("stop.set()\nthread.join()");
    let mut fork = launcher.fork(&mut session).unwrap();
    assert_eq!(
        fork.evaluate("thread = threading.Thread(target=print)\nthread.start()\nthread.join()\nresult = 1"),
        "1"
    );
}

fn forks_of_forks() {
    let mut launcher = TestLauncher::open();
    let mut chain = vec![launcher.session()];
    let refused = loop {
        let session = chain.last_mut().unwrap();
        session.evaluate(&format!("depth = {}", session.id));
        match launcher.fork(session) {
            Ok(fork) => chain.push(fork),
            Err(refused) => break refused,
        }
        assert!(chain.len() < 40);
    };
    assert_eq!(refused.1, ENOSPC);
    assert!(refused.0.contains("32"), "{}", refused.0);
    assert!(chain.len() > 20, "{}", chain.len());
    let last = chain.last_mut().unwrap();
    assert_eq!(last.evaluate("result = depth"), last.id.to_string());
    launcher.kill(chain[0].id);
    assert_eq!(chain.last_mut().unwrap().evaluate("result = 'on'"), "on");
}

fn a_hundred_forks_leave_nothing() {
    let mut launcher = TestLauncher::open();
    let mut session = launcher.session();
    session.evaluate("data = list(range(10000))\nopen('/workspace/f', 'w').write('x' * 10000)");
    let look = "result = len(os.listdir('/proc/self/fd')), os.listdir('/workspace')";
    let looked = session.evaluate(look);
    let warm_up = launcher.fork(&mut session).unwrap();
    launcher.end(warm_up.id);
    let (processes, descriptors) = (launcher.processes(), descriptors(&mut launcher));
    for _ in 0..10 {
        let mut forks: Vec<_> = (0..10).map(|_| launcher.fork(&mut session).unwrap()).collect();
        assert!(
            forks
                .iter_mut()
                .all(|fork| fork.evaluate("result = len(data)") == "10000")
        );
        forks.iter().for_each(|fork| launcher.kill(fork.id));
        for fork in &forks {
            launcher.await_exit(fork.id);
            launcher.await_gone(fork.id);
        }
    }
    // The session's init reaps the remains of a cell before it creates the next one.
    let last = launcher.fork(&mut session).unwrap();
    launcher.end(last.id);
    assert_eq!(session.evaluate(look), looked);
    assert_eq!(self::descriptors(&mut launcher), descriptors);
    let left: Vec<_> = launcher
        .processes()
        .into_iter()
        .filter(|pid| !processes.contains(pid))
        .collect();
    assert!(left.iter().all(|pid| is_ending(*pid)), "{left:?}");
}

/// Returns `true` if a process has ended, or is a zombie.
fn is_ending(pid: u32) -> bool {
    std::fs::read_to_string(format!("/proc/{pid}/stat")).map_or(true, |stat| stat.contains(") Z "))
}

/// Returns the number of open file descriptors of the launcher.
fn descriptors(launcher: &mut TestLauncher) -> Option<usize> {
    // Commands are sequential: after this reply, all earlier ones are complete.
    launcher.begin_and_fail(&Wish::new(Origin::ForkOf { of: 0 }));
    let launcher = launcher.processes()[0];
    Some(std::fs::read_dir(format!("/proc/{launcher}/fd")).ok()?.count())
}

fn nothing_outlives_the_launcher() {
    let mut launcher = TestLauncher::open();
    let mut session = launcher.session();
    let mut fork = launcher.fork(&mut session).unwrap();
    let _inner = launcher.fork(&mut fork).unwrap();
    let processes = launcher.processes();
    assert!(processes.len() >= 8, "{processes:?}");
    launcher.launcher.close().unwrap();
    // Every process held an end of these, so end of file proves that all are gone.
    let mut rest = String::new();
    assert_eq!(fork.control.read_to_string(&mut rest).unwrap_or(0), 0);
    assert!(processes.iter().all(|pid| is_ending(*pid)), "{processes:?}");
}

fn limits_hold_for_the_fork_alone() {
    let Some(hierarchy) = Hierarchy::detect().unwrap() else {
        return eprintln!("skipped: there are no control groups to be had");
    };
    let limits = |memory_bytes| GroupLimits {
        memory_bytes,
        pids: 32,
        cpus: 1.0,
    };
    let group = |name: &str, memory| -> Group {
        let name = format!("ringfence-test-forks-{}/{name}", std::process::id());
        hierarchy.group(&name, limits(memory)).unwrap()
    };
    let groups = [
        group("session", 256 << 20),
        group("small", 64 << 20),
        group("large", 256 << 20),
    ];
    let mut launcher = TestLauncher::open();
    let wish = |origin, group| Wish {
        group: Some(group),
        ..Wish::new(origin)
    };
    let mut session = launcher.spawn(&wish(plain_session(), &groups[0])).unwrap();
    let of = Origin::ForkOf { of: session.id };
    let mut small = launcher
        .fork_as(&mut session, &wish(of.clone(), &groups[1]))
        .unwrap();
    let mut large = launcher.fork_as(&mut session, &wish(of, &groups[2])).unwrap();
    let fill = "data = bytearray(b'x') * (100 << 20)\nresult = len(data)";
    assert_eq!(large.evaluate(fill), (100 << 20).to_string());
    small.send(fill);
    assert_eq!(launcher.await_exit(small.id), -9);
    launcher.await_gone(small.id);
    assert_eq!(session.evaluate(fill), (100 << 20).to_string());
    for id in [large.id, session.id] {
        launcher.end(id);
    }
    for group in groups {
        group.close().unwrap();
    }
    hierarchy.sweep(&|owner| owner == format!("test-forks-{}", std::process::id()));
}

/// Runs all other tests as an unprivileged user.
fn an_ordinary_user_can_do_the_same() {
    use std::os::unix::process::CommandExt;
    const USER: u32 = 1234;
    let own = std::fs::metadata("/proc/self").unwrap();
    if std::os::unix::fs::MetadataExt::uid(&own) != 0 {
        return eprintln!("skipped: only root can become another user");
    }
    let place = tempfile::tempdir().unwrap();
    let binary = place.path().join("forks");
    std::fs::copy(std::env::current_exe().unwrap(), &binary).unwrap();
    let open = std::os::unix::fs::PermissionsExt::from_mode(0o755);
    std::fs::set_permissions(place.path(), open).unwrap();
    let names = crate::BY_ANYBODY.iter().copied().flatten().map(|(name, _)| *name);
    let mut tests = std::process::Command::new(&binary);
    tests.arg("--exact").args(names).env_clear().current_dir("/");
    let output = tests.uid(USER).gid(USER).output().unwrap();
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
}
