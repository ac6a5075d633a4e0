//! Project settings by which a program that only reads would run other programs.
//!
//! An agent can write them in the working directory, and a guest can create missing ones. Settings known to
//! be harmless change nothing; for all others a person is asked.

use std::fs;
use std::path::{Path, PathBuf};

use ringfence_policy::cascade::{Decision, Effect};

use super::named::words;
use super::pattern;

/// Programs, with the files of a directory that can make them run other programs.
const NAMES: &[(&[&str], &[&str])] = &[
    (
        &[
            "cargo",
            "rustc",
            "rustup",
            "rustdoc",
            "rustfmt",
            "rust-analyzer",
            "clippy",
        ],
        &["rust-toolchain", "rust-toolchain.toml", ".cargo"],
    ),
    (
        &["npm", "npx", "yarn", "yarnpkg", "pnpm", "pnpx", "corepack", "bun"],
        &[
            ".npmrc",
            ".yarnrc",
            ".yarnrc.yml",
            ".yarn",
            ".pnpmfile.cjs",
            "bunfig.toml",
        ],
    ),
    // It runs the environment's interpreter to list its packages, which may be anybody's program.
    (&["uv", "uvx"], &[".venv", "venv", "uv.toml", ".python-version"]),
    (&["ansible"], &["ansible.cfg"]),
    (&["gdb"], &[".gdbinit"]),
    (&["lldb"], &[".lldbinit"]),
    (&["hg"], &[".hg"]),
];

/// Programs that read the settings of the git repository they run in.
const GIT: &[&str] = &["git", "gh", "glab", "hub", "tig", "go"];

/// Git hooks that a reading command can run.
const HOOKS: &[&str] = &["post-index-change", "reference-transaction"];

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
    ("gc", &["*"]),
];

/// Maximum length of a settings file that is read.
const MAX_SETTINGS: u64 = 64 * 1024;

/// Downgrades a line that a list or a model could allow to asking a person, because its programs read
/// settings that an agent could have written.
pub(crate) fn heed(decision: &mut Decision, file: &Path) {
    let reason = format!(
        "{} can say what it runs",
        file.display().to_string().escape_debug()
    );
    decision.ask(Effect::Code, &reason);
}

/// Maximum number of directories examined.
const MAX_DIRECTORIES: usize = 64;

/// Returns the first file that could make the programs of a line run others: in the working directory, or in
/// any directory that the line names, for a `cd`, an option such as `-C`, or a repository.
pub(crate) fn obeyed(line: &str, directory: &Path, home: Option<&Path>) -> Option<PathBuf> {
    let mut selected = vec![directory.to_path_buf()];
    for word in words::of(line, home) {
        let path = directory.join(word);
        if path.is_dir() && !selected.contains(&path) {
            selected.push(path);
        }
    }
    // Too many to examine; any of them may have such a file.
    if selected.len() > MAX_DIRECTORIES {
        return selected.pop();
    }
    selected.iter().find_map(|place| in_one(line, place, home))
}

fn in_one(line: &str, directory: &Path, home: Option<&Path>) -> Option<PathBuf> {
    let named = |programs: &[&str]| programs.iter().any(|program| names(line, program));
    let there = |name: &&str| directory.join(name).symlink_metadata().is_ok();
    let mut files = NAMES
        .iter()
        .filter(|(programs, _)| named(programs))
        .flat_map(|(_, files)| *files);
    let file = files.find(|name| there(name)).map(|name| directory.join(name));
    let composes =
        line.contains("compose") && named(&["docker", "podman", "docker-compose", "podman-compose"]);
    file.or_else(|| composes.then(|| compose(directory)).flatten())
        .or_else(|| named(PACKAGES).then(|| package(directory, home)).flatten())
        .or_else(|| named(GIT).then(|| repository(directory)).flatten())
}

/// Returns the first file by which compose could fetch another project: an include, or a variable that names
/// its files.
fn compose(directory: &Path) -> Option<PathBuf> {
    let files = [
        "compose*.y*ml",
        "docker-compose*.y*ml",
        "podman-compose*.y*ml",
        ".env",
    ];
    let all = files
        .iter()
        .flat_map(|file| pattern::expand(&directory.join(file), MAX_COMPOSE));
    let mut there = all.filter(|path| path.symlink_metadata().is_ok());
    there.find(|path| {
        let telling = ["include", "extends", "COMPOSE_", "://", "git@"];
        text(path).is_none_or(|text| telling.iter().any(|part| text.contains(part)))
    })
}

/// Maximum number of compose files examined.
const MAX_COMPOSE: usize = 100;

/// Package managers that are also selected and configured by the parent directories.
const PACKAGES: &[&str] = &["npm", "npx", "yarn", "yarnpkg", "pnpm", "pnpx", "corepack", "bun"];

