//! The session's part in forking itself into a new cell.
//!
//! All of this runs in the interpreter of a guest, which may do anything else instead. The launcher trusts
//! none of it: `inspect` checks the result.

use std::io;
use std::mem::ManuallyDrop;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, IntoRawFd, OwnedFd, RawFd};
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::cell::Cell;
use crate::inspect::Refusal;
use crate::nest::NAMESPACES;
use crate::protocol::{Confinement, MAX_MESSAGE, Rlimits};
use crate::step_error::{Step, StepError};
use crate::steps::{GuestDescriptors, SESSION_FD, limit_resources};
use crate::sys;

/// The launcher's request for a fork. File descriptors: stdin, stdout, stderr, control, report, session, the
/// namespaces of the cell.
#[derive(Debug, Serialize, Deserialize)]
struct ForkRequest {
    working_directory: PathBuf,
    rlimits: Option<Rlimits>,
}

/// Steps that can fail. The launcher receives an index only: messages of a guest are kept short.
const STEPS: &[&str] = &[
    "fork a session",
    "fork a session that has more than one thread",
    "copy the session's process",
    "join the fork's namespaces",
    "set the fork up",
    "arrange the descriptors",
    "set the resource limits",
    "keep the session out",
    "drop all capabilities",
    "enter the working directory",
];

/// Length of a report: the numbers of a step and of an error, or zero twice.
const REPORT: usize = 8;

/// The launcher's ends of a pending fork.
#[derive(Debug)]
pub(crate) struct Forking {
    /// Channel on which the fork reports that it runs.
    pub(crate) reports: OwnedFd,
    /// Channel on which the fork will receive fork requests.
    pub(crate) session: OwnedFd,
    /// Files that the fork may have open, as named by `/proc`.
    pub(crate) descriptors: Vec<PathBuf>,
}

/// Requests a fork of a session into a cell.
pub(crate) fn ask(
    session: &OwnedFd,
    cell: &Cell,
    confinement: &Confinement,
    descriptors: &[OwnedFd; 4],
) -> Result<Forking, StepError> {
    const STEP: &str = "ask the session for a fork";
    let (reports, report) = sys::seqpacket_pair().step(STEP)?;
    sys::ask_for_senders(reports.as_fd()).step(STEP)?;
    let (ours, theirs) = sys::seqpacket_pair().step(STEP)?;
    let request = ForkRequest {
        working_directory: confinement.working_directory.clone(),
        rlimits: confinement.rlimits,
    };
    let bytes = serde_json::to_vec(&request)
        .map_err(io::Error::other)
        .step(STEP)?;
    let given = descriptors.iter().chain([&report, &theirs]);
    let fds: Vec<BorrowedFd<'_>> = given.clone().chain(&cell.namespaces).map(AsFd::as_fd).collect();
    sys::offer_message(session.as_fd(), &bytes, &fds).step(STEP)?;
    let name = |fd: &OwnedFd| std::fs::read_link(format!("/proc/self/fd/{}", fd.as_raw_fd()));
    let names: io::Result<Vec<PathBuf>> = given.map(name).collect();
    Ok(Forking {
        reports,
        session: ours,
        descriptors: names.step(STEP)?,
    })
}

/// Notifies a session that its fork was cancelled. It waits for one message for each that the server requests.
pub(crate) fn cancel(session: &OwnedFd) {
    // A session that does not read does not wait, either.
    let _ = sys::offer_message(session.as_fd(), b"null", &[]);
}

impl Forking {
    /// Receives the report and returns the process that sent it, according to the kernel, if the fork runs.
    pub(crate) fn finish(&self) -> Result<libc::pid_t, Refusal> {
        let mut report = [0; REPORT];
        let received = sys::receive_from_sender(self.reports.as_fd(), &mut report);
        let fail = |errno| Err(io::Error::from_raw_os_error(errno));
        let number = |bytes: &[u8]| bytes.try_into().map_or(0, u32::from_le_bytes);
        let (step, errno) = report.split_at(REPORT / 2);
        match (received, number(step), number(errno)) {
            (Ok((REPORT, Some(sender))), 0, 0) => Ok(sender),
            (Ok((REPORT, _)), step, errno @ 1..=4095) => fail(errno as i32)
                .step(STEPS.get(step as usize).unwrap_or(&STEPS[0]))
                .map_err(Refusal::Failed),
            // All processes that could have reported have exited.
            (Ok((0, None)), ..) => fail(libc::ECHILD).step(STEPS[0]).map_err(Refusal::Failed),
            _ => fail(libc::EPROTO).step(STEPS[0]).map_err(Refusal::Forged),
        }
    }
}

