//! The frame protocol between server and container init; `docs/protocol/init.md` specifies it.
//!
//! A frame is a type, a call number, a length, and that many bytes. Numbers are little-endian. A secret
//! chosen by the server precedes each frame of the init: under gVisor a guest can write to the file
//! descriptor that the init writes to.

mod read;
mod write;

use std::time::Duration;

use crate::mount_point::MountPoint;

pub use read::FrameReader;
pub(crate) use write::write_output;

/// Protocol version. Both ends come from one build, so any other is a mistake.
pub const VERSION: u32 = 8;
/// Length of a frame header.
pub const HEADER: usize = 9;
/// A secret shared by the server and the init.
pub type Secret = [u8; 16];
/// Maximum chunk of input or output.
pub const MAX_PIECE: usize = 64 * 1024;
/// Maximum length of a start frame: code, arguments and environment together.
pub const MAX_START: usize = 8 << 20;
/// Maximum length of the init's handshake.
const MAX_READY: usize = 64 * 1024;
/// Maximum length of all other frames.
const MAX_WORD: usize = 4096;
/// Output that a call may send before the server grants credit.
pub const OUTPUT_WINDOW: u32 = 256 * 1024;
/// Input that the server may send to a call before the init grants credit.
pub const INPUT_WINDOW: u32 = 64 * 1024;
/// Maximum number of concurrent calls.
pub const MAX_CALLS: usize = 64;
/// Ports of the proxies of calls with a network, one for each; a guest may occupy them.
pub const PROXY_PORTS: std::ops::Range<u16> = 3128..3128 + MAX_CALLS as u16;
/// Data that either end may send on a connection before the other grants credit.
pub const CONNECTION_WINDOW: u32 = 64 * 1024;
/// Maximum number of concurrent guest connections. More wait.
pub const MAX_CONNECTIONS: usize = 128;
/// Maximum number of concurrent connections of one call.
pub const MAX_CONNECTIONS_OF_CALL: usize = 32;
/// Maximum number of streams between guests and the server: connections, and the bridge of each call.
pub const MAX_STREAMS: usize = MAX_CONNECTIONS + MAX_CALLS;

const HELLO: u8 = 0x01;
const START: u8 = 0x02;
const INPUT: u8 = 0x03;
const INPUT_END: u8 = 0x04;
const KILL: u8 = 0x05;
const CREDIT: u8 = 0x06;
const SIGNAL: u8 = 0x07;
const RESIZE: u8 = 0x08;
const DRAIN: u8 = 0x09;
const END_ALL: u8 = 0x0a;
const DELIVER: u8 = 0x10;
const ALLOW: u8 = 0x11;
const DROP: u8 = 0x12;

const READY: u8 = 0x41;
const STDOUT: u8 = 0x42;
const STDERR: u8 = 0x43;
const END: u8 = 0x44;
const TAKEN: u8 = 0x45;
const BROKEN: u8 = 0x46;
const STARTED: u8 = 0x47;
const DRAINED: u8 = 0x48;
const ALL_ENDED: u8 = 0x49;
const CONNECTED: u8 = 0x50;
const RECEIVED: u8 = 0x51;
const DELIVERED: u8 = 0x52;
const DROPPED: u8 = 0x53;
const BRIDGED: u8 = 0x54;

/// The error of bytes that are not a frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum FrameError {
    /// A type that is unknown or flows in the other direction.
    #[error("frame of the unknown type {0:#04x}")]
    Type(u8),
    /// Longer than its type allows.
    #[error("frame of {length} bytes, more than the {most} of its type")]
    Long {
        /// Length in the header.
        length: usize,
        /// Maximum length.
        most: usize,
    },
    /// Bytes that the other end did not write.
    #[error("frame without the secret of its connection")]
    Foreign,
    /// A payload that its type does not allow.
    #[error("frame with a malformed payload")]
    Payload,
}

