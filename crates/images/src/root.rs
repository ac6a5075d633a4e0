//! The root of a run on an image: the entries, variables and programs that it finds there.

use std::ffi::OsStr;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use ringfence_policy::{EntrySource, EnvName, Image, Language, RootEntry};
use rustix::fs::{FileType, Mode, OFlags, fstat};

use crate::reference::Selector;
use crate::store::Lease;
use crate::tree::{open_inside, path_of};

/// Maximum number of entries of a root: each is a mount or a link.
const MAX_ENTRIES: usize = 256;

/// An error for an image that cannot be the root of a run.
#[derive(Debug, thiserror::Error)]
pub enum RootError {
    #[error("cannot read the image's files")]
    Unreadable(#[source] io::Error),
    #[error("the root directory of the image has more than {MAX_ENTRIES} entries")]
    Crowded,
    #[error("the root directory of the image has a name that is not UTF-8")]
    Name,
    #[error("the image has no {language} on its PATH: found neither {}", names.join(" nor "))]
    NoInterpreter {
        language: Language,
        names: &'static [&'static str],
    },
}

impl RootError {
    /// Returns a hint for the user.
    pub fn hint(&self) -> &'static str {
        match self {
            Self::Unreadable(_) => "remove the image with `ringfence image rm`, and get it again",
            Self::Crowded | Self::Name => "choose another image",
            Self::NoInterpreter { .. } => "choose an image that has it, or another language with -l",
        }
    }
}

impl Lease {
    /// Returns the image as the root of a run in this language.
    ///
    /// # Errors
    /// If its files cannot be read, or it lacks the language's interpreter.
    pub fn image(&self, selector: &Selector, language: Language) -> Result<Image, RootError> {
        let env = self.variables();
        let path = env.iter().find(|(name, _)| name.as_str() == "PATH");
        let path = path.map_or(Image::PATH, |(_, value)| value);
        let names = interpreters(language);
        let interpreter = names.iter().find_map(|name| self.program(name, path));
        if interpreter.is_none() && !names.is_empty() {
            return Err(RootError::NoInterpreter { language, names });
        }
        Ok(Image {
            reference: selector.to_string(),
            digest: self.description.digest.to_string(),
            root: self.root.clone(),
            entries: self.entries()?,
            working_directory: self.working_directory(),
            interpreter,
            env,
        })
    }

    /// Returns the variables of the configuration that can be ones.
    fn variables(&self) -> Vec<(EnvName, String)> {
        let all = self.description.process.env.iter();
        all.filter_map(|text| {
            let (name, value) = text.split_once('=')?;
            let is_text = !value.contains('\0');
            Some((name.parse().ok()?, value.to_owned())).filter(|_| is_text)
        })
        .collect()
    }

    /// Returns the entries of the root, apart from those that the fence has itself.
    fn entries(&self) -> Result<Vec<RootEntry>, RootError> {
        let mut entries = Vec::new();
        for entry in fs::read_dir(&self.root).map_err(RootError::Unreadable)? {
            let entry = entry.map_err(RootError::Unreadable)?;
            let name = entry.file_name().into_string().map_err(|_| RootError::Name)?;
            if Image::RESERVED.contains(&name.as_str()) {
                continue;
            }
            if entries.len() == MAX_ENTRIES {
                return Err(RootError::Crowded);
            }
            let host = entry.path();
            let kind = entry.file_type().map_err(RootError::Unreadable)?;
            entries.push(RootEntry {
                guest: Path::new("/").join(name),
                source: match kind.is_symlink() {
                    true => EntrySource::Link(fs::read_link(&host).map_err(RootError::Unreadable)?),
                    false => EntrySource::Host(host),
                },
            });
        }
        entries.sort_by(|one, other| one.guest.cmp(&other.guest));
        Ok(entries)
    }

    fn working_directory(&self) -> Option<PathBuf> {
        let path = Path::new(&self.description.process.working_dir);
        (path.is_absolute() && self.kind(path) == Some(FileType::Directory)).then(|| path.to_owned())
    }

    /// Returns the path in the image of a program on the search path. Nothing is executed.
    fn program(&self, name: &str, path: &str) -> Option<PathBuf> {
        let directories = path.split(':').map(Path::new);
        let mut candidates = directories
            .filter(|directory| directory.is_absolute())
            .map(|directory| directory.join(name));
        candidates.find(|candidate| self.is_program(candidate))
    }

    fn is_program(&self, path: &Path) -> bool {
        self.stat(path).is_some_and(|found| {
            FileType::from_raw_mode(found.st_mode) == FileType::RegularFile && found.st_mode & 0o111 != 0
        })
    }

    fn kind(&self, path: &Path) -> Option<FileType> {
        self.stat(path)
            .map(|found| FileType::from_raw_mode(found.st_mode))
    }

    /// Follows links as a program in the image would: its root is the image's. What leads to a directory that the fence
    /// replaces by its own is missing: guests write there.
    fn stat(&self, path: &Path) -> Option<rustix::fs::Stat> {
        let flags = OFlags::PATH | OFlags::CLOEXEC;
        let root = rustix::fs::open(&self.root, flags | OFlags::DIRECTORY, Mode::empty()).ok()?;
        let found = open_inside(&root, path, flags).ok()?;
        let resolved = path_of(&found).ok()?;
        let below = resolved.strip_prefix(path_of(&root).ok()?).ok()?;
        let first = below.components().next().map(|first| first.as_os_str());
        let is_ours = Image::RESERVED.iter().any(|name| first == Some(OsStr::new(name)));
        fstat(found).ok().filter(|_| !is_ours)
    }
}

/// Returns the names of a language's interpreters, the best first.
const fn interpreters(language: Language) -> &'static [&'static str] {
    match language {
        Language::Python => &["python3", "python"],
        Language::Bash => &["bash", "sh"],
        Language::Javascript => &["node", "nodejs"],
        Language::Command => &[],
    }
}
