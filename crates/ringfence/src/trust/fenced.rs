//! The files that an MCP server in a fence executes, as far as its configuration entry shows. Programs find them
//! read-only.

use std::fs::{File, Metadata};
use std::io::Read;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use ringfence_exec::mount_guard::nearest;
use ringfence_exec::trust;
use ringfence_policy::{Access, Imports, Mount, Trusted};

use super::tokens::pieces;
use crate::config::schema::Server;

/// Options whose value is a directory with code.
const DIRECTORY_OPTIONS: &[&str] = &[
    "--directory",
    "--project",
    "--cwd",
    "-C",
    "--prefix",
    "--from",
    "--path",
];

/// Variables that name files or directories with code.
const CODE_VARIABLES: &[&str] = &[
    "PATH",
    "PYTHONPATH",
    "PYTHONHOME",
    "NODE_PATH",
    "RUBYLIB",
    "PERL5LIB",
    "CLASSPATH",
    "LD_LIBRARY_PATH",
    "LD_PRELOAD",
];

/// Beginnings of the names of programs whose first word is code.
const INTERPRETERS: &[&str] = &[
    "python", "pypy", "node", "deno", "bun", "tsx", "ts-node", "ruby", "perl", "php", "lua", "sh", "bash",
    "java",
];

/// Endings of files that interpreters execute.
const SCRIPTS: &[&str] = &[
    "py", "js", "mjs", "cjs", "ts", "mts", "sh", "bash", "rb", "pl", "php", "lua", "jar", "whl", "pyz",
];

/// Returns the program and the scripts of a server, with the directories that these import from, unless
/// `is_shared` returns `true` for a directory with much unrelated content.
///
/// There is no certain way to recognise code among the arguments, so this returns the program, the first word
/// that is not an option, the value of an option that names a project, and every file that a word names,
/// unless the server itself may write it.
pub(super) fn trusted(name: &str, server: &Server, is_shared: &dyn Fn(&Path) -> bool) -> Trusted {
    let mounts = server.mounts.iter().filter_map(|text| text.parse().ok());
    let resolved = |mut mount: Mount| {
        mount.host = trust::resolve(&mount.host).ok()?.path;
        Some(mount)
    };
    let mut found = ServerCode {
        name,
        mounts: mounts.filter_map(resolved).collect(),
        is_shared,
        trusted: Trusted::none(),
    };
    found.command(&server.command);
    for text in &server.env {
        let (name, value) = text.split_once('=').unwrap_or((text, ""));
        if CODE_VARIABLES.contains(&name) {
            for path in std::env::split_paths(value) {
                found.code(&path);
            }
        }
    }
    found.files(server);
    found.trusted
}

/// The code of a server, found so far.
struct ServerCode<'a> {
    name: &'a str,
    mounts: Vec<Mount>,
    is_shared: &'a dyn Fn(&Path) -> bool,
    trusted: Trusted,
}

