//! A process that answers lines of its standard input.

use std::io::{self, BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use anyhow::Context as _;

/// A process with pipes; dropped, it is told the end of its input and waited for.
#[derive(Debug)]
pub(super) struct LineProcess {
    child: Child,
    stdin: Option<ChildStdin>,
    stdout: BufReader<ChildStdout>,
    line: String,
}

impl LineProcess {
    pub(super) fn start(command: &mut Command) -> anyhow::Result<Self> {
        let started = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn();
        let name = command.get_program().to_string_lossy();
        let mut child = started.with_context(|| format!("starting {name}"))?;
        let stdout = child.stdout.take().context("its standard output")?;
        Ok(Self {
            stdin: child.stdin.take(),
            child,
            stdout: BufReader::new(stdout),
            line: String::new(),
        })
    }

    pub(super) fn send(&mut self, line: &str) -> io::Result<()> {
        let stdin = self.stdin.as_mut().ok_or(io::ErrorKind::BrokenPipe)?;
        stdin.write_all(format!("{line}\n").as_bytes())
    }

    /// Returns the next line of its output; `None` at the end.
    pub(super) fn receive(&mut self) -> io::Result<Option<&str>> {
        self.line.clear();
        let length = self.stdout.read_line(&mut self.line)?;
        Ok((length > 0).then_some(self.line.trim_end()))
    }
}

impl Drop for LineProcess {
    fn drop(&mut self) {
        drop(self.stdin.take());
        let _ = self.child.wait();
    }
}
