//! The launchers that serve requests: a shared one per scope, or a private one for a request that needs it.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use ringfence_jail::Launcher;
use ringfence_jail::protocol::{LauncherSpec, Missing};
use ringfence_policy::{Access, Limits, Mount, Request, Scope, Trusted};

use super::found::add_libraries;
use super::guest::{Grouping, Groups, Held};
use super::launcher::{Failure, LauncherClient, OpenError};
use super::launcher_state::LauncherState;
use super::layout::{self, Extra, Places, Strength, WORKSPACE};
use super::workspace::Workspace;
use super::{Error, Fence, Settings, Warmth};
use crate::trust::Conflict;

/// Maximum number of shared launchers.
const MAX_SCOPES: usize = 8;

/// The key of a shared launcher: scope, workspace, and trusted paths.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct Key {
    pub(super) scope: Scope,
    pub(super) workspace: Option<PathBuf>,
    pub(super) trusted: Trusted,
}

/// The launchers of a backend.
#[derive(Debug, Default)]
pub(super) struct Launchers {
    /// Shared launchers, with a counter of last use.
    shared: tokio::sync::Mutex<HashMap<Key, (u64, Arc<LauncherState>)>>,
    uses: AtomicU64,
    /// Pre-forked launcher that awaits its specification.
    pub(super) spare: Mutex<Option<Launcher>>,
    /// Failure that showed that namespaces are forbidden.
    forbidden: OnceLock<Failure>,
}

