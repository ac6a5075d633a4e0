//! Installation of Deno and Pyodide, in versions that were tested together, with pinned digests, and of a
//! snapshot of Pyodide's memory that belongs to exactly these.

use std::fs;
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use ringfence_policy::{EnvName, Limits, Outcome, Remedy, Request, Timeout, remedy};
use sha2::{Digest, Sha256, Sha512};

use super::cache::{self, CacheEntry, not_written, put};
use super::error::RunError;
use super::installed::{Installed, Packages};
use super::packages::{self, Wheels};
use super::settings::Settings;
use super::worker;
use crate::local::{Connection, Fence, Local, PrivateDirectory};

const WORKER: &str = concat!(
    include_str!("../../pyodide/split.js"),
    include_str!("../../pyodide/snapshot.js"),
    include_str!("../../pyodide/worker.js"),
);
const GUEST: &str = concat!(
    include_str!("../../python/bridge.py"),
    include_str!("../../pyodide/port.py"),
    include_str!("../../pyodide/wheels.py"),
    include_str!("../../pyodide/guest.py"),
);

/// Timeout for fetching or unpacking one package.
const TIMEOUT: Timeout = Timeout::seconds(600);

/// A package of npm's registry.
#[derive(Debug, Clone, Copy)]
struct Package {
    name: &'static str,
    version: &'static str,
    /// Digest in base64, as in the registry's `integrity`.
    sha512: &'static str,
}

/// Pyodide, with its standard library.
const PYODIDE: Package = Package {
    name: "pyodide",
    version: "314.0.7",
    sha512: "0YvXxEhfEdpLfb/XkM2BFAeMROq0iMUX2bzzH9pOttyMcWkwq+HbE5uyuGD82LN7y2q+SNvi/6V5JEsOlD2R1A==",
};

/// Pinned Deno for this platform, if there is one. All were fetched and compared; those for macOS have not
/// been run.
const DENO: Option<Package> = if cfg!(all(
    target_os = "linux",
    target_arch = "x86_64",
    target_env = "gnu"
)) {
    Some(Package {
        name: "@deno/linux-x64-glibc",
        version: "2.9.6",
        sha512: "3md4TKLCuzsLDmfOoC5KN7NAZaxSVkMgm64vg6foD00JBADCpYS2/5QqXfzgnP5ZQz3iLP9vBQJtEgc116OAoQ==",
    })
} else if cfg!(all(
    target_os = "linux",
    target_arch = "aarch64",
    target_env = "gnu"
)) {
    Some(Package {
        name: "@deno/linux-arm64-glibc",
        version: "2.9.5",
        sha512: "IuYjsz9PGl7CJcNXMuN27KNDB8Q40brK3SG3l+TXMDVW61ZKwcn0fQHBHnXFiiygEwI8by/fKnASEluhZB1atw==",
    })
} else if cfg!(all(target_os = "macos", target_arch = "aarch64")) {
    Some(Package {
        name: "@deno/darwin-arm64",
        version: "2.9.5",
        sha512: "SX98qSdBT1lw9x6NwGwx2xIayl1kRimdRnFohYlJ6nt3mLKzTKHHKQwQs5D2pEY7mbUGGbYe9brM2kfN75pPkg==",
    })
} else if cfg!(all(target_os = "macos", target_arch = "x86_64")) {
    Some(Package {
        name: "@deno/darwin-x64",
        version: "2.9.5",
        sha512: "gbdlxWZuAZFiJiZtTT00Mv/aC7f/31+pyqJGQKlZr5X33WeTo5B0GG+efcX3P1UZceRKHuPEAQ1B/M2oRt8r9Q==",
    })
} else {
    None
};

