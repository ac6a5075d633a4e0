//! Trusted paths: files that Ringfence executes, loads or relies on under this configuration, and the links
//! to them.

mod fenced;
mod servers;
mod tokens;

use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};

use ringfence_exec::interpreter;
use ringfence_exec::mount_guard::nearest;
use ringfence_exec::protected::Protected;
use ringfence_exec::trust::{self, CopyGuard, Ledger, Resolved};
use ringfence_policy::{Imports, Request, Trusted};
use ringfence_tools::skills::Consent;
use ringfence_tools::toolbox::ErrorKind;

use crate::config::Problems;
use crate::context::Context;
use crate::failure::{Error, Failure};
use crate::named_paths::{accepted, failure, find, unknown_trees};
use crate::paths::GATEWAY_PROGRAM;

/// Trusted paths from the command line, in addition to the configuration.
#[derive(Debug, Clone, Copy, Default)]
pub struct Named<'a> {
    /// The directory of skills.
    pub skills: Option<&'a Path>,
    /// The Python interpreter.
    pub python: Option<&'a Path>,
}

/// Resolves a path, and rejects links that a program may have made.
///
/// # Errors
/// If a link on the way lies where programs could write, or the path cannot be read.
pub fn resolve(path: &Path, context: &Context) -> Result<Resolved, Failure> {
    let found = find(path)?;
    check_links(&found, context)?;
    Ok(found)
}

/// Rejects a path if a link on the way lies where programs could write.
///
/// # Errors
/// If one does.
pub fn check_links(found: &Resolved, context: &Context) -> Result<(), Failure> {
    let checked = context.named_paths().check(found);
    checked.map_err(|error| failure(&found.path, error))
}

/// Returns the ledger of directories that were ever writable for programs of this user.
pub fn ledger(context: &Context) -> Ledger {
    // Without a state directory there is no ledger: files made since by programs cannot be recognised as
    // theirs.
    context
        .paths
        .make_state()
        .map_or_else(|_| Ledger::default(), Ledger::at)
}

/// Returns the consents of this user to skills.
pub fn consent(context: &Context) -> Consent {
    context.paths.make_state().map_or_else(
        |_| Consent::default(),
        |state| Consent::at(state, context.named_paths()),
    )
}

/// Returns the files that are trusted in place, but protected only from programs of runs that use them.
fn believed(named: Named<'_>, context: &Context) -> Result<Vec<PathBuf>, Error> {
    let loaded = context.loaded()?;
    let mut files: Vec<PathBuf> = loaded.explicit.iter().map(|(file, _)| file.clone()).collect();
    let path = context.environment.get("PATH");
    let pythons = [named.python, loaded.config.sandbox.python.as_deref()];
    for python in pythons.into_iter().flatten() {
        files.extend(interpreter::path_files(python, path));
    }
    if let Ok(state) = context.paths.make_state() {
        files.extend(interpreter::known_path_files(state));
    }
    Ok(files)
}

