//! The templates that are being made.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant, SystemTime};

use ringfence_policy::Scope;
use ringfence_sandbox::{SandboxFence, SandboxId, SandboxLimits, SandboxName, SnapshotInfo, Tag, rfc3339};
use serde_json::{Value, json};
use tokio::task::JoinSet;

use super::files::Upload;
use crate::client::Client;
use crate::error::Error;

/// Templates of one owner, and of all, that are kept in mind.
const MAX_OF_SCOPE: usize = 16;
const MAX: usize = 256;
/// Builds of one owner, and of all, at a time.
const MAX_BUILDS_OF_SCOPE: usize = 4;
const MAX_BUILDS: usize = 8;
/// Time that a template waits for its build, while others want its place.
const MAX_WAIT: Duration = Duration::from_secs(15 * 60);
/// Characters of a build's log, and of each entry.
const MAX_LOG: usize = 256 * 1024;
const MAX_ENTRY: usize = 2 * 1024;
/// Bytes of files that wait to be built, of one owner and of all.
const MAX_FILES_OF_SCOPE: u64 = 512 << 20;
const MAX_FILES: u64 = 4 << 30;
/// Uploads of one owner, and of all, at a time: a slow client fills its owner's part alone.
const MAX_UPLOADS_OF_SCOPE: usize = 4;
const MAX_UPLOADS: usize = 64;

/// The templates that are being made.
#[derive(Debug)]
pub(crate) struct Templates {
    /// Images on which keys may build; none: nobody builds.
    pub(super) images: Vec<String>,
    pub(super) all: Arc<Mutex<BTreeMap<String, Template>>>,
    pub(super) tasks: Mutex<JoinSet<()>>,
    /// Owners of the uploads under way.
    uploading: Mutex<Vec<Scope>>,
}

/// An upload under way.
#[derive(Debug)]
pub(super) struct UploadSlot<'a> {
    all: &'a Mutex<Vec<Scope>>,
    owner: Scope,
}

impl<'a> UploadSlot<'a> {
    fn begin(all: &'a Mutex<Vec<Scope>>, owner: &Scope) -> Option<Self> {
        let mut owners = lock(all);
        let own = owners.iter().filter(|other| *other == owner).count();
        if own >= MAX_UPLOADS_OF_SCOPE || owners.len() >= MAX_UPLOADS {
            return None;
        }
        owners.push(owner.clone());
        let owner = owner.clone();
        Some(Self { all, owner })
    }
}

impl Drop for UploadSlot<'_> {
    fn drop(&mut self) {
        let mut owners = lock(self.all);
        if let Some(index) = owners.iter().position(|owner| *owner == self.owner) {
            owners.swap_remove(index);
        }
    }
}

/// A template that was requested.
#[derive(Debug)]
pub(super) struct Template {
    pub(super) client: Client,
    pub(super) id: SandboxId,
    pub(super) name: SandboxName,
    pub(super) tags: BTreeSet<Tag>,
    /// Id of its only build.
    pub(super) build: String,
    pub(super) limits: SandboxLimits,
    pub(super) uploads: BTreeMap<String, Upload>,
    pub(super) status: Status,
    pub(super) log: Vec<Value>,
    /// Characters of the log.
    pub(super) logged: usize,
    /// Order of the requests.
    pub(super) number: u64,
    pub(super) requested: Instant,
}

impl Template {
    /// Creates a template without tags that waits for its build.
    pub(super) fn new(
        client: Client,
        id: SandboxId,
        name: SandboxName,
        build: String,
        limits: SandboxLimits,
    ) -> Self {
        Self {
            client,
            id,
            name,
            tags: BTreeSet::new(),
            build,
            limits,
            uploads: BTreeMap::new(),
            status: Status::Waiting,
            log: Vec::new(),
            logged: 0,
            number: 0,
            requested: Instant::now(),
        }
    }

    /// Returns `true` if the template may be forgotten: it is built, or nobody has come to build it.
    fn is_over(&self) -> bool {
        match self.status {
            Status::Ready | Status::Failed { .. } => true,
            Status::Waiting => self.requested.elapsed() > MAX_WAIT,
            Status::Building => false,
        }
    }
}

