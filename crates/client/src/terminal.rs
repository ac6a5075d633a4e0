//! The caller's own terminal: raw while a process of a sandbox runs in it.

use std::io::{self, IsTerminal};

use rustix::termios::{OptionalActions, Termios, tcgetattr, tcgetwinsize, tcsetattr};

/// Returns the size of the terminal at standard output, or at standard input: columns, rows.
pub fn size() -> Option<(u16, u16)> {
    let found = tcgetwinsize(io::stdout())
        .or_else(|_| tcgetwinsize(io::stdin()))
        .ok()?;
    (found.ws_col > 0 && found.ws_row > 0).then_some((found.ws_col, found.ws_row))
}

/// The terminal at standard input in raw mode: every key goes to the program, Ctrl-C included. Restored on drop.
#[derive(Debug)]
pub struct RawMode(Termios);

impl RawMode {
    /// Switches the terminal to raw mode. `None` if standard input is not a terminal.
    ///
    /// # Errors
    /// If the terminal refuses.
    pub fn enter() -> io::Result<Option<Self>> {
        if !io::stdin().is_terminal() {
            return Ok(None);
        }
        let before = tcgetattr(io::stdin())?;
        let mut raw = before.clone();
        raw.make_raw();
        tcsetattr(io::stdin(), OptionalActions::Drain, &raw)?;
        Ok(Some(Self(before)))
    }
}

impl Drop for RawMode {
    fn drop(&mut self) {
        // A terminal that is gone needs no restoring.
        let _ = tcsetattr(io::stdin(), OptionalActions::Drain, &self.0);
    }
}
