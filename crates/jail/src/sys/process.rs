//! Processes: creating, joining namespaces, waiting, signalling, reaping, executing.

use std::ffi::{CStr, CString};
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};
use std::ptr;

use super::{check, check_int};

/// The side of a fork.
#[derive(Debug)]
pub(crate) enum Fork {
    /// The new process.
    Child,
    /// The old process.
    Parent {
        /// Child's pid, in the current pid namespace.
        pid: libc::pid_t,
        /// Pidfd, which stays valid when the pid is reused.
        pidfd: OwnedFd,
    },
}

/// The parent of a new process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Parentage {
    /// The caller.
    Own,
    /// The caller's parent: the new process is the caller's sibling.
    Sibling,
}

/// Creates a process with clone3, in new namespaces if `namespaces` asks for them.
///
/// Only for single-threaded callers: no lock of another thread can then be held in the child.
pub(crate) fn clone3(namespaces: u64, parentage: Parentage) -> io::Result<Fork> {
    let mut pidfd: RawFd = -1;
    // glibc stores the thread's id beside the thread's stack and does not notice a raw clone3; the kernel can
    // write the child's id to the same place, as it does for glibc's own fork.
    let tid_address = thread_id_address();
    let mut flags = namespaces | libc::CLONE_PIDFD as u64;
    if tid_address != 0 {
        flags |= (libc::CLONE_CHILD_SETTID | libc::CLONE_CHILD_CLEARTID) as u64;
    }
    let exit_signal = match parentage {
        Parentage::Own => libc::SIGCHLD as u64,
        Parentage::Sibling => {
            flags |= libc::CLONE_PARENT as u64;
            0 // taken over from the caller; clone3 wants it to be zero
        }
    };
    let arguments = libc::clone_args {
        flags,
        pidfd: ptr::addr_of_mut!(pidfd) as u64,
        child_tid: tid_address,
        parent_tid: 0,
        exit_signal,
        stack: 0,
        stack_size: 0,
        tls: 0,
        set_tid: 0,
        set_tid_size: 0,
        cgroup: 0,
    };
    // SAFETY: `arguments` is a live clone_args of the size given; without a new stack the child goes on
    // with a copy of this one, exactly as after fork. `pidfd` and `tid_address` are valid to write.
    let pid = check(unsafe {
        libc::syscall(
            libc::SYS_clone3,
            ptr::addr_of!(arguments),
            size_of::<libc::clone_args>(),
        )
    })?;
    if pid == 0 {
        return Ok(Fork::Child);
    }
    // SAFETY: the call succeeded in the parent, so the kernel stored a new descriptor in `pidfd`.
    let pidfd = unsafe { OwnedFd::from_raw_fd(pidfd) };
    Ok(Fork::Parent {
        pid: pid as libc::pid_t,
        pidfd,
    })
}

/// Returns the address where glibc stores the id of the calling thread; 0 if the kernel does not report it.
fn thread_id_address() -> u64 {
    let mut address: u64 = 0;
    // SAFETY: PR_GET_TID_ADDRESS writes one pointer to the place given.
    let result = unsafe { libc::prctl(libc::PR_GET_TID_ADDRESS, ptr::addr_of_mut!(address)) };
    if result == 0 { address } else { 0 }
}

/// Creates a sibling of the caller that shares nothing with it, with the old clone: the filter allows no
/// other. Returns `None` in the sibling. Only for single-threaded callers.
pub(crate) fn clone_sibling() -> io::Result<Option<libc::pid_t>> {
    let tid_address = thread_id_address();
    let mut flags = libc::CLONE_PARENT;
    if tid_address != 0 {
        flags |= libc::CLONE_CHILD_SETTID | libc::CLONE_CHILD_CLEARTID;
    }
    // The two architectures differ in the order of the last two, the other one being thread-local storage; it
    // is read only if a flag asks for it.
    let (fourth, fifth) = if cfg!(target_arch = "aarch64") {
        (0, tid_address)
    } else {
        (tid_address, 0)
    };
    // SAFETY: without a new stack the sibling goes on with a copy of this one, exactly as after fork, and
    // `tid_address` is valid to write.
    let pid = check(unsafe { libc::syscall(libc::SYS_clone, flags, 0_u64, 0_u64, fourth, fifth) })?;
    Ok((pid != 0).then_some(pid as libc::pid_t))
}

