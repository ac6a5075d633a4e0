//! Guests without namespaces: a supervisor above each one finds and kills its leftover processes.

use std::fs;
use std::os::fd::{AsFd, OwnedFd};

use crate::guest::{self, Start};
use crate::protocol::{Applied, Event};
use crate::step_error::{Step, StepError};
use crate::steps::{join_control_groups, read_report, setup_result};
use crate::{events, sys};

/// Starts a program under a supervisor. Returns the supervisor's pid once the program runs.
pub(crate) fn start(
    id: u64,
    server: &OwnedFd,
    start: Start<'_>,
) -> Result<(libc::pid_t, Applied), StepError> {
    let (reports, status) = sys::pipe().step("make a status pipe")?;
    match sys::fork().step("fork a supervisor")? {
        None => {
            drop(reports);
            supervise(id, server, start, status)
        }
        Some(pid) => {
            drop((start, status));
            Ok((pid, setup_result(read_report(reports))?))
        }
    }
}

/// Runs the supervisor: reaps orphans, reports the guest's exit, kills the rest, exits.
fn supervise(id: u64, server: &OwnedFd, start: Start<'_>, status: OwnedFd) -> ! {
    let prepared = sys::die_with_parent()
        .and_then(|()| sys::become_subreaper())
        .and_then(|()| sys::signalfd(&[libc::SIGCHLD, libc::SIGTERM, libc::SIGINT]));
    let Ok(signals) = prepared else { sys::exit_now(1) };
    let guest = match sys::fork() {
        Ok(None) => {
            let joined = join_control_groups(start.groups);
            guest::run(start, status, joined)
        }
        Ok(Some(pid)) => pid,
        Err(_) => sys::exit_now(1),
    };
    drop((start, status));
    loop {
        if sys::poll(&[signals.as_fd()], None).is_err() {
            sys::exit_now(1);
        }
        let taken = sys::take_signals(signals.as_fd());
        if taken.contains(&libc::SIGINT) {
            // Not reaped yet, so the pid is still its own.
            let _ = sys::kill(guest, libc::SIGINT);
            events::send(server, &Event::Interrupted { id }, &[]);
        }
        let asked_to_end = taken.contains(&libc::SIGTERM);
        let reaped = reap_all();
        if let Some(end) = reaped.ended.iter().find(|end| end.pid == guest) {
            events::send(
                server,
                &Event::Exited {
                    id,
                    status: end.status,
                    cpu_micros: end.cpu_micros,
                    max_rss: end.max_rss,
                },
                &[],
            );
        }
        let ended = reaped.ended.iter().any(|end| end.pid == guest);
        if asked_to_end || ended {
            kill_descendants(id, guest, server, ended);
            sys::exit_now(0);
        }
    }
}

struct Reaped {
    ended: Vec<sys::Reaped>,
    more: bool,
}

fn reap_all() -> Reaped {
    let mut ended = Vec::new();
    loop {
        match sys::reap(sys::Wait::Poll) {
            Ok(Some(end)) => ended.push(end),
            Ok(None) => return Reaped { ended, more: true },
            Err(_) => return Reaped { ended, more: false },
        }
    }
}

/// Kills children until there are none: orphans of a killed child become children in turn.
fn kill_descendants(id: u64, guest: libc::pid_t, server: &OwnedFd, mut told: bool) {
    loop {
        for pid in descendants() {
            let _ = sys::kill(pid, libc::SIGKILL);
        }
        let Ok(first) = sys::reap(sys::Wait::Block) else {
            return;
        };
        let mut reaped = reap_all();
        reaped.ended.extend(first);
        if let Some(end) = reaped.ended.iter().find(|end| end.pid == guest).filter(|_| !told) {
            told = true;
            let event = Event::Exited {
                id,
                status: end.status,
                cpu_micros: end.cpu_micros,
                max_rss: end.max_rss,
            };
            events::send(server, &event, &[]);
        }
        if !reaped.more {
            return;
        }
    }
}

/// Returns all descendants of this process, children before grandchildren.
fn descendants() -> Vec<libc::pid_t> {
    let mut found = children_of(sys::process_ids().0);
    let mut next = 0;
    while next < found.len() {
        found.extend(children_of(found[next]));
        next += 1;
    }
    found
}

/// Returns the children of a process, across all its threads.
pub(crate) fn children_of(pid: libc::pid_t) -> Vec<libc::pid_t> {
    let Ok(threads) = fs::read_dir(format!("/proc/{pid}/task")) else {
        return Vec::new();
    };
    let lists = threads
        .flatten()
        .filter_map(|thread| fs::read_to_string(thread.path().join("children")).ok());
    lists
        .flat_map(|list| {
            list.split_whitespace()
                .filter_map(|pid| pid.parse().ok())
                .collect::<Vec<_>>()
        })
        .collect()
}
