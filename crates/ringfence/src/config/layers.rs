//! Merges the layers, and tracks the origin of each value.

use std::collections::BTreeMap;
use std::fmt;
use std::path::{Path, PathBuf};

use ringfence_exec::trust::{Digest, NamedPaths};
use serde::Deserialize;
use serde_json::{Map, Value};

use super::file::{self, Document};
use super::keys::{self, Child, Keys, dotted, normalise};
use super::near_misses::near_misses;
use super::problem::{Problem, Problems};
use super::project::{self, Verdict};
use super::schema::Config;
use super::variables;
use crate::env::Environment;

/// Locations of the layers.
#[derive(Debug, Clone)]
pub struct Sources<'a> {
    /// Usually `/etc/ringfence`.
    pub system_dir: PathBuf,
    /// Usually `~/.config/ringfence`.
    pub user_dir: Option<PathBuf>,
    /// Usually the working directory.
    pub project_dir: PathBuf,
    /// `--config FILE`, which replaces the three.
    pub explicit: Option<PathBuf>,
    pub environment: &'a Environment,
    /// The rules by which files are opened.
    pub named: NamedPaths,
}

/// The hint about settings that a project's file may not make.
const TRUST: &str = "set it in your own configuration ($XDG_CONFIG_HOME/ringfence, by default ~/.config/ringfence), or name this file with --config \
    if you trust it";

/// The origin of a value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Origin {
    /// The built-in default.
    BuiltIn,
    /// A file, with the line if the format provides it.
    File(PathBuf, Option<usize>),
    /// An environment variable.
    Variable(String),
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::BuiltIn => f.write_str("built-in"),
            Self::File(path, Some(line)) => write!(f, "{}:{line}", path.display()),
            Self::File(path, None) => path.display().fmt(f),
            Self::Variable(name) => write!(f, "environment {name}"),
        }
    }
}

/// The effective configuration and its provenance.
#[derive(Debug)]
pub struct Loaded {
    pub config: Config,
    origins: BTreeMap<Vec<String>, Origin>,
    /// The files that were read.
    pub files: Vec<PathBuf>,
    /// The file of `--config`, with the digest of its content.
    pub explicit: Option<(PathBuf, Digest)>,
    /// Ignored settings of the project's file, with the reason; one sentence each.
    pub passed_over: Vec<String>,
    /// Variables likely meant for the configuration that have no effect; one sentence each.
    pub near_misses: Vec<String>,
    /// Mistakes of single values and of files, which have no effect on `config`: it is not to be used if there are any.
    pub(crate) problems: Vec<Problem>,
}

impl Loaded {
    /// Returns the default of every setting.
    pub fn built_in() -> Self {
        Self {
            config: Config::default(),
            origins: BTreeMap::new(),
            files: Vec::new(),
            explicit: None,
            passed_over: Vec::new(),
            near_misses: Vec::new(),
            problems: Vec::new(),
        }
    }

    /// Returns the origin of a key, or of the first key below it; `None` for a built-in default.
    pub fn origin(&self, key: &str) -> Option<&Origin> {
        let below = |path: &String| {
            let rest = path.strip_prefix(key);
            rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
        };
        let found = self.origins.iter().filter(|(path, _)| below(&dotted(path)));
        let line = |origin: &&Origin| match origin {
            Origin::File(_, line) => *line,
            Origin::BuiltIn | Origin::Variable(_) => None,
        };
        found.map(|(_, origin)| origin).min_by_key(line)
    }

    /// Returns every key with its effective value and its origin.
    pub fn values(&self) -> Vec<(String, Value, Origin)> {
        let document = serde_json::to_value(&self.config).unwrap_or_default();
        let origin = |path: &Vec<String>| self.origins.get(path).cloned().unwrap_or(Origin::BuiltIn);
        keys::leaves(&document)
            .into_iter()
            .map(|(path, value)| (dotted(&path), value, origin(&path)))
            .collect()
    }
}

