//! The files that an MCP server executes, as far as its configuration entry shows.

use std::path::{Path, PathBuf};

use ringfence_policy::{Mount, Trusted};

use crate::config::schema::Server;
use crate::config::values::ServerFence;

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

/// Endings of files that interpreters execute.
const SCRIPTS: &[&str] = &[
    "py", "js", "mjs", "cjs", "ts", "mts", "sh", "bash", "rb", "pl", "php", "lua", "jar", "whl", "pyz",
];

/// Returns the program and the scripts of a server, with the directories that these import from.
///
/// There is no certain way to recognise code among the arguments, so this returns the program, the first word
/// that is no option, files that look like scripts, and the value of an option that names a project.
pub(super) fn trusted(server: &Server) -> Trusted {
    let mut trusted = Trusted::none();
    let mounts: Vec<Mount> = server
        .mounts
        .iter()
        .filter_map(|text| text.parse().ok())
        .collect();
    let on_host = |word: &str| on_host(Path::new(word), server, &mounts);
    let mut first = true;
    let mut after_option = false;
    for (number, word) in server.command.iter().enumerate() {
        let (option, value) = match word.split_once('=') {
            Some((option, value)) if option.starts_with('-') => (option, value),
            _ => ("", word.as_str()),
        };
        let is_option = word.starts_with('-') && option.is_empty();
        let named = after_option || DIRECTORY_OPTIONS.contains(&option);
        after_option = DIRECTORY_OPTIONS.contains(&word.as_str());
        let leads = number > 0 && first && !word.starts_with('-');
        first &= number == 0 || word.starts_with('-');
        if let Some(path) = on_host(value).filter(|_| !is_option)
            && (number == 0 || leads || named || is_script(&path))
        {
            code(path, &mut trusted);
        }
    }
    for text in &server.env {
        let (name, value) = text.split_once('=').unwrap_or((text, ""));
        if CODE_VARIABLES.contains(&name) {
            let paths = std::env::split_paths(value).filter_map(|path| on_host(path.to_str()?));
            trusted.lookups.extend(paths);
        }
    }
    trusted
}

/// Adds a script and its directory, which it imports from, or a directory with code.
fn code(path: PathBuf, trusted: &mut Trusted) {
    if path.is_dir() {
        trusted.lookups.push(path);
        return;
    }
    trusted.lookups.extend(path.parent().map(Path::to_owned));
    trusted.paths.push(path);
}

fn is_script(path: &Path) -> bool {
    let ending = path.extension().and_then(|ending| ending.to_str());
    path.is_file() && ending.is_some_and(|ending| SCRIPTS.contains(&ending))
}

/// Converts a path of the server to a host path: in a fence it sees its mounts alone.
fn on_host(path: &Path, server: &Server, mounts: &[Mount]) -> Option<PathBuf> {
    if !path.is_absolute() {
        return None;
    }
    let host = match server.fence {
        ServerFence::Host => path.to_owned(),
        ServerFence::Fenced => {
            let around = mounts.iter().filter(|mount| path.starts_with(mount.guest()));
            let mount = around.max_by_key(|mount| mount.guest().components().count())?;
            let below = path.strip_prefix(mount.guest()).ok()?;
            mount.host.components().chain(below.components()).collect()
        }
    };
    host.exists().then_some(host)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn code_is_told_from_data() {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path().canonicalize().unwrap();
        for name in ["srv", "data", "lib"] {
            std::fs::create_dir(root.join(name)).unwrap();
        }
        for name in ["srv/server.py", "data/notes.txt", "data/tool.js"] {
            std::fs::write(root.join(name), "").unwrap();
        }
        let check = |text: &str, paths: &[&str], lookups: &[&str]| {
            let text = text.replace("ROOT", root.to_str().unwrap());
            let server: Server = toml::from_str(&text).unwrap();
            let below = |names: &[&str]| names.iter().map(|name| root.join(name)).collect::<Vec<_>>();
            let found = trusted(&server);
            assert_eq!(
                (found.paths, found.lookups),
                (below(paths), below(lookups)),
                "{text}"
            );
        };
        let host = "\nfence = 'host'";
        check(
            &format!("command = ['python3', '-u', 'ROOT/srv/server.py', 'ROOT/data']{host}"),
            &["srv/server.py"],
            &["srv"],
        );
        check(
            &format!("command = ['npx', '-y', 'files', 'ROOT/data']{host}"),
            &[],
            &[],
        );
        check(
            &format!("command = ['node', 'ROOT/data', 'ROOT/lib']{host}"),
            &[],
            &["data"],
        );
        check(
            &format!("command = ['uv', '--directory', 'ROOT/srv', 'run', 'x']{host}"),
            &[],
            &["srv"],
        );
        check(
            &format!("command = ['uv', 'run', '--project=ROOT/srv', 'x']{host}"),
            &[],
            &["srv"],
        );
        check(
            &format!("command = ['x', 'serve', 'ROOT/data/tool.js', 'ROOT/data/notes.txt']{host}"),
            &["data/tool.js"],
            &["data"],
        );
        check(
            &format!("command = ['x']\nenv = ['PYTHONPATH=ROOT/lib:/none', 'A=ROOT/data']{host}"),
            &[],
            &["lib"],
        );
        // In a fence, paths inside it.
        check(
            "command = ['python3', '/app/server.py', '/data']\nmounts = ['ROOT/srv:/app', 'ROOT/data:/data:rw']",
            &["srv/server.py"],
            &["srv"],
        );
        check("command = ['python3', 'ROOT/srv/server.py']", &[], &[]);
    }
}
