//! The protocol between the server and a launcher: one JSON message per packet, with file descriptors
//! attached.
//!
//! Both ends are the same binary, so the format may change freely. Nothing here comes from a guest.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use crate::seccomp::{Exits, Surface};

/// Maximum length of a message. Code travels in file descriptors, so messages are small.
pub const MAX_MESSAGE: usize = 128 * 1024;

/// User and group id of every guest, as seen inside.
pub const GUEST_ID: u32 = 1000;

/// The first message to a launcher: its kind.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub enum LauncherSpec {
    /// Guests live in cells: own namespaces over a root file system built from the template.
    Namespaced(Template),
    /// No namespaces: guests live in the host's, confined by Landlock, seccomp and rlimits.
    Flat,
    /// No guests: tests each layer, reports the results, and exits.
    Probe,
}

/// The read-only root file system that all cells of a launcher share.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Template {
    /// Host ids that inner ids map to. `None`: only the own id, as for an ordinary user.
    pub host_ids: Option<HostIds>,
    /// Empty directories, which cells mount on.
    pub directories: Vec<PathBuf>,
    /// Bind mounts of host files and directories.
    pub binds: Vec<Bind>,
    /// Small host files copied to the same path inside, if they exist.
    pub copies: Vec<PathBuf>,
    /// Small generated files.
    pub files: Vec<TemplateFile>,
    /// Symbolic links: (link, target).
    pub links: Vec<(PathBuf, PathBuf)>,
    /// Set for cells of sandboxes whose programs may change the root: each gets an overlay of its own above it.
    pub writable_root: Option<WritableRoot>,
}

/// The lower layers of a root that programs may change. Its only cell has the ids of [`Template::host_ids`] from
/// [`GUEST_ID`] on: the first is root inside.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct WritableRoot {
    /// Host directory with the files of an image, all of one owner. They lie below the template's own.
    pub image: Option<PathBuf>,
}

/// A range of host ids for the outer user namespace.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct HostIds {
    /// Host id of the inner root.
    pub first: u32,
    /// Number of ids.
    pub count: u32,
}

/// A bind mount in the template.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Bind {
    /// Path on the host.
    pub host: PathBuf,
    pub guest: PathBuf,
    /// Set if the guest may write.
    pub writable: bool,
    /// Set if the owner's files appear as the guest's own (an id-mapped mount).
    pub guest_owns: bool,
    /// Set if the launcher may continue without it if it does not exist.
    pub optional: bool,
    /// Set for an entry that is mounted over itself, be it a symbolic link: a mount point is neither renamed
    /// nor removed.
    pub itself: bool,
}

/// A small generated file in the template.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TemplateFile {
    /// Absolute path inside.
    pub path: PathBuf,
    pub content: String,
}

/// A command from the server to a launcher.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub enum Command {
    /// Starts a warm interpreter to fork guests from. It replaces the previous one once it is warm. File
    /// descriptor: the extension library.
    Zygote {
        /// The interpreter.
        program: Program,
        /// First message on its socket, for scripts too long for an argument.
        script: Option<String>,
    },
    /// Creates a cell and starts a guest in it. File descriptors: stdin, stdout, stderr, control, the code if
    /// there is any, cgroups.
    Spawn(Box<Spawn>),
    /// Starts a guest in the cell that [`Event::CellReady`] announced.
    Start {
        /// The id given in [`Command::Spawn`].
        id: u64,
    },
    /// Kills a guest with everything in its cell. Its forks, in cells of their own, survive.
    Kill {
        /// The id given in [`Command::Spawn`].
        id: u64,
    },
    /// Sends SIGINT to a guest's first process, and to no other. Answered by [`Event::Interrupted`].
    Interrupt {
        /// The id given in [`Command::Spawn`].
        id: u64,
    },
}

/// A program to execute.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Program {
    /// Path of the executable, as seen by the new process.
    pub executable: PathBuf,
    /// Arguments, including the zeroth.
    pub arguments: Vec<String>,
    /// The complete environment.
    pub environment: Vec<(String, String)>,
    /// Set if the program reads its job from file descriptor 3, which is closed otherwise.
    pub reads_job: bool,
}

/// A guest to start in a cell of its own.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Spawn {
    /// An id chosen by the server and never reused.
    pub id: u64,
    /// The kind of guest.
    pub guest: Guest,
    /// File name below `/code` for the source code, whose file descriptor is then attached.
    pub code: Option<String>,
    pub confinement: Confinement,
    /// Total bytes in the writable directories; 0 if the working directory lies on the host.
    pub disk_bytes: u64,
    /// Port on the cell's loopback where the server listens. `None`: the loopback stays down.
    #[serde(default)]
    pub listen: Option<u16>,
    /// Set if the server wants the cell before the guest is in it: the guest waits for [`Command::Start`]. Without a
    /// cell it does not.
    #[serde(default)]
    pub waits: bool,
}

/// The kind of a guest.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Guest {
    /// An executed program.
    Exec(Program),
    /// A fork of the zygote.
    Fork,
    /// A fork of the zygote, as a session that can be forked itself. Its surface must be
    /// [`crate::seccomp::Forks::IntoCells`].
    Session {
        /// Directories of the cell that are empty for this guest. Its forks see them.
        hidden: Vec<PathBuf>,
    },
    /// A sandbox: its cell's first process is an [`crate::init`], which starts programs at the server's request.
    Sandbox {
        /// Default environment of its programs.
        environment: Vec<(String, String)>,
        /// Another mount point of the workspace; one of [`Template::directories`].
        home: Option<PathBuf>,
    },
    /// A fork of a session, or of a fork of one. It keeps the session's seccomp filter and Landlock rules.
    ///
    /// The interpreter there must be told to call `ringfence_fork`, once for each of these commands, whether
    /// it succeeds or not. One fork of a session can be pending at a time.
    ForkOf {
        /// Id of the session.
        of: u64,
    },
}

