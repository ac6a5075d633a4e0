//! Project files that programs read without being named in the line.

use std::io::Read;
use std::path::{Path, PathBuf};

use ringfence_exec::trust::glob::{self, Expanded};

use super::line_directory::{LineDirectory, is_broad};
use super::tokens::names;

/// Maximum number of files that a glob expands to.
const MAX_FILES: usize = 1_000;

/// Maximum size of git's settings that are read.
const MAX_SETTINGS: u64 = 1 << 20;

/// Programs, with the files of a directory that control them.
const FILES: &[(&[&str], &[&str])] = &[
    (
        &["make", "gmake", "bmake", "remake"],
        &["GNUmakefile", "makefile", "Makefile", "*.mk"],
    ),
    (
        &["cmake", "ctest", "cpack", "ninja", "meson", "scons"],
        &[
            "CMakeLists.txt",
            "CMakePresets.json",
            "CMakeUserPresets.json",
            "build.ninja",
            "meson.build",
            "SConstruct",
        ],
    ),
    (
        &[
            "npm", "npx", "yarn", "yarnpkg", "pnpm", "pnpx", "bun", "bunx", "corepack", "node", "tsc", "tsx",
            "jest", "vitest", "vite", "webpack", "eslint", "prettier", "next", "mocha", "gulp", "grunt",
            "nx", "turbo", "deno",
        ],
        &[
            "package.json",
            "node_modules",
            "package-lock.json",
            "npm-shrinkwrap.json",
            "yarn.lock",
            "pnpm-lock.yaml",
            "pnpm-workspace.yaml",
            "bun.lock",
            ".npmrc",
            ".yarnrc",
            ".yarnrc.yml",
            ".pnpmfile.cjs",
            "bunfig.toml",
            "tsconfig*.json",
            "*.config.js",
            "*.config.cjs",
            "*.config.mjs",
            "*.config.ts",
            ".eslintrc*",
            ".prettierrc*",
            ".babelrc*",
            ".mocharc*",
            "Gruntfile.js",
            "gulpfile.js",
            "nx.json",
            "turbo.json",
            "deno.json",
            "deno.jsonc",
        ],
    ),
    (
        &["cargo", "cross", "rustc", "rustup", "rustfmt"],
        &[
            "Cargo.toml",
            "Cargo.lock",
            "build.rs",
            "rust-toolchain",
            "rust-toolchain.toml",
            ".cargo/config",
            ".cargo/config.toml",
            "rustfmt.toml",
            ".rustfmt.toml",
        ],
    ),
    (
        &["go", "gofmt"],
        &["go.mod", "go.sum", "go.work", "vendor/modules.txt"],
    ),
    (
        &[
            "python",
            "python2",
            "python3",
            "pip",
            "pip3",
            "pytest",
            "py.test",
            "tox",
            "nox",
            "uv",
            "uvx",
            "poetry",
            "pdm",
            "hatch",
            "pipenv",
            "mypy",
            "pylint",
            "ruff",
            "black",
            "isort",
            "coverage",
            "flake8",
            "pycodestyle",
            "pre-commit",
        ],
        &[
            "pyproject.toml",
            "setup.py",
            "setup.cfg",
            "tox.ini",
            "noxfile.py",
            "conftest.py",
            "*/conftest.py",
            "pytest.ini",
            "mypy.ini",
            ".pylintrc",
            ".flake8",
            "ruff.toml",
            ".ruff.toml",
            "requirements*.txt",
            "Pipfile",
            "Pipfile.lock",
            "poetry.lock",
            "uv.lock",
            "uv.toml",
            "sitecustomize.py",
            "usercustomize.py",
            ".python-version",
            ".venv/pyvenv.cfg",
            ".venv/bin/python",
            ".pre-commit-config.yaml",
        ],
    ),
    (
        &[
            "docker",
            "docker-compose",
            "podman",
            "podman-compose",
            "nerdctl",
            "buildah",
        ],
        &[
            "compose*.y*ml",
            "docker-compose*.y*ml",
            "Dockerfile*",
            "Containerfile*",
            ".dockerignore",
            ".env",
            "docker-bake.*",
        ],
    ),
    (
        &["kubectl", "oc", "kustomize", "helm", "skaffold"],
        &[
            "kustomization.y*ml",
            "Kustomization",
            "Chart.yaml",
            "Chart.lock",
            "values*.yaml",
            "templates/*",
            "skaffold.yaml",
            "*.yaml",
            "*.yml",
            "*.json",
        ],
    ),
    (
        &["terraform", "tofu", "terragrunt", "packer"],
        &[
            "*.tf",
            "*.tf.json",
            "*.tfvars",
            "*.hcl",
            ".terraform/terraform.tfstate",
        ],
    ),
    (
        &["ansible"],
        &[
            "ansible.cfg",
            "hosts",
            "inventory",
            "inventory/*",
            "*.yml",
            "*.yaml",
        ],
    ),
    (
        &["mvn", "mvnw", "gradle", "gradlew", "sbt", "ant"],
        &[
            "pom.xml",
            ".mvn/*",
            "build.gradle*",
            "settings.gradle*",
            "gradle.properties",
            "gradle/wrapper/*",
            "build.sbt",
            "project/*",
            "build.xml",
        ],
    ),
    (
        &["rake", "bundle", "rails", "rspec", "ruby", "gem"],
        &[
            "Rakefile",
            "Gemfile",
            "Gemfile.lock",
            ".rspec",
            "config/application.rb",
        ],
    ),
    (
        &["composer", "php", "phpunit", "artisan"],
        &["composer.json", "composer.lock", "phpunit.xml*", "artisan"],
    ),
    (
        &["dotnet", "msbuild"],
        &[
            "*.csproj",
            "*.fsproj",
            "*.sln",
            "Directory.Build.*",
            "global.json",
        ],
    ),
    (&["mix", "elixir", "iex"], &["mix.exs", "mix.lock"]),
    (&["just"], &["justfile", "Justfile", ".justfile"]),
    (&["task"], &["Taskfile.y*ml", "Taskfile.dist.y*ml"]),
    (&["bazel"], &["WORKSPACE*", "MODULE.bazel", "BUILD*", ".bazelrc"]),
    (&["vagrant"], &["Vagrantfile"]),
    (&["direnv"], &[".envrc"]),
    (
        &["git", "gh", "hub", "tig"],
        &[".git/config", ".git/hooks/*", ".gitmodules", ".gitattributes"],
    ),
    (
        &["clang-format", "clang-tidy"],
        &[".clang-format", "_clang-format", ".clang-tidy"],
    ),
    (
        &["shellcheck", "yamllint", "hadolint"],
        &[".shellcheckrc", ".yamllint*", ".hadolint.y*ml"],
    ),
];

