//! Unpacks tar archives.

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::{self, ErrorKind, Read};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::fchown;
use std::path::{Component, Path, PathBuf};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use super::directory::{Directory, FileOwner, create_all, set_attributes};
use super::error::{At, FileError, FileErrorKind};
use super::remove::remove_entry;
use super::report::{SkipReason, TreeReport};
use super::staged::Staged;
use super::stream::transfer;
use super::{MAX_PATH, MAX_TREE_DEPTH, MAX_TREE_ENTRIES, WHITEOUT};
use ringfence_tar::{Kind, Member, Reader, TarError};

/// Unpacks an archive into a directory, which is made if it is missing.
///
/// No member leaves the directory: an absolute path and `..` are refused, and no member is placed through a symbolic
/// link, whoever made it. Members belong to the caller and lose set-user-ID and set-group-ID; FIFOs and devices are left
/// out. What was unpacked before an error stays.
pub(super) fn extract(path: &Path, input: &mut dyn Read) -> Result<TreeReport, FileError> {
    unpack(path, input, Mode::Anybodys)
}

/// Unpacks an archive of [`pack_root`](super::archive::pack_root). Like [`extract`], but members keep their
/// owners and all permission bits, replace existing entries, and some represent removals.
pub(super) fn extract_root(path: &Path, input: &mut dyn Read) -> Result<TreeReport, FileError> {
    unpack(path, input, Mode::Root)
}

fn unpack(path: &Path, input: &mut dyn Read, mode: Mode) -> Result<TreeReport, FileError> {
    create_all(path)?;
    let mut extraction = Extraction {
        root: Directory::open(path).at(path)?,
        directories: Vec::new(),
        report: TreeReport::default(),
        mode,
    };
    let mut reader = Reader::new(input);
    while let Some(member) = reader.member().map_err(|error| refusal(path, &error))? {
        if extraction.report.entries == MAX_TREE_ENTRIES as u64 {
            let message = format!("the archive has more than {MAX_TREE_ENTRIES} members");
            return Err(FileError::new(FileErrorKind::TooLong, path, message));
        }
        extraction.report.entries += 1;
        extraction.member(&member, &mut reader.content())?;
    }
    reader.finish_input().map_err(|error| refusal(path, &error))?;
    extraction.finish();
    Ok(extraction.report)
}

fn refusal(path: &Path, error: &TarError) -> FileError {
    match error {
        TarError::Input(source) => FileError::of_call(path, source),
        error => FileError::new(FileErrorKind::Invalid, path, error.to_string()),
    }
}

/// Kind of an archive.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Mode {
    Anybodys,
    /// The changes of a root.
    Root,
}

struct Extraction {
    root: Directory,
    /// Attributes of directories, set last: they may forbid new entries, and adding entries changes the
    /// times.
    directories: Vec<(PathBuf, Attributes)>,
    report: TreeReport,
    mode: Mode,
}

/// Attributes of a file.
#[derive(Debug, Clone, Copy)]
struct Attributes {
    /// `None`: the caller's.
    owner: Option<FileOwner>,
    mode: u32,
    modified: SystemTime,
}

impl Extraction {
    fn member(&mut self, member: &Member, content: &mut dyn Read) -> Result<(), FileError> {
        let path = relative(&member.path)?;
        match member.kind {
            Kind::Directory => self.directory(&path, member).at(&path),
            Kind::File => self.file(&path, member, content),
            Kind::Symlink => self.symlink(&path, member).at(&path),
            Kind::HardLink => {
                let first = relative(&member.target)?;
                self.hard_link(&path, &first).at(&path)
            }
            WHITEOUT if self.mode == Mode::Root => self.whiteout(&path).at(&path),
            Kind::Fifo | Kind::Device | Kind::Other(_) => {
                self.report.entries -= 1;
                self.report.skip(&path, SkipReason::Special);
                Ok(())
            }
        }
    }

    fn directory(&mut self, path: &Path, member: &Member) -> io::Result<()> {
        // The first directory itself keeps its attributes: it is the caller's.
        let Some(name) = path.file_name() else {
            return Ok(());
        };
        let parent = self.parent(path)?;
        match make_child(&parent, name) {
            // What the archive's directory took the place of.
            Err(error) if self.mode == Mode::Root && is_no_directory(&error) => {
                parent.remove_file(name)?;
                make_child(&parent, name)?;
            }
            made => drop(made?),
        }
        let attributes = self.attributes(member, 0o1777)?;
        self.directories.push((path.to_owned(), attributes));
        Ok(())
    }

