//! A guest with its pipes, control group and directories: start and cleanup.

use std::io::{self, Write};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream as StdUnixStream;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use ringfence_cgroup::{Group, GroupLimits, Hierarchy};
use ringfence_jail::protocol::{Applied, Command, Confinement, Guest as Origin, Spawn};
use ringfence_jail::{ExitListener, STEPS_OF_ZYGOTE, is_gone};
use ringfence_policy::Limits;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::UnixStream;
use tokio::net::unix::pipe;
use tokio::sync::oneshot;

use super::error::Error;
use super::exit::ExitWatch;
use super::initial_files::InitialFiles;
use super::launcher::{Exit, LauncherClient, Ticket};
use super::output_files;
use super::workdir::Workdir;
use crate::owner::{owner_is_dead, part_name};

/// The specification of a guest.
#[derive(Debug)]
pub(super) struct Plan {
    /// Exec, or a fork of the zygote.
    pub(super) origin: Origin,
    /// File name and text of the program, for languages that read it from a file.
    pub(super) code: Option<(String, String)>,
    pub(super) confinement: Confinement,
    pub(super) limits: Limits,
    /// Control group, if it was created already.
    pub(super) group: Option<Group>,
    /// Port on the cell's loopback for our listener.
    pub(super) listen: Option<u16>,
    /// Host directory with its writable directories, if it has no cell.
    pub(super) directory: Option<Workdir>,
    /// Message for its control descriptor; empty for a worker that waits for a job.
    pub(super) job: Vec<u8>,
    /// Files that it finds when it begins.
    pub(super) initial_files: Option<Arc<InitialFiles>>,
}

/// The processes over which the limits of memory and processor time are enforced.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum LimitScope {
    /// For all processes of the guest together.
    Together,
    /// For all together, but processor time is unlimited.
    TogetherButProcessor,
    /// For each process separately.
    EachProcess,
}

/// A guest that runs, or waits for its job.
#[derive(Debug)]
pub(super) struct Guest {
    pub(super) id: u64,
    pub(super) launcher: Arc<LauncherClient>,
    pub(super) stdin: Option<pipe::Sender>,
    pub(super) stdout: pipe::Receiver,
    pub(super) stderr: pipe::Receiver,
    pub(super) control: UnixStream,
    pub(super) exited: oneshot::Receiver<Exit>,
    /// Announcement of the guest's exit. Kept until the guest is dead, because its exit waits for an answer.
    pub(super) exit: Option<ExitWatch>,
    pub(super) applied: Applied,
    pub(super) group: Option<Group>,
    pub(super) limit_scope: LimitScope,
    pub(super) output: Output,
    /// Listening socket of the egress proxy. `None`: the guest has no network.
    pub(super) listener: Option<OwnedFd>,
    /// Unsent rest of the job.
    pub(super) job: Vec<u8>,
    /// Resolves when no process of the guest is left. `None` once it has.
    gone: Option<oneshot::Receiver<()>>,
}

/// Time that killed processes have until they are gone.
const DESCENDANTS: Duration = Duration::from_secs(10);

/// The parts of a guest that the supervisor borrows, without the control descriptor.
#[derive(Debug)]
pub(super) struct GuestParts<'a> {
    pub(super) id: u64,
    pub(super) launcher: &'a LauncherClient,
    pub(super) exited: &'a mut oneshot::Receiver<Exit>,
    pub(super) exit: Option<&'a ExitWatch>,
    pub(super) stdout: &'a mut pipe::Receiver,
    pub(super) stderr: &'a mut pipe::Receiver,
    pub(super) output: &'a Output,
}

/// The guest's output directory.
#[derive(Debug)]
pub(super) enum Output {
    /// File descriptor of a directory in its cell, which exists as long as this is open.
    Handle(OwnedFd),
    /// Host directory, removed with the guest's other directories.
    Directory(Workdir),
}

fn output_of(directory: &Workdir) -> io::Result<OwnedFd> {
    output_files::open_directory(&directory.path().join("output"))
}

