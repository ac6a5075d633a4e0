//! Images of sandboxes, found for their requests.

use std::sync::Arc;

use ringfence_images::{Selector, Store};

use super::Sandboxes;
use crate::error::{Error, ImageError};
use crate::spec::{ImageName, SandboxImage};

impl Sandboxes {
    /// Returns an image by its reference or digest, for [`NewSandbox::image`](crate::NewSandbox::image). It must be in the
    /// store already.
    ///
    /// # Errors
    /// If it is not there, or cannot be a root.
    pub async fn image(&self, name: &str) -> Result<Arc<SandboxImage>, Error> {
        let selector: Selector = name
            .parse()
            .map_err(|error| Error::Invalid(format!("`image`: {error}")))?;
        let reference = selector.to_string();
        self.lease(selector, reference).await
    }

    /// Opens the store of images. It waits for whoever changes the store, as all its operations do: call it on a thread that may
    /// block.
    ///
    /// # Errors
    /// If sandboxes have no images, or the store cannot be made.
    pub fn image_store(&self) -> Result<Store, Error> {
        let images = self.images.as_ref().ok_or_else(no_images)?;
        Ok(images.open().map_err(ImageError::from)?)
    }

    /// Returns the image that a snapshot was made on, even if its reference means another image now.
    pub(crate) async fn image_of(&self, name: &ImageName) -> Result<Arc<SandboxImage>, Error> {
        let unusable = |error| Error::Broken(format!("the snapshot's image: {error}"));
        let digest = name
            .digest
            .parse()
            .map_err(|error| unusable(format!("{error}")))?;
        self.lease(Selector::Digest(digest), name.reference.clone()).await
    }

    async fn lease(&self, selector: Selector, reference: String) -> Result<Arc<SandboxImage>, Error> {
        match self.images.clone() {
            Some(store) => store.lease(selector, reference).await,
            None => Err(no_images()),
        }
    }
}

fn no_images() -> Error {
    Error::Invalid("`image`: sandboxes have no images here".to_owned())
}
