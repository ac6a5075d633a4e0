//! Names of files and of other manifests in the manifests of packages.

/// Returns the targets of a cargo package, and the manifests of its dependencies, its members and its workspace.
pub(super) fn cargo(text: &str) -> Option<Vec<String>> {
    let mut named = Vec::new();
    for (key, value) in strings(text)? {
        match key.as_str() {
            "path" => named.extend([format!("{value}/Cargo.toml"), value]),
            "build" => named.push(value),
            "members" | "default-members" | "workspace" => named.push(format!("{value}/Cargo.toml")),
            _ => {}
        }
    }
    known(named)
}

/// Returns the manifests of the members of a Python workspace, and of local dependencies.
pub(super) fn uv(text: &str) -> Option<Vec<String>> {
    let all = strings(text)?.into_iter();
    let members = all.filter(|(key, _)| ["members", "path"].contains(&key.as_str()));
    known(
        members
            .map(|(_, value)| format!("{value}/pyproject.toml"))
            .collect(),
    )
}

/// Returns the manifests of the members of a Node.js workspace.
pub(super) fn package(text: &str) -> Option<Vec<String>> {
    let package: serde_json::Value = serde_json::from_str(text).ok()?;
    let workspaces = package.get("workspaces");
    let listed =
        workspaces.and_then(|spaces| spaces.as_array().or_else(|| spaces.get("packages")?.as_array()));
    let names = listed.into_iter().flatten().filter_map(|name| name.as_str());
    known(names.map(|name| format!("{name}/package.json")).collect())
}

/// Returns the manifests of the members of a pnpm workspace; of all its words, since YAML has many notations.
pub(super) fn pnpm(text: &str) -> Option<Vec<String>> {
    if text.contains('\\') {
        return None;
    }
    let words = text.split(|sign: char| sign.is_whitespace() || "'\"[],{}".contains(sign));
    let names = words.filter(|word| word.contains(['.', '/']));
    known(names.map(|name| format!("{name}/package.json")).collect())
}

/// Returns the strings of a TOML text, each with the innermost key above it.
fn strings(text: &str) -> Option<Vec<(String, String)>> {
    let mut pending = vec![(String::new(), toml::Value::Table(text.parse().ok()?))];
    let mut found = Vec::new();
    while let Some((key, value)) = pending.pop() {
        match value {
            toml::Value::Table(table) => pending.extend(table),
            toml::Value::Array(values) => {
                pending.extend(values.into_iter().map(|value| (key.clone(), value)))
            }
            toml::Value::String(text) => found.push((key, text)),
            _ => {}
        }
    }
    Some(found)
}

/// Returns the names; `None` if a glob among them can lead to any depth outside the tree, which is not walked.
fn known(names: Vec<String>) -> Option<Vec<String>> {
    let leaves = |name: &String| name.starts_with(['/', '~']) || name.split('/').any(|part| part == "..");
    let deep = |name: &String| name.contains("**") || name.contains(['{', '(']);
    let any = names.iter().any(|name| leaves(name) && deep(name));
    (!any).then_some(names)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(found: Option<Vec<String>>, expected: Option<&[&str]>) {
        let mut found = found;
        found.iter_mut().for_each(|names| names.sort());
        let expected = expected.map(|names| names.iter().map(|name| (*name).to_owned()).collect());
        assert_eq!(found, expected);
    }

    #[test]
    fn a_manifest_names_others_however_it_is_written() {
        check(cargo("lib = {path = '/x'}"), Some(&["/x", "/x/Cargo.toml"]));
        check(cargo("[[bin]]\npath = 'x'"), Some(&["x", "x/Cargo.toml"]));
        let members = "workspace.members = ['../a', 'b/*']";
        check(cargo(members), Some(&["../a/Cargo.toml", "b/*/Cargo.toml"]));
        check(cargo("[package]\nworkspace = '../w'"), Some(&["../w/Cargo.toml"]));
        let patch = "[patch.crates-io]\na = {path = '../a'}";
        check(cargo(patch), Some(&["../a", "../a/Cargo.toml"]));
        check(cargo("workspace.members = ['../**']"), None);
        check(cargo("not toml"), None);
        let members = "[tool.uv.workspace]\nmembers = ['../a']";
        check(uv(members), Some(&["../a/pyproject.toml"]));
        for text in [
            "{\"workspaces\": [\"../a\"]}",
            "{\"workspaces\": {\"packages\": [\"..\\u002fa\"]}}",
        ] {
            check(package(text), Some(&["../a/package.json"]));
        }
        check(package("{\"workspaces\": [\"../{a,b}\"]}"), None);
        check(pnpm("packages:\n  - '../a'\n"), Some(&["../a/package.json"]));
        check(pnpm("packages: [../a]\n"), Some(&["../a/package.json"]));
        check(pnpm("packages: [\"\\x2e./a\"]\n"), None);
    }
}
