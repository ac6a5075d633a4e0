//! Interprets a container engine's description of itself.

use ringfence_policy::{EngineKind, ResourceLimits};

use super::Error;
use super::answers::{EngineInfo, Versions};
use super::endpoint::{API_VERSION, ApiVersion};
use super::spec::{OciRuntime, ProcessLimit};

/// Capabilities of a container engine.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Info {
    /// Available OCI runtimes.
    pub runtimes: Vec<String>,
    /// The OCI runtime that it uses by default.
    pub default_runtime: String,
    /// Set if the engine runs rootless.
    pub rootless: bool,
    /// Version of control groups: `1` or `2`.
    pub cgroup_version: Option<String>,
    /// Resources that the engine cannot limit: `MEMORY`, `PROCESSES`, `PROCESSOR`.
    pub unlimited: Vec<&'static str>,
}

const MEMORY: &str = "memory";
const PROCESSES: &str = "processes";
const PROCESSOR: &str = "processor time";

impl Info {
    /// Returns the limits that the engine enforces.
    pub(super) fn held(&self, limits: ResourceLimits) -> ResourceLimits {
        let can = |what| !self.unlimited.contains(&what);
        ResourceLimits {
            memory_bytes: limits.memory_bytes.filter(|_| can(MEMORY)),
            cpus: limits.cpus.filter(|_| can(PROCESSOR)),
            pids: limits.pids.filter(|_| can(PROCESSES)),
            ..limits
        }
    }

    /// Resolves the OCI runtime of a container; [`OciRuntime::Default`] if the engine's default is unknown to
    /// us.
    ///
    /// # Errors
    /// If the engine would use another OCI runtime than the one requested.
    pub fn oci_runtime(&self, engine_kind: EngineKind, wanted: OciRuntime) -> Result<OciRuntime, Error> {
        let Some(name) = wanted.name() else {
            return Ok(OciRuntime::named(&self.default_runtime));
        };
        let known = match engine_kind {
            EngineKind::Docker => self.runtimes.clone(),
            // Podman ignores the OCI runtime of a request.
            EngineKind::Podman => vec![self.default_runtime.clone()],
        };
        match known.iter().any(|known| known == name) {
            true => Ok(wanted),
            false => Err(Error::OciRuntime {
                engine_kind,
                wanted: name,
                known,
            }),
        }
    }

    /// Returns the bound that processes need beside that of the control group.
    pub(super) fn process_limit(&self) -> ProcessLimit {
        match self.unlimited.contains(&PROCESSES) {
            true => ProcessLimit::User,
            false => ProcessLimit::Container,
        }
    }

    /// Returns the resources that the engine cannot limit, as text.
    pub(super) fn unlimited(&self) -> Option<String> {
        (!self.unlimited.is_empty()).then(|| self.unlimited.join(", "))
    }

    /// Returns a warning about missing limits.
    pub(super) fn warning(&self) -> Option<String> {
        let what = self.unlimited()?;
        Some(format!(
            "the container engine cannot limit {what}: for that it needs control groups, rootless ones of version 2"
        ))
    }
}

/// Interprets the response of `/info`.
pub(super) fn understood(engine_kind: EngineKind, said: EngineInfo) -> Info {
    let mut runtimes: Vec<String> = said.runtimes.unwrap_or_default().into_keys().collect();
    runtimes.sort();
    let options = said.security_options.unwrap_or_default();
    let rootless = said.rootless || options.iter().any(|option| option.contains("name=rootless"));
    // There, Podman reports the limits that the kernel supports, and ignores them.
    let passed_over =
        engine_kind == EngineKind::Podman && rootless && said.cgroup_version.as_deref() == Some("1");
    let limits = [
        (MEMORY, said.memory_limit),
        (PROCESSES, said.pids_limit),
        (PROCESSOR, said.cpu_limit),
    ];
    let unlimited = limits.into_iter().filter(|(_, can)| passed_over || !can);
    Info {
        runtimes,
        default_runtime: program(&said.default_runtime),
        rootless,
        cgroup_version: said.cgroup_version,
        unlimited: unlimited.map(|(what, _)| what).collect(),
    }
}

/// Returns the name of an OCI runtime; Podman reports the full path of one that it was started with.
fn program(path: &str) -> String {
    path.rsplit('/').next().unwrap_or_default().to_owned()
}

