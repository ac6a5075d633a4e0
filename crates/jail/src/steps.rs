//! The exact order in which a process drops its privileges: one small step each, and the step's name in every
//! error.

use std::fs::File;
use std::io::{self, Write};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd, RawFd};
use std::sync::OnceLock;

use crate::protocol::{Applied, Confinement, Missing, Rlimits};
use crate::seccomp::{Exits, Surface, Users};
use crate::step_error::{Step, StepError, remote_error, silence};
use crate::{exit_listener, landlock, seccomp, shares, sys};

/// Compiles the filter before the fork, so that the child inherits it and its memory stays shared. The child
/// reports any error.
pub(crate) fn prepare(confinement: &Confinement) {
    if confinement.landlock.is_some() {
        let _ = build_filter(confinement.surface);
        if confinement.surface.exits == Exits::Announced {
            let _ = build_filter(silent(confinement.surface));
        }
    }
}

/// Umask of the launcher's parent. Guests have it, since they may write to directories of the host.
static INHERITED_UMASK: OnceLock<libc::mode_t> = OnceLock::new();

/// Sets the umask to 022 until [`confine`]: guests are other users, who must reach the directories made for them.
pub(crate) fn replace_umask() {
    let _ = INHERITED_UMASK.set(sys::set_umask(0o022));
}

/// Confines the calling process, irrevocably. It keeps file descriptors up to `last`: 0, 1, 2, 3 and those
/// that close on exec.
pub(crate) fn confine(confinement: &Confinement, last: RawFd) -> Result<Applied, StepError> {
    if let Some(mask) = INHERITED_UMASK.get() {
        sys::set_umask(*mask);
    }
    let Some(rules) = &confinement.landlock else {
        limit_resources(confinement.rlimits.as_ref())?;
        enter_working_directory(confinement)?;
        sys::close_from(last + 1).step("close inherited descriptors")?;
        return Ok(Applied::default());
    };
    let filter = build_filter(confinement.surface)?;
    enter_working_directory(confinement)?;
    let ruleset =
        forgive(landlock::prepare(rules), confinement.missing).step("prepare the Landlock rules")?;
    // After the last descriptor is opened: its number may lie above the limit, where the launcher has many cells.
    limit_resources(confinement.rlimits.as_ref())?;
    take_ids(confinement)?;
    sys::set_no_new_privs().step("set no_new_privs")?;
    sys::limit_capabilities(capabilities(confinement.surface.users)).step("drop the capabilities")?;
    let landlock_abi = match ruleset {
        Some(ruleset) => ruleset.enforce().step("enforce the Landlock rules")?,
        None => 0,
    };
    sys::close_from(last + 1).step("close inherited descriptors")?;
    let seccomp = load_filter(&filter, confinement)?;
    Ok(Applied {
        namespaces: false,
        time_namespace: false,
        landlock_abi,
        seccomp,
        no_new_privs: true,
        capabilities_dropped: confinement.surface.users == Users::One,
    })
}

/// Returns the capabilities that a guest keeps, over its own user namespace alone: to change the owners of files and to
/// become another user, but nothing about namespaces, mounts, devices, networks or other processes' memory.
fn capabilities(users: Users) -> sys::CapabilitySet {
    const CHOWN: u32 = 0;
    const DAC_OVERRIDE: u32 = 1;
    const FOWNER: u32 = 3;
    const FSETID: u32 = 4;
    const KILL: u32 = 5;
    const SETGID: u32 = 6;
    const SETUID: u32 = 7;
    const NET_BIND_SERVICE: u32 = 10;
    let kept: &[u32] = match users {
        Users::One => &[],
        Users::Several => &[
            CHOWN,
            DAC_OVERRIDE,
            FOWNER,
            FSETID,
            KILL,
            SETGID,
            SETUID,
            NET_BIND_SERVICE,
        ],
    };
    kept.iter().fold(0, |set, capability| set | 1 << capability)
}

/// Turns the error of a layer that the kernel lacks into `None`, if the caller wants missing layers reported
/// only.
fn forgive<T>(result: io::Result<T>, missing: Missing) -> io::Result<Option<T>> {
    match result {
        Ok(value) => Ok(Some(value)),
        Err(error) => match (missing, error.raw_os_error()) {
            (Missing::Report, Some(libc::ENOSYS | libc::EOPNOTSUPP | libc::EINVAL)) => Ok(None),
            _ => Err(error),
        },
    }
}

fn build_filter(surface: Surface) -> Result<seccomp::Program, StepError> {
    seccomp::fence(surface)
        .map_err(io::Error::other)
        .step("build the system-call filter")
}

/// Loads the filter. Returns `false` if the kernel has none and the caller wants that reported only.
fn load_filter(filter: &seccomp::Program, confinement: &Confinement) -> Result<bool, StepError> {
    const STEP: &str = "load the system-call filter";
    let silently =
        |filter: &seccomp::Program| forgive(sys::load_filter(filter.as_slice()), confinement.missing);
    if confinement.surface.exits == Exits::Silent {
        return silently(filter).step(STEP).map(|loaded| loaded.is_some());
    }
    let (listener, loaded) = match sys::load_filter_with_listener(filter.as_slice()) {
        Ok(listener) => (Some(listener), true),
        // The kernel is older than 5.19, or whoever started the server has a listener of its own.
        Err(error) if matches!(error.raw_os_error(), Some(libc::EINVAL | libc::EBUSY)) => {
            let filter = build_filter(silent(confinement.surface))?;
            (None, silently(&filter).step(STEP)?.is_some())
        }
        Err(error) => (
            None,
            forgive(Err::<(), _>(error), confinement.missing)
                .step(STEP)?
                .is_some(),
        ),
    };
    exit_listener::send(listener.as_ref()).step("hand over the filter's listener")?;
    Ok(loaded)
}

