//! Contents of project files that name programs, or other files.

/// Returns `true` if a `package.json` names a known package manager, in a version without a URL, and no settings
/// of pnpm beyond the harmless ones.
pub fn is_plain_package(text: &str) -> bool {
    let Ok(package) = serde_json::from_str::<serde_json::Value>(text) else {
        return false;
    };
    let known = ["npm", "yarn", "pnpm", "bun"];
    let plain = |manager: &str| {
        let (name, version) = manager.split_once('@').unwrap_or((manager, ""));
        let digits = |sign: char| sign.is_ascii_alphanumeric() || ".+-".contains(sign);
        known.contains(&name) && version.chars().all(digits)
    };
    let manager = &package["packageManager"];
    let settings = package["pnpm"].as_object();
    let harmless = settings.is_none_or(|settings| settings.keys().all(|key| PNPM.contains(&key.as_str())));
    harmless && package["devEngines"].is_null() && (manager.is_null() || manager.as_str().is_some_and(plain))
}

/// Settings of pnpm that name no program, no file and no host.
const PNPM: &[&str] = &[
    "packages",
    "catalog",
    "catalogs",
    "overrides",
    "packageExtensions",
    "peerDependencyRules",
    "allowedDeprecatedVersions",
    "onlyBuiltDependencies",
    "ignoredBuiltDependencies",
    "neverBuiltDependencies",
    "ignoredOptionalDependencies",
    "patchedDependencies",
    "requiredScripts",
    "supportedArchitectures",
    "auditConfig",
    "updateConfig",
    "linkWorkspacePackages",
    "preferWorkspacePackages",
    "sharedWorkspaceLockfile",
    "autoInstallPeers",
    "strictPeerDependencies",
    "dedupePeerDependents",
    "resolutionMode",
    "shamefullyHoist",
    "hoist",
    "hoistPattern",
    "publicHoistPattern",
    "nodeLinker",
    "saveExact",
    "savePrefix",
    "saveWorkspaceProtocol",
    "engineStrict",
    "minimumReleaseAge",
];

/// Returns `true` if a `pnpm-workspace.yaml` has the plainest syntax and harmless settings only.
///
/// The keys of a mapping have one indentation: if the first one has none, all others are read here.
pub fn is_plain_workspace(text: &str) -> bool {
    let text = text.replace("\r\n", "\n");
    if text.contains(['\r', '\t', '\u{85}', '\u{2028}', '\u{2029}', '\u{feff}']) {
        return false;
    }
    let mut lines = text
        .lines()
        .filter(|line| !line.trim().is_empty() && !line.trim_start().starts_with('#'));
    let key = |line: &str| {
        let key = line.split_once(':').map_or("", |(key, _)| key);
        PNPM.contains(&key)
    };
    match lines.next() {
        None => true,
        Some(first) => {
            key(first) && lines.all(|line| line.starts_with(' ') || line.starts_with("- ") || key(line))
        }
    }
}

/// Settings of uv in a `pyproject.toml` that name no program, no file and no host.
const UV: &[&str] = &[
    "dev-dependencies",
    "sources",
    "workspace",
    "package",
    "default-groups",
    "constraint-dependencies",
    "override-dependencies",
    "build-constraint-dependencies",
    "dependency-groups",
    "conflicts",
    "environments",
    "required-environments",
    "required-version",
    "resolution",
    "prerelease",
    "exclude-newer",
    "managed",
];

/// Returns `true` if a `pyproject.toml` has harmless settings of uv only.
pub fn is_plain_project(text: &str) -> bool {
    let Ok(project) = text.parse::<toml::Table>() else {
        return false;
    };
    let uv = project.get("tool").and_then(|tool| tool.get("uv"));
    uv.is_none_or(|uv| {
        uv.as_table()
            .is_some_and(|uv| uv.keys().all(|key| UV.contains(&key.as_str())))
    })
}

/// Returns `true` if a compose file could fetch another project, or is written so that this cannot be seen.
pub fn composes_elsewhere(text: &str) -> bool {
    let telling = ["include", "extends", "COMPOSE_", "://", "git@"];
    // Escapes and tags spell the same keys.
    let hidden = ["\\x", "\\u", "\\U", "!!", "! "];
    telling.iter().chain(&hidden).any(|part| text.contains(part))
}

/// Returns the files of variables and labels that a compose file names; `None` if not all are plain names below
/// its directory, on the line of their key or in a list of one item a line.
pub fn variable_files(text: &str) -> Option<Vec<String>> {
    const KEYS: &[&str] = &["env_file", "label_file"];
    let mut files = Vec::new();
    let mut lines = text.lines().filter(|line| !is_comment(line)).peekable();
    while let Some(line) = lines.next() {
        let Some(at) = KEYS.iter().filter_map(|key| line.find(key)).min() else {
            continue;
        };
        let value = line[at..].split_once(':').map(|(_, value)| value)?;
        let item = |line: &&str| line.trim_start().starts_with("- ");
        match value.trim().is_empty() {
            true => lines.peek().filter(|line| item(line)).map(|_| ())?,
            false => files.extend(names(value)?),
        }
        while let Some(next) = lines.next_if(|next| item(next) || is_detail(next)) {
            if !is_detail(next) {
                files.extend(names(next)?);
            }
        }
    }
    Some(files)
}