/// Trust in a configuration file.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Trust {
    /// A file of the machine or of the user.
    Trusted,
    /// A file that came with the project.
    Project,
}

/// Loads every layer. Mistakes are [`Loaded::problems`], so that the rest can be checked as well.
///
/// # Errors
/// If no configuration comes of it.
pub(crate) fn load(sources: &Sources<'_>) -> Result<Loaded, Problems> {
    let mut problems = Vec::new();
    let mut near_misses = near_misses(sources.environment);
    let files = find_files(sources, &mut problems);
    if files.is_empty() && problems.is_empty() && !variables::any(sources.environment) {
        return Ok(Loaded {
            near_misses,
            ..Loaded::built_in()
        });
    }
    let mut merge = Merge::new(problems);
    let mut explicit = None;
    for (path, trust) in &files {
        match file::read(path, &sources.named) {
            Ok(document) => {
                merge.file(path, *trust, &document);
                explicit = sources
                    .explicit
                    .is_some()
                    .then(|| (path.clone(), document.digest));
            }
            Err(problem) => merge.problems.push(problem),
        }
    }
    near_misses.extend(merge.environment(sources.environment));
    let loaded = merge.finish(files.into_iter().map(|(path, _)| path).collect())?;
    Ok(Loaded {
        near_misses,
        explicit,
        ..loaded
    })
}

fn find_files(sources: &Sources<'_>, problems: &mut Vec<Problem>) -> Vec<(PathBuf, Trust)> {
    if let Some(path) = &sources.explicit {
        return vec![(path.clone(), Trust::Trusted)];
    }
    let dirs = [
        (Some(&sources.system_dir), Trust::Trusted),
        (sources.user_dir.as_ref(), Trust::Trusted),
        (Some(&sources.project_dir), Trust::Project),
    ];
    let mut files = Vec::new();
    for (dir, trust) in dirs {
        match dir.map_or(Ok(None), |dir| file::find(dir)) {
            Ok(path) => files.extend(path.map(|path| (path, trust))),
            Err(problem) => problems.push(problem),
        }
    }
    files
}

/// The document that grows layer by layer.
struct Merge {
    keys: Keys,
    document: Value,
    origins: BTreeMap<Vec<String>, Origin>,
    passed_over: Vec<String>,
    problems: Vec<Problem>,
}

/// One value of a file: its key in the spelling of the schema and of the file.
struct Leaf<'a> {
    path: Vec<String>,
    written: Vec<String>,
    value: &'a Value,
}

impl Merge {
    fn new(problems: Vec<Problem>) -> Self {
        let keys = Keys::new();
        let document = keys.defaults().clone();
        Self {
            keys,
            document,
            origins: BTreeMap::new(),
            passed_over: Vec::new(),
            problems,
        }
    }

    fn file(&mut self, path: &Path, trust: Trust, document: &Document) {
        let at = |written: &[String]| Origin::File(path.to_path_buf(), document.line(written));
        let mut leaves = Vec::new();
        let mut unknown = Vec::new();
        collect(
            &self.keys,
            &document.values,
            SectionPath::default(),
            &mut leaves,
            &mut unknown,
        );
        for (written, problem) in unknown {
            let message = format!("{}: {}", at(&written), problem.message);
            self.problems.push(Problem { message, ..problem });
        }
        let mut seen = BTreeMap::new();
        for leaf in leaves {
            let origin = at(&leaf.written);
            if let Some(first) = seen.insert(leaf.path.clone(), origin.clone()) {
                self.problems.push(Problem::new(
                    format!(
                        "{origin}: `{}` is set twice, first at {first}",
                        dotted(&leaf.path)
                    ),
                    "keep one of the two spellings",
                ));
                continue;
            }
            if let Err(problem) = self.value(&leaf, trust, origin) {
                self.problems.push(problem);
            }
        }
    }

