//! Handles exited processes.

use std::os::fd::AsFd;

use super::running::{LiveProcesses, Running};
use super::{Launcher, failure};
use crate::events::send;
use crate::protocol::Event;
use crate::step_error::silence;
use crate::{flat, sys};

/// Limit on exited processes kept for the zygote to identify. A session can create and end children of the
/// launcher without limit.
const MAX_UNCLAIMED: usize = 4096;

impl Launcher<'_> {
    pub(super) fn reap_ended(&mut self) {
        sys::take_signals(self.signals.as_fd());
        if self.forks.is_empty() {
            self.unclaimed.clear();
        }
        while (self.forks.is_empty() || self.unclaimed.len() < MAX_UNCLAIMED)
            && let Ok(Some(ended)) = sys::reap(sys::Wait::Poll)
        {
            if self.zygote.as_ref().is_some_and(|zygote| zygote.pid == ended.pid) {
                self.zygote = None;
                self.forks.clear();
                send(self.server, &Event::ZygoteGone, &[]);
            } else {
                self.note_end(&ended);
            }
        }
    }

    pub(super) fn note_end(&mut self, ended: &sys::Reaped) {
        let Some(id) = self
            .running
            .iter()
            .find(|(_, running)| running.owns(ended.pid))
            .map(|(id, _)| *id)
        else {
            if !self.forks.is_empty() {
                self.unclaimed.push(*ended);
            }
            return;
        };
        if let Some(Running::Starting { .. }) = self.running.get(&id) {
            // Its report is in the pipe; no other process can write to it any more.
            self.advance(id);
        }
        match self.running.get_mut(&id) {
            Some(Running::Live(_)) => self.note_end_in_cell(id, ended),
            Some(Running::Supervised { .. }) => {
                self.note_gone(id, None);
                self.kill_strays();
            }
            Some(Running::Waiting { .. }) => {
                self.running.remove(&id);
                send(self.server, &failure(id, &silence()), &[]);
            }
            // The init of a cell during set-up: its socket reports the failure.
            Some(
                Running::Founding { .. }
                | Running::Starting { .. }
                | Running::Nesting { .. }
                | Running::Forking { .. },
            )
            | None => {}
        }
    }

    fn note_end_in_cell(&mut self, id: u64, ended: &sys::Reaped) {
        let Some(Running::Live(live)) = self.running.get_mut(&id) else {
            return;
        };
        let is_guest = live.guest == ended.pid;
        let left = live.left;
        live.left = if is_guest {
            LiveProcesses::Init
        } else {
            LiveProcesses::Guest
        };
        let of = live.of;
        if is_guest {
            let exited = Event::Exited {
                id,
                status: ended.status,
                cpu_micros: ended.cpu_micros,
                max_rss: ended.max_rss,
            };
            send(self.server, &exited, &[]);
            self.give_up_forks_of(id);
        }
        match (left, self.running.get(&id)) {
            (LiveProcesses::Both, Some(Running::Live(live))) if is_guest => self.end_cell(id, live),
            (LiveProcesses::Both, _) => {}
            (LiveProcesses::Init | LiveProcesses::Guest, _) => self.note_gone(id, of),
        }
    }

    pub(super) fn note_gone(&mut self, id: u64, of: Option<u64>) {
        self.running.remove(&id);
        send(self.server, &Event::Gone { id }, &[]);
        if let Some(of) = of {
            self.note_fork_gone(of);
        }
    }

    /// Kills children that are not supervisors: they are orphans of a killed one.
    fn kill_strays(&self) {
        for pid in flat::children_of(sys::process_ids().0) {
            if !self.running.values().any(|running| running.owns(pid)) {
                let _ = sys::kill(pid, libc::SIGKILL);
            }
        }
    }
}
