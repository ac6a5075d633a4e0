//! What a file of skills asks for, in a TOML file beside it: paths of the host, and rules for its functions.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};

use ringfence_policy::Mount;
use serde::Deserialize;

use super::super::{PathPattern, Policy};
use super::below;
use crate::exposure::Hidden;

/// The longest manifest.
const MAX_LENGTH: u64 = 64 * 1024;

/// What a file of skills asks for. Without a manifest, nothing.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct Manifest {
    /// Paths that its process sees, as `HOST:GUEST[:ro|rw]`. What is not absolute lies below the directory of skills.
    mounts: Vec<String>,
    /// What must happen before its functions are called, by `Skill.function`, `Skill.*` or `*`.
    policy: BTreeMap<String, Policy>,
}

/// Where the manifest of a file is.
pub(super) fn path(directory: &Path, file: &str) -> PathBuf {
    directory.join(file).with_extension("toml")
}

impl Manifest {
    /// The manifest of a file; an empty one if there is none.
    pub(super) fn read(directory: &Path, file: &str) -> Result<Self, String> {
        let path = path(directory, file);
        let told = |why: String| format!("its manifest cannot be used: {why}");
        let mut text = String::new();
        match File::open(path) {
            Ok(file) => file
                .take(MAX_LENGTH + 1)
                .read_to_string(&mut text)
                .map_err(|error| told(error.to_string()))?,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(Self::default()),
            Err(error) => return Err(told(error.to_string())),
        };
        if text.len() as u64 > MAX_LENGTH {
            return Err(told(format!("it is longer than {MAX_LENGTH} bytes")));
        }
        let manifest: Self = toml::from_str(&text).map_err(|error| told(error.message().to_owned()))?;
        for pattern in manifest.policy.keys() {
            pattern
                .parse::<PathPattern>()
                .map_err(|error| told(error.to_string()))?;
        }
        Ok(manifest)
    }

    /// What must happen before the function at a path is called. The strictest holds.
    pub(super) fn policy(&self, path: &str) -> Policy {
        let policies = self.policy.iter().filter_map(|(pattern, policy)| {
            let pattern: PathPattern = pattern.parse().ok()?;
            pattern.names(path).then_some(*policy)
        });
        policies.max().unwrap_or_default()
    }

    /// What its process sees, resolved.
    pub(super) fn mounts(&self, directory: &Path, hidden: &Hidden) -> Result<Vec<Mount>, String> {
        let mount = |text: &String| {
            let mut mount: Mount = text.parse().map_err(|error| format!("{error}"))?;
            let host = below(directory, &mount.host);
            mount.host = resolved(&host).map_err(|error| format!("`{text}`: {error}"))?;
            hidden
                .check(&mount.host)
                .map_err(|why| format!("refusing to show `{text}`: {why}"))?;
            Ok(mount)
        };
        self.mounts.iter().map(mount).collect()
    }
}

#[expect(
    clippy::disallowed_methods,
    reason = "what is mounted is what was checked, so that a link changed later changes nothing"
)]
fn resolved(path: &Path) -> std::io::Result<PathBuf> {
    std::fs::canonicalize(path)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn manifest(text: &str) -> Result<Manifest, String> {
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(dir.path().join("notes.toml"), text).unwrap();
        Manifest::read(dir.path(), "notes.py")
    }

    #[test]
    fn rules_are_by_function() {
        let manifest = manifest("[policy]\n\"Notes.*\" = \"notify\"\n\"Notes.delete\" = \"ask\"\n").unwrap();
        assert_eq!(manifest.policy("Notes.delete"), Policy::Ask);
        assert_eq!(manifest.policy("Notes.add"), Policy::Notify);
        assert_eq!(manifest.policy("Other.add"), Policy::Allow);
    }

    #[test]
    fn what_is_not_understood_is_no_manifest() {
        for text in [
            "mounts = 1",
            "hosts = [\"a.test\"]",
            "[policy]\n\"Notes\" = \"ask\"\n",
            "[policy]\n\"Notes.*\" = \"deny\"\n",
            &"#".repeat(70_000),
        ] {
            assert!(manifest(text).is_err(), "{text:.40}");
        }
    }

    #[test]
    fn mounts_lie_below_the_directory_and_show_nothing_that_is_hidden() {
        let dir = tempfile::tempdir().unwrap();
        let real = resolved(dir.path()).unwrap();
        for name in ["data", "state"] {
            std::fs::create_dir(real.join(name)).unwrap();
        }
        let hidden = Hidden::new([(real.join("state"), "state")]);
        let mounts = |text: &str| {
            let manifest = Manifest {
                mounts: vec![text.to_owned()],
                ..Manifest::default()
            };
            manifest.mounts(&real, &hidden)
        };
        assert_eq!(mounts("data:/data:rw").unwrap()[0].host, real.join("data"));
        for text in [
            "state:/state",
            "data/../state:/x",
            "none:/none",
            "data:/proc",
            ".:/all",
        ] {
            assert!(mounts(text).is_err(), "{text}");
        }
    }
}
