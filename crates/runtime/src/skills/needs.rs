//! What a skill's process may see and reach, from what was written down for it.

use std::path::{Path, PathBuf};

use ringfence_policy::{Cidr, EgressPolicy, HostPattern, Mount, Network};

use crate::exposure::Hidden;

/// Paths of the host that it sees, resolved. What is not absolute lies below `base`.
pub(super) fn mounts(texts: &[String], base: &Path, hidden: &Hidden) -> Result<Vec<Mount>, String> {
    let mount = |text: &String| {
        let mut mount: Mount = text.parse().map_err(|error| format!("{error}"))?;
        let host = base.join(&mount.host);
        mount.host = resolved(&host).map_err(|error| format!("`{text}`: {error}"))?;
        hidden
            .check(&mount.host)
            .map_err(|why| format!("refusing to show `{text}`: {why}"))?;
        Ok(mount)
    };
    texts.iter().map(mount).collect()
}

/// The network of one that may reach these hosts: no network without any.
pub(super) fn network(hosts: Vec<HostPattern>, private_networks: &[Cidr]) -> Network {
    match hosts.is_empty() {
        true => Network::None,
        false => Network::Allowlist(EgressPolicy::of_named(hosts, private_networks.to_vec())),
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

    #[test]
    fn mounts_lie_below_a_directory_and_show_nothing_that_is_hidden() {
        let dir = tempfile::tempdir().unwrap();
        let real = resolved(dir.path()).unwrap();
        for name in ["data", "state"] {
            std::fs::create_dir(real.join(name)).unwrap();
        }
        let hidden = Hidden::new([(real.join("state"), "state")]);
        let mounts = |text: &str| mounts(&[text.to_owned()], &real, &hidden);
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