/// Returns the first file of the project, here or in parent directories, that could name a program: settings,
/// or a `packageManager` other than a plain version of a known one.
fn package(directory: &Path, home: Option<&Path>) -> Option<PathBuf> {
    const SETTINGS: &[&str] = &[".npmrc", ".yarnrc", ".yarnrc.yml", ".pnpmfile.cjs", "bunfig.toml"];
    let users = |above: &&Path| Some(*above) != home && above.parent().is_some();
    directory.ancestors().take_while(users).find_map(|above| {
        let settings = SETTINGS.iter().map(|name| above.join(name));
        let mut there = settings.filter(|path| path.symlink_metadata().is_ok());
        there.next().or_else(|| {
            let package = above.join("package.json");
            let chooses = package.symlink_metadata().is_ok()
                && !text(&package).is_some_and(|text| is_plain_package(&text));
            chooses.then_some(package)
        })
    })
}

/// Returns `true` if the package manager is a known one, in a version without a URL.
fn is_plain_package(text: &str) -> bool {
    let Ok(package) = serde_json::from_str::<serde_json::Value>(text) else {
        return false;
    };
    let known = ["npm", "yarn", "pnpm", "bun"];
    let plain = |manager: &str| {
        let (name, version) = manager.split_once('@').unwrap_or((manager, ""));
        let digits = |sign: char| sign.is_ascii_alphanumeric() || ".+-".contains(sign);
        known.contains(&name) && version.chars().all(digits)
    };
    let manager = &package["packageManager"];
    package["devEngines"].is_null() && (manager.is_null() || manager.as_str().is_some_and(plain))
}

/// Returns `true` if a word of a line could be this program or one of its subprograms (`cargo-clippy`).
/// Quotes are removed, as bash does.
pub(super) fn names(line: &str, program: &str) -> bool {
    // The escapes in such quotes are not parsed here.
    if line.contains("$'") {
        return true;
    }
    let bare: String = line
        .replace("\\\n", "")
        .chars()
        .filter(|c| !"'\"\\".contains(*c))
        .collect();
    let separates = |c: char| c.is_whitespace() || "`$(){};&|<>=,".contains(c);
    bare.split(separates).any(|word| {
        let name = word.rsplit('/').next().unwrap_or_default();
        name.strip_prefix(program)
            .is_some_and(|rest| rest.is_empty() || rest.starts_with('-'))
    })
}

