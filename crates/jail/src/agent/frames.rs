//! The frames that an engine and the agent in its container exchange; `docs/protocol/agent.md` says what they mean.
//!
//! A frame is a type, the number of a call, a length, and that many bytes. Numbers are little-endian. Before each frame of the
//! agent's stands a secret of the engine's: under gVisor a guest can write to the descriptor that the agent writes to.

mod read;
mod write;

use std::time::Duration;

pub use read::FrameReader;
pub(crate) use write::write_output;

/// The version of the protocol. Both ends come from one build, so any other is a mistake.
pub const VERSION: u32 = 4;
/// The bytes before a frame's payload.
pub const HEADER: usize = 9;
/// What only the engine and its agent know.
pub type Secret = [u8; 16];
/// The most that one piece of input or output holds.
pub const MAX_PIECE: usize = 64 * 1024;
/// The longest frame that begins something: code, arguments and environment together.
pub const MAX_START: usize = 8 << 20;
/// The longest of all other frames.
const MAX_WORD: usize = 4096;
/// What a call may print before the engine has given it credit.
pub const OUTPUT_WINDOW: u32 = 256 * 1024;
/// What the engine may send of a call's input before the agent has given it credit.
pub const INPUT_WINDOW: u32 = 64 * 1024;
/// The most calls at once.
pub const MAX_CALLS: usize = 64;
/// What may be sent of a connection's bytes, either way, before the other end has given credit.
pub const CONNECTION_WINDOW: u32 = 64 * 1024;
/// The most connections of guests at once. More wait.
pub const MAX_CONNECTIONS: usize = 128;
/// The most of one call.
pub const MAX_CONNECTIONS_OF_CALL: usize = 32;
/// The most streams between guests and the engine at once: connections, and the bridge of each call.
pub const MAX_STREAMS: usize = MAX_CONNECTIONS + MAX_CALLS;

const HELLO: u8 = 0x01;
const START: u8 = 0x02;
const INPUT: u8 = 0x03;
const INPUT_END: u8 = 0x04;
const KILL: u8 = 0x05;
const CREDIT: u8 = 0x06;
const DELIVER: u8 = 0x10;
const ALLOW: u8 = 0x11;
const DROP: u8 = 0x12;

const READY: u8 = 0x41;
const STDOUT: u8 = 0x42;
const STDERR: u8 = 0x43;
const END: u8 = 0x44;
const TAKEN: u8 = 0x45;
const BROKEN: u8 = 0x46;
const CONNECTED: u8 = 0x50;
const RECEIVED: u8 = 0x51;
const DELIVERED: u8 = 0x52;
const DROPPED: u8 = 0x53;
const BRIDGED: u8 = 0x54;

/// Why bytes are no frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum FrameError {
    /// A type that does not go this way, or none at all.
    #[error("frame of the unknown type {0:#04x}")]
    Type(u8),
    /// More than a frame of its type may hold.
    #[error("frame of {length} bytes, more than the {most} of its type")]
    Long {
        /// What its header says.
        length: usize,
        /// What is allowed.
        most: usize,
    },
    /// Bytes that the other end did not write.
    #[error("bytes from somebody else")]
    Foreign,
    /// A payload that does not say what its type wants.
    #[error("frame with a payload that makes no sense")]
    Payload,
}

/// What the engine sends.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Order {
    /// The first frame: who is there.
    Hello(Hello),
    /// Start a call. Its number was not used before.
    Start {
        /// The call's number.
        call: u32,
        /// What to run.
        start: Box<Start>,
    },
    /// More for its standard input.
    Input {
        /// Which call.
        call: u32,
        /// At most [`MAX_PIECE`], and no more than its window.
        bytes: Vec<u8>,
    },
    /// Its standard input ends.
    InputEnd {
        /// Which call.
        call: u32,
    },
    /// Kill it with everything that it started.
    Kill {
        /// Which call.
        call: u32,
    },
    /// It may print so much more.
    Credit {
        /// Which call.
        call: u32,
        /// How much.
        bytes: u32,
    },
    /// Bytes for a guest at the other end of a connection.
    Deliver {
        /// Which connection.
        connection: u32,
        /// At most [`MAX_PIECE`], and no more than its window. None: these were all.
        bytes: Vec<u8>,
    },
    /// So much more of what the guest says may be sent.
    Allow {
        /// Which connection.
        connection: u32,
        /// How much.
        bytes: u32,
    },
    /// Nobody is interested in the connection any more. What was delivered still is.
    Drop {
        /// Which connection.
        connection: u32,
    },
}

