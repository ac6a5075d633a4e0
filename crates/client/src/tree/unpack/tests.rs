//! Hostile archives, and honest ones.

use std::fs;
use std::os::unix::fs::symlink;

use ringfence_tar::Writer;
use ringfence_trust::CopyGuard;
use ringfence_trust::protected::PROTECTED;

use super::super::{pack, relative};
use super::*;

/// Bytes that a tree may have here.
const MOST: u64 = 64 * 1024;

struct Dir {
    _dir: tempfile::TempDir,
    root: PathBuf,
    /// Keeps out of archives what programs of the host obey.
    is_guarded: bool,
}

impl Dir {
    /// Creates a directory `tree` beside `outside`, which has a file.
    fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path().canonicalize().unwrap();
        fs::create_dir(root.join("tree")).unwrap();
        fs::create_dir(root.join("outside")).unwrap();
        fs::write(root.join("outside/precious"), "precious").unwrap();
        Self {
            _dir: dir,
            root,
            is_guarded: false,
        }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.root.join("tree").join(name)
    }

    fn unpack(&self, members: &[Member]) -> Result<Report, TreeError> {
        let mut writer = Writer::new(Vec::new());
        for member in members {
            writer.member(member).unwrap();
            writer.content(member.size, &mut io::repeat(b'x')).unwrap();
        }
        self.archive(&writer.finish().unwrap())
    }

    fn archive(&self, archive: &[u8]) -> Result<Report, TreeError> {
        let root = Directory::make(&self.root.join("tree")).unwrap();
        let bounds = Bounds {
            most: MOST,
            rules: self
                .is_guarded
                .then(|| CopyGuard::new(PROTECTED).rules(&self.path("")).unwrap()),
        };
        unpack(root, &mut &archive[..], bounds, Box::new(|_| ()))
    }

    /// Asserts that nothing is outside but what was there.
    fn is_clean_outside(&self) {
        let names: Vec<_> = fs::read_dir(self.root.join("outside")).unwrap().collect();
        assert_eq!(names.len(), 1);
        assert_eq!(fs::read(self.root.join("outside/precious")).unwrap(), b"precious");
        assert_eq!(
            fs::metadata(self.root.join("outside/precious")).unwrap().nlink(),
            1
        );
        let names: Vec<_> = fs::read_dir(&self.root).unwrap().collect();
        assert_eq!(names.len(), 2);
    }
}

fn member(path: &str, kind: Kind) -> Member {
    Member {
        path: path.into(),
        target: Vec::new(),
        kind,
        mode: 0o6755,
        uid: 0,
        gid: 0,
        size: if kind == Kind::File { 3 } else { 0 },
        modified: 5,
    }
}

fn leading(path: &str, kind: Kind, target: &str) -> Member {
    Member {
        target: target.into(),
        ..member(path, kind)
    }
}

#[test]
fn no_path_of_an_archive_leads_out() {
    let dir = Dir::new();
    let outside = dir.root.join("outside").to_str().unwrap().to_owned();
    symlink("../outside", dir.path("link")).unwrap();
    symlink("../outside/precious", dir.path("file-link")).unwrap();
    // As paths of this machine, these lead out.
    for path in ["../outside/precious", "a/../../outside/precious", "link/precious"] {
        fs::create_dir_all(dir.path("a")).unwrap();
        assert_eq!(fs::read(dir.path(path)).unwrap(), b"precious", "{path}");
    }
    let check = |members: &[Member], expected: &str| {
        let error = dir.unpack(members).unwrap_err().to_string();
        assert!(error.contains(expected), "{members:?}: {error}");
        dir.is_clean_outside();
    };
    let file = |path: &str| member(path, Kind::File);
    for path in [
        "../outside/new",
        "a/../../outside/new",
        "..",
        &format!("{outside}/new"),
    ] {
        check(&[file(path)], "absolute, leads upwards");
        check(&[member(path, Kind::Directory)], "absolute, leads upwards");
        check(
            &[leading("hard", Kind::HardLink, path)],
            "absolute, leads upwards",
        );
    }
    check(&[file("link/new")], "something else here");
    check(&[member("link/new", Kind::Directory)], "something else here");
    check(&[member("link", Kind::Directory)], "something else here");
    check(
        &[leading("hard", Kind::HardLink, "link/precious")],
        "something else here",
    );
    check(
        &[leading("hard", Kind::HardLink, "file-link")],
        "did not send before",
    );
    check(&[file(&vec!["d"; 129].join("/"))], "too long");
    // A link in a file's place is replaced itself, and loses no bit of its target.
    dir.unpack(&[file("file-link")]).unwrap();
    assert_eq!(fs::read(dir.path("file-link")).unwrap(), b"xxx");
    dir.is_clean_outside();
}

