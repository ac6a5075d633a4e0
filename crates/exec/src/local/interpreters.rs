//! The machine's interpreters, and the files of theirs that guests must see.

use std::path::{Path, PathBuf};

use ringfence_policy::{Language, Request, Trusted};

use super::error::Error;
use super::extra::Extra;
use super::fenced;
use super::image;
use super::settings::Settings;
use crate::interpreter::{self, Javascript, JavascriptKind, Python};
use crate::trust::{self, Conflict};

/// Adds the files of one language's interpreter, or of all, that lie outside the system's directories.
///
/// They are also added to the trusted paths, which guests must not change.
pub(super) fn add_libraries(extra: &mut Extra, settings: &Settings, language: Option<Language>) {
    if language.is_none_or(|language| language == Language::Python)
        && let Ok(python) = python_for(extra, settings)
    {
        extra.trusted.extend(&python.trusted());
        extra.libraries.extend(python.library_dirs);
        extra
            .links
            .extend(python.links.into_iter().map(|link| (link.path, link.target)));
    }
    if language.is_none_or(|language| language == Language::Javascript)
        && let Ok(found) = javascript_for(extra, settings)
    {
        let programs = found.executable.parent().map(Path::to_owned);
        extra.trusted.extend(&Trusted {
            installations: programs
                .iter()
                .filter(|programs| programs.ends_with("bin"))
                .filter_map(|programs| programs.parent().map(Path::to_owned))
                .collect(),
            lookups: programs.into_iter().collect(),
            ..Trusted::none()
        });
        extra.libraries.extend(found.prefix_dirs);
    }
}

/// Returns the Python for a launcher's guests.
///
/// # Errors
/// If there is none, or if only the PATH leads to it and guests may write there.
pub(super) fn python_for(extra: &Extra, settings: &Settings) -> Result<Python, Error> {
    let python = python(settings)?;
    if is_found(settings.python.as_deref()) {
        check_found(extra, &python.executable)?;
        check_found(extra, &python.prefix)?;
    }
    Ok(python)
}

/// Returns the JavaScript engine for a launcher's guests.
///
/// # Errors
/// As for [`python_for`].
fn javascript_for(extra: &Extra, settings: &Settings) -> Result<Javascript, Error> {
    let found = javascript(settings)?;
    if is_found(settings.javascript.as_deref()) {
        check_found(extra, &found.executable)?;
    }
    Ok(found)
}

/// Returns `true` if only the PATH leads to an interpreter: it is not named, or by its bare name.
fn is_found(named: Option<&Path>) -> bool {
    named.is_none_or(|named| !named.as_os_str().as_encoded_bytes().contains(&b'/'))
}

/// Rejects an interpreter that was found by the PATH alone, in a directory that programs may write.
fn check_found(extra: &Extra, program: &Path) -> Result<(), Error> {
    match extra.writable().find(|(tree, _)| trust::holds(tree, program)) {
        Some((tree, _)) => Err(Error::Trusted(Conflict::Found {
            program: program.to_owned(),
            tree: tree.to_owned(),
        })),
        None => Ok(()),
    }
}

/// Returns the Python of this name, or else the first usable one, probed in a fence.
///
/// # Errors
/// If there is none.
pub(crate) fn find_python(settings: &Settings, named: Option<&Path>) -> Result<Python, interpreter::Error> {
    let (path, cache) = (settings.path.as_deref(), settings.cache.as_deref());
    interpreter::find_python(named, path, cache, &|question| fenced::ask(question, settings))
}

fn python(settings: &Settings) -> Result<Python, Error> {
    if let Some(python) = settings.interpreters.python.get() {
        return Ok(python.clone());
    }
    let python = find_python(settings, settings.python.as_deref())?;
    check_shown(&python.executable, &python.library_dirs, &settings.private)?;
    Ok(settings.interpreters.python.get_or_init(|| python).clone())
}

fn javascript(settings: &Settings) -> Result<Javascript, Error> {
    if let Some(found) = settings.interpreters.javascript.get() {
        return Ok(found.clone());
    }
    let named = settings.javascript.as_deref();
    let found = interpreter::find_javascript(named, settings.path.as_deref()).ok_or_else(|| match named {
        Some(named) => Error::NotJavascript(named.to_path_buf()),
        None => Error::NoInterpreter {
            language: Language::Javascript,
            looked_for: "node or deno",
        },
    })?;
    check_shown(&found.executable, &found.prefix_dirs, &settings.private)?;
    Ok(settings.interpreters.javascript.get_or_init(|| found).clone())
}

