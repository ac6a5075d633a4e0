//! The lanes that serve requests, and how a request gets its guest from one.

use std::collections::HashMap;
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use ringfence_jail::protocol::{Guest as Origin, LauncherSpec, Missing, Program};
use ringfence_policy::{Language, Limits, Request, Scope};
use tokio::sync::Notify;
use tokio::task::JoinSet;

use super::guest::{self, Groups, Guest, Plan};
use super::lane::{Failure, Lane, OpenError, Zygote};
use super::layout::{self, Accounting, Extra, Places, Strength, WORKSPACE};
use super::pool::Pool;
use super::workdir::Workdir;
use super::{Error, Fence, Settings, Warmth, bytecode, job};
use crate::interpreter::{self, Javascript, JavascriptKind, Python};

/// What runs in a Python guest.
pub(super) const WORKER: &str = include_str!("../../python/worker.py");

/// The library that a zygote's interpreter loads; made by `build.rs`.
const EXTENSION: &[u8] = include_bytes!(env!("RINGFENCE_EXTENSION"));

/// The most scopes that have warm lanes at once.
const MAX_SCOPES: usize = 8;

/// How long an engine's start may wait for its first workers.
const WARM_UP_PATIENCE: std::time::Duration = std::time::Duration::from_secs(10);

/// How often a zygote that ends by itself is started again.
const MAX_REVIVALS: u32 = 5;

/// The lanes of a backend.
#[derive(Debug, Default)]
pub(super) struct Lanes {
    /// The shared ones, with the time of their last use as a count.
    shared: tokio::sync::Mutex<HashMap<Scope, (u64, Arc<Served>)>>,
    uses: AtomicU64,
    /// Why namespaces cannot be made here, once that is known.
    forbidden: OnceLock<Failure>,
}

impl Lanes {
    /// The lane for a request: the warm one of its scope, or a new one of its own.
    pub(super) async fn serve(
        &self,
        request: &Request,
        fence: Fence,
        settings: &Settings,
        groups: Option<&Arc<Groups>>,
    ) -> Result<Arc<Served>, Error> {
        let Warmth::Pool { .. } = settings.warmth else {
            return self.open(request, fence, settings, groups).await.map(Arc::new);
        };
        if fence == Fence::Unfenced || !request.mounts.is_empty() {
            return self.open(request, fence, settings, groups).await.map(Arc::new);
        }
        self.shared(&request.scope, fence, settings, groups).await
    }

    async fn shared(
        &self,
        scope: &Scope,
        fence: Fence,
        settings: &Settings,
        groups: Option<&Arc<Groups>>,
    ) -> Result<Arc<Served>, Error> {
        let now = self.uses.fetch_add(1, Ordering::Relaxed);
        let mut shared = self.shared.lock().await;
        if let Some((used, served)) = shared.get_mut(scope).filter(|(_, served)| served.lane.is_open()) {
            *used = now;
            served.check_fence(fence)?;
            return Ok(Arc::clone(served));
        }
        let extra = libraries(settings, None);
        let served = Arc::new(self.open_with(extra, fence, groups).await?);
        served.keep_warm(settings)?;
        if shared.len() >= MAX_SCOPES
            && let Some(oldest) = shared
                .iter()
                .min_by_key(|(_, (used, _))| *used)
                .map(|(scope, _)| scope.clone())
            && let Some((_, evicted)) = shared.remove(&oldest)
            && let Some(evicted) = Arc::into_inner(evicted)
        {
            // One that is in use is closed by the last run that uses it.
            evicted.close().await;
        }
        if let Some((_, broken)) = shared.insert(scope.clone(), (now, Arc::clone(&served)))
            && let Some(broken) = Arc::into_inner(broken)
        {
            broken.close().await;
        }
        Ok(served)
    }

    /// A lane for one request.
    async fn open(
        &self,
        request: &Request,
        fence: Fence,
        settings: &Settings,
        groups: Option<&Arc<Groups>>,
    ) -> Result<Served, Error> {
        let mut extra = libraries(settings, Some(request.language));
        extra.mounts.clone_from(&request.mounts);
        self.open_with(extra, fence, groups).await
    }

