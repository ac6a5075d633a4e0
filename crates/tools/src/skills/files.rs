//! Skills in Python: each file of a directory runs in a fenced process of its own.

mod beside;
mod consent;
mod host;
mod manifest;
mod stamp;
mod text;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use ringfence_exec::local::{Fence, Local};
use ringfence_exec::mount_guard::DeniedPaths;
use ringfence_exec::trust;
use ringfence_policy::{Access, Bytes, Cidr, Mount, Timeout, Trusted};
use serde_json::{Map, Value};
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::Instant;

use super::journal::Journal;
use super::{CallError, Function, Offer, Skill, SkillFuture};
use beside::Beside;
pub use consent::Consent;
use consent::Demand;
use host::{Called, Host, HostSpec, StartingProcess};
use manifest::Manifest;
pub use manifest::manifest_problems;
use ringfence_records::audit::Digest;
use stamp::Stamp;

/// Maximum number of files in a directory.
const MAX_FILES: usize = 32;

/// Maximum size of a file: escaped as JSON, it must fit into a message.
const MAX_LENGTH: u64 = 128 * 1024;

/// Time for which a failure to load in time is cached: each attempt blocks its caller until the timeout.
const BELIEVED: Duration = Duration::from_secs(60);

/// Maximum number of attempts if the process ends before a call has begun.
const MAX_STARTS: usize = 3;

/// Limits of a skill process.
#[derive(Debug, Clone)]
pub struct HostLimits {
    /// Memory of all its processes together.
    pub memory: Bytes,
    /// Minimum strength of the fence.
    pub fence: Fence,
    /// Paths that the process must not change.
    pub trusted: Trusted,
    /// Consent to the demands of the files in the directory.
    pub consent: Consent,
    /// Timeout for loading its file.
    pub patience: Timeout,
    /// Non-public address ranges, with the hosts of a manifest that may reach them.
    pub private_networks: Vec<Cidr>,
    /// Directory for output and tracebacks. `None` discards them.
    pub journals: Option<PathBuf>,
}

/// The Python files of a directory. Each has a process of its own, which is started on first use, and
/// restarted when the file has changed or the process has died.
#[derive(Debug)]
pub struct SkillFiles {
    directory: PathBuf,
    hidden: DeniedPaths,
    limits: HostLimits,
    /// `None` once closed.
    local: Mutex<Option<Arc<Local>>>,
    hosts: Mutex<BTreeMap<String, Served>>,
    tasks: Mutex<JoinSet<()>>,
}

/// A file with its process.
#[derive(Debug)]
struct Served {
    stamp: Stamp,
    started: Started,
}

/// Result of a start; `None` while starting. Dropping all receivers cancels the start.
type Started = watch::Receiver<Option<Result<Arc<Host>, Unloaded>>>;

/// A file could not be loaded.
#[derive(Debug, Clone)]
struct Unloaded {
    why: String,
    /// Earliest time of another attempt.
    until: Instant,
}

/// Files found in a directory of skills.
struct DirectoryListing {
    files: Vec<(String, Stamp)>,
    /// Invalid file names, and modules that cannot be imported.
    problems: Vec<String>,
}

impl Served {
    /// Returns `true` if no start is needed: the file's process runs or starts, or would fail again.
    fn stands(&self) -> bool {
        match &*self.started.borrow() {
            None => true,
            Some(Ok(host)) => host.is_up(),
            Some(Err(unloaded)) => Instant::now() < unloaded.until,
        }
    }

    fn host(&self) -> Option<Arc<Host>> {
        self.started.borrow().as_ref()?.as_ref().ok().cloned()
    }
}

impl SkillFiles {
    /// Creates a source of the files in `directory`, which must be absolute and without links. Their
    /// processes are started by `local`, which must not be shared, and see nothing that is `hidden`. Starts
    /// nothing yet.
    pub fn new(directory: PathBuf, local: Local, limits: HostLimits, hidden: DeniedPaths) -> Self {
        Self {
            directory,
            hidden,
            limits,
            local: Mutex::new(Some(Arc::new(local))),
            hosts: Mutex::default(),
            tasks: Mutex::default(),
        }
    }

    /// Waits for the process of each file.
    async fn hosts(&self) -> Result<Vec<Result<Arc<Host>, String>>, String> {
        let DirectoryListing { files, problems } = self.files()?;
        self.keep_only(&files);
        let started = files.iter().map(|(file, stamp)| self.ensure(file, stamp));
        let started: Vec<Started> = started.collect();
        let hosts = futures_util::future::join_all(started.into_iter().map(up)).await;
        Ok(hosts.into_iter().chain(problems.into_iter().map(Err)).collect())
    }