/// Returns the files of a directory that the programs of a line read implicitly, whether they exist or not.
pub(super) fn files(line: &str, directory: &Path) -> Expanded {
    let used = FILES
        .iter()
        .filter(|(programs, _)| programs.iter().any(|program| names(line, program)));
    let mut all = Expanded::default();
    for file in used.flat_map(|(_, files)| *files) {
        let found = glob::expand(&directory.join(file), MAX_FILES);
        all.truncated |= found.truncated;
        all.paths.extend(found.paths);
    }
    all
}

/// Returns `true` for a script or a settings file that names scripts, so that the files it names count, too.
pub(super) fn is_followed(path: &Path) -> bool {
    const ENDINGS: &[&str] = &[
        "sh", "bash", "zsh", "mk", "py", "js", "cjs", "mjs", "ts", "rb", "pl", "php", "lua", "cmake",
        "gradle",
    ];
    const NAMES: &[&str] = &[
        "GNUmakefile",
        "makefile",
        "Makefile",
        "package.json",
        "composer.json",
        "Cargo.toml",
        "Dockerfile",
        "Containerfile",
        "justfile",
        "Justfile",
        "Rakefile",
        "Vagrantfile",
        ".envrc",
        "CMakeLists.txt",
    ];
    let ending = path
        .extension()
        .and_then(|ending| ending.to_str())
        .unwrap_or_default();
    let name = path
        .file_name()
        .and_then(|name| name.to_str())
        .unwrap_or_default();
    ENDINGS.contains(&ending) || NAMES.contains(&name) || name.contains("compose") && ending.ends_with("ml")
}