    /// Removes the entry at a path.
    fn whiteout(&self, path: &Path) -> io::Result<()> {
        let name = path.file_name().ok_or(ErrorKind::InvalidInput)?;
        match remove_entry(&self.parent(path)?, name) {
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(()),
            removed => removed,
        }
    }

    /// Returns the attributes of a member, which has these permission bits at most unless it is of a root.
    fn attributes(&self, member: &Member, most: u32) -> io::Result<Attributes> {
        Ok(Attributes {
            owner: self.owner(member)?,
            mode: match self.mode {
                Mode::Anybodys => member.mode & most,
                Mode::Root => member.mode & 0o7777,
            },
            modified: time(member),
        })
    }

    fn owner(&self, member: &Member) -> io::Result<Option<FileOwner>> {
        if self.mode == Mode::Anybodys {
            return Ok(None);
        }
        let id = |id: u64| u32::try_from(id).map_err(|_| io::Error::from(ErrorKind::InvalidInput));
        Ok(Some(FileOwner {
            user: id(member.uid)?,
            group: id(member.gid)?,
        }))
    }

    /// Unpacks a file under a temporary name: one that is not complete must not be taken for one.
    fn file(&mut self, path: &Path, member: &Member, content: &mut dyn Read) -> Result<(), FileError> {
        let (parent, name) = match self.mode {
            Mode::Anybodys => self.location(path),
            Mode::Root => self.place(path),
        }
        .at(path)?;
        let (staged, mut file) = Staged::create(&parent, |name| parent.create_file(name)).at(path)?;
        let bytes = transfer(content, &mut file).at(path)?;
        self.attributes(member, 0o777)
            .and_then(|attributes| attributes.set(&file))
            .at(path)?;
        staged.finish(&name).at(path)?;
        self.report.bytes += bytes;
        Ok(())
    }

    fn symlink(&mut self, path: &Path, member: &Member) -> io::Result<()> {
        let (parent, name) = self.place(path)?;
        parent.create_link(&name, OsStr::from_bytes(&member.target))?;
        match self.owner(member)? {
            Some(owner) => parent.give_entry_to(&name, owner),
            None => Ok(()),
        }
    }

    fn hard_link(&mut self, path: &Path, first: &Path) -> io::Result<()> {
        let first_name = first.file_name().ok_or(ErrorKind::InvalidInput)?;
        let from = self.parent(first)?;
        if from.stat(first_name)?.is_dir() {
            return Err(io::Error::from_raw_os_error(libc::EISDIR));
        }
        // A link to itself would remove what it leads to.
        if path == first {
            return Ok(());
        }
        let (parent, name) = self.place(path)?;
        from.create_hard_link(first_name, &parent, &name)
    }

    /// Returns the directory of a member and its name there, which is free.
    fn place(&self, path: &Path) -> io::Result<(Directory, OsString)> {
        let (parent, name) = self.location(path)?;
        let removed = match self.mode {
            Mode::Anybodys => parent.remove_file(&name),
            Mode::Root => remove_entry(&parent, &name),
        };
        match removed {
            Err(error) if error.kind() != ErrorKind::NotFound => Err(error),
            _ => Ok((parent, name)),
        }
    }

    /// Returns the directory of a member and its name there.
    fn location(&self, path: &Path) -> io::Result<(Directory, OsString)> {
        let name = path.file_name().ok_or(ErrorKind::InvalidInput)?;
        Ok((self.parent(path)?, name.to_owned()))
    }

    /// Returns the directory of a member, which is made if it is missing. No link is followed on the way.
    fn parent(&self, path: &Path) -> io::Result<Directory> {
        let mut parent = self.root.child(OsStr::new("."))?;
        for name in path.parent().into_iter().flat_map(Path::components) {
            parent = make_child(&parent, name.as_os_str())?;
        }
        Ok(parent)
    }

    fn finish(&self) {
        for (path, attributes) in self.directories.iter().rev() {
            let name = path.file_name().unwrap_or_default();
            let opened = self.parent(path).and_then(|parent| parent.readable_child(name));
            // Others may have removed it, or it belongs to somebody else.
            let _ = opened.and_then(|opened| attributes.set(&opened.into_file()));
        }
    }
}

impl Attributes {
    /// Sets the attributes of a file. The owner is set first, since changing it clears bits of the mode.
    fn set(&self, file: &File) -> io::Result<()> {
        if let Some(owner) = self.owner {
            fchown(file, Some(owner.user), Some(owner.group))?;
        }
        set_attributes(file, self.mode, self.modified)
    }
}

/// Returns `true` for the error of opening something else as a directory: links are not followed.
fn is_no_directory(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::ENOTDIR | libc::ELOOP))
}