/// An error of an installation.
#[derive(Debug, thiserror::Error)]
pub enum InstallError {
    /// No Deno is pinned for this platform.
    #[error("there is no pinned Deno for this machine")]
    NoDeno,
    /// A package could not be fetched.
    #[error("cannot fetch {package}: {why}")]
    Fetch {
        package: String,
        /// Message of npm, or the missing file.
        why: String,
    },
    /// Wheels could not be fetched.
    #[error("cannot fetch wheels of {packages}: {why}")]
    Wheels {
        packages: String,
        /// Message of pip.
        why: String,
    },
    /// A package could not be unpacked.
    #[error("cannot unpack {package}: {why}")]
    Unpack {
        package: String,
        /// Message of tar.
        why: String,
    },
    /// A package's digest is not the pinned one.
    #[error("{} does not match the pinned digest of {package}: its digest is {found}", .file.display())]
    Digest {
        package: String,
        file: PathBuf,
        /// Actual digest.
        found: String,
    },
    /// A file could not be read or written.
    #[error("{}: {source}", .path.display())]
    File {
        /// File or directory.
        path: PathBuf,
        source: io::Error,
    },
    /// The installation does not run.
    #[error(transparent)]
    Run(#[from] RunError),
}

impl InstallError {
    /// Returns advice for the user.
    pub fn hint(&self) -> Remedy {
        match self {
            Self::NoDeno => remedy::Pyodide::InstallDeno.into(),
            Self::Fetch { .. } => remedy::Pyodide::FetchElsewhere.into(),
            Self::Wheels { .. } => {
                "install pip; a package without a wheel for Pyodide (`pyemscripten_2026_0_wasm32`) is in the runtimes \
                 `local` and `docker` only"
                    .into()
            }
            Self::Digest { .. } => "fetch it again, from a registry that you trust".into(),
            Self::File { .. } | Self::Unpack { .. } => {
                "check that the state directory can be written and its disk is not full".into()
            }
            Self::Run(error) => error.hint(),
        }
    }
}

impl Package {
    fn id(self) -> String {
        format!("{}@{}", self.name, self.version)
    }

    /// Returns the name of the directory that it is unpacked to.
    fn directory(self) -> String {
        format!(
            "{}-{}",
            self.name.replace('@', "").replace('/', "-"),
            self.version
        )
    }

    /// Returns the name of the file that `npm pack` creates.
    fn archive(self) -> String {
        format!(
            "{}-{}.tgz",
            self.name.replace('@', "").replace('/', "-"),
            self.version
        )
    }
}

/// Fetches missing packages, or takes them from `from`, and creates the snapshot. Installed packages are
/// kept.
///
/// # Errors
/// If a package cannot be fetched, does not match its pinned digest, or does not run.
pub async fn install(
    settings: &Settings,
    from: Option<&Path>,
    variables: Vec<(EnvName, String)>,
    progress: &mut dyn FnMut(&str),
) -> Result<PathBuf, InstallError> {
    let local = Arc::new(Local::new(settings.local.clone()));
    let installed = install_with(settings, &local, from, &variables, progress).await;
    if let Some(local) = Arc::into_inner(local) {
        local.close().await;
    }
    installed.map(|installed| installed.snapshot)
}

async fn install_with(
    settings: &Settings,
    local: &Arc<Local>,
    from: Option<&Path>,
    variables: &[(EnvName, String)],
    progress: &mut dyn FnMut(&str),
) -> Result<Installed, InstallError> {
    let own_deno = match (&settings.deno, DENO) {
        (Some(_), _) => None,
        (None, Some(package)) => Some(package),
        (None, None) => return Err(InstallError::NoDeno),
    };
    let directory = &settings.directory;
    // A killed installation leaves what it had unpacked.
    PrivateDirectory::sweep(directory);
    let scratch = PrivateDirectory::create(&settings.local.scratch)
        .map_err(|source| at(&settings.local.scratch, source))?;
    for package in own_deno.into_iter().chain([PYODIDE]) {
        let unpacked = directory.join(package.directory());
        if unpacked.is_dir() {
            progress(&format!("{}: there", package.id()));
            continue;
        }
        let archive = match from {
            Some(from) => given(package, from)?,
            None => {
                progress(&format!("{}: fetching", package.id()));
                fetch(local, package, scratch.path(), variables).await?
            }
        };
        verify(package, &archive)?;
        progress(&format!("{}: unpacking", package.id()));
        unpack(local, package, &archive, &unpacked).await?;
    }
    progress("making Pyodide's snapshot");
    Ok(prepared(settings, local).await?)
}

/// Fetches wheels of these packages and what they need from the package index into `place`, whose old content is
/// replaced, with a list of their digests. Returns the number of wheels.
///
/// # Errors
/// If a package has no wheel for this Pyodide, or a wheel cannot be used.
pub async fn install_wheels(
    settings: &Settings,
    names: &[String],
    place: &Path,
    variables: Vec<(EnvName, String)>,
) -> Result<usize, InstallError> {
    let [_, pyodide] = found(settings)?;
    let parent = place.parent().unwrap_or(place);
    fs::create_dir_all(parent).map_err(|source| at(parent, source))?;
    let scratch = PrivateDirectory::create(parent).map_err(|source| at(parent, source))?;
    let wheels = scratch.path().join("wheels");
    fs::create_dir(&wheels).map_err(|source| at(&wheels, source))?;
    let local = Local::new(settings.local.clone());
    let fetched = fetch_wheels(&local, names, &wheels, &variables).await;
    local.close().await;
    fetched?;
    packages::write_digests(&wheels).map_err(|source| at(&wheels, source))?;
    let count = Wheels::of(&wheels, &pyodide)?.count();
    let old = scratch.path().join("old");
    match fs::rename(place, &old) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(at(place, error)),
        _ => fs::rename(&wheels, place).map_err(|source| at(place, source))?,
    }
    Ok(count)
}

