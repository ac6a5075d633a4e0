//! A launcher with everything needed to start guests in it.

pub(super) mod guests;
mod preloaded;
mod python;
mod renewal;
mod zygote;

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use ringfence_cgroup::Group;
use ringfence_jail::START_BYTE;
use ringfence_jail::protocol::Guest as Origin;
use ringfence_policy::{Language, Limits, Network, PACKAGES, Request, Trusted};
use tokio::task::JoinSet;

use super::command::command;
use super::confinement::{self, Accounting, Strength};
use super::error::Error;
use super::extra::Extra;
use super::guest::{self, Groups, Guest, Plan, check_groups};
use super::image;
use super::initial_files::InitialFiles;
use super::launcher::LauncherClient;
use super::layout::{self, WritableDirs};
use super::notice;
use super::pool::WorkerPool;
use super::settings::{Fence, Settings};
use super::user::{NOBODY, effective_uid};
use super::view::View;
use super::workdir::Workdir;
use crate::trust::{self, Conflict};
use guests::GuestOptions;
use preloaded::Preloaded;
use renewal::Renewal;

/// A launcher with everything needed to start guests in it.
#[derive(Debug)]
pub(super) struct LauncherState {
    launcher: Arc<LauncherClient>,
    /// Tasks of the launcher: its event pump, and those of its pool and zygote.
    tasks: Mutex<JoinSet<()>>,
    dirs: WritableDirs,
    extra: Extra,
    strength: Strength,
    groups: Option<Arc<Groups>>,
    /// Control group created for the first guest, and its limits.
    first: Mutex<Option<(Limits, Group)>>,
    pool: OnceLock<Arc<WorkerPool>>,
    zygote_renewal: Arc<Renewal>,
    /// Directory of the packages that its guests see, as it was at opening.
    packages: Option<DirectoryIdentity>,
    preloaded: OnceLock<Preloaded>,
    warnings: Vec<String>,
    /// The protected paths at opening.
    view: View,
    /// A session's trusted paths, and those of them that could get into its trees. Computed when first
    /// needed.
    near: OnceLock<(Trusted, Trusted)>,
}

impl LauncherState {
    pub(super) fn new(
        launcher: LauncherClient,
        dirs: WritableDirs,
        extra: Extra,
        strength: Strength,
        groups: Option<Arc<Groups>>,
    ) -> Self {
        let launcher = Arc::new(launcher);
        let mut tasks = JoinSet::new();
        let pumped = Arc::clone(&launcher);
        tasks.spawn(async move { pumped.pump().await });
        let view = View::of(&extra);
        let packages = packages(&extra);
        Self {
            view,
            near: OnceLock::new(),
            launcher,
            tasks: Mutex::new(tasks),
            dirs,
            extra,
            strength,
            groups,
            first: Mutex::default(),
            pool: OnceLock::new(),
            zygote_renewal: Arc::default(),
            packages,
            preloaded: OnceLock::new(),
            warnings: Vec::new(),
        }
    }

    /// Sets the control group of the first guest.
    pub(super) fn beginning_with(mut self, group: Option<(Limits, Group)>) -> Self {
        self.first = Mutex::new(group);
        self
    }

    /// Returns `true` if the mounts still protect the right paths: a mount keeps showing the old file, or is
    /// gone, when the path was replaced.
    pub(super) fn keeps_what_is_there(&self) -> bool {
        if self.packages != packages(&self.extra) {
            return false;
        }
        if self.extra.workspace.is_none() {
            return true;
        }
        let mut extra = self.extra.clone();
        extra.keep().is_ok()
            && extra.trees == self.extra.trees
            && View::of(&extra) == self.view
            && extra.top.closed == self.extra.top.closed
    }

    /// Returns a path that guests must not write any more, and that their view does not keep from them: it
    /// appeared, or was replaced, after the launcher was opened.
    ///
    /// # Errors
    /// If a path can no longer be kept from them at all.
    pub(super) fn unkept(&self, trusted: &Trusted) -> Result<Option<PathBuf>, Conflict> {
        if self.extra.writable().next().is_none() {
            return Ok(None);
        }
        let mut now = self.extra.clone();
        now.trusted.extend(trusted);
        let near = || trust::near(self.extra.writable().map(|(host, _)| host), &now.trusted);
        let (all, near) = self.near.get_or_init(|| (now.trusted.clone(), near()));
        if *all == now.trusted {
            now.trusted.clone_from(near);
        }
        now.keep()?;
        Ok(self.view.unkept(&self.extra, &now))
    }

