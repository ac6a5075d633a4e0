//! Project settings by which a program that only reads would run other programs.
//!
//! An agent can write them in the working directory, and a guest can create missing ones. Settings known to
//! be harmless change nothing; for all others a person is asked.

mod git;

use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use ringfence_exec::trust::{Ledger, glob, project_files};
use ringfence_policy::cascade::{Decision, Effect};

use super::line_directory::real;
use super::tokens;
use super::tokens::names;

/// Programs, with the files that can make them run other programs, in the directory where they run or above it.
/// File tools protect these names.
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
        PACKAGES,
        &[
            ".npmrc",
            ".yarnrc",
            ".yarnrc.yml",
            ".yarn",
            ".pnp.cjs",
            ".pnp.js",
            ".pnp.loader.mjs",
            ".pnpmfile.cjs",
            ".pnpmfile.mjs",
            ".corepack.env",
            "bunfig.toml",
            ".bunfig.toml",
        ],
    ),
    // It runs the environment's interpreter to list its packages, which may be anybody's program.
    (
        &["uv", "uvx"],
        &[
            ".venv",
            "venv",
            "pyvenv.cfg",
            "uv.toml",
            ".python-version",
            ".python-versions",
        ],
    ),
    (&["ansible"], &["ansible.cfg"]),
    (&["az"], &[".azure"]),
    (&["opam"], &["_opam"]),
    (&["gdb"], &[".gdbinit"]),
    (&["lldb"], &[".lldbinit"]),
    // Pip asks Mercurial about a project that an installed package comes from.
    (&["hg", "pip", "pip3"], &[".hg"]),
];

/// Package managers of Node.js.
const PACKAGES: &[&str] = &["npm", "npx", "yarn", "yarnpkg", "pnpm", "pnpx", "corepack", "bun"];

/// A check of a configuration file. Returns `true` if nothing in its contents can start a program.
type Check = fn(&str) -> bool;

/// Programs, with a file whose contents decide, in the directory where they run or above it.
const CONTENTS: &[(&[&str], &str, Check)] = &[
    (PACKAGES, "package.json", project_files::is_plain_package),
    (
        &["pnpm", "pnpx", "corepack"],
        "pnpm-workspace.yaml",
        project_files::is_plain_workspace,
    ),
    (&["uv", "uvx"], "pyproject.toml", project_files::is_plain_project),
];

/// Programs that read the settings of the git repository they run in.
const GIT: &[&str] = &["git", "gh", "glab", "hub", "tig", "go"];

/// Maximum length of a settings file that is read.
const MAX_SETTINGS: u64 = 64 * 1024;