/// Implements the library's exported symbol; see `sys::export`.
pub(crate) fn serve() -> i32 {
    match fork() {
        Ok(Forked::Session) => 0,
        Ok(Forked::Fork) => 3,
        Err(error) => -error.raw_os_error().unwrap_or(libc::EIO),
    }
}

enum Forked {
    Session,
    Fork,
}

/// The parameters of a fork.
struct Plan {
    descriptors: GuestDescriptors,
    namespaces: Vec<OwnedFd>,
    request: ForkRequest,
    /// Working directory of the session.
    directory: Option<PathBuf>,
}

fn fork() -> io::Result<Forked> {
    let hooks = sys::ForkHooks::find().ok_or_else(|| io::Error::from_raw_os_error(libc::ENOTSUP))?;
    let plan = receive()?;
    let report = plan.descriptors.status.try_clone()?;
    if let Err(error) = refuse_threads() {
        let number = error.errno();
        send(&report, &Err(error))?;
        return Err(io::Error::from_raw_os_error(number));
    }
    hooks.before();
    let forked = sys::clone_sibling();
    if let Ok(None) = forked {
        // Neither the session nor its fork: an intermediate process, which gets the privileges to create the
        // fork.
        return pass_over(hooks, plan, report);
    }
    hooks.after_in_parent();
    if let Err(error) = forked {
        send(&report, &Err(error).step(STEPS[2]))?;
    }
    Ok(Forked::Session)
}

fn receive() -> io::Result<Plan> {
    // Stays open: the next call needs it.
    let socket = ManuallyDrop::new(sys::inherited(SESSION_FD)?);
    let mut buffer = vec![0; MAX_MESSAGE];
    let (length, fds) = sys::receive_message(socket.as_fd(), &mut buffer)?;
    if length == 0 {
        return Err(io::Error::from_raw_os_error(libc::ECONNRESET));
    }
    let cancelled = || io::Error::from_raw_os_error(libc::ECANCELED);
    let request: Option<ForkRequest> = serde_json::from_slice(&buffer[..length])?;
    let request = request.ok_or_else(cancelled)?;
    let mut fds = fds.into_iter();
    let mut next = || {
        fds.next()
            .ok_or_else(|| io::Error::from_raw_os_error(libc::EBADF))
    };
    let descriptors = GuestDescriptors {
        standard: [next()?, next()?, next()?],
        control: next()?,
        status: next()?,
        session: Some(next()?),
    };
    Ok(Plan {
        descriptors,
        namespaces: fds.collect(),
        request,
        directory: std::env::current_dir().ok(),
    })
}

/// Rejects a multi-threaded session: in the fork the other threads would be missing, with any locks they
/// hold.
fn refuse_threads() -> Result<(), StepError> {
    let threads = std::fs::read_dir("/proc/self/task").step(STEPS[1])?.count();
    if threads == 1 {
        return Ok(());
    }
    Err(io::Error::from_raw_os_error(libc::EBUSY)).step(STEPS[1])
}

fn send(report: &OwnedFd, outcome: &Result<(), StepError>) -> io::Result<()> {
    let (step, errno) = match outcome {
        Ok(()) => (0, 0),
        Err(error) => (
            STEPS.iter().position(|step| *step == error.step).unwrap_or(0),
            error.errno(),
        ),
    };
    let mut message = [0; REPORT];
    message[..4].copy_from_slice(&(step as u32).to_le_bytes());
    message[4..].copy_from_slice(&errno.to_le_bytes());
    sys::send_message(report.as_fd(), &message, &[])
}

/// Runs the intermediate process: joins the cell, forks there, and exits.
fn pass_over(hooks: sys::ForkHooks, plan: Plan, report: OwnedFd) -> io::Result<Forked> {
    let forked = join(&plan.namespaces).and_then(|()| sys::clone_sibling().step(STEPS[2]));
    match forked {
        Ok(None) => {
            become_fork(plan, report);
            hooks.after_in_child();
            Ok(Forked::Fork)
        }
        Ok(Some(_)) => sys::exit_now(0),
        Err(error) => {
            let _ = send(&report, &Err(error));
            sys::exit_now(127)
        }
    }
}

