//! Detection of secrets among the files that a line reads, with globs and symbolic links resolved.
//!
//! The policy sees only names. A harmless one can be a link, a glob can expand to any file, and only the
//! configuration has the place of Ringfence's own state.

use std::path::{Path, PathBuf};

use ringfence_exec::trust::glob;
use ringfence_policy::cascade::{Decision, Reach};

use super::line_directory::{LineDirectory, real};
use super::project;
use super::trees::Trees;

/// Maximum number of paths examined. A person is asked about a line that could open more.
const MAX_PATHS: usize = 5_000;

/// Returns the first secret that an allowed line opens: one that it names, or the target of a project file
/// that is a link, whose lines programs print when they cannot parse them.
pub(crate) fn secret(line: &str, decision: &Decision, place: &LineDirectory) -> Option<PathBuf> {
    linked(line, decision, place).or_else(|| opened(line, decision, place))
}

fn linked(line: &str, decision: &Decision, place: &LineDirectory) -> Option<PathBuf> {
    let opens = decision.parts.iter().flat_map(|part| &part.opens);
    let named = opens.flat_map(|opened| place.absolute(&opened.path));
    let above = named.flat_map(|path| [path.parent().map(Path::to_path_buf), Some(path)]);
    let mut directories: Vec<PathBuf> = above.flatten().filter(|path| path.is_dir()).collect();
    directories.push(place.directory.clone());
    let above = directories.iter().flat_map(|path| path.ancestors().skip(1));
    let above: Vec<PathBuf> = above.map(Path::to_path_buf).collect();
    directories.extend(above);
    directories.sort();
    directories.dedup();
    if let Some(beyond) = directories.get(MAX_DIRECTORIES) {
        return Some(beyond.clone());
    }
    for directory in &directories {
        let files = project::files(line, directory);
        if files.truncated {
            return Some(directory.clone());
        }
        let mut links = files.paths.iter().filter(|path| path.is_symlink());
        let secret = |path: &PathBuf| real(path).filter(|real| place.is_secret(real));
        if let Some(found) = links.find_map(secret) {
            return Some(found);
        }
    }
    None
}

/// Maximum number of directories in which project files are examined. Beyond it a person is asked.
const MAX_DIRECTORIES: usize = 1_000;

fn opened(line: &str, decision: &Decision, place: &LineDirectory) -> Option<PathBuf> {
    let mut left = MAX_PATHS;
    let mut trees = Trees::new(line, place);
    for opened in decision.parts.iter().flat_map(|part| &part.opens) {
        if is_elsewhere(&opened.path) {
            return Some(PathBuf::from(&opened.path));
        }
        for path in readings(&opened.path)
            .into_iter()
            .flat_map(|text| place.absolute(text))
        {
            let expanded = glob::expand(&path, left);
            if expanded.truncated {
                return Some(path);
            }
            for path in expanded.paths {
                left = left.saturating_sub(1);
                if left == 0 {
                    return Some(path);
                }
                let Some(real) = real(&path) else { continue };
                let below = match opened.reach {
                    Reach::File => None,
                    Reach::Tree => place.has_secrets(&real).then(|| real.clone()),
                    Reach::Linked => trees.secret(&real),
                    Reach::Project => trees.of_project(&real),
                };
                let own = place.is_secret(&real).then_some(real);
                if let Some(found) = own.or(below) {
                    return Some(found);
                }
            }
        }
    }
    None
}

/// Returns `true` for `~name`, `~+`, `~-` and `~1`, which only the shell can resolve.
fn is_elsewhere(text: &str) -> bool {
    let behind = text.strip_prefix('~');
    behind.is_some_and(|rest| !rest.is_empty() && !rest.starts_with('/'))
}

/// Returns a word, and the value within it if it is an option: `--file=x`, `-fx`.
fn readings(text: &str) -> Vec<&str> {
    let value = text.split_once('=').map(|(_, value)| value);
    let attached = text
        .strip_prefix('-')
        .and_then(|rest| rest.char_indices().nth(1).map(|(at, _)| &rest[at..]));
    std::iter::once(text).chain(value).chain(attached).collect()
}

#[cfg(test)]
mod tests {
    use super::super::test_world::World;
    use super::*;
    use ringfence_policy::cascade::{Rules, Verdict, decide};
    use std::fs;
    use std::os::unix::fs::symlink;

    fn world() -> World {
        let directories = ["home/.newtool", "work/sub", "state", "work/.cache"];
        let files = [
            "home/.newtool/config",
            "home/notes.txt",
            "work/notes.txt",
            "work/sub/x.rs",
            "state/things.jsonl",
            "work/.cache/x",
        ];
        let mut world = World::new(&directories, &files);
        world.place.own = vec![world.at("state"), world.at("work/own.toml")];
        world
    }

