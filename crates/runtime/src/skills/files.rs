//! Skills in Python: the files of a directory, each served by a fenced process of its own.

mod host;
mod manifest;
mod stamp;

use std::collections::BTreeMap;
use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use ringfence_policy::{Bytes, Cidr};
use serde_json::{Map, Value};
use tokio::sync::Semaphore;
use tokio::task::JoinSet;

use super::{Asked, Fault, Function, Offer, Skill};
use crate::exposure::Hidden;
use crate::local::{Fence, Local};
use host::{Host, Place};
use manifest::Manifest;
use stamp::Stamp;

/// Files of one directory.
const MAX_FILES: usize = 32;

/// The longest file: escaped as JSON, it must fit into a line.
const MAX_LENGTH: u64 = 128 * 1024;

/// What a process of skills may use.
#[derive(Debug, Clone)]
pub struct HostLimits {
    /// Of all its processes together.
    pub memory: Bytes,
    /// How strongly it is fenced.
    pub fence: Fence,
    /// Ranges of addresses that are not public, and which hosts of a manifest may have all the same.
    pub private_networks: Vec<Cidr>,
}

/// The Python files of a directory. Each is served by a process of its own, which is started at the first use, when the
/// file has changed, and when it has died.
#[derive(Debug)]
pub struct SkillFiles {
    directory: PathBuf,
    hidden: Hidden,
    limits: HostLimits,
    /// Until they are closed.
    local: Mutex<Option<Arc<Local>>>,
    hosts: Mutex<BTreeMap<String, Served>>,
    /// Whoever changes the hosts does so alone.
    turn: Semaphore,
    tasks: Mutex<JoinSet<()>>,
}

/// A file, with what serves it.
#[derive(Debug, Clone)]
struct Served {
    stamp: Stamp,
    /// Or why there is nothing.
    host: Result<Arc<Host>, String>,
}

impl SkillFiles {
    /// The files of `directory`, which is absolute and without links, served by processes of `local`, which is theirs
    /// alone. They see nothing that is `hidden`. Nothing is started yet.
    pub fn new(directory: PathBuf, local: Local, limits: HostLimits, hidden: Hidden) -> Self {
        Self {
            directory,
            hidden,
            limits,
            local: Mutex::new(Some(Arc::new(local))),
            hosts: Mutex::default(),
            turn: Semaphore::new(1),
            tasks: Mutex::default(),
        }
    }

    /// What serves each file at this moment, once that is up.
    async fn hosts(&self) -> Result<Vec<Served>, String> {
        let _turn = self.turn.acquire().await;
        let files = self.files()?;
        self.keep_only(&files);
        let up = files.iter().map(|(file, stamp)| self.ensure(file, stamp));
        Ok(futures_util::future::join_all(up).await)
    }

    /// The files of skills, as they are at this moment.
    fn files(&self) -> Result<Vec<(String, Stamp)>, String> {
        let unreadable = |error| format!("the directory of skills cannot be read: {error}");
        let entries = std::fs::read_dir(&self.directory).map_err(unreadable)?;
        let mut names: Vec<String> = entries
            .filter_map(|entry| entry.ok()?.file_name().into_string().ok())
            .filter(|name| is_skill_file(name))
            .collect();
        names.sort();
        if names.len() > MAX_FILES {
            return Err(format!(
                "there are {} files of skills; {MAX_FILES} is the limit",
                names.len()
            ));
        }
        let stamped = names.into_iter().map(|name| {
            let stamp = Stamp::of(&self.directory, &name);
            (name, stamp)
        });
        Ok(stamped.collect())
    }

    fn keep_only(&self, files: &[(String, Stamp)]) {
        let mut hosts = self.lock();
        hosts.retain(|name, _| files.iter().any(|(file, _)| file == name));
    }

    /// What serves a file, started if it is not there, or is that of an older version.
    async fn ensure(&self, file: &str, stamp: &Stamp) -> Served {
        let known = self.lock().get(file).cloned();
        if let Some(served) = known
            && served.stamp == *stamp
            && served.host.as_ref().is_ok_and(|host| host.is_up())
        {
            return served;
        }
        let served = Served {
            stamp: stamp.clone(),
            host: self.start(file).await,
        };
        self.lock().insert(file.to_owned(), served.clone());
        served
    }

