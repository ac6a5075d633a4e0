//! Secrets that programs reach from a tree: through links in it, and through files that its files name.
//!
//! A formatter shows the lines that it cannot read or would change. Whoever may write in a project chooses them
//! by a link with the right ending, or by a setting or an attribute that names another file.

mod manifests;

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use ringfence_exec::trust::glob;

use super::line_directory::{LineDirectory, real};
use super::tokens::names;

/// Maximum number of directory entries examined. A person is asked about a larger tree.
const MAX_ENTRIES: usize = 100_000;
/// Maximum number of bytes of files that are examined for names of others.
const MAX_BYTES: u64 = 64 << 20;
/// Maximum number of files that settings lead to.
const MAX_NAMED: usize = 2_000;

/// Returns the paths that a text names, as written; `None` if they cannot be read from it.
type Reader = fn(&str) -> Option<Vec<String>>;

/// Programs, with the files in which they find names of other files.
struct Naming {
    programs: &'static [&'static str],
    files: &'static [&'static str],
    read: Reader,
    /// Set if the file marks a project: the outermost one above counts.
    manifest: bool,
}

/// Directory of installed packages.
const MODULES: &str = "node_modules";

/// Package managers of Node.js.
const PACKAGES: &[&str] = &["npm", "npx", "yarn", "yarnpkg", "pnpm", "pnpx"];

const NAMING: &[Naming] = &[
    Naming {
        programs: &["ruff"],
        files: &["ruff.toml", ".ruff.toml", "pyproject.toml"],
        read: ruff,
        manifest: false,
    },
    Naming {
        programs: &["yamllint"],
        files: &[".yamllint", ".yamllint.yaml", ".yamllint.yml"],
        read: yamllint,
        manifest: false,
    },
    Naming {
        programs: &["rustfmt", "cargo"],
        files: &["*.rs"],
        read: rust,
        manifest: false,
    },
    Naming {
        programs: &["cargo"],
        files: &["Cargo.toml"],
        read: manifests::cargo,
        manifest: true,
    },
    Naming {
        programs: PACKAGES,
        files: &["package.json"],
        read: manifests::package,
        manifest: true,
    },
    Naming {
        programs: &["pnpm", "pnpx"],
        files: &["pnpm-workspace.yaml"],
        read: manifests::pnpm,
        manifest: true,
    },
    Naming {
        programs: &["uv", "uvx"],
        files: &["pyproject.toml"],
        read: manifests::uv,
        manifest: true,
    },
];

/// The examination of the trees that a line opens.
pub(super) struct Trees<'a> {
    place: &'a LineDirectory,
    line: &'a str,
    entries: usize,
    bytes: u64,
    named: usize,
    seen: BTreeSet<PathBuf>,
}

impl<'a> Trees<'a> {
    pub(super) fn new(line: &'a str, place: &'a LineDirectory) -> Self {
        Self {
            place,
            line,
            entries: MAX_ENTRIES,
            bytes: MAX_BYTES,
            named: MAX_NAMED,
            seen: BTreeSet::new(),
        }
    }

    /// Returns the first secret that the line's program could show when it opens a path, or the file or
    /// directory that is too large to examine.
    pub(super) fn secret(&mut self, path: &Path) -> Option<PathBuf> {
        let path = real(path)?;
        if self.place.is_broad(&path) {
            return Some(path);
        }
        let top = self.top(&path);
        let start = real(&self.place.directory);
        let from = [Some(&path), top.as_ref(), start.as_ref()].into_iter().flatten();
        let above: Vec<PathBuf> = from
            .flat_map(|path| path.ancestors().map(Path::to_path_buf))
            .collect();
        let settings = |file: &&&str| !file.starts_with('*');
        for naming in self.naming() {
            for file in naming.files.iter().filter(settings) {
                let mut all = above.iter().map(|above| above.join(file));
                if let Some(found) = all.find_map(|file| self.file(&file, naming.read)) {
                    return Some(found);
                }
            }
        }
        self.walk(&top?)
    }