/// Downgrades a line that a list or a model could allow to asking a person, because its programs read
/// settings that an agent could have written.
pub(crate) fn apply_to(decision: &mut Decision, file: &Path) {
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
///
/// A git repository that a program in the fence could have made is one of them, by the record in `ledger`.
pub(crate) fn executable_config(
    line: &str,
    directory: &Path,
    home: Option<&Path>,
    ledger: &Ledger,
) -> Option<PathBuf> {
    let mut selected = vec![directory.to_path_buf()];
    for word in tokens::of(line, home) {
        let path = directory.join(word);
        if path.is_dir() && !selected.contains(&path) {
            selected.push(path);
        }
    }
    if composes(line)
        && let Some(file) = named_compose(line, directory, home)
    {
        return Some(file);
    }
    // Too many to examine; any of them may have such a file.
    if selected.len() > MAX_DIRECTORIES {
        return selected.pop();
    }
    selected
        .iter()
        .find_map(|place| in_one(line, place, home, ledger))
}

fn in_one(line: &str, directory: &Path, home: Option<&Path>, ledger: &Ledger) -> Option<PathBuf> {
    let named = |programs: &[&str]| programs.iter().any(|program| names(line, program));
    let above = upwards(directory, home);
    let found = |path: &PathBuf| is_there(path);
    let mut files = NAMES
        .iter()
        .filter(|(programs, _)| named(programs))
        .flat_map(|(_, files)| *files)
        .flat_map(|file| above.iter().map(move |above| above.join(file)));
    let file = files.find(found);
    let mut checked = CONTENTS
        .iter()
        .filter(|(programs, ..)| named(programs))
        .flat_map(|(_, file, check)| above.iter().map(move |above| (above.join(file), check)));
    let unclear =
        |(path, check): &(PathBuf, &Check)| found(path) && !text(path).is_some_and(|text| check(&text));
    let composes = composes(line);
    file.or_else(|| checked.find(unclear).map(|(path, _)| path))
        .or_else(|| above.iter().filter(|_| composes).find_map(|above| compose(above)))
        .or_else(|| named(GIT).then(|| git::repository(directory, ledger)).flatten())
}

/// Returns a directory and those above it, in which programs look, too. The user's own settings in the home
/// directory do not count for directories below it.
fn upwards(directory: &Path, home: Option<&Path>) -> Vec<PathBuf> {
    let start = real(directory).unwrap_or_else(|| directory.to_path_buf());
    let home = home.map(|home| real(home).unwrap_or_else(|| home.to_path_buf()));
    let users = |above: &&Path| *above == start || Some(*above) != home.as_deref();
    start.ancestors().filter(users).map(Path::to_path_buf).collect()
}

fn composes(line: &str) -> bool {
    const PROGRAMS: &[&str] = &["docker", "podman", "docker-compose", "podman-compose"];
    line.contains("compose") && PROGRAMS.iter().any(|program| names(line, program))
}

/// Returns the first file of a line that compose could fetch another project by. It may take the variables that
/// such a file names from a directory that is not known here.
fn named_compose(line: &str, directory: &Path, home: Option<&Path>) -> Option<PathBuf> {
    let words = tokens::of(line, home);
    let files = words.iter().map(|word| directory.join(word));
    let mut files = files.filter(|path| is_there(path) && !path.is_dir());
    let is_clear = |text: String| {
        !project_files::composes_elsewhere(&text)
            && project_files::variable_files(&text).is_some_and(|files| files.is_empty())
    };
    files.find_map(|file| match text(&file).is_some_and(is_clear) {
        true => compose(file.parent()?),
        false => Some(file),
    })
}

/// Returns the first file by which compose could fetch another project, or show another file: an include, a
/// variable that names its files, or a file of variables that lies elsewhere.
fn compose(directory: &Path) -> Option<PathBuf> {
    let files = [
        "compose*.y*ml",
        "docker-compose*.y*ml",
        "podman-compose*.y*ml",
        ".env",
    ];
    let is_clear = |path: &PathBuf| {
        text(path).is_some_and(|text| {
            !project_files::composes_elsewhere(&text) && !reads_elsewhere(&text, directory)
        })
    };
    files.iter().find_map(|file| {
        let all = glob::expand(&directory.join(file), MAX_COMPOSE);
        let more = all.truncated.then(|| directory.join(file));
        let mut there = all.paths.into_iter().filter(|path| is_there(path));
        more.or_else(|| there.find(|path| !is_clear(path)))
    })
}

/// Returns `true` if a compose file has an `env_file` outside its directory. Compose prints a line that it
/// cannot parse, and so would disclose that file.
fn reads_elsewhere(text: &str, directory: &Path) -> bool {
    let top = real(directory).unwrap_or_else(|| directory.to_path_buf());
    let inside = |name: &String| real(&directory.join(name)).is_none_or(|path| path.starts_with(&top));
    project_files::variable_files(text).is_none_or(|files| !files.iter().all(inside))
}

/// Maximum number of compose files examined.
const MAX_COMPOSE: usize = 100;

/// Returns `true` unless the path certainly does not exist. A path that cannot be examined counts as
/// existing.
fn is_there(path: &Path) -> bool {
    match path.symlink_metadata() {
        Ok(_) => true,
        Err(error) => !matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory),
    }
}

/// Returns the text of a small file; `None` if it cannot be read.
fn text(path: &Path) -> Option<String> {
    let meta = fs::metadata(path).ok()?;
    if !meta.is_file() || meta.len() > MAX_SETTINGS {
        return None;
    }
    fs::read_to_string(path).ok()
}

#[cfg(test)]
mod tests {
    use super::git::tests::PLAIN;
    use super::*;
    use ringfence_policy::cascade::{Rules, Stage, Verdict, decide};

    fn executable_config(line: &str, directory: &Path, home: Option<&Path>) -> Option<PathBuf> {
        super::executable_config(line, directory, home, &Ledger::default())
    }

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
    fn the_repository_is_found_as_git_finds_it() {
        let check = |files: &[(&str, &str)], expected: Option<&str>| {
            let place = made(files);
            let found = executable_config("git status", place.path(), None);
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
            assert!(
                executable_config(line, place.path(), Some(&home)).is_some(),
                "{line}"
            );
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
            assert_eq!(executable_config(line, place.path(), Some(&home)), None, "{line}");
        }
    }

