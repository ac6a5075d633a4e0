//! Tests the listener of a guest's filter, which reports a last exit while the process still waits in it.

use std::os::fd::AsFd;
use std::time::Instant;

use ringfence_jail::protocol::Guest as Origin;
use ringfence_jail::seccomp::{Exits, LAST_EXIT};
use ringfence_jail::{ExitCall, ExitListener};

use crate::Test;
use crate::launcher::{Guest, PATIENCE, TestLauncher, Wish};

pub(crate) const TESTS: &[Test] = &[
    ("exits::a_last_exit_waits_for_its_answer", a_last_exit_waits),
    ("exits::other_exits_wait_for_nobody", other_exits_wait_for_nobody),
    (
        "exits::a_last_exit_of_another_process_is_known_as_such",
        another_process,
    ),
    (
        "exits::a_last_exit_of_another_thread_is_known_as_such",
        another_thread,
    ),
    (
        "exits::no_signal_takes_an_exit_back",
        no_signal_takes_an_exit_back,
    ),
    (
        "exits::a_killed_guest_waits_no_more",
        a_killed_guest_waits_no_more,
    ),
    ("exits::the_guest_has_no_listener", the_guest_has_no_listener),
    (
        "exits::the_guest_cannot_stack_another",
        the_guest_cannot_stack_another,
    ),
    ("exits::a_silent_guest_has_none", a_silent_guest_has_none),
];

fn announced() -> Wish<'static> {
    Wish {
        exits: Exits::Announced,
        ..Wish::new(Origin::Fork)
    }
}

/// Spawns a guest and receives its listener.
fn guest(launcher: &mut TestLauncher) -> (Guest, ExitListener) {
    let guest = launcher.spawn(&announced()).unwrap();
    let listener = ExitListener::receive(guest.control.as_fd()).unwrap();
    // This kernel reports exits (Linux 5.19).
    (guest, listener.unwrap())
}

/// Waits for a call.
fn call(listener: &ExitListener) -> ExitCall {
    let deadline = Instant::now() + PATIENCE;
    loop {
        match listener.next_call() {
            Ok(call) => return call,
            Err(error) => assert_eq!(error.kind(), std::io::ErrorKind::WouldBlock),
        }
        assert!(Instant::now() < deadline, "no call of exit_group");
        std::thread::yield_now();
    }
}

fn a_last_exit_waits() {
    let mut launcher = TestLauncher::open();
    for status in [0, 1, 2, 120, 127, 128, 130, 255] {
        let (mut guest, listener) = guest(&mut launcher);
        guest.send(&format!("os._exit({LAST_EXIT} | {status})"));
        let call = call(&listener);
        assert_eq!(call.status, status);
        assert!(listener.is_last(&call));
        // An unanswered call lasts: its process can still be looked at.
        assert!(launcher.has_process_in("exit_group"));
        listener.resume(&call);
        assert!(!listener.is_last(&call), "an answered call waits no more");
        assert_eq!(launcher.await_exit(guest.id), status);
        launcher.await_gone(guest.id);
    }
}

fn other_exits_wait_for_nobody() {
    let mut launcher = TestLauncher::open();
    for (code, status) in [
        ("os._exit(7)", 7),
        ("os._exit(0x52450007)", 7),
        ("os._exit(-1)", 255),
        ("os.kill(os.getpid(), 9)", -9),
        ("os.abort()", -6),
        ("os.execv('/bin/sh', ['sh', '-c', 'exit 9'])", 9),
        // The first thread leaves by `exit`, which ends the process: it has no other.
        (
            "call('syscall', 60 if os.uname().machine == 'x86_64' else 93, 5)",
            5,
        ),
    ] {
        let (mut guest, listener) = guest(&mut launcher);
        guest.send(code);
        assert_eq!(launcher.await_exit(guest.id), status, "{code}");
        launcher.await_gone(guest.id);
        assert!(listener.next_call().is_err(), "{code}");
    }
}