/// Records the consent to the existing content of directories that become writable for programs, then these
/// directories. Protected names at the top of `workspace`, one of them, stay read-only.
///
/// # Errors
/// If the record cannot be stored.
pub fn note_directories(
    trees: &[&Path],
    workspace: Option<&Path>,
    named: Named<'_>,
    context: &Context,
) -> Result<(), Error> {
    if trees.is_empty() {
        return Ok(());
    }
    // One entry for all private workspaces, since each start of `ringfence mcp` makes another, and one for all
    // that the configuration gives users.
    let private = context.paths.workspaces();
    let root = context.parts()?.tools.root.as_ref();
    let given = root.and_then(|root| std::path::absolute(root.common()).ok());
    let (shared, own): (Vec<&Path>, Vec<&Path>) = trees
        .iter()
        .copied()
        .partition(|tree| tree.starts_with(&private) || given.as_deref() == Some(*tree));
    let is_private = |tree: &Path| tree.starts_with(&private);
    // Without the name among the protected ones, a program may write to the `.git` that is there.
    let config = context.config()?;
    let protected = Protected::new(&config.permissions.filesystem.protected);
    let keeps_git = protected.names(OsStr::new(".git"));
    let workspace = workspace.filter(|workspace| keeps_git && own.contains(workspace));
    // It may be a mount, too.
    let mut own = own;
    if let Some(at) = own.iter().position(|tree| Some(*tree) == workspace) {
        own.remove(at);
    }
    let shared: Vec<&Path> = shared
        .into_iter()
        .map(|tree| if is_private(tree) { &*private } else { tree })
        .collect();
    let files = believed(named, context)?;
    let skills = [named.skills, context.config()?.skills.path.as_deref()];
    let skills = skills.into_iter().flatten();
    let skills: Vec<_> = skills.filter_map(|path| trust::resolve(path).ok()).collect();
    let consent = consent(context);
    let stored = skills
        .iter()
        .filter(|found| found.exists)
        .try_for_each(|found| consent.give_before(trees, &found.path))
        .and_then(|()| accepted(&context.paths).give_before(trees, &files))
        .and_then(|()| ledger(context).add(&own))
        .and_then(|()| workspace.map_or(Ok(()), |workspace| ledger(context).add_workspace(workspace)))
        .and_then(|()| ledger(context).add_shared(&shared));
    stored.map_err(|error| {
        let failure = Failure::refused(
            format!("cannot note where the program may write: {error}"),
            "make the state directory yours and writable (`ringfence doctor`)",
        );
        failure.into()
    })
}

/// Returns what copies of a guest's files may not bring to this machine, or change there.
///
/// # Errors
/// If the configuration cannot be used.
pub fn copy_guard(context: &Context) -> Result<CopyGuard, Error> {
    let guard = CopyGuard::new(&context.config()?.permissions.filesystem.protected);
    Ok(guard.with_trusted(trusted(Named::default(), &[], context)?))
}

/// Returns the paths that no program with write access to the host may change.
///
/// # Errors
/// If the configuration cannot be used.
pub fn trusted(named: Named<'_>, trees: &[&Path], context: &Context) -> Result<Trusted, Error> {
    if let Some(directory) = &context.paths.config {
        make_if_open(directory, trees);
    }
    // A program would make the skills that other programs call.
    if let Some(skills) = &context.config()?.skills.path {
        make_if_open(&find(skills)?.path, trees);
    }
    let mut trusted = configured(named, trees, context)?;
    for python in [named.python, context.config()?.sandbox.python.as_deref()] {
        let path = context.environment.get("PATH");
        trusted.extend(&python.map_or_else(Trusted::none, |python| interpreter::named(python, path)));
    }
    if let Ok(state) = context.paths.make_state() {
        trusted.extend(&interpreter::known(state));
    }
    trusted.extend(&searched(context.environment.get("PATH")));
    Ok(trusted)
}

/// Creates a directory that a program could otherwise create: a missing path cannot be protected.
fn make_if_open(directory: &Path, trees: &[&Path]) {
    let found = nearest(directory);
    if found.missing.as_os_str().is_empty() || !trees.iter().any(|tree| trust::holds(tree, &found.existing)) {
        return;
    }
    let mut builder = std::fs::DirBuilder::new();
    // If we cannot create it, a program cannot either.
    let _ = std::os::unix::fs::DirBuilderExt::mode(builder.recursive(true), 0o700).create(directory);
}

/// Returns the files and directories that the configuration names, and those of the configuration itself.
///
/// # Errors
/// If the configuration cannot be used.
pub(crate) fn configured_paths(context: &Context) -> Result<Vec<PathBuf>, Error> {
    Ok(configured(Named::default(), &[], context)?.paths)
}

