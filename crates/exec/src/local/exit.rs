//! The early end of a run: a guest's last system call, known before the kernel has taken the process apart.
//!
//! Unmapping the memory of a warm interpreter takes longer than all the rest of a short run. A guest that is
//! alone in its cell does nothing more once it has called `exit_group`: the run ends there, and the guest is
//! killed later, inside that call. Every other end takes the usual way, by the launcher.

use std::io;
use std::os::fd::AsFd;

use ringfence_cgroup::{Group, TaskGauge};
use ringfence_jail::{ExitCall, ExitListener};
use tokio::io::Interest;
use tokio::net::{UnixDatagram, UnixStream};

use super::launcher::Exit;

/// Number of tasks in the control group of a guest that is alone: itself, and the init of its cell.
const ALONE: u64 = 2;

/// A watch for the guest's last system call.
#[derive(Debug)]
pub(super) struct ExitWatch {
    listener: ExitListener,
    /// Duplicate of the listener, registered with the event loop. It is not a socket, but tokio has no safe
    /// type for others; only its readiness is used.
    ready: UnixDatagram,
    /// `None` if only the launcher can report the guest's processor time, and so its end.
    tasks: Option<TaskGauge>,
}

impl ExitWatch {
    /// Receives the listener that the set-up of a guest in this control group sent; `None` if the kernel
    /// created no listener.
    pub(super) fn receive(control: &UnixStream, group: Option<&Group>) -> io::Result<Option<Self>> {
        let Some(listener) = ExitListener::receive(control.as_fd())? else {
            return Ok(None);
        };
        let group = group.filter(|group| group.counts_processor_time());
        let duplicate = listener.as_fd().try_clone_to_owned()?;
        Ok(Some(Self {
            listener,
            ready: UnixDatagram::from_std(duplicate.into())?,
            tasks: group.and_then(Group::task_gauge),
        }))
    }

    /// Resolves to the guest's exit once its only thread has called `exit_group`, which is never answered: the
    /// guest must be killed. Exits of others proceed. Cancel-safe.
    async fn announced(&self) -> Exit {
        let next = || self.listener.next_call();
        while let Ok(call) = self.ready.async_io(Interest::READABLE, next).await {
            if self.is_end(&call) {
                return Exit::announced(call.status);
            }
            self.listener.resume(&call);
        }
        std::future::pending().await
    }

    /// Returns `true` if nothing in the cell will run after this call. The order of the checks matters: a
    /// guest that was the only process when counted cannot have started another since, because it waits in
    /// this call.
    fn is_end(&self, call: &ExitCall) -> bool {
        let alone = |tasks: &TaskGauge| matches!(tasks.read(), Ok(ALONE));
        self.tasks.as_ref().is_some_and(alone) && self.listener.is_last(call)
    }
}

/// Resolves to the early end of a guest; never if that is not watched.
pub(super) async fn announced(watch: Option<&ExitWatch>) -> Exit {
    match watch {
        Some(watch) => watch.announced().await,
        None => std::future::pending().await,
    }
}
