//! The kernels that there are to choose from.

use std::collections::BTreeMap;

use ringfence_sandbox::context::Language;
use schemars::JsonSchema;
use serde::Serialize;
use serde_json::{Value, json};

use crate::outputs::Forms;

/// A kind of kernel.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Kind {
    pub(crate) name: &'static str,
    display_name: &'static str,
    pub(crate) language: Language,
    /// Forms of results that clients get.
    pub(crate) forms: Forms,
}

const fn kind(name: &'static str, display_name: &'static str, language: Language, forms: Forms) -> Kind {
    Kind {
        name,
        display_name,
        language,
        forms,
    }
}

/// All kinds; the first is the default. Clients send `python3` where their user has named none.
const KINDS: [Kind; 6] = [
    kind("python3", "Python (Ringfence)", Language::Python, Forms::Inert),
    kind("bash", "Bash (Ringfence)", Language::Bash, Forms::Inert),
    kind(
        "javascript",
        "JavaScript (Ringfence)",
        Language::Javascript,
        Forms::Inert,
    ),
    kind(
        "python3-all-outputs",
        "Python (Ringfence, all outputs)",
        Language::Python,
        Forms::All,
    ),
    kind(
        "bash-all-outputs",
        "Bash (Ringfence, all outputs)",
        Language::Bash,
        Forms::All,
    ),
    kind(
        "javascript-all-outputs",
        "JavaScript (Ringfence, all outputs)",
        Language::Javascript,
        Forms::All,
    ),
];

/// The kinds of kernels, as Jupyter lists them.
#[derive(Debug, Serialize, JsonSchema)]
pub struct KernelSpecs {
    /// Name of the kernel for requests that name none.
    default: &'static str,
    kernelspecs: BTreeMap<&'static str, KernelSpec>,
}

/// A kind of kernel, as Jupyter describes it.
#[derive(Debug, Serialize, JsonSchema)]
pub struct KernelSpec {
    name: &'static str,
    spec: KernelSpecFile,
    /// Empty.
    resources: BTreeMap<String, String>,
}

#[derive(Debug, Serialize, JsonSchema)]
struct KernelSpecFile {
    /// Empty: no program of the client's machine is started.
    argv: Vec<String>,
    /// Empty.
    env: BTreeMap<String, String>,
    display_name: &'static str,
    language: &'static str,
    /// `message`: clients interrupt by the server.
    interrupt_mode: &'static str,
    /// Empty.
    metadata: BTreeMap<String, String>,
}

impl Kind {
    /// Returns the kind of this name, or the default one.
    pub(crate) fn find(name: Option<&str>) -> Option<&'static Self> {
        match name {
            None | Some("") => KINDS.first(),
            Some(name) => KINDS.iter().find(|kind| kind.name == name),
        }
    }

    fn describe(&self) -> KernelSpec {
        KernelSpec {
            name: self.name,
            spec: KernelSpecFile {
                argv: Vec::new(),
                env: BTreeMap::new(),
                display_name: self.display_name,
                language: name(self.language),
                interrupt_mode: "message",
                metadata: BTreeMap::new(),
            },
            resources: BTreeMap::new(),
        }
    }

    /// Returns the description of the language for `kernel_info_reply`.
    pub(crate) fn language_info(&self, version: &str) -> Value {
        let (mime, extension, mode) = match self.language {
            Language::Python => ("text/x-python", ".py", json!({"name": "ipython", "version": 3})),
            Language::Bash => ("text/x-sh", ".sh", json!("shell")),
            Language::Javascript | Language::Typescript => ("text/javascript", ".js", json!("javascript")),
        };
        json!({
            "name": name(self.language),
            "version": version,
            "mimetype": mime,
            "file_extension": extension,
            "codemirror_mode": mode,
        })
    }
}

impl KernelSpecs {
    /// Returns all kinds.
    pub fn all() -> Self {
        Self {
            default: KINDS[0].name,
            kernelspecs: KINDS.iter().map(|kind| (kind.name, kind.describe())).collect(),
        }
    }

    /// Returns the kind of this name.
    pub fn one(name: &str) -> Option<KernelSpec> {
        KINDS.iter().find(|kind| kind.name == name).map(Kind::describe)
    }
}

const fn name(language: Language) -> &'static str {
    match language {
        Language::Python => "python",
        Language::Bash => "bash",
        Language::Javascript => "javascript",
        Language::Typescript => "typescript",
    }
}
