//! Selects the files of an image assembled on this machine: those of some Debian packages and their
//! dependencies.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io::{self, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use super::archive::Writer;
use super::error::GatherError;

/// Packages of the image, if they are installed here.
const WANTED: &[&str] = &[
    "bash",
    "ca-certificates",
    "coreutils",
    "curl",
    "dash",
    "findutils",
    "grep",
    "gzip",
    "mawk",
    "procps",
    "python3",
    "sed",
    "tar",
];

/// Packages without which the image is useless.
const NEEDED: &[&str] = &["bash", "python3"];

/// Excluded: documentation, translations, and files of services.
const LEFT_OUT: &[&str] = &[
    "usr/share/doc/",
    "usr/share/man/",
    "usr/share/info/",
    "usr/share/locale/",
    "usr/share/lintian/",
    "usr/share/bug/",
    "etc/init.d/",
    "etc/cron",
];

/// Files that no package owns, as its installation generates them.
const MADE: &[&str] = &["etc/ssl/certs/ca-certificates.crt"];

/// Directories that programs expect, with their modes.
const DIRECTORIES: &[(&str, u32)] = &[
    ("dev", 0o755),
    ("etc", 0o755),
    ("output", 0o1777),
    ("proc", 0o755),
    ("root", 0o700),
    ("run", 0o755),
    ("sys", 0o755),
    ("tmp", 0o1777),
    ("usr", 0o755),
    ("var", 0o755),
    ("workspace", 0o1777),
];

/// Generated files; no user of this machine is listed in them.
const WRITTEN: &[(&str, &str)] = &[
    (
        "etc/passwd",
        "root:x:0:0:root:/root:/bin/bash\nsandbox:x:1000:1000:sandbox:/workspace:/bin/bash\n\
         nobody:x:65534:65534:nobody:/:/usr/sbin/nologin\n",
    ),
    ("etc/group", "root:x:0:\nsandbox:x:1000:\nnogroup:x:65534:\n"),
    (
        "etc/nsswitch.conf",
        "passwd: files\ngroup: files\nhosts: files dns\n",
    ),
];

/// The files of an image.
#[derive(Debug)]
pub(super) struct Files {
    root: PathBuf,
    pub(super) packages: BTreeSet<String>,
    /// Paths relative to the root, with symbolic links resolved.
    pub(super) members: BTreeSet<String>,
    /// Symbolic links in the root directory, such as `bin` to `usr/bin`.
    links: BTreeMap<String, String>,
}

/// Selects the files of the image.
pub(super) fn files(root: &Path) -> Result<Files, GatherError> {
    let path = root.join("var/lib/dpkg/status");
    let status = fs::read_to_string(&path).map_err(|error| GatherError::NoPackages { path, error })?;
    let installed = installed(&status);
    if let Some(missing) = NEEDED.iter().find(|name| !installed.contains_key(**name)) {
        return Err(GatherError::Missing(missing));
    }
    let packages = closure(&installed);
    let links = top_links(root)?;
    let mut members = BTreeSet::new();
    for package in &packages {
        members.extend(
            listed(root, package)?
                .lines()
                .filter_map(|path| member(path, &links)),
        );
    }
    members.extend(MADE.iter().map(|path| (*path).to_owned()));
    members.extend(compiled(root, &members));
    Ok(Files {
        root: root.to_path_buf(),
        packages,
        members,
        links,
    })
}

impl Files {
    /// Writes the archive. Skips files that vanished meanwhile or are not world-readable.
    pub(super) fn write(&self, writer: impl Write) -> io::Result<()> {
        let mut writer = Writer::new(writer);
        for (path, mode) in DIRECTORIES {
            writer.directory(path, *mode)?;
        }
        for (path, target) in &self.links {
            writer.link(path, target)?;
        }
        let taken = |path: &str| {
            DIRECTORIES.iter().any(|(known, _)| *known == path)
                || WRITTEN.iter().any(|(known, _)| *known == path)
        };
        for path in self.members.iter().filter(|path| !taken(path)) {
            self.member(&mut writer, path)?;
        }
        for (path, text) in WRITTEN {
            writer.bytes(path, text.as_bytes())?;
        }
        writer.finish().map(drop)
    }

