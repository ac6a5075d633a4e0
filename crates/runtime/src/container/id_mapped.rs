//! Gives the container's user the rights of a bind mount's owner, by an id-mapped mount (mount_setattr(2)).
//!
//! A server of root runs containers as `nobody`, to whom a workspace of root is read-only. The mount exists on the host
//! only until the container has started, which then has its own copy. Files that programs make belong to the directory's
//! owner; the seccomp filter of every container refuses set-user-ID bits.

use std::fs::{self, DirBuilder, File};
use std::io;
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::sync::Once;

use ringfence_jail::IdMappedMount;
use ringfence_policy::Access;

use super::ContainerRuntime;
use super::spec::{Bind, OciRuntime, Spec, User};
use crate::local::{is_root, rights};
use crate::owner::Owner;

/// Directory of the mounts. A file system in memory that nobody empties recursively: below each mount lie the user's files.
const MOUNTS: &str = "/run/ringfence/mounts";

/// Separates the owner of a mount from its number, in the name of its directory.
const SEPARATOR: char = '~';

/// Returns `true` for a path below one of the mounts.
pub(super) fn holds(path: &Path) -> bool {
    path != Path::new(MOUNTS) && path.starts_with(MOUNTS)
}

/// The bind mounts of a container that is being created.
#[derive(Debug, Default)]
pub(super) struct Mapped {
    mounts: Vec<(PathBuf, IdMappedMount)>,
    pub(super) warnings: Vec<String>,
}

impl Mapped {
    /// Mounts what the container's user may not use as it is, and redirects the specification's binds there.
    pub(super) fn attach(spec: &mut Spec, engine: &ContainerRuntime) -> Self {
        let mut mapped = Self::default();
        let wanted: Vec<Bind> = outermost(spec).cloned().collect();
        let foreign = |bind: &&Bind| owner(bind.host()).is_some_and(|uid| uid != spec.user.uid);
        let foreign: Vec<&Bind> = wanted.iter().filter(foreign).collect();
        // The container's root is the server's own user, or the user is the same.
        if foreign.is_empty() || spec.user.uid == 0 {
            return mapped;
        }
        // gVisor ignores the filter, so its guests could make programs that run as the owner.
        let is_filtered = matches!(spec.oci_runtime, OciRuntime::Runc | OciRuntime::Crun);
        let is_possible = is_filtered && is_root() && engine.shares_mounts();
        for (number, bind) in foreign.into_iter().enumerate() {
            let mount = match is_possible {
                true => attach(bind.host(), (&spec.owner, spec.name.as_str(), number), spec.user),
                false => Err(io::ErrorKind::Unsupported.into()),
            };
            match mount {
                Ok(mount) => mapped.mounts.push((bind.host().to_path_buf(), mount)),
                Err(_) => mapped.warnings.extend(denied(bind, spec.user)),
            }
        }
        spec.binds = spec.binds.moved(|host| mapped.place(host));
        mapped
    }

    /// Returns the path of a host path below a mount, if there is one.
    fn place(&self, host: &Path) -> Option<PathBuf> {
        let below = |(from, mount): &(PathBuf, IdMappedMount)| {
            let rest = host.strip_prefix(from).ok()?;
            Some(match rest.as_os_str().is_empty() {
                true => mount.target(),
                false => mount.target().join(rest),
            })
        };
        self.mounts.iter().find_map(below)
    }
}

/// Returns the binds that are no part of another one.
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

fn attach(
    source: &Path,
    (owner, name, number): (&Owner, &str, usize),
    user: User,
) -> io::Result<IdMappedMount> {
    let directory = Path::new(MOUNTS);
    DirBuilder::new().recursive(true).mode(0o700).create(directory)?;
    static SWEEP: Once = Once::new();
    SWEEP.call_once(|| sweep(directory));
    let target = directory.join(format!("{owner}{SEPARATOR}{name}.{number}"));
    match source.is_dir() {
        true => DirBuilder::new().mode(0o700).create(&target)?,
        false => drop(File::create_new(&target)?),
    }
    IdMappedMount::attach(source, &target, user.uid).inspect_err(|_| {
        let _ = IdMappedMount::remove(&target);
    })
}

/// Detaches the mounts of dead processes.
fn sweep(directory: &Path) {
    for entry in fs::read_dir(directory).into_iter().flatten().flatten() {
        let name = entry.file_name();
        let owner = name.to_str().and_then(|name| name.split(SEPARATOR).next());
        if owner.is_some_and(|owner| owner.parse::<Owner>().is_ok_and(|owner| owner.is_dead())) {
            let _ = IdMappedMount::remove(&entry.path());
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
            IdMappedMount::attach(&source, target, 65_534).unwrap()
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

    #[test]
    fn only_what_lies_below_is_held() {
        assert!(holds(&Path::new(MOUNTS).join("a/b")));
        for other in [MOUNTS, "/run", "/run/docker.sock", "/run/ringfence/mounts2/a"] {
            assert!(!holds(Path::new(other)), "{other}");
        }
    }
}
