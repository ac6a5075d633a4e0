//! Detection of files that a line makes or replaces, and that programs run or obey, with links resolved.
//!
//! The policy sees only names. A harmless one can be a link to a startup file that does not exist yet, or to the
//! settings of the repository; and what a command copies brings names of its own.

use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};

use ringfence_exec::trust::{Acted, glob};
use ringfence_policy::cascade::{Decision, Destination, Source, is_obeyed};

use super::ObeyedPlaces;
use super::line_directory::{LineDirectory, real};

/// Maximum number of paths examined. A person is asked about a line that could make more.
const MAX_PATHS: usize = 20_000;

/// Maximum number of links that follow each other, as in path_resolution(7).
const MAX_LINKS: usize = 40;

/// Returns the first file that an allowed line makes or replaces, and that programs run or obey, or that is a
/// secret.
pub(crate) fn obeyed(decision: &Decision, place: &LineDirectory, known: &ObeyedPlaces) -> Option<PathBuf> {
    first_obeyed(decision, place, known, MAX_PATHS)
}

fn first_obeyed(
    decision: &Decision,
    place: &LineDirectory,
    known: &ObeyedPlaces,
    most: usize,
) -> Option<PathBuf> {
    if decision.parts.iter().all(|part| part.destinations.is_empty()) {
        return None;
    }
    let start = real(&place.directory).unwrap_or_else(|| place.directory.clone());
    let git = Acted::find(&start, &[]);
    let git = git.paths.into_iter().chain(git.missing).map(|target| target.path);
    let git = git.filter_map(|path| canonicalize_missing(&path, MAX_LINKS));
    let mut search = Search {
        place,
        known,
        git: git.collect(),
        start,
        left: most,
    };
    let mut all = decision.parts.iter().flat_map(|part| &part.destinations);
    all.find_map(|destination| search.destination(destination).err())
}

/// The first path that a person has to see is an error.
type Checked = Result<(), PathBuf>;

struct Search<'a> {
    place: &'a LineDirectory,
    known: &'a ObeyedPlaces,
    /// Files and directories to which the settings of git lead.
    git: Vec<PathBuf>,
    /// The line's directory, without links.
    start: PathBuf,
    left: usize,
}

impl Search<'_> {
    fn destination(&mut self, destination: &Destination) -> Checked {
        for path in self.expanded(&destination.path)? {
            match &destination.source {
                None => self.check(&path)?,
                Some(source) => self.copied(source, &path)?,
            }
        }
        Ok(())
    }

    fn copied(&mut self, source: &Source, destination: &Path) -> Checked {
        for from in self.expanded(&source.path)? {
            let below = match from.file_name() {
                Some(name) => destination.join(name),
                None => destination.to_path_buf(),
            };
            self.check(&below)?;
            if source.merges && from.is_dir() {
                self.merged(&from, source.follows, &[destination.to_path_buf(), below])?;
            }
        }
        Ok(())
    }

    /// Checks the names below a directory, which are made below one of the destinations.
    fn merged(&mut self, top: &Path, follows: bool, destinations: &[PathBuf]) -> Checked {
        let mut pending = vec![top.to_path_buf()];
        while let Some(directory) = pending.pop() {
            for entry in fs::read_dir(&directory).into_iter().flatten().flatten() {
                let path = entry.path();
                self.count(&path)?;
                let name = path.strip_prefix(top).map_err(|_| path.clone())?;
                if is_obeyed(&name.to_string_lossy()) {
                    return Err(path);
                }
                for destination in destinations {
                    self.check(&destination.join(name))?;
                }
                // Links that lead in a circle end at the bound of paths, or of links.
                let is_directory = match follows {
                    true => path.is_dir(),
                    false => entry.file_type().is_ok_and(|kind| kind.is_dir()),
                };
                if is_directory {
                    pending.push(path);
                }
            }
        }
        Ok(())
    }

    /// Returns the paths that a word can mean.
    fn expanded(&mut self, text: &str) -> Result<Vec<PathBuf>, PathBuf> {
        let mut all = Vec::new();
        for path in self.place.absolute(text) {
            let found = glob::expand(&path, self.left);
            if found.truncated {
                return Err(path);
            }
            for path in &found.paths {
                self.count(path)?;
            }
            all.extend(found.paths);
            // A pattern that fits nothing is a name.
            all.push(path);
        }
        Ok(all)
    }

    fn count(&mut self, path: &Path) -> Checked {
        self.left = self.left.checked_sub(1).ok_or_else(|| path.to_path_buf())?;
        Ok(())
    }

    fn check(&self, path: &Path) -> Checked {
        let Some(end) = canonicalize_missing(path, MAX_LINKS) else {
            return Err(path.to_path_buf());
        };
        let inside = end.strip_prefix(&self.start).unwrap_or(&end);
        if is_obeyed(&inside.to_string_lossy()) || self.is_known(&end, inside) || self.place.is_secret(&end) {
            return Err(end);
        }
        Ok(())
    }

    /// Returns `true` for a place that settings name.
    fn is_known(&self, end: &Path, inside: &Path) -> bool {
        let names: Vec<&OsStr> = inside.iter().collect();
        let protected = |count: usize| self.known.protected.ends(&names[..count]);
        let mut named = self.git.iter().chain(&self.known.trusted);
        named.any(|place| end.starts_with(place)) || (1..=names.len()).any(protected)
    }
}

/// Returns the path without links, whether it exists or not, as `realpath -m` does; `None` if only the kernel can tell.
fn canonicalize_missing(path: &Path, links: usize) -> Option<PathBuf> {
    if let Some(real) = real(path) {
        return Some(real);
    }
    let (above, name) = (path.parent()?, path.file_name()?);
    match fs::read_link(path) {
        // What it leads to is missing.
        Ok(target) => canonicalize_missing(&above.join(target), links.checked_sub(1)?),
        Err(_) => Some(canonicalize_missing(above, links)?.join(name)),
    }
}

