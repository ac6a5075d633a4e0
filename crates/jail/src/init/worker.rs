//! A guest and its supervisor, which adopts the guest's orphans and reports its exit status.
//!
//! The init or the warm interpreter forks the supervisor. Its messages, one packet each: `S`, its own pid and
//! its guest's: both run. `F`, an error number and a text: the program could not be started. `E`, the guest's
//! exit status (or its signal, negative), processor time, largest resident set, and whether descendants are
//! left. The supervisor exits when it has no descendants left.

use std::ffi::{CString, OsString};
use std::fs::File;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;
use std::process::ExitCode;

use super::files::{self, CHANGES_FD, FileOwner};
use super::frames::{ENTER_DIRECTORY, Leftovers, START_PROGRAM, TerminalSize};
use super::user::User;
use crate::step_error::{Step, StepError};
use crate::steps::{GuestDescriptors, STATUS_FD};
use crate::{attach, sys};

/// Maximum packet length.
const MAX_PACKET: usize = 256;

/// A guest that runs or is being started.
#[derive(Debug)]
pub(super) struct Worker {
    /// Messages of the supervisor.
    pub(super) reports: OwnedFd,
    /// Process id of the supervisor, once known.
    pub(super) supervisor: Option<libc::pid_t>,
    /// Process id of the guest, once known. It leads a session.
    pub(super) guest: Option<libc::pid_t>,
    /// Control channel, over which a Python receives its job.
    pub(super) control: Option<File>,
    /// Write end of the guest's standard input.
    pub(super) stdin: Option<File>,
    /// Read end of its standard output.
    pub(super) stdout: Option<File>,
    /// Read end of its standard error.
    pub(super) stderr: Option<File>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum SupervisorMessage {
    /// Supervisor and guest run.
    Started {
        supervisor: libc::pid_t,
        guest: libc::pid_t,
    },
    /// The program could not be started.
    Failed { errno: i32, step: String },
    /// The guest has exited.
    Ended { end: sys::Reaped, left: bool },
    /// The supervisor has exited.
    Gone,
}

/// The child's ends of the file descriptors.
#[derive(Debug)]
pub(super) struct Ends {
    /// Status channel of the supervisor.
    pub(super) status: OwnedFd,
    /// The guest's file descriptors 0, 1 and 2.
    pub(super) standard: [OwnedFd; 3],
    /// The guest's file descriptor 3.
    pub(super) control: OwnedFd,
}

/// A program to run.
#[derive(Debug)]
pub(super) struct Execution {
    program: Executed,
    directory: CString,
    reads_job: bool,
    /// Changes of the root, which a file operation finds at [`CHANGES_FD`].
    changes: Option<OwnedFd>,
    leftovers: Leftovers,
    terminal: Option<TerminalSize>,
    user: Option<String>,
}

#[derive(Debug)]
enum Executed {
    Program {
        executable: CString,
        arguments: Vec<CString>,
        environment: Vec<CString>,
    },
    /// The file operations of this executable.
    Files {
        arguments: Vec<OsString>,
        /// User whose operation it is; `None` for the init's.
        user: Option<FileOwner>,
    },
}

impl Execution {
    /// Prepares an execution. `arguments` includes the zeroth.
    pub(super) fn new(
        executable: &Path,
        arguments: &[String],
        environment: &[(String, String)],
        directory: &str,
    ) -> Result<Self, StepError> {
        const STEP: &str = "pass on an argument or a variable";
        let text = |text: &str| CString::new(text).map_err(std::io::Error::from).step(STEP);
        let variables = environment
            .iter()
            .map(|(name, value)| text(&format!("{name}={value}")));
        let program = Executed::Program {
            executable: attach::c_path(executable).step(STEP)?,
            arguments: arguments
                .iter()
                .map(|argument| text(argument))
                .collect::<Result<_, _>>()?,
            environment: variables.collect::<Result<_, _>>()?,
        };
        Self::of(program, directory)
    }

