//! Which images were set up on this machine, by digest: a name can be given to another image by anybody who may use
//! the engine.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::Path;

use super::Flavor;
use super::spec::Image;

/// The digests, by engine and name.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub struct Pins(BTreeMap<String, String>);

impl Pins {
    /// Reads them; none where there is no such file.
    pub fn read(path: &Path) -> Self {
        let text = fs::read(path).unwrap_or_default();
        Self(serde_json::from_slice(&text).unwrap_or_default())
    }

    /// Notes the digest of an image.
    ///
    /// # Errors
    /// If the file cannot be written.
    pub fn pin(path: &Path, flavor: Flavor, image: &Image, digest: &str) -> io::Result<()> {
        let mut pins = Self::read(path);
        pins.0.insert(key(flavor, image), digest.to_owned());
        let text = serde_json::to_string_pretty(&pins.0)? + "\n";
        let fresh = path.with_extension("new");
        fs::write(&fresh, text)?;
        fs::rename(fresh, path)
    }

    /// The image by its digest.
    pub fn get(&self, flavor: Flavor, image: &Image) -> Option<Image> {
        self.0.get(&key(flavor, image))?.parse().ok()
    }
}

fn key(flavor: Flavor, image: &Image) -> String {
    format!("{} {image}", flavor.as_str())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pin_is_kept_for_its_engine_and_name() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("images.json");
        let image: Image = "x:1".parse().unwrap();
        assert_eq!(Pins::read(&path).get(Flavor::Docker, &image), None);
        let digest = format!("sha256:{}", "0a".repeat(32));
        Pins::pin(&path, Flavor::Docker, &image, &digest).unwrap();
        let pins = Pins::read(&path);
        assert_eq!(pins.get(Flavor::Docker, &image).unwrap().to_string(), digest);
        assert_eq!(pins.get(Flavor::Podman, &image), None);
        assert_eq!(pins.get(Flavor::Docker, &"x:2".parse().unwrap()), None);
    }
}