    async fn start(&self, file: &str) -> Result<Arc<Host>, String> {
        let told = |why: String| format!("{file}: {why}");
        let manifest = Manifest::read(&self.directory, file).map_err(told)?;
        let mounts = manifest.mounts(&self.directory, &self.hidden).map_err(told)?;
        let network = manifest.network(&self.limits.private_networks).map_err(told)?;
        let place = Place {
            file,
            code: text(&self.directory.join(file)).map_err(told)?,
            mounts,
            network,
            limits: self.limits.clone(),
        };
        let local = self.local().clone();
        let local = local.ok_or_else(|| told("the skills are closed".to_owned()))?;
        let (host, task) = host::prepare(&local, place);
        {
            let mut tasks = self.tasks.lock().unwrap_or_else(PoisonError::into_inner);
            while tasks.try_join_next().is_some() {}
            tasks.spawn(task);
        }
        host.up(&manifest).await.map(Arc::new).map_err(told)
    }

    /// What serves the file that a function is in; started anew if it has died.
    async fn host_of(&self, path: &str) -> Option<Arc<Host>> {
        if let Some((.., host)) = self.serving(path, Host::is_up) {
            return Some(host);
        }
        let (file, stamp, _) = self.serving(path, |_| true)?;
        let _turn = self.turn.acquire().await;
        self.ensure(&file, &stamp).await.host.ok()
    }

    /// The file that a function is in, with what serves it, if that is `wanted`.
    fn serving(&self, path: &str, wanted: impl Fn(&Host) -> bool) -> Option<(String, Stamp, Arc<Host>)> {
        self.lock().iter().find_map(|(file, served)| {
            let host = served.host.as_ref().ok()?;
            let fits = host.offers(path) && wanted(host);
            fits.then(|| (file.clone(), served.stamp.clone(), Arc::clone(host)))
        })
    }

    fn local(&self) -> MutexGuard<'_, Option<Arc<Local>>> {
        self.local.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<String, Served>> {
        self.hosts.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A file of skills, which has to go over a bridge.
fn text(path: &Path) -> Result<String, String> {
    let mut text = String::new();
    let read = File::open(path).and_then(|file| file.take(MAX_LENGTH + 1).read_to_string(&mut text));
    read.map_err(|error| format!("it cannot be read: {error}"))?;
    match text.len() as u64 <= MAX_LENGTH {
        true => Ok(text),
        false => Err(format!("it is longer than {MAX_LENGTH} bytes")),
    }
}

/// Whether a name is that of a file of skills: not hidden, and not what other files import.
fn is_skill_file(name: &str) -> bool {
    let stem = name.strip_suffix(".py");
    stem.is_some_and(|stem| {
        stem.starts_with(|c: char| c.is_ascii_alphabetic())
            && stem.chars().all(|c| c.is_ascii_alphanumeric() || c == '_')
    })
}

impl Skill for SkillFiles {
    fn offer(&self) -> Asked<'_, Offer> {
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
            for Served { host, .. } in hosts {
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

    fn call<'a>(
        &'a self,
        function: &'a Function,
        arguments: Map<String, Value>,
    ) -> Asked<'a, Result<Value, Fault>> {
        Box::pin(async move {
            let host = self.host_of(function.path()).await;
            let gone = || Fault::new("unavailable", "the process of its skill cannot be started");
            host.ok_or_else(gone)?.call(function.path(), arguments).await
        })
    }

    fn close(&self) -> Asked<'_, ()> {
        Box::pin(async move {
            // From here on none is started. Without a host nobody speaks to its process any more, which ends with that.
            self.lock().clear();
            let mut tasks = std::mem::take(&mut *self.tasks.lock().unwrap_or_else(PoisonError::into_inner));
            while tasks.join_next().await.is_some() {}
            let local = self.local().take();
            if let Some(local) = local.and_then(Arc::into_inner) {
                // What cannot be removed is removed at the next start, which looks for it.
                let _ = local.close().await;
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