    fn starting(world: &World, directory: &str) -> Starting {
        Starting(LineDirectory {
            directory: world.at(directory),
            ..world.place.clone()
        })
    }

    fn is_secret(world: &World, line: &str) -> bool {
        Starting(world.place.clone()).is_secret(line)
    }

    struct Starting(LineDirectory);

    impl Starting {
        fn is_secret(&self, line: &str) -> bool {
            let rules = Rules {
                allow: vec!["@read-only".parse().unwrap()],
                ..Rules::default()
            };
            let decision = decide(line, &rules);
            assert_eq!(decision.verdict, Verdict::Allow, "{line}: {:?}", decision.reasons);
            secret(line, &decision, &self.0).is_some()
        }
    }

    #[test]
    fn links_and_patterns_are_resolved_before_they_are_compared() {
        let world = world();
        let at = |name: &str| world.at(name);
        symlink(at("home/.newtool/config"), at("work/a.txt")).unwrap();
        symlink(at("home/.newtool"), at("work/linked")).unwrap();
        symlink("/etc/shadow", at("work/z.md")).unwrap();
        symlink(at("home"), at("work/up")).unwrap();
        fs::write(at("work/own.toml"), "x").unwrap();
        fs::create_dir(at("work/~")).unwrap();
        for name in ["qa.txt", "q[a.txt", "q[a].txt", "~/x.txt"] {
            symlink(at("home/.newtool/config"), at("work").join(name)).unwrap();
        }
        let state = at("state/things.jsonl");
        let up = format!("cat sub/../../state/{}", "things.jsonl");
        for line in [
            "cat a.txt",
            "cat *.txt",
            "cat ?.md",
            "cat [xyz].md",
            "head -c 5 linked/config",
            "cat linked/conf*",
            "grep -r x linked",
            "cd linked && cat config",
            "cat < a.txt",
            "grep -f a.txt notes.txt",
            "grep -r -e x up",
            "rg -e x up",
            "git grep --no-index x up",
            "git diff --no-index sub up",
            "for f in *.txt; do cat $f; done",
            "cat own.toml",
            "cat o*.toml",
            "cat q[[:alpha:]].txt",
            "cat q[]a].txt",
            "cat q[[=a=]].txt",
            "cat q[a.txt",
            "cat 'q[a].txt'",
            "cat '~/x.txt'",
            "head --lines=1 --quiet \"~/x.txt\"",
            "cat ~\"/x.txt\"",
            &up,
            &format!("cat {}", state.display()),
            &format!("grep -r x {}", world.dir.path().display()),
        ] {
            assert!(is_secret(&world, line), "{line}");
        }
        for line in [
            "cat notes.txt",
            "cat n*.txt",
            "cat sub/*.rs",
            "grep -r x sub",
            "cat .cache/x",
            "ls linked",
            "wc -l a.txt",
            "cat missing",
        ] {
            assert!(!is_secret(&world, line), "{line}");
        }
    }

    /// A secret may lie behind the place where the list is cut.
    #[test]
    fn more_files_than_are_examined_are_asked_about() {
        let world = world();
        let at = |name: &str| world.at(name);
        for number in 0..=MAX_PATHS {
            fs::create_dir_all(at(&format!("work/many/d{number}"))).unwrap();
        }
        assert!(is_secret(&world, "cat many/d*/q*.md"));
        assert!(!is_secret(&world, "cat many/d1*/q*.md"));
    }

    #[test]
    fn a_file_of_the_project_that_leads_to_a_secret_is_one() {
        let world = world();
        let at = |name: &str| world.at(name);
        symlink("/etc/shadow", at("work/package.json")).unwrap();
        symlink("/etc/shadow", at("work/sub/.shellcheckrc")).unwrap();
        symlink(at("work/notes.txt"), at("work/.shellcheckrc")).unwrap();
        assert!(is_secret(&world, "npm ls"));
        assert!(is_secret(&world, "shellcheck sub/x.rs"));
        assert!(!is_secret(&world, "shellcheck notes.txt"));
        assert!(!is_secret(&world, "ls"));
    }

