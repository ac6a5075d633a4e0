//! Files of `/output` that are fetched from a sandbox, as an untrusted archive.

use std::ffi::OsStr;
use std::fs;
use std::io::{self, Read};
use std::os::unix::ffi::OsStrExt;
use std::path::{Component, Path, PathBuf};
use std::time::Duration;

use ringfence_exec::local::output_files::{CollectedFiles, collect_from, open_directory};
use ringfence_exec::local::{Destination, Workdir};
use ringfence_policy::Bytes;
use ringfence_tar::{Kind, Reader, TarError};
use tokio::time::timeout;

use crate::envd::Envd;
use crate::error::Error;
use crate::program::{Produced, script};

/// Timeout of a fetch.
const TIMEOUT: Duration = Duration::from_secs(60);
/// Maximum number of bytes that are fetched, whatever the limit of disk space: they are held in memory.
const MAX_BYTES: u64 = 64 * 1024 * 1024;
/// Size of names and headers, for which there is room beside the files.
const HEADERS: u64 = 1024 * 1024;
/// Maximum number of members that are looked at.
const MAX_MEMBERS: usize = 2_000;
/// Maximum length of a path, in bytes and in components.
const MAX_PATH: usize = 1024;
const MAX_DEPTH: usize = 32;
/// Maximum number of directories in the members' paths, counting repetitions.
const MAX_DIRECTORIES: usize = 10_000;
/// Maximum number of warnings about members.
const MAX_WARNINGS: usize = 20;

/// Prints an archive of `/output`, unless that is empty.
const PACK: &str = "cd /output || exit; [ -n \"$(ls -A)\" ] || exit 0; exec tar --hard-dereference -cf - .";

/// Fetches the files, and delivers them like those of any program.
pub(crate) async fn fetch(envd: &Envd, destination: Option<&Destination>, disk: Bytes) -> CollectedFiles {
    let limit = disk.0.min(MAX_BYTES);
    let packed = timeout(TIMEOUT, script(envd, PACK, limit + HEADERS)).await;
    match packed.unwrap_or(Err(Error::Gone)) {
        Ok(produced) => delivered(&produced, destination, limit),
        Err(error) => failed(&error.to_string()),
    }
}

fn failed(why: &str) -> CollectedFiles {
    CollectedFiles {
        files: Vec::new(),
        warnings: vec![format!("the output files could not be fetched: {why}")],
        incomplete: true,
    }
}

fn delivered(produced: &Produced, destination: Option<&Destination>, limit: u64) -> CollectedFiles {
    if !produced.is_cut && produced.status != Some(0) {
        return failed(&format!("tar did not succeed{}", produced.said()));
    }
    if produced.bytes.is_empty() {
        return CollectedFiles::default();
    }
    let directory = match Workdir::create(&std::env::temp_dir(), None) {
        Ok(directory) => directory,
        Err(error) => return failed(&error.to_string()),
    };
    let output = directory.path().join("output");
    let mut warnings = Vec::new();
    let unpacked = unpack(&produced.bytes, &output, &mut warnings);
    let mut collected = collect_from(open_directory(&output), destination, limit);
    if produced.is_cut {
        warnings.push(format!(
            "the output files hold more than {}: the rest was left",
            Bytes(limit)
        ));
    } else if let Err(error) = unpacked {
        warnings.push(format!("the output files could not all be fetched: {error}"));
    }
    // Links and special files are left, as they are everywhere; what is cut off or broken is missed.
    collected.incomplete |=
        produced.is_cut || warnings.iter().any(|warning| warning.starts_with("the output"));
    collected.warnings.extend(warnings);
    collected
}

/// Writes the regular files of an archive below the directory `output`.
fn unpack(archive: &[u8], output: &Path, warnings: &mut Vec<String>) -> Result<(), TarError> {
    let mut reader = Reader::new(archive);
    let mut directories = 0;
    for _ in 0..MAX_MEMBERS {
        let Some(member) = reader.member()? else {
            return Ok(());
        };
        let path = match (member.kind, plain(&member.path)) {
            (Kind::Directory, _) => continue,
            (Kind::File, Some(path)) => path,
            (_, path) => {
                let path = path.unwrap_or_default();
                if warnings.len() < MAX_WARNINGS {
                    warnings.push(format!("{} is not a regular file and was left", path.display()));
                }
                continue;
            }
        };
        directories += path.components().count();
        if directories > MAX_DIRECTORIES {
            return Err(TarError::Invalid("its files lie in too many directories"));
        }
        let to = output.join(path);
        let mut content = Vec::new();
        reader
            .content()
            .read_to_end(&mut content)
            .map_err(|_| TarError::Truncated)?;
        put_down(&to, &content).map_err(TarError::Input)?;
    }
    Err(TarError::Invalid("it has more than 2000 members"))
}