    async fn open_with(
        &self,
        extra: Extra,
        fence: Fence,
        groups: Option<&Arc<Groups>>,
    ) -> Result<Served, Error> {
        let groups = groups.cloned();
        if fence == Fence::Unfenced {
            return open_flat(extra, Strength::None, groups, None).await;
        }
        let missing = if fence == Fence::BestEffort {
            Missing::Report
        } else {
            Missing::Refuse
        };
        let strength = Strength::Full(missing);
        if self.forbidden.get().is_none() {
            let spec = LauncherSpec::Namespaced(layout::template(&extra));
            match Lane::open(&spec).await {
                Ok(lane) => return Ok(Served::new(lane, Places::Cell, extra, strength, groups)),
                Err(OpenError::Failed(failure)) if forbids_namespaces(&failure) => {
                    let _ = self.forbidden.set(failure);
                }
                Err(error) => return Err(Error::from_open(error)),
            }
        }
        let failure = self.forbidden.get().cloned().unwrap_or_else(|| Failure {
            step: String::new(),
            errno: 0,
        });
        if fence == Fence::Required {
            return Err(Error::NamespacesForbidden {
                step: failure.step,
                errno: failure.errno,
            });
        }
        open_flat(extra, strength, groups, Some(&failure)).await
    }

    /// Opens the local user's lane before the first request needs it.
    pub(super) async fn warm_up(
        &self,
        settings: &Settings,
        groups: Option<&Arc<Groups>>,
    ) -> Result<(), Error> {
        let served = self
            .shared(&Scope::local(), Fence::Default, settings, groups)
            .await?;
        if let Some(pool) = served.pool.get() {
            // Without warm workers everything still runs, so their coming late is no failure.
            let _ = tokio::time::timeout(WARM_UP_PATIENCE, pool.filled()).await;
        }
        Ok(())
    }

    /// Ends all lanes.
    pub(super) async fn close(&self) {
        let lanes: Vec<_> = self
            .shared
            .lock()
            .await
            .drain()
            .map(|(_, (_, served))| served)
            .collect();
        for served in lanes {
            if let Some(served) = Arc::into_inner(served) {
                served.close().await;
            }
        }
    }
}

/// Whether a launcher failed because namespaces are not to be had, and not for something of the request.
fn forbids_namespaces(failure: &Failure) -> bool {
    let by_request = failure.step.contains("host path");
    let refusals = [1, 13, 22, 28, 38, 87]; // EPERM, EACCES, EINVAL, ENOSPC, ENOSYS, EUSERS
    !by_request && refusals.contains(&failure.errno)
}

async fn open_flat(
    extra: Extra,
    strength: Strength,
    groups: Option<Arc<Groups>>,
    why: Option<&Failure>,
) -> Result<Served, Error> {
    if extra.mounts.iter().any(|mount| mount.guest() != mount.host) {
        return Err(Error::NeedsNamespaces {
            what: "a mount at another path than the host's",
        });
    }
    let lane = Lane::open(&LauncherSpec::Flat).await.map_err(Error::from_open)?;
    let mut served = Served::new(lane, Places::Directory(PathBuf::new()), extra, strength, groups);
    served.warnings.extend(why.map(|failure| {
        format!(
            "this machine does not let us make namespaces ({}: {}); the run was held by the other layers",
            failure.step,
            std::io::Error::from_raw_os_error(failure.errno)
        )
    }));
    Ok(served)
}

/// What interpreters need outside the system's directories; all that can be found, or that of one language.
fn libraries(settings: &Settings, language: Option<Language>) -> Extra {
    let mut extra = Extra::default();
    if language.is_none_or(|language| language == Language::Python)
        && let Ok(python) = python(settings)
    {
        extra.libraries.extend(python.library_dirs);
        extra
            .links
            .extend(python.links.into_iter().map(|link| (link.path, link.target)));
    }
    if language.is_none_or(|language| language == Language::Javascript)
        && let Ok(found) = javascript(settings)
    {
        extra.libraries.extend(found.prefix_dirs);
    }
    extra
}

fn python(settings: &Settings) -> Result<Python, Error> {
    if let Some(python) = settings.found.python.get() {
        return Ok(python.clone());
    }
    let python = interpreter::find_python(
        settings.python.as_deref(),
        settings.path.as_deref(),
        settings.cache.as_deref(),
    )?;
    Ok(settings.found.python.get_or_init(|| python).clone())
}

fn javascript(settings: &Settings) -> Result<Javascript, Error> {
    let missing = Error::NoInterpreter {
        language: Language::Javascript,
        looked_for: "node or deno",
    };
    if let Some(found) = settings.found.javascript.get() {
        return Ok(found.clone());
    }
    let found = interpreter::find_javascript(settings.path.as_deref()).ok_or(missing)?;
    Ok(settings.found.javascript.get_or_init(|| found).clone())
}

