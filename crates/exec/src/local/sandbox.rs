//! Cells of sandboxes. Their init starts programs at the server's request.

use std::borrow::Cow;
use std::os::fd::AsFd;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use ringfence_cgroup::Freezer;
use ringfence_policy::{
    Account, EgressFacts, EgressPolicy, EnvName, Image, Isolation, Language, Limits, Mount, Network, Request,
    ResourceLimits, Scope,
};
use tokio::io::AsyncReadExt;
use tokio::net::unix::pipe;

use super::Local;
use super::error::Error;
use super::guest::Guest;
use super::launcher_state::{LauncherState, clear_up};
use super::launchers::Kind;
use super::layout;
use super::network::{self, Exit};
use super::notice;
use super::result::{enforced, isolation};
use super::settings::Fence;
use crate::filter::{BOX, BOX_NETWORK};
use crate::processors;

/// Maximum length of an init's last words, in bytes.
const MAX_REPORT: u64 = 1024;

/// Time for all processes of a sandbox to stop. One that waits for a disk stops only then.
const FREEZING: Duration = Duration::from_secs(5);
/// Poll interval of the freezer.
const POLL: Duration = Duration::from_millis(1);

/// A sandbox to open.
#[derive(Debug, Clone, PartialEq)]
pub struct SandboxRequest {
    /// Owner of the sandbox. Sandboxes of different owners share no launcher.
    pub scope: Scope,
    /// Limits of all its programs together; the timeout is not used.
    pub limits: Limits,
    pub network: Network,
    /// Default environment of its programs, beside the fence's own variables.
    pub env: Vec<(EnvName, String)>,
    /// Host paths that its programs see.
    pub mounts: Vec<Mount>,
    /// User and home directory of the programs.
    pub account: Account,
    /// Image that replaces the host's files.
    pub image: Option<Image>,
}

/// A cell whose init speaks the protocol of [`ringfence_jail::init`] on two pipes.
///
/// Dropping it leaves the cell running; [`SandboxCell::close`] ends it.
#[derive(Debug)]
pub struct SandboxCell {
    guest: Guest,
    served: Arc<LauncherState>,
    exit: Option<Exit>,
    /// Variables by which programs find the proxy, unless the cell's environment has them.
    proxy_variables: Vec<(EnvName, String)>,
    /// Layers that confine its programs.
    pub isolation: Isolation,
    /// Limits that hold.
    pub limits: ResourceLimits,
    /// Remarks about layers that this machine lacks.
    pub warnings: Vec<String>,
}

/// A sandbox's programs have no sockets, so that no host can be opened to them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the sandbox's programs have no sockets")]
pub struct NoSockets;

/// Resource usage of a sandbox since its creation.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct SandboxUsage {
    /// Processor time of all its processes, in seconds.
    pub cpu_seconds: Option<f64>,
    /// Largest memory use so far, in bytes.
    pub peak_memory_bytes: Option<u64>,
    /// Memory in use now, in bytes.
    pub memory_bytes: Option<u64>,
    /// Number of processes and threads.
    pub pids: Option<u64>,
    /// Bytes of all its files, in whole pages.
    pub disk_bytes: Option<u64>,
    /// Number of times that the kernel killed a process for lack of memory.
    pub memory_kills: u64,
}