    /// Prepares a file operation, in a child that executes no other program.
    pub(super) fn files(
        arguments: &[String],
        directory: &str,
        changes: Option<&OwnedFd>,
    ) -> Result<Self, StepError> {
        let changes = changes.map(OwnedFd::try_clone).transpose();
        let operation = Executed::Files {
            arguments: arguments.iter().map(OsString::from).collect(),
            user: None,
        };
        Ok(Self {
            changes: changes.step("pass on the changes of the root")?,
            ..Self::of(operation, directory)?
        })
    }

    fn of(program: Executed, directory: &str) -> Result<Self, StepError> {
        Ok(Self {
            program,
            directory: CString::new(directory)
                .map_err(std::io::Error::from)
                .step("pass on an argument or a variable")?,
            reads_job: false,
            changes: None,
            leftovers: Leftovers::Kill,
            terminal: None,
            user: None,
        })
    }

    /// Marks the execution as reading a job from its file descriptor 3.
    pub(super) fn reading_a_job(self) -> Self {
        Self {
            reads_job: true,
            ..self
        }
    }

    /// Sets the fate of the processes that it leaves.
    pub(super) fn leaving(self, leftovers: Leftovers) -> Self {
        Self { leftovers, ..self }
    }

    /// Runs the execution in a terminal of this size.
    pub(super) fn in_terminal(self, terminal: Option<TerminalSize>) -> Self {
        Self { terminal, ..self }
    }

    /// Runs the execution as another user.
    pub(super) fn of_user(self, user: Option<String>) -> Self {
        Self { user, ..self }
    }

    /// Becomes the execution's user, if that is another one. A file operation takes the user's groups, and the ids later.
    fn enter_user(&mut self) -> Result<(), StepError> {
        let Some(wanted) = &self.user else { return Ok(()) };
        let user = User::find(wanted)?;
        match &mut self.program {
            Executed::Program { environment, .. } => {
                user.complete(environment)?;
                user.enter()
            }
            Executed::Files { user: of_files, .. } => {
                *of_files = Some(user.owner());
                user.enter_groups()
            }
        }
    }