/// Returns the files and directories that the configuration and the command line name, and those of the
/// configuration itself.
fn configured(named: Named<'_>, trees: &[&Path], context: &Context) -> Result<Trusted, Error> {
    let loaded = context.loaded()?;
    let config = &loaded.config;
    let mut paths: Vec<PathBuf> = loaded.files.clone();
    paths.push(PathBuf::from("/etc/ringfence"));
    paths.extend(context.paths.config.clone());
    let pre_validation = &config.host_execution.pre_validation;
    let gateway = &config.gateway;
    let pyodide = &config.skills.sandbox;
    let optional = [
        named.skills,
        config.skills.path.as_deref(),
        config.egress.ca_file.as_deref(),
        pre_validation.ca_file.as_deref(),
        pre_validation.api_key_file.as_deref(),
        config.sandbox.e2b.api_key_file.as_deref(),
        gateway.telegram.token_file.as_deref(),
        gateway.discord.token_file.as_deref(),
        config
            .sandbox
            .javascript
            .as_deref()
            .filter(|path| path.is_absolute()),
        Some(pyodide.deno_path.as_path()).filter(|path| path.is_absolute()),
        pyodide.directory.as_deref(),
        pyodide.packages.as_deref(),
        config.artifacts.dir.as_deref(),
    ];
    paths.extend(optional.into_iter().flatten().map(Path::to_owned));
    let injected = config.egress.inject.iter();
    paths.extend(injected.filter_map(|inject| inject.value_file.clone()));
    let headers = config.skills.servers.values().flat_map(|server| &server.headers);
    paths.extend(headers.filter_map(|header| header.value_file.clone()));
    let own = std::env::current_exe().ok();
    paths.extend(own.iter().map(|own| own.with_file_name(GATEWAY_PROGRAM)));
    paths.extend(own);
    let mut trusted = Trusted {
        paths,
        ..Trusted::none()
    };
    trusted.extend(&of_servers(trees, context)?);
    Ok(without_links(trusted))
}

/// Returns the trusted paths of the configured MCP servers, for programs that may write these trees.
///
/// # Errors
/// If the configuration cannot be used.
pub(crate) fn of_servers(trees: &[&Path], context: &Context) -> Result<Trusted, Problems> {
    let mut trusted = Trusted::none();
    for (name, server) in &context.config()?.skills.servers {
        trusted.extend(&servers::trusted(name, server, trees, context));
    }
    Ok(trusted)
}

/// Resolves the paths that exist, and adds the links on the way to them.
fn without_links(named: Trusted) -> Trusted {
    let resolved = |paths: Vec<PathBuf>| {
        let found = paths.iter().filter_map(|path| trust::resolve(path).ok());
        found.filter(|found| found.exists).collect::<Vec<Resolved>>()
    };
    let ends = |found: &[Resolved]| found.iter().map(|found| found.path.clone()).collect::<Vec<_>>();
    let (paths, installations) = (resolved(named.paths), resolved(named.installations));
    let lookups = resolved(named.lookups);
    let imported = |imports: &Imports| Some((trust::resolve(&imports.directory).ok()?, imports.clone()));
    let imports: Vec<(Resolved, Imports)> = named.imports.iter().filter_map(imported).collect();
    let directories = imports.iter().map(|(found, _)| found);
    let all = paths
        .iter()
        .chain(&installations)
        .chain(&lookups)
        .chain(directories);
    let links: Vec<PathBuf> = all.flat_map(|found| found.links.clone()).collect();
    let mut trusted = Trusted {
        paths: links,
        ..Trusted::none()
    };
    trusted.extend(&Trusted {
        paths: ends(&paths),
        installations: ends(&installations),
        lookups: ends(&lookups),
        imports: imports
            .into_iter()
            .map(|(found, imports)| Imports {
                directory: found.path,
                ..imports
            })
            .collect(),
        servers: named.servers,
    });
    trusted
}