/// Returns the parts of a script that can name another file: words with a dot or a slash.
pub(super) fn naming(text: &str) -> String {
    let words = text.split(|sign: char| sign.is_whitespace() || "'\"`(){};,".contains(sign));
    // Directories that any script names, such as `..`, tell nothing.
    let is_name =
        |word: &&str| word.contains(['.', '/']) && word.len() < 200 && word.contains(char::is_alphanumeric);
    words.filter(is_name).collect::<Vec<_>>().join("\n")
}

/// Files by which packages name others that belong to them, and settings that name code.
const MANIFESTS: &[&str] = &[
    "Cargo.toml",
    "package.json",
    "tsconfig*.json",
    "jsconfig*.json",
    ".npmrc",
    ".yarnrc*",
    "bunfig.toml",
    "deno.json*",
    "import_map.json",
    "pyproject.toml",
    "pyvenv.cfg",
    "setup.cfg",
    "tox.ini",
    "pytest.ini",
    "mypy.ini",
    "Pipfile",
    "requirements*.txt",
    "*.pth",
    "*.egg-link",
    "go.mod",
    "go.work",
    "Gemfile",
    "composer.json",
    "mix.exs",
    "pom.xml",
    "build.gradle*",
    "settings.gradle*",
    "build.sbt",
    "CMakeLists.txt",
    "CMakePresets.json",
    "CMakeUserPresets.json",
    "meson.build",
    "GNUmakefile",
    "makefile",
    "Makefile",
    "*.mk",
    "justfile",
    ".cargo/config.toml",
    ".cargo/config",
    ".git/config",
    "config.worktree",
    "info/alternates",
    ".git",
    ".mocharc*",
    ".eslintrc*",
    ".babelrc*",
    ".pylintrc",
    ".flake8",
    ".rspec",
    ".bazelrc",
];

/// Returns `true` for a file by which a package names others that belong to it.
pub(super) fn is_manifest(path: &Path) -> bool {
    let name = path.file_name().unwrap_or_default().as_encoded_bytes();
    let is = |known: &&str| path.ends_with(known) || glob::matches(known.as_bytes(), name);
    MANIFESTS.iter().any(is)
}

const GIT: &[&str] = &["git", "gh", "glab", "hub", "tig", "lazygit", "jj"];

/// Returns `true` if a line names a program that works with git's records.
pub(super) fn names_git(line: &str) -> bool {
    GIT.iter().any(|program| names(line, program))
}

/// Returns `true` if programs of a line load code from the project though its words run none: the shells of
/// databases, and git with hooks.
pub(super) fn loads(line: &str, place: &LineDirectory) -> bool {
    const SHELLS: &[&str] = &[
        "sqlite3",
        "sqlite",
        "duckdb",
        "mysql",
        "mariadb",
        "psql",
        "redis-cli",
    ];
    let any = |programs: &[&str]| programs.iter().any(|program| names(line, program));
    any(SHELLS) || names_git(line) && has_hooks(&repository(place))
}

/// Returns the directories above one, up to the home: programs look for settings in them, too.
pub(super) fn above<'a>(directory: &'a Path, home: Option<&Path>) -> impl Iterator<Item = PathBuf> + 'a {
    let home = home.map(Path::to_path_buf);
    let above = directory.ancestors().skip(1);
    above
        .take_while(move |above| home.as_deref() != Some(*above))
        .map(Path::to_path_buf)
}

