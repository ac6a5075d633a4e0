//! Finds imports of blocked modules in Python code before it runs.
//!
//! The check is advice: it reports a blocked module early, with an alternative. It is static, so code that
//! obfuscates its imports passes. The security boundary is the fence, whatever the code imports.

mod depth;

use std::collections::HashSet;

use ruff_python_ast::visitor::{self, Visitor};
use ruff_python_ast::{self as ast, Expr, Stmt};
use ruff_python_parser::parse_module;
use ruff_text_size::{Ranged, TextSize};

use depth::Depth;

/// Modules blocked by default.
pub const DEFAULT_BLOCKLIST: &[&str] = &["os", "subprocess", "shutil", "socket"];

/// Modules blocked in Pyodide: they do not work there, or lead to JavaScript, where nothing can be reached
/// anyway.
pub const PYODIDE_BLOCKLIST: &[&str] = &[
    "os",
    "sys",
    "subprocess",
    "socket",
    "importlib",
    "builtins",
    "ctypes",
    "multiprocessing",
    "js",
    "pyodide",
    "pyodide_js",
    "_pyodide",
    "_pyodide_core",
];

/// Maximum length of a checked source. A syntax tree takes about fifty times its memory.
const MAX_SOURCE: usize = 4 * 1024 * 1024;

/// Maximum depth of checked syntax. CPython itself rejects 200 brackets, 100 indentations and, by version, a
/// few thousand chained operators.
const MAX_DEPTH: usize = 3_000;

/// Maximum depth that the caller's own stack can hold.
const SHALLOW: usize = 48;

/// Stack size for walking a tree of [`MAX_DEPTH`]: debug builds take about 6 KiB a level. Only touched pages
/// are backed by memory.
const STACK: usize = 64 * 1024 * 1024;

/// Maximum number of findings that a message lists.
const MAX_LISTED: usize = 20;

/// Alternatives to blocked modules.
const SUGGESTIONS: &[(&str, &str)] = &[
    ("os", "use pathlib for paths and open() for files"),
    (
        "subprocess",
        "write the step in Python, or run it as a program in bash",
    ),
    (
        "shutil",
        "use pathlib: read_bytes(), write_bytes(), rename(), unlink()",
    ),
    (
        "socket",
        "the run has no network; hand the data in through standard input or a file",
    ),
    (
        "ssl",
        "the run has no network; hand the data in through standard input or a file",
    ),
    (
        "urllib",
        "the run has no network; hand the data in through standard input or a file",
    ),
    (
        "http",
        "the run has no network; hand the data in through standard input or a file",
    ),
    (
        "requests",
        "the run has no network; hand the data in through standard input or a file",
    ),
    (
        "multiprocessing",
        "do the work in a loop, or with concurrent.futures.ThreadPoolExecutor where threads can be started",
    ),
    (
        "sys",
        "input() reads standard input, print() writes, and exit() ends the program with a status",
    ),
    (
        "ctypes",
        "write it in plain Python, or with numpy where it is installed",
    ),
    ("pickle", "use json"),
    ("pty", "write the step in Python, or run it as a program in bash"),
    ("signal", "the run has a time limit, which ends it"),
    ("tempfile", "write to /tmp, which is private to the run"),
];

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BlockedImport {
    /// Entry of the blocklist that matches.
    pub module: String,
    /// Line in the source, from 1.
    pub line: usize,
    /// Column in characters, from 1.
    pub column: usize,
    /// Alternative, if one is known.
    pub suggestion: Option<&'static str>,
}

/// Result of the check.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Findings {
    /// No import is on the blocklist.
    Clear,
    /// These imports are on the blocklist, in the order of the source.
    Blocked(Vec<BlockedImport>),
    /// The source does not parse. Python reports the error itself.
    Unparsed,
}

/// A source could not be checked. It must not run if the check is enabled.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    #[error("the code is too long to check its imports ({length} bytes, at most {MAX_SOURCE})")]
    TooLong {
        /// Length in bytes.
        length: usize,
    },
    /// The syntax is nested too deeply.
    #[error("the code is nested too deeply to check its imports (more than {MAX_DEPTH} levels); split it up")]
    TooDeep,
    /// The thread for a deeply nested source could not be started, or panicked.
    #[error("the import check could not run")]
    Broken,
}