impl Local {
    /// Opens a cell for a sandbox. Returns it with the streams of its init: reports, requests.
    ///
    /// # Errors
    /// If namespaces are forbidden, or the fence cannot be set up.
    pub async fn open_sandbox(
        &self,
        sandbox: &SandboxRequest,
        fence: Fence,
    ) -> Result<(SandboxCell, pipe::Receiver, pipe::Sender), Error> {
        let mut request = Request {
            scope: sandbox.scope.clone(),
            limits: sandbox.limits,
            network: sandbox.network.clone(),
            env: sandbox.env.clone(),
            mounts: sandbox.mounts.clone(),
            image: sandbox.image.clone(),
            // Programs see the files of the Python that runs have.
            ..Request::new(Language::Python, "")
        };
        if request.image.is_none() {
            self.add_python_to_path(&mut request.env, &request.mounts);
        }
        network::check(&request, fence)?;
        processors::check(request.limits.cpus)?;
        // A proxy that leads nowhere would be in the way from program to program.
        let (equipped, proxy_variables) = match request.network == Network::loopback() {
            true => (Cow::Borrowed(&request), network::variables(&request)),
            false => (network::equipped(&request), Vec::new()),
        };
        let account = sandbox.account;
        let kind = Kind { fence, account };
        let served = self
            .launchers
            .serve(&equipped, kind, &self.settings, &self.groups)
            .await?;
        let mut guest = match served.sandbox(&equipped).await {
            Ok(guest) => guest,
            Err(error) => {
                clear_up(served, None).await;
                return Err(error);
            }
        };
        let exit = match self.outlet(&request, &mut guest) {
            Ok(exit) => exit,
            Err(error) => {
                clear_up(served, Some(guest)).await;
                return Err(error);
            }
        };
        let Some(requests) = guest.stdin.take() else {
            clear_up(served, Some(guest)).await;
            return Err(Error::LauncherGone);
        };
        let reports = guest.stdout.as_fd().try_clone_to_owned();
        let reports = reports.and_then(pipe::Receiver::from_owned_fd);
        let reports = match reports {
            Ok(reports) => reports,
            Err(error) => {
                clear_up(served, Some(guest)).await;
                return Err(Error::Pipes(error));
            }
        };
        let isolation = self.isolation_of(sandbox, &guest);
        let mut warnings = served.warnings();
        warnings.extend(notice::limits_gap(guest.limit_scope, &request.limits, true));
        warnings.extend(notice::landlock_gap(guest.applied));
        let cell = SandboxCell {
            limits: enforced(request.limits.into(), guest.limit_scope),
            guest,
            served,
            exit,
            proxy_variables,
            isolation,
            warnings,
        };
        Ok((cell, reports, requests))
    }
}

impl Local {
    /// Returns the layers that confine the programs of a sandbox.
    fn isolation_of(&self, sandbox: &SandboxRequest, guest: &Guest) -> Isolation {
        let groups = guest.group.as_ref().and(self.groups.get());
        let known = isolation(guest.applied, &sandbox.network);
        let seccomp = match (sandbox.account.is_root(), &sandbox.network) {
            (false, _) => known.seccomp,
            (true, Network::None) => known.seccomp.map(|_| BOX.to_owned()),
            (true, Network::Allowlist(_)) => known.seccomp.map(|_| BOX_NETWORK.to_owned()),
        };
        Isolation {
            seccomp,
            cgroup: groups.map(|groups| groups.version().to_owned()),
            ..known
        }
    }

    /// Has programs find the Python that runs have by its name, as in an activated virtual environment.
    fn add_python_to_path(&self, env: &mut Vec<(EnvName, String)>, mounts: &[Mount]) {
        let python = self.interpreter(Language::Python);
        let directory = python.as_deref().and_then(Path::parent).and_then(Path::to_str);
        let is_missing = |directory: &&str| !layout::PATH.split(':').any(|known| known == *directory);
        if let (Some(directory), Ok(name)) = (directory.filter(is_missing), "PATH".parse::<EnvName>())
            && !env.iter().any(|(known, _)| *known == name)
        {
            let path = format!("{directory}:{}", layout::PATH);
            env.push((name, layout::with_programs_of_packages(&path, mounts)));
        }
    }
}

/// An error of pausing or resuming a sandbox.
#[derive(Debug, thiserror::Error)]
pub enum PauseError {
    /// No freezer.
    #[error(
        "this machine gives the server no control group with a freezer (cgroup v1 `freezer`, or v2 `cgroup.freeze`)"
    )]
    NoFreezer,
    /// Some processes did not stop in time, and all continue.
    #[error("not all processes of the sandbox stopped within {} s", FREEZING.as_secs())]
    Unstoppable,
    /// The kernel refused.
    #[error("the control group of the sandbox: {0}")]
    Group(#[from] ringfence_cgroup::Error),
}

/// The processes of a sandbox, all of which a freezer stops and continues.
#[derive(Debug, Clone)]
pub struct PauseControl(Option<Freezer>);

impl PauseControl {
    /// Returns `true` if there is a freezer.
    pub const fn is_supported(&self) -> bool {
        self.0.is_some()
    }