#[test]
fn what_programs_of_the_host_obey_is_left_out_with_all_below() {
    let members = [
        member("src", Kind::Directory),
        member("src/.git/config", Kind::File),
        member("src/.GIT/hooks/post-checkout", Kind::File),
        member("src/.git/first", Kind::File),
        leading("src/second", Kind::HardLink, "src/.git/first"),
        leading(".envrc", Kind::Symlink, "src/main.py"),
        member("src/__pycache__/main.pyc", Kind::File),
        member("src/main.py", Kind::File),
    ];
    let mut dir = Dir::new();
    assert_eq!(dir.unpack(&members).unwrap().skipped, 0);
    assert!(dir.path("src/.git/config").exists());

    dir = Dir::new();
    dir.is_guarded = true;
    let report = dir.unpack(&members).unwrap();
    assert_eq!((report.entries, report.skipped), (2, 6));
    let named: Vec<&str> = report.named.iter().map(|left| &*left.path).collect();
    assert_eq!(
        named,
        ["src/.git", "src/.GIT", "src/second", ".envrc", "src/__pycache__"]
    );
    assert!(report.named.iter().all(|left| left.reason == Reason::Protected));
    let names: Vec<_> = fs::read_dir(dir.path("src")).unwrap().collect();
    assert_eq!(names.len(), 1, "{names:?}");
    assert!(!dir.path(".envrc").is_symlink());
}

#[test]
fn no_repository_comes_of_an_archive_and_none_is_obeyed_otherwise() {
    let bare = |refs: &str| {
        [
            member("objects", Kind::Directory),
            file_at("HEAD"),
            file_at("config"),
            member(refs, Kind::Directory),
        ]
    };
    let mut dir = Dir::new();
    dir.unpack(&bare("refs")).unwrap();
    assert!(ringfence_trust::git::is_repository_at(&dir.path("")));
    dir = Dir::new();
    dir.is_guarded = true;
    assert_eq!(dir.unpack(&bare("refs")).unwrap().named[0].path, "refs");
    assert!(!ringfence_trust::git::is_repository_at(&dir.path("")));

    // What the settings of a repository lead to is the person's.
    dir = Dir::new();
    fs::create_dir_all(dir.path(".git/objects")).unwrap();
    fs::create_dir_all(dir.path(".git/refs")).unwrap();
    fs::create_dir_all(dir.path("tools/hooks")).unwrap();
    fs::write(dir.path(".git/HEAD"), "ref: refs/heads/main\n").unwrap();
    fs::write(dir.path(".git/config"), "[core]\n\thooksPath = tools/hooks\n").unwrap();
    dir.is_guarded = true;
    let report = dir
        .unpack(&[file_at("tools/hooks/pre-commit"), file_at("tools/other")])
        .unwrap();
    assert_eq!((report.entries, report.skipped), (1, 1), "{report:?}");
    assert!(!dir.path("tools/hooks/pre-commit").exists());
}

fn file_at(path: &str) -> Member {
    member(path, Kind::File)
}

#[test]
fn a_file_of_the_callers_gets_no_second_name() {
    let dir = Dir::new();
    fs::write(dir.path("mine"), "mine").unwrap();
    let refused = dir
        .unpack(&[leading("theirs", Kind::HardLink, "mine")])
        .unwrap_err();
    assert!(refused.to_string().contains("did not send before"), "{refused}");
    let report = dir
        .unpack(&[member("a", Kind::File), leading("b", Kind::HardLink, "a")])
        .unwrap();
    assert_eq!(report.entries, 2);
    assert_eq!(fs::metadata(dir.path("b")).unwrap().nlink(), 2);
}

#[test]
fn links_stay_if_they_lead_to_the_tree() {
    let check = |path: &str, target: &str, expected: bool| {
        assert_eq!(
            stays_inside(Path::new(path), OsStr::new(target)),
            expected,
            "{path} -> {target}"
        );
    };
    check("a", "b", true);
    check("a/b", "../c", true);
    check("a/b/c", "../../d/e", true);
    check("a", "./b/c", true);
    check("a", "../b", false);
    check("a/b", "../../c", false);
    check("a", "/etc/passwd", false);
    check("a", "", false);
    // `b` may be a link to a directory elsewhere in the tree, whose `..` is above it.
    check("a", "b/..", false);
    check("d/a", "../b/../c", false);
    let dir = Dir::new();
    let members = [
        leading("d/up", Kind::Symlink, "../x"),
        leading("out", Kind::Symlink, "../outside"),
        leading("root", Kind::Symlink, "/etc/passwd"),
        member("fifo", Kind::Fifo),
        member("null", Kind::Device),
    ];
    let report = dir.unpack(&members).unwrap();
    let named: Vec<_> = report
        .named
        .iter()
        .map(|left| (&left.path[..], left.reason))
        .collect();
    use Reason::{Outward, Special};
    assert_eq!(
        named,
        [
            ("out", Outward),
            ("root", Outward),
            ("fifo", Special),
            ("null", Special)
        ]
    );
    assert_eq!(fs::read_link(dir.path("d/up")).unwrap(), Path::new("../x"));
    assert_eq!(fs::read_dir(dir.path("")).unwrap().count(), 1);
}