/// Returns the directories in which programs are looked up.
fn searched(path: Option<&OsStr>) -> Trusted {
    let directories = path.map(std::env::split_paths).into_iter().flatten();
    let directories = directories.filter(|directory| directory.is_absolute());
    let mut trusted = Trusted::none();
    for directory in directories {
        let environment = directory
            .parent()
            .filter(|above| above.join("pyvenv.cfg").is_file());
        match environment {
            Some(environment) => trusted.installations.push(environment.to_owned()),
            None => trusted.lookups.push(directory),
        }
    }
    // Links to directories of the PATH are the user's; their targets are protected.
    Trusted {
        paths: Vec::new(),
        ..without_links(trusted)
    }
}

/// Returns the PATH without the directories that programs could ever write to, and warns of each: programs
/// found by it run outside a fence.
///
/// # Errors
/// If the ledger cannot be read.
pub fn search_path(context: &Context) -> Result<Option<OsString>, Failure> {
    let Some(path) = context.environment.get("PATH") else {
        return Ok(None);
    };
    let (ledger, mut kept) = (ledger(context), Vec::new());
    for directory in std::env::split_paths(path).filter(|directory| directory.is_absolute()) {
        match written(&directory, &ledger)? {
            None => kept.push(directory),
            Some(tree) => context.log.write(&format!(
                "{} is left out of the PATH: programs could write in {}",
                directory.display(),
                tree.display()
            )),
        }
    }
    // None holds a colon: each was one part of a PATH.
    Ok(std::env::join_paths(kept).ok())
}

/// Rejects a program that programs could have written: it would run outside a fence.
///
/// # Errors
/// If they could.
pub fn check_program(program: &Path, ledger: &Ledger) -> Result<(), Failure> {
    match written(program, ledger)? {
        None => Ok(()),
        Some(tree) => Err(Failure::refused(
            format!(
                "refusing to start {} outside a fence: it lies in {}, where programs could write",
                program.display(),
                tree.display()
            ),
            "name one that lies elsewhere, or take its directory off the PATH",
        )),
    }
}

/// Finds a program on a search path.
///
/// # Errors
/// If programs could have written it, or a link to it.
pub fn find_program(name: &str, path: Option<&OsStr>, ledger: &Ledger) -> Result<Option<PathBuf>, Failure> {
    let directories = path.map(std::env::split_paths).into_iter().flatten();
    let mut programs = directories.map(|directory| directory.join(name));
    let found = programs.find(|program| program.is_file());
    found
        .as_deref()
        .map_or(Ok(()), |program| check_program(program, ledger))?;
    Ok(found)
}

/// Returns the programs' writable directory that contains `path` or a link on the way to it.
fn written(path: &Path, ledger: &Ledger) -> Result<Option<PathBuf>, Failure> {
    let Ok(found) = trust::resolve(path) else {
        return Ok(None);
    };
    for path in found.links.iter().chain([&found.path.join("x")]) {
        if let Some(tree) = ledger.around(path).map_err(unknown_trees)? {
            return Ok(Some(tree));
        }
    }
    Ok(None)
}

/// Sets the trusted paths of a request, if its program can write to the host or its files are delivered
/// there, and records the directories that it can write. A session may write to directories that its first
/// request named.
///
/// # Errors
/// If the configuration cannot be used, a server on the host has code in one of these directories, or the record
/// cannot be stored.
pub fn keep(
    request: &mut Request,
    named: Named<'_>,
    output: Option<&Path>,
    context: &Context,
) -> Result<(), Error> {
    let opened: Vec<PathBuf> = trust::trees(request).map(Path::to_owned).collect();
    let opened: Vec<&Path> = opened.iter().map(PathBuf::as_path).collect();
    let all: Vec<&Path> = opened.iter().copied().chain(output).collect();
    if !all.is_empty() || request.session.is_some() {
        request.trusted = trusted(named, &all, context)?;
        // First, so that a refused directory is not noted as one that programs could write.
        for tree in &all {
            trust::check_servers(tree, &request.trusted).map_err(|conflict| {
                Failure::refused(conflict.to_string(), conflict.hint()).of(ErrorKind::InvalidArguments)
            })?;
        }
        note_directories(&opened, request.workspace.as_deref(), named, context)?;
    }
    Ok(())
}
