//! Parses the manifest of a skill file: a TOML file with host paths, hosts and rules for its functions.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use ringfence_exec::mount_guard::DeniedPaths;
use ringfence_exec::trust::NamedPaths;
use ringfence_policy::{Cidr, HostPattern, Mount, Network};
use serde::Deserialize;

use super::super::{PathPattern, Policy, needs};
use super::text;

/// Maximum size of a manifest in bytes.
const MAX_LENGTH: u64 = 64 * 1024;

/// The demands of a skill file. Without a manifest, none.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct Manifest {
    /// Mounts of the skill file's process, as `HOST:GUEST[:ro|rw]`. Relative paths are below the directory of
    /// skills.
    mounts: Vec<String>,
    /// Hosts that the skill file's process may reach, such as `api.example.com:443`.
    hosts: Vec<String>,
    /// Policy of the skill file's functions, by `Skill.function`, `Skill.*` or `*`.
    policy: BTreeMap<String, Policy>,
    /// Resolved path of the manifest, if there is one.
    #[serde(skip)]
    pub(super) source: Option<PathBuf>,
}

/// The demands of a manifest, as shown to a person.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct ManifestDemand {
    pub(super) words: String,
    /// Unambiguous serialization, for the digest.
    pub(super) exact: String,
    /// Set if the code gets more than the fence allows: files, or hosts.
    pub(super) gives: bool,
}

/// Returns the line of a byte offset.
fn line_of(text: &str, offset: usize) -> usize {
    1 + text.bytes().take(offset).filter(|byte| *byte == b'\n').count()
}

/// Returns a problem for each manifest in a directory that cannot be used.
pub fn manifest_problems(directory: &Path, paths: &NamedPaths) -> Vec<String> {
    let Ok(entries) = std::fs::read_dir(directory) else {
        return Vec::new();
    };
    let names = entries.filter_map(|entry| entry.ok()?.file_name().into_string().ok());
    let mut names: Vec<String> = names.filter(|name| super::is_skill_file(name)).collect();
    names.sort();
    let read = |name: String| {
        let problem = Manifest::read(directory, &name, paths).err()?;
        Some(format!("{name}: {problem}"))
    };
    names.into_iter().filter_map(read).collect()
}

pub(super) fn path(directory: &Path, file: &str) -> PathBuf {
    directory.join(file).with_extension("toml")
}

impl Manifest {
    /// Reads the manifest of a file. A missing one is empty.
    pub(super) fn read(directory: &Path, file: &str, paths: &NamedPaths) -> Result<Self, String> {
        let path = path(directory, file);
        let told = |why: String| format!("its manifest cannot be used: {why}");
        let (text, source) = match text::of(&path, MAX_LENGTH, paths) {
            Ok(read) => read,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(Self::default()),
            Err(error) => return Err(told(error.to_string())),
        };
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        let at = |offset: usize| format!("{name}:{}", line_of(&text, offset));
        let manifest: Self = toml::from_str(&text).map_err(|error| {
            let start = error.span().map_or(0, |span| span.start);
            told(format!("{}: {}", at(start), error.message()))
        })?;
        for pattern in manifest.policy.keys() {
            pattern.parse::<PathPattern>().map_err(|error| {
                let start = text.find(pattern.as_str()).unwrap_or_default();
                told(format!("{}: {error}", at(start)))
            })?;
        }
        Ok(Self {
            source: Some(source),
            ..manifest
        })
    }

    /// Returns the manifest's demands, or `None` if it is empty.
    pub(super) fn demand(&self) -> Option<ManifestDemand> {
        let quoted = |(name, texts): (&str, Vec<String>)| {
            let texts: Vec<String> = texts.iter().map(|text| format!("`{text}`")).collect();
            (!texts.is_empty()).then(|| format!("{name} {}", texts.join(", ")))
        };
        let rules = self.policy.iter();
        let rules = rules.map(|(pattern, policy)| format!("{pattern} = {}", policy.as_str()));
        let parts = [
            ("mounts", self.mounts.clone()),
            ("hosts", self.hosts.clone()),
            ("rules", rules.collect()),
        ];
        let words: Vec<String> = parts.into_iter().filter_map(quoted).collect();
        (!words.is_empty()).then(|| ManifestDemand {
            words: words.join("; "),
            exact: serde_json::json!([self.mounts, self.hosts, self.policy]).to_string(),
            gives: !(self.mounts.is_empty() && self.hosts.is_empty()),
        })
    }

    /// Returns the strictest policy that matches a path.
    pub(super) fn policy(&self, path: &str) -> Policy {
        let policies = self.policy.iter().filter_map(|(pattern, policy)| {
            let pattern: PathPattern = pattern.parse().ok()?;
            pattern.names(path).then_some(*policy)
        });
        policies.max().unwrap_or_default()
    }

