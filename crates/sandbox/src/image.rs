//! Images of sandboxes: found in the store of the server's user, and kept there while a sandbox uses them.

use std::path::PathBuf;
use std::sync::Arc;

use ringfence_images::{Bounds, Confine, Lease, Selector, Store};
use ringfence_policy::{Image, Language};
use serde::{Deserialize, Serialize};

use super::error::{Error, ImageError};
use super::registry::Sandboxes;

/// The place of the images of a server's user. Nothing is pulled into it here.
#[derive(Debug)]
pub(crate) struct ImageStore {
    pub(crate) state: PathBuf,
    pub(crate) confine: Confine,
}

/// An image that is the root of a sandbox. It is not removed while this exists.
#[derive(Debug)]
pub struct SandboxImage {
    pub(crate) root: Image,
    _lease: Lease,
}

/// The name of an image, for what is made on it later.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct ImageName {
    /// Reference in full, or digest, by which the first sandbox named it.
    pub reference: String,
    /// Digest of its configuration.
    pub digest: String,
}

impl SandboxImage {
    /// Returns its name.
    pub fn name(&self) -> ImageName {
        ImageName {
            reference: self.root.reference.clone(),
            digest: self.root.digest.clone(),
        }
    }

    /// Returns the root of a sandbox on this machine.
    pub(crate) fn root(&self) -> Image {
        self.root.clone()
    }
}

/// Two uses of one image are equal.
impl PartialEq for SandboxImage {
    fn eq(&self, other: &Self) -> bool {
        self.root == other.root
    }
}

impl ImageStore {
    fn lease(&self, selector: &Selector, reference: String) -> Result<SandboxImage, ImageError> {
        let lease = Store::below(&self.state, Bounds::DEFAULT, self.confine)?.lease(selector)?;
        // Its programs are looked up when they are started.
        let found = lease.image(selector, Language::Command)?;
        let root = Image {
            reference,
            // Commands start where they may write, as in every sandbox.
            working_directory: None,
            ..found
        };
        Ok(SandboxImage { root, _lease: lease })
    }
}

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

    /// Returns the image that a snapshot was made on, whatever its reference means now.
    pub(crate) async fn image_of(&self, name: &ImageName) -> Result<Arc<SandboxImage>, Error> {
        let unusable = |error| Error::Broken(format!("the snapshot's image: {error}"));
        let digest = name
            .digest
            .parse()
            .map_err(|error| unusable(format!("{error}")))?;
        self.lease(Selector::Digest(digest), name.reference.clone()).await
    }

    async fn lease(&self, selector: Selector, reference: String) -> Result<Arc<SandboxImage>, Error> {
        let Some(store) = self.images.clone() else {
            return Err(Error::Invalid(
                "`image`: sandboxes have no images here".to_owned(),
            ));
        };
        // Waits for whoever changes the store.
        let leasing = tokio::task::spawn_blocking(move || store.lease(&selector, reference));
        let leased = leasing.await.map_err(|error| Error::Broken(error.to_string()))?;
        Ok(leased.map(Arc::new)?)
    }
}