/// Returns the directory of the repository in which a line starts, if it is below the home, else where it
/// starts.
pub(super) fn repository(place: &LineDirectory) -> PathBuf {
    let found = projects(place).find(|above| above.join(".git").symlink_metadata().is_ok());
    found.unwrap_or(&place.directory).to_path_buf()
}

/// Returns the outermost directory of the project in which a line starts: that of the repository, or one above
/// it with settings of the line's programs.
pub(super) fn root(line: &str, place: &LineDirectory) -> PathBuf {
    let plain = |file: &&&str| !file.contains(['*', '/']);
    let used = FILES
        .iter()
        .filter(|(programs, _)| programs.iter().any(|program| names(line, program)));
    let files: Vec<&str> = used
        .flat_map(|(_, files)| *files)
        .filter(plain)
        .copied()
        .collect();
    let has_one = |above: &&Path| {
        files
            .iter()
            .any(|file| above.join(file).symlink_metadata().is_ok())
    };
    let repository = repository(place);
    match projects(place).filter(has_one).last() {
        Some(outer) if repository.starts_with(outer) => outer.to_path_buf(),
        _ => repository,
    }
}

fn projects(place: &LineDirectory) -> impl Iterator<Item = &Path> {
    let above = place.directory.ancestors();
    above.take_while(|above| !is_broad(above, place.home.as_deref()))
}

/// Returns `true` if git would run a hook of the repository in this directory, or could take its hooks from
/// another directory.
fn has_hooks(project: &Path) -> bool {
    let git = project.join(".git");
    // The link of a submodule or of a further working tree.
    if !git.is_dir() {
        return git.symlink_metadata().is_ok();
    }
    // Another repository's settings and hooks.
    if git.join("commondir").symlink_metadata().is_ok() {
        return true;
    }
    let (file, mut config) = (git.join("config"), Vec::new());
    // A pipe would block until somebody writes to it.
    if file.metadata().is_ok_and(|found| !found.is_file()) {
        return true;
    }
    let read =
        std::fs::File::open(file).and_then(|file| file.take(MAX_SETTINGS + 1).read_to_end(&mut config));
    let is_long = match read {
        Ok(length) => length as u64 > MAX_SETTINGS,
        Err(error) => error.kind() != std::io::ErrorKind::NotFound,
    };
    let config = String::from_utf8_lossy(&config).to_lowercase();
    let hooks = std::fs::read_dir(git.join("hooks"))
        .into_iter()
        .flatten()
        .flatten();
    let mut names = hooks.map(|hook| hook.file_name());
    is_long
        || ["hookspath", "include"].iter().any(|key| config.contains(key))
        || names.any(|name| !name.to_string_lossy().ends_with(".sample"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_of_any_length_may_name_hooks() {
        let place = tempfile::tempdir().unwrap();
        std::fs::create_dir(place.path().join(".git")).unwrap();
        let config = place.path().join(".git/config");
        for (text, expected) in [("[core]", false), ("[core]\nhooksPath = x", true)] {
            std::fs::write(&config, text).unwrap();
            assert_eq!(has_hooks(place.path()), expected, "{text}");
        }
        // Sparse: it takes no place.
        let file = std::fs::File::create(&config).unwrap();
        file.set_len(1 << 40).unwrap();
        assert!(has_hooks(place.path()));
    }

    #[test]
    fn what_a_program_reads_by_itself_is_known() {
        let place = tempfile::tempdir().unwrap();
        for name in ["Makefile", "rules.mk", "package.json", "main.tf"] {
            std::fs::write(place.path().join(name), "").unwrap();
        }
        let check = |line: &str, name: &str, expected: bool| {
            let found = files(line, place.path()).paths;
            assert_eq!(
                found.contains(&place.path().join(name)),
                expected,
                "{line} {name}"
            );
        };
        check("make all", "Makefile", true);
        check("m'ak'e all", "rules.mk", true);
        check("npm run build", "package.json", true);
        check("cd x && npm test", "package.json", true);
        check("terraform apply", "main.tf", true);
        check("cat x", "Makefile", false);
        check("make all", "package.json", false);
    }
}
