//! A session's side of being forked into a cell of its own.
//!
//! All of this runs in the interpreter of a guest, which may do whatever it likes instead. The launcher believes
//! nothing of it: `inspect` looks at what came of it.

use std::io;
use std::mem::ManuallyDrop;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, IntoRawFd, OwnedFd, RawFd};
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::cell::Cell;
use crate::inspect::Refusal;
use crate::nest::NAMESPACES;
use crate::protocol::{Confinement, MAX_MESSAGE, Rlimits};
use crate::steps::{GuestDescriptors, SESSION_FD, Step, StepError, limit_resources};
use crate::sys;

/// What the launcher sends for each fork.
/// Descriptors: stdin, stdout, stderr, control, report, session, the namespaces of the cell.
#[derive(Debug, Serialize, Deserialize)]
struct ForkRequest {
    working_directory: PathBuf,
    rlimits: Option<Rlimits>,
}

/// What a fork can fail at. The launcher is told a number only: what a guest says is kept short.
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

/// A report: the number of a step and of an error, or zero twice.
const REPORT: usize = 8;

/// The launcher's ends of a fork that is under way.
#[derive(Debug)]
pub(crate) struct Forking {
    /// Where the fork says that it is there.
    pub(crate) reports: OwnedFd,
    /// Where it will be asked for forks in its turn.
    pub(crate) session: OwnedFd,
    /// The files that the fork may have open, as `/proc` names them.
    pub(crate) descriptors: Vec<PathBuf>,
}

/// Asks a session for a fork in a cell.
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

/// Tells a session that there will be no fork. It waits for one word for each that the engine wants.
pub(crate) fn cancel(session: &OwnedFd) {
    // If it does not read, it does not wait either.
    let _ = sys::offer_message(session.as_fd(), b"null", &[]);
}

impl Forking {
    /// Takes the report: the process that sent it, as the kernel says, if that is a fork that is there.
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
            // Everybody who could have reported has ended.
            (Ok((0, None)), ..) => fail(libc::ECHILD).step(STEPS[0]).map_err(Refusal::Failed),
            _ => fail(libc::EPROTO).step(STEPS[0]).map_err(Refusal::Forged),
        }
    }
}

/// What the library's symbol does; see `sys::export`.
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

/// What a fork becomes.
struct Plan {
    descriptors: GuestDescriptors,
    namespaces: Vec<OwnedFd>,
    request: ForkRequest,
    /// Where the session is.
    directory: Option<PathBuf>,
}

fn fork() -> io::Result<Forked> {
    let hooks = sys::ForkHooks::find().ok_or_else(|| io::Error::from_raw_os_error(libc::ENOTSUP))?;
    let plan = receive()?;
    let report = plan.descriptors.status.try_clone()?;
    if let Err(error) = refuse_threads() {
        let number = error.errno();
        tell(&report, &Err(error))?;
        return Err(io::Error::from_raw_os_error(number));
    }
    hooks.before();
    let forked = sys::clone_sibling();
    if let Ok(None) = forked {
        // Neither the session nor its fork: a process between the two, which gets the rights to make the fork.
        return pass_over(hooks, plan, report);
    }
    hooks.after_in_parent();
    if let Err(error) = forked {
        tell(&report, &Err(error).step(STEPS[2]))?;
    }
    Ok(Forked::Session)
}

fn receive() -> io::Result<Plan> {
    // It stays open: whoever calls next needs it.
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

/// Another thread would be missing in the fork, with whatever lock it holds.
fn refuse_threads() -> Result<(), StepError> {
    let threads = std::fs::read_dir("/proc/self/task").step(STEPS[1])?.count();
    if threads == 1 {
        return Ok(());
    }
    Err(io::Error::from_raw_os_error(libc::EBUSY)).step(STEPS[1])
}

fn tell(report: &OwnedFd, outcome: &Result<(), StepError>) -> io::Result<()> {
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

/// In the process between: joins the cell, makes the fork there, and ends.
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
            let _ = tell(&report, &Err(error));
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

/// The fork, in its cell: gives up what joining brought, and goes on as the interpreter that it was.
fn become_fork(plan: Plan, report: OwnedFd) {
    let arranged = sys::setsid()
        .step(STEPS[4])
        .and_then(|()| plan.descriptors.arrange());
    // Without the report there is nobody to tell; the launcher sees the silence.
    let Ok(status) = arranged else { sys::exit_now(127) };
    drop((report, plan.namespaces));
    let outcome = settle(&plan.request, plan.directory.as_deref());
    let told = tell(&status, &outcome).and_then(|()| forget_file(status.into_raw_fd()));
    if told.is_err() || outcome.is_err() {
        sys::exit_now(127)
    }
}

fn settle(request: &ForkRequest, directory: Option<&Path>) -> Result<(), StepError> {
    forget_files().step(STEPS[5])?;
    limit_resources(request.rlimits.as_ref())?;
    // The session is above it and, to the kernel, the owner of its namespaces.
    sys::set_undumpable().step(STEPS[7])?;
    sys::drop_capabilities().step(STEPS[8])?;
    let here = directory.is_some_and(|directory| std::env::set_current_dir(directory).is_ok());
    if here {
        return Ok(());
    }
    std::env::set_current_dir(&request.working_directory).step(STEPS[9])
}

/// What the session had open stays its own: a fork that kept it would share it with all its siblings.
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

/// Closes a number and leaves it taken, so that what the interpreter still holds under it is not mistaken for
/// another file.
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
        tell(&report, &Ok(())).unwrap();
        assert_eq!(forking.finish().unwrap(), sys::process_ids().0);
        let error = Err(io::Error::from_raw_os_error(libc::EBUSY)).step(STEPS[1]);
        tell(&report, &error).unwrap();
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
