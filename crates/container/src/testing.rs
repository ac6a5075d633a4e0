//! Provides real engines and test containers.

use std::io::Write;
use std::path::Path;

use ringfence_exec::owner::Owner;
use ringfence_exec::trust::Ledger;
use ringfence_policy::{Bytes, Cpus, EngineKind, NetworkMode, Pids};

use super::spec::{
    Binds, Filter, Init, Log, Name, OciRuntime, ProcessLimit, Resources, Spec, Stdin, User, Volume,
};
use super::{ContainerRuntime, Surroundings};

/// The image that `cargo xtask setup` builds.
pub(super) const IMAGE: &str = "ringfence-sandbox:latest";

/// Specifies a container that runs a command, without mounts of host paths.
pub(super) fn spec(command: &[&str]) -> Spec {
    Spec {
        name: Name::unused(),
        image: IMAGE.parse().unwrap(),
        command: command.iter().map(|&word| word.to_owned()).collect(),
        env: Vec::new(),
        directory: "/tmp".to_owned(),
        user: User { uid: 1000, gid: 1000 },
        resources: Resources {
            memory: Bytes::mib(128),
            cpus: Cpus::ONE,
            pids: Pids::DEFAULT,
            disk: Bytes::mib(16),
        },
        process_limit: ProcessLimit::User,
        network: NetworkMode::None,
        filter: Filter::named(FILTER).unwrap(),
        binds: Binds::default(),
        ledger: Ledger::default(),
        volumes: Vec::new(),
        oci_runtime: OciRuntime::Default,
        init: Init::Engine,
        stdin: Stdin::Empty,
        log: Log::File,
        scope: "test".to_owned(),
        owner: owned(),
    }
}

/// Specifies a new volume at `/output`.
pub(super) fn volume() -> Volume {
    Volume {
        name: Name::unused(),
        places: vec!["/output".into()],
        size: Bytes::mib(4),
    }
}

/// Returns a unique owner, so that tests do not sweep each other's containers.
pub(super) fn owned() -> Owner {
    Owner::new().unwrap()
}

const FILTER: &str = "standard";

/// Returns the available engines. In CI, both are required.
pub(super) async fn engines() -> Vec<ContainerRuntime> {
    let mut engines = Vec::new();
    let surroundings = Surroundings {
        files: std::env::temp_dir().join(format!("ringfence-test-{}", own_uid())),
        ..Surroundings::default()
    };
    for engine_kind in [EngineKind::Docker, EngineKind::Podman] {
        match ContainerRuntime::open(engine_kind, &surroundings).await {
            Ok(engine) => engines.push(engine),
            Err(error) => skip(&format!("{error} (`cargo xtask setup` starts it)")),
        }
    }
    engines
}

/// Reports a skipped test; in CI, fails it.
fn skip(why: &str) {
    assert_eq!(std::env::var_os("CI"), None, "skipped: {why}");
    writeln!(std::io::stderr(), "SKIPPED: {why}").unwrap();
}

/// Removes a container after a test.
pub(super) async fn removed(engine: &ContainerRuntime, name: &Name) {
    engine.remove(&name.into()).await.unwrap();
}

/// Creates a directory that the user of [`spec`] may write to.
pub(super) fn writable() -> tempfile::TempDir {
    let dir = tempfile::tempdir().unwrap();
    open_to_all(dir.path());
    dir
}

pub(super) fn open_to_all(path: &Path) {
    use std::os::unix::fs::PermissionsExt;
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o777)).unwrap();
}

pub(super) fn own_uid() -> u32 {
    use std::os::unix::fs::MetadataExt;
    std::fs::metadata("/proc/self").unwrap().uid()
}
