//! Searches the code of a server on the host for paths that lead out of it: links, virtual environments, and
//! packages that are installed where they are edited.

use std::ffi::OsStr;
use std::fs::{self, DirEntry, File};
use std::io::Read;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use ringfence_exec::trust;

use super::super::tokens::pieces;
use super::ServerPaths;
use crate::named_paths::is_broad;

/// Maximum number of directory entries examined for a server.
pub(super) const MAX_ENTRIES: usize = 100_000;

/// Maximum number of paths that a server's code leads to.
const MAX_REACHED: usize = 4096;

/// Maximum size of a file that names paths.
const MAX_TEXT: u64 = 1 << 20;

/// Name prefixes of interpreters that load the packages of their installation.
const PYTHONS: &[&str] = &["python", "pypy", "graalpy"];

/// Directories around much else. A module that mentions one imports nothing straight from it.
const SURROUNDINGS: &[&str] = &["/usr", "/run", "/mnt", "/media"];

impl ServerPaths<'_> {
    /// Adds the paths that the found code leads to.
    pub(super) fn search(&mut self) {
        while let Some(directory) = self.todo.pop() {
            self.below(&directory);
            if self.code.len() + self.around.len() > MAX_REACHED {
                return self.give_up(&directory);
            }
        }
    }

    /// Adds the directories that a script, or a directory of scripts, imports from.
    pub(super) fn import_beside(&mut self, end: &Path, first_line: Option<&[u8]>) {
        let directory = if end.is_dir() { Some(end) } else { end.parent() };
        let is_script = first_line.is_none_or(|line| !line.starts_with(b"\x7fELF"));
        let Some(directory) = directory.filter(|_| is_script && end.exists()) else {
            return;
        };
        if !is_broad(directory, &self.context.environment) && !self.lookups.contains(directory) {
            self.todo.push(directory.to_owned());
        }
        // Node.js looks there for the modules of a script, and of what a link leads to.
        let modules = directory.ancestors().map(|above| above.join("node_modules"));
        for modules in modules.filter(|modules| modules.is_dir()) {
            self.todo.push(modules.clone());
            self.around.insert(modules);
        }
    }

    /// Adds the virtual environment or the installation of an interpreter.
    pub(super) fn python(&mut self, program: &Path) {
        let Some(above) = program.parent().and_then(Path::parent) else {
            return;
        };
        if above.join("pyvenv.cfg").is_file() {
            self.todo.push(above.to_owned());
            self.around.insert(above.to_owned());
        } else if is_python(program) && program.is_file() {
            self.installation(above);
            self.user_packages();
        }
    }

    /// Adds everything below a directory that leads elsewhere.
    fn below(&mut self, top: &Path) {
        let mut todo = vec![top.to_owned()];
        while let Some(directory) = todo.pop() {
            if self.data.contains(&directory) || !self.searched.insert(directory.clone()) {
                continue;
            }
            for entry in self.entries_of(&directory) {
                let is_directory = entry.file_type().is_ok_and(|kind| kind.is_dir());
                if is_directory && entry.file_name() != ".git" {
                    todo.push(entry.path());
                } else {
                    self.entry(&entry, top);
                }
            }
        }
    }

    fn entries_of(&mut self, directory: &Path) -> Vec<DirEntry> {
        let entries = match fs::read_dir(directory) {
            Ok(entries) => entries.collect::<Result<Vec<DirEntry>, _>>(),
            // It was removed, or the server cannot enter it either.
            Err(_) if directory.join(".").symlink_metadata().is_err() => return Vec::new(),
            Err(error) => Err(error),
        };
        let entries = entries.ok().filter(|entries| entries.len() <= self.left);
        self.left -= entries.as_ref().map_or(self.left, Vec::len);
        entries.unwrap_or_else(|| {
            self.give_up(directory);
            Vec::new()
        })
    }

    /// Adds the path that an entry of a directory, `top` or below it, leads to.
    fn entry(&mut self, entry: &DirEntry, top: &Path) {
        let path = entry.path();
        match entry.file_type() {
            Ok(kind) if kind.is_symlink() => self.link(&path, top),
            Ok(kind) if kind.is_file() => self.file(&path),
            Ok(_) => {}
            Err(_) => self.give_up(&path),
        }
    }

    /// Adds the target of a link, unless that lies below `top`, too.
    fn link(&mut self, link: &Path, top: &Path) {
        let Ok(found) = trust::resolve(link) else {
            // It leads nowhere as yet.
            let target = link.read_link().unwrap_or_default();
            let directory = link.parent().unwrap_or(link);
            return self.named(&directory.join(target));
        };
        let is_data = |path: &PathBuf| self.data.iter().any(|data| path.starts_with(data));
        let leads_out = |path: &PathBuf| !path.starts_with(top) || is_data(path);
        if leads_out(&found.path) || found.links.iter().any(leads_out) {
            self.entries.extend(found.links);
            self.named(&found.path);
        }
    }

    /// Adds the paths that a file names, if interpreters import from there.
    fn file(&mut self, path: &Path) {
        let name = path.file_name().unwrap_or_default();
        let directory = path.parent().unwrap_or(path);
        match path.extension().and_then(OsStr::to_str) {
            Some("pth" | "egg-link") => self.search_path(path, directory),
            Some("cfg") if name == "pyvenv.cfg" => self.environment(path, directory),
            Some("py") if name.as_bytes().starts_with(b"__editable__") => self.literals(path),
            Some("json") if name == "direct_url.json" => self.origin(path),
            _ => {}
        }
    }

    /// Adds the directories of a `.pth` file, and the paths that its imported modules mention.
    fn search_path(&mut self, file: &Path, site: &Path) {
        let Some(text) = self.text(file) else { return };
        let is_code = |line: &&str| line.starts_with("import ") || line.starts_with("import\t");
        let lines = text.trim_start_matches('\u{feff}').lines();
        let lines = lines.filter(|line| !line.trim().is_empty() && !line.starts_with('#'));
        let (code, directories): (Vec<&str>, Vec<&str>) = lines.partition(is_code);
        for directory in directories {
            self.named(&site.join(directory.trim_end()));
        }
        for line in code {
            let paths = pieces(line, None);
            for path in paths.iter().map(Path::new).filter(|path| path.is_absolute()) {
                self.mentioned(path);
            }
            for module in modules(line, site) {
                self.literals(&module);
            }
        }
    }

    /// Adds the installation that a virtual environment was made from.
    fn environment(&mut self, file: &Path, directory: &Path) {
        let Some(text) = self.text(file) else { return };
        let value = |name: &str| {
            let mut pairs = text.lines().filter_map(|line| line.split_once('='));
            let found = pairs.find(|(key, _)| key.trim().eq_ignore_ascii_case(name));
            found.map(|(_, value)| value.trim())
        };
        let sees_all = value("include-system-site-packages");
        if sees_all.is_some_and(|value| value.eq_ignore_ascii_case("true")) {
            self.user_packages();
        }
        let Some(home) = value("home").map(|home| directory.join(home)) else {
            return;
        };
        if let Some(prefix) = home.parent() {
            self.installation(prefix);
        }
        self.around.insert(home);
    }

    /// Adds the packages of an installation.
    fn installation(&mut self, prefix: &Path) {
        // The interpreters of pyenv lie beside its scripts.
        let shims = prefix.join("shims").is_dir().then(|| prefix.join("versions"));
        let others = shims
            .map(|versions| self.entries_of(&versions))
            .unwrap_or_default();
        let prefixes = [prefix.to_owned(), prefix.join("local")];
        for prefix in others.iter().map(DirEntry::path).chain(prefixes) {
            for library in ["lib", "lib64"].map(|name| prefix.join(name)) {
                self.packages(&library);
            }
        }
    }

    /// Adds the packages that a user installed for all interpreters.
    fn user_packages(&mut self) {
        if let Some(home) = self.context.environment.directory("HOME") {
            self.packages(&home.join(".local/lib"));
        }
    }

    /// Adds the packages in a directory of libraries. Installed packages are copies; only top-level files can refer to code elsewhere.
    fn packages(&mut self, library: &Path) {
        if !library.is_dir() || !self.libraries.insert(library.to_owned()) {
            return;
        }
        let mut versions: Vec<PathBuf> = self.entries_of(library).iter().map(DirEntry::path).collect();
        versions.retain(|version| is_python(version));
        for version in versions {
            for site in ["site-packages", "dist-packages"].map(|name| version.join(name)) {
                for entry in self.entries_of(&site) {
                    self.entry(&entry, &site);
                    self.origin(&entry.path().join("direct_url.json"));
                }
            }
            self.around.insert(version);
        }
    }

    /// Adds the directory that a package was installed from, if it is loaded from there.
    fn origin(&mut self, file: &Path) {
        let text = file
            .is_file()
            .then(|| self.text(file))
            .flatten()
            .unwrap_or_default();
        let plain: String = text.split_whitespace().collect();
        if plain.contains("\"editable\":true") {
            self.literals(file);
        }
    }

    /// Adds the absolute paths among the literals of a file.
    fn literals(&mut self, file: &Path) {
        let text = file
            .is_file()
            .then(|| self.text(file))
            .flatten()
            .unwrap_or_default();
        for (at, quote) in text.match_indices(['\'', '"']) {
            let rest = &text[at + 1..];
            let rest = rest.strip_prefix("file://").unwrap_or(rest);
            if !rest.starts_with('/') {
                continue;
            }
            match literal(rest, quote) {
                Some(path) => self.mentioned(Path::new(&path)),
                None => self.give_up(file),
            }
        }
    }

    /// Adds a path that code mentions, if something could be imported from it.
    fn mentioned(&mut self, path: &Path) {
        let is_around = is_broad(path, &self.context.environment);
        if !is_around && !SURROUNDINGS.iter().any(|around| path == Path::new(around)) {
            self.named(path);
        }
    }

    /// Returns the text of a file.
    fn text(&mut self, file: &Path) -> Option<String> {
        let mut text = String::new();
        let read = File::open(file).map(|file| file.take(MAX_TEXT + 1).read_to_string(&mut text));
        match read {
            Ok(Ok(_)) if text.len() as u64 <= MAX_TEXT => Some(text),
            _ => {
                self.give_up(file);
                None
            }
        }
    }

    fn give_up(&mut self, path: &Path) {
        self.unsearched.get_or_insert_with(|| path.to_owned());
    }
}