/// Opens a directory in another one, and makes it first if it is missing.
fn make_child(parent: &Directory, name: &OsStr) -> io::Result<Directory> {
    match parent.child(name) {
        Err(error) if error.kind() == ErrorKind::NotFound => {
            match parent.create_directory(name, 0o755) {
                Err(error) if error.kind() != ErrorKind::AlreadyExists => return Err(error),
                _ => {}
            }
            parent.child(name)
        }
        opened => opened,
    }
}

/// Returns a path of plain names, without `.`.
fn relative(bytes: &[u8]) -> Result<PathBuf, FileError> {
    let path = Path::new(OsStr::from_bytes(bytes));
    if bytes.len() > MAX_PATH || path.components().count() > MAX_TREE_DEPTH {
        let message = "a member's path is too long or too deep";
        return Err(FileError::new(FileErrorKind::TooLong, path, message));
    }
    let mut plain = PathBuf::new();
    for part in path.components() {
        match part {
            Component::Normal(name) => plain.push(name),
            Component::CurDir => {}
            Component::ParentDir | Component::RootDir | Component::Prefix(_) => {
                let message = "a member's path is absolute, or leads upwards";
                return Err(FileError::new(FileErrorKind::Invalid, path, message));
            }
        }
    }
    Ok(plain)
}

