//! A launcher with everything needed to start guests in it.

mod python;

use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use ringfence_jail::cgroup::Group;
use ringfence_jail::protocol::Guest as Origin;
use ringfence_policy::{Language, Limits, Network, Request, Trusted};
use tokio::sync::{Notify, watch};
use tokio::task::JoinSet;

use super::found::{command, python_for, script};
use super::guest::{self, Groups, Guest, Plan};
use super::launcher::{LauncherClient, Zygote};
use super::launchers::check_groups;
use super::layout::{self, Accounting, Extra, Places, Strength};
use super::pool::WorkerPool;
use super::view::View;
use super::workdir::Workdir;
use super::{Error, Fence, Settings, Warmth, network, notice};
use crate::trust::{self, Conflict};

pub(super) use python::WORKER;
use python::WarmPython;

/// Extension library that a zygote's interpreter loads; built by `build.rs`.
const EXTENSION: &[u8] = include_bytes!(env!("RINGFENCE_EXTENSION"));

/// Maximum number of restarts of a zygote that exits by itself.
const MAX_REVIVALS: u32 = 5;

/// A launcher with everything needed to start guests in it.
#[derive(Debug)]
pub(super) struct LauncherState {
    lane: Arc<LauncherClient>,
    /// Tasks of the launcher: its event pump, and those of its pool and zygote.
    tasks: Mutex<JoinSet<()>>,
    places: Places,
    extra: Extra,
    strength: Strength,
    groups: Option<Arc<Groups>>,
    /// Control group created for the first guest, and its limits.
    first: Mutex<Option<(Limits, Group)>>,
    pool: OnceLock<Arc<WorkerPool>>,
    zygote_renewal: Arc<Renewal>,
    warnings: Vec<String>,
    /// The protected paths at opening.
    view: View,
    /// A session's trusted paths, and those of them that could come to lie in its trees: determined when first
    /// needed.
    near: OnceLock<(Trusted, Trusted)>,
}

/// Idle time of a launcher before its zygote is replaced.
const REST: std::time::Duration = std::time::Duration::from_secs(1);

/// A fork counter that signals when a zygote is due for replacement.
#[derive(Debug, Default)]
struct Renewal {
    forks: AtomicU64,
    after: AtomicU64,
    due: Notify,
    /// Number of guests that were given a program.
    uses: AtomicU64,
    used: Notify,
    /// Signalled when no zygote will be started any more.
    given_up: Notify,
}

impl Renewal {
    /// Notes that a guest was given a program, which can learn all state that its zygote's workers share.
    fn note_use(&self) {
        self.uses.fetch_add(1, Ordering::Relaxed);
        self.used.notify_one();
    }

    /// Resolves after guests were used and then none for a while: replacing the zygote then delays nobody.
    async fn rested(&self) {
        self.used.notified().await;
        let mut uses = None;
        while uses != Some(self.uses.load(Ordering::Relaxed)) {
            uses = Some(self.uses.load(Ordering::Relaxed));
            tokio::time::sleep(REST).await;
        }
    }

    fn count(&self) {
        let after = self.after.load(Ordering::Relaxed);
        if after > 0 && self.forks.fetch_add(1, Ordering::Relaxed) + 1 >= after {
            self.forks.store(0, Ordering::Relaxed);
            self.due.notify_one();
        }
    }
}