    /// Returns the first secret that the line's program could show when it reads the settings of the project
    /// around a directory.
    pub(super) fn of_project(&mut self, directory: &Path) -> Option<PathBuf> {
        self.project(&real(directory)?)?;
        self.secret(directory)
    }

    /// Returns the directory to examine: that of a file whose modules lie beside it, or that of the outermost
    /// package. None for another file, which the line names itself.
    fn top(&self, path: &Path) -> Option<PathBuf> {
        if !path.is_dir() {
            let is_module = names(self.line, "rustfmt");
            return path.parent().filter(|_| is_module).map(Path::to_path_buf);
        }
        Some(self.project(path).unwrap_or(path).to_path_buf())
    }

    /// Returns the outermost directory above that has a manifest of the line's programs.
    fn project<'b>(&self, directory: &'b Path) -> Option<&'b Path> {
        let naming = self.naming();
        let manifests = naming.iter().filter(|naming| naming.manifest);
        let files: Vec<&str> = manifests.flat_map(|naming| naming.files).copied().collect();
        let has_one = |above: &&Path| {
            files
                .iter()
                .any(|file| above.join(file).symlink_metadata().is_ok())
        };
        directory.ancestors().filter(has_one).last()
    }

    fn naming(&self) -> Vec<&'static Naming> {
        let used = |naming: &&Naming| naming.programs.iter().any(|program| names(self.line, program));
        NAMING.iter().filter(used).collect()
    }

    fn walk(&mut self, top: &Path) -> Option<PathBuf> {
        let all = self.naming();
        let mut pending = vec![top.to_path_buf()];
        while let Some(directory) = pending.pop() {
            for entry in fs::read_dir(&directory).into_iter().flatten().flatten() {
                let path = entry.path();
                self.entries = self.entries.saturating_sub(1);
                let Some(kind) = entry.file_type().ok().filter(|_| self.entries > 0) else {
                    return Some(path);
                };
                if kind.is_dir() && self.is_built(&path) {
                    let is_installed = entry.file_name() == MODULES;
                    if let Some(found) = is_installed.then(|| self.installed(&path)).flatten() {
                        return Some(found);
                    }
                    continue;
                }
                if kind.is_dir() {
                    pending.push(path);
                    continue;
                }
                if kind.is_symlink()
                    && let Some(found) = real(&path).filter(|real| self.is_secret(real))
                {
                    return Some(found);
                }
                let name = entry.file_name();
                let reads = |naming: &&&Naming| {
                    naming
                        .files
                        .iter()
                        .any(|file| fits(file, &name.to_string_lossy()))
                };
                for naming in all.iter().filter(reads) {
                    if let Some(found) = self.file(&path, naming.read) {
                        return Some(found);
                    }
                }
            }
        }
        None
    }

    /// Returns the first secret that the manifest of an installed package, or another file beside it, is a link to.
    /// Package managers show fields of these (`npm query`), and none of the files below.
    fn installed(&mut self, modules: &Path) -> Option<PathBuf> {
        let mut pending = vec![(modules.to_path_buf(), true)];
        let mut seen = BTreeSet::new();
        while let Some((directory, holds_packages)) = pending.pop() {
            if !seen.insert(real(&directory)) {
                continue;
            }
            for entry in fs::read_dir(&directory).into_iter().flatten().flatten() {
                let (path, name) = (entry.path(), entry.file_name());
                self.entries = self.entries.saturating_sub(1);
                let Some(kind) = entry.file_type().ok().filter(|_| self.entries > 0) else {
                    return Some(path);
                };
                if kind.is_symlink()
                    && let Some(found) = real(&path).filter(|real| self.is_secret(real))
                {
                    return Some(found);
                }
                let is_group =
                    name.as_encoded_bytes().starts_with(b"@") || name.as_encoded_bytes().starts_with(b".");
                if path.is_dir() && (holds_packages || name == MODULES) {
                    pending.push((path, name == MODULES || holds_packages && is_group));
                }
            }
        }
        None
    }

    /// Returns the secret that a file names, directly or by way of another one.
    fn file(&mut self, path: &Path, read: Reader) -> Option<PathBuf> {
        let size = fs::metadata(path).ok().filter(fs::Metadata::is_file)?.len();
        if !self.seen.insert(path.to_path_buf()) {
            return None;
        }
        if size > self.bytes {
            return Some(path.to_path_buf());
        }
        self.bytes -= size;
        // None of these programs reads a file that is not text.
        let text = fs::read_to_string(path).ok()?;
        let Some(named) = read(&text) else {
            return Some(path.to_path_buf());
        };
        let beside = path.parent()?.to_path_buf();
        named.iter().find_map(|name| self.named(name, &beside, read))
    }

    fn named(&mut self, name: &str, beside: &Path, read: Reader) -> Option<PathBuf> {
        let Some(targets) = self.targets(name, beside) else {
            return Some(beside.join(name));
        };
        for target in targets {
            if target.is_dir() {
                continue;
            }
            if self.is_secret(&target) || self.named == 0 {
                return Some(target);
            }
            self.named -= 1;
            if let Some(found) = self.file(&target, read) {
                return Some(found);
            }
        }
        None
    }

    /// Returns the existing files that a name can mean: below the file, below the directory where the program
    /// runs, or, in a module within a module, further down. `None` if they are too many.
    fn targets(&self, name: &str, beside: &Path) -> Option<Vec<PathBuf>> {
        let home = self.place.home.as_deref();
        let name = match (name.strip_prefix('~'), home) {
            (Some(rest), Some(home)) => home.join(rest.trim_start_matches('/')),
            _ => PathBuf::from(name),
        };
        let mut found = Vec::new();
        let mut shorter = name.as_path();
        loop {
            for base in [beside, &self.place.directory] {
                let all = glob::expand(&base.join(shorter), MAX_NAMED);
                if all.truncated {
                    return None;
                }
                found.extend(all.paths.iter().filter_map(|path| real(path)));
            }
            match shorter.strip_prefix("..") {
                Ok(rest) => shorter = rest,
                Err(_) => return Some(found),
            }
        }
    }

    /// Returns `true` for a directory from which the line's programs read nothing by themselves: git's own,
    /// and, for cargo or package managers of Node.js alone, built or installed files.
    fn is_built(&self, path: &Path) -> bool {
        let name = path.file_name().unwrap_or_default();
        let package = || path.with_file_name("Cargo.toml").is_file() && !path.join("mod.rs").exists();
        name == ".git"
            || name == "target" && self.is_only(&["cargo"]) && package()
            || name == MODULES && self.is_only(PACKAGES)
    }

    /// Returns `true` if the line is one command of one of these programs.
    fn is_only(&self, programs: &[&str]) -> bool {
        let program = self.line.split(' ').next().unwrap_or_default();
        programs.contains(&program) && !self.line.contains([';', '|', '&', '\n', '`', '$'])
    }

    fn is_secret(&self, path: &Path) -> bool {
        self.place.is_secret(path) || path.is_dir() && self.place.has_secrets(path)
    }
}

