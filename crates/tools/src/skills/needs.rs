//! Resolves mounts and hosts that a skill process demands.

use std::io;
use std::path::Path;

use ringfence_exec::mount_guard::DeniedPaths;
use ringfence_exec::trust::{NamedPathError, NamedPaths};
use ringfence_policy::{Cidr, EgressPolicy, HostPattern, Mount, Network};

/// Resolves mounts. Relative host paths are below `base`; `place` is their source in messages. The resolved
/// path is what is mounted, so that a link changed later changes nothing.
pub(super) fn mounts(
    texts: &[String],
    base: &Path,
    place: &str,
    hidden: &DeniedPaths,
    paths: &NamedPaths,
) -> Result<Vec<Mount>, String> {
    let mount = |text: &String| {
        let mut mount: Mount = text
            .parse()
            .map_err(|error| format!("`mounts` of {place}: {error}"))?;
        let host = base.join(&mount.host);
        let found = paths.resolve(&host).and_then(|found| Ok(found.existing()?));
        mount.host = found.map_err(|error| unusable(text, place, &mount.host, &error))?;
        hidden
            .check(&mount.host)
            .map_err(|why| format!("refusing to show `{text}`: {why}"))?;
        Ok(mount)
    };
    texts.iter().map(mount).collect()
}

/// Renders the error with the path as it was written: programs see this message, too.
fn unusable(text: &str, place: &str, path: &Path, error: &NamedPathError) -> String {
    if error.kind() != io::ErrorKind::NotFound {
        return format!(
            "`{text}`, which `mounts` of {place} asks for, cannot be shown: {}",
            error.without_paths()
        );
    }
    let below = if path.is_relative() {
        " in the directory of skills"
    } else {
        ""
    };
    format!(
        "there is no `{}`{below}, and `mounts` of {place} asks for it (`{text}`): make this directory, or take it out of {place}",
        path.display()
    )
}

/// Returns a network limited to these hosts; none without any.
pub(super) fn network(hosts: Vec<HostPattern>, private_networks: &[Cidr]) -> Network {
    match hosts.is_empty() {
        true => Network::None,
        false => Network::Allowlist(EgressPolicy::of_named(hosts, private_networks.to_vec())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mounts_lie_below_a_directory_and_show_nothing_that_is_hidden() {
        let dir = tempfile::tempdir().unwrap();
        let real = dir.path().canonicalize().unwrap();
        for name in ["data", "state"] {
            std::fs::create_dir(real.join(name)).unwrap();
        }
        let hidden = DeniedPaths::new([(real.join("state"), "state")]);
        let mounts = |text: &str| {
            mounts(
                &[text.to_owned()],
                &real,
                "a.toml",
                &hidden,
                &NamedPaths::default(),
            )
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

    #[test]
    fn what_is_not_there_is_told_with_its_place() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(dir.path().join("file"), "").unwrap();
        let check = |text: &str, expected: &str| {
            let (hidden, paths) = (DeniedPaths::new([]), NamedPaths::default());
            let told = mounts(&[text.to_owned()], dir.path(), "a.toml", &hidden, &paths).unwrap_err();
            assert_eq!(told, expected);
        };
        check(
            "data:/data:rw",
            "there is no `data` in the directory of skills, and `mounts` of a.toml asks for it (`data:/data:rw`): make this \
             directory, or take it out of a.toml",
        );
        check(
            "/none/such:/x",
            "there is no `/none/such`, and `mounts` of a.toml asks for it (`/none/such:/x`): make this directory, or take it \
             out of a.toml",
        );
        let beyond =
            "`file/x:/x`, which `mounts` of a.toml asks for, cannot be shown: Not a directory (os error 20)";
        check("file/x:/x", beyond);
    }
}
