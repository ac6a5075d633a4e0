//! Settings of a git repository that could name a program.

mod records;

use std::path::{Path, PathBuf};

use ringfence_exec::trust::Ledger;
use ringfence_exec::trust::git::is_repository;

use super::{is_there, real, text};

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

/// Returns the first file of the enclosing repositories that could name a program, or that a program in the
/// fence could have written.
pub(super) fn repository(directory: &Path, ledger: &Ledger) -> Option<PathBuf> {
    // Git starts from where the links lead.
    let start = real(directory).unwrap_or_else(|| directory.to_path_buf());
    // Without `.git`, git takes a directory that looks like a bare repository for one.
    let has = |above: &Path, name: &str| name == "refs" || is_there(&above.join(name));
    let bare = start
        .ancestors()
        .find(|above| is_repository(|name| has(above, name)));
    if let Some(bare) = bare {
        // A project's own `.git`: its settings decide.
        if bare.file_name().is_some_and(|name| name == ".git") {
            return unclear(bare, ledger);
        }
        return Some(bare.join("config"));
    }
    let mut modules = start.ancestors().map(|above| above.join(".gitmodules"));
    if let Some(modules) = modules.find(|path| is_there(path)) {
        return Some(modules);
    }
    let all = start.ancestors().map(|above| above.join(".git"));
    let mut all = all.filter(|git| is_there(git));
    all.find_map(|git| unclear(&git, ledger))
}

/// Returns the first file of a repository that could name a program, or that a program could have written.
fn unclear(git: &Path, ledger: &Ledger) -> Option<PathBuf> {
    let Some((own, home)) = directories(git) else {
        return Some(git.to_path_buf());
    };
    for part in [git, &own, &home] {
        // Where the record cannot be read, anybody could have made it.
        let is_known = real(part).is_some_and(|part| matches!(ledger.around_git(&part), Ok(None)));
        if !is_known || !matches!(ledger.around_git(part), Ok(None)) {
            return Some(git.to_path_buf());
        }
    }
    let mut beside = BESIDE.iter().map(|name| home.join(name));
    if let Some(file) = beside.find(|path| is_there(path)) {
        return Some(file);
    }
    let settings = home.join("config");
    match text(&settings) {
        Some(text) if is_harmless(&text) && !has_open_remote(&text, git, ledger) => {
            let hash = if text.to_ascii_lowercase().contains("sha256") {
                32
            } else {
                20
            };
            records::unclear(&own, &home, hash)
        }
        _ => Some(settings),
    }
}

/// Returns `true` if a remote is a repository on this machine that a program in the fence could have written: git
/// runs its hooks.
fn has_open_remote(settings: &str, git: &Path, ledger: &Ledger) -> bool {
    let top = git.parent().unwrap_or(git);
    local_remotes(settings).any(|remote| {
        let path = top.join(remote);
        let path = real(&path).unwrap_or(path);
        !matches!(ledger.around_git(&path), Ok(None))
    })
}

/// Returns the remotes of git settings that are paths of this machine: git-fetch(1), section GIT URLS.
fn local_remotes(settings: &str) -> impl Iterator<Item = &str> {
    let values = settings.lines().filter_map(|line| line.split_once('='));
    let urls = values.filter(|(key, _)| {
        let key = key.trim();
        key.eq_ignore_ascii_case("url") || key.eq_ignore_ascii_case("pushurl")
    });
    urls.filter_map(|(_, value)| {
        let value = value.trim().trim_matches('"');
        let before_slash = value.split('/').next().unwrap_or_default();
        match value.strip_prefix("file://") {
            Some(path) => Some(path),
            None => (!before_slash.contains(':')).then_some(value),
        }
    })
}

/// Returns the directory that a `.git` is or names, and the one with the settings. `None` if it is not certain
/// that git finds the same: a file that cannot be read, or more than a plain path in it.
fn directories(git: &Path) -> Option<(PathBuf, PathBuf)> {
    let beside = git.parent()?;
    let own = if git.is_dir() {
        git.to_path_buf()
    } else {
        let named = text(git)?;
        beside.join(plain(named.strip_prefix("gitdir: ")?)?)
    };
    let common = own.join("commondir");
    if !is_there(&common) {
        return Some((own.clone(), own));
    }
    let home = own.join(plain(&text(&common)?)?);
    Some((own, home))
}

/// Returns the path that is the only line of a file.
fn plain(text: &str) -> Option<&str> {
    let line = text.strip_suffix('\n').unwrap_or(text);
    let is_plain = !line.is_empty() && line.trim() == line && !line.contains(char::is_control);
    is_plain.then_some(line)
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
    use super::{is_harmless, local_remotes};

    pub(in super::super) const PLAIN: &str = "# ours\n[core]\n\trepositoryformatversion = 0\n\tbare=false\n[remote \"origin\"]\n\turl = x\n\
                         \tfetch = +refs/heads/*:refs/remotes/origin/*\n[Branch \"a\"]\n\tMerge = refs/heads/a\n";

    #[test]
    fn a_remote_without_a_host_is_a_path() {
        let settings = "[remote \"a\"]\n url = ./a.git\n pushurl=/srv/b\n fetch = x\n[remote \"b\"]\n URL = file:///srv/c\n \
            url = https://example.com/d\n url = git@example.com:e/f\n url = \"g:h\"\n url = i/j:k\n";
        let found: Vec<&str> = local_remotes(settings).collect();
        assert_eq!(found, ["./a.git", "/srv/b", "/srv/c", "i/j:k"]);
    }

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