/// Returns the same surface without announced exits.
fn silent(surface: Surface) -> Surface {
    Surface {
        exits: Exits::Silent,
        ..surface
    }
}

fn enter_working_directory(confinement: &Confinement) -> Result<(), StepError> {
    std::env::set_current_dir(&confinement.working_directory).step("enter the working directory")
}

/// Takes the guest's ids. A change of ids makes the kernel mark the process as undumpable, even for itself:
/// `/proc/self/fd` would belong to another user. Nobody outside the fence gains by undoing it.
fn take_ids(confinement: &Confinement) -> Result<(), StepError> {
    let Some((uid, gid)) = confinement.ids else {
        return Ok(());
    };
    // An ordinary user may not drop groups; they could give access only to files that are visible inside.
    let _ = sys::drop_groups();
    sys::set_ids(uid, gid).step("take the guest's user id")?;
    sys::set_dumpable().step("let the guest read its own /proc entries")
}

pub(crate) fn limit_resources(limits: Option<&Rlimits>) -> Result<(), StepError> {
    let Some(limits) = limits else { return Ok(()) };
    let mut wanted = vec![
        (libc::RLIMIT_CORE, 0),
        (libc::RLIMIT_FSIZE, limits.file_size),
        (libc::RLIMIT_NOFILE, limits.open_files),
        (libc::RLIMIT_MEMLOCK, 64 * 1024),
        (libc::RLIMIT_MSGQUEUE, 0),
        (libc::RLIMIT_SIGPENDING, shares::PENDING_SIGNALS),
        (libc::RLIMIT_NICE, 0),
        (libc::RLIMIT_RTPRIO, 0),
    ];
    wanted.extend(limits.processes.map(|count| (libc::RLIMIT_NPROC, count)));
    wanted.extend(limits.cpu_seconds.map(|seconds| (libc::RLIMIT_CPU, seconds)));
    wanted.extend(limits.data.map(|bytes| (libc::RLIMIT_DATA, bytes)));
    for (resource, value) in wanted {
        sys::set_rlimit(resource, value).step("set the resource limits")?;
    }
    Ok(())
}

/// Moves the calling process into the cgroups whose `cgroup.procs` files are given.
pub(crate) fn join_control_groups(groups: &[OwnedFd]) -> Result<(), StepError> {
    for group in groups {
        let copy = group.try_clone().step("join the control group")?;
        File::from(copy).write_all(b"0").step("join the control group")?;
    }
    Ok(())
}

/// Number of a guest's status pipe during set-up.
pub(crate) const STATUS_FD: RawFd = 4;
/// Number of a session's socket for fork requests.
pub(crate) const SESSION_FD: RawFd = 5;

/// The initial file descriptors of a guest.
#[derive(Debug)]
pub(crate) struct GuestDescriptors {
    /// 0, 1 and 2.
    pub(crate) standard: [OwnedFd; 3],
    /// 3: the control channel, which delivers the job.
    pub(crate) control: OwnedFd,
    /// 4, closed on exec: the status pipe of the set-up.
    pub(crate) status: OwnedFd,
    /// 5, closed on exec: a session's socket for fork requests, or the changes of a root for one of the init's operations.
    pub(crate) session: Option<OwnedFd>,
}

impl GuestDescriptors {
    /// Moves the file descriptors to their numbers. Returns the status pipe.
    pub(crate) fn arrange(self) -> Result<OwnedFd, StepError> {
        const STEP: &str = "arrange the descriptors";
        let above = |fd: &OwnedFd| sys::dup_above(fd.as_fd(), 32).step(STEP);
        // First out of the way, then down: their current numbers may be each other's targets.
        let raised: Vec<OwnedFd> = self
            .standard
            .iter()
            .chain([&self.control, &self.status])
            .chain(&self.session)
            .map(above)
            .collect::<Result<_, _>>()?;
        drop(self);
        for (number, fd) in (0..).zip(&raised) {
            let place = if number < STATUS_FD { sys::dup2 } else { sys::place };
            place(fd.as_fd(), number).step(STEP)?;
        }
        let status = sys::inherited(STATUS_FD).step(STEP)?;
        Ok(status)
    }
}

/// A report on a status pipe: one JSON line, or two if exec failed after all.
pub(crate) type SetupReport = Result<Applied, (String, i32)>;

/// Writes a set-up report.
pub(crate) fn report(status: BorrowedFd<'_>, outcome: &Result<Applied, StepError>) {
    let message: SetupReport = match outcome {
        Ok(applied) => Ok(*applied),
        Err(error) => Err((error.step.to_owned(), error.errno())),
    };
    if let (Ok(mut line), Ok(copy)) = (serde_json::to_vec(&message), status.try_clone_to_owned()) {
        line.push(b'\n');
        // Fails if the parent has exited.
        let _ = File::from(copy).write_all(&line);
    }
}

/// Reads a set-up report to its end; `None` if the process died without one.
pub(crate) fn read_report(status: OwnedFd) -> Option<SetupReport> {
    let mut text = String::new();
    io::Read::read_to_string(&mut File::from(status), &mut text).ok()?;
    text.lines()
        .last()
        .and_then(|line| serde_json::from_str(line).ok())
}

/// Converts the report of a guest's set-up to a result.
pub(crate) fn setup_result(report: Option<SetupReport>) -> Result<Applied, StepError> {
    match report {
        Some(Ok(applied)) => Ok(applied),
        Some(Err((step, errno))) => Err(remote_error(step, errno)),
        None => Err(silence()),
    }
}
