//! The guest's view: the paths of its root, its environment, and its Landlock rules.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};

use ringfence_jail::protocol::{Bind, HostIds, LandlockRules, Program, TcpPorts, Template, TemplateFile};
use ringfence_policy::{Access, Account, Image, Mount, NODE_MODULES, PACKAGES};

use super::extra::{Extra, Root, Tree, WORKSPACE};
use super::user::MAPS_ANY_ID;
use super::workspace::{Entries, Workspace};
use super::{image, root};

/// System directories with programs and libraries; symbolic links on a merged-/usr system.
const SYSTEM: &[&str] = &["/usr", "/bin", "/sbin", "/lib", "/lib64", "/lib32", "/libx32"];

/// Directories of /etc that programs need: defaults, fonts, certificates. No secrets.
const ETC_DIRECTORIES: &[&str] = &[
    "/etc/alternatives",
    "/etc/fonts",
    "/etc/ssl/certs",
    "/etc/pki/tls/certs",
];

/// Files of /etc that programs need: name and time data, the library cache.
///
/// Cells get copies, which is faster than a mount for each.
const ETC_FILES: &[&str] = &[
    "/etc/ld.so.cache",
    "/etc/localtime",
    "/etc/timezone",
    "/etc/mime.types",
    "/etc/protocols",
    "/etc/services",
    "/etc/ssl/openssl.cnf",
];

/// Files of /proc that programs read besides their own entries.
const PROC_FACTS: &[&str] = &[
    "/proc/self",
    "/proc/cpuinfo",
    "/proc/meminfo",
    "/proc/stat",
    "/proc/loadavg",
    "/proc/uptime",
    "/proc/version",
    "/proc/filesystems",
];

const DEVICES: &[&str] = &[
    "/dev/null",
    "/dev/zero",
    "/dev/full",
    "/dev/random",
    "/dev/urandom",
];

/// The guest's `PATH`.
pub(super) const PATH: &str = "/usr/local/bin:/usr/bin:/bin";

/// Port of the proxy on the guest's own loopback.
pub(super) const PROXY_PORT: u16 = ringfence_jail::init::frames::PROXY_PORTS.start;

const HOSTS: &str = "127.0.0.1 localhost\n::1 localhost\n127.0.1.1 sandbox\n";
const NSSWITCH: &str = "passwd: files\ngroup: files\nhosts: files\nservices: files\nprotocols: files\n";

/// Directories of packages, with the one in each that has the programs that packages bring.
const PROGRAMS_OF_PACKAGES: [(&str, &str); 2] = [(PACKAGES, "bin"), (NODE_MODULES, ".bin")];

/// Adds the programs that mounted packages bring to a `PATH`, at its end: no package replaces a program of the system.
pub(super) fn with_programs_of_packages(path: &str, mounts: &[Mount]) -> String {
    let mut path = path.to_owned();
    for (packages, programs) in PROGRAMS_OF_PACKAGES {
        if mounts.iter().any(|mount| mount.guest() == Path::new(packages)) {
            path.push_str(&format!(":{packages}/{programs}"));
        }
    }
    path
}

/// Builds the root that the cells of a launcher share.
pub(super) fn template(extra: &Extra) -> Template {
    let root = match &extra.image {
        // A layer below the root.
        Some(_) if extra.account.is_root() => Root::default(),
        Some(image) => image::root(image, &extra.mounts),
        None => host_root(extra),
    };
    let Root {
        mut binds,
        mut links,
        copies,
        files,
    } = root;
    let workspaces = extra.workspace.iter();
    binds.extend(workspaces.flat_map(|found| workspace(found, &extra.top)));
    let (in_workspace, in_mounts): (Vec<&Tree>, Vec<&Tree>) = extra
        .trees
        .iter()
        .partition(|tree| tree.guest == Path::new(WORKSPACE));
    binds.extend(in_workspace.into_iter().flat_map(Tree::binds));
    binds.extend(extra.mounts.iter().map(mounted));
    binds.extend(in_mounts.into_iter().flat_map(Tree::binds));
    for (link, target) in [
        ("fd", "/proc/self/fd"),
        ("stdin", "/proc/self/fd/0"),
        ("stdout", "/proc/self/fd/1"),
        ("stderr", "/proc/self/fd/2"),
        ("ptmx", "pts/ptmx"),
    ] {
        links.push((Path::new("/dev").join(link), PathBuf::from(target)));
    }
    let mut template = Template {
        host_ids: host_ids(),
        // E2B's clients may start in root's home too, which is empty.
        directories: (extra.account.workspace_alias().into_iter())
            .flat_map(|home| [home, "/root"])
            .map(PathBuf::from)
            .collect(),
        binds,
        copies,
        files,
        links,
        writable_root: None,
    };
    root::adapt(&mut template, extra);
    template
}