    /// Returns `true` if guests live in cells.
    pub(super) fn has_cells(&self) -> bool {
        self.dirs == WritableDirs::Cell
    }

    /// Returns `true` while the launcher lives.
    pub(super) fn is_open(&self) -> bool {
        self.launcher.is_open()
    }

    /// Adds warnings to every result of this launcher.
    pub(super) fn warn(&mut self, warnings: impl IntoIterator<Item = String>) {
        self.warnings.extend(warnings);
    }

    /// Waits until the pool is full; `false` if there is no pool, or no usable interpreter to fill it from.
    pub(super) async fn warmed_up(&self) -> bool {
        let Some(pool) = self.pool.get() else {
            return false;
        };
        tokio::select! {
            () = pool.filled() => true,
            () = self.zygote_renewal.given_up.notified() => false,
        }
    }

    /// Requests the launcher to exit with all guests.
    pub(super) fn end(&self) {
        self.launcher.end();
    }

    /// Triggers a refill of the pool after a run took a worker, and the start of an interpreter with packages if it had
    /// none.
    pub(super) fn refill(&self) {
        self.preload_packages();
        if let Some(pool) = self.pool.get() {
            pool.refill();
        }
    }

    /// Keeps the group of a guest that is gone for another one, or removes it.
    fn keep(&self, group: Group) {
        match self.pool.get() {
            Some(pool) => pool.keep(group),
            // Leftovers are removed by the sweep of the next start.
            None => drop(group.close()),
        }
    }

    /// Returns the warnings for a run in this launcher.
    pub(super) fn warnings(&self) -> Vec<String> {
        let mut warnings = self.warnings.clone();
        if let (WritableDirs::Directory(_), Strength::Full(_), Some(workspace)) =
            (&self.dirs, self.strength, &self.extra.workspace)
        {
            warnings.extend(workspace.warnings(&self.extra.top, self.guest_user()));
        }
        warnings.extend(self.extra.top.warning());
        warnings
    }

    /// Returns the warnings about modules that could not be preloaded.
    pub(super) fn preload_warnings(&self, language: Language) -> Vec<String> {
        let failed = match language {
            Language::Python => self.launcher.failed_modules(),
            Language::Bash | Language::Javascript | Language::Command => Vec::new(),
        };
        let packages = match language {
            Language::Python => self.preload_failure().map(notice::packages_not_preloaded),
            Language::Bash | Language::Javascript | Language::Command => None,
        };
        failed.iter().map(notice::not_preloaded).chain(packages).collect()
    }

    /// Returns the user id of guests on the host, if it differs from the server's.
    fn guest_user(&self) -> Option<u32> {
        let fenced = matches!(self.strength, Strength::Full(_));
        (fenced && self.dirs != WritableDirs::Cell && effective_uid() == Some(0)).then_some(NOBODY)
    }

    /// Checks that the launcher is as strong as a request requires.
    pub(super) fn check_fence(&self, fence: Fence) -> Result<(), Error> {
        if fence != Fence::Required {
            return Ok(());
        }
        match &self.dirs {
            WritableDirs::Directory(_) => Err(Error::NamespacesForbidden {
                step: "make namespaces".to_owned(),
                errno: 1,
            }),
            WritableDirs::Cell => check_groups(self.groups.as_ref()),
        }
    }

    /// Starts a command.
    pub(super) async fn command_guest(
        &self,
        request: &Request,
        options: GuestOptions<'_>,
        settings: &Settings,
    ) -> Result<(Guest, Start), Error> {
        let directory = self.directory(settings)?;
        let dirs = self.dirs_in(directory.as_ref());
        let environment = match self.strength {
            Strength::Nothing => host_environment(request),
            Strength::Full(_) | Strength::Limits => environment(&dirs, &self.extra, request),
        };
        let (executable, arguments) = command(request, &environment)?;
        let program = layout::program(&executable, arguments, environment);
        let text = Text::Job(vec![START_BYTE]);
        let terms = Terms {
            below: request.working_directory.as_deref(),
            ..Terms::of(request).with_options(options)
        };
        self.start(Origin::Exec(program), text, terms, directory)
            .await
            .map(|guest| (guest, Start::Cold))
    }

    /// Starts the init of a sandbox.
    pub(super) async fn sandbox(&self, request: &Request) -> Result<Guest, Error> {
        if !self.has_cells() {
            return Err(Error::NeedsNamespaces { what: "a sandbox" });
        }
        let environment = environment(&self.dirs, &self.extra, request);
        let home = self.extra.account.workspace_alias().map(PathBuf::from);
        let origin = Origin::Sandbox { environment, home };
        self.start(origin, Text::Job(Vec::new()), Terms::of(request), None)
            .await
    }