/// Checks that no directory shown for an interpreter contains a private one.
fn check_shown(program: &Path, shown: &[PathBuf], private: &[PathBuf]) -> Result<(), Error> {
    if shown.is_empty() {
        return Ok(());
    }
    let private: Vec<PathBuf> = private.iter().map(|path| resolved(path)).collect();
    for directory in shown {
        let whole = resolved(directory);
        if let Some(private) = private.iter().find(|private| private.starts_with(&whole)) {
            return Err(Error::Exposing {
                program: program.to_path_buf(),
                directory: directory.clone(),
                private: private.clone(),
            });
        }
    }
    Ok(())
}

/// Resolves the existing part of `path`.
fn resolved(path: &Path) -> PathBuf {
    let found = path.ancestors().find_map(|above| {
        let missing = path.strip_prefix(above).ok()?;
        let there = above.canonicalize().ok()?;
        // Joining an empty path would append a slash, with which the path of a file is invalid.
        Some(there.components().chain(missing.components()).collect())
    });
    found.unwrap_or_else(|| path.to_path_buf())
}

/// Returns the interpreter of a language with these settings, if there is one.
pub fn interpreter(settings: &Settings, language: Language) -> Option<PathBuf> {
    match language {
        Language::Python => python(settings).ok().map(|python| python.executable),
        Language::Javascript => javascript(settings).ok().map(|found| found.executable),
        Language::Bash => interpreter::find_bash(),
        Language::Command => None,
    }
}

/// Returns the name of a request if it can be that of a file.
fn file_name(request: &Request) -> Option<&str> {
    let plain =
        |name: &&str| !name.is_empty() && !name.contains(['/', '<', '>', '\0']) && !name.starts_with('.');
    Some(request.name.as_str()).filter(plain)
}

/// Returns the interpreter of a script, the script's file name, and the arguments before it.
pub(super) fn script(
    extra: &Extra,
    request: &Request,
    settings: &Settings,
) -> Result<(PathBuf, String, Vec<String>), Error> {
    let name = file_name(request);
    if let Some(image) = &extra.image {
        return image::script(image, request, name);
    }
    let strings = |arguments: &[&str]| arguments.iter().map(|&text| text.to_owned()).collect();
    match request.language {
        Language::Bash => {
            let missing = Error::NoInterpreter {
                language: Language::Bash,
                looked_for: "bash",
            };
            let bash = interpreter::find_bash().ok_or(missing)?;
            Ok((
                bash,
                name.unwrap_or("main.sh").to_owned(),
                strings(&["--noprofile", "--norc"]),
            ))
        }
        Language::Javascript | Language::Python | Language::Command => {
            let found = javascript_for(extra, settings)?;
            let arguments: &[&str] = match found.kind {
                JavascriptKind::Node => &[],
                // The fence is the barrier; Deno's own permissions would only prompt.
                JavascriptKind::Deno => &[
                    "run",
                    "--quiet",
                    "--no-prompt",
                    "--no-remote",
                    "--no-npm",
                    "--allow-all",
                ],
            };
            Ok((
                found.executable,
                name.unwrap_or("main.js").to_owned(),
                strings(arguments),
            ))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::os::unix::fs::symlink;

    #[test]
    fn an_interpreter_around_a_private_directory_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path().canonicalize().unwrap();
        fs::create_dir_all(root.join("home/venv/lib")).unwrap();
        symlink(root.join("home"), root.join("link")).unwrap();
        // The state directory need not exist yet.
        let private = [root.join("home"), root.join("link/venv/state/ringfence")];
        let check = |shown: &str| {
            let shown = [root.join("other"), root.join(shown)];
            check_shown(Path::new("/bin/python3"), &shown, &private)
                .map_or_else(|error| error.to_string(), |()| "allowed".to_owned())
        };
        assert_eq!(check("home/venv/lib"), "allowed");
        assert_eq!(check("home/ven"), "allowed");
        for shown in ["", "home", "link", "home/venv", "link/venv"] {
            assert!(check(shown).starts_with("refusing to show "), "{shown}");
        }
    }
}
