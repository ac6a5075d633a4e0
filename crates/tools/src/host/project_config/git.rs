//! Settings of a git repository that could name a program.

use std::path::{Path, PathBuf};

use super::text;

/// Files of a repository besides its settings: hooks that a reading command can run, and settings of `glab`.
const BESIDE: &[&str] = &[
    "hooks/post-index-change",
    "hooks/reference-transaction",
    "glab-cli",
];

/// Git settings that name no program, by section; `*` allows all settings of the section.
const HARMLESS: &[(&str, &[&str])] = &[
    (
        "core",
        &[
            "repositoryformatversion",
            "filemode",
            "bare",
            "logallrefupdates",
            "ignorecase",
            "precomposeunicode",
            "symlinks",
            "autocrlf",
            "eol",
            "safecrlf",
            "longpaths",
            "quotepath",
            "abbrev",
            "untrackedcache",
            "whitespace",
            "sparsecheckout",
            "sparsecheckoutcone",
        ],
    ),
    (
        "remote",
        &[
            "url",
            "pushurl",
            "fetch",
            "push",
            "tagopt",
            "prune",
            "gh-resolved",
        ],
    ),
    (
        "branch",
        &[
            "remote",
            "merge",
            "rebase",
            "pushremote",
            "description",
            "gh-merge-base",
            "vscode-merge-base",
        ],
    ),
    ("user", &["name", "email", "signingkey", "useconfigonly"]),
    ("submodule", &["active", "url"]),
    ("extensions", &["objectformat", "refstorage"]),
    ("pull", &["rebase", "ff"]),
    ("push", &["default", "autosetupremote", "followtags"]),
    ("fetch", &["prune", "prunetags"]),
    ("merge", &["ff", "conflictstyle"]),
    ("init", &["defaultbranch"]),
    ("lfs", &["repositoryformatversion"]),
    ("rerere", &["enabled"]),
    ("color", &["*"]),
    ("advice", &["*"]),
    (
        "gc",
        &[
            "auto",
            "autodetach",
            "autopacklimit",
            "aggressivewindow",
            "aggressivedepth",
            "bigpackthreshold",
            "cruftpacks",
            "maxcruftsize",
            "logexpiry",
            "packrefs",
            "pruneexpire",
            "worktreepruneexpire",
            "reflogexpire",
            "reflogexpireunreachable",
            "rerereresolved",
            "rerereunresolved",
            "writecommitgraph",
        ],
    ),
];

/// Returns the first file of the enclosing repositories that could name a program.
pub(super) fn repository(directory: &Path) -> Option<PathBuf> {
    // Without `.git`, git takes a directory that looks like a bare repository for one.
    let bare = directory.ancestors().find(|above| {
        ["HEAD", "objects"]
            .iter()
            .all(|name| above.join(name).symlink_metadata().is_ok())
    });
    if let Some(bare) = bare {
        // A project's own `.git`: its settings decide.
        if bare.file_name().is_some_and(|name| name == ".git") {
            return unclear(bare.to_path_buf());
        }
        return Some(bare.join("config"));
    }
    let mut modules = directory.ancestors().map(|above| above.join(".gitmodules"));
    if let Some(modules) = modules.find(|path| path.symlink_metadata().is_ok()) {
        return Some(modules);
    }
    let mut all = directory.ancestors().map(|above| above.join(".git"));
    all.find_map(|git| {
        if git.symlink_metadata().is_ok() {
            unclear(git)
        } else {
            None
        }
    })
}

/// Returns the first file of a repository that could name a program.
fn unclear(git: PathBuf) -> Option<PathBuf> {
    let Some(home) = home(&git) else {
        return Some(git);
    };
    let mut beside = BESIDE.iter().map(|name| home.join(name));
    if let Some(file) = beside.find(|path| path.symlink_metadata().is_ok()) {
        return Some(file);
    }
    let settings = home.join("config");
    match text(&settings) {
        Some(text) if is_harmless(&text) => None,
        _ => Some(settings),
    }
}

/// Returns the directory with the settings of a `.git` directory or file.
fn home(git: &Path) -> Option<PathBuf> {
    let beside = git.parent()?;
    let own = if git.is_dir() {
        git.to_path_buf()
    } else {
        beside.join(text(git)?.strip_prefix("gitdir: ")?.trim_end())
    };
    match text(&own.join("commondir")) {
        Some(common) => Some(own.join(common.trim_end())),
        None => Some(own),
    }
}

/// Returns `true` if git settings have the plainest syntax and name no program.
fn is_harmless(settings: &str) -> bool {
    let mut section = "";
    settings.lines().map(str::trim).all(|line| {
        if line.is_empty() || line.starts_with(['#', ';']) {
            return true;
        }
        if let Some(head) = line.strip_prefix('[') {
            // Git parses a setting behind the bracket, and a bracket in quotes does not end the header.
            let Some(head) = head.strip_suffix(']').filter(|head| !head.contains([']', '\\'])) else {
                return false;
            };
            section = head.split([' ', '\t']).next().unwrap_or_default();
            return allowed(section).is_some();
        }
        let key = line.split('=').next().unwrap_or_default().trim();
        // A backslash continues the line.
        let whole = !line.ends_with('\\');
        let keys = allowed(section).unwrap_or_default();
        whole
            && keys
                .iter()
                .any(|known| *known == "*" || key.eq_ignore_ascii_case(known))
    })
}

fn allowed(section: &str) -> Option<&'static [&'static str]> {
    let (_, keys) = HARMLESS
        .iter()
        .find(|(name, _)| section.eq_ignore_ascii_case(name))?;
    Some(keys)
}

#[cfg(test)]
pub(super) mod tests {
    use super::is_harmless;

    pub(in super::super) const PLAIN: &str = "# ours\n[core]\n\trepositoryformatversion = 0\n\tbare=false\n[remote \"origin\"]\n\turl = x\n\
                         \tfetch = +refs/heads/*:refs/remotes/origin/*\n[Branch \"a\"]\n\tMerge = refs/heads/a\n";

    #[test]
    fn only_plain_settings_of_git_are_harmless() {
        assert!(is_harmless(PLAIN));
        assert!(is_harmless(
            "[gc]\n\tauto = 0\n[gc \"refs/x\"]\n\treflogExpire = never\n"
        ));
        for settings in [
            "[core]\nfsmonitor = x",
            "[core] fsmonitor = x",
            "[core]fsmonitor=x",
            "[core]\nbare = a\\\nfsmonitor = x",
            "[CORE]\nFsMonitor",
            "[diff \"x\"]\ntextconv = x",
            "[filter \"x\"]\nclean = x",
            "[include]\npath = x",
            "[includeIf \"x\"]\npath = x",
            "[remote \"a\"]\nvcs = x",
            "[remote \"a]\n[core]\nfsmonitor=x",
            "[color]\n[gpg]\nprogram = x",
            "[gc]\nrecentObjectsHook = x",
            "[gc]\nauto = 0\nRecentObjectsHook=x",
            "[gc]\nrepackFilterTo = x",
            "[extensions]\nworktreeConfig = true",
            "[core \"a\\\n\"]\nbare = x",
            "fsmonitor = x",
            "[core.x]\nbare = x",
            "\u{feff}[core]\nbare = x",
        ] {
            assert!(!is_harmless(settings), "{settings}");
        }
    }
}