fn time(member: &Member) -> SystemTime {
    UNIX_EPOCH
        .checked_add(Duration::from_secs(member.modified))
        .unwrap_or(UNIX_EPOCH)
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::{MetadataExt, symlink};

    use super::*;
    use crate::sys;
    use ringfence_tar::Writer;

    fn member(path: &str, kind: Kind) -> Member {
        Member {
            path: path.into(),
            target: Vec::new(),
            kind,
            mode: 0o6755,
            uid: 0,
            gid: 0,
            size: 0,
            modified: 5,
        }
    }

    fn leading(path: &str, kind: Kind, target: &str) -> Member {
        Member {
            target: target.into(),
            ..member(path, kind)
        }
    }

    fn unpack(path: &Path, members: &[Member]) -> Result<TreeReport, FileError> {
        let mut writer = Writer::new(Vec::new());
        for member in members {
            writer.member(member).unwrap();
            writer.content(member.size, &mut io::repeat(b'x')).unwrap();
        }
        extract(path, &mut &writer.finish().unwrap()[..])
    }

    #[test]
    fn no_member_leaves_the_directory() {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path().join("root");
        let outside = dir.path().join("outside");
        fs::create_dir_all(&root).unwrap();
        fs::create_dir(&outside).unwrap();
        fs::write(outside.join("precious"), "precious").unwrap();
        symlink(&outside, root.join("there")).unwrap();
        let out = outside.to_str().unwrap();
        let file = |path: &str| member(path, Kind::File);
        let check = |members: &[Member], kind: FileErrorKind| {
            let error = unpack(&root, members).unwrap_err();
            assert_eq!(error.kind, kind, "{members:?}: {error}");
        };
        check(&[file("../outside/new")], FileErrorKind::Invalid);
        check(&[file("a/../../outside/new")], FileErrorKind::Invalid);
        check(&[file(&format!("{out}/new"))], FileErrorKind::Invalid);
        check(&[file("..")], FileErrorKind::Invalid);
        check(&[file("")], FileErrorKind::Invalid);
        check(&[file("there/new")], FileErrorKind::NotADirectory);
        check(
            &[leading("made", Kind::Symlink, out), file("made/new")],
            FileErrorKind::NotADirectory,
        );
        check(
            &[
                leading("made", Kind::Symlink, out),
                member("made/sub", Kind::Directory),
            ],
            FileErrorKind::NotADirectory,
        );
        check(
            &[leading("hard", Kind::HardLink, "../outside/precious")],
            FileErrorKind::Invalid,
        );
        check(
            &[leading("hard", Kind::HardLink, &format!("{out}/precious"))],
            FileErrorKind::Invalid,
        );
        check(
            &[leading("hard", Kind::HardLink, "there/precious")],
            FileErrorKind::NotADirectory,
        );
        check(
            &[file(&vec!["d"; MAX_TREE_DEPTH + 1].join("/"))],
            FileErrorKind::TooLong,
        );
        check(&[file(&"n".repeat(5000))], FileErrorKind::TooLong);
        // A link in a file's place is replaced, not written through.
        symlink(outside.join("precious"), root.join("file")).unwrap();
        let sized = Member {
            size: 3,
            ..file("file")
        };
        unpack(&root, &[sized]).unwrap();
        assert_eq!(fs::read(root.join("file")).unwrap(), b"xxx");
        assert_eq!(fs::read(outside.join("precious")).unwrap(), b"precious");
        assert_eq!(fs::read_dir(&outside).unwrap().count(), 1);
    }

    #[test]
    fn rights_and_special_files_stay_out() {
        let dir = tempfile::tempdir().unwrap();
        let report = unpack(
            dir.path(),
            &[
                member("./", Kind::Directory),
                member("d/", Kind::Directory),
                member("d/f", Kind::File),
                member("null", Kind::Device),
                member("fifo", Kind::Fifo),
                member("odd", Kind::Other(b'V')),
                leading("link", Kind::Symlink, "/etc/passwd"),
                leading("same", Kind::HardLink, "d/f"),
                leading("d/f", Kind::HardLink, "./d/f"),
            ],
        )
        .unwrap();
        assert_eq!((report.entries, report.skipped), (6, 3));
        let mode = |name: &str| fs::symlink_metadata(dir.path().join(name)).unwrap().mode() & 0o7777;
        assert_eq!((mode("d"), mode("d/f")), (0o755, 0o755));
        let names = fs::read_dir(dir.path()).unwrap();
        let mut names: Vec<_> = names.map(|entry| entry.unwrap().file_name()).collect();
        names.sort();
        assert_eq!(names, ["d", "link", "same"]);
    }

    #[test]
    fn the_changes_of_a_root_replace_and_remove_and_keep_their_modes() {
        let dir = tempfile::tempdir().unwrap();
        let path = |name: &str| dir.path().join(name);
        fs::create_dir_all(path("hidden/old")).unwrap();
        fs::create_dir_all(path("becomes-file/old")).unwrap();
        for name in ["removed", "becomes-directory"] {
            fs::write(path(name), "base").unwrap();
        }
        symlink("/etc", path("link")).unwrap();
        let (uid, gid) = sys::effective_ids();
        let changes = [
            member("removed", WHITEOUT),
            member("never-there", WHITEOUT),
            member("link", WHITEOUT),
            member("hidden", WHITEOUT),
            member("hidden/", Kind::Directory),
            member("becomes-file", Kind::File),
            member("becomes-directory/", Kind::Directory),
            leading("becomes-directory/same", Kind::HardLink, "becomes-file"),
        ]
        .map(|member| Member {
            uid: uid.into(),
            gid: gid.into(),
            ..member
        });
        let mut writer = Writer::new(Vec::new());
        for member in &changes {
            writer.member(member).unwrap();
        }
        let archive = writer.finish().unwrap();
        let report = extract_root(dir.path(), &mut &archive[..]).unwrap();
        assert_eq!((report.entries, report.skipped), (8, 0));
        let mut names: Vec<_> = (fs::read_dir(dir.path()).unwrap())
            .map(|entry| entry.unwrap().file_name())
            .collect();
        names.sort();
        assert_eq!(names, ["becomes-directory", "becomes-file", "hidden"]);
        assert_eq!(fs::read_dir(path("hidden")).unwrap().count(), 0);
        for name in ["hidden", "becomes-file", "becomes-directory/same"] {
            assert_eq!(
                fs::metadata(path(name)).unwrap().mode() & 0o7777,
                0o6755,
                "{name}"
            );
        }
        // Elsewhere they are members of an unknown type.
        let report = extract(&path("other"), &mut &archive[..]).unwrap();
        assert_eq!((report.entries, report.skipped), (4, 4));
        // Nobody owns everything.
        let other = Member {
            uid: u64::MAX,
            ..member("other/file", Kind::File)
        };
        let mut writer = Writer::new(Vec::new());
        writer.member(&other).unwrap();
        let archive = writer.finish().unwrap();
        extract_root(dir.path(), &mut &archive[..]).unwrap_err();
        assert!(!path("other/file").exists());
    }

    #[test]
    fn a_cut_archive_leaves_no_partial_file() {
        let dir = tempfile::tempdir().unwrap();
        let mut writer = Writer::new(Vec::new());
        for name in ["whole", "partial"] {
            let sized = Member {
                size: 2_000,
                ..member(name, Kind::File)
            };
            writer.member(&sized).unwrap();
            writer.content(2_000, &mut io::repeat(1)).unwrap();
        }
        let archive = writer.finish().unwrap();
        let error = extract(dir.path(), &mut &archive[..3_700]).unwrap_err();
        assert_eq!(error.kind, FileErrorKind::Invalid, "{error}");
        assert!(dir.path().join("whole").exists() && !dir.path().join("partial").exists());
        fs::create_dir(dir.path().join("partial")).unwrap();
        let error = extract(dir.path(), &mut &archive[..]).unwrap_err();
        assert_eq!(error.kind, FileErrorKind::IsADirectory, "{error}");
    }
}