impl ServerCode<'_> {
    /// Adds the words of the command that are code.
    fn command(&mut self, command: &[String]) {
        let program = command.first().map(Path::new).and_then(Path::file_name);
        let program = program.unwrap_or_default().to_string_lossy();
        let is_interpreter = INTERPRETERS.iter().any(|name| program.starts_with(name));
        let mut first = true;
        let mut after_option = false;
        for (number, word) in command.iter().enumerate() {
            let (option, value) = match word.split_once('=') {
                Some((option, value)) if option.starts_with('-') => (option, value),
                _ => ("", word.as_str()),
            };
            let is_option = word.starts_with('-') && option.is_empty();
            let is_named = after_option || DIRECTORY_OPTIONS.contains(&option);
            after_option = DIRECTORY_OPTIONS.contains(&word.as_str());
            let leads = number > 0 && first && !word.starts_with('-');
            first &= number == 0 || word.starts_with('-');
            let path = Path::new(value);
            let runs = number == 0 || is_named || is_script(path) || (leads && is_interpreter);
            if is_option || !(runs || leads) {
                continue;
            }
            match number == 0 || is_script(path) || (runs && !self.may_write(path)) {
                true => self.code(path),
                false => self.likely_data(path),
            }
        }
    }

    /// Adds the files in mounts that the server may not write, which a word of the command or of the environment
    /// names.
    fn files(&mut self, server: &Server) {
        let values = server.env.iter().filter_map(|text| text.split_once('='));
        let words = server.command.iter().map(String::as_str);
        let words = words.chain(values.map(|(_, value)| value));
        for piece in words.flat_map(|word| pieces(word, None)) {
            let path = Path::new(&piece);
            let Some(host) = self.on_host(path).filter(|_| !self.may_write(path)) else {
                continue;
            };
            if is_program(&host) || (is_script(path) && !host.exists()) {
                self.code(path);
            } else if host.is_file() {
                self.trusted.paths.push(host);
            }
        }
    }

    /// Adds a script with its directory, which it imports from, or a directory with code. What does not exist
    /// could be created in the nearest directory that does.
    fn code(&mut self, path: &Path) {
        let Some(path) = self.on_host(path) else {
            return;
        };
        let end = nearest(&path).existing;
        let mut directories = vec![end.clone()];
        if path.is_file() {
            let above = [&path, &end].map(|path| nearest(path.parent().unwrap_or(path)).existing);
            directories = above.into();
            self.trusted.paths.push(path);
        }
        for directory in directories {
            // Of directories around its mounts, the server sees nothing.
            let is_shown = |mount: &Mount| directory.starts_with(&mount.host) || !mount.host.exists();
            if self.mounts.iter().any(is_shown) {
                self.directory(directory);
            }
        }
    }

    fn directory(&mut self, directory: PathBuf) {
        if (self.is_shared)(&directory) {
            self.trusted.lookups.push(directory);
            return;
        }
        let mut data = self.mounts.clone();
        data.retain(|mount| mount.access == Access::ReadWrite && mount.host.starts_with(&directory));
        self.trusted.imports.push(Imports {
            server: self.name.to_owned(),
            directory,
            data: data.into_iter().map(|mount| mount.host).collect(),
        });
    }

    /// Adds a path that is more likely data than code.
    fn likely_data(&mut self, path: &Path) {
        let Some(path) = self.on_host(path).filter(|path| path.exists()) else {
            return;
        };
        if path.is_dir() {
            self.trusted.lookups.push(path);
        } else {
            self.trusted.lookups.extend(path.parent().map(Path::to_owned));
            self.trusted.paths.push(path);
        }
    }

    fn may_write(&self, path: &Path) -> bool {
        self.mount(path)
            .is_some_and(|mount| mount.access == Access::ReadWrite)
    }

    /// Returns the mount in which the server sees a path.
    fn mount(&self, path: &Path) -> Option<&Mount> {
        let around = self.mounts.iter().filter(|mount| path.starts_with(mount.guest()));
        around.max_by_key(|mount| mount.guest().components().count())
    }

    /// Converts a path that the server sees in its mounts to a host path.
    fn on_host(&self, path: &Path) -> Option<PathBuf> {
        let mount = self.mount(path).filter(|_| path.is_absolute())?;
        let below = path.strip_prefix(mount.guest()).ok()?;
        Some(mount.host.components().chain(below.components()).collect())
    }
}

fn is_script(path: &Path) -> bool {
    let ending = path.extension().and_then(|ending| ending.to_str());
    ending.is_some_and(|ending| SCRIPTS.contains(&ending))
}