    /// Scans the directory.
    fn files(&self) -> Result<DirectoryListing, String> {
        let unreadable = |error| format!("the directory of skills cannot be read: {error}");
        let entries = std::fs::read_dir(&self.directory).map_err(unreadable)?;
        let mut names: Vec<String> = entries
            .filter_map(|entry| entry.ok()?.file_name().into_string().ok())
            .collect();
        names.sort();
        let beside = Arc::new(Beside::of(&self.directory, &names, self.limits.consent.paths()));
        names.retain(|name| name.ends_with(".py") && !name.starts_with(['_', '.']));
        let misnamed = names.extract_if(.., |name| !is_skill_file(name)).min();
        let misnamed =
            misnamed.map(|name| format!("{name}: a file of skills has a name of letters, digits and _"));
        if names.len() > MAX_FILES {
            return Err(format!(
                "there are {} files of skills; {MAX_FILES} is the limit",
                names.len()
            ));
        }
        let stamped = names.into_iter().map(|name| {
            let stamp = Stamp::of(&self.directory, &name, &beside);
            (name, stamp)
        });
        Ok(DirectoryListing {
            files: stamped.collect(),
            problems: misnamed.into_iter().chain(beside.problems.clone()).collect(),
        })
    }

    fn keep_only(&self, files: &[(String, Stamp)]) {
        let mut hosts = self.lock();
        hosts.retain(|name, _| files.iter().any(|(file, _)| file == name));
    }

    /// Returns the process of a file, started if it is missing or serves an older version.
    fn ensure(&self, file: &str, stamp: &Stamp) -> Started {
        let mut hosts = self.lock();
        if let Some(served) = hosts.get(file)
            && served.stamp == *stamp
            && served.stands()
        {
            return served.started.clone();
        }
        let started = self.start(file, &stamp.beside).unwrap_or_else(|why| {
            let until = Instant::now();
            watch::channel(Some(Err(Unloaded { why, until }))).1
        });
        let served = Served {
            stamp: stamp.clone(),
            started: started.clone(),
        };
        hosts.insert(file.to_owned(), served);
        started
    }

    fn start(&self, file: &str, beside: &Beside) -> Result<Started, String> {
        let told = |why: String| format!("{file}: {why}");
        let paths = self.limits.consent.paths();
        let manifest = Manifest::read(&self.directory, file, paths).map_err(told)?;
        let read = text::of(&self.directory.join(file), MAX_LENGTH, paths);
        let (code, source) = read.map_err(|error| told(format!("it cannot be read: {error}")))?;
        let demand = Demand::of(&manifest, &code, &source, beside);
        let agreed = self.limits.consent.check(&self.directory, file, &demand);
        agreed.map_err(told)?;
        let mounts = manifest
            .mounts(&self.directory, file, &self.hidden, paths)
            .map_err(told)?;
        self.check_writes(&mounts).map_err(told)?;
        self.note_writes(&mounts).map_err(told)?;
        let network = manifest.network(&self.limits.private_networks).map_err(told)?;
        let name = file.strip_suffix(".py").unwrap_or(file);
        let place = HostSpec {
            begin: host::begin(file, &code, beside).map_err(told)?,
            journal: Journal::open(self.limits.journals.as_deref(), name),
            mounts,
            network,
            limits: self.limits.clone(),
        };
        let local = self.local().clone();
        let local = local.ok_or_else(|| told("the skills are closed".to_owned()))?;
        let (coming, task) = host::prepare(&local, place);
        let (tell, started) = watch::channel(None);
        let bringing = bring_up(file.to_owned(), manifest, coming, self.limits.patience, tell);
        let mut tasks = self.tasks.lock().unwrap_or_else(PoisonError::into_inner);
        while tasks.try_join_next().is_some() {}
        tasks.spawn(task);
        tasks.spawn(bringing);
        Ok(started)
    }

    /// Rejects a writable mount of the directory of skills: a skill could rewrite its own manifest.
    fn check_writes(&self, mounts: &[Mount]) -> Result<(), String> {
        let own = trust::identity_at(&self.directory);
        let writes = |mount: &&Mount| mount.access == Access::ReadWrite;
        let around = mounts
            .iter()
            .filter(writes)
            .find(|mount| trust::identity_at(&mount.host) == own);
        match around {
            None => Ok(()),
            Some(mount) => Err(format!(
                "refusing to let it write at {}: the directory of skills lies there; name a directory below",
                mount.guest().display()
            )),
        }
    }

    /// Records the directories that a skill may write to, as for any other program.
    fn note_writes(&self, mounts: &[Mount]) -> Result<(), String> {
        let writable = mounts.iter().filter(|mount| mount.access == Access::ReadWrite);
        let trees: Vec<&Path> = writable.map(|mount| mount.host.as_path()).collect();
        let noted = self.limits.consent.open(&trees, &self.directory);
        noted.map_err(|error| format!("cannot note where it may write: {error}"))
    }