/// The interpreter that a language is run by with these settings; `None` where there is none.
pub fn interpreter(settings: &Settings, language: Language) -> Option<PathBuf> {
    match language {
        Language::Python => python(settings).ok().map(|python| python.executable),
        Language::Javascript => javascript(settings).ok().map(|found| found.executable),
        Language::Bash => interpreter::find_bash(),
    }
}

/// Interpreters that were found, so that they are looked for once only: for the life of an engine they are those
/// that its warm workers were made from.
#[derive(Debug, Clone, Default)]
pub struct Found {
    python: OnceLock<Python>,
    javascript: OnceLock<Javascript>,
}

/// A lane with what it takes to start guests in it.
#[derive(Debug)]
pub(super) struct Served {
    lane: Arc<Lane>,
    /// What runs for the lane: its event pump, and the keepers of its pool and zygote.
    tasks: Mutex<JoinSet<()>>,
    places: Places,
    extra: Extra,
    strength: Strength,
    groups: Option<Arc<Groups>>,
    pool: OnceLock<Arc<Pool>>,
    zygote_renewal: Arc<Renewal>,
    warnings: Vec<String>,
}

/// Counts forks and says when a zygote is due for a successor.
#[derive(Debug, Default)]
struct Renewal {
    forks: AtomicU64,
    after: AtomicU64,
    due: Notify,
}

impl Renewal {
    fn count(&self) {
        let after = self.after.load(Ordering::Relaxed);
        if after > 0 && self.forks.fetch_add(1, Ordering::Relaxed) + 1 >= after {
            self.forks.store(0, Ordering::Relaxed);
            self.due.notify_one();
        }
    }
}

impl Served {
    fn new(
        lane: Lane,
        places: Places,
        extra: Extra,
        strength: Strength,
        groups: Option<Arc<Groups>>,
    ) -> Self {
        let lane = Arc::new(lane);
        let mut tasks = JoinSet::new();
        let pumped = Arc::clone(&lane);
        tasks.spawn(async move { pumped.pump().await });
        Self {
            lane,
            tasks: Mutex::new(tasks),
            places,
            extra,
            strength,
            groups,
            pool: OnceLock::new(),
            zygote_renewal: Arc::default(),
            warnings: Vec::new(),
        }
    }

    /// Lets the pool make up for the worker that a run took.
    pub(super) fn refill(&self) {
        if let Some(pool) = self.pool.get() {
            pool.refill();
        }
    }

    /// What a person should know about every run in this lane.
    pub(super) fn warnings(&self) -> Vec<String> {
        self.warnings.clone()
    }

    fn check_fence(&self, fence: Fence) -> Result<(), Error> {
        match (&self.places, fence) {
            (Places::Directory(_), Fence::Required) => Err(Error::NamespacesForbidden {
                step: "make namespaces".to_owned(),
                errno: 1,
            }),
            _ => Ok(()),
        }
    }