impl LauncherState {
    pub(super) fn new(
        lane: LauncherClient,
        places: Places,
        extra: Extra,
        strength: Strength,
        groups: Option<Arc<Groups>>,
    ) -> Self {
        let lane = Arc::new(lane);
        let mut tasks = JoinSet::new();
        let pumped = Arc::clone(&lane);
        tasks.spawn(async move { pumped.pump().await });
        let view = View::of(&extra);
        Self {
            view,
            near: OnceLock::new(),
            lane,
            tasks: Mutex::new(tasks),
            places,
            extra,
            strength,
            groups,
            first: Mutex::default(),
            pool: OnceLock::new(),
            zygote_renewal: Arc::default(),
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
        self.places == Places::Cell
    }

    /// Returns `true` while the launcher lives.
    pub(super) fn is_open(&self) -> bool {
        self.lane.is_open()
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

    /// Tells the launcher to exit with all guests.
    pub(super) fn end(&self) {
        self.lane.end();
    }

    /// Triggers a refill of the pool after a run took a worker.
    pub(super) fn refill(&self) {
        if let Some(pool) = self.pool.get() {
            pool.refill();
        }
    }

    /// Returns the warnings for a run in this launcher.
    pub(super) fn warnings(&self) -> Vec<String> {
        let mut warnings = self.warnings.clone();
        if let (Places::Directory(_), Strength::Full(_), Some(workspace)) =
            (&self.places, self.strength, &self.extra.workspace)
        {
            warnings.extend(workspace.warnings(&self.extra.top, self.guest_user()));
        }
        warnings.extend(self.extra.top.warning());
        warnings
    }

    /// Returns the warnings about modules that could not be preloaded.
    pub(super) fn preload_warnings(&self, language: Language) -> Vec<String> {
        let failed = match language {
            Language::Python => self.lane.failed_modules(),
            _ => Vec::new(),
        };
        failed.iter().map(notice::not_preloaded).collect()
    }

    /// Returns the user id of guests on the host, if it differs from ours.
    fn guest_user(&self) -> Option<u32> {
        let fenced = matches!(self.strength, Strength::Full(_));
        (fenced && self.places != Places::Cell && layout::effective_uid() == Some(0))
            .then_some(layout::NOBODY)
    }

    /// Checks that the launcher is as strong as a request requires.
    pub(super) fn check_fence(&self, fence: Fence) -> Result<(), Error> {
        match (&self.places, fence) {
            (Places::Directory(_), Fence::Required) => Err(Error::NamespacesForbidden {
                step: "make namespaces".to_owned(),
                errno: 1,
            }),
            (Places::Cell, Fence::Required) => check_groups(self.groups.as_ref()),
            _ => Ok(()),
        }
    }

    /// Starts the tasks of the zygote and the pool.
    pub(super) fn keep_warm(&self, settings: &Settings) -> Result<(), Error> {
        let (
            Warmth::Pool {
                size,
                renew_after,
                renew_every,
            },
            Places::Cell,
        ) = (settings.warmth, &self.places)
        else {
            return Ok(());
        };
        // Without Python there is nothing to prepare; other languages still run.
        let Ok(python) = python_for(&self.extra, settings) else {
            return Ok(());
        };
        let zygote = WarmPython::new(python, &self.extra, settings);
        let library = ringfence_jail::code_file(EXTENSION).map_err(Error::Pipes)?;
        let pool = Arc::new(WorkerPool::new(size, settings.limits));
        let keeper = PoolTask {
            lane: Arc::clone(&self.lane),
            groups: self.groups.clone(),
            renewal: Arc::clone(&self.zygote_renewal),
            confinement: self.confinement(&settings.limits, &Places::Cell),
            limits: settings.limits,
        };
        self.zygote_renewal.after.store(renew_after, Ordering::Relaxed);
        let (lane, renewal) = (Arc::clone(&self.lane), Arc::clone(&self.zygote_renewal));
        let filled = Arc::clone(&pool);
        let mut tasks = self.tasks.lock().unwrap_or_else(PoisonError::into_inner);
        tasks.spawn(async move { keep_zygote(&lane, zygote, &library, (&renewal, renew_every)).await });
        tasks.spawn(async move {
            filled
                .keep_full(&keeper.lane, keeper.groups.as_deref(), || keeper.plan())
                .await
        });
        let _ = self.pool.set(pool);
        Ok(())
    }

    /// Returns a guest for a request, with a bridge if `bridged`, and `true` if it comes from the zygote or
    /// the pool.
    pub(super) async fn guest(
        &self,
        (request, bridged): (&Request, bool),
        settings: &Settings,
    ) -> Result<(Guest, bool), Error> {
        network::check_places(request, &self.places)?;
        match request.language {
            Language::Python => self.python_guest((request, bridged), settings).await,
            Language::Command => self.command_guest(request, settings).await,
            Language::Bash | Language::Javascript => self.script_guest(request, settings).await,
        }
    }

    async fn command_guest(&self, request: &Request, settings: &Settings) -> Result<(Guest, bool), Error> {
        let directory = self.directory(settings)?;
        let places = self.places_in(directory.as_ref());
        let environment = match self.strength {
            Strength::Nothing => host_environment(request),
            Strength::Full(_) | Strength::Limits => environment(&places, &self.extra, request),
        };
        let (executable, arguments) = command(request, &environment)?;
        let program = layout::program(&executable, arguments, environment);
        let text = Text::Job(Vec::new());
        let terms = Terms {
            below: request.working_directory.as_deref(),
            ..Terms::of(request)
        };
        self.start(Origin::Exec(program), text, terms, directory)
            .await
            .map(|guest| (guest, false))
    }

    async fn script_guest(&self, request: &Request, settings: &Settings) -> Result<(Guest, bool), Error> {
        let directory = self.directory(settings)?;
        let places = self.places_in(directory.as_ref());
        let (executable, name, arguments) = script(&self.extra, request, settings)?;
        let path = match &directory {
            Some(directory) => directory
                .write_code(&name, &request.code)
                .map_err(Error::Directory)?,
            None => Path::new("/code").join(&name),
        };
        let mut all = arguments;
        all.push(path.display().to_string());
        all.extend(request.args.iter().cloned());
        let program = layout::program(&executable, all, environment(&places, &self.extra, request));
        let text = match directory {
            Some(_) => Text::OnHost,
            None => Text::File {
                name,
                text: request.code.clone(),
            },
        };
        self.start(Origin::Exec(program), text, Terms::of(request), directory)
            .await
            .map(|guest| (guest, false))
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
            Origin::Fork | Origin::Session | Origin::ForkOf { .. } => None,
        };
        let below = terms.below.map(Path::to_path_buf);
        let plan = self.plan(origin, text, terms, directory);
        guest::start(&self.lane, self.groups.as_deref(), plan)
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
        let places = self.places_in(directory.as_ref());
        let mut confinement = self.confinement(terms.limits, &places);
        if terms.has_network {
            confinement = layout::networked(confinement);
        }
        if matches!(origin, Origin::Session | Origin::ForkOf { .. }) {
            confinement = layout::forkable(confinement);
        }
        if let Some(below) = terms.below {
            confinement.working_directory.push(below);
        }
        let (code, job) = match text {
            Text::File { name, text } => (Some((name, text)), Vec::new()),
            Text::Job(job) => (None, job),
            Text::OnHost => (None, Vec::new()),
        };
        Plan {
            origin,
            code,
            confinement,
            limits: *terms.limits,
            group: self.first_group(terms.limits),
            listen: terms.has_network.then_some(layout::PROXY_PORT),
            directory,
            job,
        }
    }

    fn first_group(&self, limits: &Limits) -> Option<Group> {
        let mut first = self.first.lock().unwrap_or_else(PoisonError::into_inner);
        let (_, group) = first.take_if(|(made_for, _)| made_for == limits)?;
        Some(group)
    }

    fn confinement(&self, limits: &Limits, places: &Places) -> ringfence_jail::protocol::Confinement {
        let accounting = if self.groups.is_some() {
            Accounting::ControlGroup
        } else {
            Accounting::Rlimits
        };
        layout::confinement(places, &self.extra, limits, accounting, self.strength)
    }

    /// Creates the host directory of a guest that has no cell.
    fn directory(&self, settings: &Settings) -> Result<Option<Workdir>, Error> {
        if self.places == Places::Cell {
            return Ok(None);
        }
        Workdir::create(&settings.scratch, self.guest_user())
            .map(Some)
            .map_err(Error::Directory)
    }

    fn places_in(&self, directory: Option<&Workdir>) -> Places {
        directory.map_or(Places::Cell, |directory| {
            Places::Directory(directory.path().to_path_buf())
        })
    }

    /// Ends the launcher with everything in it, and waits for that.
    pub(super) async fn close(self) {
        let mut tasks = self.tasks.into_inner().unwrap_or_else(PoisonError::into_inner);
        tasks.shutdown().await;
        let idle = self.pool.get().map(|pool| pool.empty()).unwrap_or_default();
        drop(self.pool);
        let groups: Vec<_> = idle
            .into_iter()
            .filter_map(|mut guest| {
                // The launcher ends all at once; only the groups are removed one by one.
                guest.group.take()
            })
            .collect();
        if let Some(lane) = Arc::into_inner(self.lane) {
            // The launcher exits at once: the kernel kills everything below it.
            let _ = tokio::task::spawn_blocking(move || lane.close()).await;
        }
        for group in groups {
            let _ = group.close();
        }
    }
}

/// The parts of a request that affect confinement.
#[derive(Debug, Clone, Copy)]
struct Terms<'a> {
    limits: &'a Limits,
    /// Working directory, relative to the workspace.
    below: Option<&'a Path>,
    /// Set if it may reach the proxy.
    has_network: bool,
}