/// Negotiates the API version: [`API_VERSION`], or the oldest that a newer engine still speaks.
pub(super) fn spoken(engine_kind: EngineKind, versions: &Versions) -> Result<ApiVersion, Error> {
    let number = |text: &str| text.parse::<u32>().ok();
    let version = |text: &str| {
        let (major, minor) = text.split_once('.')?;
        Some(ApiVersion {
            major: number(major)?,
            minor: number(minor)?,
        })
    };
    match version(&versions.newest) {
        Some(newest) if newest >= API_VERSION => {
            let oldest = version(&versions.oldest).unwrap_or(API_VERSION);
            Ok(oldest.max(API_VERSION))
        }
        _ => Err(Error::TooOld {
            engine_kind,
            version: super::error::words(&versions.newest),
        }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ringfence_policy::Limits;

    #[test]
    fn an_engine_is_taken_at_its_word_about_oci_runtimes() {
        let info = Info {
            runtimes: vec!["crun".to_owned(), "runc".to_owned()],
            default_runtime: program("/usr/bin/crun"),
            rootless: false,
            cgroup_version: None,
            unlimited: Vec::new(),
        };
        let check = |engine_kind, wanted, expected: Option<OciRuntime>| {
            assert_eq!(
                info.oci_runtime(engine_kind, wanted).ok(),
                expected,
                "{engine_kind:?} {wanted:?}"
            );
        };
        for engine_kind in [EngineKind::Docker, EngineKind::Podman] {
            check(engine_kind, OciRuntime::Default, Some(OciRuntime::Crun));
            check(engine_kind, OciRuntime::Crun, Some(OciRuntime::Crun));
            check(engine_kind, OciRuntime::Runsc, None);
        }
        check(EngineKind::Docker, OciRuntime::Runc, Some(OciRuntime::Runc));
        check(EngineKind::Podman, OciRuntime::Runc, None);
        let other = Info {
            default_runtime: "youki".to_owned(),
            ..info
        };
        let chosen = other.oci_runtime(EngineKind::Docker, OciRuntime::Default);
        assert_eq!(chosen.ok(), Some(OciRuntime::Default));
    }

    #[test]
    fn an_engine_that_does_not_limit_is_known_by_its_words() {
        let check = |engine_kind, words: &str, rootless, unlimited: &[&str]| {
            let info = understood(engine_kind, serde_json::from_str(words).unwrap());
            assert_eq!(
                (info.rootless, info.unlimited.as_slice()),
                (rootless, unlimited),
                "{words}"
            );
            assert_eq!(info.warning().is_some(), !unlimited.is_empty(), "{words}");
            let held = info.held(Limits::DEFAULT.into());
            assert_eq!(
                held.memory_bytes.is_none(),
                unlimited.contains(&MEMORY),
                "{words}"
            );
            assert_eq!(held.pids.is_none(), unlimited.contains(&PROCESSES), "{words}");
            assert_eq!(held.cpus.is_none(), unlimited.contains(&PROCESSOR), "{words}");
            let of_the_user = info.process_limit() == ProcessLimit::User;
            assert_eq!(of_the_user, unlimited.contains(&PROCESSES), "{words}");
        };
        let all = r#""MemoryLimit": true, "PidsLimit": true, "CpuCfsQuota": true"#;
        let every = ["memory", "processes", "processor time"];
        let rootful =
            format!(r#"{{{all}, "CgroupVersion": "1", "Rootless": false, "SecurityOptions": null}}"#);
        check(EngineKind::Podman, &rootful, false, &[]);
        let old = format!(r#"{{{all}, "CgroupVersion": "1", "Rootless": true}}"#);
        check(EngineKind::Podman, &old, true, &every);
        let fine = format!(r#"{{{all}, "CgroupVersion": "2", "Rootless": true}}"#);
        check(EngineKind::Podman, &fine, true, &[]);
        let docker = format!(r#"{{{all}, "CgroupVersion": "2", "SecurityOptions": ["name=rootless"]}}"#);
        check(EngineKind::Docker, &docker, true, &[]);
        let without = r#"{"CgroupDriver": "none", "SecurityOptions": ["name=seccomp", "name=rootless"]}"#;
        check(EngineKind::Docker, without, true, &every);
        let no_memory =
            r#"{"MemoryLimit": false, "PidsLimit": true, "CpuCfsQuota": true, "CgroupVersion": "1"}"#;
        check(EngineKind::Docker, no_memory, false, &["memory"]);
    }

    #[test]
    fn both_sides_know_the_version_that_is_spoken() {
        let check = |newest: &str, oldest: &str, expected| {
            let versions = Versions {
                newest: newest.to_owned(),
                oldest: oldest.to_owned(),
            };
            assert_eq!(
                spoken(EngineKind::Docker, &versions).ok(),
                expected,
                "{newest} {oldest}"
            );
        };
        check("1.41", "1.12", Some(ApiVersion { major: 1, minor: 41 }));
        check("1.52", "1.44", Some(ApiVersion { major: 1, minor: 44 }));
        check("2.0", "", Some(ApiVersion { major: 1, minor: 41 }));
        check("1.40", "1.12", None);
        check("", "", None);
    }
}