/// The status of a build.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Status {
    Waiting,
    Building,
    Ready,
    Failed {
        message: String,
        /// Number of the step, from 1 on; `None`: what comes before or after them.
        step: Option<usize>,
    },
}

impl Status {
    pub(super) const fn as_str(&self) -> &'static str {
        match self {
            Self::Waiting => "waiting",
            Self::Building => "building",
            Self::Ready => "ready",
            Self::Failed { .. } => "error",
        }
    }
}

/// Forgets the oldest template that is over, of an owner who has most of them.
fn forget_one(all: &mut BTreeMap<String, Template>) {
    let over = || all.iter().filter(|(_, template)| template.is_over());
    let mut counts: BTreeMap<&Scope, usize> = BTreeMap::new();
    for (_, template) in over() {
        *counts.entry(&template.client.scope).or_default() += 1;
    }
    let oldest = over().min_by_key(|(_, template)| {
        let count = counts.get(&template.client.scope);
        (Reverse(count), template.number)
    });
    if let Some(id) = oldest.map(|(id, _)| id.clone()) {
        all.remove(&id);
    }
}

impl Templates {
    /// Creates a registry. `images` are those on which keys may build.
    pub(crate) fn new(images: Vec<String>) -> Self {
        Self {
            images,
            all: Arc::default(),
            tasks: Mutex::default(),
            uploading: Mutex::default(),
        }
    }

    pub(super) fn lock(&self) -> MutexGuard<'_, BTreeMap<String, Template>> {
        lock(&self.all)
    }

    /// Adds a template, in place of the owner's oldest one that is not being made.
    pub(super) fn add(&self, mut template: Template) -> Result<(), Error> {
        let mut all = self.lock();
        template.number = all.values().map(|known| known.number).max().unwrap_or_default() + 1;
        let own = |known: &&Template| known.client.scope == template.client.scope;
        if all.values().filter(own).count() >= MAX_OF_SCOPE {
            let oldest = all
                .values()
                .filter(own)
                .filter(|known| known.is_over())
                .min_by_key(|known| known.number);
            let oldest = oldest.map(|known| known.id.to_string());
            let oldest = oldest.ok_or_else(|| {
                Error::busy(format!(
                    "{MAX_OF_SCOPE} of your templates wait to be built: build them first"
                ))
            })?;
            all.remove(&oldest);
        }
        if all.len() >= MAX {
            forget_one(&mut all);
        }
        if all.len() >= MAX {
            return Err(Error::busy(format!(
                "{MAX} templates are being made: try again later"
            )));
        }
        all.insert(template.id.to_string(), template);
        Ok(())
    }

    /// Applies `act` to a template of an owner.
    pub(super) fn with<T>(
        &self,
        scope: &Scope,
        id: &str,
        act: impl FnOnce(&mut Template) -> T,
    ) -> Result<T, Error> {
        let mut all = self.lock();
        let found = all.get_mut(id).filter(|template| template.client.scope == *scope);
        found.map(act).ok_or_else(|| {
            let id: String = id.chars().take(80).collect();
            Error::not_found(format!("template `{id}` is not being made"))
        })
    }

    /// Forgets the templates of an owner, with the files that wait to be built.
    pub(crate) fn clear(&self, scope: &Scope) {
        self.lock().retain(|_, template| template.client.scope != *scope);
    }

    /// Takes the right to receive one more file of an owner.
    pub(super) fn receive(&self, scope: &Scope) -> Result<UploadSlot<'_>, Error> {
        let uploading = UploadSlot::begin(&self.uploading, scope);
        let uploading = uploading
            .ok_or_else(|| Error::busy("too many files are sent at a time: try again later".to_owned()))?;
        let all = self.lock();
        let (mut own, mut total) = (0, 0);
        for template in all.values() {
            let bytes = template.uploads.values().map(Upload::length).sum::<u64>();
            total += bytes;
            own += if template.client.scope == *scope { bytes } else { 0 };
        }
        match own >= MAX_FILES_OF_SCOPE || total >= MAX_FILES {
            true => Err(Error::busy(format!(
                "{} MiB of your files wait to be built: build their templates first",
                own >> 20
            ))),
            false => Ok(uploading),
        }
    }

    /// Refuses a sandbox of a key with the fence `box` where the operator lets keys build no templates.
    pub(crate) fn check_open(&self, snapshot: &SnapshotInfo) -> Result<(), Error> {
        match snapshot.fence == Some(SandboxFence::Box) && self.images.is_empty() {
            true => Err(not_open()),
            false => Ok(()),
        }
    }

    /// Sets a template's status to building, if there is room for one more build.
    pub(super) fn begin(&self, scope: &Scope, id: &str) -> Result<(), Error> {
        let (own, others) = {
            let all = self.lock();
            let building = || all.values().filter(|known| known.status == Status::Building);
            (
                building().filter(|known| known.client.scope == *scope).count(),
                building().count(),
            )
        };
        if own >= MAX_BUILDS_OF_SCOPE || others >= MAX_BUILDS {
            return Err(Error::busy(format!(
                "at most {MAX_BUILDS_OF_SCOPE} templates are built at a time for each key, and {MAX_BUILDS} in all"
            )));
        }
        self.with(scope, id, |template| match template.status {
            Status::Waiting => {
                template.status = Status::Building;
                Ok(())
            }
            _ => Err(Error::invalid(
                "the build was started already: request the template again",
            )),
        })?
    }
}

