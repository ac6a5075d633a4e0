//! Passes an archive of a sandbox on, below a name.

use std::io::{Read, Write};
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};

use ringfence_tar::{Kind, Member, Reader, Writer};

use super::{MAX_ENTRIES, Reason, Report, TreeError, relative};

/// Writes an archive anew, with its paths below `name`, and without what other programs could take for more than files:
/// paths that lead out, devices, set-user-ID bits.
pub(crate) fn relay(name: &Path, input: &mut dyn Read, out: &mut dyn Write) -> Result<Report, TreeError> {
    let mut reader = Reader::new(input);
    let mut writer = Writer::new(out);
    let mut report = Report::default();
    if name != Path::new("") {
        let root = directory(name);
        writer.member(&root).map_err(TreeError::Output)?;
    }
    while let Some(member) = reader.member().map_err(TreeError::Archive)? {
        let path = relative(&member.path)?;
        if report.entries + report.skipped >= MAX_ENTRIES {
            return Err(TreeError::TooMany);
        }
        let target = match member.kind {
            Kind::HardLink => bytes(name.join(relative(&member.target)?)),
            Kind::File | Kind::Directory | Kind::Symlink => member.target.clone(),
            Kind::Fifo | Kind::Device | Kind::Other(_) => {
                report.skip(&path, Reason::Special);
                continue;
            }
        };
        report.entries += 1;
        let passed = Member {
            path: bytes(match member.kind {
                Kind::Directory => name.join(&path).join(""),
                _ => name.join(&path),
            }),
            target,
            mode: member.mode & 0o777,
            ..member
        };
        writer.member(&passed).map_err(TreeError::Output)?;
        let mut content = reader.content();
        let copied = writer
            .content(passed.size, &mut content)
            .map_err(TreeError::Output)?;
        report.bytes += copied;
    }
    // What follows the archive comes with the trailer.
    reader.finish_input().map_err(TreeError::Archive)?;
    writer.finish().map_err(TreeError::Output)?;
    Ok(report)
}

fn bytes(path: PathBuf) -> Vec<u8> {
    path.into_os_string().into_vec()
}

fn directory(name: &Path) -> Member {
    Member {
        path: bytes(name.join("")),
        target: Vec::new(),
        kind: Kind::Directory,
        mode: 0o755,
        uid: 0,
        gid: 0,
        size: 0,
        modified: 0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A trailer is behind the padding of the archive.
    #[test]
    fn the_input_is_read_to_its_end() {
        let archive = Writer::new(Vec::new()).finish().unwrap();
        let input = [&archive[..], &[0; 4096]].concat();
        let mut input = &input[..];
        relay(Path::new("tree"), &mut input, &mut Vec::new()).unwrap();
        assert!(input.is_empty());
    }

    #[test]
    fn an_archive_is_passed_on_below_its_name_and_no_path_leads_out() {
        let member = |path: &str, kind: Kind, target: &str| Member {
            path: path.into(),
            target: target.into(),
            kind,
            mode: 0o6755,
            size: 0,
            ..directory(Path::new("x"))
        };
        let passed = |member: Member| {
            let mut writer = Writer::new(Vec::new());
            writer.member(&member).unwrap();
            let archive = writer.finish().unwrap();
            let mut out = Vec::new();
            relay(Path::new("tree"), &mut &archive[..], &mut out)?;
            let mut reader = Reader::new(&out[..]);
            reader.member().unwrap();
            Ok::<_, TreeError>(reader.member().unwrap())
        };
        let file = passed(member("a/b", Kind::File, "")).unwrap().unwrap();
        assert_eq!((&file.path[..], file.mode), (&b"tree/a/b"[..], 0o755));
        let link = passed(member("a/c", Kind::HardLink, "a/b")).unwrap().unwrap();
        assert_eq!(&link.target[..], b"tree/a/b");
        assert_eq!(passed(member("null", Kind::Device, "")).unwrap(), None);
        for path in ["../x", "/etc/x", "a/../../x"] {
            passed(member(path, Kind::File, "")).unwrap_err();
            passed(member("a", Kind::HardLink, path)).unwrap_err();
        }
    }
}
