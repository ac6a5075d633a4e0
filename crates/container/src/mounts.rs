//! The host directories that a container shows, and its user.

use std::path::Path;

use ringfence_exec::local::{NOBODY, Workspace};
use ringfence_exec::mount_guard::DeniedPaths;
use ringfence_exec::trust::{self, ProtectedMount};
use ringfence_policy::{Access, Request, Trusted};

use super::guest_paths::{OUTPUT, WORKSPACE};
use super::run_error::RunError;
use super::settings::Settings;
use super::spec::{Bind, BindError, User};
use super::supervisor::ContainerSupervisor;

/// Binds the workspace and mounts; paths that the host would execute, and trusted paths, are read-only.
pub(super) fn shown(request: &Request, settings: &Settings) -> Result<Vec<Bind>, RunError> {
    let Request {
        workspace,
        mounts,
        trusted,
        ..
    } = request;
    let hidden = &settings.hidden;
    let mut binds = Vec::new();
    if let Some(workspace) = workspace {
        binds.extend(working_in(workspace, trusted, settings)?);
    }
    // Mounts with copy access are copied once the container runs.
    for mount in mounts.iter().filter(|mount| mount.access != Access::Copy) {
        binds.push(Bind::new(mount, hidden)?);
        if mount.access == Access::ReadWrite {
            let mounts = trust::protected_mounts(&mount.host, trusted)?;
            binds.extend(protection_in(&mount.host, mount.guest(), mounts, hidden)?);
        }
    }
    Ok(binds.into_iter().map(Bind::users).collect())
}

/// Binds the workspace, and its protected entries read-only. With a closed top directory, the workspace is
/// read-only and its other entries are not.
fn working_in(workspace: &Path, trusted: &Trusted, settings: &Settings) -> Result<Vec<Bind>, RunError> {
    let (place, hidden) = (Path::new(WORKSPACE), &settings.hidden);
    let guarded = workspace_of(workspace, settings).guarded(trusted)?;
    let top = guarded.top.without_pins();
    let (rest, entries, access) = match top.closed {
        None => (Access::ReadWrite, top.protected, Access::ReadOnly),
        Some(_) => (Access::ReadOnly, top.open, Access::ReadWrite),
    };
    let mut binds = vec![Bind::at(workspace, place, rest, hidden)?];
    for path in entries
        .iter()
        .filter(|path| !is_protected(path, workspace, &guarded.mounts))
    {
        let guest = place.join(path.file_name().unwrap_or_default());
        let bind = Bind::at(path, &guest, access, hidden)?;
        binds.push(if access == Access::ReadWrite {
            bind.in_place()
        } else {
            bind
        });
    }
    binds.extend(protection_in(workspace, place, guarded.mounts, hidden)?);
    Ok(binds)
}

/// Returns `true` if one of these mounts is at a path already.
fn is_protected(path: &Path, workspace: &Path, mounts: &[ProtectedMount]) -> bool {
    mounts.iter().any(|mount| workspace.join(&mount.below) == path)
}

/// Returns binds that protect paths in a directory, and pin the directories above them in place.
fn protection_in(
    host: &Path,
    guest: &Path,
    mounts: Vec<ProtectedMount>,
    hidden: &DeniedPaths,
) -> Result<Vec<Bind>, RunError> {
    let mut binds = Vec::new();
    for mount in mounts {
        let path = host.join(&mount.below);
        let bind = Bind::at(&path, &guest.join(&mount.below), mount.access, hidden)?;
        binds.push(bind.in_place());
    }
    Ok(binds)
}

/// Returns the warning for a workspace whose top directory is closed to programs.
pub(super) fn warning(workspace: Option<&Path>, settings: &Settings) -> Option<String> {
    let guarded = workspace_of(workspace?, settings).guarded(&Trusted::none());
    guarded.ok()?.top.without_pins().warning()
}

fn workspace_of(path: &Path, settings: &Settings) -> Workspace {
    Workspace {
        path: path.to_path_buf(),
        protected: settings.protected.clone(),
    }
}

/// Chooses the program's user: root in a rootless engine, else the server's own user, or `nobody` if that is
/// root.
pub(super) fn user(settings: &Settings, supervisor: &ContainerSupervisor) -> User {
    let ours = settings.user;
    if supervisor.info().rootless {
        return User { uid: 0, gid: 0 };
    }
    match ours.uid {
        0 => User {
            uid: NOBODY,
            gid: NOBODY,
        },
        _ => ours,
    }
}

/// Binds an output directory, at `/output` and at its own path, so that paths printed by the program are
/// valid on the host. Exempt from the denylist: it lies among our own directories, and is meant to be
/// mounted.
pub(super) fn kept(directory: &Path) -> Result<[Bind; 2], BindError> {
    let seen = |guest| Bind::ours(directory, guest, Access::ReadWrite, &DeniedPaths::default());
    Ok([seen(Path::new(OUTPUT))?, seen(directory)?])
}