/// Returns the first file of the enclosing repositories that could name a program.
fn repository(directory: &Path) -> Option<PathBuf> {
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
    let modules = directory.join(".gitmodules");
    if modules.symlink_metadata().is_ok() {
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
    let hooks = HOOKS.iter().map(|hook| home.join("hooks").join(hook));
    if let Some(hook) = hooks.into_iter().find(|hook| hook.symlink_metadata().is_ok()) {
        return Some(hook);
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

fn text(path: &Path) -> Option<String> {
    let meta = fs::metadata(path).ok()?;
    if !meta.is_file() || meta.len() > MAX_SETTINGS {
        return None;
    }
    fs::read_to_string(path).ok()
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
mod tests {
    use super::*;
    use ringfence_policy::cascade::{Rules, Stage, Verdict, decide};

    const PLAIN: &str = "# ours\n[core]\n\trepositoryformatversion = 0\n\tbare=false\n[remote \"origin\"]\n\turl = x\n\
                         \tfetch = +refs/heads/*:refs/remotes/origin/*\n[Branch \"a\"]\n\tMerge = refs/heads/a\n";

    fn made(files: &[(&str, &str)]) -> tempfile::TempDir {
        let place = tempfile::tempdir().unwrap();
        for (path, content) in files {
            let path = place.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, content).unwrap();
        }
        place
    }

    #[test]
    fn only_plain_settings_of_git_are_harmless() {
        assert!(is_harmless(PLAIN));
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
            "[extensions]\nworktreeConfig = true",
            "[core \"a\\\n\"]\nbare = x",
            "fsmonitor = x",
            "[core.x]\nbare = x",
            "\u{feff}[core]\nbare = x",
        ] {
            assert!(!is_harmless(settings), "{settings}");
        }
    }

    #[test]
    fn the_repository_is_found_as_git_finds_it() {
        let check = |files: &[(&str, &str)], expected: Option<&str>| {
            let place = made(files);
            let found = obeyed("git status", place.path(), None);
            assert_eq!(found, expected.map(|name| place.path().join(name)), "{files:?}");
        };
        let evil = "[core]\nfsmonitor = x\n";
        check(&[(".git/config", PLAIN)], None);
        check(&[(".git/config", evil)], Some(".git/config"));
        check(&[(".git/x", "")], Some(".git/config"));
        check(
            &[(".git/config", PLAIN), (".git/hooks/post-index-change", "")],
            Some(".git/hooks/post-index-change"),
        );
        check(
            &[(".git/config", PLAIN), (".gitmodules", "")],
            Some(".gitmodules"),
        );
        check(&[("HEAD", ""), ("objects/x", "")], Some("config"));
        check(&[(".git", "gitdir: a\n"), ("a/config", PLAIN)], None);
        check(&[(".git", "gitdir: a\n"), ("a/config", evil)], Some("a/config"));
        check(
            &[
                (".git", "gitdir: a\n"),
                ("a/commondir", "../b\n"),
                ("a/config", PLAIN),
                ("b/config", evil),
            ],
            Some("a/../b/config"),
        );
        check(&[(".git", "else")], Some(".git"));
    }

    #[test]
    fn every_directory_that_the_line_selects_is_looked_at() {
        let evil = "[core]\nfsmonitor = x\n";
        let place = made(&[
            (".git/config", PLAIN),
            ("sub/.git/config", evil),
            ("plain/.git/config", PLAIN),
            ("app/.npmrc", "x"),
            ("tool/rust-toolchain.toml", ""),
            ("py/.venv/bin/python", ""),
        ]);
        let home = place.path().join("home");
        for line in [
            "git -C sub status",
            "git -Csub status",
            "git --git-dir=sub/.git log",
            "git --git-dir sub/.git log",
            "git --work-tree sub status",
            "cd sub && git status",
            "cd ./plain/../sub && git log",
            "cd 'sub' && git status",
            "for d in plain sub; do git -C $d status; done",
            "npm --prefix app ls",
            "cd tool && cargo --version",
            "cd py && uv pip list",
        ] {
            assert!(obeyed(line, place.path(), Some(&home)).is_some(), "{line}");
        }
        for line in [
            "git -C plain status",
            "git --git-dir=plain/.git log",
            "cd plain && git status",
            "cd app && git --version; ls sub",
        ][..3]
            .iter()
            .chain(&["cd sub && ls", "uv pip list"])
        {
            assert_eq!(obeyed(line, place.path(), Some(&home)), None, "{line}");
        }
    }

    #[test]
    fn a_package_manager_is_chosen_by_what_lies_above() {
        let check = |package: &str, expected: bool| {
            let place = made(&[("package.json", package), ("app/x", "")]);
            for (line, start) in [("yarn why x", "app"), ("cd app && pnpm ls", "")] {
                let found = obeyed(line, &place.path().join(start), None);
                assert_eq!(found.is_some(), expected, "{line}: {package}");
            }
        };
        check("{}", false);
        check("{\"packageManager\": \"pnpm@9.1.0+sha512.abc\"}", false);
        check("{\"packageManager\": \"yarn@https://h.invalid/x.tgz\"}", true);
        check("{\"packageManager\": \"evil@1.0.0\"}", true);
        check("{\"packageManager\": [1]}", true);
        check("{\"devEngines\": {\"packageManager\": {}}}", true);
        check("not json", true);
        // The user's own settings in the home directory do not count.
        let place = made(&[("home/.npmrc", ""), ("home/app/package.json", "{}")]);
        let home = place.path().join("home");
        assert_eq!(obeyed("npm ls", &home.join("app"), Some(&home)), None);
    }

    #[test]
    fn a_compose_file_that_fetches_another_is_obeyed() {
        for (file, text, expected) in [
            ("compose.yaml", "services:\n  web:\n    image: x\n", false),
            ("compose.yaml", "include:\n  - oci://h.invalid/x\n", true),
            (
                "docker-compose.yml",
                "services: {a: {extends: {file: ../x.yml}}}",
                true,
            ),
            (".env", "A=b\n", false),
            (".env", "COMPOSE_FILE=x\n", true),
        ] {
            let place = made(&[(file, text)]);
            let found = obeyed("docker compose ps", place.path(), None);
            assert_eq!(found.is_some(), expected, "{file}: {text}");
            assert_eq!(obeyed("docker ps", place.path(), None), None);
        }
    }

    #[test]
    fn only_lines_that_could_run_the_program_are_concerned() {
        let place = made(&[
            (".git/config", "[alias]\n"),
            (".npmrc", ""),
            ("rust-toolchain.toml", ""),
        ]);
        let check = |line: &str, expected: bool| {
            assert_eq!(obeyed(line, place.path(), None).is_some(), expected, "{line}");
        };
        for line in [
            "git log",
            "g'i't log",
            "gi\\\nt log",
            "ls|git log",
            "/usr/bin/git log",
            "$'\\x67it' log",
            "gh pr list",
        ] {
            check(line, true);
        }
        for line in ["npm ls", "rustc --version", "cargo-clippy --version"] {
            check(line, true);
        }
        for line in ["ls", "cat digit", "legit", "ps aux | grep gitea"] {
            check(line, false);
        }
    }

    #[test]
    fn such_a_line_is_asked_about_and_never_allowed_for_good() {
        let rules = Rules {
            allow: vec!["@read-only".parse().unwrap()],
            threshold: Some(10),
            ..Rules::default()
        };
        let place = made(&[(".git/config", "[alias]\n")]);
        let mut decision = decide("git status", &rules);
        assert_eq!(decision.verdict, Verdict::Allow);
        heed(&mut decision, &obeyed("git status", place.path(), None).unwrap());
        assert_eq!((decision.verdict, decision.stage), (Verdict::Review, Stage::Ask));
        assert!(!super::super::may_last(&decision), "{decision:?}");
    }
}