    /// Programs print the lines of a manifest that they cannot parse.
    #[test]
    fn a_member_of_a_project_that_leads_to_a_secret_is_one() {
        let world = world();
        let at = |name: &str| world.at(name);
        let write = |name: &str, text: &str| {
            fs::create_dir_all(at(name).parent().unwrap()).unwrap();
            fs::write(at(name), text).unwrap();
        };
        let secret = at("home/.newtool/config");
        let cargo = ["cargo tree --locked", "cargo metadata --no-deps", "cargo pkgid x"];
        let npm = ["npm ls", "npm query '*'", "npm outdated"];
        for (file, text, lines) in [
            ("Cargo.toml", "workspace.members = ['member']", cargo),
            ("Cargo.toml", "workspace.members = ['../other/*']", cargo),
            (
                "Cargo.toml",
                "[dependencies]\nx = {path = '../other/member'}",
                cargo,
            ),
            ("Cargo.toml", "[package]\nworkspace = '../other/member'", cargo),
            ("package.json", "{\"workspaces\": [\"member\"]}", npm),
            ("package.json", "{\"workspaces\": [\"../other/*\"]}", npm),
        ] {
            // What starts outside of a project reads none.
            assert!(!is_secret(&world, lines[0]), "{file}");
            write(&format!("work/{file}"), text);
            let base = if text.contains("..") { "other" } else { "work" };
            let member = at(base).join("member").join(file);
            fs::create_dir_all(member.parent().unwrap()).unwrap();
            let empty = if file == "Cargo.toml" { "" } else { "{}" };
            for (is_link, start) in [(false, "work"), (true, "work"), (true, "work/sub")] {
                fs::remove_file(&member).unwrap_or_default();
                match is_link {
                    true => symlink(&secret, &member).unwrap(),
                    false => fs::write(&member, empty).unwrap(),
                }
                for line in lines {
                    let found = starting(&world, start).is_secret(line);
                    assert_eq!(found, is_link, "{line} in {start}: {file}: {text}");
                }
            }
            fs::remove_file(&member).unwrap();
            fs::remove_file(at("work").join(file)).unwrap();
        }
    }

    #[test]
    fn a_manifest_of_an_installed_package_that_leads_to_a_secret_is_one() {
        let world = world();
        let at = |name: &str| world.at(name);
        fs::write(at("work/package.json"), "{}").unwrap();
        let lines = ["npm query '*'", "npm ls --json --long", "npm ls --all"];
        for package in [
            "node_modules/x",
            "node_modules/@scope/x",
            "node_modules/x/node_modules/y",
            "node_modules/.pnpm/x@1/node_modules/x",
            "node_modules/@scope/x/node_modules/@other/y",
        ] {
            fs::create_dir_all(at("work").join(package)).unwrap();
            fs::create_dir_all(at("work").join(package).join("lib/deep")).unwrap();
            let manifest = at("work").join(package).join("package.json");
            fs::write(&manifest, "{}").unwrap();
            for line in lines {
                assert!(!is_secret(&world, line), "{line}: {package}");
            }
            fs::remove_file(&manifest).unwrap();
            symlink(at("home/.newtool/config"), &manifest).unwrap();
            for line in lines {
                assert!(is_secret(&world, line), "{line}: {package}");
            }
            fs::remove_file(&manifest).unwrap();
        }
        // A package that is a link itself, and the list of all that are installed.
        fs::create_dir_all(at("elsewhere")).unwrap();
        symlink(at("elsewhere"), at("work/node_modules/linked")).unwrap();
        assert!(!is_secret(&world, "npm ls"));
        symlink(at("home/.newtool/config"), at("elsewhere/package.json")).unwrap();
        assert!(is_secret(&world, "npm ls"));
        fs::remove_file(at("elsewhere/package.json")).unwrap();
        symlink(
            at("home/.newtool/config"),
            at("work/node_modules/.package-lock.json"),
        )
        .unwrap();
        assert!(is_secret(&world, "npm ls"));
    }

