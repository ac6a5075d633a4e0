//! Runs on an image, whose root and programs replace the host's.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};

use ringfence_jail::protocol::Bind;
use ringfence_policy::{EntrySource, Image, Language, Mount, Request};

use super::error::Error;
use super::extra::{Root, WORKSPACE};
use super::settings::Fence;

/// Rejects requests with options that an image cannot support, which would silently be ignored.
pub(super) fn check(request: &Request, fence: Fence) -> Result<(), Error> {
    match request.image {
        None => Ok(()),
        Some(_) if request.session.is_some() => Err(Error::Image("a session")),
        Some(_) if request.language == Language::Command => Err(Error::Image("a command")),
        Some(_) if fence.is_none() => Err(Error::Image("a run without a fence")),
        Some(_) => Ok(()),
    }
}

/// Returns the part of a root that is the image's, read-only. Its files belong to the guest there, whoever owns them
/// in the image: there is one id.
pub(super) fn root(image: &Image, mounts: &[Mount]) -> Root {
    let mut root = Root::default();
    for entry in &image.entries {
        let is_mounted = mounts.iter().any(|mount| mount.guest().starts_with(&entry.guest));
        match &entry.source {
            // A mount needs the name for itself, or a directory that can be made.
            EntrySource::Link(_) if is_mounted => {}
            EntrySource::Link(target) => root.links.push((entry.guest.clone(), target.clone())),
            EntrySource::Host(host) if is_mounted && is_empty(host) => {}
            EntrySource::Host(host) => root.binds.push(Bind {
                host: host.clone(),
                guest: entry.guest.clone(),
                writable: false,
                guest_owns: true,
                optional: false,
                itself: false,
            }),
        }
    }
    root
}

fn is_empty(directory: &Path) -> bool {
    std::fs::read_dir(directory).is_ok_and(|mut entries| entries.next().is_none())
}

/// Adds the image's variables to the fence's own, which they replace.
pub(super) fn add_variables(image: &Image, environment: &mut Vec<(String, String)>) {
    let own = [
        ("PATH", Image::PATH),
        ("SHELL", "/bin/sh"),
        // A script's own directory is `/code`; its neighbours are in the workspace.
        ("PYTHONPATH", WORKSPACE),
        ("PYTHONDONTWRITEBYTECODE", "1"),
    ];
    let own = own.iter().copied();
    let of_image = image
        .env
        .iter()
        .map(|(name, value)| (name.as_str(), value.as_str()));
    for (name, value) in own.chain(of_image) {
        environment.retain(|(other, _)| other != name);
        environment.push((name.to_owned(), value.to_owned()));
    }
}

/// Returns the interpreter of a script in the image, the script's file name, and the arguments before it.
pub(super) fn script(
    image: &Image,
    request: &Request,
    name: Option<&str>,
) -> Result<(PathBuf, String, Vec<String>), Error> {
    let interpreter = image.interpreter.clone().ok_or(Error::NoInterpreter {
        language: request.language,
        looked_for: "one on the image's PATH",
    })?;
    let (default, arguments): (_, &[&str]) = match request.language {
        Language::Python => ("main.py", &["-X", "utf8"]),
        // Another shell than bash knows no such options.
        Language::Bash if interpreter.file_name() == Some(OsStr::new("bash")) => {
            ("main.sh", &["--noprofile", "--norc"])
        }
        Language::Bash => ("main.sh", &[]),
        Language::Javascript | Language::Command => ("main.js", &[]),
    };
    let name = name.unwrap_or(default).to_owned();
    let arguments = arguments.iter().map(|&text| text.to_owned()).collect();
    Ok((interpreter, name, arguments))
}