pub(super) fn not_open() -> Error {
    Error::not_supported(
        "templates on this server",
        "its operator names the images to build them on: `ringfence serve --template-image IMAGE`",
    )
}

pub(super) fn lock<T>(shared: &Mutex<T>) -> MutexGuard<'_, T> {
    shared.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Template {
    /// Adds an entry to the log, unless it is full.
    pub(super) fn log(&mut self, level: &str, message: &str, step: Option<usize>) {
        /// Size of an entry without its message.
        const ENTRY: usize = 128;
        if self.logged < MAX_LOG {
            let message: String = message.chars().take(MAX_ENTRY).collect();
            self.logged += message.len() + ENTRY;
            self.log.push(json!({
                "timestamp": rfc3339(SystemTime::now()),
                "level": level,
                "message": message,
                "step": step.map_or_else(|| "base".to_owned(), |step| step.to_string()),
            }));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn templates_that_are_over_make_room_for_others() {
        let templates = Templates::new(Vec::new());
        let add = |owner: &str| {
            let id = SandboxId::random().unwrap();
            let client = Client {
                scope: owner.parse().unwrap(),
                name: owner.to_owned(),
                domain: None,
                most_sandboxes: None,
            };
            let name = "t".parse().unwrap();
            let template = Template::new(client, id.clone(), name, id.to_string(), SandboxLimits::default());
            templates.add(template).map(|()| id.to_string())
        };
        let full: Vec<String> = (0..MAX)
            .map(|index| add(&format!("owner-{}", index / 16)).unwrap())
            .collect();
        assert!(add("other").is_err(), "all wait");
        for id in &full[20..23] {
            templates.lock().get_mut(id).unwrap().status = Status::Ready;
        }
        templates.lock().get_mut(&full[3]).unwrap().status = Status::Ready;
        let known = |id: &str| templates.lock().contains_key(id);
        let other = add("other").unwrap();
        // The oldest of the owner who has most of them.
        assert!(!known(&full[20]) && known(&full[21]) && known(&full[3]) && known(&other));
        let long_ago = Instant::now()
            .checked_sub(MAX_WAIT + Duration::from_secs(1))
            .unwrap();
        templates.lock().get_mut(&full[40]).unwrap().requested = long_ago;
        for _ in 0..4 {
            add("other").unwrap();
        }
        assert!(!known(&full[40]) && known(&full[41]) && add("other").is_err());
    }

    #[test]
    fn slow_uploads_hold_up_their_owner_alone() {
        let all = Mutex::default();
        let [ann, bob]: [Scope; 2] = ["ann", "bob"].map(|name| name.parse().unwrap());
        let slow: Vec<_> = std::iter::from_fn(|| UploadSlot::begin(&all, &ann)).collect();
        assert_eq!(slow.len(), MAX_UPLOADS_OF_SCOPE);
        assert!(UploadSlot::begin(&all, &bob).is_some());
        drop(slow);
        assert!(UploadSlot::begin(&all, &ann).is_some());
    }
}