    /// Executes the program, which closes `executed`. Returns only on failure.
    pub(super) fn execute(&self, executed: BorrowedFd<'_>) -> std::io::Error {
        match &self.program {
            Executed::Program {
                executable,
                arguments,
                environment,
            } => sys::execve(executable, arguments, environment),
            Executed::Files { arguments, user } => {
                if let Err(error) = sys::replace_by_null(executed) {
                    return error;
                }
                let done = files::main(arguments, *user) == ExitCode::SUCCESS;
                sys::exit_now(i32::from(!done))
            }
        }
    }
}

/// Creates a guest's file descriptors with a terminal: the init's ends and the child's.
fn prepare_terminal(size: TerminalSize) -> std::io::Result<(Worker, Ends)> {
    let (reports, status) = sys::seqpacket_pair()?;
    let (control, control_theirs) = sys::stream_pair()?;
    let (master, slave) = sys::open_terminal()?;
    sys::resize_terminal(master.as_fd(), size.columns, size.rows)?;
    for ours in [&reports, &control, &master] {
        sys::set_nonblocking(ours.as_fd())?;
    }
    let worker = Worker {
        reports,
        supervisor: None,
        guest: None,
        control: Some(control.into()),
        stdin: Some(master.try_clone()?.into()),
        stdout: Some(master.into()),
        stderr: None,
    };
    let ends = Ends {
        status,
        standard: [slave.try_clone()?, slave.try_clone()?, slave],
        control: control_theirs,
    };
    Ok((worker, ends))
}

/// Creates a guest's file descriptors: the init's ends and the child's.
pub(super) fn prepare() -> std::io::Result<(Worker, Ends)> {
    let (reports, status) = sys::seqpacket_pair()?;
    let (control, control_theirs) = sys::stream_pair()?;
    let (stdin_theirs, stdin) = sys::pipe()?;
    let (stdout, stdout_theirs) = sys::pipe()?;
    let (stderr, stderr_theirs) = sys::pipe()?;
    for ours in [&reports, &control, &stdin, &stdout, &stderr] {
        sys::set_nonblocking(ours.as_fd())?;
    }
    let worker = Worker {
        reports,
        supervisor: None,
        guest: None,
        control: Some(control.into()),
        stdin: Some(stdin.into()),
        stdout: Some(stdout.into()),
        stderr: Some(stderr.into()),
    };
    let ends = Ends {
        status,
        standard: [stdin_theirs, stdout_theirs, stderr_theirs],
        control: control_theirs,
    };
    Ok((worker, ends))
}

/// Starts a program under a supervisor of its own.
pub(super) fn start(mut execution: Execution) -> Result<Worker, StepError> {
    let (mut worker, ends) = match execution.terminal {
        None => prepare().step("make the pipes")?,
        Some(size) => prepare_terminal(size).step("open a terminal")?,
    };
    match sys::fork().step("fork a supervisor")? {
        None => supervise(&mut execution, ends),
        Some(pid) => {
            worker.supervisor = Some(pid);
            Ok(worker)
        }
    }
}

/// Runs the supervisor. It inherits being undumpable.
fn supervise(execution: &mut Execution, ends: Ends) -> ! {
    let descriptors = GuestDescriptors {
        standard: ends.standard,
        control: ends.control,
        status: ends.status,
        session: execution.changes.as_ref().and_then(|fd| fd.try_clone().ok()),
    };
    let kept = match descriptors.session {
        Some(_) => CHANGES_FD,
        None => STATUS_FD,
    };
    let Ok(status) = descriptors.arrange() else {
        sys::exit_now(1)
    };
    // Where the kernel cannot do this, the init adopts the orphans, and knows it.
    let _ = sys::become_subreaper();
    let closed = sys::close_from(kept + 1).step("set up a supervisor");
    let executed = closed.and_then(|()| sys::pipe().step("set up a supervisor"));
    let forked = executed.and_then(|ends| Ok((sys::fork().step("fork the program")?, ends)));
    match forked {
        Ok((None, (_, write))) => become_guest(execution, &status, write),
        Ok((Some(guest), (read, write))) => {
            drop(write);
            // Only the guest may hold its pipe ends: their readers wait for the last close.
            (0..STATUS_FD).for_each(|number| drop(sys::inherited(number)));
            if execution.leftovers == Leftovers::Kill || has_executed(read) {
                tell_started(guest, &status);
            }
            watch(guest, &status, execution.leftovers)
        }
        Err(error) => {
            tell_failure(&status, &error);
            sys::exit_now(1)
        }
    }
}

/// Returns `true` once the program is executed, which closes the other end; `false` if it could not be.
fn has_executed(pipe: OwnedFd) -> bool {
    let mut failed = [0];
    matches!(std::io::Read::read(&mut File::from(pipe), &mut failed), Ok(0))
}

fn tell_started(guest: libc::pid_t, status: &OwnedFd) {
    let mut packet = vec![b'S'];
    packet.extend(sys::process_ids().0.to_le_bytes());
    packet.extend(guest.to_le_bytes());
    let _ = sys::send_message(status.as_fd(), &packet, &[]);
}

/// Becomes the guest. `executed` is closed by its program's start.
fn become_guest(execution: &mut Execution, status: &OwnedFd, executed: OwnedFd) -> ! {
    let arranged = sys::setsid()
        .step("start a session")
        .and_then(|()| sys::reset_signals().step("reset the signals"))
        .and_then(|()| match execution.terminal {
            Some(_) => sys::control_terminal().step("take over the terminal"),
            None => Ok(()),
        })
        .and_then(|()| execution.enter_user())
        .and_then(|()| sys::change_directory(&execution.directory).step(ENTER_DIRECTORY))
        .and_then(|()| match execution.reads_job {
            true => Ok(()),
            false => sys::close_control().step("close the control descriptor"),
        });
    let error = match arranged {
        Ok(()) => StepError {
            step: START_PROGRAM,
            source: execution.execute(executed.as_fd()),
        },
        Err(error) => error,
    };
    tell_failure(status, &error);
    let _ = std::io::Write::write_all(&mut File::from(executed), b"F");
    sys::exit_now(127)
}

/// Reaps until nothing is left, or nothing that this supervisor keeps, and reports the guest's exit.
fn watch(guest: libc::pid_t, status: &OwnedFd, leftovers: Leftovers) -> ! {
    while let Ok(Some(end)) = sys::reap(sys::Wait::Block) {
        if end.pid == guest {
            let left = loop {
                match sys::reap(sys::Wait::Poll) {
                    Ok(Some(_)) => {}
                    // The init adopts what it leaves.
                    Ok(None) => break leftovers == Leftovers::Kill,
                    Err(_) => break false,
                }
            };
            let mut packet = vec![b'E'];
            packet.extend(end.status.to_le_bytes());
            packet.extend(end.cpu_micros.to_le_bytes());
            packet.extend(end.max_rss.to_le_bytes());
            packet.push(left.into());
            let _ = sys::send_message(status.as_fd(), &packet, &[]);
            if !left {
                break;
            }
        }
    }
    sys::exit_now(0)
}

fn tell_failure(status: &OwnedFd, error: &StepError) {
    let mut packet = vec![b'F'];
    packet.extend(error.errno().to_le_bytes());
    packet.extend(error.step.as_bytes());
    let _ = sys::send_message(status.as_fd(), &packet, &[]);
}

impl Worker {
    /// Receives the supervisor's next message; `None` if there is none.
    pub(super) fn receive(&mut self) -> Option<SupervisorMessage> {
        let mut buffer = [0; MAX_PACKET];
        let heard = match sys::receive_message(self.reports.as_fd(), &mut buffer) {
            Ok((length, _)) => parse(&buffer[..length]),
            Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => return None,
            Err(_) => SupervisorMessage::Gone,
        };
        if let SupervisorMessage::Started { supervisor, guest } = heard {
            (self.supervisor, self.guest) = (Some(supervisor), Some(guest));
        }
        Some(heard)
    }