    fn member(&self, writer: &mut Writer<impl Write>, path: &str) -> io::Result<()> {
        let source = self.root.join(path);
        let Ok(meta) = source.symlink_metadata() else {
            return Ok(());
        };
        // Never setuid or setgid, nor writable by others.
        let mode = meta.permissions().mode() & 0o755;
        if meta.is_dir() {
            writer.directory(path, mode)
        } else if meta.is_symlink() {
            match fs::read_link(&source)?.to_str() {
                Some(target) => writer.link(path, target),
                None => Ok(()),
            }
        } else if meta.is_file() && mode & 0o004 != 0 {
            writer.file(path, &source, mode)
        } else {
            Ok(())
        }
    }
}

/// Parses the dependencies of each installed package: for each dependency, its alternatives.
fn installed(status: &str) -> BTreeMap<String, Vec<Vec<String>>> {
    let mut packages = BTreeMap::new();
    let mut provided: Vec<(String, String)> = Vec::new();
    for paragraph in status.split("\n\n") {
        let field = |name: &str| {
            paragraph
                .lines()
                .find_map(|line| line.strip_prefix(name)?.strip_prefix(": "))
        };
        let Some(name) = field("Package") else { continue };
        if field("Status") != Some("install ok installed") {
            continue;
        }
        let needs = [field("Pre-Depends"), field("Depends")]
            .into_iter()
            .flatten()
            .flat_map(needs);
        packages.insert(name.to_owned(), needs.collect());
        for virtual_name in field("Provides").into_iter().flat_map(needs_flat) {
            provided.push((virtual_name, name.to_owned()));
        }
    }
    for (virtual_name, name) in provided {
        packages.entry(virtual_name).or_insert_with(|| vec![vec![name]]);
    }
    packages
}

/// Parses `a (>= 1) | b, c:any` to `[[a, b], [c]]`.
fn needs(text: &str) -> Vec<Vec<String>> {
    let name = |text: &str| {
        let end = text.find([' ', '(', ':', '[']).unwrap_or(text.len());
        text[..end].to_owned()
    };
    text.split(',')
        .map(|need| need.split('|').map(|choice| name(choice.trim())).collect())
        .collect()
}

fn needs_flat(text: &str) -> Vec<String> {
    needs(text).into_iter().flatten().collect()
}

/// Returns the wanted packages and their transitive dependencies.
fn closure(installed: &BTreeMap<String, Vec<Vec<String>>>) -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    let mut open: Vec<String> = WANTED.iter().map(|&name| name.to_owned()).collect();
    while let Some(name) = open.pop() {
        let Some(needs) = installed.get(&name) else {
            continue;
        };
        if found.insert(name) {
            let met = needs
                .iter()
                .filter_map(|need| need.iter().find(|choice| installed.contains_key(*choice)));
            open.extend(met.cloned());
        }
    }
    found
}

/// Returns the file list of a package; empty for a virtual package.
fn listed(root: &Path, package: &str) -> Result<String, GatherError> {
    let lists = root.join("var/lib/dpkg/info");
    let prefix = format!("{package}:");
    let plain = lists.join(format!("{package}.list"));
    if plain.exists() {
        return Ok(fs::read_to_string(plain)?);
    }
    for entry in fs::read_dir(&lists)? {
        let name = entry?.file_name();
        if let Some(name) = name
            .to_str()
            .filter(|name| name.starts_with(&prefix) && name.ends_with(".list"))
        {
            return Ok(fs::read_to_string(lists.join(name))?);
        }
    }
    Ok(String::new())
}

/// Returns the symbolic links in the root directory, where Debian has merged directories into `/usr`.
fn top_links(root: &Path) -> io::Result<BTreeMap<String, String>> {
    let mut links = BTreeMap::new();
    for name in ["bin", "sbin", "lib", "lib32", "lib64", "libx32"] {
        match fs::read_link(root.join(name)) {
            Ok(target) => drop(links.insert(name.to_owned(), target.to_string_lossy().into_owned())),
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            // A real directory.
            Err(error) if error.kind() == io::ErrorKind::InvalidInput => {}
            Err(error) => return Err(error),
        }
    }
    Ok(links)
}

/// Converts a path of a file list to a path in the archive.
fn member(path: &str, links: &BTreeMap<String, String>) -> Option<String> {
    let path = path.strip_prefix('/')?;
    if path.is_empty() || path == "." || links.contains_key(path) {
        return None;
    }
    let path = match path.split_once('/') {
        Some((top, rest)) => match links.get(top) {
            Some(target) => format!("{target}/{rest}"),
            None => path.to_owned(),
        },
        None => path.to_owned(),
    };
    (!LEFT_OUT.iter().any(|left| path.starts_with(left))).then_some(path)
}

