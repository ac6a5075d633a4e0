//! What the engine and a launcher say to each other: one JSON message a packet, with descriptors beside it.
//!
//! Both ends are the same binary, so the format may change freely. Nothing here comes from a guest.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use crate::seccomp::Surface;

/// The largest message. Code travels in descriptors, so messages are small.
pub const MAX_MESSAGE: usize = 128 * 1024;

/// The user and group id of every guest, inside.
pub const GUEST_ID: u32 = 1000;

/// The first message to a launcher: what kind it shall be.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub enum LauncherSpec {
    /// Guests live in cells: own namespaces over a root made from the template.
    Namespaced(Template),
    /// Namespaces are not to be had: guests live in the host's, held by Landlock, seccomp and rlimits.
    Flat,
    /// No guests: it tries each layer, says what came of it, and ends.
    Probe,
}

/// The root file system that all cells of a launcher share, read-only.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Template {
    /// The host ids that the inside's ids stand for. `None`: only our own id, as for an ordinary user.
    pub host_ids: Option<HostIds>,
    /// Host files and directories that are visible inside.
    pub binds: Vec<Bind>,
    /// Small host files that are copied to the same path inside, where they exist.
    pub copies: Vec<PathBuf>,
    /// Small files made for the inside.
    pub files: Vec<TemplateFile>,
    /// Symbolic links: (link, what it points at).
    pub links: Vec<(PathBuf, PathBuf)>,
}

/// A range of host ids for the outer user namespace.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct HostIds {
    /// The host id of inside's root.
    pub first: u32,
    /// How many follow.
    pub count: u32,
}

/// One host path in the template.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Bind {
    /// Where it lies on the host.
    pub host: PathBuf,
    /// Where the guest sees it.
    pub guest: PathBuf,
    /// Whether the guest may write.
    pub writable: bool,
    /// Whether the owner's files shall appear as the guest's own (an id-mapped mount).
    pub guest_owns: bool,
    /// Whether the launcher may go on without it if it does not exist.
    pub optional: bool,
}

/// A small file made for the inside.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TemplateFile {
    /// Absolute path inside.
    pub path: PathBuf,
    /// What it says.
    pub content: String,
}

/// What the engine asks a launcher to do.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub enum Command {
    /// Start a warm interpreter to fork guests from. It takes the place of the one before when it is warm.
    /// Descriptor: the extension library.
    Zygote {
        /// The interpreter.
        program: Program,
        /// The first message on its socket, for what is too long to be an argument.
        script: Option<String>,
    },
    /// Make a cell and start a guest in it.
    /// Descriptors: stdin, stdout, stderr, control, [code], control groups.
    Spawn(Box<Spawn>),
    /// Kill a guest with everything in its cell. Forks of it, in cells of their own, live on.
    Kill {
        /// The number given at [`Command::Spawn`].
        id: u64,
    },
}

/// A program to execute.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Program {
    /// Path of the executable, as seen by the new process.
    pub executable: PathBuf,
    /// Its arguments, the zeroth included.
    pub arguments: Vec<String>,
    /// Its whole environment.
    pub environment: Vec<(String, String)>,
    /// Whether it reads its job from descriptor 3; otherwise that is closed.
    pub reads_job: bool,
}

/// A guest to start, in a cell of its own.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Spawn {
    /// A number that the engine chose and never uses again.
    pub id: u64,
    /// How the guest comes to be.
    pub guest: Guest,
    /// Whether a descriptor with the program's text comes along, and the file name it gets below `/code`.
    pub code: Option<String>,
    /// What the guest is held by.
    pub confinement: Confinement,
    /// Bytes in the writable directories together; 0 where the working directory lies on the host.
    pub disk_bytes: u64,
    /// A TCP port on the loopback of the cell where the engine shall listen. `None`: the loopback stays down.
    #[serde(default)]
    pub listen: Option<u16>,
}

/// How a guest comes to be.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Guest {
    /// By executing a program.
    Exec(Program),
    /// By forking the zygote.
    Fork,
    /// By forking the zygote, as a session that can be forked in its turn. Its surface must say
    /// [`crate::seccomp::Forks::IntoCells`].
    Session,
    /// By forking a session, or a fork of one. The filter and the Landlock rules stay those of the session.
    ///
    /// The interpreter there must be told to call `ringfence_fork`, once for each of these commands, whether it
    /// succeeds or not. One fork of a session can be under way at a time.
    ForkOf {
        /// The number of the session.
        of: u64,
    },
}

