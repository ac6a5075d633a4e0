//! Images of sandboxes: found in the store of the server's user, and kept there while a sandbox uses them.

use std::path::PathBuf;
use std::sync::Arc;

use ringfence_images::{Bounds, Confine, Selector, Store};
use ringfence_policy::{Image, Language};

use super::error::{Error, ImageError};
use super::spec::SandboxImage;

/// The place of the images of a server's user.
#[derive(Debug)]
pub(crate) struct ImageStore {
    pub(crate) state: PathBuf,
    pub(crate) confine: Confine,
}

impl ImageStore {
    /// Opens the store.
    pub(crate) fn open(&self) -> Result<Store, ringfence_images::Error> {
        Store::below(&self.state, Bounds::DEFAULT, self.confine)
    }

    /// Returns an image of the store.
    ///
    /// # Errors
    /// If it is not there, or cannot be a root.
    pub(crate) async fn lease(
        self: Arc<Self>,
        selector: Selector,
        reference: String,
    ) -> Result<Arc<SandboxImage>, Error> {
        // Waits for whoever changes the store.
        let leasing = tokio::task::spawn_blocking(move || self.lease_now(&selector, reference));
        let leased = leasing.await.map_err(|error| Error::Broken(error.to_string()))?;
        Ok(leased.map(Arc::new)?)
    }

    fn lease_now(&self, selector: &Selector, reference: String) -> Result<SandboxImage, ImageError> {
        let lease = self.open()?.lease(selector)?;
        // Its programs are looked up when they are started.
        let found = lease.image(selector, Language::Command)?;
        let root = Image {
            reference,
            // Commands start where they may write, as in every sandbox.
            working_directory: None,
            ..found
        };
        Ok(SandboxImage::new(root, lease))
    }
}