/// Returns Python's bytecode caches of the library: with a read-only image, Python would compile at every
/// start.
fn compiled(root: &Path, members: &BTreeSet<String>) -> Vec<String> {
    let folders: BTreeSet<&str> = members
        .iter()
        .filter(|path| path.starts_with("usr/lib/python3") && path.ends_with(".py"))
        .filter_map(|path| Some(path.rsplit_once('/')?.0))
        .collect();
    let mut found = Vec::new();
    for folder in folders {
        let cache = format!("{folder}/__pycache__");
        let Ok(entries) = fs::read_dir(root.join(&cache)) else {
            continue;
        };
        found.push(cache.clone());
        for name in entries
            .flatten()
            .filter_map(|entry| entry.file_name().into_string().ok())
        {
            let source = name
                .split_once('.')
                .map(|(stem, _)| format!("{folder}/{stem}.py"));
            if source.is_some_and(|source| members.contains(&source)) {
                found.push(format!("{cache}/{name}"));
            }
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn needs_are_read_as_debian_writes_them() {
        assert_eq!(
            needs("libc6 (>= 2.36), a | b:any (<< 2), c [amd64]"),
            [
                vec!["libc6".to_owned()],
                vec!["a".to_owned(), "b".to_owned()],
                vec!["c".to_owned()]
            ]
        );
    }

    #[test]
    fn packages_bring_what_they_need_and_no_more() {
        let status = "Package: bash\nStatus: install ok installed\nDepends: base-files, awk | none\n\n\
                      Package: base-files\nStatus: install ok installed\n\n\
                      Package: mawk\nStatus: install ok installed\nProvides: awk\n\n\
                      Package: curl\nStatus: deinstall ok config-files\n\n\
                      Package: ssh\nStatus: install ok installed\n";
        let found = closure(&installed(status));
        assert_eq!(
            found.into_iter().collect::<Vec<_>>(),
            ["awk", "base-files", "bash", "mawk"]
        );
    }

    #[test]
    fn paths_go_where_the_links_lead() {
        let links = BTreeMap::from([("bin".to_owned(), "usr/bin".to_owned())]);
        let check = |path: &str, expected: Option<&str>| {
            assert_eq!(member(path, &links).as_deref(), expected, "{path}")
        };
        check("/.", None);
        check("/bin", None);
        check("/bin/sh", Some("usr/bin/sh"));
        check("/usr/bin/env", Some("usr/bin/env"));
        check("/usr/share/doc/bash/README", None);
        check("package diverts others to: /x", None);
    }

    #[test]
    fn nothing_of_this_machine_but_its_packages_is_taken() {
        let dir = tempfile::tempdir().unwrap();
        let write = |path: &str, text: &str, mode: u32| {
            let path = dir.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(&path, text).unwrap();
            fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
        };
        let status =
            ["bash", "python3"].map(|name| format!("Package: {name}\nStatus: install ok installed\n"));
        write("var/lib/dpkg/status", &status.join("\n"), 0o644);
        write(
            "var/lib/dpkg/info/bash.list",
            "/.\n/usr/bin/bash\n/etc/secret\n/etc/passwd\n",
            0o644,
        );
        write(
            "var/lib/dpkg/info/python3:amd64.list",
            "/usr/lib/python3.11/os.py\n",
            0o644,
        );
        write("usr/bin/bash", "BASH", 0o4755);
        write("etc/secret", "HIDDEN", 0o600);
        write("etc/passwd", "somebody", 0o644);
        write("usr/lib/python3.11/os.py", "OS", 0o644);
        write(
            "usr/lib/python3.11/__pycache__/os.cpython-311.pyc",
            "COMPILED",
            0o644,
        );
        write(
            "usr/lib/python3.11/__pycache__/other.cpython-311.pyc",
            "OTHER",
            0o644,
        );
        let mut archive = Vec::new();
        files(dir.path()).unwrap().write(&mut archive).unwrap();
        let text = String::from_utf8_lossy(&archive);
        for there in ["BASH", "0000755", "COMPILED", "sandbox:x:1000", "output"] {
            assert!(text.contains(there), "{there}");
        }
        for missing in ["HIDDEN", "somebody", "OTHER", "0004755"] {
            assert!(!text.contains(missing), "{missing}");
        }
    }
}
