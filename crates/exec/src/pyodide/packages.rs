//! Wheels from a host directory that programs can import.

use std::collections::BTreeMap;
use std::fs;
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use serde::Deserialize;
use sha2::{Digest, Sha256};

use super::cache;
use super::error::RunError;
use super::tag::{Target, WheelName};

/// Maximum number of bytes of all wheels.
const MAX_BYTES: u64 = 64 * 1024 * 1024;
/// Maximum number of wheels.
const MAX_WHEELS: usize = 256;
/// Maximum length of a list of digests.
const MAX_LIST: u64 = 16 * 1024 * 1024;
/// File name extension of a shared library archive.
const ARCHIVE: &str = "zip";
/// File with digests that the user vouches for, in the format of `sha256sum`.
const SUMS: &str = "SHA256SUMS";

/// Pyodide's own list of its packages.
#[derive(Debug, Deserialize)]
struct Distribution {
    info: Info,
    packages: BTreeMap<String, Listed>,
}

/// Versions of this Pyodide.
#[derive(Debug, Deserialize)]
struct Info {
    python: String,
    abi_version: String,
    arch: String,
}

/// A package in the list.
#[derive(Debug, Deserialize)]
struct Listed {
    file_name: String,
    sha256: String,
}

/// The requirements on wheels.
struct Expected {
    target: Target,
    /// Digests by file name, from Pyodide's list.
    listed: BTreeMap<String, String>,
    /// Digests by file name, from the user's list.
    vouched: BTreeMap<String, String>,
}

/// A checked wheel, or a shared library archive.
struct Wheel {
    name: String,
    package: String,
    sha256: String,
    bytes: Vec<u8>,
}

/// Checked wheels, in memory: the bytes that were checked are those that are unpacked.
pub(super) struct Wheels(Vec<Wheel>);

/// Writes the list of digests of a directory of wheels.
pub(super) fn write_digests(directory: &Path) -> io::Result<()> {
    let mut list = String::new();
    for path in paths(directory)? {
        let digest = Sha256::digest(fs::read(&path)?);
        let digest: String = digest.iter().map(|byte| format!("{byte:02x}")).collect();
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        list.push_str(&format!("{digest}  {name}\n"));
    }
    fs::write(directory.join(SUMS), list)
}

impl Wheels {
    /// Reads and checks the wheels of a directory.
    pub(super) fn of(directory: &Path, pyodide: &Path) -> Result<Self, RunError> {
        let expected = Expected::of(directory, pyodide)?;
        let mut room = MAX_BYTES;
        let mut wheels = Vec::<Wheel>::new();
        for path in paths(directory).map_err(at(directory))? {
            let wheel = wheel(&path, room, &expected).map_err(at(&path))?;
            if let Some(other) = wheels.iter().find(|other| other.package == wheel.package) {
                let told = format!("{} is another wheel of the same package", other.name);
                return Err(at(&path)(io::Error::other(told)));
            }
            room -= wheel.bytes.len() as u64;
            wheels.push(wheel);
        }
        Ok(Self(wheels))
    }

    pub(super) fn count(&self) -> usize {
        self.0.len()
    }

    /// Returns a fingerprint of exactly these wheels.
    pub(super) fn fingerprint(&self) -> String {
        let mut fingerprint = Sha256::new();
        for wheel in &self.0 {
            fingerprint.update(format!("{} {}\n", wheel.name, wheel.sha256));
        }
        hex(&fingerprint.finalize())[..cache::DIGITS].to_owned()
    }

    /// Writes the wheels into a directory.
    pub(super) fn write(&self, directory: &Path) -> Result<(), RunError> {
        let written = |wheel: &Wheel| cache::put(&directory.join(&wheel.name), &wheel.bytes);
        self.0.iter().try_for_each(written)
    }
}

impl Expected {
    fn of(directory: &Path, pyodide: &Path) -> Result<Self, RunError> {
        let list = pyodide.join("pyodide-lock.json");
        let distribution = distribution(&list).map_err(|source| RunError::File { path: list, source })?;
        let sums = directory.join(SUMS);
        let vouched = match sums.exists() {
            true => vouched(&sums).map_err(at(&sums))?,
            false => BTreeMap::new(),
        };
        let (target, listed) = distribution;
        Ok(Self {
            target,
            listed,
            vouched,
        })
    }

