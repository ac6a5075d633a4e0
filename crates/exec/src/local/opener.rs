//! Opens launchers: with namespaces, or without where they are forbidden.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use ringfence_jail::Launcher;
use ringfence_jail::protocol::{LauncherSpec, Missing};
use ringfence_policy::{Access, Limits, Mount};

use super::confinement::Strength;
use super::error::{Error, Failure, OpenError};
use super::extra::{Extra, WORKSPACE};
use super::guest::{Grouping, Groups, check_groups};
use super::launcher::LauncherClient;
use super::launcher_state::LauncherState;
use super::layout::{self, WritableDirs};
use super::settings::{Fence, Settings};
use super::workspace::Workspace;
use crate::trust::Conflict;

/// Opens launchers.
#[derive(Debug, Default)]
pub(super) struct Opener {
    /// Pre-forked launcher that awaits its specification.
    pub(super) spare: Mutex<Option<Launcher>>,
    /// Failure that showed that namespaces are forbidden.
    forbidden: OnceLock<Failure>,
}

/// Parameters of a launcher that is opened.
#[derive(Clone, Copy)]
pub(super) struct Opening<'a> {
    pub(super) fence: Fence,
    /// Limits of the launcher's first guest.
    pub(super) first: Option<&'a Limits>,
    pub(super) settings: &'a Settings,
    pub(super) groups: &'a Grouping,
}

impl Opener {
    /// Opens a launcher for an untrusted interpreter: confined by namespaces or by Landlock, never by less.
    pub(super) async fn open_unvouched(
        &self,
        extra: Extra,
        settings: &Settings,
    ) -> Result<LauncherState, Error> {
        // Creating control groups takes longer than such a program runs; rlimits suffice.
        let groups = Grouping::none();
        let opening = Opening {
            fence: Fence::BestEffort,
            first: None,
            settings,
            groups: &groups,
        };
        let served = self.open_with(|| Ok(extra), opening).await?;
        if served.has_cells() || ringfence_jail::landlock_abi().is_ok() {
            return Ok(served);
        }
        served.close().await;
        Err(Error::NeedsNamespaces {
            what: "without Landlock, an interpreter that must be asked about itself",
        })
    }

    /// Opens a launcher. The files that its guests need beyond the system's directories are determined while
    /// the launcher starts, and its first guest's control group is created while it comes up.
    pub(super) async fn open_with(
        &self,
        extra: impl FnOnce() -> Result<Extra, Error>,
        opening: Opening<'_>,
    ) -> Result<LauncherState, Error> {
        let fence = opening.fence;
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
            opening.settings.sweep_cold();
        }
        match fence {
            Fence::Unfenced => {
                let groups = opening.groups.get().cloned();
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
                opening.settings.sweep_cold();
                let groups = opening.groups.get().cloned();
                let made = groups.as_ref().zip(opening.first).map(|(groups, limits)| {
                    let group = groups.create(limits);
                    group.map(|group| (*limits, group))
                });
                (groups, made)
            };
            let (opened, (groups, made)) = tokio::join!(LauncherClient::open(launcher, &spec), looking);
            match opened {
                Ok(launcher) => {
                    if fence == Fence::Required
                        && let Err(error) = check_groups(groups.as_ref())
                    {
                        let _ = launcher.close();
                        return Err(error);
                    }
                    let served = LauncherState::new(launcher, WritableDirs::Cell, extra, strength, groups);
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
        self.open_flat(extra, strength, opening.groups.get().cloned(), Some(&failure))
            .await
    }

    async fn open_flat(
        &self,
        mut extra: Extra,
        strength: Strength,
        groups: Option<Arc<Groups>>,
        why: Option<&Failure>,
    ) -> Result<LauncherState, Error> {
        if extra.image.is_some() {
            return Err(Error::NeedsNamespaces { what: "an image" });
        }
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
        let launcher = LauncherClient::open(self.launcher()?, &LauncherSpec::Flat)
            .await
            .map_err(Error::from_open)?;
        let mut served = LauncherState::new(
            launcher,
            WritableDirs::Directory(PathBuf::new()),
            extra,
            strength,
            groups,
        );
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

    /// Closes the pre-forked launcher.
    pub(super) fn close(&self) {
        let spare = self.spare.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(spare) = spare {
            let _ = spare.close();
        }
    }
}

/// Returns `true` if a launcher failed because namespaces are forbidden, and not because of the request.
fn forbids_namespaces(failure: &Failure) -> bool {
    let by_request = failure.step.contains("host path");
    let refusals = [1, 13, 22, 28, 38, 87]; // EPERM, EACCES, EINVAL, ENOSPC, ENOSYS, EUSERS
    !by_request && refusals.contains(&failure.errno)
}