    fn value(&mut self, leaf: &Leaf<'_>, trust: Trust, origin: Origin) -> Result<(), Problem> {
        let key = dotted(&leaf.path);
        let value = normalise(&leaf.path, leaf.value).map_err(|message| {
            Problem::new(
                format!("{origin}: `{key}`: {message}"),
                format!("correct `{key}`; `ringfence config schema` describes it"),
            )
        })?;
        let present = keys::get(&self.document, &leaf.path).unwrap_or(&Value::Null);
        let verdict = match trust {
            Trust::Trusted => Verdict::Holds,
            Trust::Project => project::verdict(&leaf.path, &value, present),
        };
        match verdict {
            Verdict::Holds => {}
            Verdict::PassedOver(reason) => {
                self.passed_over.push(format!(
                    "{origin}: `{key}` does not count in a project's own file: {reason}; {TRUST}"
                ));
                return Ok(());
            }
            Verdict::Refused(reason) => {
                return Err(Problem::new(
                    format!("{origin}: `{key}` may not be set by a project's own file: {reason}"),
                    TRUST,
                ));
            }
        }
        keys::set(&mut self.document, &leaf.path, value);
        self.origins.insert(leaf.path.clone(), origin);
        Ok(())
    }

    /// Applies the variables, and returns those without effect.
    fn environment(&mut self, environment: &Environment) -> Vec<String> {
        let found = variables::settings(&self.keys, environment);
        self.problems.extend(found.problems);
        for setting in found.settings {
            keys::set(&mut self.document, &setting.path, setting.value);
            self.origins
                .insert(setting.path, Origin::Variable(setting.variable));
        }
        found.idle
    }

    fn finish(mut self, files: Vec<PathBuf>) -> Result<Loaded, Problems> {
        match Config::deserialize(&self.document) {
            Ok(config) => Ok(Loaded {
                config,
                origins: self.origins,
                files,
                explicit: None,
                passed_over: self.passed_over,
                near_misses: Vec::new(),
                problems: self.problems,
            }),
            Err(error) => {
                self.problems.push(Problem::new(
                    error.to_string(),
                    "`ringfence config schema` describes every key",
                ));
                Err(Problems::by_line(self.problems))
            }
        }
    }
}

/// The path of a section.
#[derive(Clone, Copy, Default)]
struct SectionPath<'p> {
    /// In the spelling of the schema.
    named: &'p [String],
    /// In the spelling of the file.
    written: &'p [String],
}

/// Collects a section's values and mistakes.
fn collect<'a>(
    keys: &Keys,
    section: &'a Map<String, Value>,
    at: SectionPath<'_>,
    leaves: &mut Vec<Leaf<'a>>,
    unknown: &mut Vec<(Vec<String>, Problem)>,
) {
    let below = |path: &[String], name: &str| [path, &[name.to_owned()]].concat();
    for (key, value) in section {
        let written = below(at.written, key);
        match (keys.child(at.named, key), value) {
            (Child::Leaf(name), _) => leaves.push(Leaf {
                path: below(at.named, &name),
                written,
                value,
            }),
            (Child::Section(_), Value::Null) => {}
            (Child::Section(name), Value::Object(section)) => {
                let named = below(at.named, &name);
                let at = SectionPath {
                    named: &named,
                    written: &written,
                };
                collect(keys, section, at, leaves, unknown);
            }
            (Child::Section(name), _) => {
                let key = dotted(&below(at.named, &name));
                unknown.push((
                    written,
                    Problem::new(
                        format!("`{key}` is a section, not a value"),
                        format!("write keys below `{key}`; `ringfence config show` lists them"),
                    ),
                ));
            }
            (Child::Unknown(near), _) => {
                let near = near
                    .map(|near| format!("; did you mean `{near}`?"))
                    .unwrap_or_default();
                let message = format!("unknown key `{}`{near}", dotted(&written));
                unknown.push((
                    written,
                    Problem::new(message, "`ringfence config show` lists every key"),
                ));
            }
        }
    }
}