    /// Returns the process of the file with this function, restarted if it has died.
    async fn host_of(&self, path: &str) -> Option<Arc<Host>> {
        let served = {
            let hosts = self.lock();
            hosts.iter().find_map(|(file, served)| {
                let host = served.host()?;
                let offers = host.offers(path);
                offers.then(|| (file.clone(), served.stamp.clone(), host))
            })
        };
        match served? {
            (.., host) if host.is_up() => Some(host),
            (file, stamp, _) => up(self.ensure(&file, &stamp)).await.ok(),
        }
    }

    fn local(&self) -> MutexGuard<'_, Option<Arc<Local>>> {
        self.local.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<String, Served>> {
        self.hosts.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Waits for a process to start. Cancels the start once no receiver is left.
async fn bring_up(
    file: String,
    manifest: Manifest,
    coming: StartingProcess,
    patience: Timeout,
    tell: watch::Sender<Option<Result<Arc<Host>, Unloaded>>>,
) {
    let begun = Instant::now();
    let up = tokio::select! {
        up = coming.up(&file, &manifest, patience) => up,
        () = tell.closed() => return,
    };
    let is_slow = begun.elapsed() >= patience.as_duration();
    let unloaded = |why: String| Unloaded {
        why: format!("{file}: {why}"),
        until: Instant::now() + if is_slow { BELIEVED } else { Duration::ZERO },
    };
    tell.send_replace(Some(up.map(Arc::new).map_err(unloaded)));
}

/// Resolves to the process of a file once it has started.
async fn up(mut started: Started) -> Result<Arc<Host>, String> {
    let ended = || "a process of skills was ended".to_owned();
    let told = started.wait_for(Option::is_some).await.map_err(|_| ended())?;
    let host = told.as_ref().ok_or_else(ended)?;
    host.as_ref()
        .map(Arc::clone)
        .map_err(|unloaded| unloaded.why.clone())
}

fn is_skill_file(name: &str) -> bool {
    let stem = name.strip_suffix(".py");
    stem.is_some_and(|stem| {
        stem.starts_with(|c: char| c.is_ascii_alphabetic())
            && stem.chars().all(|c| c.is_ascii_alphanumeric() || c == '_')
    })
}

impl Skill for SkillFiles {
    fn offer(&self) -> SkillFuture<'_, Offer> {
        Box::pin(async move {
            let hosts = match self.hosts().await {
                Ok(hosts) => hosts,
                Err(problem) => {
                    return Offer {
                        functions: Vec::new(),
                        problems: vec![problem],
                    };
                }
            };
            let mut offer = Offer::default();
            for host in hosts {
                match host {
                    Ok(host) => {
                        offer.functions.extend(host.functions());
                        offer.problems.extend(host.problems());
                    }
                    Err(problem) => offer.problems.push(problem),
                }
            }
            offer
        })
    }

    fn definition<'a>(&'a self, path: &'a str) -> SkillFuture<'a, Option<Digest>> {
        // The digest of the running process: a running program does not see a change of a file until another
        // caller reloads it.
        let hosts = self.lock();
        let definition = hosts.values().find_map(|served| served.host()?.definition(path));
        Box::pin(std::future::ready(definition))
    }

    fn call<'a>(
        &'a self,
        function: &'a Function,
        arguments: Map<String, Value>,
    ) -> SkillFuture<'a, Result<Value, CallError>> {
        Box::pin(async move {
            let gone = || CallError::new("unavailable", "the process of its skill cannot be started");
            let mut arguments = arguments;
            for _ in 0..MAX_STARTS {
                let host = self.host_of(function.path()).await.ok_or_else(gone)?;
                match host.call(function.path(), arguments).await {
                    Called::Answered(answer) => return answer,
                    Called::NotBegun(given) => arguments = given,
                }
            }
            Err(gone())
        })
    }

    fn close(&self) -> SkillFuture<'_, ()> {
        Box::pin(async move {
            // Nothing is started from here on. Dropping the hosts closes the channels to their processes,
            // which ends them.
            self.lock().clear();
            let mut tasks = std::mem::take(&mut *self.tasks.lock().unwrap_or_else(PoisonError::into_inner));
            while tasks.join_next().await.is_some() {}
            let local = self.local().take();
            if let Some(local) = local.and_then(Arc::into_inner) {
                // Leftovers are removed at the next start.
                local.close().await;
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_plain_names_are_files_of_skills() {
        for (name, expected) in [
            ("notes.py", true),
            ("weather_2.py", true),
            ("_shared.py", false),
            (".notes.py", false),
            ("notes.toml", false),
            ("my-notes.py", false),
            ("notes.py.bak", false),
        ] {
            assert_eq!(is_skill_file(name), expected, "{name}");
        }
    }
}