    #[test]
    fn links_in_a_tree_are_those_of_a_program_that_walks_it() {
        let world = world();
        let at = |name: &str| world.at(name);
        for name in ["deep/a/b.py", "chart/values.yaml"] {
            fs::create_dir_all(at("work").join(name).parent().unwrap()).unwrap();
            fs::write(at("work").join(name), "x").unwrap();
        }
        let lines = [
            "ruff check deep",
            "ruff check --isolated .",
            "ruff format --diff deep",
            "black --check --diff deep",
            "black --diff .",
            "isort --diff deep",
            "isort --check-only --diff .",
            "pycodestyle --show-source --max-line-length=1 deep",
            "gofmt -d deep",
            "gofmt -l .",
            "yamllint deep",
            "terraform fmt -check -diff deep",
            "rustfmt --check deep/x.rs",
            "cargo fmt --check",
            "helm template ./deep",
            "helm lint deep",
            "helm show values deep",
            "diff deep notes.txt",
            "sdiff deep notes.txt",
            "zdiff deep notes.txt",
            "diff --no-dereference -r deep chart",
        ];
        fs::write(at("work/deep/x.rs"), "").unwrap();
        symlink(at("work/notes.txt"), at("work/deep/a/plain.py")).unwrap();
        for line in lines {
            assert!(!is_secret(&world, line), "{line}");
        }
        symlink(at("home/.newtool/config"), at("work/deep/a/x.py")).unwrap();
        for line in lines {
            assert!(is_secret(&world, line), "{line}");
        }
        assert!(!is_secret(&world, "ruff check chart"));
        assert!(!is_secret(&world, "wc -l deep/a/b.py"));
        fs::remove_file(at("work/deep/a/x.py")).unwrap();
        symlink(at("home"), at("work/deep/a/h")).unwrap();
        assert!(is_secret(&world, "isort --diff deep"));
    }

    #[test]
    fn what_files_of_a_tree_name_is_opened_too() {
        let world = world();
        let at = |name: &str| world.at(name);
        let secret = at("home/.newtool/config").display().to_string();
        let check = |file: &str, text: &str, lines: &[&str], expected: bool| {
            fs::write(at("work").join(file), text).unwrap();
            for line in lines {
                assert_eq!(is_secret(&world, line), expected, "{line}: {file}: {text}");
            }
            fs::remove_file(at("work").join(file)).unwrap();
        };
        let ruff = ["ruff check", "ruff check sub", "ruff check sub/x.rs"];
        check("ruff.toml", &format!("extend = '{secret}'"), &ruff, true);
        check(
            "pyproject.toml",
            &format!("[tool.ruff]\nextend = '{secret}'"),
            &ruff,
            true,
        );
        check("ruff.toml", "extend = '~/.newtool/config'", &ruff, true);
        check("ruff.toml", "extend = '../home/.newtool/config'", &ruff, true);
        check("ruff.toml", "extend = '$A'", &ruff, true);
        check(
            "ruff.toml",
            "line-length = 1\nextend-exclude = ['x']",
            &ruff,
            false,
        );
        check(
            "sub/.ruff.toml",
            &format!("extend = '{secret}'"),
            &["ruff check ."],
            true,
        );
        fs::write(at("work/base.toml"), format!("extend = '{secret}'")).unwrap();
        check("ruff.toml", "extend = 'base.toml'", &ruff, true);
        fs::write(at("work/base.toml"), "line-length = 1").unwrap();
        check("ruff.toml", "extend = 'base.toml'", &ruff, false);
        let yaml = ["yamllint .", "yamllint notes.txt"];
        check(".yamllint", &format!("extends: {secret}\n"), &yaml[..1], true);
        check(".yamllint", "extends: default\n", &yaml, false);
        let rust = [
            "rustfmt --check x.rs",
            "rustfmt --check sub/x.rs ./x.rs",
            "cargo fmt --check --all",
        ];
        check("x.rs", &format!("#[path = \"{secret}\"]\nmod a;"), &rust, true);
        check(
            "x.rs",
            "#[path = \"../../home/.newtool/config\"]\nmod a;",
            &rust,
            true,
        );
        check("x.rs", "#[path = \"notes.txt\"]\nmod a;", &rust, false);
        let lib = format!("[lib]\npath = '{secret}'");
        check("Cargo.toml", &lib, &["cargo fmt --check"], true);
        check(
            "Cargo.toml",
            "[lib]\npath = 'x.rs'",
            &["cargo fmt --check"],
            false,
        );
    }

    #[test]
    fn a_workspace_within_our_state_is_open_and_the_state_is_not() {
        let mut world = world();
        let workspace = world.dir.path().join("state/workspaces/x");
        fs::create_dir_all(&workspace).unwrap();
        fs::write(workspace.join("a"), "x").unwrap();
        world.place.directory = workspace;
        assert!(!is_secret(&world, "cat a"));
        assert!(is_secret(&world, "cat ../../things.jsonl"));
    }

    #[test]
    fn from_a_home_its_settings_are_as_closed_as_from_elsewhere() {
        let mut world = world();
        world.place.directory = world.dir.path().join("home");
        assert!(is_secret(&world, "cat .newtool/config"));
        for line in [
            "grep -r x .",
            "git grep --no-index -n SECRET",
            "git grep --untracked -e SECRET",
            "ruff check",
            "yamllint .",
        ] {
            assert!(is_secret(&world, line), "{line}");
        }
        assert!(!is_secret(&world, "cat notes.txt"));
    }
}
