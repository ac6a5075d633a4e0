//! Languages: the command lines of program texts.

use crate::error::Error;
use crate::session::DIRECTORY;

/// A language of programs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Language {
    Python,
    Javascript,
    Typescript,
    Bash,
}

impl Language {
    /// Returns the language with a name of the protocol.
    pub(crate) fn named(name: &str) -> Result<Self, Error> {
        match name.to_ascii_lowercase().as_str() {
            "py" | "python" => Ok(Self::Python),
            "js" | "javascript" | "node" | "nodejs" => Ok(Self::Javascript),
            "ts" | "typescript" => Ok(Self::Typescript),
            "bash" | "sh" => Ok(Self::Bash),
            _ => Err(Error::NoLanguage(name.escape_debug().take(40).collect())),
        }
    }

    /// Returns the name of a program's file. It is beside the other files, as in the original service: programs import what they find there.
    pub(crate) const fn file(self) -> &'static str {
        match self {
            Self::Python => ".main.py",
            Self::Javascript => ".main.js",
            Self::Typescript => ".main.ts",
            Self::Bash => ".main.sh",
        }
    }

    /// Returns the command line that runs a program's file.
    pub(crate) fn command(self, arguments: &[String]) -> Vec<String> {
        let file = format!("{DIRECTORY}/{}", self.file());
        let words: &[&str] = match self {
            Self::Python => &["python3", &file],
            Self::Javascript => &["node", &file],
            Self::Typescript => &["node", "--experimental-strip-types", "--no-warnings", &file],
            Self::Bash => &["bash", &file],
        };
        let words = words.iter().map(|word| (*word).to_owned());
        words.chain(arguments.iter().cloned()).collect()
    }
}

/// Probe command: exits with 0 if this Node.js runs TypeScript.
pub(crate) const HAS_TYPES: [&str; 3] = [
    "node",
    "-e",
    "process.exit(process.allowedNodeEnvironmentFlags.has('--experimental-strip-types') ? 0 : 1)",
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn languages_have_the_names_of_the_protocol() {
        let check = |name: &str, expected: Option<Language>| {
            assert_eq!(Language::named(name).ok(), expected, "{name}");
        };
        check("py", Some(Language::Python));
        check("JS", Some(Language::Javascript));
        check("ts", Some(Language::Typescript));
        check("bash", Some(Language::Bash));
        check("rs", None);
        let error = Language::named("r\u{1b}[2J").unwrap_err().to_string();
        assert!(!error.contains('\u{1b}'), "{error}");
        let command = Language::Bash.command(&["-x".to_owned()]);
        assert_eq!(command, ["bash", "/mnt/data/.main.sh", "-x"]);
    }
}
