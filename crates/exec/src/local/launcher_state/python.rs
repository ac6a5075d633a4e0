//! Starts Python guests: from the pool, from the zygote, or by starting an interpreter.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use ringfence_jail::protocol::{Guest as Origin, Program};
use ringfence_policy::{Limits, Mount, Network, PACKAGES, Request};
use tokio::io::AsyncWriteExt;

use super::super::error::Error;
use super::super::guest::{self, Guest, PendingGuest};
use super::super::initial_files::InitialFiles;
use super::super::interpreters::python_for;
use super::super::launcher::Zygote;
use super::super::settings::Settings;
use super::super::worker_program::{BYTECODE_BOOT, WORKER};
use super::super::{bytecode, job, layout};
use super::guests::{Attempt, GuestOptions};
use super::{LauncherState, SessionOrigin, Start, Terms, Text, environment};
use crate::interpreter::Python;

/// Timeout of a session for a zygote that is still warming up.
const ZYGOTE_TIMEOUT: std::time::Duration = std::time::Duration::from_secs(5);

impl LauncherState {
    /// Returns a Python for one program, and its start.
    pub(super) async fn python_guest(
        &self,
        request: &Request,
        options: GuestOptions<'_>,
        settings: &Settings,
    ) -> Result<(Guest, Start), Error> {
        let GuestOptions {
            bridged,
            initial_files,
            attempt,
        } = options;
        let job = |variables| {
            let job = job::encode(&request.name, &request.code, &request.args, variables);
            if bridged { job::bridged(&job) } else { job }
        };
        if let Some(guest) = self.preloaded_python(request, || job(&request.env)).await {
            return Ok((with_initial_files(guest, initial_files).await?, Start::Preloaded));
        }
        if let Some(pool) = self.pool.get().filter(|_| attempt == Attempt::First) {
            // Workers of a dead launcher are about to die: none is taken.
            self.launcher.check()?;
            let job = job(&request.env);
            // An idle worker has no network and cannot be given one.
            if request.network == Network::None
                && let Some(mut guest) = pool.take(self.launcher.zygotes(), &request.limits)
            {
                guest.job = job;
                self.zygote_renewal.note_use();
                return Ok((with_initial_files(guest, initial_files).await?, Start::Warm));
            }
            if *self.launcher.zygote().borrow() == Zygote::Warm {
                self.zygote_renewal.count();
                self.zygote_renewal.note_use();
                let terms = Terms::of(request).with_options(options);
                let mut guest = self.start(Origin::Fork, Text::Job(job), terms, None).await?;
                // The worker's greeting is read here, or the bridge would take it for a call.
                if bridged && let Err(error) = guest.greeted().await {
                    // The failure is all there is to report.
                    let _ = guest.close().await;
                    return Err(error);
                }
                return Ok((guest, Start::Warm));
            }
        }
        let job = job(&[]);
        let guest = self
            .cold_python(Terms::of(request).with_options(options), request, settings, job)
            .await?;
        Ok((guest, Start::Cold))
    }

    /// Starts the Python of a session.
    pub(in super::super) async fn session(
        &self,
        request: &Request,
        settings: &Settings,
    ) -> Result<(Guest, SessionOrigin), Error> {
        if let Some(mut guest) = self.preloaded_python(request, Vec::new).await {
            if guest.control.write_all(job::SESSION).await.is_err() {
                // The failure is all there is to report.
                let _ = guest.close().await;
                return Err(Error::LauncherGone);
            }
            return Ok((guest, SessionOrigin::Preloaded));
        }
        // A session lives on while one is started for the next.
        self.preload_packages();
        let mut zygote = self.launcher.zygote();
        // A zygote that is warming up is worth waiting for: only its descendants can be forked again.
        let settled = zygote.wait_for(|state| *state != Zygote::Cold);
        let settled = tokio::time::timeout(ZYGOTE_TIMEOUT, settled);
        if self.pool.get().is_some() && matches!(settled.await, Ok(Ok(state)) if *state == Zygote::Warm) {
            self.zygote_renewal.count();
            self.zygote_renewal.note_use();
            let job = Text::Job(job::SESSION.to_vec());
            let origin = Origin::Session { hidden: Vec::new() };
            let mut guest = self.start(origin, job, Terms::of(request), None).await?;
            return match guest.greeted().await {
                Ok(_) => Ok((guest, SessionOrigin::Forked)),
                Err(error) => {
                    // The failure is all there is to report.
                    let _ = guest.close().await;
                    Err(error)
                }
            };
        }
        let job = job::SESSION.to_vec();
        let terms = Terms::of(request);
        let guest = self.cold_python(terms, request, settings, job).await?;
        Ok((guest, SessionOrigin::Started))
    }