async fn fetch_wheels(
    local: &Local,
    names: &[String],
    wheels: &Path,
    variables: &[(EnvName, String)],
) -> Result<(), InstallError> {
    let place = wheels.display().to_string();
    let mut words = vec!["python3", "-m", "pip", "download", "--quiet"];
    words.extend(["--disable-pip-version-check", "--no-input", "--dest", &place]);
    // Only wheels: a source package runs its own code.
    words.extend(["--only-binary=:all:", "--implementation=cp"]);
    words.extend(["--python-version=3.14", "--abi=cp314", "--abi=none"]);
    words.extend(["--platform=pyemscripten_2026_0_wasm32", "--"]);
    words.extend(names.iter().map(String::as_str));
    let fetched = on_host(local, &words, wheels, variables).await;
    fetched.map_err(|said| InstallError::Wheels {
        packages: names.join(", "),
        why: pip_error(&said),
    })
}

/// Returns the last error in pip's output.
fn pip_error(said: &str) -> String {
    let mut errors = said.lines().filter_map(|line| line.strip_prefix("ERROR: "));
    errors.next_back().unwrap_or(said).trim().to_owned()
}

/// Returns the archive of a package that was fetched elsewhere, as an absolute path, because tar runs in
/// another directory.
fn given(package: Package, from: &Path) -> Result<PathBuf, InstallError> {
    let archive = std::path::absolute(from.join(package.archive())).map_err(|source| at(from, source))?;
    match archive.exists() {
        true => Ok(archive),
        false => Err(InstallError::Fetch {
            package: package.id(),
            why: format!("there is no {}", archive.display()),
        }),
    }
}

async fn fetch(
    local: &Local,
    package: Package,
    directory: &Path,
    variables: &[(EnvName, String)],
) -> Result<PathBuf, InstallError> {
    let directory_text = directory.display().to_string();
    let id = package.id();
    let words = [
        "npm",
        "pack",
        "--loglevel=error",
        "--pack-destination",
        &directory_text,
        &id,
    ];
    on_host(local, &words, directory, variables)
        .await
        .map_err(|said| InstallError::Fetch {
            package: id.clone(),
            why: reason(&said),
        })?;
    Ok(directory.join(package.archive()))
}

/// Returns the line of an error message that gives the reason: behind npm's codes, before stack and advice.
fn reason(said: &str) -> String {
    let plain = |line: &str| {
        let line = line.trim();
        let line = line
            .strip_prefix("npm error")
            .or(line.strip_prefix("npm ERR!"))
            .unwrap_or(line);
        line.trim().to_owned()
    };
    let is_code = |line: &str| {
        ["code ", "syscall ", "errno "]
            .iter()
            .any(|word| line.starts_with(word))
    };
    let mut lines = said.lines().map(plain).filter(|line| !line.is_empty());
    lines.find(|line| !is_code(line)).unwrap_or_else(|| plain(said))
}

fn verify(package: Package, archive: &Path) -> Result<(), InstallError> {
    let mut file = fs::File::open(archive).map_err(|source| at(archive, source))?;
    let mut hasher = Sha512::new();
    let mut buffer = vec![0; 1 << 20];
    loop {
        match file.read(&mut buffer).map_err(|source| at(archive, source))? {
            0 => break,
            length => hasher.update(&buffer[..length]),
        }
    }
    let found = STANDARD.encode(hasher.finalize());
    match found == package.sha512 {
        true => Ok(()),
        false => Err(InstallError::Digest {
            package: package.id(),
            file: archive.to_path_buf(),
            found,
        }),
    }
}

