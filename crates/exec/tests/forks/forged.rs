//! Tests sessions that forge replies to the launcher.

use ringfence_jail::protocol::Guest as Origin;

use crate::Test;
use crate::launcher::{Failure, Guest, TestLauncher, Wish};

const FORGER: &str = include_str!("forger.py");

pub(crate) const TESTS: &[Test] = &[
    ("forged::the_forger_can_be_honest", the_forger_can_be_honest),
    (
        "forged::lies_end_the_session_and_nobody_else",
        lies_end_the_session_and_nobody_else,
    ),
    ("forged::silence_is_a_failure", silence_is_a_failure),
    (
        "forged::a_session_that_never_answers_can_be_given_up",
        a_session_that_never_answers_can_be_given_up,
    ),
    (
        "forged::a_fork_that_never_answers_ends_with_the_session",
        a_fork_that_never_answers_ends_with_the_session,
    ),
    (
        "forged::words_that_nobody_asked_for_are_not_heard",
        words_that_nobody_asked_for_are_not_heard,
    ),
    (
        "forged::children_of_the_launcher_confuse_nobody",
        children_of_the_launcher_confuse_nobody,
    ),
    (
        "forged::rights_over_a_forks_cell_open_nothing_else",
        rights_over_a_forks_cell_open_nothing_else,
    ),
];

const EPERM: i32 = 1;
const ECHILD: i32 = 10;
const EEXIST: i32 = 17;
const EPROTO: i32 = 71;
const ECANCELED: i32 = 125;

fn forger(launcher: &mut TestLauncher) -> Guest {
    let mut session = launcher.session();
    assert_eq!(session.evaluate(FORGER), "None");
    session
}

/// Requests a fork of a session that runs `code` in response.
fn forge(launcher: &mut TestLauncher, session: &mut Guest, code: &str) -> Result<Guest, Failure> {
    session.send(&format!("fds = take()\n{code}\nresult = 'done'"));
    let begun = launcher.begin(&Wish::new(Origin::ForkOf { of: session.id }));
    launcher.finish(begun)
}

fn the_forger_can_be_honest() {
    let mut launcher = TestLauncher::open();
    let mut session = forger(&mut launcher);
    let fork = forge(&mut launcher, &mut session, "move(fds, lambda: honest(fds))").unwrap();
    assert_eq!(session.receive(), "done");
    launcher.end(fork.id);
    let mut next = launcher.fork(&mut session).unwrap();
    assert_eq!(next.evaluate("result = 1"), "1");
}

fn lies_end_the_session_and_nobody_else() {
    let mut launcher = TestLauncher::open();
    let mut bystander = launcher.session();
    let mut theirs = launcher.fork(&mut bystander).unwrap();
    let mut check = |code: &str, step: &str, errno: i32| {
        let mut session = forger(&mut launcher);
        let mut earlier = launcher.fork(&mut session).unwrap();
        let failure = forge(&mut launcher, &mut session, code).err().unwrap();
        assert_eq!(failure, (step.to_owned(), errno), "{code}");
        assert_eq!(launcher.await_exit(session.id), -9, "{code}");
        assert_eq!(earlier.evaluate("result = 'on'"), "on", "{code}");
        launcher.end(earlier.id);
        launcher.await_gone(session.id);
    };
    check("report(fds, b'x')", "fork a session", EPROTO);
    check("report(fds, b'\\xff' * 8)", "fork a session", EPROTO);
    check("report(fds, bytes(4096))", "fork a session", EPROTO);
    // A process of the session's own, which the launcher knows already.
    check("report(fds)", "find the fork in its cell", EEXIST);
    let child = "if os.fork() == 0:\n    report(fds)\n    os._exit(time.sleep(60))";
    check(child, "find the fork among the launcher's children", EPERM);
    let outside = "if sibling() == 0:\n    report(fds)\n    os._exit(time.sleep(60))";
    check(outside, "find the fork in its cell", EPERM);
    check("move(fds, lambda: report(fds))", "find the fork confined", EPERM);
    for kind in ["net", "ipc", "mnt", "pid", "cgroup"] {
        let halfway = format!("move(fds, lambda: honest(fds), but=['{kind}'])");
        check(&halfway, "find the fork in its cell", EPERM);
    }
    let pipe = "read, write = os.pipe()\nmove(fds, lambda: honest(fds, keep=[read]))";
    check(pipe, "find the fork without files of the session", EPERM);
    assert_eq!(theirs.evaluate("result = 1"), "1");
    assert_eq!(bystander.evaluate("result = 1"), "1");
}

fn silence_is_a_failure() {
    let mut launcher = TestLauncher::open();
    let mut session = forger(&mut launcher);
    let failure = forge(&mut launcher, &mut session, "close(fds)").err().unwrap();
    assert_eq!(failure, ("fork a session".to_owned(), ECHILD));
    let failure = forge(&mut launcher, &mut session, "move(fds, lambda: os._exit(1))")
        .err()
        .unwrap();
    assert_eq!(failure, ("fork a session".to_owned(), ECHILD));
    assert_eq!([session.receive(), session.receive()], ["done", "done"]);
    let fork = launcher.fork(&mut session).unwrap();
    launcher.end(fork.id);
    launcher.end(session.id);
}