    /// Requests a fork of the session with this number. The session must then be asked to allow the fork.
    pub(in super::super) async fn begin_fork(&self, of: u64, limits: &Limits) -> Result<PendingGuest, Error> {
        let job = Text::Job(Vec::new());
        let terms = Terms {
            limits,
            below: None,
            has_network: false,
            initial_files: None,
        };
        let plan = self.plan(Origin::ForkOf { of }, job, terms, None);
        guest::begin(&self.launcher, self.groups.as_deref(), plan).await
    }

    async fn cold_python(
        &self,
        terms: Terms<'_>,
        request: &Request,
        settings: &Settings,
        job: Vec<u8>,
    ) -> Result<Guest, Error> {
        let python = python_for(&self.extra, settings)?;
        let directory = self.directory(settings)?;
        let dirs = self.dirs_in(directory.as_ref());
        let workspace = dirs.workspace(&self.extra);
        let compiled = bytecode::message(&python, settings);
        let text = if compiled.is_some() { BYTECODE_BOOT } else { WORKER };
        let python = with_packages(python, &self.extra.mounts);
        let arguments = worker_arguments(&python, text, &workspace);
        let program = Program {
            reads_job: true,
            ..layout::program(
                &python.executable,
                arguments,
                environment(&dirs, &self.extra, request),
            )
        };
        let job = [compiled.unwrap_or_default(), job].concat();
        self.start(Origin::Exec(program), Text::Job(job), terms, directory)
            .await
    }
}

/// Copies the files that a program finds to its idle worker, before the job is sent.
async fn with_initial_files(
    worker: Guest,
    initial_files: Option<&Arc<InitialFiles>>,
) -> Result<Guest, Error> {
    let Some(initial_files) = initial_files else {
        return Ok(worker);
    };
    if let Err(error) = initial_files.copy_to(worker.output.open()).await {
        // The failure is all there is to report.
        let _ = worker.close().await;
        return Err(error);
    }
    Ok(worker)
}

/// Adds the packages of a run to the module search path, after the standard library and before the
/// interpreter's own.
pub(super) fn with_packages(mut python: Python, mounts: &[Mount]) -> Python {
    let packages = Path::new(PACKAGES);
    if mounts.iter().any(|mount| mount.guest() == packages) {
        let is_own = |path: &PathBuf| path.ends_with("site-packages") || path.ends_with("dist-packages");
        let own = python.search_path.iter().position(is_own);
        let at = own.unwrap_or(python.search_path.len());
        python.search_path.insert(at, packages.to_owned());
    }
    python
}

pub(super) fn worker_arguments(python: &Python, text: &str, workspace: &Path) -> Vec<String> {
    let mut search_path = vec![workspace.display().to_string()];
    search_path.extend(python.search_path.iter().map(|path| path.display().to_string()));
    let mut arguments: Vec<String> = ["-I", "-S", "-B", "-X", "utf8", "-c", text]
        .into_iter()
        .map(str::to_owned)
        .collect();
    arguments.push(search_path.join("\n"));
    arguments
}