/// Returns the minimal read-only view of this machine.
fn host_root(extra: &Extra) -> Root {
    let mut binds = Vec::new();
    let mut links = extra.links.clone();
    for path in SYSTEM.iter().map(Path::new) {
        match fs::read_link(path) {
            Ok(target) => links.push((path.to_path_buf(), target)),
            Err(_) => binds.push(visible(path, true)),
        }
    }
    binds.extend(ETC_DIRECTORIES.iter().map(|path| visible(Path::new(path), true)));
    binds.extend(python_configuration());
    binds.extend(
        extra
            .library_directories()
            .into_iter()
            .map(|path| visible(path, false)),
    );
    links.push((PathBuf::from("/var/tmp"), PathBuf::from("/tmp")));
    let (passwd, group) = root::users(extra.account);
    let files = [
        ("/etc/passwd", &*passwd),
        ("/etc/group", &*group),
        ("/etc/hosts", HOSTS),
        ("/etc/nsswitch.conf", NSSWITCH),
        ("/etc/hostname", "sandbox\n"),
    ];
    let files = files.map(|(path, content)| TemplateFile {
        path: path.into(),
        content: content.to_owned(),
    });
    Root {
        binds,
        copies: ETC_FILES.iter().map(PathBuf::from).collect(),
        files: files.into(),
        links,
    }
}

/// Returns `/etc/python3.*`, which has Python's site configuration on Debian.
fn python_configuration() -> Vec<Bind> {
    let entries = fs::read_dir("/etc").into_iter().flatten().flatten();
    let names = entries.map(|entry| entry.path()).filter(|path| {
        path.file_name()
            .and_then(|name| name.to_str())
            .is_some_and(|name| name.starts_with("python3"))
    });
    names.map(|path| visible(&path, true)).collect()
}

fn visible(path: &Path, optional: bool) -> Bind {
    Bind {
        host: path.to_path_buf(),
        guest: path.to_path_buf(),
        writable: false,
        guest_owns: false,
        optional,
        itself: false,
    }
}

/// Binds the workspace read-write, and its existing protected entries read-only: host programs would execute
/// them. Binds one with a closed top directory read-only, and its other entries read-write.
fn workspace(workspace: &Workspace, top: &Entries) -> Vec<Bind> {
    let bind = |host: &Path, writable| Bind {
        host: host.to_owned(),
        guest: match host == workspace.path {
            true => WORKSPACE.into(),
            false => Path::new(WORKSPACE).join(host.file_name().unwrap_or_default()),
        },
        writable,
        guest_owns: true,
        optional: false,
        itself: false,
    };
    let is_open = top.closed.is_none();
    let mut binds = vec![bind(&workspace.path, is_open)];
    if is_open {
        binds.extend(top.protected.iter().map(|path| bind(path, false)));
        binds.extend(top.pinned.iter().map(|path| Bind {
            itself: true,
            ..bind(path, false)
        }));
    } else {
        binds.extend(top.open.iter().map(|path| bind(path, true)));
    }
    binds
}

fn mounted(mount: &Mount) -> Bind {
    Bind {
        host: mount.host.clone(),
        guest: mount.guest().to_path_buf(),
        writable: mount.access != Access::ReadOnly,
        guest_owns: true,
        optional: false,
        itself: false,
    }
}

/// Returns an unused range of host ids, if we may map any: as root of the initial user namespace.
///
/// Each process takes another range, so that two servers never share a user, and each of its launchers a part
/// of it.
fn host_ids() -> Option<HostIds> {
    const RANGE: u32 = 65_536;
    const PART: u32 = 2_048;
    const BASE: u32 = 1 << 30;
    static LAUNCHERS: AtomicU32 = AtomicU32::new(0);
    if !*MAPS_ANY_ID {
        return None;
    }
    let launcher = LAUNCHERS.fetch_add(1, Ordering::Relaxed) % (RANGE / PART);
    Some(HostIds {
        first: BASE + (std::process::id() % 16_384) * RANGE + launcher * PART,
        count: PART,
    })
}

/// The location of a guest's writable directories.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum WritableDirs {
    Cell,
    /// In a host directory.
    Directory(PathBuf),
}

/// A variable with the number of times that a package manager tries again.
pub(super) struct Retries {
    pub(super) name: &'static str,
    /// Without a network trying again only delays the error, by up to a minute.
    without_network: &'static str,
    /// The package manager's own default.
    pub(super) with_network: &'static str,
}

pub(super) const RETRIES: [Retries; 2] = [
    Retries {
        name: "PIP_RETRIES",
        without_network: "0",
        with_network: "5",
    },
    Retries {
        name: "npm_config_fetch_retries",
        without_network: "0",
        with_network: "2",
    },
];

impl WritableDirs {
    fn join(&self, name: &str) -> PathBuf {
        match self {
            Self::Cell => Path::new("/").join(name),
            Self::Directory(path) => path.join(name),
        }
    }

    /// Returns the guest's path of its working directory.
    pub(super) fn workspace(&self, extra: &Extra) -> PathBuf {
        match (self, &extra.workspace) {
            (Self::Directory(_), Some(workspace)) => workspace.path.clone(),
            (Self::Cell, _) | (Self::Directory(_), None) => self.join("workspace"),
        }
    }