fn is_python(program: &Path) -> bool {
    let name = program.file_name().and_then(OsStr::to_str).unwrap_or_default();
    PYTHONS.iter().any(|python| name.starts_with(python))
}

/// Returns the files of the modules in a directory that a line of code may import.
fn modules(line: &str, site: &Path) -> Vec<PathBuf> {
    let is_name = |sign: char| sign.is_alphanumeric() || "_.".contains(sign);
    let mut found = Vec::new();
    for name in line.split(|sign| !is_name(sign)) {
        let mut module = site.to_owned();
        for part in name.split('.').filter(|part| !part.is_empty()) {
            module.push(part);
            found.push(module.join("__init__.py"));
            found.push(module.with_file_name(format!("{part}.py")));
        }
    }
    found
}

/// Returns a literal up to its quote; `None` if it has an escape of more than a quote, slash or backslash.
fn literal(text: &str, quote: &str) -> Option<String> {
    let mut path = String::new();
    let mut signs = text.chars();
    while let Some(sign) = signs
        .next()
        .filter(|sign| *sign != '\n' && !quote.starts_with(*sign))
    {
        match sign {
            '\\' => path.push(signs.next().filter(|next| "\\'\"/".contains(*next))?),
            sign => path.push(sign),
        }
    }
    Some(path)
}