impl Launchers {
    /// Returns the launcher for a request: the shared one of its scope, or a new private one.
    pub(super) async fn serve(
        &self,
        request: &Request,
        fence: Fence,
        settings: &Settings,
        groups: &Grouping,
    ) -> Result<Arc<LauncherState>, Error> {
        let Warmth::Pool { .. } = settings.warmth else {
            return self.open(request, fence, settings, groups).await.map(Arc::new);
        };
        // A shared launcher applies every layer or starts no guest: a lenient request must not weaken the
        // fence of others.
        let lenient = fence == Fence::BestEffort && ringfence_jail::landlock_abi().is_err();
        if fence.is_none() || lenient || !request.mounts.is_empty() {
            return self.open(request, fence, settings, groups).await.map(Arc::new);
        }
        let key = Key {
            scope: request.scope.clone(),
            workspace: request.workspace.clone(),
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
                workspace: workspace(key.workspace.as_deref(), settings),
                trusted: key.trusted.clone(),
                ..Extra::default()
            };
            add_libraries(&mut extra, settings, None);
            extra.keep()?;
            Ok(extra)
        };
        let served = Arc::new(
            self.open_with(extra, (Fence::Default, None), (settings, groups))
                .await?,
        );
        served.keep_warm(settings)?;
        if shared.len() >= MAX_SCOPES
            && let Some(oldest) = shared
                .iter()
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
        fence: Fence,
        settings: &Settings,
        groups: &Grouping,
    ) -> Result<LauncherState, Error> {
        let extra = || {
            let mut extra = Extra {
                mounts: request.mounts.clone(),
                workspace: workspace(request.workspace.as_deref(), settings),
                trusted: request.trusted.clone(),
                ..Extra::default()
            };
            add_libraries(&mut extra, settings, Some(request.language));
            // Without a fence nothing is protected.
            if !fence.is_none() {
                extra.keep()?;
            }
            Ok(extra)
        };
        self.open_with(extra, (fence, Some(&request.limits)), (settings, groups))
            .await
    }

    /// Opens a launcher for an untrusted interpreter: confined by namespaces or by Landlock, never by less.
    pub(super) async fn open_unvouched(
        &self,
        extra: Extra,
        settings: &Settings,
    ) -> Result<LauncherState, Error> {
        // Creating control groups takes longer than such a program runs; rlimits suffice.
        let groups = Grouping::none();
        let fence = (Fence::BestEffort, None);
        let served = self.open_with(|| Ok(extra), fence, (settings, &groups)).await?;
        if served.has_cells() || ringfence_jail::landlock_abi().is_ok() {
            return Ok(served);
        }
        served.close().await;
        Err(Error::NeedsNamespaces {
            what: "without Landlock, an interpreter that must be asked about itself",
        })
    }

    /// Opens a launcher. The files that its guests need beyond the system's directories are determined while
    /// the launcher starts, and its first guest's control group is created, with these limits, while it comes
    /// up.
    async fn open_with(
        &self,
        extra: impl FnOnce() -> Result<Extra, Error>,
        (fence, first): (Fence, Option<&Limits>),
        (settings, groups): (&Settings, &Grouping),
    ) -> Result<LauncherState, Error> {
        let namespaced = !fence.is_none() && self.forbidden.get().is_none();
        let launcher = namespaced.then(|| self.launcher()).transpose()?;
        let extra = match extra() {
            Ok(extra) => extra,
            Err(error) => {
                // The launcher is not needed.
                launcher.map(Launcher::close);
                return Err(error);
            }
        };
        if launcher.is_none() {
            settings.sweep_cold();
        }
        match fence {
            Fence::Unfenced => {
                let groups = groups.get().cloned();
                return self.open_flat(extra, Strength::Limits, groups, None).await;
            }
            Fence::Host => return self.open_flat(extra, Strength::Nothing, None, None).await,
            Fence::Default | Fence::Required | Fence::BestEffort => {}
        }
        let missing = if fence == Fence::BestEffort {
            Missing::Report
        } else {
            Missing::Refuse
        };
        let strength = Strength::Full(missing);
        if let Some(launcher) = launcher {
            let spec = LauncherSpec::Namespaced(layout::template(&extra));
            // Runs while the launcher comes up.
            let looking = async {
                settings.sweep_cold();
                let groups = groups.get().cloned();
                let made = groups.as_ref().zip(first).map(|(groups, limits)| {
                    let group = groups.create(limits);
                    group.map(|group| (*limits, group))
                });
                (groups, made)
            };
            let (opened, (groups, made)) = tokio::join!(LauncherClient::open(launcher, &spec), looking);
            match opened {
                Ok(lane) => {
                    if fence == Fence::Required
                        && let Err(error) = check_groups(groups.as_ref())
                    {
                        let _ = lane.close();
                        return Err(error);
                    }
                    let served = LauncherState::new(lane, Places::Cell, extra, strength, groups);
                    return Ok(served.beginning_with(made.transpose()?));
                }
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
        self.open_flat(extra, strength, groups.get().cloned(), Some(&failure))
            .await
    }

    async fn open_flat(
        &self,
        mut extra: Extra,
        strength: Strength,
        groups: Option<Arc<Groups>>,
        why: Option<&Failure>,
    ) -> Result<LauncherState, Error> {
        // Without mounts, a directory meant for /workspace becomes the workspace at its own path.
        let here =
            |mount: &mut Mount| mount.guest() == Path::new(WORKSPACE) && mount.access != Access::ReadOnly;
        if let Some(mount) = extra.mounts.extract_if(.., here).next() {
            extra.workspace = Some(Workspace {
                path: mount.host,
                protected: Vec::new(),
            });
        }
        if let (Strength::Full(_), Some((trusted, tree))) = (strength, extra.kept_by_mounts()) {
            let tree = tree.to_owned();
            return Err(Error::Trusted(Conflict::Unkept { tree, trusted }));
        }
        extra.top = extra.top.without_pins();
        if extra.mounts.iter().any(|mount| mount.guest() != mount.host) {
            return Err(Error::NeedsNamespaces {
                what: "a mount at another path than the host's",
            });
        }
        let lane = LauncherClient::open(self.launcher()?, &LauncherSpec::Flat)
            .await
            .map_err(Error::from_open)?;
        let mut served = LauncherState::new(lane, Places::Directory(PathBuf::new()), extra, strength, groups);
        served.warn(why.map(|failure| {
            format!(
                "this machine forbids namespaces ({}: {}); the run was confined by the other layers",
                failure.step,
                std::io::Error::from_raw_os_error(failure.errno)
            )
        }));
        Ok(served)
    }

    /// Takes the pre-forked launcher, or starts one.
    fn launcher(&self) -> Result<Launcher, Error> {
        let spare = self.spare.lock().unwrap_or_else(PoisonError::into_inner).take();
        match spare {
            Some(launcher) => Ok(launcher),
            None => Launcher::spawn().map_err(|error| Error::from_open(OpenError::Start(error))),
        }
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
        let spare = self.spare.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(spare) = spare {
            let _ = spare.close();
        }
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

/// Checks that limits can be enforced for all processes of a guest together.
///
/// # Errors
/// If there are no control groups, or they do not enforce all limits.
pub(super) fn check_groups(groups: Option<&Arc<Groups>>) -> Result<(), Error> {
    let missing = match groups.map(|groups| groups.held()) {
        Some(Held::Together) => return Ok(()),
        Some(Held::TogetherButProcessor) => "processor time",
        Some(Held::EachProcess) | None => "memory and processor time",
    };
    Err(Error::NoControlGroups { missing })
}

fn workspace(path: Option<&Path>, settings: &Settings) -> Option<Workspace> {
    path.map(|path| Workspace {
        path: path.to_path_buf(),
        protected: settings.protected.clone(),
    })
}

/// Returns `true` if a launcher failed because namespaces are forbidden, and not because of the request.
fn forbids_namespaces(failure: &Failure) -> bool {
    let by_request = failure.step.contains("host path");
    let refusals = [1, 13, 22, 28, 38, 87]; // EPERM, EACCES, EINVAL, ENOSPC, ENOSYS, EUSERS
    !by_request && refusals.contains(&failure.errno)
}
