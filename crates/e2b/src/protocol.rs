//! Fixed values of E2B's protocol, which several of its planes share.

/// Templates that are the root file system of this machine: `base`, and the one of the code interpreter.
pub(crate) const BASE: &str = "base";
const TEMPLATES: &[&str] = &[BASE, "code-interpreter-v1"];

/// Returns `true` for a template that is this machine's root file system.
pub(crate) fn is_machine(template: &str) -> bool {
    TEMPLATES.contains(&template.strip_suffix(":default").unwrap_or(template))
}

/// Version of E2B's daemon whose behaviour is served: clients choose what they send by it.
pub(crate) const ENVD_VERSION: &str = "0.6.13";

/// Lifetime that a connection asks for if it names none, in seconds.
pub(crate) const LIFETIME: u64 = 300;

/// Returns the parts of a path, without the versions of E2B's API that mean the same.
pub(crate) fn parts(path: &str) -> Vec<&str> {
    let mut parts: Vec<&str> = path.trim_matches('/').split('/').collect();
    if parts.first() == Some(&"v2") && parts.get(1) == Some(&"sandboxes") && parts.len() != 2 {
        parts.remove(0);
    }
    parts
}