/// Unpacks into a scratch directory and renames it to its place: an existing installation is always complete.
async fn unpack(local: &Local, package: Package, archive: &Path, place: &Path) -> Result<(), InstallError> {
    let parent = place.parent().unwrap_or(place);
    fs::create_dir_all(parent).map_err(|source| at(parent, source))?;
    let scratch = PrivateDirectory::create(parent).map_err(|source| at(parent, source))?;
    let (from, to) = (
        archive.display().to_string(),
        scratch.path().display().to_string(),
    );
    let words = [
        "tar",
        "-x",
        "-z",
        "-f",
        &from,
        "-C",
        &to,
        "--no-same-owner",
        "--strip-components=1",
    ];
    let unpacked = on_host(local, &words, scratch.path(), &[]).await;
    unpacked.map_err(|said| InstallError::Unpack {
        package: package.id(),
        why: reason(&said),
    })?;
    // The scratch directory was private to us.
    scratch
        .open_to_guests()
        .map_err(|source| at(scratch.path(), source))?;
    move_to(scratch.path(), place).map_err(|source| at(place, source))
}

fn move_to(unpacked: &Path, place: &Path) -> io::Result<()> {
    match fs::rename(unpacked, place) {
        // Another installation was first, and what it has put there is complete.
        Err(_) if place.is_dir() => Ok(()),
        moved => moved,
    }
}

/// Runs a host program without a fence, for the person at this machine.
async fn on_host(
    local: &Local,
    words: &[&str],
    directory: &Path,
    variables: &[(EnvName, String)],
) -> Result<(), String> {
    let request = Request {
        env: variables.to_vec(),
        limits: Limits {
            timeout: TIMEOUT,
            ..Limits::DEFAULT
        },
        workspace: Some(directory.to_path_buf()),
        ..worker::command(words.iter().copied())
    };
    let ran = local.run(&request, Fence::Host, None, Connection::none()).await;
    match ran {
        Ok(result) if result.meta.outcome == Outcome::Exited && result.exit_code == 0 => Ok(()),
        Ok(result) => Err(result.stderr.trim().to_owned()),
        Err(error) => Err(error.explain()),
    }
}

/// Returns the paths of Deno and Pyodide.
///
/// # Errors
/// If one of them is not installed.
pub fn found(settings: &Settings) -> Result<[PathBuf; 2], RunError> {
    let directory = &settings.directory;
    let deno = match (&settings.deno, DENO) {
        (Some(path), _) => path.clone(),
        (None, Some(package)) => directory.join(package.directory()).join("deno"),
        (None, None) => directory.join("deno"),
    };
    let found = [deno, directory.join(PYODIDE.directory())];
    match found.iter().find(|path| !path.exists()) {
        Some(missing) => Err(RunError::NotInstalled(missing.clone())),
        None => Ok(found),
    }
}

/// Counts the wheels that programs can import, if a directory of them is configured. Does not unpack them.
pub fn wheels(settings: &Settings) -> Option<Result<usize, RunError>> {
    let directory = settings.packages.as_deref()?;
    let looked_at = || {
        let [_, pyodide] = found(settings)?;
        Wheels::of(directory, &pyodide).map(|wheels| wheels.count())
    };
    Some(looked_at())
}

/// Returns the installed files, creating the snapshot and unpacking the wheels if necessary.
pub(super) async fn prepared(settings: &Settings, local: &Arc<Local>) -> Result<Installed, RunError> {
    let directory = &settings.directory;
    let [deno, pyodide] = found(settings)?;
    let key = key(&deno);
    let held = CacheEntry::of(directory, &key);
    let own = |name: &str| directory.join(format!("{key}-{name}"));
    let mut installed = Installed {
        packages: None,
        _held: Arc::new(held),
        worker: own("worker.js"),
        guest: own("guest.py"),
        snapshot: own("snapshot"),
        deno,
        pyodide,
    };
    put(&installed.worker, WORKER.as_bytes())?;
    put(&installed.guest, GUEST.as_bytes())?;
    if !installed.snapshot.exists() {
        let snapshot = worker::snapshot(&installed, local).await?;
        put(&installed.snapshot, &snapshot)?;
    }
    if let Some(wheels) = &settings.packages {
        installed.packages = Some(unpacked(wheels, &installed, directory, local).await?);
    }
    cache::tidy(directory);
    Ok(installed)
}

