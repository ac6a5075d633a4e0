//! Pseudoterminals: pts(4), ioctl_tty(2).

use std::fs::{File, OpenOptions};
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::OpenOptionsExt;

use super::check_int;

/// Opens a new pseudoterminal. Returns its master and its slave.
pub(crate) fn open_terminal() -> io::Result<(OwnedFd, OwnedFd)> {
    let master = open("/dev/ptmx")?;
    let unlocked: libc::c_int = 0;
    // SAFETY: TIOCSPTLCK reads one int.
    check_int(unsafe { libc::ioctl(master.as_raw_fd(), libc::TIOCSPTLCK, &raw const unlocked) })?;
    let mut number: libc::c_uint = 0;
    // SAFETY: TIOCGPTN writes one unsigned int.
    check_int(unsafe { libc::ioctl(master.as_raw_fd(), libc::TIOCGPTN, &raw mut number) })?;
    let slave = open(&format!("/dev/pts/{number}"))?;
    Ok((master.into(), slave.into()))
}

fn open(path: &str) -> io::Result<File> {
    let mut options = OpenOptions::new();
    options.read(true).write(true).custom_flags(libc::O_NOCTTY);
    options.open(path)
}

/// Sets the size of a terminal, in characters. The kernel sends SIGWINCH to its foreground process group.
pub(crate) fn resize_terminal(terminal: BorrowedFd<'_>, columns: u16, rows: u16) -> io::Result<()> {
    let size = libc::winsize {
        ws_row: rows,
        ws_col: columns,
        ws_xpixel: 0,
        ws_ypixel: 0,
    };
    // SAFETY: TIOCSWINSZ reads one winsize.
    check_int(unsafe { libc::ioctl(terminal.as_raw_fd(), libc::TIOCSWINSZ, &raw const size) }).map(drop)
}

/// Makes the terminal at standard input the controlling terminal of the calling session leader.
pub(crate) fn control_terminal() -> io::Result<()> {
    // SAFETY: a plain call on a descriptor that callers have put there.
    check_int(unsafe { libc::ioctl(libc::STDIN_FILENO, libc::TIOCSCTTY, 0) }).map(drop)
}
