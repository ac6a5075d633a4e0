//! Stores the digests of images that were set up on this machine: anyone with access to the engine can point
//! a name to another image.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use ringfence_policy::{EngineKind, Remedy, remedy};

use super::spec::Image;

/// Image digests by engine and name.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub struct Pins(BTreeMap<String, Image>);

/// An error of reading or writing the list of pinned images.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The file cannot be read or written.
    #[error("cannot use the list of images {}: {error}", path.display())]
    File {
        path: PathBuf,
        /// The system's error.
        error: io::Error,
    },
    /// The file is malformed. Ignoring it would accept any image of the same name.
    #[error("the list of images {} is damaged: {why}", path.display())]
    Damaged {
        path: PathBuf,
        /// Defect of the file.
        why: String,
    },
}

impl Error {
    /// Returns a hint for the user.
    pub fn hint(&self) -> Remedy {
        match self {
            Self::File { .. } => remedy::Container::OwnState.into(),
            Self::Damaged { .. } => remedy::Container::RemakeImages.into(),
        }
    }
}

impl Pins {
    /// Reads the pins; none if the file does not exist.
    ///
    /// # Errors
    /// If the file is not readable or malformed.
    pub fn read(path: &Path) -> Result<Self, Error> {
        let text = match fs::read(path) {
            Ok(text) => text,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Self::default()),
            Err(error) => return Err(failed(path, error)),
        };
        let damaged = |why| Error::Damaged {
            path: path.to_path_buf(),
            why,
        };
        let written: BTreeMap<String, String> =
            serde_json::from_slice(&text).map_err(|error| damaged(error.to_string()))?;
        let pin = |(key, digest): (String, String)| {
            let image = digest.parse().ok().filter(Image::is_id);
            Ok((
                key,
                image.ok_or_else(|| damaged("it holds an entry that is not a digest".to_owned()))?,
            ))
        };
        written
            .into_iter()
            .map(pin)
            .collect::<Result<_, Error>>()
            .map(Self)
    }

    /// Records the digest of an image.
    ///
    /// # Errors
    /// If the file cannot be read or written.
    pub fn pin(path: &Path, engine_kind: EngineKind, image: &Image, digest: &Image) -> Result<(), Error> {
        let mut pins = Self::read(path)?;
        pins.0.insert(key(engine_kind, image), digest.clone());
        let written: BTreeMap<&String, String> = pins
            .0
            .iter()
            .map(|(key, digest)| (key, digest.to_string()))
            .collect();
        let write = || {
            let text = serde_json::to_string_pretty(&written)? + "\n";
            let fresh = path.with_extension("new");
            fs::write(&fresh, text)?;
            fs::rename(fresh, path)
        };
        write().map_err(|error| failed(path, error))
    }

    /// Returns `true` if the image is fixed by a digest, regardless of later changes to its name.
    pub fn hold(&self, engine_kind: EngineKind, image: &Image) -> bool {
        image.has_digest() || self.0.contains_key(&key(engine_kind, image))
    }

    /// Returns the image by digest.
    pub fn get(&self, engine_kind: EngineKind, image: &Image) -> Option<Image> {
        self.0.get(&key(engine_kind, image)).cloned()
    }
}

/// Maximum size of the file of images that were warned about, in bytes.
const MAX_WARNED: usize = 64 * 1024;

/// Records that the user is warned about an unpinned image. Returns `false` if the image was recorded before.
/// Beside `path`, the file of pins; without that file, each use is new.
pub(super) fn is_new(path: &Path, engine_kind: EngineKind, image: &Image) -> bool {
    let path = path.with_file_name("unpinned.txt");
    let key = key(engine_kind, image);
    let known = fs::read_to_string(&path).unwrap_or_default();
    if known.lines().any(|line| line == key) {
        return false;
    }
    if known.len() < MAX_WARNED {
        // Without it the warning is repeated.
        let _ = fs::write(&path, format!("{known}{key}\n"));
    }
    true
}

fn failed(path: &Path, error: io::Error) -> Error {
    Error::File {
        path: path.to_path_buf(),
        error,
    }
}

fn key(engine_kind: EngineKind, image: &Image) -> String {
    format!("{} {image}", engine_kind.as_str())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pin_is_kept_for_its_engine_and_name() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("images.json");
        let image: Image = "x:1".parse().unwrap();
        assert_eq!(Pins::read(&path).unwrap().get(EngineKind::Docker, &image), None);
        let digest: Image = format!("sha256:{}", "0a".repeat(32)).parse().unwrap();
        Pins::pin(&path, EngineKind::Docker, &image, &digest).unwrap();
        let pins = Pins::read(&path).unwrap();
        assert_eq!(pins.get(EngineKind::Docker, &image), Some(digest.clone()));
        assert_eq!(pins.get(EngineKind::Podman, &image), None);
        assert!(pins.hold(EngineKind::Docker, &image) && !pins.hold(EngineKind::Podman, &image));
        for image in [digest.to_string(), format!("x@{digest}")] {
            assert!(pins.hold(EngineKind::Podman, &image.parse().unwrap()), "{image}");
        }
        assert_eq!(pins.get(EngineKind::Docker, &"x:2".parse().unwrap()), None);
    }

    #[test]
    fn an_unpinned_image_is_new_once() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("images.json");
        let image: Image = "x:1".parse().unwrap();
        assert!(is_new(&path, EngineKind::Docker, &image));
        assert!(!is_new(&path, EngineKind::Docker, &image));
        assert!(is_new(&path, EngineKind::Podman, &image));
        let missing = dir.path().join("none/images.json");
        assert!(is_new(&missing, EngineKind::Docker, &image) && is_new(&missing, EngineKind::Docker, &image));
    }

    #[test]
    fn a_damaged_list_is_no_empty_list() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("images.json");
        let image: Image = "x:1".parse().unwrap();
        for text in ["", "{", "[]", r#"{"docker x:1": "x:2"}"#, r#"{"docker x:1": 1}"#] {
            fs::write(&path, text).unwrap();
            let error = Pins::read(&path).unwrap_err();
            assert!(error.to_string().contains("is damaged"), "{text}: {error}");
            let error = Pins::pin(&path, EngineKind::Docker, &image, &image).unwrap_err();
            assert!(error.hint() == remedy::Container::RemakeImages.into(), "{text}");
            assert_eq!(fs::read_to_string(&path).unwrap(), text);
        }
        fs::remove_file(&path).unwrap();
        fs::create_dir(&path).unwrap();
        assert!(matches!(Pins::read(&path), Err(Error::File { .. })));
    }
}