fn another_process() {
    let mut launcher = TestLauncher::open();
    let (mut guest, listener) = guest(&mut launcher);
    guest.send(&format!(
        "child = os.fork()\nif child == 0:\n    os._exit({LAST_EXIT} | 3)\nresult = os.waitpid(child, 0)[1]"
    ));
    let call = call(&listener);
    assert_eq!(call.status, 3);
    assert!(!listener.is_last(&call));
    listener.resume(&call);
    assert_eq!(guest.receive(), (3 << 8).to_string());
    launcher.end(guest.id);
}

fn another_thread() {
    let mut launcher = TestLauncher::open();
    let (mut guest, listener) = guest(&mut launcher);
    guest.send(&format!(
        "import threading, time\nthreading.Thread(target=lambda: os._exit({LAST_EXIT} | 4)).start()\ntime.sleep(1000)"
    ));
    let call = call(&listener);
    assert!(!listener.is_last(&call));
    listener.resume(&call);
    assert_eq!(launcher.await_exit(guest.id), 4);
    launcher.await_gone(guest.id);
}

/// A handler that ran would run after the server has taken the program for ended.
fn no_signal_takes_an_exit_back() {
    let mut launcher = TestLauncher::open();
    let (mut guest, listener) = guest(&mut launcher);
    guest.send(&format!(
        "import signal\nsignal.signal(signal.SIGALRM, print)\nsignal.setitimer(signal.ITIMER_REAL, 0.2, 0.001)\n\
         signal.signal(signal.SIGUSR1, print)\nos._exit({LAST_EXIT} | 6)"
    ));
    let call = call(&listener);
    let deadline = Instant::now() + PATIENCE;
    while !launcher.has_pending_signal("exit_group", ALARM) {
        assert!(listener.is_last(&call), "the call has ended");
        assert!(Instant::now() < deadline, "the timer has not fired");
        std::thread::yield_now();
    }
    assert!(listener.is_last(&call));
    launcher.end(guest.id);
}

/// The bit of SIGALRM in a signal mask.
const ALARM: u64 = 1 << 13;

fn a_killed_guest_waits_no_more() {
    let mut launcher = TestLauncher::open();
    let (mut guest, listener) = guest(&mut launcher);
    guest.send(&format!("os._exit({LAST_EXIT} | 6)"));
    let call = call(&listener);
    launcher.kill(guest.id);
    assert_eq!(launcher.await_exit(guest.id), -9);
    launcher.await_gone(guest.id);
    assert!(!listener.is_last(&call));
    // An event loop would ask again and again after `WouldBlock`: hanging up is no readiness that goes away.
    assert_eq!(
        listener.next_call().unwrap_err().kind(),
        std::io::ErrorKind::BrokenPipe
    );
}

fn the_guest_has_no_listener() {
    let mut launcher = TestLauncher::open();
    let (mut guest, listener) = guest(&mut launcher);
    let files = "result = [os.readlink(f'/proc/self/fd/{n}') for n in range(64) if attempt(lambda: os.fstat(n)) == 'allowed']";
    let files = guest.evaluate(files);
    assert!(files.contains("socket:") && !files.contains("seccomp"), "{files}");
    drop(listener);
    launcher.end(guest.id);
}

fn the_guest_cannot_stack_another() {
    let mut launcher = TestLauncher::open();
    let (mut guest, _listener) = guest(&mut launcher);
    // Both are refused before their arguments are looked at, which would be EFAULT and EINVAL.
    let seccomp =
        "result = attempt(lambda: call('syscall', 317 if os.uname().machine == 'x86_64' else 277, 1, 8, 0))";
    assert_eq!(guest.evaluate(seccomp), "EPERM");
    assert_eq!(
        guest.evaluate("result = attempt(lambda: call('prctl', 22, 2, 0, 0, 0))"),
        "EPERM"
    );
    launcher.end(guest.id);
}

fn a_silent_guest_has_none() {
    let mut launcher = TestLauncher::open();
    let mut guest = launcher.spawn(&Wish::new(Origin::Fork)).unwrap();
    guest.send(&format!("os._exit({LAST_EXIT} | 8)"));
    assert_eq!(launcher.await_exit(guest.id), 8);
    launcher.await_gone(guest.id);
}