/// Creates a process with the C library's fork, for kernels or filters without clone3.
pub(crate) fn fork() -> io::Result<Option<libc::pid_t>> {
    // SAFETY: callers are single-threaded, so the child may go on as the parent would.
    let pid = check_int(unsafe { libc::fork() })?;
    Ok((pid != 0).then_some(pid))
}

/// Waits for one child to exit, and reaps it.
pub(crate) fn await_child(pid: libc::pid_t) -> io::Result<()> {
    loop {
        // SAFETY: the status is not asked for.
        match check_int(unsafe { libc::waitpid(pid, ptr::null_mut(), 0) }) {
            Ok(_) => return Ok(()),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
}

/// Joins the namespaces `kinds` of the process behind a pidfd, or the one namespace behind its own handle.
pub(crate) fn setns(handle: BorrowedFd<'_>, kinds: libc::c_int) -> io::Result<()> {
    // SAFETY: a plain call on an open descriptor.
    check_int(unsafe { libc::setns(handle.as_raw_fd(), kinds) }).map(drop)
}

/// Moves the calling process into new namespaces.
pub(crate) fn unshare(kinds: libc::c_int) -> io::Result<()> {
    // SAFETY: a plain call; the caller is single-threaded.
    check_int(unsafe { libc::unshare(kinds) }).map(drop)
}

/// Returns a pidfd of a process.
pub(crate) fn pidfd_open(pid: libc::pid_t) -> io::Result<OwnedFd> {
    // SAFETY: a plain call without pointers.
    let fd = check(unsafe { libc::syscall(libc::SYS_pidfd_open, pid, 0) })?;
    // SAFETY: the call returned a new descriptor that nobody else owns.
    Ok(unsafe { OwnedFd::from_raw_fd(fd as RawFd) })
}

/// Sends a signal to the process behind `pidfd`.
pub(crate) fn pidfd_send_signal(pidfd: BorrowedFd<'_>, signal: libc::c_int) -> io::Result<()> {
    // SAFETY: a null siginfo is allowed and means "as kill would send it".
    check(unsafe {
        libc::syscall(
            libc::SYS_pidfd_send_signal,
            pidfd.as_raw_fd(),
            signal,
            ptr::null::<libc::siginfo_t>(),
            0,
        )
    })
    .map(drop)
}

/// Sends a signal to a process by its pid; only for children that have not been reaped.
pub(crate) fn kill(pid: libc::pid_t, signal: libc::c_int) -> io::Result<()> {
    // SAFETY: a plain call without pointers.
    check_int(unsafe { libc::kill(pid, signal) }).map(drop)
}

/// The exit of a reaped process, according to the kernel.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Reaped {
    /// The process.
    pub(crate) pid: libc::pid_t,
    /// Exit status, or the signal as a negative number.
    pub(crate) status: i32,
    /// Processor time of the process and its own reaped children, in microseconds.
    pub(crate) cpu_micros: u64,
    /// Largest resident set, in bytes.
    pub(crate) max_rss: u64,
}

/// Blocking behaviour of [`reap`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Wait {
    /// Block until a child exits.
    Block,
    /// Do not block.
    Poll,
}

