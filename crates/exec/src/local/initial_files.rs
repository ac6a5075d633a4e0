//! The files that a program finds in its directories when it begins.

use std::borrow::Cow;
use std::fs::File;
use std::io;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use ringfence_policy::{Access, Mount, Request};

use super::destination::{Destination, handle};
use super::error::Error;
use super::host_output::HostOutput;
use super::output_files;

/// Guest path of the directory that files are copied to.
const WORKSPACE: &str = "/workspace";

/// The files that a program finds when it begins: those that its request brings, in `/workspace`, and those of earlier
/// programs, in `/output`.
#[derive(Debug)]
pub(super) struct InitialFiles {
    request_files: RequestFiles,
    host_output: Option<Arc<HostOutput>>,
}

/// Host directories whose files a request brings.
#[derive(Debug, Clone, Default)]
pub(super) struct RequestFiles {
    directories: Vec<PathBuf>,
    /// Disk limit of the program.
    disk: u64,
}

impl InitialFiles {
    /// Returns `None` if there are no files.
    pub(super) fn new(
        request_files: RequestFiles,
        host_output: Option<&Arc<HostOutput>>,
    ) -> Option<Arc<Self>> {
        let host_output = host_output.filter(|host_output| host_output.has_files()).cloned();
        let has_some = host_output.is_some() || !request_files.directories.is_empty();
        has_some.then(|| {
            Arc::new(Self {
                request_files,
                host_output,
            })
        })
    }

    /// Copies the files to the directories of a program that has not begun, given the result of opening its `/output`.
    ///
    /// # Errors
    /// If the files of the request cannot be copied. Those of earlier programs are left out with warnings.
    pub(super) async fn copy_to(&self, output: io::Result<OwnedFd>) -> Result<(), Error> {
        let output = output.map_err(Error::Files)?;
        if let Some(host_output) = &self.host_output {
            host_output.fill_new(output.try_clone()).await;
        }
        self.request_files.copy_to(output).await
    }
}

impl RequestFiles {
    /// Takes the mounts of which the program gets a copy in its workspace out of a request.
    pub(super) fn of<'a>(request: &'a Request) -> (Cow<'a, Request>, Self) {
        let is_copied = |mount: &Mount| mount.access == Access::Copy && mount.guest() == Path::new(WORKSPACE);
        let (copied, mounts): (Vec<Mount>, Vec<Mount>) = request.mounts.iter().cloned().partition(is_copied);
        if copied.is_empty() {
            return (Cow::Borrowed(request), Self::default());
        }
        let request_files = Self {
            directories: copied.into_iter().map(|mount| mount.host).collect(),
            disk: request.limits.disk.0,
        };
        let request = Request {
            mounts,
            ..request.clone()
        };
        (Cow::Owned(request), request_files)
    }

    /// Copies the files to the workspace beside a program's `/output`.
    ///
    /// # Errors
    /// If one cannot be copied.
    pub(super) async fn copy_to(&self, output: OwnedFd) -> Result<(), Error> {
        if self.directories.is_empty() {
            return Ok(());
        }
        let request_files = self.clone();
        let copying = tokio::task::spawn_blocking(move || request_files.copy(output));
        let copied = copying
            .await
            .unwrap_or_else(|panicked| Err(io::Error::other(panicked)));
        copied.map_err(Error::Files)
    }

    fn copy(&self, output: OwnedFd) -> io::Result<()> {
        let output = File::from(output);
        let workspace = output_files::open_directory(&handle(&output).join("../workspace"))?;
        let workspace = Destination::in_cell(workspace)?;
        for directory in &self.directories {
            let source = output_files::open_directory(directory);
            let copied = output_files::collect_from(source, Some(&workspace), self.disk);
            if let Some(why) = copied.warnings.into_iter().next() {
                return Err(io::Error::other(why));
            }
        }
        Ok(())
    }
}
