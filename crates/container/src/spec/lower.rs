//! Converts a specification to a create request.

use std::collections::HashMap;
use std::path::{Path, PathBuf};

use bollard::models::{
    ContainerCreateBody, HealthConfig, HostConfig, HostConfigCgroupnsModeEnum, HostConfigLogConfig, Mount,
    MountBindOptions, MountBindOptionsPropagationEnum, MountType, MountVolumeOptions, ResourcesUlimits,
};
use ringfence_exec::owner::Owner;
use ringfence_policy::{Access, NetworkMode};

use super::{Bind, Init, Log, Name, OciRuntime, Spec, Stdin};

/// Label with the owner: the process responsible for the removal.
pub(crate) const OWNER_LABEL: &str = "ringfence.owner";
/// Label with the scope of the requests.
const SCOPE_LABEL: &str = "ringfence.scope";

/// Limit of open files per process.
const MAX_FILES: i64 = 512;
/// Limit of processes of the same user in all containers together (RLIMIT_NPROC), where no control group limits those of a
/// single one.
pub(crate) const MAX_PROCESSES: i64 = 4096;
/// Limit of queued signals and POSIX timers of the same user in all containers together.
const MAX_PENDING_SIGNALS: i64 = 256;
/// Limit of locked memory per process, in bytes.
const MAX_LOCKED: i64 = 64 * 1024;
/// Size limit of a container's log.
const MAX_LOG: &str = "1m";
/// OOM score adjustment: the kernel kills guests first.
const OOM_SCORE: i64 = 500;

/// Returns the labels of containers and volumes of `owner`.
pub(crate) fn labels(owner: &Owner, scope: &str) -> HashMap<String, String> {
    HashMap::from([
        (OWNER_LABEL.to_owned(), owner.to_string()),
        (SCOPE_LABEL.to_owned(), scope.to_owned()),
    ])
}

impl Spec {
    /// Returns the create request; `filter` is the engine's reference to the seccomp filter, `of_user` the limit of
    /// processes of its user in all containers, which is the engine's if `None`.
    pub(crate) fn body(&self, filter: &str, of_user: Option<i64>) -> ContainerCreateBody {
        let attached = self.stdin == Stdin::Attached;
        ContainerCreateBody {
            image: Some(self.image.to_string()),
            // The image's entrypoint is replaced, not given arguments.
            entrypoint: Some(self.command.iter().take(1).cloned().collect()),
            cmd: Some(self.command.iter().skip(1).cloned().collect()),
            env: Some(
                self.env
                    .iter()
                    .map(|(name, value)| format!("{}={value}", name.as_str()))
                    .collect(),
            ),
            working_dir: Some(self.directory.clone()),
            hostname: Some("sandbox".to_owned()),
            user: Some(format!("{}:{}", self.user.uid, self.user.gid)),
            labels: Some(labels(&self.owner, &self.scope)),
            attach_stdin: Some(attached),
            attach_stdout: Some(true),
            attach_stderr: Some(true),
            open_stdin: Some(attached),
            stdin_once: Some(attached),
            healthcheck: Some(no_healthcheck()),
            host_config: Some(self.host_config(filter, of_user)),
            ..ContainerCreateBody::default()
        }
    }

    fn host_config(&self, filter: &str, of_user: Option<i64>) -> HostConfig {
        let memory = number(self.resources.memory.0);
        HostConfig {
            cap_drop: Some(vec!["ALL".to_owned()]),
            security_opt: Some(vec!["no-new-privileges".to_owned(), format!("seccomp={filter}")]),
            readonly_rootfs: Some(true),
            network_mode: Some(self.network_mode().to_owned()),
            ipc_mode: Some("private".to_owned()),
            cgroupns_mode: Some(HostConfigCgroupnsModeEnum::PRIVATE),
            memory: Some(memory),
            memory_swap: Some(memory),
            nano_cpus: Some((self.resources.cpus.get() * 1e9) as i64),
            pids_limit: Some(self.host_threads()),
            shm_size: Some(number(self.resources.disk.0)),
            log_config: Some(self.log_config()),
            init: Some(self.init == Init::Engine && self.filter.lets_fork()),
            ulimits: Some(ulimits(of_user)),
            tmpfs: Some(HashMap::from([("/tmp".to_owned(), self.tmp_options())])),
            mounts: Some(self.mounts()),
            oom_score_adj: Some(OOM_SCORE),
            runtime: self.oci_runtime.name().map(str::to_owned),
            ..HostConfig::default()
        }
    }

