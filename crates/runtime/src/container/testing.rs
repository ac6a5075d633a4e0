//! What the tests of containers share: real engines, and a container to make in them.

use std::io::Write;
use std::path::Path;

use ringfence_policy::{Bytes, Cpus, Pids};

use super::spec::{
    Binds, Filter, Init, Log, Name, Network, OciRuntime, Resources, Spec, Stdin, User, Volume,
};
use super::{ContainerRuntime, Flavor, Surroundings};
use crate::owner::Owner;

/// The image that `cargo xtask setup` makes.
pub(super) const IMAGE: &str = "ringfence-sandbox:latest";

/// A container that runs a command and sees nothing of the host.
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
        network: Network::None,
        filter: Filter::named(FILTER).unwrap(),
        binds: Binds::default(),
        volumes: Vec::new(),
        oci_runtime: OciRuntime::Default,
        init: Init::Engine,
        stdin: Stdin::Empty,
        log: Log::File,
        scope: "test".to_owned(),
        owner: owned(),
    }
}

/// A volume at `/output` that nobody has.
pub(super) fn volume() -> Volume {
    Volume {
        name: Name::unused(),
        places: vec!["/output".into()],
        size: Bytes::mib(4),
    }
}

/// An owner that is like no other, so that tests do not sweep each other's things.
pub(super) fn owned() -> Owner {
    Owner::new().unwrap()
}

const FILTER: &str = "standard";

/// The engines that are here. In CI both must be.
pub(super) async fn engines() -> Vec<ContainerRuntime> {
    let mut engines = Vec::new();
    let surroundings = Surroundings {
        files: std::env::temp_dir().join(format!("ringfence-test-{}", own_uid())),
        ..Surroundings::default()
    };
    for flavor in [Flavor::Docker, Flavor::Podman] {
        match ContainerRuntime::open(flavor, &surroundings).await {
            Ok(engine) => engines.push(engine),
            Err(error) => skip(&format!("{error} (`cargo xtask setup` starts it)")),
        }
    }
    engines
}

/// Tells why a test proves nothing here. In CI that is a failure.
fn skip(why: &str) {
    assert_eq!(std::env::var_os("CI"), None, "skipped: {why}");
    writeln!(std::io::stderr(), "SKIPPED: {why}").unwrap();
}

/// A name in the engine that is of no use to anybody after the test: it is removed, come what may.
pub(super) async fn removed(engine: &ContainerRuntime, name: &Name) {
    engine.remove(&name.into()).await.unwrap();
}

/// A directory that the user of [`spec`] may write.
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
