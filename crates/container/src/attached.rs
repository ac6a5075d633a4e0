//! Mounts that are made for an engine by descriptor, at paths that no program can change.
//!
//! - Id-mapped mounts (mount_setattr(2)), which give the container's user the rights of the owner: a server of root runs
//!   containers as `nobody`, to whom a workspace of root is read-only. Files that programs make belong to the
//!   directory's owner; the seccomp filter of every container refuses set-user-ID bits.
//! - Any mount of the user's in a container that cannot report what the engine mounted.
//!
//! They exist on the host only until the container has started, which then has its own copies.

use std::fs::{self, DirBuilder, File};
use std::io;
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::sync::Once;

use ringfence_exec::local::{is_root, rights};
use ringfence_exec::owner::Owner;
use ringfence_jail::AttachedMount;
use ringfence_policy::Access;
use rustix::io::Errno;

use super::binds::MOUNTS;
use super::runtime::ContainerRuntime;
use super::spec::{Bind, BindError, OciRuntime, Spec, User};

/// Separates the owner of a mount from its number, in the name of its directory.
const SEPARATOR: char = '~';

/// The mounts made for a container that is being created.
#[derive(Debug, Default)]
pub(super) struct AttachedMounts {
    mounts: Vec<(PathBuf, AttachedMount)>,
    pub(super) warnings: Vec<String>,
}

impl AttachedMounts {
    /// Makes the mounts that a container needs, and redirects the specification's binds there.
    ///
    /// # Errors
    /// If a path was exchanged since it was checked, or could be before the engine resolves it, and nothing would
    /// notice.
    pub(super) fn attach(spec: &mut Spec, engine: &ContainerRuntime) -> Result<Self, BindError> {
        let mut attached = Self::default();
        let reports = spec.reports_mounts();
        let wanted: Vec<Bind> = match reports {
            true => outermost(spec).cloned().collect(),
            // Each is resolved by the engine.
            false => spec
                .binds
                .iter()
                .filter(|bind| bind.is_users())
                .cloned()
                .collect(),
        };
        let is_possible = !wanted.is_empty() && is_root() && engine.shares_mounts();
        for (number, bind) in wanted.iter().enumerate() {
            let guest = guest(bind, spec);
            let place = MountPlace {
                owner: &spec.owner,
                name: spec.name.as_str(),
                number,
            };
            let attach = |guest| match is_possible {
                true => attach(bind, &place, guest),
                false => Ok(None),
            };
            let mut mount = match guest {
                Guest::Mapped(user) => attach(Some(user))?,
                Guest::Owner | Guest::Other => None,
            };
            if mount.is_none() && guest != Guest::Owner {
                attached.warnings.extend(denied(bind, spec.user));
            }
            if mount.is_none() && !reports {
                mount = attach(None)?;
            }
            match mount {
                Some(mount) => attached.mounts.push((bind.host().to_path_buf(), mount)),
                None if reports => {}
                None => bind.check_ancestors(&spec.ledger)?,
            }
        }
        spec.binds = spec.binds.moved(|host| attached.place(host));
        Ok(attached)
    }

    /// Returns the path of a host path below the innermost mount around it, if there is one.
    fn place(&self, host: &Path) -> Option<PathBuf> {
        let around = self.mounts.iter().filter(|(from, _)| host.starts_with(from));
        let (from, mount) = around.max_by_key(|(from, _)| from.components().count())?;
        let rest = host.strip_prefix(from).ok()?;
        Some(match rest.as_os_str().is_empty() {
            true => mount.target(),
            false => mount.target().join(rest),
        })
    }
}

/// The container's user, compared with the owner of a bind.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Guest {
    /// The owner, or root of the container, which is the server's own user.
    Owner,
    /// Another one, which can get the owner's rights.
    Mapped(u32),
    /// Another one under gVisor, which ignores the filter: its guests could make programs that run as the owner.
    Other,
}

fn guest(bind: &Bind, spec: &Spec) -> Guest {
    let is_owner = owner(bind.host()).is_none_or(|uid| uid == spec.user.uid);
    match spec.oci_runtime {
        _ if is_owner || spec.user.uid == 0 => Guest::Owner,
        OciRuntime::Runc | OciRuntime::Crun => Guest::Mapped(spec.user.uid),
        OciRuntime::Runsc | OciRuntime::Default => Guest::Other,
    }
}

/// Returns the binds that are not part of another one.
fn outermost(spec: &Spec) -> impl Iterator<Item = &Bind> {
    let is_inner = |bind: &Bind| {
        let mut others = spec.binds.iter().filter(|other| other.is_users());
        others.any(|other| other.host() != bind.host() && bind.host().starts_with(other.host()))
    };
    spec.binds
        .iter()
        .filter(move |bind| bind.is_users() && !is_inner(bind))
}