    /// Returns `true` once all its output was read.
    pub(super) fn is_silent(&self) -> bool {
        self.stdout.is_none() && self.stderr.is_none()
    }
}

/// Parses a packet. An invalid one is not from a supervisor, and treated as its exit.
fn parse(packet: &[u8]) -> SupervisorMessage {
    parse_packet(packet).unwrap_or(SupervisorMessage::Gone)
}

fn parse_packet(packet: &[u8]) -> Option<SupervisorMessage> {
    let (kind, rest) = packet.split_first()?;
    let (number, rest) = rest.split_first_chunk()?;
    let number = i32::from_le_bytes(*number);
    match kind {
        b'S' => {
            let guest = i32::from_le_bytes(rest.try_into().ok()?);
            let supervisor = number;
            (supervisor > 1 && guest > 1).then_some(SupervisorMessage::Started { supervisor, guest })
        }
        b'F' => Some(SupervisorMessage::Failed {
            errno: number,
            step: String::from_utf8_lossy(rest).into_owned(),
        }),
        b'E' => {
            let (cpu, rest) = rest.split_first_chunk()?;
            let (rss, rest) = rest.split_first_chunk()?;
            let &[left] = rest else { return None };
            let end = sys::Reaped {
                pid: 0,
                status: number,
                cpu_micros: u64::from_le_bytes(*cpu),
                max_rss: u64::from_le_bytes(*rss),
            };
            Some(SupervisorMessage::Ended { end, left: left != 0 })
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn packets_of_a_supervisor_are_read_or_it_counts_as_gone() {
        let check = |packet: &[u8], expected| assert_eq!(parse(packet), expected, "{packet:?}");
        let started = SupervisorMessage::Started {
            supervisor: 7,
            guest: 8,
        };
        check(b"S\x07\0\0\0\x08\0\0\0", started);
        check(b"S\x01\0\0\0\x08\0\0\0", SupervisorMessage::Gone);
        check(b"S\x07\0\0\0", SupervisorMessage::Gone);
        check(
            b"F\x02\0\0\0do it",
            SupervisorMessage::Failed {
                errno: 2,
                step: "do it".to_owned(),
            },
        );
        let end = sys::Reaped {
            pid: 0,
            status: -9,
            cpu_micros: 3,
            max_rss: 4096,
        };
        let packet = b"E\xf7\xff\xff\xff\x03\0\0\0\0\0\0\0\0\x10\0\0\0\0\0\0\x01";
        check(packet, SupervisorMessage::Ended { end, left: true });
        check(&packet[..packet.len() - 1], SupervisorMessage::Gone);
        check(b"", SupervisorMessage::Gone);
        check(b"X\0\0\0\0", SupervisorMessage::Gone);
    }
}