impl Output {
    /// Opens the directory.
    pub(super) fn open(&self) -> io::Result<OwnedFd> {
        match self {
            Self::Handle(handle) => handle.try_clone(),
            Self::Directory(directory) => output_of(directory),
        }
    }

    /// Returns `true` if the directory is certainly empty.
    pub(super) fn is_empty(&self) -> bool {
        matches!(self, Self::Handle(handle) if output_files::is_empty_tmpfs(handle))
    }

    /// Returns the used bytes of the cell's file system, which has all writable directories.
    pub(super) fn used_bytes(&self) -> Option<u64> {
        match self {
            Self::Handle(handle) => output_files::used_bytes(handle),
            Self::Directory(_) => None,
        }
    }

    /// Removes the directory with its contents, on a blocking thread because that may take long.
    async fn remove(self) {
        let _ = tokio::task::spawn_blocking(move || drop(self)).await;
    }
}

/// The control groups of this process's guests.
#[derive(Debug)]
pub(super) struct Groups {
    hierarchy: Hierarchy,
    owner: String,
    next: AtomicU64,
}

/// The control group hierarchy, detected on first use. Without one the limits are rlimits, which the result
/// reports.
#[derive(Debug, Default)]
pub(super) struct Grouping(OnceLock<Option<Arc<Groups>>>);

impl Grouping {
    /// Disables control groups without detection.
    pub(super) fn none() -> Self {
        Self(OnceLock::from(None))
    }

    /// Returns the control groups, detecting them if necessary.
    pub(super) fn get(&self) -> Option<&Arc<Groups>> {
        let look = || {
            let hierarchy = Hierarchy::detect().ok().flatten()?;
            hierarchy.sweep(&owner_is_dead);
            Some(Arc::new(Groups::new(hierarchy, part_name())))
        };
        self.0.get_or_init(look).as_ref()
    }

    /// Returns the control groups if they were detected before.
    pub(super) fn found(&self) -> Option<&Arc<Groups>> {
        self.0.get().and_then(Option::as_ref)
    }
}

impl Groups {
    fn new(hierarchy: Hierarchy, owner: String) -> Self {
        Self {
            hierarchy,
            owner,
            next: AtomicU64::new(1),
        }
    }

    pub(super) fn version(&self) -> &'static str {
        match self.hierarchy.version() {
            ringfence_cgroup::Version::V1 => "v1",
            ringfence_cgroup::Version::V2 => "v2",
        }
    }

    /// Returns the extent of the limits of a guest in one of these groups.
    pub(super) fn limit_scope(&self) -> LimitScope {
        match self.hierarchy.limits_cpu() {
            true => LimitScope::Together,
            false => LimitScope::TogetherButProcessor,
        }
    }

    /// Removes the parent directory of all groups of this process.
    pub(super) fn remove_owner(&self) {
        let owner = self.owner.trim_start_matches("ringfence-");
        self.hierarchy.sweep(&|other| other == owner);
    }

    /// Creates the group of a guest.
    pub(super) fn create(&self, limits: &Limits) -> Result<Group, Error> {
        self.hierarchy
            .group(&self.next_name(), group_limits(limits))
            .map_err(Error::ControlGroup)
    }

    /// Creates the group of a sandbox, which can be paused.
    fn create_freezable(&self, limits: &Limits) -> Result<Group, Error> {
        self.hierarchy
            .freezable_group(&self.next_name(), group_limits(limits))
            .map_err(Error::ControlGroup)
    }

    fn next_name(&self) -> String {
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        format!("{}/{number}", self.owner)
    }
}

/// Converts limits for a control group.
pub(super) fn group_limits(limits: &Limits) -> GroupLimits {
    GroupLimits {
        memory_bytes: limits.memory.0,
        // The cell's init counts too.
        pids: limits.pids.get() + 1,
        cpus: limits.cpus.get(),
    }
}