    #[test]
    fn a_package_manager_is_chosen_by_what_lies_above() {
        let check = |package: &str, expected: bool| {
            let place = made(&[("package.json", package), ("app/x", "")]);
            for (line, start) in [("yarn why x", "app"), ("cd app && pnpm ls", "")] {
                let found = executable_config(line, &place.path().join(start), None);
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
        assert_eq!(executable_config("npm ls", &home.join("app"), Some(&home)), None);
    }

    #[test]
    fn what_lies_above_is_obeyed_too() {
        for (line, file, content) in [
            ("cargo metadata --frozen", ".cargo/config.toml", ""),
            ("cargo tree --frozen", ".cargo/config", ""),
            ("cargo --version", "rust-toolchain.toml", ""),
            ("rustc --version", "rust-toolchain", ""),
            ("rustup show", "rust-toolchain.toml", ""),
            ("uv pip list", ".venv/bin/python", ""),
            ("uv tree", "pyvenv.cfg", ""),
            ("uv pip list", "pyproject.toml", "[tool.uv.pip]\npython = './x'\n"),
            (
                "pnpm ls",
                "pnpm-workspace.yaml",
                "packages: ['.']\npnpmfile: ./x.cjs\n",
            ),
            ("pnpm audit", ".pnpmfile.mjs", ""),
            ("bun pm ls", ".bunfig.toml", ""),
            ("yarn why x", ".pnp.cjs", ""),
            ("ansible-doc -l", "ansible.cfg", ""),
            ("az account show", ".azure/config", ""),
            ("docker compose ps", "compose.yaml", "include: [x]\n"),
            ("git status", ".gitmodules", ""),
        ] {
            let place = made(&[(file, content), ("proj/sub/x", "")]);
            let home = place.path().join("home");
            for (line, start) in [
                (line.to_owned(), "proj/sub"),
                (line.to_owned(), ""),
                (format!("cd sub && {line}"), "proj"),
            ] {
                let start = place.path().join(start);
                assert!(
                    executable_config(&line, &start, Some(&home)).is_some(),
                    "{line}: {file}"
                );
            }
            // In the home they are the user's own, for what lies below it.
            let start = place.path().join("proj/sub");
            if !line.starts_with("git") {
                assert_eq!(
                    executable_config(line, &start, Some(place.path())),
                    None,
                    "{line}: {file}"
                );
            }
        }
    }

    #[test]
    fn file_tools_protect_what_programs_obey() {
        // That of an environment which Ringfence uses is kept for another reason, and told so.
        let protected =
            |name: &str| name == "pyvenv.cfg" || ringfence_exec::protected::PROTECTED.contains(&name);
        let named = NAMES.iter().flat_map(|(_, files)| *files);
        let free: Vec<&&str> = named.filter(|name| !protected(name)).collect();
        assert_eq!(free, Vec::<&&str>::new());
        assert!(protected("pnpm-workspace.yaml"));
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
            ("compose.yaml", "services:\n  a:\n    env_file: .env\n", false),
            (
                "compose.yaml",
                "services:\n  a:\n    env_file:\n      - a.env\n      - b/c.env\n    volumes: [/x:/y]\n",
                false,
            ),
            (
                "compose.yaml",
                "services:\n  a:\n    env_file: /etc/shadow\n",
                true,
            ),
            (
                "compose.yaml",
                "services:\n  a:\n    env_file:\n      - path: ../x\n",
                true,
            ),
            ("compose.yaml", "services: {a: {env_file: [../../x]}}\n", true),
            ("compose.yaml", "services: {a: {\"env_\\x66ile\": x}}\n", true),
            (".env", "COMPOSE_FILE=x\n", true),
        ] {
            let place = made(&[(file, text)]);
            let found = executable_config("docker compose ps", place.path(), None);
            assert_eq!(found.is_some(), expected, "{file}: {text}");
            assert_eq!(executable_config("docker ps", place.path(), None), None);
        }
    }

    #[test]
    fn a_compose_file_that_the_line_names_is_looked_at() {
        let place = made(&[
            ("x.yml", "services: {}\n"),
            ("sub/y.yaml", "services: {a: {image: x}}\n"),
            ("include.yml", "include: [x]\n"),
            ("variables.yml", "services:\n  a:\n    env_file: .env\n"),
            ("far/x.yml", "services: {}\n"),
            ("far/.env", "COMPOSE_FILE=x\n"),
        ]);
        for (line, expected) in [
            ("docker compose -f x.yml ps", false),
            ("docker compose -fx.yml -f sub/y.yaml ps", false),
            ("docker compose --file=include.yml ps", true),
            ("docker compose -finclude.yml ps", true),
            ("docker-compose -f sub/../include.yml ps", true),
            ("docker compose -f x.yml -f variables.yml ps", true),
            ("docker compose -f far/x.yml ps", true),
        ] {
            let found = executable_config(line, place.path(), None);
            assert_eq!(found.is_some(), expected, "{line}");
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
            assert_eq!(
                executable_config(line, place.path(), None).is_some(),
                expected,
                "{line}"
            );
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
        apply_to(
            &mut decision,
            &executable_config("git status", place.path(), None).unwrap(),
        );
        assert_eq!((decision.verdict, decision.stage), (Verdict::Review, Stage::Ask));
        assert!(!super::super::may_last(&decision), "{decision:?}");
    }
}
