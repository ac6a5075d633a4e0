//! Tests each layer in a process of its own, to report which one does not work on this machine.

use std::collections::HashMap;
use std::io;
use std::os::fd::AsFd;

use crate::client::{Launcher, START_DEADLINE, StartError};
use crate::protocol::{LauncherSpec, MAX_MESSAGE};
use crate::sys;
pub use crate::trials::{Layer, Trial};

/// The error if no layer could be tested.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The test process could not be started.
    #[error(transparent)]
    Start(#[from] StartError),
    /// The test process did not answer.
    #[error("the probe process gave no answer")]
    Answer(#[source] io::Error),
}

/// Tests every layer in a process of its own.
///
/// # Errors
/// If there is no such process. A failing layer is part of the result.
pub fn try_layers() -> Result<HashMap<Layer, Trial>, Error> {
    let launcher = Launcher::start(&LauncherSpec::Probe)?;
    if !launcher.wait(START_DEADLINE).map_err(Error::Answer)? {
        launcher.kill().map_err(Error::Answer)?;
        return Err(Error::Answer(io::ErrorKind::TimedOut.into()));
    }
    let mut buffer = vec![0; MAX_MESSAGE];
    let (length, _) = sys::receive_message(launcher.as_fd(), &mut buffer).map_err(Error::Answer)?;
    let trials: Vec<(Layer, Trial)> = serde_json::from_slice(&buffer[..length])
        .map_err(io::Error::other)
        .map_err(Error::Answer)?;
    launcher.close().map_err(Error::Answer)?;
    Ok(trials.into_iter().collect())
}