/// Returns the unpacked wheels of a directory. They are unpacked once, by a separate Pyodide: nothing else
/// has to trust their contents.
async fn unpacked(
    wheels: &Path,
    installed: &Installed,
    directory: &Path,
    local: &Arc<Local>,
) -> Result<Packages, RunError> {
    let found = Wheels::of(wheels, &installed.pyodide)?;
    let name = format!(
        "{}-{}{}",
        key(&installed.deno),
        cache::PACKAGES,
        found.fingerprint()
    );
    let held = CacheEntry::of(directory, &name);
    let path = directory.join(name);
    if !path.exists() {
        let copies = PrivateDirectory::create(directory).map_err(|source| not_written(directory, source))?;
        found.write(copies.path())?;
        copies
            .open_to_guests()
            .map_err(|source| not_written(copies.path(), source))?;
        let unpacked = worker::unpacked(&copies.path().to_path_buf(), installed, local).await?;
        let unpacked = unpacked.map_err(|complaint| RunError::Packages {
            path: wheels.to_path_buf(),
            source: io::Error::other(complaint),
        })?;
        put(&path, &unpacked)?;
    }
    let bytes = fs::metadata(&path)
        .map_err(|source| not_written(&path, source))?
        .len();
    Ok(Packages {
        path,
        bytes,
        _held: Arc::new(held),
    })
}

/// Returns a fingerprint of the files that belong together: our own sources, Pyodide's version, and this Deno
/// with its flags.
fn key(deno: &Path) -> String {
    let mut hasher = Sha256::new();
    let texts = [WORKER, GUEST, PYODIDE.sha512];
    texts
        .iter()
        .chain(worker::FLAGS)
        .for_each(|text| hasher.update(text));
    hasher.update(deno.as_os_str().as_encoded_bytes());
    if let Ok(found) = fs::metadata(deno) {
        hasher.update(found.len().to_le_bytes());
    }
    hasher.finalize()[..cache::DIGITS / 2]
        .iter()
        .map(|byte| format!("{byte:02x}"))
        .collect()
}

fn at(path: &Path, source: io::Error) -> InstallError {
    InstallError::File {
        path: path.to_path_buf(),
        source,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_archive_that_was_tampered_with_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        let archive = dir.path().join("a.tgz");
        fs::write(&archive, "abc").unwrap();
        let package = Package {
            sha512: "3a81oZNherrMQXNJriBBMRLm+k6JqX6iCp7u5ktV05ohkpkqJ0/BqDa6PCOj/uu9RU1EI2Q86A4qmslPpUyknw==",
            ..PYODIDE
        };
        verify(package, &archive).unwrap();
        fs::write(&archive, "abd").unwrap();
        assert!(matches!(
            verify(package, &archive),
            Err(InstallError::Digest { .. })
        ));
    }

    #[test]
    fn two_at_once_install_the_same() {
        let dir = tempfile::tempdir().unwrap();
        let [first, second, place] = ["a", "b", "place"].map(|name| dir.path().join(name));
        for unpacked in [&first, &second] {
            fs::create_dir(unpacked).unwrap();
            fs::write(unpacked.join("deno"), "").unwrap();
            move_to(unpacked, &place).unwrap();
        }
        assert!(move_to(&first, &dir.path().join("none/place")).is_err());
    }

    #[test]
    fn what_npm_says_becomes_one_reason() {
        let said = "npm error code ENOTFOUND\nnpm error errno ENOTFOUND\nnpm error network request to http://x/ failed\n\
                    npm error     at emit (node:events:524:28)\n";
        assert_eq!(reason(said), "network request to http://x/ failed");
        assert_eq!(
            reason("npm ERR! code E404\nnpm ERR! 404 not there\n"),
            "404 not there"
        );
        assert_eq!(reason("cannot find npm"), "cannot find npm");
    }

    #[test]
    fn packages_are_named_as_npm_names_them() {
        assert_eq!(PYODIDE.archive(), "pyodide-314.0.7.tgz");
        let deno = Package {
            name: "@deno/linux-x64-glibc",
            ..PYODIDE
        };
        assert_eq!(deno.archive(), "deno-linux-x64-glibc-314.0.7.tgz");
        assert_eq!(deno.directory(), "deno-linux-x64-glibc-314.0.7");
    }
}