fn is_comment(line: &str) -> bool {
    let line = line.trim_start();
    line.is_empty() || line.starts_with('#')
}

/// Matches the text that may follow a file's name in an item.
fn is_detail(line: &str) -> bool {
    ["required: true", "required: false", "format: raw"].contains(&line.trim())
}

/// Returns the names in a value, which are relative and lead nowhere up.
fn names(value: &str) -> Option<Vec<String>> {
    let value = value.split(" #").next().unwrap_or_default().trim();
    let count = |sign: char| value.matches(sign).count();
    // What goes on in the next line is not read here.
    if count('"') % 2 + count('\'') % 2 > 0 || count('[') > count(']') || value.ends_with([':', ',']) {
        return None;
    }
    let separates = |sign: char| sign.is_whitespace() || "\"'[],{}:".contains(sign);
    let words = value
        .split(separates)
        .filter(|word| !word.is_empty() && *word != "-");
    let plain = |word: &&str| {
        let signs = |sign: char| sign.is_ascii_alphanumeric() || "._-/".contains(sign);
        word.chars().all(signs) && !word.starts_with('/') && !word.split('/').any(|part| part == "..")
    };
    let words: Vec<&str> = words.collect();
    let known = !words.is_empty() && words.iter().all(plain);
    known.then(|| words.iter().map(|word| (*word).to_owned()).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_of_pnpm_are_read_as_it_reads_them() {
        for text in [
            "",
            "# x\npackages:\n  - app\n  - 'lib/*'\n",
            "packages:\n- app\ncatalog:\n  react: ^18\nonlyBuiltDependencies: [esbuild]\r\n",
        ] {
            assert!(is_plain_workspace(text), "{text:?}");
        }
        for text in [
            "pnpmfile: x",
            "packages: []\npnpmfile: x",
            "  packages: []\n  pnpmfile: x",
            "packages: []\rpnpmfile: x",
            "\"pnpmfile\": x",
            "packages: []\n\"pnpm\\x66ile\": x",
            "packages: []\n? pnpmfile\n: x",
            "{packages: [], pnpmfile: x}",
            "packages: []\n<<: *x",
            "---\npnpmfile: x",
            "packages: []\n---\npnpmfile: x",
            "packages: []\n--- {pnpmfile: x}",
            "configDependencies: {}",
            "packages : []",
        ] {
            assert!(!is_plain_workspace(text), "{text:?}");
        }
        assert!(is_plain_package("{\"pnpm\": {\"overrides\": {}}}"));
        assert!(!is_plain_package("{\"pnpm\": {\"pnpmfile\": \"x\"}}"));
    }

    #[test]
    fn files_of_variables_are_read_where_they_are_plain() {
        let files = |names: &[&str]| Some(names.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>());
        for (text, expected) in [
            ("a: 1", files(&[])),
            ("env_file: a.env # x", files(&["a.env"])),
            ("# env_file: /x", files(&[])),
            (
                "env_file:\n  - a\n\n  # x\n  - 'b/c'\nports: [/x]",
                files(&["a", "b/c"]),
            ),
            (
                "env_file:\n  - path: a\n    required: false\n",
                files(&["path", "a"]),
            ),
            ("env_file: /x", None),
            ("env_file:\n  ../x", None),
            ("env_file:\n  [\n  ../x]", None),
            ("env_file: [a,\n  ../x]", None),
            ("env_file:\n  -\n    ../x", None),
            ("env_file:\n  - path:\n      ../x", None),
            ("env_file: >-\n  ../x", None),
            ("env_file: \"a\n  /../../x\"", None),
            ("env_file: *x", None),
            ("env_file: ${X}", None),
            ("? env_file\n: ../x", None),
        ] {
            assert_eq!(variable_files(text), expected, "{text:?}");
        }
    }

    #[test]
    fn settings_of_uv_are_read_as_it_reads_them() {
        for text in [
            "",
            "[project]\nname='x'",
            "[tool.uv]\ndev-dependencies=[]",
            "[tool.ruff]\nx=1",
        ] {
            assert!(is_plain_project(text), "{text:?}");
        }
        for text in [
            "[tool.uv.pip]\npython='./x'",
            "tool.uv.index-url='http://x'",
            "tool = {uv = {python-install-mirror = 'x'}}",
            "tool = {\"\\u0075v\" = {find-links = []}}",
            "[tool",
        ] {
            assert!(!is_plain_project(text), "{text:?}");
        }
    }
}