/// A guest that was requested from its launcher.
#[derive(Debug)]
pub(super) struct PendingGuest {
    launcher: Arc<LauncherClient>,
    ticket: Ticket,
    stdin: pipe::Sender,
    stdout: pipe::Receiver,
    stderr: pipe::Receiver,
    control: UnixStream,
    announces_exit: bool,
    group: Option<Group>,
    limit_scope: LimitScope,
    directory: Option<Workdir>,
    job: Vec<u8>,
    /// Files that it finds when it begins.
    initial_files: Option<Arc<InitialFiles>>,
}

/// Checks that limits can be enforced for all processes of a guest together.
///
/// # Errors
/// If there are no control groups, or they do not enforce all limits.
pub(super) fn check_groups(groups: Option<&Arc<Groups>>) -> Result<(), Error> {
    let missing = match groups.map(|groups| groups.limit_scope()) {
        Some(LimitScope::Together) => return Ok(()),
        Some(LimitScope::TogetherButProcessor) => "processor time",
        Some(LimitScope::EachProcess) | None => "memory and processor time",
    };
    Err(Error::NoControlGroups { missing })
}

/// Starts a guest and waits until it runs.
pub(super) async fn start(
    launcher: &Arc<LauncherClient>,
    groups: Option<&Groups>,
    plan: Plan,
) -> Result<Guest, Error> {
    begin(launcher, groups, plan).await?.running().await
}

/// Returns the control group of a guest: the one that was made for it, or a new one.
fn plan_group(plan: &mut Plan, groups: Option<&Groups>) -> Result<Option<Group>, Error> {
    let group = match (plan.group.take(), groups) {
        (None, Some(groups)) => Some(match plan.origin.needs_freezer() {
            true => groups.create_freezable(&plan.limits)?,
            false => groups.create(&plan.limits)?,
        }),
        (group, _) => group,
    };
    if let Some(group) = &group
        && plan.confinement.surface.sockets.are_internet()
    {
        let limit = plan.limits.memory.0 / 4;
        group.limit_socket_buffers(limit).map_err(Error::ControlGroup)?;
    }
    Ok(group)
}

/// Requests a guest from the launcher.
pub(super) async fn begin(
    launcher: &Arc<LauncherClient>,
    groups: Option<&Groups>,
    mut plan: Plan,
) -> Result<PendingGuest, Error> {
    let group = plan_group(&mut plan, groups)?;
    let (stdin_read, stdin_write) = ringfence_jail::output_pipe().map_err(Error::Pipes)?;
    let (stdout_read, stdout_write) = ringfence_jail::output_pipe().map_err(Error::Pipes)?;
    let (stderr_read, stderr_write) = ringfence_jail::output_pipe().map_err(Error::Pipes)?;
    let (control, control_theirs) = ringfence_jail::control_pair().map_err(Error::Pipes)?;
    let code = match &plan.code {
        Some((_, text)) => Some(ringfence_jail::code_file(text.as_bytes()).map_err(Error::Pipes)?),
        None => None,
    };
    let announces_exit = plan.confinement.announces_exit();
    if announces_exit {
        ExitListener::expect(control.as_fd()).map_err(Error::Pipes)?;
    }
    // Before the guest exists, so that it finds the job there. The rest is sent while it runs.
    let control = StdUnixStream::from(control);
    let sent = (&control).write(&plan.job).unwrap_or(0);
    let mut job = plan.job;
    job.drain(..sent);
    let mut fds: Vec<BorrowedFd<'_>> = [&stdin_read, &stdout_write, &stderr_write, &control_theirs]
        .map(AsFd::as_fd)
        .into();
    fds.extend(code.as_ref().map(AsFd::as_fd));
    fds.extend(group.iter().flat_map(Group::procs).map(AsFd::as_fd));

    if let Some(directory) = &plan.directory
        && let Some(initial_files) = plan.initial_files.take()
    {
        initial_files.copy_to(output_of(directory)).await?;
    }
    let ticket = launcher.ticket();
    let disk_bytes = plan.directory.as_ref().map_or(plan.limits.disk.0, |_| 0);
    let spawn = Spawn {
        id: ticket.id,
        guest: plan.origin,
        code: plan.code.map(|(name, _)| name),
        confinement: plan.confinement,
        disk_bytes,
        listen: plan.listen,
        waits: plan.initial_files.is_some(),
    };
    if let Err(error) = launcher.send(&Command::Spawn(Box::new(spawn)), &fds).await {
        launcher.void(ticket.id);
        return Err(match error.kind() {
            io::ErrorKind::ArgumentListTooLong => Error::TooLong,
            _ if is_gone(&error) => {
                launcher.lose();
                Error::LauncherLost
            }
            _ => Error::Pipes(error),
        });
    }
    drop(fds);
    drop((stdin_read, stdout_write, stderr_write, control_theirs, code));
    Ok(PendingGuest {
        launcher: Arc::clone(launcher),
        ticket,
        stdin: pipe::Sender::from_owned_fd(stdin_write).map_err(Error::Pipes)?,
        stdout: pipe::Receiver::from_owned_fd(stdout_read).map_err(Error::Pipes)?,
        stderr: pipe::Receiver::from_owned_fd(stderr_read).map_err(Error::Pipes)?,
        control: UnixStream::from_std(control).map_err(Error::Pipes)?,
        announces_exit,
        group,
        limit_scope: groups.map_or(LimitScope::EachProcess, Groups::limit_scope),
        directory: plan.directory,
        job,
        initial_files: plan.initial_files,
    })
}