/// Finds imports of `blocklist` in `source`.
///
/// An entry covers the module and its submodules: `os` covers `os.path`. Finds import statements anywhere,
/// and calls of `__import__` and `importlib.import_module` with a literal name, also through an alias.
///
/// # Errors
/// If the source is too long or too deeply nested to be checked.
pub fn check(source: &str, blocklist: &[String]) -> Result<Findings, Error> {
    // Python normalizes full-width letters to ASCII (NFKC), so the quick exit is safe for ASCII sources only.
    if blocklist.is_empty() || (source.is_ascii() && !source.contains("import")) {
        return Ok(Findings::Clear);
    }
    if source.len() > MAX_SOURCE {
        return Err(Error::TooLong { length: source.len() });
    }
    match depth::of(source, MAX_DEPTH) {
        Depth::Within(depth) if depth <= SHALLOW => Ok(inspect(source, blocklist)),
        Depth::Within(_) => inspect_deep(source, blocklist),
        Depth::Beyond => Err(Error::TooDeep),
        Depth::Malformed => Ok(Findings::Unparsed),
    }
}

/// Renders the findings for a user or a model: one line per import, and the `setting` that allows it.
pub fn message(blocked: &[BlockedImport], setting: &str) -> String {
    let mut text = String::new();
    for BlockedImport {
        module,
        line,
        suggestion,
        ..
    } in blocked.iter().take(MAX_LISTED)
    {
        text.push_str(&format!("import of `{module}` is blocked (line {line})"));
        if let Some(suggestion) = suggestion {
            text.push_str(": ");
            text.push_str(suggestion);
        }
        text.push('\n');
    }
    if blocked.len() > MAX_LISTED {
        text.push_str(&format!(
            "and {} more blocked imports\n",
            blocked.len() - MAX_LISTED
        ));
    }
    text.push_str(&format!(
        "to allow these modules, {setting}; the fence stays up\n"
    ));
    text
}

/// Walks and drops a deep tree on a thread with a large stack: both recurse.
fn inspect_deep(source: &str, blocklist: &[String]) -> Result<Findings, Error> {
    std::thread::scope(|scope| {
        let name = "import-check".to_owned();
        let thread = std::thread::Builder::new().name(name).stack_size(STACK);
        let handle = thread
            .spawn_scoped(scope, || inspect(source, blocklist))
            .map_err(|_| Error::Broken)?;
        handle.join().map_err(|_| Error::Broken)
    })
}

fn inspect(source: &str, blocklist: &[String]) -> Findings {
    let Ok(module) = parse_module(source) else {
        return Findings::Unparsed;
    };
    let mut names = Names::default();
    // A name may be used above the line that binds it, and an alias may refer to another: iterate to a fixed
    // point.
    for _ in 0..4 {
        let before = names.len();
        visitor::walk_body(&mut names, module.suite());
        if names.len() == before {
            break;
        }
    }
    let mut finder = Finder {
        names: &names,
        blocklist,
        found: Vec::new(),
    };
    visitor::walk_body(&mut finder, module.suite());
    if finder.found.is_empty() {
        Findings::Clear
    } else {
        Findings::Blocked(locate(source, finder.found))
    }
}

/// Converts offsets to lines and columns in one pass over the source.
fn locate(source: &str, mut found: Vec<(TextSize, String)>) -> Vec<BlockedImport> {
    found.sort();
    found.dedup();
    let (mut line, mut line_start, mut position) = (1, 0, 0);
    let mut blocked = Vec::with_capacity(found.len());
    for (offset, module) in found {
        let bytes = source.as_bytes();
        for at in position..offset.to_usize() {
            // Python counts `\n`, `\r\n` and a lone `\r` as one line end each.
            if bytes[at] == b'\n' || (bytes[at] == b'\r' && bytes.get(at + 1) != Some(&b'\n')) {
                line += 1;
                line_start = at + 1;
            }
        }
        position = offset.to_usize();
        let column = source[line_start..position].chars().count() + 1;
        let root = module.split('.').next().unwrap_or_default();
        let suggestion = SUGGESTIONS
            .iter()
            .find(|(name, _)| *name == root)
            .map(|(_, text)| *text);
        blocked.push(BlockedImport {
            module,
            line,
            column,
            suggestion,
        });
    }
    blocked
}

/// Aliases of the functions and modules that import by name.
#[derive(Default)]
struct Names<'a> {
    /// Aliases of `importlib`.
    importlib: HashSet<&'a str>,
    /// Aliases of `builtins`.
    builtins: HashSet<&'a str>,
    /// Aliases of `import_module` and `__import__`.
    functions: HashSet<&'a str>,
}

impl<'a> Names<'a> {
    fn len(&self) -> usize {
        self.importlib.len() + self.builtins.len() + self.functions.len()
    }