/// A message from the server to the init.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum InitRequest {
    /// The first frame: the handshake.
    Hello(Hello),
    /// Starts a call. Its number was never used before.
    Start {
        /// Number of the call.
        call: u32,
        /// The program to run.
        start: Box<Start>,
    },
    /// More standard input.
    Input {
        /// Number of the call.
        call: u32,
        /// At most [`MAX_PIECE`], and within the window.
        bytes: Vec<u8>,
    },
    /// End of standard input.
    InputEnd {
        /// Number of the call.
        call: u32,
    },
    /// Kills the call and all its processes.
    Kill {
        /// Number of the call.
        call: u32,
    },
    /// Grants credit for output.
    Credit {
        /// Number of the call.
        call: u32,
        /// Number of bytes.
        bytes: u32,
    },
    /// Sends a signal to the call.
    Signal {
        /// Number of the call.
        call: u32,
        /// Number of the signal; see signal(7).
        signal: u32,
        to: Recipient,
    },
    /// Changes the size of the call's terminal.
    Resize {
        /// Number of the call.
        call: u32,
        /// The new size.
        size: TerminalSize,
    },
    /// Asks for the output that the call has written so far.
    Drain {
        /// Number of the call.
        call: u32,
    },
    /// Kills all processes but the init.
    EndAll,
    /// Data for a guest on a connection.
    Deliver {
        /// Number of the connection.
        connection: u32,
        /// At most [`MAX_PIECE`], and within the window. Empty: end of the stream.
        bytes: Vec<u8>,
    },
    /// Grants credit for data of a guest.
    Allow {
        /// Number of the connection.
        connection: u32,
        /// Number of bytes.
        bytes: u32,
    },
    /// Closes a connection. Data sent before is still delivered.
    Drop {
        /// Number of the connection.
        connection: u32,
    },
}

/// The handshake of the server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Hello {
    /// [`VERSION`].
    pub version: u32,
    /// Secret that precedes every frame of the init.
    pub secret: Secret,
    /// Command line of a Python: with `call` appended it runs one job from its file descriptor 3, with
    /// `forks` it forks such Pythons on request. Empty: no Python.
    pub python: Vec<String>,
    /// Directory whose [`super::files::state`] is reported at the end of each call; empty: none.
    pub output: String,
    /// Paths of mount points to examine.
    pub mount_points: Vec<String>,
    /// Fate of the processes that a call leaves.
    pub leftovers: Leftovers,
}

/// The fate of processes that outlive the first process of their call.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Leftovers {
    /// The processes are killed: a call is one run.
    #[default]
    Kill,
    /// The processes run on until the container ends: calls share a sandbox.
    Keep,
}

/// The processes of a call that get a signal.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Recipient {
    /// The first one.
    Process,
    /// The process group of the first one, with those descendants that have not left it.
    Group,
}

/// The size of a terminal, in characters.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TerminalSize {
    /// Width.
    pub columns: u16,
    /// Height.
    pub rows: u16,
}

/// The step of [`Fate::NotStarted`] that enters the working directory.
pub const ENTER_DIRECTORY: &str = "enter the working directory";
/// The step that executes the program: EACCES if its file is not executable.
pub const START_PROGRAM: &str = "start the program";
/// The step that looks up the user of a program: ENOENT if there is none.
pub const LOOK_UP_USER: &str = "look up the user";
/// The step that becomes it: EINVAL if one of its ids does not exist in the sandbox.
pub const BECOME_USER: &str = "become the user";

/// A call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Start {
    pub program: Program,
    pub arguments: Vec<String>,
    /// Environment of the program, beside `PATH`, `HOME` and `LANG`.
    pub environment: Vec<(String, String)>,
    /// Working directory.
    pub directory: String,
    /// Set if input follows. Otherwise standard input is empty.
    pub input: bool,
    pub timeout: Duration,
    /// Environment variables to set to the address of an HTTP proxy. Empty: no network.
    pub proxy: Vec<String>,
    /// Set if the call gets a bridge: a stream to the server, as its file descriptor 3.
    pub bridge: bool,
    /// Size of a terminal to run it in. Its output is then all standard output, and input does not end.
    pub terminal: Option<TerminalSize>,
    /// Name or number of the user that it becomes, in a sandbox that has several. `None`: that of the init.
    pub user: Option<String>,
}

impl Start {
    /// Creates a call without arguments, environment, input, network, bridge, terminal and another user.
    pub fn new(program: Program, directory: impl Into<String>, timeout: Duration) -> Self {
        Self {
            program,
            arguments: Vec::new(),
            environment: Vec::new(),
            directory: directory.into(),
            input: false,
            timeout,
            proxy: Vec::new(),
            bridge: false,
            terminal: None,
            user: None,
        }
    }
}

