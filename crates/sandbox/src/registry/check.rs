//! Requests of sandboxes, checked before anything is made.

use ringfence_exec::processors;
use ringfence_policy::{Bytes, EgressPolicy, memory};

use crate::error::Error;
use crate::snapshots::SnapshotInfo;
use crate::spec::{NewSandbox, SandboxFence};

/// Least number of processes: the init's supervisor, a program, and one that it starts.
const LEAST_PIDS: u32 = 4;
/// Largest metadata and variables of a sandbox, which the server keeps while it lives.
const MAX_METADATA: Bytes = Bytes::kib(16);
const MAX_ENV: Bytes = Bytes::kib(128);
/// Most hosts of a sandbox, with which each of its connections is compared.
const MAX_HOSTS: usize = 1000;
/// Memory that must be left to programs when all files are full. Half of the least memory: files have half of it by default.
const MEMORY_BESIDE_FILES: Bytes = Bytes(memory::MIN.0 / 2);

/// Refuses a request that cannot be met.
pub(super) fn check(new: &NewSandbox) -> Result<(), Error> {
    if new.image.is_some() && !new.packages.is_empty() {
        return Err(Error::Invalid(
            "`packages` are for the interpreters of this machine, and an image has its own: use one of the two"
                .to_owned(),
        ));
    }
    if new.image.is_some() && new.account.workspace_alias().is_some() {
        return Err(Error::Invalid(
            "a sandbox on an image has no home directory beside /workspace".to_owned(),
        ));
    }
    if new.user.is_some() && !new.account.is_root() {
        return Err(Error::Invalid(
            "programs have another user in the fence `box` alone".to_owned(),
        ));
    }
    let metadata: usize = new
        .metadata
        .iter()
        .map(|(name, value)| name.len() + value.len())
        .sum();
    let env: usize = new
        .env
        .iter()
        .map(|(name, value)| name.as_str().len() + value.len())
        .sum();
    for (what, found, most) in [("metadata", metadata, MAX_METADATA), ("env", env, MAX_ENV)] {
        if found > most.0 as usize {
            return Err(Error::Invalid(format!(
                "`{what}` has at most {most}, got {found} bytes"
            )));
        }
    }
    if let Some(egress) = &new.egress {
        check_hosts(egress)?;
    }
    let limits = &new.limits;
    if limits.pids.get() < LEAST_PIDS {
        return Err(Error::Invalid(format!(
            "a sandbox needs `pids` of at least {LEAST_PIDS}, and not {}",
            limits.pids.get()
        )));
    }
    memory::check(limits.memory).map_err(|error| Error::Invalid(error.to_string()))?;
    processors::check(limits.cpus).map_err(|error| Error::Invalid(error.to_string()))?;
    if limits.disk.0.saturating_add(MEMORY_BESIDE_FILES.0) <= limits.memory.0 {
        return Ok(());
    }
    Err(Error::Invalid(format!(
        "the files of a sandbox lie in its memory: `disk` ({}) must be at least {MEMORY_BESIDE_FILES} smaller than `memory` ({})",
        limits.disk, limits.memory
    )))
}

/// Refuses a policy of too many hosts.
pub(crate) fn check_hosts(egress: &EgressPolicy) -> Result<(), Error> {
    match egress.allowed.len() {
        0..=MAX_HOSTS => Ok(()),
        found => Err(Error::Invalid(format!(
            "a sandbox may reach at most {MAX_HOSTS} hosts, got {found}: use patterns, such as `*.example.com`"
        ))),
    }
}

/// Refuses a sandbox whose root is not the one that a snapshot has the changes of.
pub(super) fn check_base(snapshot: &SnapshotInfo, new: &NewSandbox) -> Result<(), Error> {
    if !snapshot.is_of_root() {
        return Ok(());
    }
    if new.fence() != Some(SandboxFence::Box) {
        return Err(Error::Invalid(
            "the snapshot is of a sandbox with the fence `box`, and only another one can be made of it"
                .to_owned(),
        ));
    }
    let own = snapshot.image.as_ref();
    match &new.image {
        Some(image) if own.is_none_or(|own| own.digest != image.name().digest) => {
            Err(Error::Invalid(format!(
                "the snapshot has the changes of {}, and cannot be put on another image: leave `image` out",
                own.map_or_else(
                    || "this machine's files".to_owned(),
                    |own| format!("the image `{}` ({})", own.reference, own.digest)
                )
            )))
        }
        Some(_) | None => Ok(()),
    }
}