#[cfg(test)]
mod tests {
    use super::super::test_world::World;
    use super::*;
    use ringfence_exec::protected::{PROTECTED, Protected};
    use ringfence_policy::cascade::{Rules, Verdict, decide};

    fn world() -> World {
        World::new(
            &[
                "home",
                "work/.git/hooks",
                "work/plain/deep",
                "work/src/sub",
                "work/out/src",
            ],
            &[
                "work/config",
                "work/.git/config",
                "work/src/sub/x",
                "work/plain/deep/y",
            ],
        )
    }

    #[track_caller]
    fn check(world: &World, line: &str, expected: bool) {
        assert_eq!(first(world, line, MAX_PATHS).is_some(), expected, "{line}");
    }

    #[track_caller]
    fn first(world: &World, line: &str, most: usize) -> Option<PathBuf> {
        let patterns = [
            "cp *",
            "mv *",
            "ln *",
            "tee *",
            "install *",
            "rsync *",
            "git mv *",
            "split *",
            "csplit *",
        ];
        let rules = Rules {
            allow: patterns.map(|pattern| pattern.parse().unwrap()).to_vec(),
            ..Rules::default()
        };
        let decision = decide(line, &rules);
        assert_eq!(decision.verdict, Verdict::Allow, "{line}: {:?}", decision.reasons);
        let known = ObeyedPlaces {
            trusted: vec![world.at("work/skills")],
            protected: Protected::new(["mine"]),
        };
        first_obeyed(&decision, &world.place, &known, most)
    }

    #[test]
    fn a_link_to_what_is_obeyed_is_found_whether_it_is_there_or_not() {
        let world = world();
        world.link("work/.git", "work/gg");
        world.link("home/.bashrc", "work/notes");
        world.link("home/.ssh", "work/kk");
        world.link("work/notes", "work/chain");
        for line in [
            "cp config gg/",
            "cp config gg",
            "cp -t gg config",
            "mv config gg/x",
            "ln config gg/x",
            "tee notes",
            "tee -a chain",
            "cp config kk/rc",
            "tee gg/new",
            "split config notes",
            "cd plain && cp y ../gg/x",
        ] {
            check(&world, line, true);
        }
        for line in [
            "cp config plain",
            "cp config new",
            "tee plain/deep/new",
            "mv config out/",
            "tee a/b/c",
        ] {
            check(&world, line, false);
        }
    }

    #[test]
    fn what_is_protected_from_programs_is_obeyed() {
        for name in PROTECTED {
            assert!(is_obeyed(&name.replace('*', "a")), "{name}");
        }
        let world = world();
        let settings = "[core]\nhooksPath = tools/hk\n[include]\npath = ../git.inc\n";
        fs::write(world.at("work/.git/config"), settings).unwrap();
        fs::create_dir_all(world.at("work/tools/hk")).unwrap();
        fs::create_dir(world.at("work/skills")).unwrap();
        for line in [
            "cp config tools/hk/pre-commit",
            "cp config git.inc",
            "cp config skills/good.py",
            "cp config plain/mine",
            "tee mine/deep",
        ] {
            check(&world, line, true);
        }
        check(&world, "cp config tools/other", false);
    }

    #[test]
    fn names_that_a_program_counts_up_are_found() {
        let world = world();
        world.link("work/.git/config", "work/xaa");
        world.link("work/.git/config", "work/xx00");
        world.link("work/.git/config", "work/out/part-ab");
        for line in [
            "split config",
            "split -l 1 config x",
            "split config out/part-",
            "csplit config 2",
            "csplit -f out/part- config 2",
        ] {
            check(&world, line, true);
        }
        check(&world, "split config other", false);
    }

    #[test]
    fn links_are_followed_where_the_command_follows_them() {
        let world = world();
        fs::create_dir_all(world.at("work/real")).unwrap();
        fs::write(world.at("work/real/config"), "x").unwrap();
        fs::create_dir_all(world.at("work/vendor")).unwrap();
        world.link("work/real", "work/vendor/src");
        world.link("work/.git/config", "work/out/src/config");
        check(&world, "cp -rL vendor/. out", true);
        check(&world, "rsync -aL vendor/ out", true);
        check(&world, "cp -r vendor/. plain", false);
        world.link("work/vendor", "work/vendor/loop");
        check(&world, "cp -rL vendor/. plain", false);
    }

    #[test]
    fn what_a_tree_brings_is_found() {
        let world = world();
        check(&world, "cp -r src out", false);
        check(&world, "cp -a src/. out", false);
        check(&world, "rsync -a src/ out", false);
        // A file that is there already, and leads elsewhere.
        world.link("home/.profile", "work/out/src/sub");
        check(&world, "cp -r src out", true);
        check(&world, "cp -rT src out/src", true);
        let own = world.at("work/src/.git");
        fs::create_dir(&own).unwrap();
        fs::write(own.join("config"), "x").unwrap();
        for line in ["cp -a src/. .", "cp -r src/ .", "cp -rT src .", "rsync -a src/ ."] {
            check(&world, line, true);
        }
        check(&world, "mv src/sub out/other", false);
    }

    #[test]
    fn a_tree_that_is_too_large_is_asked_about() {
        let world = world();
        let most = 40;
        for number in 0..most {
            fs::write(world.at(&format!("work/src/{number}")), "").unwrap();
        }
        assert!(first(&world, "cp -r src out", most).is_some());
        assert!(first(&world, "cp config out", most).is_none());
    }
}