fn join(namespaces: &[OwnedFd]) -> Result<(), StepError> {
    for (handle, (_, kind)) in namespaces.iter().zip(NAMESPACES) {
        sys::setns(handle.as_fd(), *kind).step(STEPS[3])?;
    }
    Ok(())
}

/// Runs the fork, in its cell: drops the privileges gained by joining, and continues as the interpreter that
/// it was.
fn become_fork(plan: Plan, report: OwnedFd) {
    let arranged = sys::setsid()
        .step(STEPS[4])
        .and_then(|()| plan.descriptors.arrange());
    // Without the report channel the launcher sees only the closed socket.
    let Ok(status) = arranged else { sys::exit_now(127) };
    drop((report, plan.namespaces));
    let outcome = settle(&plan.request, plan.directory.as_deref());
    let told = send(&status, &outcome).and_then(|()| forget_file(status.into_raw_fd()));
    if told.is_err() || outcome.is_err() {
        sys::exit_now(127)
    }
}

fn settle(request: &ForkRequest, directory: Option<&Path>) -> Result<(), StepError> {
    forget_files().step(STEPS[5])?;
    limit_resources(request.rlimits.as_ref())?;
    // The session is its ancestor and, to the kernel, the owner of its namespaces.
    sys::set_undumpable().step(STEPS[7])?;
    sys::limit_capabilities(0).step(STEPS[8])?;
    let here = directory.is_some_and(|directory| std::env::set_current_dir(directory).is_ok());
    if here {
        return Ok(());
    }
    std::env::set_current_dir(&request.working_directory).step(STEPS[9])
}

/// Replaces the session's open files: a fork that kept them would share them with all its siblings.
fn forget_files() -> io::Result<()> {
    let listed: Vec<RawFd> = std::fs::read_dir("/proc/self/fd")?
        .flatten()
        .filter_map(|entry| entry.file_name().to_str()?.parse().ok())
        .collect();
    let others = listed.into_iter().filter(|number| *number > SESSION_FD);
    others
        .filter(|number| sys::is_open(*number))
        .try_for_each(forget_file)
}

/// Closes a file descriptor but leaves its number occupied, so that the interpreter's stale references cannot
/// mean another file.
fn forget_file(number: RawFd) -> io::Result<()> {
    sys::place(sys::open_path(c"/dev/null")?.as_fd(), number)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn forking() -> (Forking, OwnedFd) {
        let (reports, report) = sys::seqpacket_pair().unwrap();
        sys::ask_for_senders(reports.as_fd()).unwrap();
        let (session, _) = sys::seqpacket_pair().unwrap();
        let forking = Forking {
            reports,
            session,
            descriptors: Vec::new(),
        };
        (forking, report)
    }

    #[test]
    fn a_report_names_its_sender_or_a_step() {
        let (forking, report) = forking();
        send(&report, &Ok(())).unwrap();
        assert_eq!(forking.finish().unwrap(), sys::process_ids().0);
        let error = Err(io::Error::from_raw_os_error(libc::EBUSY)).step(STEPS[1]);
        send(&report, &error).unwrap();
        let Err(Refusal::Failed(told)) = forking.finish() else {
            panic!("a failure")
        };
        assert_eq!((told.step, told.errno()), (STEPS[1], libc::EBUSY));
        drop(report);
        assert!(matches!(forking.finish(), Err(Refusal::Failed(error)) if error.errno() == libc::ECHILD));
    }

    #[test]
    fn rubbish_is_known_for_what_it_is() {
        let check = |message: &[u8]| {
            let (forking, report) = forking();
            sys::send_message(report.as_fd(), message, &[report.as_fd()]).unwrap();
            assert!(matches!(forking.finish(), Err(Refusal::Forged(_))), "{message:?}");
        };
        check(b"");
        check(b"x");
        check(&[0; REPORT - 1]);
        check(&[0; REPORT + 1]);
        check(&[7; 4096]);
        check(&[0xff; REPORT]);
        check(&[1, 0, 0, 0, 0, 0, 0, 0]);
        check(&[0, 0, 0, 0, 0, 0, 0, 0x80]);
    }
}
