//! Facts in which the ecosystems of packages differ. Everything else is the same for all.

use std::path::Path;

use ringfence_policy::{Language, NODE_MODULES, PACKAGES};
use serde::{Deserialize, Serialize};

use crate::requirement::{self, ParseRequirementError};

/// A set of packages with its index, its installer and its syntax of requirements.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Ecosystem {
    Python,
    Npm,
}

/// The differences between ecosystems.
pub(crate) struct Facts {
    pub(crate) language: Language,
    /// Interpreter that programs and the installer run in, for messages.
    pub(crate) interpreter: &'static str,
    /// Directory in which guests see the packages.
    pub(crate) place: &'static str,
    /// Variable by which interpreters find it, unless they look there anyway.
    pub(crate) search_path: Option<&'static str>,
    /// Version of the layout of environments. Change it when an installation writes other files.
    pub(crate) layout: &'static str,
    /// URL of the public index.
    pub(crate) public_url: &'static str,
    /// Host that the public index keeps its files on, if another.
    pub(crate) public_files: Option<&'static str>,
    /// File name and text of the guest that installs.
    pub(crate) program: (&'static str, &'static str),
    /// Parses a requirement into a name and its versions, both normalized.
    pub(crate) parse: fn(&str) -> Result<(String, String), ParseRequirementError>,
    /// Splits a list of requirements.
    pub(crate) split: fn(&str) -> Vec<String>,
    /// Requirements as they are written, for messages.
    pub(crate) examples: &'static str,
    /// Returns the name and version of the package that a directory of an environment stands for.
    pub(crate) package: fn(&Path) -> Option<String>,
    pub(crate) messages: &'static Messages,
}

/// Words for messages, and the words of an installer by which its failures are told apart.
pub(crate) struct Messages {
    /// Name of the installer.
    pub(crate) installer: &'static str,
    /// Noun for the place that packages come from.
    pub(crate) index: &'static str,
    /// Keys of the configuration with its URL, and with further hosts.
    pub(crate) keys: (&'static str, &'static str),
    /// Key of the configuration with the interpreter.
    pub(crate) interpreter_key: &'static str,
    /// Noun for the part of a package that may be missing.
    pub(crate) missing_part: &'static str,
    /// Advice where the interpreter has no installer.
    pub(crate) without_installer: &'static str,
    /// Advice where a package was not found.
    pub(crate) not_found: &'static str,
    pub(crate) wrong_digest: &'static str,
    pub(crate) conflict: &'static str,
    /// Texts before the names of packages that were not found, and the characters that end those.
    pub(crate) not_found_prefixes: &'static [(&'static str, &'static [char])],
    /// Beginnings of lines with errors.
    pub(crate) error_lines: &'static [&'static str],
}

const PYTHON: Facts = Facts {
    language: Language::Python,
    interpreter: "Python",
    place: PACKAGES,
    search_path: Some("PYTHONPATH"),
    layout: "1",
    public_url: "https://pypi.org/simple",
    public_files: Some("files.pythonhosted.org:443"),
    program: ("install.py", include_str!("../python/install.py")),
    parse: requirement::python::parse,
    split: requirement::python::split_list,
    examples: "`pandas` or `seaborn==0.13`",
    package: requirement::python::package,
    messages: &Messages {
        installer: "pip",
        index: "index",
        keys: ("packages.index", "packages.hosts"),
        interpreter_key: "sandbox.python",
        missing_part: "wheel of it for this Python and machine",
        without_installer: "install pip for it (Debian: `apt install python3-pip`), or name another interpreter with `--python`",
        not_found: "check the spelling and the version; packages are installed from wheels alone, never built from source",
        wrong_digest: "DO NOT MATCH THE HASHES",
        conflict: "ResolutionImpossible",
        not_found_prefixes: &[("No matching distribution found for ", &[' ', '\n'])],
        error_lines: &["ERROR: "],
    },
};

const NPM: Facts = Facts {
    language: Language::Javascript,
    interpreter: "Node.js",
    place: NODE_MODULES,
    search_path: None,
    layout: "npm 2",
    public_url: "https://registry.npmjs.org",
    public_files: None,
    program: ("install.mjs", include_str!("../javascript/install.mjs")),
    parse: requirement::npm::parse,
    split: requirement::npm::split_list,
    examples: "`lodash` or `@scope/name@^2`",
    package: requirement::npm::package,
    messages: &Messages {
        installer: "npm",
        index: "registry",
        keys: ("packages.npm_registry", "packages.npm_hosts"),
        interpreter_key: "sandbox.javascript",
        missing_part: "such version of it",
        without_installer: "install Node.js with npm (Debian: `apt install nodejs npm`), or name a Node.js that has it in `sandbox.javascript`",
        not_found: "check the spelling and the version",
        wrong_digest: "EINTEGRITY",
        conflict: "ERESOLVE",
        not_found_prefixes: &[
            ("The requested resource '", &['\'']),
            (" 404  '", &['\'']),
            ("No matching version found for ", &['\n']),
        ],
        error_lines: &["npm error ", "npm ERR! "],
    },
};

impl Ecosystem {
    /// Returns the ecosystem of a language, if it has one.
    pub const fn of(language: Language) -> Option<Self> {
        match language {
            Language::Python => Some(Self::Python),
            Language::Javascript => Some(Self::Npm),
            Language::Bash | Language::Command => None,
        }
    }

    pub(crate) const fn facts(self) -> &'static Facts {
        match self {
            Self::Python => &PYTHON,
            Self::Npm => &NPM,
        }
    }

    /// Returns the language whose programs have the packages.
    pub const fn language(self) -> Language {
        self.facts().language
    }

    /// Returns the directory in which guests see the packages.
    pub const fn place(self) -> &'static str {
        self.facts().place
    }

    /// Returns requirements as they are written, for advice.
    pub const fn examples(self) -> &'static str {
        self.facts().examples
    }

    /// Returns the keys of the configuration with the URL of the index, and with its further hosts.
    pub const fn keys(self) -> (&'static str, &'static str) {
        self.facts().messages.keys
    }

    /// Returns the URL of the public index.
    pub const fn public_url(self) -> &'static str {
        self.facts().public_url
    }

    pub(crate) const fn messages(self) -> &'static Messages {
        self.facts().messages
    }
}