    async fn start(
        &self,
        origin: Origin,
        text: Text,
        terms: Terms<'_>,
        directory: Option<Workdir>,
    ) -> Result<Guest, Error> {
        let executable = match &origin {
            Origin::Exec(program) => Some(program.executable.display().to_string()),
            Origin::Fork | Origin::Session { .. } | Origin::ForkOf { .. } | Origin::Sandbox { .. } => None,
        };
        let below = terms.below.map(Path::to_path_buf);
        let plan = self.plan(origin, text, terms, directory);
        guest::start(&self.launcher, self.groups.as_deref(), plan)
            .await
            .map_err(|error| match (error, executable, below) {
                (Error::Fence { step, errno }, Some(program), _) if step == "start the program" => {
                    Error::Program { program, errno }
                }
                (Error::Fence { step, errno }, _, Some(directory))
                    if step == "enter the working directory" =>
                {
                    Error::WorkingDirectory { directory, errno }
                }
                (error, ..) => error,
            })
    }

    fn plan(&self, origin: Origin, text: Text, terms: Terms<'_>, directory: Option<Workdir>) -> Plan {
        let dirs = self.dirs_in(directory.as_ref());
        let mut confinement = self.confinement(terms.limits, &dirs);
        if terms.has_network {
            confinement = confinement::networked(confinement);
        }
        if matches!(origin, Origin::Session { .. } | Origin::ForkOf { .. }) {
            confinement = confinement::forkable(confinement);
        }
        if matches!(origin, Origin::Sandbox { .. }) {
            confinement = confinement::inhabited(confinement);
        }
        if matches!(origin, Origin::Fork) && self.groups.is_some() {
            confinement = confinement::announced(confinement);
        }
        // A workspace is where its caller wants the program to work.
        if let (Some(image), None) = (&self.extra.image, &self.extra.workspace)
            && let Some(directory) = &image.working_directory
        {
            confinement.working_directory.clone_from(directory);
        }
        if let Some(below) = terms.below {
            confinement.working_directory.push(below);
        }
        let group = match origin.needs_freezer() {
            true => None,
            false => self.first_group(terms.limits),
        };
        let (code, job) = match text {
            Text::File { name, text } => (Some((name, text)), vec![START_BYTE]),
            Text::Job(job) => (None, job),
            Text::OnHost => (None, vec![START_BYTE]),
        };
        Plan {
            origin,
            code,
            confinement,
            limits: *terms.limits,
            group,
            listen: terms.has_network.then_some(layout::PROXY_PORT),
            directory,
            job,
            initial_files: terms.initial_files.map(Arc::clone),
        }
    }

    fn first_group(&self, limits: &Limits) -> Option<Group> {
        let mut first = self.first.lock().unwrap_or_else(PoisonError::into_inner);
        let (_, group) = first.take_if(|(made_for, _)| made_for == limits)?;
        Some(group)
    }

    fn confinement(&self, limits: &Limits, dirs: &WritableDirs) -> ringfence_jail::protocol::Confinement {
        let accounting = if self.groups.is_some() {
            Accounting::ControlGroup
        } else {
            Accounting::Rlimits
        };
        confinement::confinement(dirs, &self.extra, limits, accounting, self.strength)
    }

    /// Returns the confinement of idle workers.
    fn worker_confinement(&self, limits: &Limits) -> ringfence_jail::protocol::Confinement {
        let confinement = self.confinement(limits, &WritableDirs::Cell);
        match self.groups {
            Some(_) => confinement::announced(confinement),
            None => confinement,
        }
    }

    /// Creates the host directory of a guest that has no cell.
    fn directory(&self, settings: &Settings) -> Result<Option<Workdir>, Error> {
        if self.dirs == WritableDirs::Cell {
            return Ok(None);
        }
        Workdir::create(&settings.scratch, self.guest_user())
            .map(Some)
            .map_err(Error::Directory)
    }

    fn dirs_in(&self, directory: Option<&Workdir>) -> WritableDirs {
        directory.map_or(WritableDirs::Cell, |directory| {
            WritableDirs::Directory(directory.path().to_path_buf())
        })
    }