/// How the agent shall do its work.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Hello {
    /// [`VERSION`].
    pub version: u32,
    /// What every frame of the agent's shall begin with.
    pub secret: Secret,
    /// The arguments of a Python: with `call` behind them it runs one job from its descriptor 3, with `forks` it forks
    /// such Pythons as the agent asks. None: no Python is wanted.
    pub python: Vec<String>,
    /// The directory whose [`super::files::state`] is told at the end of each call; empty: none.
    pub output: String,
}

/// A call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Start {
    /// What to run.
    pub program: Program,
    /// Its arguments.
    pub arguments: Vec<String>,
    /// Its environment, beside `PATH`, `HOME` and `LANG`.
    pub environment: Vec<(String, String)>,
    /// Where it starts.
    pub directory: String,
    /// Whether it will be sent input. If not, its input is at its end.
    pub input: bool,
    /// How long it may run.
    pub timeout: Duration,
    /// The variables that shall tell it where to connect to, as an HTTP proxy's address. None: it has no network.
    pub proxy: Vec<String>,
    /// Whether it shall have a bridge. Only a Python can.
    pub bridge: bool,
}

/// What a call runs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Program {
    /// Python code.
    Python {
        /// The file name that tracebacks show.
        name: String,
        /// Its text.
        code: String,
    },
    /// A script of bash.
    Bash {
        /// What it calls itself.
        name: String,
        /// Its text.
        code: String,
    },
    /// A program, by its path or its name in `PATH`.
    Command(String),
}

/// What the agent sends.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Report {
    /// It is up: the answer to [`Order::Hello`].
    Ready(Ready),
    /// A call has printed something.
    Output {
        /// Which call.
        call: u32,
        /// Where.
        stream: Stream,
        /// At most [`MAX_PIECE`].
        bytes: Vec<u8>,
    },
    /// A call has ended, nothing of it is left, and all that it printed was sent.
    End {
        /// Which call.
        call: u32,
        /// How.
        end: End,
    },
    /// A call has read so much of its input: as much may follow.
    Taken {
        /// Which call.
        call: u32,
        /// How much.
        bytes: u32,
    },
    /// The agent cannot go on, and ends.
    Broken(String),
    /// A guest has connected. Connections are numbered from one on.
    Connected {
        /// Which connection.
        connection: u32,
        /// The call whose network it came over.
        call: u32,
    },
    /// A call has a bridge: from here on it is a connection like others, and counted with them.
    Bridged {
        /// Which connection.
        connection: u32,
        /// The call that has it.
        call: u32,
    },
    /// What a guest says on a connection.
    Received {
        /// Which connection.
        connection: u32,
        /// At most [`MAX_PIECE`]. None: these were all.
        bytes: Vec<u8>,
    },
    /// A guest has taken so much: as much may follow.
    Delivered {
        /// Which connection.
        connection: u32,
        /// How much.
        bytes: u32,
    },
    /// There is nobody at the other end of the connection any more.
    Dropped {
        /// Which connection.
        connection: u32,
    },
}

/// What there is in the container.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Ready {
    /// [`VERSION`].
    pub version: u32,
    /// Where its Python is.
    pub python: Option<String>,
    /// Where its bash is.
    pub bash: Option<String>,
}

/// One of the two streams of a program.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stream {
    /// Standard output.
    Stdout,
    /// Standard error.
    Stderr,
}

/// How a call ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct End {
    /// What became of its first process.
    pub fate: Fate,
    /// Whether the agent cut it short.
    pub cut: Cut,
    /// Whether processes of it were left, and were killed.
    pub left: bool,
    /// Whether it came from a warm interpreter.
    pub warm: bool,
    /// Whether the kernel killed for want of memory in the container while it ran.
    pub out_of_memory: bool,
    /// Processor time of its first process and of what that waited for.
    pub cpu_micros: u64,
    /// The largest resident set among these.
    pub max_rss: u64,
    /// The state of [`Hello::output`] then.
    pub output: u64,
}

/// What became of a call's first process.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Fate {
    /// It ended, says the kernel: its exit status, or the signal as a negative number.
    Ended(i32),
    /// It could not be started.
    NotStarted {
        /// What was being done.
        step: String,
        /// The system's error number.
        errno: i32,
    },
    /// Whoever watched it was killed. Nothing is known of its end but that it is gone.
    Lost,
}

/// Why the agent killed a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Cut {
    /// It did not.
    No,
    /// Its time was over.
    Deadline,
    /// The engine wanted it.
    Ordered,
}

#[cfg(test)]
mod tests;