impl PendingGuest {
    /// Asks `original` to let itself be forked, and waits for the fork. Kills an original that takes longer
    /// than `patience`.
    pub(super) async fn forked_by(
        self,
        original: &mut Guest,
        message: &[u8],
        patience: Duration,
    ) -> Result<Guest, Error> {
        // If it has died, the launcher reports it.
        let _ = original.control.write_all(message).await;
        let forking = self.running();
        tokio::pin!(forking);
        match tokio::time::timeout(patience, &mut forking).await {
            Ok(forked) => forked,
            Err(_) => {
                // Without the original the launcher cancels the fork.
                original.launcher.kill(original.id).await;
                forking.await
            }
        }
    }

    /// Waits until the guest runs.
    pub(super) async fn running(mut self) -> Result<Guest, Error> {
        // Without a cell there is a failure, which is received below.
        if let Some(initial_files) = &self.initial_files
            && let Ok(cell) = (&mut self.ticket.cell).await
        {
            if let Err(error) = initial_files.copy_to(Ok(cell)).await {
                self.launcher.kill(self.ticket.id).await;
                return Err(error);
            }
            // If the launcher has died, that is noticed below.
            let start = Command::Start { id: self.ticket.id };
            let _ = self.launcher.send(&start, &[]).await;
        }
        let started = match (&mut self.ticket.started).await {
            Ok(Ok(started)) => started,
            Ok(Err(failure)) if !STEPS_OF_ZYGOTE.contains(&&*failure.step) || self.has_begun().await => {
                return Err(Error::from_failure(failure));
            }
            Err(_) if self.has_begun().await => return Err(Error::LauncherGone),
            Ok(Err(_)) | Err(_) => return Err(Error::LauncherLost),
        };
        let ticket = self.ticket;
        let output = match (self.directory, started.output) {
            (Some(directory), _) => Output::Directory(directory),
            (None, Some(handle)) => Output::Handle(handle),
            (None, None) => return Err(Error::LauncherGone),
        };
        // Sent before the guest was reported to run.
        let exit = match self.announces_exit {
            true => ExitWatch::receive(&self.control, self.group.as_ref()).map_err(Error::Pipes)?,
            false => None,
        };
        Ok(Guest {
            id: ticket.id,
            launcher: self.launcher,
            stdin: Some(self.stdin),
            stdout: self.stdout,
            stderr: self.stderr,
            control: self.control,
            exited: ticket.exited,
            exit,
            applied: started.applied,
            group: self.group,
            limit_scope: self.limit_scope,
            output,
            listener: started.listener,
            job: self.job,
            gone: Some(ticket.gone),
        })
    }
}