    /// Returns the package of a compatible wheel.
    fn package(&self, name: &str) -> io::Result<String> {
        let told = "it is not named as wheels are: name-version-python-abi-platform.whl";
        let parsed = WheelName::parse(name).ok_or_else(|| io::Error::other(told))?;
        match self.target.takes(&parsed) {
            true => Ok(parsed.project()),
            false => {
                let told = format!("it is for {parsed}, and this Pyodide is {}", self.target);
                Err(io::Error::other(told))
            }
        }
    }

    /// Accepts a shared library archive of Pyodide's distribution. It has no tag, so it must be in Pyodide's
    /// list.
    fn library(&self, name: &str) -> io::Result<String> {
        match self.listed.contains_key(name) {
            true => Ok(name.to_owned()),
            false => Err(io::Error::other(
                "it is not an archive of libraries of Pyodide's distribution",
            )),
        }
    }

    /// Compares a wheel's digest with the lists.
    fn check(&self, name: &str, sha256: &str) -> io::Result<()> {
        let told = match (self.vouched.get(name), self.listed.get(name)) {
            (Some(digest), _) if digest != sha256 => {
                format!("it is not the wheel that {SUMS} names: its digest is {sha256}")
            }
            (None, Some(digest)) if digest != sha256 => format!(
                "it is not the wheel of this name that belongs to Pyodide, but may be another build: its digest is \
                 {sha256}; a line of `sha256sum` in {SUMS} beside it vouches for it"
            ),
            _ => return Ok(()),
        };
        Err(io::Error::other(told))
    }
}

fn distribution(list: &Path) -> io::Result<(Target, BTreeMap<String, String>)> {
    let Distribution { info, packages } =
        serde_json::from_slice(&read(list, MAX_LIST)?).map_err(io::Error::other)?;
    let target = Target::new(&info.python, &info.abi_version, &info.arch)
        .ok_or_else(|| io::Error::other("it names no version of Python"))?;
    let packages = packages.into_values();
    Ok((
        target,
        packages.map(|listed| (listed.file_name, listed.sha256)).collect(),
    ))
}

/// Parses digests by file name.
fn vouched(sums: &Path) -> io::Result<BTreeMap<String, String>> {
    let text = String::from_utf8(read(sums, MAX_LIST)?).map_err(io::Error::other)?;
    let lines = text.lines().filter(|line| !line.trim().is_empty());
    let parsed = lines.map(|line| {
        let (digest, name) = line.split_once(' ').unwrap_or_default();
        let name = name.trim_start().trim_start_matches('*');
        let whole = digest.len() == 64 && digest.bytes().all(|byte| byte.is_ascii_hexdigit());
        match whole && !name.is_empty() {
            true => Ok((name.to_owned(), digest.to_ascii_lowercase())),
            false => Err(io::Error::other(format!(
                "it has a line that is not a digest with a name: {line}"
            ))),
        }
    });
    parsed.collect()
}

fn paths(directory: &Path) -> io::Result<Vec<PathBuf>> {
    let mut paths = Vec::new();
    for entry in fs::read_dir(directory)? {
        let path = entry?.path();
        if path.extension().is_some_and(|end| end == "whl" || end == ARCHIVE) {
            paths.push(path);
        }
        if paths.len() > MAX_WHEELS {
            let told = format!("it holds more than {MAX_WHEELS} wheels");
            return Err(io::Error::other(told));
        }
    }
    paths.sort();
    Ok(paths)
}

fn wheel(path: &Path, room: u64, expected: &Expected) -> io::Result<Wheel> {
    let name = path
        .file_name()
        .and_then(|name| name.to_str())
        .unwrap_or_default();
    let package = match path.extension().is_some_and(|end| end == ARCHIVE) {
        true => expected.library(name)?,
        false => expected.package(name)?,
    };
    let bytes = read(path, room)?;
    let sha256 = hex(&Sha256::digest(&bytes));
    expected.check(name, &sha256)?;
    Ok(Wheel {
        name: name.to_owned(),
        package,
        sha256,
        bytes,
    })
}

