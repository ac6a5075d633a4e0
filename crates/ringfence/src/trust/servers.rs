//! The code of the configured MCP servers, which no program may change.
//!
//! Which words of a command are code cannot be known. So for a server on the host all of them are, except those
//! that its entry declares as data.

mod search;

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io::{BufRead, BufReader, Read};
use std::os::unix::fs::PermissionsExt;
use std::path::{Component, Path, PathBuf};

use ringfence_exec::trust;
use ringfence_policy::{HostServer, Trusted};

use super::fenced;
use super::tokens::pieces;
use crate::config::schema::Server;
use crate::config::values::ServerFence;
use crate::context::Context;
use crate::named_paths::is_broad;

/// Default search path of servers on the host.
const PATH: &str = "/usr/local/bin:/usr/bin:/bin";

/// Variables of directories around everything that a user has: only a program that writes to the directory
/// itself could put something in the server's way.
const SURROUNDINGS: &[&str] = &["HOME", "PWD", "OLDPWD", "TMPDIR"];

/// Maximum length of a script's first line, as in the kernel.
const MAX_FIRST_LINE: u64 = 256;

/// Returns the trusted paths of a server, for programs that may write these trees.
pub(super) fn trusted(name: &str, server: &Server, trees: &[&Path], context: &Context) -> Trusted {
    match server.fence {
        ServerFence::Host => Trusted {
            servers: vec![on_host(name, server, context)],
            ..Trusted::none()
        },
        ServerFence::Fenced => {
            // Of a directory around much else, what lies beside its contents is not a package.
            let is_shared = |directory: &Path| {
                is_broad(directory, &context.environment)
                    && !trees.iter().any(|tree| trust::holds(tree, directory))
            };
            fenced::trusted(name, server, &is_shared)
        }
    }
}

/// Returns a server on the host with every path that its command and its environment name.
fn on_host(name: &str, server: &Server, context: &Context) -> HostServer {
    let mut found = ServerPaths::new(server, context);
    let home = context.environment.text("HOME");
    let env: Vec<(&str, &str)> = server.env.iter().map(|text| variable(text, context)).collect();
    let path = env.iter().find(|(name, _)| *name == "PATH");
    let path = path.map_or(PATH, |(_, value)| value);
    let lookups: Vec<PathBuf> = std::env::split_paths(path).collect();
    found.lookups = lookups.iter().flat_map(|path| names(path).0).collect();
    let mut words: BTreeSet<String> = BTreeSet::new();
    words.extend(server.command.iter().flat_map(|word| pieces(word, home)));
    for (name, value) in env {
        match SURROUNDINGS.contains(&name) {
            true => found.surrounding(Path::new(value)),
            false => words.extend(pieces(value, home)),
        }
    }
    words.extend(lookups.iter().filter_map(|path| path.to_str().map(str::to_owned)));
    if let Some(program) = server.command.first() {
        found.program(Path::new(program), &lookups);
    }
    found.words(&words, &lookups);
    // What is named comes first: a refusal says the first path that is in the way.
    let named: Vec<PathBuf> = found.code.iter().chain(&found.around).cloned().collect();
    found.search();
    let reached = found.code.into_iter().chain(found.around);
    let reached = reached.filter(|path| !named.contains(path)).collect();
    HostServer {
        name: name.to_owned(),
        code: [named.clone(), reached].concat(),
        entries: found.entries.into_iter().collect(),
        data: found.data.into_iter().collect(),
        unsearched: found.unsearched,
    }
}

/// Splits an entry of `env` into name and value, which may be the caller's.
fn variable<'a>(text: &'a str, context: &'a Context) -> (&'a str, &'a str) {
    let passed_on = || (text, context.environment.text(text).unwrap_or_default());
    text.split_once('=').unwrap_or_else(passed_on)
}

/// The paths of a server, found so far.
struct ServerPaths<'a> {
    context: &'a Context,
    seen: BTreeSet<PathBuf>,
    code: BTreeSet<PathBuf>,
    /// Directories that code imports from.
    around: BTreeSet<PathBuf>,
    entries: BTreeSet<PathBuf>,
    data: BTreeSet<PathBuf>,
    /// Directories of the search path, which nothing is imported from.
    lookups: BTreeSet<PathBuf>,
    /// Directories with code that are still to be searched, and the number of their entries that may be.
    todo: Vec<PathBuf>,
    searched: BTreeSet<PathBuf>,
    libraries: BTreeSet<PathBuf>,
    left: usize,
    /// First path that cannot be searched.
    unsearched: Option<PathBuf>,
}

