//! A small root file system from the files of this machine: a shell, a Python, their libraries.

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use crate::support::{Dir, finish};

const PYTHON: &str = "/usr/bin/python3";

/// Links of a merged `/usr`, and what the fence has itself.
const TOP: &[&str] = &["/bin", "/lib", "/lib64"];

/// Modules that the programs of tests need, with what they import themselves.
const MODULES: &str = "asyncio, base64, ctypes, errno, fcntl, inspect, json, linecache, mmap, os, platform, resource, \
                       select, signal, site, socket, stat, struct, subprocess, sys, tempfile, traceback, encodings.ascii, encodings.latin_1, encodings.idna";

/// Writes a root file system as an archive in the test's directory, with its own `/etc` and `/app`.
pub(crate) fn root_archive(dir: &Dir) -> PathBuf {
    root_archive_with(dir, &[])
}

/// Returns the command that imports an archive as the image `test/root:1`.
pub(crate) fn import_of(archive: &Path) -> [&str; 5] {
    [
        "image",
        "import",
        archive.to_str().unwrap(),
        "--name",
        "test/root:1",
    ]
}

/// Writes such an archive that has these programs, too.
pub(crate) fn root_archive_with(dir: &Dir, programs: &[&str]) -> PathBuf {
    let top = dir.path("top");
    for name in ["etc", "app", "opt/empty", "mnt"] {
        fs::create_dir_all(top.join(name)).unwrap();
    }
    fs::write(top.join("etc/os-release"), "NAME=image\n").unwrap();
    fs::write(top.join("app/data"), "of the image\n").unwrap();
    fs::write(top.join("etc/passwd"), "root:x:0:0::/root:/bin/sh\n").unwrap();
    let archive = dir.path("root.tar");
    let mut tar = dir.program("tar");
    tar.arg("-cf").arg(&archive);
    tar.arg("-C").arg("/");
    tar.args(
        files(dir, programs)
            .iter()
            .map(|path| path.strip_prefix("/").unwrap()),
    );
    tar.arg("-C").arg(&top).args(["etc", "app", "opt", "mnt"]);
    finish(&mut tar, b"").ok();
    archive
}

/// Returns the programs, their libraries, and every link on the way.
fn files(dir: &Dir, programs: &[&str]) -> BTreeSet<PathBuf> {
    let mut all = BTreeSet::new();
    for file in modules(dir) {
        if file.extension().is_some_and(|end| end == "so") {
            add_program(dir, &file, &mut all);
        }
        add(&file, &mut all);
    }
    for program in [PYTHON, "/bin/sh", "/usr/bin/true"].iter().chain(programs) {
        add_program(dir, Path::new(program), &mut all);
    }
    for link in TOP.iter().map(Path::new) {
        if fs::symlink_metadata(link).is_ok_and(|found| found.is_symlink()) {
            all.insert(link.to_owned());
        }
    }
    all
}

/// Adds a file and the links that lead to it.
fn add(path: &Path, all: &mut BTreeSet<PathBuf>) {
    let directory = path.parent().unwrap().canonicalize().unwrap();
    let path = directory.join(path.file_name().unwrap());
    if let Ok(target) = fs::read_link(&path) {
        add(&directory.join(target), all);
    }
    all.insert(path);
}

/// Adds a program or library, with the libraries that it loads.
fn add_program(dir: &Dir, program: &Path, all: &mut BTreeSet<PathBuf>) {
    for library in libraries(dir, program) {
        add(&library, all);
    }
    add(program, all);
}

/// Returns the files of Python's modules.
fn modules(dir: &Dir) -> Vec<PathBuf> {
    let code = format!(
        "import {MODULES}\nfor module in list(sys.modules.values()):\n    print(getattr(module, '__file__', None) or '')"
    );
    let told = finish(dir.program(PYTHON).args(["-I", "-c", &code]), b"");
    let lines = told.ok().lines().filter(|line| line.starts_with('/'));
    lines.map(PathBuf::from).collect()
}

fn libraries(dir: &Dir, program: &Path) -> Vec<PathBuf> {
    let told = finish(dir.program("ldd").arg(program), b"");
    let words = told.stdout.split_whitespace();
    let paths = words
        .filter(|word| word.starts_with('/'))
        .map(|word| word.trim_end_matches(':'));
    paths
        .map(PathBuf::from)
        .filter(|path| fs::metadata(path).is_ok_and(|found| found.size() > 0))
        .collect()
}