    /// Returns the number of host threads for the permitted processes. gVisor has some of its own, and about
    /// six for each process; if it gets none, it crashes with everything in it.
    fn host_threads(&self) -> i64 {
        let processes = i64::from(self.resources.pids.get());
        match self.oci_runtime {
            OciRuntime::Runsc => 64 + 6 * processes,
            OciRuntime::Default | OciRuntime::Runc | OciRuntime::Crun => processes,
        }
    }

    fn network_mode(&self) -> &'static str {
        match self.network {
            NetworkMode::None => "none",
            NetworkMode::Bridge => "bridge",
        }
    }

    /// Returns the mount options of `/tmp`. `exec`: programs may create and run executables there, as usual.
    fn tmp_options(&self) -> String {
        format!("rw,exec,nosuid,nodev,mode=1777,size={}", self.resources.disk.0)
    }

    fn log_config(&self) -> HostConfigLogConfig {
        let (kind, config) = match self.log {
            Log::None => ("none", None),
            Log::File => {
                let bounds = [("max-size", MAX_LOG)];
                let config = bounds.map(|(key, value)| (key.to_owned(), value.to_owned()));
                ("json-file", Some(HashMap::from(config)))
            }
        };
        HostConfigLogConfig {
            typ: Some(kind.to_owned()),
            config,
        }
    }

    fn mounts(&self) -> Vec<Mount> {
        let volumes = self.volumes.iter().flat_map(|volume| {
            let at = |place: &PathBuf| mount(&volume.name, place);
            volume.places.iter().map(at)
        });
        self.binds.iter().map(bind).chain(volumes).collect()
    }
}

/// Converts a bind mount. Non-recursive, since a read-only bind mount would leave mounts below it writable.
fn bind(bind: &Bind) -> Mount {
    Mount {
        typ: Some(MountType::BIND),
        source: Some(bind.host().to_string_lossy().into_owned()),
        target: Some(bind.guest().to_string_lossy().into_owned()),
        read_only: Some(bind.access() == Access::ReadOnly),
        bind_options: Some(MountBindOptions {
            propagation: Some(MountBindOptionsPropagationEnum::RPRIVATE),
            non_recursive: Some(true),
            ..MountBindOptions::default()
        }),
        ..Mount::default()
    }
}

/// Converts a volume. `no_copy`: the engine would copy the image's files there before it limits the size.
fn mount(volume: &Name, place: &Path) -> Mount {
    Mount {
        typ: Some(MountType::VOLUME),
        source: Some(volume.as_str().to_owned()),
        target: Some(place.to_string_lossy().into_owned()),
        read_only: Some(false),
        volume_options: Some(MountVolumeOptions {
            no_copy: Some(true),
            ..MountVolumeOptions::default()
        }),
        ..Mount::default()
    }
}

/// Disables the image's health check, which the engine would run repeatedly beside the program.
fn no_healthcheck() -> HealthConfig {
    HealthConfig {
        test: Some(vec!["NONE".to_owned()]),
        ..HealthConfig::default()
    }
}

fn ulimits(of_user: Option<i64>) -> Vec<ResourcesUlimits> {
    let limits = [
        ("nofile", MAX_FILES),
        ("core", 0),
        ("sigpending", MAX_PENDING_SIGNALS),
        ("memlock", MAX_LOCKED),
        ("msgqueue", 0),
    ];
    let of_user = of_user.map(|limit| ("nproc", limit));
    limits
        .into_iter()
        .chain(of_user)
        .map(|(name, limit)| ResourcesUlimits {
            name: Some(name.to_owned()),
            soft: Some(limit),
            hard: Some(limit),
        })
        .collect()
}

/// Converts a size, saturating. The engine rejects sizes beyond the range of the wire format.
fn number(bytes: u64) -> i64 {
    i64::try_from(bytes).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    use crate::spec::{Filter, OciRuntime};
    use crate::testing::spec;

    #[test]
    fn gvisor_has_threads_of_its_own() {
        let threads = |oci_runtime| {
            let mut spec = spec(&["true"]);
            (spec.oci_runtime, spec.resources.pids) = (oci_runtime, "10".parse().unwrap());
            spec.body("filter", None).host_config.unwrap().pids_limit
        };
        assert_eq!(threads(OciRuntime::Runc), Some(10));
        assert_eq!(threads(OciRuntime::Runsc), Some(124));
    }

    #[test]
    fn a_program_without_children_has_no_init() {
        for (name, init) in [("strict", false), ("standard", true), ("standard-net", true)] {
            let mut spec = spec(&["true"]);
            spec.filter = Filter::named(name).unwrap();
            let config = spec.body("filter", None).host_config.unwrap();
            assert_eq!(config.init, Some(init), "{name}");
        }
    }
}