/// Writes a new file. Fails if the name exists: another member of the archive has it.
fn put_down(to: &Path, content: &[u8]) -> io::Result<()> {
    to.parent().map(fs::create_dir_all).transpose()?;
    let mut file = fs::File::create_new(to)?;
    io::Write::write_all(&mut file, content)
}

/// Returns the path of a member if it stays below the root.
fn plain(name: &[u8]) -> Option<PathBuf> {
    let path = Path::new(OsStr::from_bytes(name));
    let mut plain = PathBuf::new();
    for component in path.components() {
        match component {
            Component::Normal(name) => plain.push(name),
            Component::CurDir => {}
            Component::Prefix(_) | Component::RootDir | Component::ParentDir => return None,
        }
    }
    let is_short = name.len() <= MAX_PATH && plain.components().count() <= MAX_DEPTH;
    (is_short && !plain.as_os_str().is_empty()).then_some(plain)
}

#[cfg(test)]
mod tests {
    use ringfence_tar::{Member, Writer};

    use super::*;

    fn archive(members: &[(&str, Kind, &str)]) -> Vec<u8> {
        let mut writer = Writer::new(Vec::new());
        for (path, kind, content) in members {
            let member = Member {
                path: path.as_bytes().to_vec(),
                target: b"/etc/passwd".to_vec(),
                kind: *kind,
                mode: 0o644,
                uid: 0,
                gid: 0,
                size: content.len() as u64,
                modified: 0,
            };
            writer.member(&member).unwrap();
            writer.content(member.size, &mut content.as_bytes()).unwrap();
        }
        writer.finish().unwrap()
    }

    fn produced(bytes: Vec<u8>) -> Produced {
        Produced {
            bytes,
            status: Some(0),
            ..Produced::default()
        }
    }

    #[test]
    fn what_leads_elsewhere_is_left() {
        let hostile = archive(&[
            ("./sub/a", Kind::File, "one"),
            ("../../up", Kind::File, "two"),
            ("/tmp/abs", Kind::File, "three"),
            ("./link", Kind::Symlink, ""),
            ("./link/below", Kind::File, "four"),
        ]);
        let collected = delivered(&produced(hostile), None, 1 << 20);
        let files: Vec<&str> = collected.files.iter().map(|file| file.path.as_str()).collect();
        assert_eq!(files, ["link/below", "sub/a"]);
        assert_eq!(collected.warnings.len(), 3, "{collected:?}");
        assert!(!collected.incomplete);
    }

    #[test]
    fn directories_are_bounded() {
        let deep = format!("{}file", "d/".repeat(40));
        let collected = delivered(&produced(archive(&[(&deep, Kind::File, "x")])), None, 1 << 20);
        assert!(
            collected.files.is_empty() && collected.warnings.len() == 1,
            "{collected:?}"
        );
        let paths: Vec<String> = (0..400).map(|n| format!("{n}/{}file", "d/".repeat(30))).collect();
        let members: Vec<_> = paths
            .iter()
            .map(|path| (path.as_str(), Kind::File, "x"))
            .collect();
        let collected = delivered(&produced(archive(&members)), None, 1 << 20);
        assert!(collected.incomplete, "{collected:?}");
        assert!(
            collected
                .warnings
                .iter()
                .any(|warning| warning.contains("too many directories"))
        );
    }

    #[test]
    fn what_is_cut_off_or_broken_is_said() {
        let whole = archive(&[("a", Kind::File, "one"), ("b", Kind::File, "two")]);
        let cut = Produced {
            is_cut: true,
            ..produced(whole[..1024].to_vec())
        };
        let collected = delivered(&cut, None, 1 << 20);
        assert!(
            collected.incomplete && collected.files.len() == 1,
            "{collected:?}"
        );
        let twice = archive(&[("a", Kind::File, "one"), ("a", Kind::File, "two")]);
        for broken in [b"no archive".to_vec(), whole[..700].to_vec(), twice] {
            let collected = delivered(&produced(broken), None, 1 << 20);
            assert!(collected.incomplete, "{collected:?}");
        }
        let failed = Produced {
            status: Some(1),
            errors: "tar: no\nspace".to_owned(),
            ..Produced::default()
        };
        let collected = delivered(&failed, None, 1 << 20);
        assert!(collected.incomplete && collected.warnings[0].ends_with("tar: no\\nspace"));
        assert_eq!(
            delivered(&produced(Vec::new()), None, 1),
            CollectedFiles::default()
        );
    }
}
