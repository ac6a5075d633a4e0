//! Detection of program implementations that each need another option to be confined.

use std::fs::File;
use std::io::Read;
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use ringfence_policy::cascade::Confinement;
use rustix::fs::{CWD, Mode, OFlags};

use super::PATH;

/// Returns the confining options of this machine's `awk` and `yq`. An implementation without such an option
/// is left out, so that a person is asked.
pub fn confinements() -> Arc<[Confinement]> {
    of(|program| std::env::split_paths(PATH).find_map(|folder| resolved(&folder.join(program))))
}

fn of(find: impl Fn(&str) -> Option<PathBuf>) -> Arc<[Confinement]> {
    let awk = find("awk").and_then(|path| awk(&path));
    let yq = find("yq").and_then(|path| yq(&path));
    let known = [("awk", awk), ("yq", yq)].into_iter();
    known
        .filter_map(|(program, words)| {
            Some(Confinement {
                program,
                words: words?,
            })
        })
        .collect()
}

/// Returns the option by which this awk refuses to run commands and open files. Only GNU awk has one.
fn awk(path: &Path) -> Option<&'static str> {
    let name = path.file_name()?.to_str()?;
    name.starts_with("gawk").then_some("--sandbox")
}

/// Option by which the yq written in Go refuses access to files; versions before it do not contain the
/// string.
const YQ_OPTION: &[u8] = b"security-disable-file-ops";

/// Maximum length of a program that is searched.
const MAX_PROGRAM: u64 = 64 << 20;

/// Returns the option that confines this yq. There are two implementations: one in Python, which passes its
/// arguments to jq, and one in Go, with a similar language.
fn yq(path: &Path) -> Option<&'static str> {
    let mut program = Vec::new();
    File::open(path)
        .ok()?
        .take(MAX_PROGRAM)
        .read_to_end(&mut program)
        .ok()?;
    if program.starts_with(b"#!") {
        return Some("-L /var/empty");
    }
    let mut windows = program.windows(YQ_OPTION.len());
    windows
        .any(|window| window == YQ_OPTION)
        .then_some("--security-disable-env-ops --security-disable-file-ops")
}

/// Resolves symbolic links.
fn resolved(path: &Path) -> Option<PathBuf> {
    let file = rustix::fs::openat(CWD, path, OFlags::PATH | OFlags::CLOEXEC, Mode::empty()).ok()?;
    std::fs::read_link(format!("/proc/self/fd/{}", file.as_raw_fd())).ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    #[test]
    fn a_make_is_told_by_its_file() {
        let place = tempfile::tempdir().unwrap();
        let check = |awk: &str, yq: &[u8], expected: &[(&str, &str)]| {
            let file = place.path().join("yq");
            fs::write(&file, yq).unwrap();
            let found = of(|program| match program {
                "awk" => Some(PathBuf::from(awk)),
                _ => Some(file.clone()),
            });
            let found: Vec<_> = found.iter().map(|known| (known.program, known.words)).collect();
            assert_eq!(found, expected, "{awk}");
        };
        check("/usr/bin/gawk", b"\x7fELF", &[("awk", "--sandbox")]);
        check(
            "/usr/bin/mawk",
            b"#!/usr/bin/python3\n",
            &[("yq", "-L /var/empty")],
        );
        check(
            "/usr/bin/busybox",
            b"\x7fELF..security-disable-file-ops..",
            &[("yq", "--security-disable-env-ops --security-disable-file-ops")],
        );
        check("/usr/bin/original-awk", b"", &[]);
    }
}
