//! A minimal image, for containers that forbid namespaces: built from this machine's packages, without a
//! registry.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use anyhow::Result;

use super::answers;
use super::ledger::{self, Made};
use crate::process::program;
use crate::report;

/// The image name that the tests use.
const IMAGE: &str = "ringfence-test:latest";

/// Debian packages whose files, with those of all dependencies, make up the image.
const CONTENTS: &[&str] = &["bash", "coreutils", "python3", "util-linux", "procps"];

/// Files that no package owns, because the machine generated them.
const WRITTEN: &[&str] = &[
    "etc/passwd",
    "etc/group",
    "etc/nsswitch.conf",
    "etc/ld.so.cache",
    "etc/ld.so.conf",
];

/// Imports the image into each engine that lacks it.
pub(super) fn setup(root: &Path) -> Result<()> {
    let lacks = |engine: &&str| !answers(root, engine, &["image", "inspect", IMAGE]);
    let lacking: Vec<&str> = ["docker", "podman"].into_iter().filter(lacks).collect();
    if lacking.is_empty() {
        report::line(&format!("{IMAGE}: there"));
        return Ok(());
    }
    report::line(&format!(
        "{IMAGE} in {}: making it from this machine's packages",
        lacking.join(" and ")
    ));
    let archive = root.join("target/ringfence-test.tar");
    archive_packages(root, &archive)?;
    for engine in lacking {
        ledger::record(Made::Image {
            engine: engine.to_owned(),
            name: IMAGE.to_owned(),
        })?;
        program(root, engine, &["import", &archive.to_string_lossy(), IMAGE]).stdout()?;
    }
    Ok(fs::remove_file(archive)?)
}

/// Archives the packages' files, owned by root, without network access.
fn archive_packages(root: &Path, archive: &Path) -> Result<()> {
    let mut query = vec![
        "depends",
        "--recurse",
        "--installed",
        "--important",
        "--no-suggests",
        "--no-conflicts",
        "--no-breaks",
        "--no-replaces",
        "--no-enhances",
        "--no-recommends",
    ];
    query.extend(CONTENTS);
    let packages = package_names(&program(root, "apt-cache", &query).stdout()?);
    let mut query = vec!["-L"];
    query.extend(packages.iter().map(String::as_str));
    // Some of the names are alternatives that are not installed; dpkg complains and lists the rest.
    let listed = String::from_utf8(program(root, "dpkg", &query).output()?.stdout)?;
    let list = root.join("target/ringfence-test.list");
    fs::write(&list, members(&listed).join("\n"))?;
    let (archive, list_text) = (archive.to_string_lossy(), list.to_string_lossy());
    let arguments = [
        "--create",
        "--file",
        &archive,
        "--directory",
        "/",
        "--no-recursion",
        "--numeric-owner",
        "--ignore-failed-read",
        "--warning=no-failed-read",
        "--files-from",
        &list_text,
    ];
    program(root, "tar", &arguments).run()?;
    Ok(fs::remove_file(list)?)
}

/// Parses `apt-cache depends`, which prints a package at the start of a line and its dependencies indented
/// below; virtual packages stand in angle brackets.
fn package_names(depends: &str) -> Vec<String> {
    let names = depends
        .lines()
        .filter(|line| line.starts_with(|c: char| c.is_ascii_alphanumeric()));
    names
        .map(str::to_owned)
        .collect::<BTreeSet<_>>()
        .into_iter()
        .collect()
}

/// Returns paths relative to `/`. The directories that Debian merged into `/usr` become symbolic links, as on
/// the host.
fn members(listed: &str) -> Vec<String> {
    let merged = |path: &str| {
        let (first, rest) = path.split_once('/')?;
        fs::symlink_metadata(Path::new("/").join(first))
            .ok()?
            .is_symlink()
            .then(|| format!("usr/{first}/{rest}"))
    };
    let mut members: BTreeSet<String> = WRITTEN.iter().map(|path| (*path).to_owned()).collect();
    for folder in ["bin", "sbin", "lib", "lib64", "tmp", "proc", "sys", "dev"] {
        members.insert(folder.to_owned());
    }
    for path in listed.lines().filter_map(|line| line.strip_prefix('/')) {
        if !path.starts_with("usr/share/doc/") && !path.starts_with("usr/share/locale/") {
            members.insert(merged(path).unwrap_or_else(|| path.to_owned()));
        }
    }
    members.retain(|path| fs::symlink_metadata(Path::new("/").join(path)).is_ok());
    members.into_iter().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_real_packages_are_named() {
        let depends = "bash\n  PreDepends: libc6\n<awk>\n    mawk\nlibc6\nbash\n";
        assert_eq!(package_names(depends), ["bash", "libc6"]);
    }

    #[test]
    fn members_are_relative_and_exist() {
        let members =
            members("/.\n/bin\n/proc\n/usr/share/doc/bash\n/no/such/file\npackage diverts others\n");
        assert!(members.iter().any(|path| path == "proc"));
        assert!(
            members
                .iter()
                .all(|path| !path.starts_with('/') && path != "no/such/file")
        );
    }
}