/// Reaps one child of any kind. `Ok(None)`: none has exited (only with [`Wait::Poll`]).
pub(crate) fn reap(wait: Wait) -> io::Result<Option<Reaped>> {
    let mut status: libc::c_int = 0;
    // SAFETY: rusage is plain numbers, for which all zeroes is a valid value.
    let mut usage: libc::rusage = unsafe { std::mem::zeroed() };
    let options = libc::__WALL | if wait == Wait::Poll { libc::WNOHANG } else { 0 };
    loop {
        // SAFETY: both places are valid to write.
        match check_int(unsafe { libc::wait4(-1, &mut status, options, &mut usage) }) {
            Ok(0) => return Ok(None),
            Ok(pid) => {
                let status = if libc::WIFSIGNALED(status) {
                    -libc::WTERMSIG(status)
                } else {
                    libc::WEXITSTATUS(status)
                };
                return Ok(Some(Reaped {
                    pid,
                    status,
                    cpu_micros: micros(usage.ru_utime) + micros(usage.ru_stime),
                    max_rss: usage.ru_maxrss as u64 * 1024,
                }));
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
}

/// Waits for one child to end, and reaps it.
pub(crate) fn reap_child(child: BorrowedFd<'_>) -> io::Result<()> {
    loop {
        // SAFETY: siginfo_t is plain data, for which all zeroes is a valid value.
        let mut info: libc::siginfo_t = unsafe { std::mem::zeroed() };
        let id = child.as_raw_fd() as libc::id_t;
        let options = libc::WEXITED | libc::__WALL;
        // SAFETY: `info` is valid to write.
        match check_int(unsafe { libc::waitid(libc::P_PIDFD, id, &mut info, options) }) {
            Ok(_) => return Ok(()),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
}

fn micros(time: libc::timeval) -> u64 {
    time.tv_sec as u64 * 1_000_000 + time.tv_usec as u64
}

/// Blocks `signals`, beside those that are: a call that raises one returns its error instead. Returns the set.
pub(crate) fn block_signals(signals: &[libc::c_int]) -> io::Result<libc::sigset_t> {
    // SAFETY: a signal set is plain numbers, for which all zeroes is a valid value.
    let mut set: libc::sigset_t = unsafe { std::mem::zeroed() };
    for signal in signals {
        // SAFETY: `set` is a live set.
        check_int(unsafe { libc::sigaddset(&mut set, *signal) })?;
    }
    // SAFETY: `set` is a live set; the old mask is not asked for.
    check_int(unsafe { libc::sigprocmask(libc::SIG_BLOCK, &set, ptr::null_mut()) })?;
    Ok(set)
}

/// Returns `true` if a blocked signal has arrived.
pub(crate) fn is_pending(signal: libc::c_int) -> bool {
    // SAFETY: a signal set is plain numbers, for which all zeroes is a valid value.
    let mut set: libc::sigset_t = unsafe { std::mem::zeroed() };
    // SAFETY: `set` is a live set, which the kernel fills.
    let filled = check_int(unsafe { libc::sigpending(&mut set) });
    // SAFETY: `set` is a live set.
    filled.is_ok() && unsafe { libc::sigismember(&set, signal) } == 1
}

/// Returns a file descriptor that becomes readable when one of `signals` arrives; they are blocked from now
/// on.
pub(crate) fn signalfd(signals: &[libc::c_int]) -> io::Result<OwnedFd> {
    let set = block_signals(signals)?;
    // SAFETY: `set` is a live set and -1 asks for a new descriptor.
    let fd = check_int(unsafe { libc::signalfd(-1, &set, libc::SFD_CLOEXEC | libc::SFD_NONBLOCK) })?;
    // SAFETY: the call returned a new descriptor that nobody else owns.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// Unblocks every signal.
pub(crate) fn unblock_signals() -> io::Result<()> {
    // SAFETY: a signal set is plain numbers, for which all zeroes is a valid, empty value.
    let set: libc::sigset_t = unsafe { std::mem::zeroed() };
    // SAFETY: `set` is a live set; the old mask is not asked for.
    check_int(unsafe { libc::sigprocmask(libc::SIG_SETMASK, &set, ptr::null_mut()) }).map(drop)
}

/// Resets the signals to the state of a new program: nothing blocked, nothing ignored.
pub(crate) fn reset_signals() -> io::Result<()> {
    unblock_signals()?;
    // Rust ignores SIGPIPE at start, a shell SIGINT for background jobs, `nohup` SIGHUP.
    for signal in 1..=libc::SIGRTMAX() {
        // SAFETY: restores default dispositions, which run no code of ours; unchangeable ones fail.
        unsafe { libc::signal(signal, libc::SIG_DFL) };
    }
    Ok(())
}

/// Waits until one of `fds` is readable or closed, and returns a flag for each; without a timeout, for ever.
pub(crate) fn poll(fds: &[BorrowedFd<'_>], timeout_ms: Option<i32>) -> io::Result<Vec<bool>> {
    let mut polled: Vec<libc::pollfd> = fds
        .iter()
        .map(|fd| libc::pollfd {
            fd: fd.as_raw_fd(),
            events: libc::POLLIN,
            revents: 0,
        })
        .collect();
    loop {
        // SAFETY: `polled` is a live array of the length given.
        let result = unsafe {
            libc::poll(
                polled.as_mut_ptr(),
                polled.len() as libc::nfds_t,
                timeout_ms.unwrap_or(-1),
            )
        };
        match check_int(result) {
            Ok(_) => return Ok(polled.iter().map(|entry| entry.revents != 0).collect()),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
}

/// Waits until one of `fds` is ready for its events (`POLLIN`, `POLLOUT`), or failed, and returns a flag for
/// each; without a timeout, for ever.
pub(crate) fn poll_for(
    fds: &[(BorrowedFd<'_>, libc::c_short)],
    timeout: Option<std::time::Duration>,
) -> io::Result<Vec<bool>> {
    let mut polled: Vec<libc::pollfd> = fds
        .iter()
        .map(|(fd, events)| libc::pollfd {
            fd: fd.as_raw_fd(),
            events: *events,
            revents: 0,
        })
        .collect();
    let time = timeout.map(|timeout| libc::timespec {
        tv_sec: libc::time_t::try_from(timeout.as_secs()).unwrap_or(libc::time_t::MAX),
        tv_nsec: timeout.subsec_nanos().into(),
    });
    let time = time.as_ref().map_or(ptr::null(), ptr::from_ref);
    // SAFETY: `polled` is a live array of the length given, and `time` null or live.
    let result = unsafe {
        libc::ppoll(
            polled.as_mut_ptr(),
            polled.len() as libc::nfds_t,
            time,
            ptr::null(),
        )
    };
    check_int(result)?;
    Ok(polled.iter().map(|entry| entry.revents != 0).collect())
}

/// Replaces the calling process by a program. Returns only on failure.
pub(crate) fn execve(program: &CStr, arguments: &[CString], environment: &[CString]) -> io::Error {
    let pointers = |strings: &[CString]| -> Vec<*const libc::c_char> {
        strings.iter().map(|s| s.as_ptr()).chain([ptr::null()]).collect()
    };
    let (argv, envp) = (pointers(arguments), pointers(environment));
    // SAFETY: both arrays end with a null pointer and their strings outlive the call.
    unsafe { libc::execve(program.as_ptr(), argv.as_ptr(), envp.as_ptr()) };
    io::Error::last_os_error()
}

/// Exits the calling process at once: no destructors, no buffers flushed.
pub(crate) fn exit_now(status: i32) -> ! {
    // SAFETY: ends the process.
    unsafe { libc::_exit(status) }
}

/// Starts a new session, without a controlling terminal.
pub(crate) fn setsid() -> io::Result<()> {
    // SAFETY: a plain call.
    check_int(unsafe { libc::setsid() }).map(drop)
}

/// Enters a directory.
pub(crate) fn change_directory(path: &CStr) -> io::Result<()> {
    // SAFETY: the path is a live C string.
    check_int(unsafe { libc::chdir(path.as_ptr()) }).map(drop)
}

/// Sets the permission bits that new files do not get, and returns those before.
pub(crate) fn set_umask(mask: libc::mode_t) -> libc::mode_t {
    // SAFETY: a plain call that cannot fail.
    unsafe { libc::umask(mask) }
}

/// Returns the effective user and group id.
pub(crate) fn effective_ids() -> (u32, u32) {
    // SAFETY: plain calls that cannot fail.
    unsafe { (libc::geteuid(), libc::getegid()) }
}

/// Returns the pids of the calling process and of its parent.
pub(crate) fn process_ids() -> (libc::pid_t, libc::pid_t) {
    // SAFETY: plain calls that cannot fail.
    unsafe { (libc::getpid(), libc::getppid()) }
}

/// Sets the host name of the UTS namespace.
pub(crate) fn sethostname(name: &str) -> io::Result<()> {
    // SAFETY: the pointer and length describe `name`.
    check_int(unsafe { libc::sethostname(name.as_ptr().cast(), name.len()) }).map(drop)
}

/// Reads a clock.
pub(crate) fn clock(clock: libc::clockid_t) -> io::Result<std::time::Duration> {
    let mut now = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: the place is valid to write.
    check_int(unsafe { libc::clock_gettime(clock, &mut now) })?;
    Ok(std::time::Duration::new(
        now.tv_sec.cast_unsigned(),
        now.tv_nsec as u32,
    ))
}

/// Sleeps until a child signal is pending, and consumes it. The signal must be blocked.
pub(crate) fn wait_for_signal() {
    // SAFETY: a signal set is plain numbers, for which all zeroes is a valid value.
    let mut set: libc::sigset_t = unsafe { std::mem::zeroed() };
    // SAFETY: `set` is a live set.
    unsafe { libc::sigaddset(&mut set, libc::SIGCHLD) };
    // SAFETY: `set` is a live set; which signal came is not asked for.
    unsafe { libc::sigwaitinfo(&set, ptr::null_mut()) };
}

/// Blocks the child signal, so that it stays pending for [`wait_for_signal`].
pub(crate) fn block_child_signal() -> io::Result<()> {
    // SAFETY: a signal set is plain numbers, for which all zeroes is a valid value.
    let mut set: libc::sigset_t = unsafe { std::mem::zeroed() };
    // SAFETY: `set` is a live set.
    check_int(unsafe { libc::sigaddset(&mut set, libc::SIGCHLD) })?;
    // SAFETY: `set` is a live set; the old mask is not asked for.
    check_int(unsafe { libc::sigprocmask(libc::SIG_BLOCK, &set, ptr::null_mut()) }).map(drop)
}

/// Reads the pending signals of a signalfd, without blocking.
pub(crate) fn take_signals(fd: BorrowedFd<'_>) -> Vec<libc::c_int> {
    let taken = take_signals_with_senders(fd).into_iter();
    taken.map(|(signal, _)| signal).collect()
}

/// Returns the same as [`take_signals`], with the senders' pids: 0 for processes outside the current pid
/// namespace.
pub(crate) fn take_signals_with_senders(fd: BorrowedFd<'_>) -> Vec<(libc::c_int, u32)> {
    let mut taken = Vec::new();
    loop {
        // SAFETY: signalfd_siginfo is plain numbers, for which all zeroes is a valid value.
        let mut info: libc::signalfd_siginfo = unsafe { std::mem::zeroed() };
        let size = size_of::<libc::signalfd_siginfo>();
        // SAFETY: the place is valid to write and of the size given.
        let read = unsafe { libc::read(fd.as_raw_fd(), ptr::addr_of_mut!(info).cast(), size) };
        if read != size as isize {
            return taken;
        }
        taken.push((info.ssi_signo as libc::c_int, info.ssi_pid));
    }
}
