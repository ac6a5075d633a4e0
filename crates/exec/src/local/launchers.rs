//! The launchers that serve requests: a shared one per scope, or a private one for a request that needs it.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use ringfence_policy::{Account, Mount, PACKAGES, Request, Scope, Trusted};

use super::error::Error;
use super::extra::Extra;
use super::guest::Grouping;
use super::interpreters::add_libraries;
use super::launcher_state::LauncherState;
use super::opener::{Opener, Opening};
use super::root_ids::RootIds;
use super::settings::{Fence, Settings, Warmth};
use super::workspace::Workspace;

/// Maximum number of shared launchers without packages.
const MAX_SCOPES: usize = 8;

/// Maximum number of shared launchers with packages. Each may keep these in memory.
const MAX_ENVIRONMENTS: usize = 4;

/// The key of a shared launcher: scope, account, workspace, packages, and trusted paths.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct Key {
    pub(super) scope: Scope,
    pub(super) account: Account,
    pub(super) workspace: Option<PathBuf>,
    /// Host directory of packages.
    pub(super) packages: Option<PathBuf>,
    pub(super) trusted: Trusted,
}

/// The kind of launcher that serves a request.
#[derive(Debug, Clone, Copy)]
pub(super) struct Kind {
    pub(super) fence: Fence,
    pub(super) account: Account,
}

impl Kind {
    pub(super) const fn of(fence: Fence) -> Self {
        let account = Account::Sandbox;
        Self { fence, account }
    }
}

/// The launchers of a backend.
#[derive(Debug, Default)]
pub(super) struct Launchers {
    /// Shared launchers, with a counter of last use.
    shared: tokio::sync::Mutex<HashMap<Key, (u64, Arc<LauncherState>)>>,
    uses: AtomicU64,
    pub(super) opener: Opener,
}

impl Launchers {
    /// Returns the launcher for a request: the shared one of its scope, or a new private one.
    pub(super) async fn serve(
        &self,
        request: &Request,
        kind: Kind,
        settings: &Settings,
        groups: &Grouping,
    ) -> Result<Arc<LauncherState>, Error> {
        let Kind { fence, account } = kind;
        let Warmth::Pool { .. } = settings.warmth else {
            return self.open(request, kind, settings, groups).await.map(Arc::new);
        };
        // A shared launcher applies every layer or starts no guest: a lenient request must not weaken the
        // fence of others.
        let lenient = fence == Fence::BestEffort && ringfence_jail::landlock_abi().is_err();
        let packages = packages_alone(request);
        let has_mounts = !request.mounts.is_empty() && packages.is_none();
        let is_own = has_mounts || request.image.is_some() || account.is_root();
        if fence.is_none() || lenient || is_own {
            return self.open(request, kind, settings, groups).await.map(Arc::new);
        }
        let key = Key {
            scope: request.scope.clone(),
            account,
            workspace: request.workspace.clone(),
            packages,
            // Without a writable directory, trusted paths make no difference.
            trusted: match request.workspace {
                Some(_) => request.trusted.clone(),
                None => Trusted::none(),
            },
        };
        let served = self.shared(&key, settings, groups).await?;
        served.check_fence(fence)?;
        Ok(served)
    }