fn fits(file: &str, name: &str) -> bool {
    match file.strip_prefix('*') {
        Some(ending) => name.ends_with(ending),
        None => name == file,
    }
}

/// Reads `extend` of ruff's settings, in which variables stand for text.
fn ruff(text: &str) -> Option<Vec<String>> {
    if !text.contains("extend") && !text.contains('\\') {
        return Some(Vec::new());
    }
    let table = text.parse::<toml::Table>().ok()?;
    let own = table.get("tool").and_then(|tool| tool.get("ruff"));
    let values = [table.get("extend"), own.and_then(|own| own.get("extend"))];
    let named: Vec<String> = values
        .into_iter()
        .flatten()
        .map(|value| value.as_str().map(str::to_owned))
        .collect::<Option<_>>()?;
    named.iter().all(|name| !name.contains('$')).then_some(named)
}

/// Reads `extends` of yamllint's settings: one of its own, or a file.
fn yamllint(text: &str) -> Option<Vec<String>> {
    if ["\\x", "\\u", "\\U", "!!"].iter().any(|part| text.contains(part)) {
        return None;
    }
    let value = |rest: &str| {
        let rest = rest.trim_start_matches(['"', '\'', ' ']).strip_prefix(':')?;
        let value = rest.split(['\n', ',', '}', '#']).next().unwrap_or_default();
        let value = value.trim().trim_matches(['"', '\'']);
        (!value.is_empty() && !value.starts_with(['&', '*', '|', '>'])).then(|| value.to_owned())
    };
    text.split("extends").skip(1).map(value).collect()
}