    /// Starts the zygote and the keeper of the pool.
    fn keep_warm(&self, settings: &Settings) -> Result<(), Error> {
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
        // Without Python there is nothing to warm; other languages still run.
        let Ok(python) = python(settings) else {
            return Ok(());
        };
        let program = zygote_program(&python, settings);
        let library = ringfence_jail::code_file(EXTENSION).map_err(Error::Pipes)?;
        let pool = Arc::new(Pool::new(size, settings.limits));
        let keeper = Keeper {
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
        tasks.spawn(async move { keep_zygote(&lane, &program, &library, (&renewal, renew_every)).await });
        tasks.spawn(async move {
            filled
                .keep_full(&keeper.lane, keeper.groups.as_deref(), || keeper.plan())
                .await
        });
        let _ = self.pool.set(pool);
        Ok(())
    }

    /// A guest for a request, and whether it was started beforehand.
    pub(super) async fn guest(
        &self,
        request: &Request,
        fence: Fence,
        settings: &Settings,
    ) -> Result<(Guest, bool), Error> {
        // Best effort asks for other behaviour of a fresh guest only; warm ones have every layer.
        let _ = fence;
        if request.language == Language::Python {
            return self.python_guest(request, settings).await;
        }
        let directory = self.directory(settings)?;
        let places = self.places_in(directory.as_ref());
        let (executable, name, arguments) = script(request, settings)?;
        let path = match &directory {
            Some(directory) => directory
                .write_code(&name, &request.code)
                .map_err(Error::Directory)?,
            None => Path::new("/code").join(&name),
        };
        let mut all = arguments;
        all.push(path.display().to_string());
        all.extend(request.args.iter().cloned());
        let program = layout::program(&executable, all, environment(&places, request));
        let text = match directory {
            Some(_) => Text::OnHost,
            None => Text::File {
                name,
                text: request.code.clone(),
            },
        };
        self.start(Origin::Exec(program), text, &request.limits, directory)
            .await
            .map(|guest| (guest, false))
    }

    async fn python_guest(&self, request: &Request, settings: &Settings) -> Result<(Guest, bool), Error> {
        let variables = &request.env;
        if let Some(pool) = self.pool.get() {
            let job = job::encode(&request.name, &request.code, &request.args, variables);
            if let Some(mut guest) = pool.take(&request.limits) {
                guest.job = job;
                return Ok((guest, true));
            }
            if *self.lane.zygote().borrow() == Zygote::Warm {
                self.zygote_renewal.count();
                return self
                    .start(Origin::Fork, Text::Job(job), &request.limits, None)
                    .await
                    .map(|guest| (guest, true));
            }
        }
        let python = python(settings)?;
        let directory = self.directory(settings)?;
        let places = self.places_in(directory.as_ref());
        let workspace = match &directory {
            Some(directory) => directory.path().join("workspace"),
            None => PathBuf::from(WORKSPACE),
        };
        let compiled = bytecode::message(&python, settings.cache.as_deref());
        let text = if compiled.is_some() {
            bytecode::BOOT
        } else {
            WORKER
        };
        let arguments = worker_arguments(&python, text, &workspace);
        let program = Program {
            reads_job: true,
            ..layout::program(&python.executable, arguments, environment(&places, request))
        };
        let mut job = compiled.unwrap_or_default();
        job.extend(job::encode(&request.name, &request.code, &request.args, &[]));
        let guest = self
            .start(Origin::Exec(program), Text::Job(job), &request.limits, directory)
            .await?;
        Ok((guest, false))
    }

    async fn start(
        &self,
        origin: Origin,
        text: Text,
        limits: &Limits,
        directory: Option<Workdir>,
    ) -> Result<Guest, Error> {
        let places = self.places_in(directory.as_ref());
        let confinement = self.confinement(limits, &places);
        let executable = match &origin {
            Origin::Exec(program) => Some(program.executable.display().to_string()),
            Origin::Fork => None,
        };
        let (code, job) = match text {
            Text::File { name, text } => (Some((name, text)), Vec::new()),
            Text::Job(job) => (None, job),
            Text::OnHost => (None, Vec::new()),
        };
        let plan = Plan {
            origin,
            code,
            confinement,
            limits: *limits,
            directory,
            job,
        };
        guest::start(&self.lane, self.groups.as_deref(), plan)
            .await
            .map_err(|error| match (error, executable) {
                (Error::Fence { step, errno }, Some(program)) if step == "start the program" => {
                    Error::Program { program, errno }
                }
                (error, _) => error,
            })
    }

    fn confinement(&self, limits: &Limits, places: &Places) -> ringfence_jail::protocol::Confinement {
        let accounting = if self.groups.is_some() {
            Accounting::ControlGroup
        } else {
            Accounting::Rlimits
        };
        layout::confinement(places, &self.extra, limits, accounting, self.strength)
    }

    /// A directory on the host for a guest that has no cell.
    fn directory(&self, settings: &Settings) -> Result<Option<Workdir>, Error> {
        if self.places == Places::Cell {
            return Ok(None);
        }
        let for_nobody = self.strength != Strength::None && layout::effective_uid() == Some(0);
        Workdir::create(&settings.scratch, for_nobody)
            .map(Some)
            .map_err(Error::Directory)
    }

    fn places_in(&self, directory: Option<&Workdir>) -> Places {
        directory.map_or(Places::Cell, |directory| {
            Places::Directory(directory.path().to_path_buf())
        })
    }

    /// Ends the lane and everything in it, and waits for that.
    pub(super) async fn close(self) {
        let mut tasks = self.tasks.into_inner().unwrap_or_else(PoisonError::into_inner);
        tasks.shutdown().await;
        let idle = self.pool.get().map(|pool| pool.empty()).unwrap_or_default();
        drop(self.pool);
        let groups: Vec<_> = idle
            .into_iter()
            .filter_map(|mut guest| {
                // The lane ends all at once; only the groups are left to be removed one by one.
                guest.group.take()
            })
            .collect();
        if let Some(lane) = Arc::into_inner(self.lane) {
            // The launcher ends at once: the kernel kills everything below it.
            let _ = tokio::task::spawn_blocking(move || lane.close()).await;
        }
        for group in groups {
            let _ = group.close();
        }
    }
}

/// How the program's text gets to the guest.
enum Text {
    /// As a job on its control descriptor.
    Job(Vec<u8>),
    /// As a file in its cell.
    File { name: String, text: String },
    /// It lies in the guest's directory on the host.
    OnHost,
}

/// Makes the workers of a pool.
struct Keeper {
    lane: Arc<Lane>,
    groups: Option<Arc<Groups>>,
    renewal: Arc<Renewal>,
    confinement: ringfence_jail::protocol::Confinement,
    limits: Limits,
}

impl Keeper {
    fn plan(&self) -> Plan {
        self.renewal.count();
        Plan {
            origin: Origin::Fork,
            code: None,
            confinement: self.confinement.clone(),
            limits: self.limits,
            directory: None,
            job: Vec::new(),
        }
    }
}

/// Starts the zygote, its successors when they are due, and a new one where one ended by itself.
async fn keep_zygote(
    lane: &Lane,
    program: &Program,
    library: &std::os::fd::OwnedFd,
    (renewal, every): (&Renewal, std::time::Duration),
) {
    let mut state = lane.zygote();
    let mut revivals = 0;
    loop {
        if lane.start_zygote(program.clone(), library.as_fd()).await.is_err() {
            return;
        }
        tokio::select! {
            () = renewal.due.notified() => {}
            () = tokio::time::sleep(every) => {}
            broken = state.wait_for(|state| *state == Zygote::Broken) => {
                revivals += 1;
                if broken.is_err() || revivals > MAX_REVIVALS {
                    return;
                }
            }
        }
    }
}

fn worker_arguments(python: &Python, text: &str, workspace: &Path) -> Vec<String> {
    let mut search_path = vec![workspace.display().to_string()];
    search_path.extend(python.search_path.iter().map(|path| path.display().to_string()));
    let mut arguments: Vec<String> = ["-I", "-S", "-B", "-X", "utf8", "-c", text]
        .into_iter()
        .map(str::to_owned)
        .collect();
    arguments.push(search_path.join("\n"));
    arguments
}

fn zygote_program(python: &Python, settings: &Settings) -> Program {
    let mut arguments = worker_arguments(python, WORKER, Path::new(WORKSPACE));
    arguments.push("zygote".to_owned());
    arguments.extend(settings.preload.iter().cloned());
    let mut environment = Places::Cell.environment();
    if !settings.preload.is_empty() {
        // A zygote must have one thread only: others would be missing in its forks.
        environment.extend(
            ["OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS"]
                .map(|name| (name.to_owned(), "1".to_owned())),
        );
    }
    layout::program(&python.executable, arguments, environment)
}

fn environment(places: &Places, request: &Request) -> Vec<(String, String)> {
    let mut environment = places.environment();
    for (name, value) in &request.env {
        environment.retain(|(other, _)| other != name.as_str());
        environment.push((name.as_str().to_owned(), value.clone()));
    }
    environment
}

/// The interpreter of a script, the file name that the script gets, and the arguments before it.
fn script(request: &Request, settings: &Settings) -> Result<(PathBuf, String, Vec<String>), Error> {
    let plain =
        |name: &&str| !name.is_empty() && !name.contains(['/', '<', '>', '\0']) && !name.starts_with('.');
    let name = Some(request.name.as_str()).filter(plain);
    let strings = |arguments: &[&str]| arguments.iter().map(|&text| text.to_owned()).collect();
    match request.language {
        Language::Bash => {
            let missing = Error::NoInterpreter {
                language: Language::Bash,
                looked_for: "bash",
            };
            let bash = interpreter::find_bash().ok_or(missing)?;
            Ok((
                bash,
                name.unwrap_or("main.sh").to_owned(),
                strings(&["--noprofile", "--norc"]),
            ))
        }
        Language::Javascript | Language::Python => {
            let found = javascript(settings)?;
            let arguments: &[&str] = match found.kind {
                JavascriptKind::Node => &[],
                // The fence is the barrier; Deno's own permissions would only ask.
                JavascriptKind::Deno => &[
                    "run",
                    "--quiet",
                    "--no-prompt",
                    "--no-remote",
                    "--no-npm",
                    "--allow-all",
                ],
            };
            Ok((
                found.executable,
                name.unwrap_or("main.js").to_owned(),
                strings(arguments),
            ))
        }
    }
}