fn a_session_that_never_answers_can_be_given_up() {
    let mut launcher = TestLauncher::open();
    let mut session = forger(&mut launcher);
    session.send("fds = take()\nresult = 'taken'");
    let begun = launcher.begin(&Wish::new(Origin::ForkOf { of: session.id }));
    assert_eq!(session.receive(), "taken");
    launcher.kill(begun.id);
    assert_eq!(
        launcher.finish(begun).err().unwrap(),
        ("fork a session".to_owned(), ECANCELED)
    );
    // Too late: the launcher no longer listens, and the fork's cell is gone.
    assert_eq!(session.evaluate("result = attempt(lambda: report(fds))"), "EPIPE");
    session.evaluate("close(fds)");
    let fork = launcher.fork(&mut session).unwrap();
    launcher.end(fork.id);
}

/// Cancels a pending fork when its session is killed. The silent process in the fork's cell is not one of the
/// session's, and outlives it.
fn a_fork_that_never_answers_ends_with_the_session() {
    let mut launcher = TestLauncher::open();
    let mut session = forger(&mut launcher);
    let mut earlier = launcher.fork(&mut session).unwrap();
    session.send("fds = take()\nmove(fds, lambda: 0)\nresult = 'done'");
    let begun = launcher.begin(&Wish::new(Origin::ForkOf { of: session.id }));
    assert_eq!(session.receive(), "done");
    launcher.kill(session.id);
    assert_eq!(
        launcher.finish(begun).err().unwrap(),
        ("fork a session".to_owned(), ECANCELED)
    );
    assert_eq!(launcher.await_exit(session.id), -9);
    assert_eq!(earlier.evaluate("result = 1"), "1");
    launcher.end(earlier.id);
    launcher.await_gone(session.id);
}

fn words_that_nobody_asked_for_are_not_heard() {
    let mut launcher = TestLauncher::open();
    let mut session = forger(&mut launcher);
    let full = "launcher.setblocking(False)\ndef flood():\n    while True:\n        launcher.send(b'{\"Kill\":{\"id\":1}}')\nresult = attempt(flood)\nlauncher.setblocking(True)";
    assert_eq!(session.evaluate(full), "EAGAIN");
    let mut fork = launcher.fork(&mut session).unwrap();
    assert_eq!(fork.evaluate("result = 1"), "1");
    // A session that closes its end cannot be forked, but still works.
    assert_eq!(fork.evaluate("os.close(5)\nresult = fork()"), "-9");
    let failure = launcher.begin_and_fail(&Wish::new(Origin::ForkOf { of: fork.id }));
    assert_eq!(failure.0, "ask the session for a fork");
    assert_eq!(fork.evaluate("result = 1"), "1");
}

/// Tolerates children of the launcher that a session creates and that exit at any moment.
fn children_of_the_launcher_confuse_nobody() {
    let mut launcher = TestLauncher::open();
    let mut session = forger(&mut launcher);
    session.send("for _ in range(3000):\n    if sibling() == 0:\n        os._exit(3)\nresult = 'done'");
    for status in [7, 8, 9] {
        let mut guest = launcher.spawn(&Wish::new(Origin::Fork)).unwrap();
        guest.send(&format!("os._exit({status})"));
        assert_eq!(launcher.await_exit(guest.id), status);
        launcher.await_gone(guest.id);
    }
    assert_eq!(session.receive(), "done");
    let fork = launcher.fork(&mut session).unwrap();
    launcher.end(fork.id);
    launcher.end(session.id);
}

/// Confines the process between a session and its fork: it has every capability, but only over the fork's
/// cell and under the seccomp filter.
fn rights_over_a_forks_cell_open_nothing_else() {
    let mut launcher = TestLauncher::open();
    let mut session = forger(&mut launcher);
    let acts = "told, tell = os.pipe()\n\
        def acts():\n\
        \x20   join(fds)\n\
        \x20   tries = [lambda: call('mount', b'none', b'/tmp', b'tmpfs', 0, None), lambda: call('umount2', b'/cell', 2),\n\
        \x20       lambda: call('unshare', 0x10000000), lambda: call('sethostname', b'x', 1), lambda: call('chroot', b'/tmp'),\n\
        \x20       lambda: socket.socket(socket.AF_NETLINK, socket.SOCK_RAW), lambda: socket.socket(socket.AF_PACKET, socket.SOCK_RAW),\n\
        \x20       lambda: call('ptrace', 16, os.getppid(), 0, 0), lambda: os.mknod('/tmp/zero', 0o20666, os.makedev(1, 5)),\n\
        \x20       lambda: call('setuid', 0)]\n\
        \x20   os.write(tell, ' '.join(attempt(one) for one in tries).encode())\n\
        if sibling() == 0:\n\
        \x20   try:\n\
        \x20       acts()\n\
        \x20   except BaseException as error:\n\
        \x20       os.write(tell, repr(error).encode())\n\
        \x20   os._exit(0)\n\
        result = os.read(told, 999).decode()\n\
        close(fds)";
    session.send(&format!("fds = take()\n{acts}"));
    let begun = launcher.begin(&Wish::new(Origin::ForkOf { of: session.id }));
    assert_eq!(session.receive(), ["EPERM"; 10].join(" "));
    assert_eq!(launcher.finish(begun).err().unwrap().1, ECHILD);
    // It still cannot leave or change the session's own namespaces.
    assert_eq!(
        session
            .evaluate("fd = os.open('/proc/self/ns/net', 0)\nresult = attempt(lambda: call('setns', fd, 0))"),
        "EPERM"
    );
}