    /// Stops all processes: they use no processor until [`PauseControl::resume`], and keep their memory. If
    /// this fails or is dropped before its end, they continue.
    ///
    /// # Errors
    /// If there is no freezer, or they do not stop in time.
    pub async fn pause(&self) -> Result<(), PauseError> {
        let freezer = self.0.as_ref().ok_or(PauseError::NoFreezer)?;
        let freezing = ThawOnDrop(Some(freezer));
        freezer.freeze()?;
        let deadline = Instant::now() + FREEZING;
        while !freezer.is_frozen()? {
            if Instant::now() >= deadline {
                return Err(PauseError::Unstoppable);
            }
            tokio::time::sleep(POLL).await;
        }
        freezing.done();
        Ok(())
    }

    /// Continues all processes.
    ///
    /// # Errors
    /// If there is no freezer, or the kernel refuses.
    pub fn resume(&self) -> Result<(), PauseError> {
        let freezer = self.0.as_ref().ok_or(PauseError::NoFreezer)?;
        Ok(freezer.thaw()?)
    }
}

/// Thaws a group again unless all of it froze.
struct ThawOnDrop<'a>(Option<&'a Freezer>);

impl ThawOnDrop<'_> {
    fn done(mut self) {
        self.0 = None;
    }
}

impl Drop for ThawOnDrop<'_> {
    fn drop(&mut self) {
        if let Some(freezer) = self.0 {
            // Fails if the group is gone, with its processes.
            let _ = freezer.thaw();
        }
    }
}

impl SandboxCell {
    /// Returns the control that pauses and resumes its processes.
    pub fn pause_control(&self) -> PauseControl {
        PauseControl(self.guest.group.as_ref().and_then(|group| group.freezer()))
    }

    /// Returns the number of bytes that its programs sent to hosts and received from them so far.
    pub fn egress_bytes(&self) -> u64 {
        self.exit.as_ref().map_or(0, Exit::bytes)
    }

    /// Replaces the hosts that its programs may reach. Connections that the new policy denies are closed before this returns.
    ///
    /// # Errors
    /// If the cell was opened without a network: its programs have no sockets.
    pub fn replace_egress(&self, policy: &EgressPolicy) -> Result<(), NoSockets> {
        self.exit.as_ref().ok_or(NoSockets)?.replace(policy);
        Ok(())
    }

    /// Returns the variables by which programs find the proxy, if the cell was opened for no host.
    pub fn proxy_variables(&self) -> &[(EnvName, String)] {
        &self.proxy_variables
    }

    /// Returns the usage of all its processes together; that of files alone without a control group.
    pub fn usage(&self) -> SandboxUsage {
        let disk_bytes = self.guest.output.used_bytes();
        let Some(group) = &self.guest.group else {
            return SandboxUsage {
                disk_bytes,
                ..SandboxUsage::default()
            };
        };
        let usage = group.usage();
        SandboxUsage {
            cpu_seconds: usage.cpu_seconds,
            peak_memory_bytes: usage.peak_memory_bytes,
            memory_bytes: group.memory_gauge().read(),
            // The init is none of its programs.
            pids: group
                .task_gauge()
                .and_then(|gauge| gauge.read().ok())
                .map(|count| count.saturating_sub(1)),
            disk_bytes,
            memory_kills: usage.oom_kills,
        }
    }

    /// Waits until the cell's init has exited, and everything with it.
    pub async fn ended(&mut self) {
        if !self.guest.exited.is_terminated() {
            // A closed channel means that the launcher has died, and all cells before it.
            let _ = (&mut self.guest.exited).await;
        }
    }

    /// Ends the cell with all its processes, and removes its files. Returns the attempts to reach hosts, if
    /// it had a network, and the last words of its init.
    pub async fn close(self) -> (Option<EgressFacts>, String) {
        let Self {
            mut guest,
            served,
            exit,
            ..
        } = self;
        // A frozen process does not die in version 1. These get SIGKILL before they can go on.
        if let Some(freezer) = guest.group.as_ref().and_then(|group| group.freezer()) {
            // Fails only where the group is gone, with its processes.
            let _ = freezer.kill_and_thaw();
        }
        guest.end().await;
        let mut words = String::new();
        // Nothing of the cell is left that could write more.
        let _ = (&mut guest.stderr)
            .take(MAX_REPORT)
            .read_to_string(&mut words)
            .await;
        let facts = match exit {
            Some(exit) => Some(exit.close().await),
            None => None,
        };
        clear_up(served, Some(guest)).await;
        (facts, words)
    }
}