impl<'a> Terms<'a> {
    fn of(request: &'a Request) -> Self {
        Self {
            limits: &request.limits,
            below: None,
            has_network: request.network != Network::None,
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

/// The specification of a pool's workers.
struct PoolTask {
    lane: Arc<LauncherClient>,
    groups: Option<Arc<Groups>>,
    renewal: Arc<Renewal>,
    confinement: ringfence_jail::protocol::Confinement,
    limits: Limits,
}

impl PoolTask {
    fn plan(&self) -> Plan {
        self.renewal.count();
        Plan {
            origin: Origin::Fork,
            code: None,
            confinement: self.confinement.clone(),
            limits: self.limits,
            group: None,
            listen: None,
            directory: None,
            job: Vec::new(),
        }
    }
}

/// Starts the zygote, its replacements when they are due, and a new one when one exits by itself.
///
/// A module that ends the interpreter is left out of the next one.
async fn keep_zygote(
    lane: &LauncherClient,
    mut zygote: WarmPython,
    library: &std::os::fd::OwnedFd,
    (renewal, every): (&Renewal, std::time::Duration),
) {
    let mut state = lane.zygote();
    let mut revivals = 0;
    loop {
        state.mark_unchanged();
        let program = (zygote.program(), WORKER);
        let started = lane.start_zygote(program, zygote.modules.clone(), library.as_fd());
        if started.await.is_err() {
            return;
        }
        tokio::select! {
            () = renewal.due.notified() => {}
            () = tokio::time::sleep(every) => {}
            () = renewal.rested() => {}
            broken = until_broken(lane, &mut state, &mut zygote) => {
                let by_module = lane.blames_module(&zygote.patience);
                revivals += u32::from(!by_module);
                if !broken || revivals > MAX_REVIVALS {
                    return renewal.given_up.notify_one();
                }
            }
        }
        zygote.report(&lane.failed_modules());
    }
}

/// Waits for the exit of a zygote, and reports the modules that it could not import; `false` if the launcher
/// has died.
async fn until_broken(
    lane: &LauncherClient,
    state: &mut watch::Receiver<Zygote>,
    zygote: &mut WarmPython,
) -> bool {
    loop {
        if state.changed().await.is_err() {
            return false;
        }
        let broken = *state.borrow_and_update() == Zygote::Broken;
        if broken {
            return true;
        }
        zygote.report(&lane.failed_modules());
    }
}

fn environment(places: &Places, extra: &Extra, request: &Request) -> Vec<(String, String)> {
    let mut environment = places.environment(extra);
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