    /// Returns the guest's environment.
    pub(super) fn environment(&self, extra: &Extra) -> Vec<(String, String)> {
        let path = |name| self.join(name).display().to_string();
        // Files that programs write to their home, such as caches, do not belong in a project.
        let home = match extra.workspace {
            Some(_) => path("tmp"),
            None if extra.account == Account::Sandbox => path("workspace"),
            None => extra.account.home().to_owned(),
        };
        let search = match extra.account.is_root() {
            true => Image::PATH,
            false => PATH,
        };
        let fixed = [
            ("PATH", with_programs_of_packages(search, &extra.mounts)),
            ("LANG", "C.UTF-8".to_owned()),
            ("USER", extra.account.name().to_owned()),
            ("LOGNAME", extra.account.name().to_owned()),
            ("SHELL", "/bin/bash".to_owned()),
            ("HOME", home),
            ("TMPDIR", path("tmp")),
            ("MPLCONFIGDIR", path("tmp")),
            ("RINGFENCE_OUTPUT", path("output")),
        ];
        let retries = RETRIES.map(|retries| (retries.name, retries.without_network.to_owned()));
        fixed
            .into_iter()
            .chain(retries)
            .map(|(name, value)| (name.to_owned(), value))
            .collect()
    }

    pub(super) fn rules(&self, extra: &Extra) -> LandlockRules {
        let mut readable: Vec<PathBuf> = SYSTEM.iter().map(PathBuf::from).collect();
        let mut writable: Vec<PathBuf> = ["tmp", "output"].map(|name| self.join(name)).into();
        let mut entries = Vec::new();
        match (self, &extra.workspace) {
            (Self::Directory(_), Some(workspace)) => {
                let top = &extra.top;
                // No mount protects these entries, so only their siblings are writable.
                if top.protected.is_empty() && top.closed.is_none() {
                    entries.push(workspace.path.clone());
                } else {
                    readable.push(workspace.path.clone());
                    entries.extend(top.open.iter().cloned());
                }
            }
            (Self::Cell, _) | (Self::Directory(_), None) => writable.push(self.workspace(extra)),
        }
        // Whatever is at the root of an image, beside the fence's own directories.
        readable.extend(extra.image.iter().map(|_| PathBuf::from("/")));
        match self {
            Self::Cell => {
                readable.extend(["/etc", "/proc", "/code"].map(PathBuf::from));
                writable.push("/dev/shm".into());
            }
            Self::Directory(path) => {
                readable.extend(
                    ETC_DIRECTORIES
                        .iter()
                        .chain(ETC_FILES)
                        .chain(PROC_FACTS)
                        .map(PathBuf::from),
                );
                readable.extend(
                    ["/etc/passwd", "/etc/group", "/etc/hosts", "/etc/nsswitch.conf"].map(PathBuf::from),
                );
                readable.extend(python_configuration().into_iter().map(|bind| bind.host));
                readable.push(path.join("code"));
            }
        }
        readable.extend(extra.library_directories().into_iter().cloned());
        let alias = extra.account.workspace_alias();
        if let Some((parent, _)) = alias.and_then(|home| home.rsplit_once('/')) {
            readable.extend([parent, "/root"].map(PathBuf::from));
        }
        for mount in &extra.mounts {
            let rules = match mount.access {
                Access::ReadOnly => &mut readable,
                Access::ReadWrite | Access::Copy => &mut writable,
            };
            rules.push(mount.guest().to_path_buf());
        }
        LandlockRules {
            readable,
            writable,
            entries,
            devices: DEVICES.iter().map(PathBuf::from).collect(),
            tcp: TcpPorts::None,
        }
    }
}

/// Builds the program of an interpreter with its arguments and environment.
pub(super) fn program(
    executable: &Path,
    arguments: Vec<String>,
    environment: Vec<(String, String)>,
) -> Program {
    let mut all = vec![executable.display().to_string()];
    all.extend(arguments);
    Program {
        executable: executable.to_path_buf(),
        arguments: all,
        environment,
        reads_job: false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_private_is_in_the_template() {
        let template = template(&Extra::default());
        for private in [
            "/home",
            "/root",
            "/var",
            "/run",
            "/sys",
            "/boot",
            "/etc/shadow",
            "/etc",
        ] {
            let exposed = template
                .binds
                .iter()
                .find(|bind| Path::new(private).starts_with(&bind.host));
            assert_eq!(exposed, None, "{private}");
        }
        assert!(template.binds.iter().all(|bind| !bind.writable));
    }

    #[test]
    fn library_directories_are_reduced() {
        let libraries = [
            "/usr/lib/python3",
            "/opt/py/lib",
            "/opt/py",
            "/",
            "relative",
            "/home/u/venv",
        ];
        let extra = Extra {
            libraries: libraries.map(PathBuf::from).into(),
            ..Extra::default()
        };
        assert_eq!(
            extra.library_directories(),
            ["/home/u/venv", "/opt/py"]
                .map(PathBuf::from)
                .iter()
                .collect::<Vec<_>>()
        );
    }
}