impl<'a> ServerPaths<'a> {
    fn new(server: &Server, context: &'a Context) -> Self {
        let data = server.data.iter().flat_map(|path| names(path).0);
        Self {
            context,
            seen: BTreeSet::new(),
            code: BTreeSet::new(),
            around: BTreeSet::new(),
            entries: BTreeSet::new(),
            data: data.collect(),
            lookups: BTreeSet::new(),
            todo: Vec::new(),
            searched: BTreeSet::new(),
            libraries: BTreeSet::new(),
            left: search::MAX_ENTRIES,
            unsearched: None,
        }
    }

    /// Adds every path among these words, and the programs that they name.
    fn words(&mut self, words: &BTreeSet<String>, lookups: &[PathBuf]) {
        let paths = || words.iter().map(Path::new);
        let directories: Vec<&Path> = paths()
            .filter(|path| path.is_absolute() && path.is_dir())
            .collect();
        for path in paths() {
            let goes_up = path.components().any(|part| part == Component::ParentDir);
            if path.is_absolute() {
                self.named(path);
            } else if goes_up {
                // It starts in a directory of its own. Only from another that is named can it lead anywhere.
                for directory in &directories {
                    self.named(&directory.join(path));
                }
            } else if path.components().count() == 1 {
                self.program(path, lookups);
            }
        }
    }

    /// Adds a path unless it is data.
    fn named(&mut self, path: &Path) {
        if !self.is_data(path) {
            self.add(path);
        }
    }

    fn is_data(&self, path: &Path) -> bool {
        names(path).0.iter().any(|name| self.data.contains(name))
    }

    /// Adds a program by its path, or the first one of this name on the search path.
    fn program(&mut self, name: &Path, lookups: &[PathBuf]) {
        if name.is_absolute() {
            return self.add(name);
        }
        let mut candidates = lookups.iter().map(|directory| directory.join(name));
        if let Some(found) = candidates.find(|path| is_executable(path)) {
            self.add(&found);
        }
    }

    /// Adds a path with the links on the way, the directory that a script imports from, its virtual
    /// environment and its interpreter.
    fn add(&mut self, path: &Path) {
        let (names, links) = names(path);
        if !names.iter().any(|path| is_there_at_all(path)) || !self.seen.insert(path.to_owned()) {
            return;
        }
        for name in names.iter().chain(&links) {
            if !name.is_dir() {
                let above = name
                    .parent()
                    .filter(|above| !is_broad(above, &self.context.environment));
                self.around.extend(above.map(Path::to_owned));
            }
            self.python(name);
        }
        let line = first_line(path);
        if let Some(end) = names.last() {
            self.import_beside(end, line.as_deref());
        }
        self.code.extend(names);
        self.entries.extend(links);
        for interpreter in line.map(|line| interpreters(&line)).unwrap_or_default() {
            self.add(&interpreter);
        }
    }

    /// Adds a directory that is not code.
    fn surrounding(&mut self, path: &Path) {
        let (names, links) = names(path);
        self.entries.extend(names.into_iter().chain(links));
    }
}

/// Returns the names of a path, as given and without links, and the links on the way.
fn names(path: &Path) -> (Vec<PathBuf>, Vec<PathBuf>) {
    let given = without_dots(path);
    match trust::resolve(path) {
        Ok(found) => (vec![given, found.path], found.links),
        Err(_) => (vec![given], Vec::new()),
    }
}

fn without_dots(path: &Path) -> PathBuf {
    let mut plain = PathBuf::new();
    for part in path.components() {
        match part {
            Component::CurDir => {}
            Component::ParentDir => drop(plain.pop()),
            Component::RootDir | Component::Normal(_) | Component::Prefix(_) => plain.push(part),
        }
    }
    plain
}

/// Returns `true` if a path, existing or not, lies in an existing directory below the root, or is one. Much in
/// a script or an address looks like a path.
fn is_there_at_all(path: &Path) -> bool {
    let first = path.components().take(2).collect::<PathBuf>();
    first.symlink_metadata().is_ok()
}

