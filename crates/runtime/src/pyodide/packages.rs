//! Wheels from a directory of this machine that programs can import.

use std::fs;
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use serde::Deserialize;
use sha2::{Digest, Sha256};

use super::RunError;

/// The most bytes of all wheels: each interpreter holds them.
const MAX_BYTES: u64 = 32 * 1024 * 1024;
/// The most wheels.
const MAX_WHEELS: usize = 256;
/// How the name of a wheel ends that holds Python and nothing compiled.
const PURE: &str = "-none-any.whl";
/// The longest list of Pyodide's packages.
const MAX_LIST: u64 = 16 * 1024 * 1024;

/// Pyodide's own list of its packages.
#[derive(Debug, Deserialize)]
struct Distribution {
    packages: std::collections::BTreeMap<String, Listed>,
}

/// A package of the list.
#[derive(Debug, Deserialize)]
struct Listed {
    file_name: String,
    sha256: String,
}

/// A wheel that can be loaded.
struct Wheel {
    name: String,
    sha256: String,
    bytes: Vec<u8>,
}

/// A directory below `own` that holds copies of the wheels in `directory`: what was looked at is what is loaded.
pub(super) fn copied(directory: &Path, pyodide: &Path, own: &Path) -> Result<PathBuf, RunError> {
    let list = pyodide.join("pyodide-lock.json");
    let distribution: Distribution = read(&list, MAX_LIST)
        .and_then(|text| serde_json::from_slice(&text).map_err(io::Error::other))
        .map_err(|source| RunError::File { path: list, source })?;
    let wheels = wheels(directory, &distribution)?;
    let mut mark = Sha256::new();
    for wheel in &wheels {
        mark.update(format!("{} {}\n", wheel.name, wheel.sha256));
    }
    let copies = own.join(format!("packages-{}", &hex(&mark.finalize())[..12]));
    let not_written = |source| RunError::NotWritten {
        path: copies.clone(),
        source,
    };
    fs::create_dir_all(&copies).map_err(not_written)?;
    for wheel in wheels {
        super::install::put(&copies.join(&wheel.name), &wheel.bytes)?;
    }
    Ok(copies)
}

fn wheels(directory: &Path, distribution: &Distribution) -> Result<Vec<Wheel>, RunError> {
    let failed = |source| RunError::Packages {
        path: directory.to_path_buf(),
        source,
    };
    let mut paths = Vec::new();
    for entry in fs::read_dir(directory).map_err(failed)? {
        let path = entry.map_err(failed)?.path();
        if path.extension().is_some_and(|extension| extension == "whl") {
            paths.push(path);
        }
    }
    if paths.len() > MAX_WHEELS {
        return Err(failed(io::Error::other(format!(
            "it holds more than {MAX_WHEELS} wheels"
        ))));
    }
    paths.sort();
    let mut room = MAX_BYTES;
    let mut wheels = Vec::new();
    for path in paths {
        let wheel = wheel(&path, room, distribution).map_err(|source| RunError::Packages { path, source })?;
        room -= wheel.bytes.len() as u64;
        wheels.push(wheel);
    }
    Ok(wheels)
}

fn wheel(path: &Path, room: u64, distribution: &Distribution) -> io::Result<Wheel> {
    let name = path.file_name().and_then(|name| name.to_str());
    let name = name
        .filter(|name| name.ends_with(PURE))
        .ok_or_else(|| io::Error::other("it holds compiled code, which is not loaded here"))?;
    let bytes = read(path, room)?;
    let sha256 = hex(&Sha256::digest(&bytes));
    let mut listed = distribution.packages.values();
    let listed = listed.find(|listed| listed.file_name == name);
    if listed.is_some_and(|listed| listed.sha256 != sha256) {
        return Err(io::Error::other(format!(
            "it is not the wheel of this name that belongs to Pyodide: its digest is {sha256}"
        )));
    }
    Ok(Wheel {
        name: name.to_owned(),
        sha256,
        bytes,
    })
}

/// Reads a file that is one, and no link to one, within bounds.
fn read(path: &Path, room: u64) -> io::Result<Vec<u8>> {
    if !fs::symlink_metadata(path)?.is_file() {
        return Err(io::Error::other("it is no file"));
    }
    let mut bytes = Vec::new();
    fs::File::open(path)?.take(room + 1).read_to_end(&mut bytes)?;
    match bytes.len() as u64 <= room {
        true => Ok(bytes),
        false => Err(io::Error::other(format!(
            "there is more than {MAX_BYTES} bytes of packages"
        ))),
    }
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const ABC: &str = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";

    #[test]
    fn wheels_are_those_of_the_list_or_of_no_list() {
        let dir = tempfile::tempdir().unwrap();
        let place = |name: &str| dir.path().join(name);
        for name in ["pyodide", "own", "wheels"] {
            fs::create_dir(place(name)).unwrap();
        }
        let list = format!(
            r#"{{"info":{{}},"packages":{{"a":{{"name":"a","file_name":"a-1-py3-none-any.whl","sha256":"{ABC}"}}}}}}"#
        );
        fs::write(place("pyodide/pyodide-lock.json"), list).unwrap();
        let copy = || copied(&place("wheels"), &place("pyodide"), &place("own"));
        fs::write(place("wheels/a-1-py3-none-any.whl"), "abc").unwrap();
        fs::write(place("wheels/b-1-py3-none-any.whl"), "mine").unwrap();
        fs::write(place("wheels/README"), "no wheel").unwrap();
        let copies = copy().unwrap();
        assert_eq!(
            fs::read_to_string(copies.join("a-1-py3-none-any.whl")).unwrap(),
            "abc"
        );
        assert_eq!(fs::read_dir(&copies).unwrap().count(), 2);

        let refused = |why: &str| {
            let error = copy().unwrap_err().to_string();
            assert!(error.contains(why), "{error}");
        };
        fs::write(place("wheels/a-1-py3-none-any.whl"), "abd").unwrap();
        refused("not the wheel of this name");
        fs::remove_file(place("wheels/a-1-py3-none-any.whl")).unwrap();
        fs::write(place("wheels/c-1-cp314-cp314-pyemscripten_2026_0_wasm32.whl"), "").unwrap();
        refused("compiled code");
        fs::remove_file(place("wheels/c-1-cp314-cp314-pyemscripten_2026_0_wasm32.whl")).unwrap();
        std::os::unix::fs::symlink("/etc/passwd", place("wheels/d-1-py3-none-any.whl")).unwrap();
        refused("it is no file");
    }
}