fn owner(path: &Path) -> Option<u32> {
    fs::metadata(path).ok().map(|found| found.uid())
}

/// The identity of a mount among those of this server.
struct MountPlace<'a> {
    owner: &'a Owner,
    /// Name of the container.
    name: &'a str,
    /// Number in the container.
    number: usize,
}

/// Makes a mount; `None` if this machine or the file system cannot.
fn attach(
    bind: &Bind,
    place: &MountPlace<'_>,
    guest: Option<u32>,
) -> Result<Option<AttachedMount>, BindError> {
    match try_attach(bind, place, guest) {
        Ok(mount) => Ok(Some(mount)),
        Err(error) => match Errno::from_io_error(&error) {
            Some(Errno::STALE) => Err(bind.exchanged("another file or directory")),
            Some(Errno::LOOP | Errno::NOTDIR) => Err(bind.exchanged("a link on the way")),
            Some(Errno::NOENT) => Err(bind.exchanged("nothing")),
            _ => Ok(None),
        },
    }
}

fn try_attach(bind: &Bind, place: &MountPlace<'_>, guest: Option<u32>) -> io::Result<AttachedMount> {
    let MountPlace { owner, name, number } = place;
    let directory = Path::new(MOUNTS);
    DirBuilder::new().recursive(true).mode(0o700).create(directory)?;
    static SWEEP: Once = Once::new();
    SWEEP.call_once(|| sweep(directory));
    let target = directory.join(format!("{owner}{SEPARATOR}{name}.{number}"));
    match bind.host().is_dir() {
        true => DirBuilder::new().mode(0o700).create(&target)?,
        false => drop(File::create_new(&target)?),
    }
    AttachedMount::attach(bind.host(), bind.identity(), &target, guest).inspect_err(|_| {
        let _ = AttachedMount::remove(&target);
    })
}

/// Detaches the mounts of dead processes.
fn sweep(directory: &Path) {
    for entry in fs::read_dir(directory).into_iter().flatten().flatten() {
        let name = entry.file_name();
        let owner = name.to_str().and_then(|name| name.split(SEPARATOR).next());
        if owner.is_some_and(|owner| owner.parse::<Owner>().is_ok_and(|owner| owner.is_dead())) {
            let _ = AttachedMount::remove(&entry.path());
        }
    }
}

/// Returns a warning if the container's user lacks rights that the bind promises.
fn denied(bind: &Bind, user: User) -> Option<String> {
    let found = fs::metadata(bind.host()).ok()?;
    let (wanted, verb) = match bind.access() {
        Access::ReadWrite => (0o3, "write"),
        Access::ReadOnly | Access::Copy => (0o4, "read"),
    };
    (rights(&found, user.uid) & wanted != wanted).then(|| {
        format!(
            "code runs as the user {0} in the container, which may not {verb} in {1}: it belongs to the user {2}; give it \
             to that user (`chown -R {0} {1}`), or use the runtime `local`",
            user.uid,
            bind.host().display(),
            found.uid(),
        )
    })
}

#[cfg(test)]
mod tests {
    use ringfence_jail::FileIdentity;

    use super::*;

    #[test]
    fn mounts_of_dead_processes_are_detached_and_files_below_stay() {
        if !is_root() {
            return eprintln!("skipped: only root can mount");
        }
        let place = tempfile::tempdir().unwrap();
        let (source, mounts) = (place.path().join("users"), place.path().join("mounts"));
        for directory in [&source, &mounts] {
            fs::create_dir(directory).unwrap();
        }
        fs::write(source.join("file"), "kept").unwrap();
        let alive = Owner::new().unwrap().to_string();
        let pid = std::process::id().to_string();
        let dead = alive.replace(&format!(".{pid}."), ".4194305.");
        assert_ne!(dead, alive);
        let targets = [&alive, &dead].map(|owner| mounts.join(format!("{owner}{SEPARATOR}name.0")));
        let [first, second] = targets.each_ref().map(|target| {
            fs::create_dir(target).unwrap();
            let checked = FileIdentity::at(&source).unwrap();
            AttachedMount::attach(&source, checked, target, Some(65_534)).unwrap()
        });
        std::mem::forget(second);
        let shown = fs::metadata(targets[0].join("file")).unwrap();
        assert_eq!((shown.uid(), shown.gid()), (65_534, 65_534));
        sweep(&mounts);
        assert!(targets[0].join("file").exists() && !targets[1].exists());
        drop(first);
        assert!(!targets[0].exists());
        assert_eq!(fs::read_to_string(source.join("file")).unwrap(), "kept");
    }
}