impl Guest {
    /// Returns the id of the session that this is a fork of.
    pub(crate) fn forked_from(&self) -> Option<u64> {
        match self {
            Self::ForkOf { of } => Some(*of),
            Self::Exec(_) | Self::Fork | Self::Session { .. } | Self::Sandbox { .. } => None,
        }
    }

    /// Returns `true` if the guest's control group needs a freezer: sandboxes alone are paused.
    pub const fn needs_freezer(&self) -> bool {
        match self {
            Self::Sandbox { .. } => true,
            Self::Exec(_) | Self::Fork | Self::Session { .. } | Self::ForkOf { .. } => false,
        }
    }
}

/// A guest's confinement, apart from namespaces and cgroups.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Confinement {
    pub working_directory: PathBuf,
    /// User and group id to take; `None` keeps the caller's.
    pub ids: Option<(u32, u32)>,
    /// Resource limits; `None` keeps the inherited ones.
    pub rlimits: Option<Rlimits>,
    /// Handling of the layers below that the kernel lacks.
    pub missing: Missing,
    /// File-system rules; `None`: no Landlock, no seccomp, no dropping of privileges (`--unfenced`).
    pub landlock: Option<LandlockRules>,
    /// Parameters of the seccomp filter.
    pub surface: Surface,
}

impl Confinement {
    /// Returns `true` if the guest's set-up sends an [`crate::ExitListener`]: without a fence there is no
    /// filter.
    pub fn announces_exit(&self) -> bool {
        self.landlock.is_some() && self.surface.exits == Exits::Announced
    }
}

/// Handling of a layer that the kernel lacks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Missing {
    /// Fail.
    Refuse,
    /// Continue, and report it.
    Report,
}

/// Resource limits; `None` leaves one unchanged.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Rlimits {
    /// Largest file.
    pub file_size: u64,
    /// Open file descriptors.
    pub open_files: u64,
    /// Processes and threads of the user; only without a cgroup that counts them.
    pub processes: Option<u64>,
    /// Private writable memory of one process; only without a cgroup that counts it.
    pub data: Option<u64>,
    /// Processor seconds of one process; only without a cgroup that counts them.
    pub cpu_seconds: Option<u64>,
}

/// The paths that a guest may access; everything else is denied.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct LandlockRules {
    /// Read and execute, beneath each.
    pub readable: Vec<PathBuf>,
    /// Everything except creating devices, beneath each.
    pub writable: Vec<PathBuf>,
    /// Like `writable`, for paths whose last component another program may replace by a symbolic link: it is
    /// not followed.
    #[serde(default)]
    pub entries: Vec<PathBuf>,
    /// Device files to read and write.
    pub devices: Vec<PathBuf>,
    /// TCP ports to use, if the kernel governs that (ABI 4).
    #[serde(default)]
    pub tcp: TcpPorts,
}

/// The TCP ports that a guest may use, in a network namespace that is its cell's alone.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum TcpPorts {
    #[default]
    None,
    /// Connects to this one.
    Connect(u16),
    /// Listens on all, and connects to them.
    All,
}

/// An event from a launcher to the server.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub enum Event {
    /// The launcher is up.
    Ready,
    /// A zygote, current or upcoming, reports progress while it warms up. This crate does not interpret the
    /// text.
    ZygoteReports {
        /// At most 1 KiB.
        text: String,
    },
    /// The zygote has warmed up.
    ZygoteReady,
    /// A zygote, current or upcoming, exited by itself.
    ZygoteGone,
    /// A cell is ready, whose guest waits for [`Command::Start`]. File descriptor: its output directory.
    CellReady {
        /// Id of the guest.
        id: u64,
    },
    /// A guest runs. File descriptors if it has a cell: its output directory, and the listening socket if
    /// requested.
    Spawned {
        /// Id of the guest.
        id: u64,
        /// The layers applied.
        applied: Applied,
    },
    /// The launcher or a guest could not be set up; `id` is 0 for the launcher itself.
    Failed {
        /// Id of the guest.
        id: u64,
        /// The failed step.
        step: String,
        /// The error number.
        errno: i32,
    },
    /// A guest's first process exited; the rest of its cell is being killed.
    Exited {
        /// Id of the guest.
        id: u64,
        /// Exit status, or the signal as a negative number.
        status: i32,
        /// Processor time of the process and its reaped children.
        cpu_micros: u64,
        /// Largest resident set of the process.
        max_rss: u64,
    },
    /// SIGINT is on its way to a guest's first process: none will come later for this command.
    Interrupted {
        /// Id of the guest.
        id: u64,
    },
    /// All processes of a guest's cell have been reaped. The cell of a session contains those of its forks,
    /// so this follows the exit of the last fork.
    Gone {
        /// Id of the guest.
        id: u64,
    },
}

/// The layers applied to a guest.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Applied {
    /// Own user, pid, mount, network, IPC, UTS and cgroup namespaces.
    pub namespaces: bool,
    /// Own time namespace.
    pub time_namespace: bool,
    /// Landlock ABI in force; 0 for none.
    pub landlock_abi: u32,
    /// Set if the seccomp filter is loaded.
    pub seccomp: bool,
    /// Set if `no_new_privs` is set.
    pub no_new_privs: bool,
    /// Set if all capabilities are dropped.
    pub capabilities_dropped: bool,
}