#[test]
fn neither_takes_a_directory_the_place_of_a_file_nor_a_file_that_of_a_directory() {
    let dir = Dir::new();
    fs::create_dir(dir.path("d")).unwrap();
    fs::write(dir.path("f"), "mine").unwrap();
    let error = |members: &[Member]| dir.unpack(members).unwrap_err().to_string();
    assert_eq!(
        error(&[member("f", Kind::Directory)]),
        "f is a directory in the sandbox, and something else here"
    );
    assert_eq!(
        error(&[member("f/x", Kind::File)]),
        "f/x is a directory in the sandbox, and something else here"
    );
    for file in [member("d", Kind::File), leading("d", Kind::Symlink, "x")] {
        assert_eq!(
            error(&[file]),
            "d is a directory here, and something else in the sandbox"
        );
    }
    assert_eq!(fs::read(dir.path("f")).unwrap(), b"mine");
}

#[test]
fn no_entry_takes_the_place_of_one_before() {
    let dir = Dir::new();
    for second in [
        member("a", Kind::File),
        leading("a", Kind::Symlink, "b"),
        leading("a", Kind::HardLink, "a"),
    ] {
        let error = dir.unpack(&[member("a", Kind::File), second]).unwrap_err();
        assert!(matches!(error, TreeError::Twice(_)), "{error}");
        let error = dir
            .unpack(&[leading("l", Kind::Symlink, "b"), member("l", Kind::File)])
            .unwrap_err();
        assert!(matches!(error, TreeError::Twice(_)), "{error}");
    }
    // What was there before this copy is replaced.
    dir.unpack(&[member("a", Kind::File)]).unwrap();
}

#[test]
fn an_archive_has_bounds_and_leaves_no_partial_file() {
    let dir = Dir::new();
    let sized = |name: &str, size: u64| Member {
        size,
        ..member(name, Kind::File)
    };
    let error = dir.unpack(&[sized("a", MOST - 10), sized("b", 20)]).unwrap_err();
    assert!(matches!(error, TreeError::TooLarge(MOST)), "{error}");
    let names = |count: usize| vec![member(&"n".repeat(200), Kind::Directory); count];
    assert!(matches!(
        dir.unpack(&names(400)).unwrap_err(),
        TreeError::TooLarge(_)
    ));
    let dir = Dir::new();
    let mut writer = Writer::new(Vec::new());
    for name in ["whole", "partial"] {
        writer.member(&sized(name, 2_000)).unwrap();
        writer.content(2_000, &mut io::repeat(1)).unwrap();
    }
    let archive = writer.finish().unwrap();
    dir.archive(&archive[..3_700]).unwrap_err();
    let names: Vec<_> = fs::read_dir(dir.path(""))
        .unwrap()
        .map(|entry| entry.unwrap().file_name())
        .collect();
    assert_eq!(names, ["whole"]);
}

#[test]
fn a_tree_comes_back_with_its_modes_and_without_special_bits() {
    let from = Dir::new();
    let deep = from.path("d/e");
    fs::create_dir_all(&deep).unwrap();
    fs::write(deep.join("run"), "#!").unwrap();
    fs::set_permissions(deep.join("run"), Permissions::from_mode(0o4755)).unwrap();
    fs::write(from.path("secret"), "s").unwrap();
    fs::set_permissions(from.path("secret"), Permissions::from_mode(0o600)).unwrap();
    symlink("d/e/run", from.path("link")).unwrap();
    fs::set_permissions(&deep, Permissions::from_mode(0o555)).unwrap();
    rustix::fs::mknodat(
        rustix::fs::CWD,
        from.path("fifo"),
        rustix::fs::FileType::Fifo,
        rustix::fs::Mode::RUSR,
        0,
    )
    .unwrap();
    let root = Directory::make(&from.root)
        .unwrap()
        .readable_child(OsStr::new("tree"))
        .unwrap();
    let mut archive = Vec::new();
    let packed = pack(&root, &mut archive, Box::new(|_| ())).unwrap();
    assert_eq!((packed.entries, packed.bytes, packed.skipped), (5, 3, 1));
    let to = Dir::new();
    let unpacked = to.archive(&archive).unwrap();
    assert_eq!((unpacked.entries, unpacked.bytes, unpacked.skipped), (5, 3, 0));
    let mode = |name: &str| fs::symlink_metadata(to.path(name)).unwrap().mode() & 0o7777;
    assert_eq!((mode("d/e"), mode("secret")), (0o555, 0o600));
    assert_eq!(mode("d/e/run") & 0o7500, 0o500);
    assert_eq!(fs::read_link(to.path("link")).unwrap(), Path::new("d/e/run"));
    let modified = |dir: &Dir| fs::metadata(dir.path("secret")).unwrap().mtime();
    assert_eq!(modified(&to), modified(&from));
}

#[test]
fn paths_are_plain_names() {
    assert_eq!(relative(b"./a/./b//").unwrap(), Path::new("a/b"));
    relative(b"a/..").unwrap_err();
}
