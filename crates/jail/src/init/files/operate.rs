//! Performs file operations on the streams of the process.

use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::os::fd::AsFd;
use std::path::Path;

use super::CHANGES_FD;
use super::archive::{archive, pack, pack_root};
use super::cancel;
use super::connect::connect;
use super::copy::copy;
use super::directory::FileOwner;
use super::error::{At, FileError};
use super::extract::{extract, extract_root};
use super::list::{line, list, stat};
use super::make_directory::make_directory;
use super::operation::{Operation, stages};
use super::read::read;
use super::remove::remove;
use super::rename::rename;
use super::rights;
use super::watch::watch;
use super::write::write;
use crate::sys;

/// Size of the output's buffer: as much as a pipe holds.
const BUFFER: usize = 64 * 1024;

/// Performs an operation with standard input, output and error, as `user` or as the process's own user.
pub(super) fn operate(operation: &Operation, user: Option<FileOwner>) -> Result<(), FileError> {
    let owner = match user {
        None => None,
        Some(user) => rights::take(operation, user)?,
    };
    if stages(&operation.arguments()) {
        cancel::accept().at(Path::new(""))?;
    }
    // std's own streams write at each line's end.
    let input = io::stdin().as_fd().try_clone_to_owned();
    let mut input = File::from(input.at(Path::new("standard input"))?);
    let output = io::stdout().as_fd().try_clone_to_owned();
    let output = File::from(output.at(Path::new("standard output"))?);
    let mut out = BufWriter::with_capacity(BUFFER, output);
    let done = perform(operation, owner, &mut input, &mut out);
    // What came before an error is worth something, too.
    let flushed = out.flush().at(Path::new("standard output"));
    done.and(flushed)
}

/// Performs an operation. `owner` is that of a file to write, if another than the process's user.
pub(super) fn perform(
    operation: &Operation,
    owner: Option<FileOwner>,
    input: &mut File,
    out: &mut dyn Write,
) -> Result<(), FileError> {
    match operation {
        Operation::Stat { path } => line(out, &stat(Path::new(path))?),
        Operation::List { path, depth, after } => {
            list(Path::new(path), *depth, after.as_deref().map(Path::new), out)
        }
        Operation::Read { path, range } => read(Path::new(path), *range, out),
        Operation::Write { path, mode, size } => {
            let entry = write(Path::new(path), *mode, *size, owner, input)?;
            line(out, &entry)
        }
        Operation::MakeDirectory { path } => line(out, &make_directory(Path::new(path))?),
        Operation::Move { from, to } => line(out, &rename(Path::new(from), Path::new(to))?),
        Operation::Copy { from, to } => line(out, &copy(Path::new(from), Path::new(to))?),
        Operation::Remove { path } => remove(Path::new(path)),
        Operation::Watch { path, depth } => watch(Path::new(path), *depth, input, out),
        Operation::Archive { path } => {
            let report = archive(Path::new(path), out)?;
            line(&mut io::stderr(), &report)
        }
        Operation::Pack { paths } => {
            let report = pack(paths, out)?;
            line(&mut io::stderr(), &report)
        }
        Operation::PackRoot { paths } => {
            let changes = sys::inherited(CHANGES_FD).at(Path::new("/"))?;
            let report = pack_root(&changes, paths, out)?;
            line(&mut io::stderr(), &report)
        }
        Operation::ExtractRoot => line(out, &extract_root(Path::new("/"), input)?),
        Operation::Extract { path } => line(out, &extract(Path::new(path), input)?),
        Operation::Connect { port } => {
            let input = input.try_clone().at(Path::new("standard input"))?;
            connect(*port, input, out)
        }
    }
}