/// Returns `true` for a file that is a script by its name, its mode or its first bytes.
fn is_program(path: &Path) -> bool {
    let Some(found) = path.metadata().ok().filter(Metadata::is_file) else {
        return false;
    };
    let is_marked = || {
        let mut start = [0; 2];
        let read = File::open(path).and_then(|mut file| file.read_exact(&mut start));
        read.is_ok() && start == *b"#!"
    };
    is_script(path) || found.permissions().mode() & 0o111 != 0 || is_marked()
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Dir(tempfile::TempDir);

    impl Dir {
        fn new() -> Self {
            let dir = Self(tempfile::tempdir().unwrap());
            for name in ["srv", "data", "lib"] {
                std::fs::create_dir(dir.path(name)).unwrap();
            }
            for name in ["srv/server.py", "data/notes.txt", "data/tool.js", "srv/units"] {
                std::fs::write(dir.path(name), "").unwrap();
            }
            dir
        }

        fn path(&self, name: &str) -> PathBuf {
            self.0.path().canonicalize().unwrap().join(name)
        }

        /// Asserts which paths, directories of imports and directories of lookups are found.
        #[track_caller]
        fn check(&self, text: &str, expected: [&[&str]; 3]) {
            let text = format!("{text}\nmounts = ['ROOT/srv:/srv', 'ROOT/lib:/share', 'ROOT/data:/data:rw']");
            let root = self.path("").display().to_string();
            let server: Server = toml::from_str(&text.replace("ROOT/", &root)).unwrap();
            let mut found = Trusted::none();
            found.extend(&trusted("x", &server, &|_| false));
            let imports = found.imports.into_iter().map(|imports| imports.directory);
            let expected = expected.map(|names| names.iter().map(|name| self.path(name)).collect::<Vec<_>>());
            assert_eq!(
                [found.paths, imports.collect(), found.lookups],
                expected,
                "{text}"
            );
        }
    }

    #[test]
    fn code_is_told_from_data() {
        let dir = Dir::new();
        let srv = &["srv"][..];
        dir.check(
            "command = ['python3', '-u', '/srv/server.py', '/data']",
            [&["srv/server.py"], srv, &[]],
        );
        dir.check("command = ['npx', '-y', 'files', '/data']", [&[], &[], &[]]);
        dir.check("command = ['node', '/data', '/share']", [&[], &[], &["data"]]);
        dir.check("command = ['files', '/share']", [&[], &[], &["lib"]]);
        dir.check(
            "command = ['uv', '--directory', '/srv', 'run', 'x']",
            [&[], srv, &[]],
        );
        dir.check("command = ['uv', 'run', '--project=/srv', 'x']", [&[], srv, &[]]);
        dir.check(
            "command = ['x', 'serve', '/data/tool.js', '/data/notes.txt']",
            [&["data/tool.js"], &["data"], &[]],
        );
        let variable = "command = ['x']\nenv = ['PYTHONPATH=/share:/none', 'A=/data']";
        dir.check(variable, [&[], &["lib"], &[]]);
        dir.check("command = ['python3', 'ROOT/srv/server.py']", [&[], &[], &[]]);
    }

    #[test]
    fn what_is_missing_could_be_created() {
        let dir = Dir::new();
        for command in [
            "['/srv/new/run']",
            "['python3', '/srv/new']",
            "['env', 'A=b', '/srv/new/x.py']",
            "['python3', '-W', 'ignore', '/srv/new.py']",
        ] {
            dir.check(&format!("command = {command}"), [&[], &["srv"], &[]]);
        }
        dir.check("command = ['x', '/data/new', '--log=/srv/new']", [&[], &[], &[]]);
    }

    #[test]
    fn words_that_look_like_no_script_are_kept() {
        let dir = Dir::new();
        for command in [
            "['env', 'A=b', '/srv/units']",
            "['timeout', '60', '/srv/units']",
            "['python3', '-W', 'ignore', '/srv/units']",
            "['make', 'serve', '-f', '/srv/units']",
            "['cargo', 'run', '--manifest-path=/srv/units']",
            "['sh', '-c', 'cd / && exec \"/srv/units\" --quiet']",
            "['x']\nenv = ['NODE_OPTIONS=--require /srv/units']",
            "['x']\nenv = ['BASH_ENV=/srv/units']",
        ] {
            dir.check(&format!("command = {command}"), [&["srv/units"], &[], &[]]);
        }
        std::fs::write(dir.path("srv/units"), "#!/bin/sh\n").unwrap();
        dir.check(
            "command = ['timeout', '60', '/srv/units']",
            [&["srv/units"], &["srv"], &[]],
        );
    }
}