/// Reads a regular file, within the limit; a symbolic link is an error.
fn read(path: &Path, room: u64) -> io::Result<Vec<u8>> {
    if !fs::symlink_metadata(path)?.is_file() {
        return Err(io::Error::other("it is not a file"));
    }
    let mut bytes = Vec::new();
    fs::File::open(path)?.take(room + 1).read_to_end(&mut bytes)?;
    match bytes.len() as u64 <= room {
        true => Ok(bytes),
        false => Err(io::Error::other(format!("there are more than {MAX_BYTES} bytes"))),
    }
}

fn at(path: &Path) -> impl FnOnce(io::Error) -> RunError {
    let path = path.to_path_buf();
    move |source| RunError::Packages { path, source }
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const ABC: &str = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";
    const ABD: &str = "a52d159f262b2c6ddb724a61840befc36eb30c88877a4030b65cbe86298449c9";

    struct Scratch(tempfile::TempDir);

    impl Scratch {
        /// Creates a distribution with the package `a`, whose content is `abc`.
        fn new() -> Self {
            let dir = tempfile::tempdir().unwrap();
            for name in ["pyodide", "wheels"] {
                fs::create_dir(dir.path().join(name)).unwrap();
            }
            let list = format!(
                r#"{{"info":{{"python":"3.14.2","abi_version":"2026_0","arch":"wasm32"}},
                "packages":{{"a":{{"name":"a","file_name":"a-1-py3-none-any.whl","sha256":"{ABC}"}}}}}}"#
            );
            fs::write(dir.path().join("pyodide/pyodide-lock.json"), list).unwrap();
            Self(dir)
        }

        fn put(&self, name: &str, content: &str) {
            fs::write(self.0.path().join("wheels").join(name), content).unwrap();
        }

        fn wheels(&self) -> Result<Vec<String>, String> {
            let wheels = Wheels::of(&self.0.path().join("wheels"), &self.0.path().join("pyodide"));
            let names = |wheels: Wheels| wheels.0.into_iter().map(|wheel| wheel.name).collect();
            wheels.map(names).map_err(|error| error.to_string())
        }

        fn refused(&self, why: &str) {
            let error = self.wheels().unwrap_err();
            assert!(error.contains(why), "{error}");
        }
    }

    #[test]
    fn wheels_are_those_of_the_list_or_of_no_list() {
        let place = Scratch::new();
        place.put("a-1-py3-none-any.whl", "abc");
        place.put("b-1-cp314-cp314-pyemscripten_2026_0_wasm32.whl", "mine");
        place.put("README", "no wheel");
        assert_eq!(place.wheels().unwrap().len(), 2);
        place.put("a-1-py3-none-any.whl", "abd");
        place.refused("not the wheel of this name that belongs to Pyodide");
    }

    #[test]
    fn a_person_can_vouch_for_another_build() {
        let place = Scratch::new();
        place.put("a-1-py3-none-any.whl", "abd");
        place.put(SUMS, &format!("{ABD}  a-1-py3-none-any.whl\n{ABD} *gone.whl\n"));
        place.wheels().unwrap();
        place.put("a-1-py3-none-any.whl", "abe");
        place.refused("not the wheel that SHA256SUMS names");
        place.put(SUMS, "nonsense");
        place.refused("not a digest with a name: nonsense");
    }

    #[test]
    fn what_does_not_fit_is_refused_with_the_reason() {
        let refused = |name: &str, why: &str| {
            let place = Scratch::new();
            place.put(name, "");
            place.refused(why);
        };
        refused(
            "c-1-cp314-cp314-manylinux_2_28_x86_64.whl",
            "it is for cp314-cp314-manylinux_2_28_x86_64, and this Pyodide is cp314-pyemscripten_2026_0_wasm32",
        );
        refused("c.whl", "not named as wheels are");
        refused(
            "libc-1.zip",
            "not an archive of libraries of Pyodide's distribution",
        );
        let twice = Scratch::new();
        twice.put("D.x-1-py3-none-any.whl", "");
        twice.put("d_x-2-py3-none-any.whl", "");
        twice.refused("another wheel of the same package");
        let link = Scratch::new();
        let path = link.0.path().join("wheels/d-1-py3-none-any.whl");
        std::os::unix::fs::symlink("/etc/passwd", path).unwrap();
        link.refused("it is not a file");
    }
}