    /// Reports rules that match none of these functions: likely a typo.
    pub(super) fn idle(&self, paths: &[&str]) -> Vec<String> {
        let is_idle = |pattern: &&String| {
            let pattern = pattern.parse::<PathPattern>();
            pattern.is_ok_and(|pattern| !paths.iter().any(|path| pattern.names(path)))
        };
        let idle = self.policy.keys().filter(is_idle);
        idle.map(|pattern| {
            format!("its manifest has a rule for `{pattern}`, and it offers nothing of that name")
        })
        .collect()
    }

    /// Renders the manifest's mounts and hosts as written, for the digest of a person's consent.
    pub(super) fn reach(&self) -> String {
        format!("{:?} {:?}", self.mounts, self.hosts)
    }

    /// Resolves the mounts of the process that serves the file.
    pub(super) fn mounts(
        &self,
        directory: &Path,
        file: &str,
        hidden: &DeniedPaths,
        paths: &NamedPaths,
    ) -> Result<Vec<Mount>, String> {
        let own = path(directory, file);
        let name = own.file_name().unwrap_or_default().to_string_lossy();
        needs::mounts(&self.mounts, directory, &name, hidden, paths)
    }

    pub(super) fn network(&self, private_networks: &[Cidr]) -> Result<Network, String> {
        let host = |text: &String| text.parse().map_err(|error| format!("`hosts`: {error}"));
        let hosts: Result<Vec<HostPattern>, String> = self.hosts.iter().map(host).collect();
        Ok(needs::network(hosts?, private_networks))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn manifest(text: &str) -> Result<Manifest, String> {
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(dir.path().join("notes.toml"), text).unwrap();
        Manifest::read(dir.path(), "notes.py", &NamedPaths::default())
    }

    #[test]
    fn rules_are_by_function() {
        let manifest = manifest("[policy]\n\"Notes.*\" = \"notify\"\n\"Notes.delete\" = \"ask\"\n").unwrap();
        assert_eq!(manifest.policy("Notes.delete"), Policy::Ask);
        assert_eq!(manifest.policy("Notes.add"), Policy::Notify);
        assert_eq!(manifest.policy("Other.add"), Policy::Allow);
    }

    #[test]
    fn hosts_make_a_network() {
        assert_eq!(manifest("").unwrap().network(&[]), Ok(Network::None));
        let named = manifest("hosts = ['api.example.com', '127.0.0.1:8080']").unwrap();
        let Ok(Network::Allowlist(policy)) = named.network(&[]) else {
            panic!("no network");
        };
        assert_eq!(policy.allowed.len(), 2);
        assert_eq!(policy.private_networks, ["127.0.0.1".parse().unwrap()]);
        let wrong = manifest("hosts = ['https://a.test/']").unwrap().network(&[]);
        assert!(wrong.unwrap_err().contains("`hosts`"));
    }

    #[test]
    fn a_mistake_has_its_line_and_what_was_expected() {
        let check = |text: &str, expected: &[&str]| {
            let problem = manifest(text).unwrap_err();
            for words in expected {
                assert!(problem.contains(words), "{problem}");
            }
        };
        let unknown = "hosts = []\n[policy]\n\"Notes.add\" = \"sometimes\"\n";
        check(
            unknown,
            &["notes.toml:3: ", "`sometimes`", "`allow`", "`notify`", "`ask`"],
        );
        check(
            "hosts = []\nfrob = 1\n",
            &["notes.toml:2: ", "`frob`", "`mounts`"],
        );
        check("[policy]\n\"Notes\" = \"ask\"\n", &["notes.toml:2: "]);
    }

    #[test]
    fn manifests_that_cannot_be_used_are_listed() {
        let dir = tempfile::tempdir().unwrap();
        for (name, text) in [
            ("a.py", ""),
            ("a.toml", "frob = 1"),
            ("b.py", ""),
            ("c.toml", "frob = 1"),
        ] {
            std::fs::write(dir.path().join(name), text).unwrap();
        }
        let problems = manifest_problems(dir.path(), &NamedPaths::default());
        assert_eq!(problems.len(), 1, "{problems:?}");
        assert!(problems[0].starts_with("a.py: its manifest cannot be used: a.toml:1: "));
    }

    #[test]
    fn what_is_not_understood_is_no_manifest() {
        for text in [
            "mounts = 1",
            "network = true",
            "[policy]\n\"Notes\" = \"ask\"\n",
            "[policy]\n\"Notes.*\" = \"deny\"\n",
            &"#".repeat(70_000),
        ] {
            assert!(manifest(text).is_err(), "{text:.40}");
        }
    }
}