    async fn shared(
        &self,
        key: &Key,
        settings: &Settings,
        groups: &Grouping,
    ) -> Result<Arc<LauncherState>, Error> {
        let now = self.uses.fetch_add(1, Ordering::Relaxed);
        let mut shared = self.shared.lock().await;
        let usable = |served: &LauncherState| served.is_open() && served.keeps_what_is_there();
        if let Some((used, served)) = shared.get_mut(key).filter(|(_, served)| usable(served)) {
            *used = now;
            return Ok(Arc::clone(served));
        }
        let extra = || {
            let mut extra = Extra {
                account: key.account,
                workspace: workspace(key.workspace.as_deref(), settings),
                mounts: key.packages.iter().cloned().map(python_packages).collect(),
                trusted: key.trusted.clone(),
                ..Extra::default()
            };
            add_libraries(&mut extra, settings, None);
            extra.keep()?;
            Ok(extra)
        };
        let opening = Opening {
            fence: Fence::Default,
            first: None,
            settings,
            groups,
        };
        let served = Arc::new(self.opener.open_with(extra, opening).await?);
        // Only sandboxes have another account, and their init has workers of its own.
        if key.account == Account::Sandbox {
            served.keep_warm(settings)?;
            served.keep_preloaded(settings);
        }
        let is_peer = |other: &&Key| other.packages.is_some() == key.packages.is_some();
        let most = match key.packages {
            Some(_) => MAX_ENVIRONMENTS,
            None => MAX_SCOPES,
        };
        if shared.keys().filter(is_peer).count() >= most
            && let Some(oldest) = shared
                .iter()
                .filter(|(key, _)| is_peer(key))
                .min_by_key(|(_, (used, _))| *used)
                .map(|(key, _)| key.clone())
            && let Some((_, evicted)) = shared.remove(&oldest)
            && let Some(evicted) = Arc::into_inner(evicted)
        {
            // One in use is closed by its last run.
            evicted.close().await;
        }
        if let Some((_, broken)) = shared.insert(key.clone(), (now, Arc::clone(&served)))
            && let Some(broken) = Arc::into_inner(broken)
        {
            broken.close().await;
        }
        Ok(served)
    }

    /// Opens a private launcher for one request.
    async fn open(
        &self,
        request: &Request,
        kind: Kind,
        settings: &Settings,
        groups: &Grouping,
    ) -> Result<LauncherState, Error> {
        let Kind { fence, account } = kind;
        let root_ids = match account.is_root() {
            true => Some(RootIds::take(groups.get())?),
            false => None,
        };
        let extra = || {
            let mut extra = Extra {
                account,
                root_ids,
                mounts: request.mounts.clone(),
                workspace: workspace(request.workspace.as_deref(), settings),
                trusted: request.trusted.clone(),
                image: request.image.clone(),
                ..Extra::default()
            };
            // An image has its own.
            if extra.image.is_none() {
                add_libraries(&mut extra, settings, Some(request.language));
            }
            // Without a fence nothing is protected.
            if !fence.is_none() {
                extra.keep()?;
            }
            Ok(extra)
        };
        let opening = Opening {
            fence,
            first: Some(&request.limits),
            settings,
            groups,
        };
        self.opener.open_with(extra, opening).await
    }

    /// Opens a shared launcher before its first request, and waits until its pool is full; `false` if it has
    /// no pool.
    pub(super) async fn warm_up(
        &self,
        key: &Key,
        settings: &Settings,
        groups: &Grouping,
    ) -> Result<bool, Error> {
        let served = self.shared(key, settings, groups).await?;
        Ok(served.warmed_up().await)
    }

    /// Closes all shared launchers, and the pre-forked one.
    pub(super) async fn close(&self) {
        self.opener.close();
        let launchers: Vec<_> = self
            .shared
            .lock()
            .await
            .drain()
            .map(|(_, (_, served))| served)
            .collect();
        for served in launchers {
            if let Some(served) = Arc::into_inner(served) {
                served.close().await;
            }
        }
    }
}

/// Returns the packages of a request that has no other files of the host than these and its workspace.
fn packages_alone(request: &Request) -> Option<PathBuf> {
    match request.mounts.as_slice() {
        [mount] if *mount == python_packages(mount.host.clone()) => Some(mount.host.clone()),
        _ => None,
    }
}

/// Returns the mount of packages that a pool of warm interpreters shows.
fn python_packages(host: PathBuf) -> Mount {
    Mount::packages(host, PACKAGES)
}

fn workspace(path: Option<&Path>, settings: &Settings) -> Option<Workspace> {
    path.map(|path| Workspace {
        path: path.to_path_buf(),
        protected: settings.protected.clone(),
    })
}
