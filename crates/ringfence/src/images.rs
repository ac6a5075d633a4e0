//! The images of this machine's user.

use std::io;
use std::path::Path;
use std::sync::Arc;

use ringfence_exec::local::confine_thread_to;
use ringfence_images::{Bounds, Error, Lease, Network, RootError, Selector, Store, explain};
use ringfence_policy::{Image, Language};
use ringfence_tools::toolbox::ErrorKind;

use crate::context::Context;
use crate::failure::Failure;

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

/// Returns the way to registries: with the system's name resolution, and the configured certificate authorities.
///
/// # Errors
/// If the configuration cannot be used.
pub fn network(context: &Context) -> Result<Network, crate::failure::Error> {
    let settings = &context.parts()?.egress.network;
    Ok(Network {
        resolver: settings.resolver.clone(),
        trust: Arc::clone(&settings.trust),
    })
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