    fn is_importlib(&self, expr: &Expr) -> bool {
        matches!(expr, Expr::Name(name) if name.id == "importlib" || self.importlib.contains(name.id.as_str()))
    }

    fn is_builtins(&self, expr: &Expr) -> bool {
        let Expr::Name(name) = expr else { return false };
        matches!(name.id.as_str(), "builtins" | "__builtins__") || self.builtins.contains(name.id.as_str())
    }

    fn is_import_function(&self, expr: &Expr) -> bool {
        match expr {
            Expr::Name(name) => name.id == "__import__" || self.functions.contains(name.id.as_str()),
            Expr::Attribute(attribute) => match attribute.attr.as_str() {
                "import_module" => self.is_importlib(&attribute.value),
                "__import__" => self.is_importlib(&attribute.value) || self.is_builtins(&attribute.value),
                _ => false,
            },
            _ => false,
        }
    }

    fn bind(&mut self, target: &'a Expr, value: &Expr) {
        let Expr::Name(target) = target else { return };
        if self.is_importlib(value) {
            self.importlib.insert(&target.id);
        } else if self.is_builtins(value) {
            self.builtins.insert(&target.id);
        } else if self.is_import_function(value) {
            self.functions.insert(&target.id);
        }
    }
}

impl<'a> Visitor<'a> for Names<'a> {
    fn visit_stmt(&mut self, stmt: &'a Stmt) {
        match stmt {
            Stmt::Import(import) => {
                for alias in &import.names {
                    let Some(name) = &alias.asname else { continue };
                    match alias.name.as_str() {
                        "importlib" => _ = self.importlib.insert(name),
                        "builtins" => _ = self.builtins.insert(name),
                        _ => {}
                    }
                }
            }
            Stmt::ImportFrom(import) => {
                let module = import.module.as_ref().map_or("", |module| module.as_str());
                for alias in &import.names {
                    match (module, alias.name.as_str()) {
                        ("importlib", "import_module" | "__import__") | ("builtins", "__import__") => {
                            self.functions
                                .insert(alias.asname.as_ref().unwrap_or(&alias.name));
                        }
                        ("importlib", "*") => _ = self.functions.insert("import_module"),
                        _ => {}
                    }
                }
            }
            Stmt::Assign(assign) => assign
                .targets
                .iter()
                .for_each(|target| self.bind(target, &assign.value)),
            Stmt::AnnAssign(ast::StmtAnnAssign {
                target,
                value: Some(value),
                ..
            }) => self.bind(target, value),
            _ => {}
        }
        visitor::walk_stmt(self, stmt);
    }

    fn visit_expr(&mut self, expr: &'a Expr) {
        if let Expr::Named(named) = expr {
            self.bind(&named.target, &named.value);
        }
        visitor::walk_expr(self, expr);
    }
}

/// Collects imports that match the blocklist.
struct Finder<'a> {
    names: &'a Names<'a>,
    blocklist: &'a [String],
    found: Vec<(TextSize, String)>,
}

impl Finder<'_> {
    /// Records `module` if it or a parent package is blocked.
    fn consider(&mut self, module: &str, at: &impl Ranged) {
        let covers = |entry: &&String| {
            module
                .strip_prefix(entry.as_str())
                .is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
        };
        if let Some(entry) = self.blocklist.iter().find(covers) {
            self.found.push((at.start(), entry.clone()));
        }
    }
}

impl<'a> Visitor<'a> for Finder<'_> {
    fn visit_stmt(&mut self, stmt: &'a Stmt) {
        match stmt {
            Stmt::Import(import) => import
                .names
                .iter()
                .for_each(|alias| self.consider(&alias.name, import)),
            // A relative import stays inside the program's own package.
            Stmt::ImportFrom(import) if import.level == 0 => {
                let module = import.module.as_ref().map_or("", |module| module.as_str());
                for alias in &import.names {
                    self.consider(&format!("{module}.{}", alias.name), import);
                }
            }
            _ => {}
        }
        visitor::walk_stmt(self, stmt);
    }

    fn visit_expr(&mut self, expr: &'a Expr) {
        if let Expr::Call(call) = expr
            && self.names.is_import_function(&call.func)
            && let Some(Expr::StringLiteral(name)) = call.arguments.find_argument_value("name", 0)
        {
            self.consider(name.value.to_str(), call);
        }
        visitor::walk_expr(self, expr);
    }
}

#[cfg(test)]
mod tests;