    /// Ends the launcher with everything in it, and waits for that.
    pub(super) async fn close(self) {
        if let Some(preloaded) = self.preloaded.into_inner() {
            preloaded.close().await;
        }
        let mut tasks = self.tasks.into_inner().unwrap_or_else(PoisonError::into_inner);
        tasks.shutdown().await;
        let (idle, spare) = self.pool.get().map(|pool| pool.empty()).unwrap_or_default();
        drop(self.pool);
        let groups: Vec<_> = idle
            .into_iter()
            .filter_map(|mut guest| {
                // The launcher ends all at once; only the groups are removed one by one.
                guest.group.take()
            })
            .chain(spare)
            .collect();
        if let Some(launcher) = Arc::into_inner(self.launcher) {
            // The launcher exits at once: the kernel kills everything below it.
            let _ = tokio::task::spawn_blocking(move || launcher.close()).await;
        }
        for group in groups {
            let _ = group.close();
        }
    }
}

/// The device and number of a directory, which no other has while it is mounted.
type DirectoryIdentity = (u64, u64);

/// Returns the identity of the mounted directory of packages.
fn packages(extra: &Extra) -> Option<DirectoryIdentity> {
    let mount = extra
        .mounts
        .iter()
        .find(|mount| mount.guest() == Path::new(PACKAGES))?;
    let found = fs::metadata(&mount.host).ok()?;
    Some((found.dev(), found.ino()))
}

/// Kills the rest of a guest, and closes the launcher if it has no other user. The sweep at the next start
/// removes leftovers.
pub(super) async fn clear_up(served: Arc<LauncherState>, guest: Option<Guest>) {
    served.refill();
    match (Arc::try_unwrap(served), guest) {
        // The launcher served only this guest, and takes it down with it.
        (Ok(served), Some(guest)) => {
            let remains = guest.leave_to_lane();
            served.close().await;
            let _ = remains.clear().await;
        }
        (Ok(served), None) => served.close().await,
        (Err(served), guest) => {
            if let Some(guest) = guest
                && let Some(group) = guest.leave().await
            {
                served.keep(group);
            }
            // Held until here: a guest's end is told by its launcher, which must not be closed before.
            if let Some(served) = Arc::into_inner(served) {
                served.close().await;
            }
        }
    }
}

/// The start of a guest.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Start {
    /// The guest's program was executed.
    Cold,
    /// The guest was forked from the zygote, or taken from the pool.
    Warm,
    /// The guest was forked from an interpreter that had imported its packages.
    Preloaded,
}

/// The origin of a session's interpreter.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum SessionOrigin {
    /// Forked from an interpreter that had imported its packages: it can be forked again.
    Preloaded,
    /// Forked from the zygote or from another session: it can be forked again.
    Forked,
    /// Started by exec.
    Started,
}

/// The parts of a request that affect confinement.
#[derive(Debug, Clone, Copy)]
struct Terms<'a> {
    limits: &'a Limits,
    /// Working directory, relative to the workspace.
    below: Option<&'a Path>,
    /// Set if the program may reach the proxy.
    has_network: bool,
    /// Files that it finds when it begins.
    initial_files: Option<&'a Arc<InitialFiles>>,
}

impl<'a> Terms<'a> {
    fn of(request: &'a Request) -> Self {
        Self {
            limits: &request.limits,
            below: None,
            has_network: request.network != Network::None,
            initial_files: None,
        }
    }

    fn with_options(self, options: GuestOptions<'a>) -> Self {
        Self {
            initial_files: options.initial_files,
            ..self
        }
    }
}

/// The way in which a guest gets the program's text.
enum Text {
    /// A job on its control descriptor.
    Job(Vec<u8>),
    /// A file in its cell.
    File { name: String, text: String },
    /// A file in its directory on the host, written before.
    OnHost,
}

fn environment(dirs: &WritableDirs, extra: &Extra, request: &Request) -> Vec<(String, String)> {
    let mut environment = dirs.environment(extra);
    if let Some(image) = &extra.image {
        image::add_variables(image, &mut environment);
    }
    for (name, value) in &request.env {
        environment.retain(|(other, _)| other != name.as_str());
        environment.push((name.as_str().to_owned(), value.clone()));
    }
    environment
}

/// Returns the environment of a host command: exactly the request's, with a default `PATH`.
fn host_environment(request: &Request) -> Vec<(String, String)> {
    let given = request.env.iter();
    let mut environment: Vec<_> = given
        .map(|(name, value)| (name.as_str().to_owned(), value.clone()))
        .collect();
    if !environment.iter().any(|(name, _)| name == "PATH") {
        environment.push(("PATH".to_owned(), layout::PATH.to_owned()));
    }
    environment
}
