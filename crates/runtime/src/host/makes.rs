//! Which make of a program this machine has, where the policy must know: each is confined by another option.

use std::fs::File;
use std::io::Read;
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use ringfence_policy::cascade::Confinement;
use rustix::fs::{CWD, Mode, OFlags};

use super::PATH;

/// How `awk` and `yq` of this machine are confined. What has no option for it is left out, and asked about.
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

/// GNU awk alone has an option that refuses commands and files; mawk and the others have none.
fn awk(path: &Path) -> Option<&'static str> {
    let name = path.file_name()?.to_str()?;
    name.starts_with("gawk").then_some("--sandbox")
}

/// The option by which the yq written in Go refuses files and the environment, if it is new enough to have it.
const YQ_OPTION: &[u8] = b"security-disable-file-ops";

/// The longest program that is searched.
const MAX_PROGRAM: u64 = 64 << 20;

/// There are two: one in Python, which hands its words to jq, and one in Go, with a language like it.
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

/// The file that a path leads to.
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
