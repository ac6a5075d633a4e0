//! The files that an MCP server in a fence executes, as far as its configuration entry shows. Programs find them
//! read-only.

use std::path::{Path, PathBuf};

use ringfence_policy::{Access, Mount, Trusted};

use super::words::pieces;
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

/// Endings of files that interpreters execute.
const SCRIPTS: &[&str] = &[
    "py", "js", "mjs", "cjs", "ts", "mts", "sh", "bash", "rb", "pl", "php", "lua", "jar", "whl", "pyz",
];

/// Returns the program and the scripts of a server, with the directories that these import from.
///
/// There is no certain way to recognise code among the arguments, so this returns the program, the first word
/// that is no option, the value of an option that names a project, and every file that a word names, unless the
/// server itself may write it.
pub(super) fn trusted(server: &Server) -> Trusted {
    let mut trusted = Trusted::none();
    let mut mounts: Vec<Mount> = server
        .mounts
        .iter()
        .filter_map(|text| text.parse().ok())
        .collect();
    let on_host = |word: &str| on_host(Path::new(word), &mounts);
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
    mounts.retain(|mount| mount.access != Access::ReadWrite);
    trusted.paths.extend(files(server, &mounts));
    trusted
}

/// Returns the files in these mounts that a word of the command or of the environment names.
fn files(server: &Server, mounts: &[Mount]) -> Vec<PathBuf> {
    let values = server.env.iter().filter_map(|text| text.split_once('='));
    let words = server.command.iter().map(String::as_str);
    let words = words.chain(values.map(|(_, value)| value));
    let pieces = words.flat_map(|word| pieces(word, None));
    let named = pieces.filter_map(|piece| on_host(Path::new(&piece), mounts));
    named.filter(|path| path.is_file()).collect()
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

/// Converts a path that the server sees in its mounts to a host path.
fn on_host(path: &Path, mounts: &[Mount]) -> Option<PathBuf> {
    if !path.is_absolute() {
        return None;
    }
    let around = mounts.iter().filter(|mount| path.starts_with(mount.guest()));
    let mount = around.max_by_key(|mount| mount.guest().components().count())?;
    let below = path.strip_prefix(mount.guest()).ok()?;
    let host: PathBuf = mount.host.components().chain(below.components()).collect();
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
        std::fs::write(root.join("srv/units"), "").unwrap();
        let check = |text: &str, paths: &[&str], lookups: &[&str]| {
            let text = format!("{text}\nmounts = ['ROOT/srv:/srv', 'ROOT/lib:/share', 'ROOT/data:/data:rw']");
            let server: Server = toml::from_str(&text.replace("ROOT", root.to_str().unwrap())).unwrap();
            let below = |names: &[&str]| names.iter().map(|name| root.join(name)).collect::<Vec<_>>();
            let mut found = Trusted::none();
            found.extend(&trusted(&server));
            assert_eq!(
                (found.paths, found.lookups),
                (below(paths), below(lookups)),
                "{text}"
            );
        };
        check(
            "command = ['python3', '-u', '/srv/server.py', '/data']",
            &["srv/server.py"],
            &["srv"],
        );
        check("command = ['npx', '-y', 'files', '/data']", &[], &[]);
        check("command = ['node', '/data', '/share']", &[], &["data"]);
        check(
            "command = ['uv', '--directory', '/srv', 'run', 'x']",
            &[],
            &["srv"],
        );
        check("command = ['uv', 'run', '--project=/srv', 'x']", &[], &["srv"]);
        check(
            "command = ['x', 'serve', '/data/tool.js', '/data/notes.txt']",
            &["data/tool.js"],
            &["data"],
        );
        check(
            "command = ['x']\nenv = ['PYTHONPATH=/share:/none', 'A=/data']",
            &[],
            &["lib"],
        );
        // Words that look like no script.
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
            check(&format!("command = {command}"), &["srv/units"], &[]);
        }
        check("command = ['python3', 'ROOT/srv/server.py']", &[], &[]);
    }
}
