//! Mount points of a container, compared with the files that were checked on the host.
//!
//! A container engine resolves the paths of bind mounts by itself. A guest of another container may exchange a
//! directory for a symbolic link meanwhile.

use std::fs::{self, Metadata};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::UNIX_EPOCH;

/// The identity of a file, equal on the host and in a container.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct FileIdentity {
    pub device: u64,
    pub inode: u64,
    /// Time of birth in nanoseconds since 1970, as inode numbers are reused; 0 where the file system records
    /// none.
    pub born: u64,
}

impl FileIdentity {
    pub fn of(found: &Metadata) -> Self {
        let born = found.created().ok();
        let born = born.and_then(|born| born.duration_since(UNIX_EPOCH).ok());
        Self {
            device: found.dev(),
            inode: found.ino(),
            born: born.map_or(0, |born| born.as_nanos() as u64),
        }
    }

    /// Returns the identity of the file at a path, without following a link; `None` if it cannot be examined.
    pub fn at(path: &Path) -> Option<Self> {
        fs::symlink_metadata(path).ok().as_ref().map(Self::of)
    }
}

/// The mount at a path, if there is one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mounted {
    Nothing,
    ReadOnly,
    Writable,
}

/// A path of a container.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MountPoint {
    /// The file at the path, which is not followed if it is a link; `None` if it cannot be examined.
    pub file: Option<FileIdentity>,
    pub mounted: Mounted,
}

/// Examines paths of this mount namespace.
pub(crate) fn examine(paths: &[String]) -> Vec<MountPoint> {
    // Without the list, nothing counts as mounted.
    let mounts = fs::read("/proc/self/mountinfo").unwrap_or_default();
    let mounts = parse(&mounts);
    let examine = |path: &String| MountPoint {
        file: FileIdentity::at(Path::new(path)),
        // The kernel lists mount points by their paths without links.
        mounted: Path::new(path)
            .canonicalize()
            .map_or(Mounted::Nothing, |path| mounted(&mounts, &path)),
    };
    paths.iter().map(examine).collect()
}

fn mounted(mounts: &[(PathBuf, Mounted)], path: &Path) -> Mounted {
    // The last one hides those before.
    let found = mounts.iter().rev().find(|(point, _)| point == path);
    found.map_or(Mounted::Nothing, |(_, mounted)| *mounted)
}

/// Parses the mount points and options of a file `mountinfo` (proc_pid_mountinfo(5)).
fn parse(text: &[u8]) -> Vec<(PathBuf, Mounted)> {
    let line = |line: &[u8]| {
        let mut fields = line.split(|byte| *byte == b' ');
        let (point, options) = (fields.nth(4)?, fields.next()?);
        let is_read_only = options.split(|byte| *byte == b',').any(|option| option == b"ro");
        let mounted = match is_read_only {
            true => Mounted::ReadOnly,
            false => Mounted::Writable,
        };
        let point = unescape(point);
        Some((Path::new(std::ffi::OsStr::from_bytes(&point)).to_owned(), mounted))
    };
    text.split(|byte| *byte == b'\n').filter_map(line).collect()
}

/// Replaces the octal escapes of a file `mountinfo`, such as `\040`.
pub fn unescape(mut text: &[u8]) -> Vec<u8> {
    let mut plain = Vec::with_capacity(text.len());
    while let Some((&first, rest)) = text.split_first() {
        let digits = rest
            .get(..3)
            .filter(|digits| first == b'\\' && digits.iter().all(|digit| matches!(digit, b'0'..=b'7')));
        text = match digits {
            Some(digits) => {
                plain.push(
                    digits
                        .iter()
                        .fold(0, |byte: u8, digit| byte << 3 | (digit - b'0')),
                );
                &rest[3..]
            }
            None => {
                plain.push(first);
                rest
            }
        };
    }
    plain
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn mount_points_are_read_as_the_kernel_lists_them() {
        let text = b"8 7 0:8 / / rw - overlay overlay rw\n\
                     9 8 254:0 /a /with\\040blank\\134 ro,nosuid master:1 - ext4 /dev/vda rw\n\
                     10 8 254:0 /b /twice ro - ext4 /dev/vda rw\n\
                     11 8 254:0 /b /twice rw,noatime - ext4 /dev/vda ro\n\
                     broken\n";
        let mounts = parse(text);
        let check = |path: &str, expected| assert_eq!(mounted(&mounts, Path::new(path)), expected, "{path}");
        check("/", Mounted::Writable);
        check("/with blank\\", Mounted::ReadOnly);
        check("/twice", Mounted::Writable);
        check("/none", Mounted::Nothing);
        assert_eq!(mounts.len(), 4);
    }

    #[test]
    fn a_file_is_known_by_more_than_its_path() {
        let dir = tempfile::tempdir().unwrap();
        let path = |name: &str| dir.path().join(name);
        fs::create_dir(path("real")).unwrap();
        std::os::unix::fs::symlink("real", path("link")).unwrap();
        let names = ["real", "link", "none"].map(|name| path(name).display().to_string());
        let [real, link, none] = <[MountPoint; 3]>::try_from(examine(&names)).unwrap();
        assert_eq!(
            real.file.unwrap(),
            FileIdentity::of(&fs::metadata(path("link")).unwrap())
        );
        assert_ne!(real.file, link.file);
        assert_eq!((none.file, none.mounted), (None, Mounted::Nothing));
        assert_eq!(examine(&["/proc".to_owned()])[0].mounted, Mounted::Writable);
        let first = FileIdentity::of(&fs::metadata(path("real")).unwrap());
        fs::rename(path("real"), path("other")).unwrap();
        assert_eq!(FileIdentity::at(&path("other")), Some(first));
        fs::set_permissions(path("other"), fs::Permissions::from_mode(0o777)).unwrap();
        assert_eq!(FileIdentity::at(&path("other")), Some(first));
        fs::create_dir(path("real")).unwrap();
        assert_ne!(FileIdentity::at(&path("real")), Some(first));
    }
}