/// The program of a call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Program {
    /// Python code.
    Python {
        /// File name in tracebacks.
        name: String,
        /// Source text.
        code: String,
    },
    /// A bash script.
    Bash {
        /// Value of `$0`.
        name: String,
        /// Source text.
        code: String,
    },
    /// An executable, by path or by name in `PATH`.
    Command(String),
    /// One of the init's own operations; see [`super::files`]. Its arguments name the operation.
    Files,
}

/// A message from the init to the server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Report {
    /// The init is up: the response to [`InitRequest::Hello`].
    Ready(Ready),
    /// Output of a call.
    Output {
        /// Number of the call.
        call: u32,
        /// The output stream.
        stream: Stream,
        /// At most [`MAX_PIECE`].
        bytes: Vec<u8>,
    },
    /// A call has ended, all its processes are gone, and all its output was sent.
    End {
        /// Number of the call.
        call: u32,
        end: End,
    },
    /// A call has consumed input: credit for as much.
    Taken {
        /// Number of the call.
        call: u32,
        /// Number of bytes.
        bytes: u32,
    },
    /// The init failed and exits.
    Broken(String),
    /// The first process of a call runs. Sent only with [`Leftovers::Keep`].
    Started {
        /// Number of the call.
        call: u32,
        /// Process id in the container.
        pid: u32,
    },
    /// All output that the call had written before [`InitRequest::Drain`] was sent.
    Drained {
        /// Number of the call.
        call: u32,
    },
    /// All processes that [`InitRequest::EndAll`] has killed are gone.
    AllEnded,
    /// A guest has connected. Connections are numbered from one.
    Connected {
        /// Number of the connection.
        connection: u32,
        /// The call that owns the proxy port.
        call: u32,
    },
    /// A call has a bridge: from now on a connection like others, and counted with them.
    Bridged {
        /// Number of the connection.
        connection: u32,
        /// The call that owns it.
        call: u32,
    },
    /// Data of a guest on a connection.
    Received {
        /// Number of the connection.
        connection: u32,
        /// At most [`MAX_PIECE`]. Empty: end of the stream.
        bytes: Vec<u8>,
    },
    /// A guest has consumed data: credit for as much.
    Delivered {
        /// Number of the connection.
        connection: u32,
        /// Number of bytes.
        bytes: u32,
    },
    /// The guest's end of the connection is closed.
    Dropped {
        /// Number of the connection.
        connection: u32,
    },
}

/// The handshake of the init: programs and mounts of the container.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Ready {
    /// [`VERSION`].
    pub version: u32,
    /// Path of the container's Python.
    pub python: Option<String>,
    /// Path of the container's bash.
    pub bash: Option<String>,
    /// The mount points of [`Hello::mount_points`], in their order.
    pub mount_points: Vec<MountPoint>,
}

/// An output stream of a guest.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stream {
    /// Standard output.
    Stdout,
    /// Standard error.
    Stderr,
}

/// The end of a call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct End {
    /// Fate of the call's first process.
    pub fate: Fate,
    /// Reason why the init killed it, if it did.
    pub cut: Cut,
    /// Set if processes were left over, and were killed.
    pub left: bool,
    /// Set if a pre-started interpreter ran it.
    pub warm: bool,
    /// Set if the kernel killed a process in the container for lack of memory while it ran.
    pub out_of_memory: bool,
    /// Processor time of its first process and of the children it waited for.
    pub cpu_micros: u64,
    /// Largest resident set among these.
    pub max_rss: u64,
    /// Final state of [`Hello::output`].
    pub output: u64,
}

/// The fate of a call's first process.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Fate {
    /// The process exited, according to the kernel: exit status, or the signal as a negative number.
    Ended(i32),
    /// The process could not be started.
    NotStarted {
        /// The failed step.
        step: String,
        /// The error number.
        errno: i32,
    },
    /// The supervisor of the process was killed: the exit status is unknown.
    Lost,
}

/// The init's reason to kill a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Cut {
    /// Not killed.
    No,
    /// Timeout.
    Deadline,
    /// The server's request.
    Ordered,
}

#[cfg(test)]
mod tests;