impl Guest {
    /// Which session this is a fork of.
    pub(crate) fn forked_from(&self) -> Option<u64> {
        match self {
            Self::ForkOf { of } => Some(*of),
            Self::Exec(_) | Self::Fork | Self::Session => None,
        }
    }
}

/// Everything that a guest is held by, apart from namespaces and control groups.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Confinement {
    /// Where it starts.
    pub working_directory: PathBuf,
    /// The user and group id to take; `None` keeps the caller's.
    pub ids: Option<(u32, u32)>,
    /// Resource limits; `None`: those of whoever started us.
    pub rlimits: Option<Rlimits>,
    /// What to do about the layers below where the kernel lacks one.
    pub missing: Missing,
    /// File-system rules; `None`: no Landlock, no seccomp, no dropping of rights (`--unfenced`).
    pub landlock: Option<LandlockRules>,
    /// What the system-call filter lets through.
    pub surface: Surface,
}

/// What to do where the kernel lacks a layer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Missing {
    /// Fail.
    Refuse,
    /// Go on, and report it.
    Report,
}

/// Resource limits; `None` leaves one as it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Rlimits {
    /// Largest file.
    pub file_size: u64,
    /// Open descriptors.
    pub open_files: u64,
    /// Processes and threads of the user; only where no control group counts them.
    pub processes: Option<u64>,
    /// Private writable memory of one process; only where no control group counts it.
    pub data: Option<u64>,
    /// Processor seconds of one process; only where no control group counts them.
    pub cpu_seconds: Option<u64>,
}

/// The paths that a guest may use; everything else is denied.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct LandlockRules {
    /// Read and execute, beneath each.
    pub readable: Vec<PathBuf>,
    /// Everything but making devices, beneath each.
    pub writable: Vec<PathBuf>,
    /// As `writable`, where somebody else may have put a link in the place of the last name: a link is not followed.
    #[serde(default)]
    pub entries: Vec<PathBuf>,
    /// Device files to read and write.
    pub devices: Vec<PathBuf>,
    /// TCP ports to connect to, where the kernel governs that (ABI 4).
    #[serde(default)]
    pub connect: Vec<u16>,
}

/// What a launcher tells the engine.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub enum Event {
    /// The launcher is up.
    Ready,
    /// The zygote, or the one that is to follow it, reports on its way to being warm. The jail does not read it.
    ZygoteReports {
        /// At most 1 KiB.
        text: String,
    },
    /// The zygote has warmed up.
    ZygoteReady,
    /// The zygote, or the one that was to follow it, ended by itself.
    ZygoteGone,
    /// A guest runs. Descriptors where it has a cell: its output directory, and the listening socket if one was asked for.
    Spawned {
        /// Which.
        id: u64,
        /// What holds it.
        applied: Applied,
    },
    /// The launcher or a guest could not be set up; `id` is 0 for the launcher itself.
    Failed {
        /// Which.
        id: u64,
        /// What was being done.
        step: String,
        /// The system's error number.
        errno: i32,
    },
    /// A guest's first process ended; what else is in its cell is being killed.
    Exited {
        /// Which.
        id: u64,
        /// Exit status, or the signal as a negative number.
        status: i32,
        /// Processor time of it and its reaped children.
        cpu_micros: u64,
        /// Its largest resident set.
        max_rss: u64,
    },
    /// Nothing of a guest is left: every process of its cell has been reaped. The cell of a session holds those of its
    /// forks, so this comes after the last of them has gone.
    Gone {
        /// Which.
        id: u64,
    },
}

/// What a guest is really held by.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Applied {
    /// Own user, pid, mount, net, ipc, uts and cgroup namespaces.
    pub namespaces: bool,
    /// Own time namespace.
    pub time_namespace: bool,
    /// The Landlock ABI in force; 0 for none.
    pub landlock_abi: u32,
    /// Whether the system-call filter is loaded.
    pub seccomp: bool,
    /// Whether no_new_privs is set.
    pub no_new_privs: bool,
    /// Whether all capabilities are gone.
    pub capabilities_dropped: bool,
}
