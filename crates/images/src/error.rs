//! The error of operations on images.

use std::io;
use std::iter;
use std::path::PathBuf;

use ringfence_policy::Bytes;

use crate::digest::Digest;
use crate::document::DocumentError;
use crate::layer::LayerError;
use crate::reference::{ParseReferenceError, Selector};
use crate::registry_error::RegistryError;

/// Maximum length of an explained error, in characters.
const MAX_EXPLANATION: usize = 1000;

/// A failure of an operation on images.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("cannot {what} the image store")]
    Store {
        what: &'static str,
        #[source]
        source: io::Error,
    },
    #[error("cannot read {}", path.display())]
    Input {
        path: PathBuf,
        #[source]
        source: io::Error,
    },
    #[error("cannot read the archive")]
    Archive(#[source] io::Error),
    #[error("the archive cannot be used: {0}")]
    ArchiveContent(String),
    #[error("expected a name with a tag for an import, got one with a digest: {0}")]
    DigestName(String),
    #[error("the name {name} is taken: it means the image {digest}")]
    NameTaken { name: String, digest: Digest },
    #[error(transparent)]
    Reference(#[from] ParseReferenceError),
    #[error("cannot pull the image: {0}")]
    Registry(#[from] RegistryError),
    #[error(transparent)]
    Document(#[from] DocumentError),
    #[error("layer {number} of the image cannot be unpacked")]
    Layer {
        /// Number from 1, the lowest.
        number: usize,
        #[source]
        source: LayerError,
    },
    #[error("{what} has the digest {found}, expected {expected}")]
    Digest {
        what: String,
        expected: Digest,
        found: Digest,
    },
    #[error("the images would take more than {limit} together, which is the limit of the store")]
    Full { limit: Bytes },
    #[error("there is no image `{0}`")]
    NotFound(Selector),
    /// As [`Self::NotFound`], of an image to remove.
    #[error("there is no image `{0}`")]
    NothingToRemove(Selector),
    #[error("the image has no name")]
    Unnamed,
}

impl Error {
    /// Returns a hint for the user.
    pub fn hint(&self) -> String {
        match self {
            Self::Store { .. } => "check the directory `images` in the state directory".to_owned(),
            Self::Input { .. } => "name an archive, or the directory of an OCI layout".to_owned(),
            Self::DigestName(_) => "give it a name with a tag: --name NAME:TAG".to_owned(),
            Self::NameTaken { name, .. } => {
                format!("free it with `ringfence image rm {name}`, or give another with --name")
            }
            Self::Archive(_) | Self::ArchiveContent(_) => {
                "give an archive of `docker save`, an OCI layout, or a tar of a root file system with --name"
                    .to_owned()
            }
            Self::Reference(_) => "write it as `docker pull` takes it".to_owned(),
            Self::Registry(error) => error.hint(),
            Self::Document(error) => error.hint().to_owned(),
            Self::Layer { .. } => "the image is invalid: rebuild it; nothing was stored".to_owned(),
            Self::Digest { .. } => {
                "it was damaged or exchanged on the way; get it again from its origin".to_owned()
            }
            Self::Full { .. } => "remove images with `ringfence image rm`".to_owned(),
            Self::NotFound(Selector::Reference(reference)) => format!(
                "get it with `ringfence image pull {reference}`, or from a file with `ringfence image import`"
            ),
            Self::NotFound(Selector::Digest(_)) | Self::NothingToRemove(_) => {
                "`ringfence image ls` lists the images".to_owned()
            }
            Self::Unnamed => "name it with --name REF".to_owned(),
        }
    }
}

/// Formats an error with its causes, on one line of bounded length. What it quotes of an image may be as long as a document.
pub fn explain(error: &dyn std::error::Error) -> String {
    let causes = iter::successors(error.source(), |error| error.source());
    let text = causes.fold(error.to_string(), |text, cause| {
        let cause = cause.to_string();
        // Some have their cause's words in their own.
        match text.ends_with(&cause) {
            true => text,
            false => format!("{text}: {cause}"),
        }
    });
    match text.char_indices().nth(MAX_EXPLANATION) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text,
    }
}

/// Adds the operation to an error of the store's files.
pub(crate) trait InStore<T> {
    fn when(self, what: &'static str) -> Result<T, Error>;
}

impl<T> InStore<T> for io::Result<T> {
    fn when(self, what: &'static str) -> Result<T, Error> {
        self.map_err(|source| Error::Store { what, source })
    }
}