/// Returns the first line of a file.
fn first_line(path: &Path) -> Option<Vec<u8>> {
    let is_file = fs::metadata(path).is_ok_and(|found| found.is_file());
    let file = is_file.then(|| File::open(path).ok()).flatten()?;
    let mut line = Vec::new();
    let read = BufReader::new(file.take(MAX_FIRST_LINE)).read_until(b'\n', &mut line);
    read.ok().map(|_| line)
}

/// Returns the absolute paths in the first line of a script.
fn interpreters(line: &[u8]) -> Vec<PathBuf> {
    let line = String::from_utf8_lossy(line);
    let words = line.strip_prefix("#!").unwrap_or_default().split_whitespace();
    words
        .map(PathBuf::from)
        .filter(|word| word.is_absolute())
        .collect()
}

fn is_executable(path: &Path) -> bool {
    fs::metadata(path).is_ok_and(|found| found.is_file() && found.permissions().mode() & 0o111 != 0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::context::Configuration;
    use crate::env::Environment;
    use ringfence_exec::local::Log;
    use std::os::unix::fs::symlink;

    struct Dir(tempfile::TempDir);

    impl Dir {
        fn new() -> Self {
            let dir = Self(tempfile::tempdir().unwrap());
            for name in ["p/dist", "p/env/bin", "bin", "home"] {
                fs::create_dir_all(dir.path(name)).unwrap();
            }
            for name in ["p/dist/index.js", "p/env/pyvenv.cfg"] {
                fs::write(dir.path(name), "").unwrap();
            }
            fs::write(dir.path("bin/python3"), "\x7fELF").unwrap();
            let executable = fs::Permissions::from_mode(0o755);
            for name in ["bin/python3", "p/dist/index.js"] {
                fs::set_permissions(dir.path(name), executable.clone()).unwrap();
            }
            symlink(dir.path("bin/python3"), dir.path("p/env/bin/python")).unwrap();
            symlink(dir.path("p/dist/index.js"), dir.path("bin/units")).unwrap();
            let script = format!("#!{}\n", dir.path("p/env/bin/python").display());
            fs::write(dir.path("bin/script"), script).unwrap();
            dir
        }

        fn path(&self, name: &str) -> PathBuf {
            self.0.path().canonicalize().unwrap().join(name)
        }

        fn server(&self, entry: &str) -> HostServer {
            let entry = entry.replace("ROOT", self.path("").to_str().unwrap().trim_end_matches('/'));
            let server: Server = toml::from_str(&entry).unwrap();
            let home = self.path("home").display().to_string();
            let context = Context::new(
                Environment::from([("HOME", &*home)]),
                Configuration::Layers,
                Log::default(),
            );
            on_host("units", &server, &context)
        }

        /// Returns the names below the directory that are code.
        fn code(&self, entry: &str) -> Vec<String> {
            let code = self.server(entry).code;
            let root = self.path("");
            let below = code.iter().filter_map(|path| path.strip_prefix(&root).ok());
            let mut below: Vec<String> = below.map(|path| path.display().to_string()).collect();
            below.sort();
            below.dedup();
            below
        }
    }

    #[test]
    fn every_path_is_code() {
        let dir = Dir::new();
        let index = &["p/dist", "p/dist/index.js"];
        for entry in [
            "command = ['node', 'ROOT/p/dist/index.js']",
            "command = ['timeout', '60', 'ROOT/p/dist/index.js']",
            "command = ['sh', '-c', 'exec ROOT/p/dist/index.js --quiet']",
            "command = ['sh', '-c', 'exec ~/../p/dist/index.js']",
            "command = ['node', '--require=ROOT/p/dist/index.js']",
            "command = ['uv', '--directory', 'ROOT/p/dist', 'run', '../dist/index.js']",
            "command = ['x']\nenv = ['NODE_OPTIONS=--require ROOT/p/dist/index.js']",
        ] {
            assert_eq!(dir.code(entry), index, "{entry}");
        }
        let missing = dir.code("command = ['node', 'ROOT/p/new/x.js']");
        assert_eq!(missing, ["p/new", "p/new/x.js"]);
    }

    #[test]
    fn what_a_path_leads_to_is_code() {
        let dir = Dir::new();
        let environment = ["bin", "bin/python3", "p/env", "p/env/bin", "p/env/bin/python"];
        assert_eq!(
            dir.code("command = ['ROOT/p/env/bin/python', '-m', 'x']"),
            environment
        );
        let by_path = "command = ['env', 'units']\nenv = ['PATH=ROOT/bin']";
        let all = ["bin", "bin/units", "p/dist", "p/dist/index.js"];
        assert_eq!(dir.code(by_path), all);
        assert_eq!(dir.server(by_path).entries, [dir.path("bin/units")]);
        let script = dir.code("command = ['ROOT/bin/script']");
        assert!(script.contains(&"p/env".to_owned()), "{script:?}");
    }

    #[test]
    fn data_is_what_the_entry_says() {
        let dir = Dir::new();
        let files = "command = ['npx', 'files', 'ROOT/p']\ndata = ['ROOT/p']";
        assert_eq!(dir.code(files), [""; 0]);
        let both = "command = ['node', 'ROOT/p/dist/index.js', 'ROOT/p']\ndata = ['ROOT/p/']";
        assert_eq!(dir.code(both), ["p/dist", "p/dist/index.js"]);
        // Never the program.
        let program = dir.code("command = ['ROOT/p/dist/index.js']\ndata = ['ROOT/p/dist/index.js']");
        assert_eq!(program, ["p/dist", "p/dist/index.js"]);
    }

    #[test]
    fn what_code_leads_to_is_code() {
        let dir = Dir::new();
        let site = "p/env/lib/python3.13/site-packages";
        for name in [
            site,
            "x/a b",
            "x/c",
            "base/lib/python3.13/site-packages",
            "base/bin",
            "egg",
            "it's",
            "new",
        ] {
            fs::create_dir_all(dir.path(name)).unwrap();
        }
        let write = |name: &str, text: &str| {
            let text = text.replace("ROOT", dir.path("").to_str().unwrap().trim_end_matches('/'));
            fs::write(dir.path(name), text).unwrap();
        };
        write("p/env/pyvenv.cfg", "version = 3\nHome = ROOT/base/bin\n");
        write("base/lib/python3.13/site-packages/x.egg-link", "ROOT/egg\n..");
        write(
            &format!("{site}/x.pth"),
            "# ROOT/none\nROOT/x/a b\nimport y.z, os\n",
        );
        fs::create_dir(dir.path(site).join("y")).unwrap();
        write(
            &format!("{site}/y/z.py"),
            "it's = f('ROOT/x/c', '/usr', '/', \"ROOT/it's\")",
        );
        write(
            &format!("{site}/direct_url.json"),
            "{\"url\":\"file://ROOT/copied\"}",
        );
        symlink(dir.path("new/none/../up"), dir.path("p/env/link")).unwrap();
        symlink("loop", dir.path("p/env/loop")).unwrap();
        let entry = "command = ['ROOT/p/env/bin/python', '-m', 'x']";
        let code = dir.code(entry);
        for name in [
            "x/a b",
            "x/c",
            "it's",
            "egg",
            "base/bin",
            "base/lib/python3.13",
            "new/up",
        ] {
            assert!(code.contains(&name.to_owned()), "{name}: {code:?}");
        }
        for name in ["none", "copied", "x", ""] {
            assert!(!code.contains(&name.to_owned()), "{name}: {code:?}");
        }
        assert_eq!(dir.server(entry).unsearched, None);
        let data = format!("{entry}\ndata = ['ROOT/x/c', 'ROOT/{site}/y']");
        assert!(dir.code(&data).contains(&"x/a b".to_owned()));
        assert!(!dir.code(&data).contains(&"x/c".to_owned()));
    }

    #[test]
    fn what_cannot_be_searched_is_named() {
        let dir = Dir::new();
        let file = dir.path("p/dist/x.pth");
        let entry = "command = ['node', 'ROOT/p/dist/index.js']";
        for text in ["import x\n".repeat(120_000).into_bytes(), b"/p/\xff\n".to_vec()] {
            fs::write(&file, text).unwrap();
            assert_eq!(dir.server(entry).unsearched, Some(file.clone()));
        }
        let data = format!("{entry}\ndata = ['ROOT/p/dist']");
        assert_eq!(dir.server(&data).unsearched, None);
    }

    #[test]
    fn a_home_directory_is_no_code() {
        let dir = Dir::new();
        let server = dir.server("command = ['python3', 'ROOT/home/server.py']\nenv = ['HOME']");
        assert!(server.entries.contains(&dir.path("home")));
        assert!(!server.code.contains(&dir.path("home")));
        assert!(server.code.contains(&dir.path("home/server.py")));
    }
}