impl PendingGuest {
    /// Returns `false` if the guest's program has certainly not begun: the data sent ahead of it was not read
    /// completely, and cannot be read any more. The kernel resets a connection whose last owner leaves unread
    /// data.
    async fn has_begun(&mut self) -> bool {
        let mut rest = Vec::new();
        let ended = tokio::time::timeout(Duration::from_secs(10), self.control.read_to_end(&mut rest)).await;
        !matches!(ended, Ok(Err(error)) if error.kind() == io::ErrorKind::ConnectionReset)
    }
}

/// The remains of a guest whose launcher is being closed.
#[derive(Debug)]
pub(super) struct Remains {
    group: Option<Group>,
    output: Output,
    exit: Option<ExitWatch>,
}

impl Remains {
    /// Removes the guest's directories and group, once its processes are gone.
    pub(super) async fn clear(self) -> Result<(), Error> {
        drop(self.exit);
        self.output.remove().await;
        self.group
            .map_or(Ok(()), Group::close)
            .map_err(Error::ControlGroup)
    }
}

impl Guest {
    /// Waits until a forked guest has warmed up, and returns the byte that it sends then.
    pub(super) async fn greeted(&mut self) -> Result<u8, Error> {
        self.control.read_u8().await.map_err(|_| Error::LauncherGone)
    }

    /// Borrows the supervised parts and the control descriptor.
    pub(super) fn parts(&mut self) -> (GuestParts<'_>, &mut UnixStream) {
        let parts = GuestParts {
            id: self.id,
            launcher: &self.launcher,
            exited: &mut self.exited,
            exit: self.exit.as_ref(),
            stdout: &mut self.stdout,
            stderr: &mut self.stderr,
            output: &self.output,
        };
        (parts, &mut self.control)
    }

    /// Gives up the guest without killing it: the close of its launcher will.
    pub(super) fn leave_to_lane(self) -> Remains {
        Remains {
            group: self.group,
            output: self.output,
            exit: self.exit,
        }
    }

    /// Kills the guest's first process, and waits until it has exited.
    pub(super) async fn end(&mut self) {
        self.launcher.kill(self.id).await;
        if !self.exited.is_terminated() {
            // A closed channel means that the launcher has died, and all its guests before it.
            let _ = (&mut self.exited).await;
        }
    }

    /// Kills the remaining processes, waits until the kernel has reaped them, and removes the guest's directories and
    /// group.
    pub(super) async fn close(self) -> Result<(), Error> {
        let group = self.leave().await;
        group.map_or(Ok(()), Group::close).map_err(Error::ControlGroup)
    }

    /// Kills what the guest's first process, which has exited, left behind, and waits until it is gone. Returns `false` if it is not
    /// gone in time.
    ///
    /// The kernel kills the processes of a cell with its init. But that is a process of the same control group, which the
    /// others may keep from the processor, so each is killed by itself, too.
    pub(super) async fn end_descendants(&mut self) -> bool {
        let tasks = self.group.as_ref().and_then(Group::task_gauge);
        // The init of its cell, if it has one.
        let own = u64::from(self.applied.namespaces);
        if tasks.is_some_and(|tasks| tasks.read().is_ok_and(|left| left <= own)) {
            return true;
        }
        self.launcher.kill(self.id).await;
        if let Some(group) = &self.group {
            // What cannot be listed is killed with the init.
            drop(group.kill_all());
        }
        tokio::time::timeout(DESCENDANTS, self.gone()).await.is_ok()
    }

    /// Waits until no process is left. Cancel safe.
    async fn gone(&mut self) {
        if let Some(gone) = &mut self.gone {
            // A closed channel means that the launcher has died, and all its guests before it.
            let _ = gone.await;
            self.gone = None;
        }
    }

    /// Like [`Guest::close`], but returns the group.
    pub(super) async fn leave(mut self) -> Option<Group> {
        self.launcher.kill(self.id).await;
        self.gone().await;
        drop(self.exit);
        self.output.remove().await;
        self.group
    }
}
