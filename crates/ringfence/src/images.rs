//! The images of this machine's user.

use std::fs::File;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use ringfence_exec::local::confine_thread_to;
use ringfence_exec::trust::{NamedPathError, NamedPaths};
use ringfence_images::{Bounds, CredentialFiles, Error, Lease, Network, RootError, Selector, Store, explain};
use ringfence_policy::{Image, Language};
use ringfence_tools::toolbox::ErrorKind;

use crate::context::Context;
use crate::failure::Failure;
use crate::paths::own_user;

/// Opens the store in the state directory.
///
/// # Errors
/// If the directory cannot be created.
pub fn store(context: &Context) -> Result<Store, Failure> {
    Store::below(context.paths.make_state()?, Bounds::DEFAULT, confine).map_err(|error| failure(&error))
}

/// Confines a thread that unpacks a layer, where the kernel has Landlock. It is the second barrier: the first are the
/// handles through which the layer is written.
pub fn confine(directory: &Path) -> io::Result<()> {
    match confine_thread_to(directory) {
        Err(error) if error.kind() == io::ErrorKind::Unsupported => Ok(()),
        confined => confined,
    }
}

/// Returns the way to registries: with the system's name resolution, the configured certificate authorities, and the
/// credentials that Docker and Podman keep for this user.
///
/// # Errors
/// If the configuration cannot be used.
pub fn network(context: &Context) -> Result<Network, crate::failure::Error> {
    let settings = &context.parts()?.egress.network;
    Ok(Network {
        resolver: settings.resolver.clone(),
        trust: Arc::clone(&settings.trust),
        credentials: credentials(context),
    })
}

/// Returns the files with credentials, in the order of containers-auth.json(5).
fn credentials(context: &Context) -> CredentialFiles {
    let environment = &context.environment;
    let home = environment.directory("HOME");
    let below_home = |name: &str| home.as_ref().map(|home| home.join(name));
    let own = match environment.directory("XDG_RUNTIME_DIR") {
        Some(runtime) => runtime.join("containers/auth.json"),
        // Podman's place without a session.
        None => PathBuf::from(format!("/run/containers/{}/auth.json", own_user().uid)),
    };
    let config = environment
        .directory("XDG_CONFIG_HOME")
        .or_else(|| below_home(".config"));
    let docker = environment
        .directory("DOCKER_CONFIG")
        .or_else(|| below_home(".docker"));
    let customary = [
        Some(own),
        config.map(|config| config.join("containers/auth.json")),
        docker.map(|docker| docker.join("config.json")),
    ];
    let paths = context.named_paths();
    CredentialFiles {
        customary: customary.into_iter().flatten().collect(),
        named: environment.get("REGISTRY_AUTH_FILE").map(PathBuf::from),
        open: Arc::new(move |path| open_private(path, &paths)),
    }
}

/// Opens a file that nobody but this user and root can have written. As Docker, it takes one that others can read:
/// orchestrators mount theirs so.
fn open_private(path: &Path, paths: &NamedPaths) -> io::Result<File> {
    let opened = paths.open_file(path).map_err(|error| match error {
        NamedPathError::Unusable(error) => error,
        error => io::Error::new(error.kind(), error.to_string()),
    });
    let (file, _) = opened?;
    let found = file.metadata()?;
    if found.mode() & 0o022 != 0 || ![0, own_user().uid].contains(&found.uid()) {
        return Err(io::Error::new(
            io::ErrorKind::PermissionDenied,
            format!(
                "expected a file that only its user can write, found mode {:03o} of the user {}",
                found.mode() & 0o777,
                found.uid()
            ),
        ));
    }
    Ok(file)
}

/// Returns an image as the root of runs in a language. It is kept from being removed while the lease exists.
///
/// # Errors
/// If there is none, or it cannot be such a root.
pub fn lease(selector: &Selector, language: Language, context: &Context) -> Result<(Lease, Image), Failure> {
    let lease = store(context)?.lease(selector).map_err(|error| failure(&error))?;
    let image = lease.image(selector, language);
    let image = image.map_err(|error| Failure::usage(explain(&error), RootError::hint(&error)))?;
    Ok((lease, image))
}

/// Converts an error of the store.
pub fn failure(error: &Error) -> Failure {
    let failure = Failure::refused(explain(error), error.hint());
    match error {
        Error::NotFound(_) | Error::NothingToRemove(_) => failure.of(ErrorKind::NotFound),
        Error::Full { .. } => failure.of(ErrorKind::LimitExceeded),
        Error::Store { .. }
        | Error::Input { .. }
        | Error::Archive(_)
        | Error::ArchiveContent(_)
        | Error::Reference(_)
        | Error::Registry(_)
        | Error::Document(_)
        | Error::Layer { .. }
        | Error::Digest { .. }
        | Error::DigestName(_)
        | Error::NameTaken { .. }
        | Error::Unnamed => failure,
    }
}