/// Reads the texts behind `path =` in Rust, whether in an attribute or not.
fn rust(text: &str) -> Option<Vec<String>> {
    let mut named = Vec::new();
    for rest in text.split("path").skip(1) {
        let Some(rest) = uncommented(rest).strip_prefix('=') else {
            continue;
        };
        let rest = uncommented(rest);
        let raw = rest
            .strip_prefix('r')
            .map_or(rest, |rest| rest.trim_start_matches('#'));
        let Some(literal) = raw.strip_prefix('"') else {
            continue;
        };
        let literal = literal.split('"').next().unwrap_or_default();
        let escaped = raw.len() == rest.len();
        if escaped && ["\\x", "\\u", "\\\n"].iter().any(|part| literal.contains(part)) {
            return None;
        }
        named.push(literal.to_owned());
    }
    Some(named)
}

/// Skips blanks and comments.
fn uncommented(text: &str) -> &str {
    let mut rest = text.trim_start();
    loop {
        let behind = match (rest.strip_prefix("//"), rest.strip_prefix("/*")) {
            (Some(comment), _) => comment.split_once('\n'),
            (_, Some(comment)) => comment.split_once("*/"),
            (None, None) => return rest,
        };
        rest = behind.map_or("", |(_, behind)| behind).trim_start();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn attributes_that_name_a_file_are_found_however_they_are_written() {
        for text in [
            "#[path = \"/x\"]\nmod a;",
            "#[path=\"/x\"] mod a;",
            "#[ /* let */ path // c\n /* d */ = r#\"/x\"#] mod a;",
            "#[cfg_attr(all(), path = r\"/x\")] mod a;",
        ] {
            assert_eq!(rust(text), Some(vec!["/x".to_owned()]), "{text}");
        }
        assert_eq!(rust("#[path = \"/\\u{78}\"] mod a;"), None);
        assert_eq!(rust("let path = dir.join(x); if path == y {}"), Some(vec![]));
    }

    #[test]
    fn settings_that_name_a_file_are_found_however_they_are_written() {
        let named = |name: &str| Some(vec![name.to_owned()]);
        for text in [
            "extend = '/x'",
            "\"ext\\u0065nd\" = '/x'",
            "tool.ruff.extend = '/x'",
            "[tool.ruff]\nextend = '/x'",
            "tool = {ruff = {\"extend\" = '/x'}}",
        ] {
            assert_eq!(ruff(text), named("/x"), "{text}");
        }
        assert_eq!(ruff("extend = '$HOME/x'"), None);
        assert_eq!(ruff("[lint]\nextend-select = ['E']"), Some(vec![]));
        assert_eq!(yamllint("extends: x\n"), named("x"));
        assert_eq!(yamllint("{rules: {}, \"extends\": '/x'}"), named("/x"));
        assert_eq!(yamllint("\"ext\\x65nds\": x"), None);
    }
}
