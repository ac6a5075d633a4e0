//! Resolution of a local request under the configuration.

use std::path::{Path, PathBuf};

use ringfence_exec::local::{Fence, check_output_directory};
use ringfence_exec::runner::{OutputDirectory, RunSpec};
use ringfence_policy::{
    self as policy, Access, EnvName, Feature, Language, Mount, Network, RuntimeKind, Target, Trusted,
};
use ringfence_tools::toolbox::ToolError;

use crate::config::values::UserScope;
use crate::config::{Config, Problems};
use crate::context::Context;
use crate::failure::{Error, Failure};
use crate::request::Request;
use crate::settings::{check_shown, default_network, limits_on, passed_variables};
use crate::{mount_guard, toolbox, trust};

/// Returns the runtime of a request.
///
/// # Errors
/// If the configuration cannot be used.
pub fn runtime(request: &Request, context: &Context) -> Result<RuntimeKind, Problems> {
    let config = context.config()?;
    Ok(request.runtime.unwrap_or(config.sandbox.runtime))
}

/// Returns the network of a request. The configured one does not fail requests that cannot have any.
///
/// # Errors
/// If hosts are allowed without a network, or the configuration cannot be used.
pub fn network(request: &Request, context: &Context) -> Result<Network, Failure> {
    let hosts = &request.allowed_hosts;
    let network = match &request.network {
        Some(network) => network.clone(),
        // A named host implies an allowlist.
        None if !hosts.is_empty() => Network::Allowlist(context.parts()?.egress.policy.clone()),
        None if request.session.is_some() || request.fence == Some(Fence::Unfenced) => Network::None,
        None => default_network(context)?,
    };
    match network {
        Network::None if hosts.is_empty() => Ok(Network::None),
        Network::None => Err(Failure::usage(
            "a program without a network reaches no allowed host",
            "choose an allowlist as its network, or allow no host",
        )),
        Network::Allowlist(mut policy) => {
            policy.allowed.extend(hosts.iter().cloned());
            Ok(Network::Allowlist(policy))
        }
    }
}

/// Returns the specification of a request: with the configured values that it leaves out, its host paths resolved
/// and checked, its output directory created, and the directories that its program can write recorded.
///
/// # Errors
/// If a path or the configuration cannot be used.
pub fn run_spec(request: &Request, named: trust::Named<'_>, context: &Context) -> Result<RunSpec, Error> {
    let config = context.config()?;
    let runtime = runtime(request, context)?;
    check_features(request, runtime)?;
    check_fence(request, config)?;
    let mut resolved = policy::Request {
        code: request.code.clone(),
        name: request.name.clone(),
        language: request.language,
        args: request.args.clone(),
        env: env(request, context)?,
        limits: request.limits.applied_to(limits_on(config, runtime)),
        network: network(request, context)?,
        mounts: mounts(request, context)?,
        workspace: workspace(request, context)?,
        working_directory: None,
        trusted: Trusted::none(),
        scope: request.scope.clone(),
        session: request.session.clone(),
        image: request.image.clone(),
    };
    let output_directory = output_directory(request, context)?;
    trust::keep(&mut resolved, named, output_directory.as_deref(), context)?;
    // Last, so that a rejected request leaves nothing behind.
    if let Some(directory) = &output_directory {
        make_output_directory(directory, &resolved, config)?;
        // What is delivered is the program's, too.
        trust::note_directories(&[directory], None, named, context)?;
    }
    let fence = request.fence.unwrap_or_else(|| config.sandbox.isolation.fence());
    let on = |request: policy::Request, target| RunSpec {
        output_directory: output_directory.clone().map(OutputDirectory::new),
        ..RunSpec::new(request, target, fence)
    };
    let target = Target::of(runtime);
    let fallback = policy::Fallback::from(config.sandbox.docker.fallback);
    let fallback = fallback.target(&target).map(|other| on(resolved.clone(), other));
    Ok(RunSpec {
        fallback: fallback.map(Box::new),
        ..on(resolved, target)
    })
}

/// Rejects a request for a feature that its runtime lacks.
fn check_features(request: &Request, runtime: RuntimeKind) -> Result<(), Failure> {
    let traits = runtime.traits();
    match traits.lacks.iter().find(|lack| asks_for(request, lack.feature)) {
        None => Ok(()),
        Some(policy::Lack { feature, why }) => Err(Failure::usage(
            format!(
                "the runtime `{runtime}` does not support {}: {why}",
                feature.name()
            ),
            format!("leave out {}, or choose the runtime `local`", feature.name()),
        )),
    }
}

/// Rejects a run without a fence where the configuration requires one.
fn check_fence(request: &Request, config: &Config) -> Result<(), Failure> {
    if request.fence != Some(Fence::Unfenced) || config.sandbox.isolation.fence() != Fence::Required {
        return Ok(());
    }
    Err(Failure::refused(
        "isolation is required (`sandbox.isolation`), and an unfenced run has none",
        "leave `--unfenced` out, or have the setting changed; `ringfence config show` says where it comes from",
    ))
}

fn asks_for(request: &Request, feature: Feature) -> bool {
    match feature {
        Feature::OtherLanguages => request.language != Language::Python,
        Feature::Session => request.session.is_some(),
        Feature::Unfenced => request.fence == Some(Fence::Unfenced),
        Feature::Network => {
            !request.allowed_hosts.is_empty() || matches!(request.network, Some(Network::Allowlist(_)))
        }
        Feature::Workspace => request.workspace.is_some(),
        Feature::Image => request.image.is_some(),
        Feature::Mount => !request.mounts.is_empty(),
        Feature::WritableMount => request
            .mounts
            .iter()
            .any(|mount| mount.access == Access::ReadWrite),
        // The interpreter and the skills are the runner's. Limits are chosen all at once; the result reports those that
        // were applied.
        Feature::Interpreter
        | Feature::Skills
        | Feature::Memory
        | Feature::Cpus
        | Feature::Pids
        | Feature::Disk => false,
    }
}

fn env(request: &Request, context: &Context) -> Result<Vec<(EnvName, String)>, Problems> {
    let mut variables = passed_variables(context)?;
    for (name, value) in &request.env {
        variables.retain(|(known, _)| known != name);
        variables.push((name.clone(), value.clone()));
    }
    Ok(variables)
}

fn mounts(request: &Request, context: &Context) -> Result<Vec<Mount>, Failure> {
    let mut mounts: Vec<Mount> = Vec::with_capacity(request.mounts.len());
    for mount in &request.mounts {
        let found = mount_guard::resolve(&mount.host)?;
        check_shown(&found.path, context)?;
        trust::check_links(&found, context)?;
        let host = found.path;
        if let Some(other) = mounts.iter().find(|other| other.guest() == mount.guest()) {
            return Err(Failure::usage(
                format!(
                    "two mounts at {}: {} and {}",
                    mount.guest().display(),
                    other.host.display(),
                    host.display()
                ),
                "give each mount a path of its own inside",
            ));
        }
        let mut mount = mount.clone();
        mount.host = host;
        mounts.push(mount);
    }
    Ok(mounts)
}

/// Returns the program's workspace: the named directory, or the user's own if the configuration gives each user
/// one. The directory of a session serves tools alone: a run belongs to no conversation.
fn workspace(request: &Request, context: &Context) -> Result<Option<PathBuf>, Error> {
    let each_user = context.config()?.permissions.filesystem.user_scope == UserScope::User;
    if request.workspace.is_none() && !each_user {
        return Ok(None);
    }
    let at_workspace = |mount: &&Mount| mount.guest() == Path::new("/workspace");
    if let Some(mount) = request.mounts.iter().find(at_workspace) {
        return Err(Failure::usage(
            format!("`{mount}` would hide the workspace"),
            "give the mount another path inside, or leave the workspace out",
        )
        .into());
    }
    let workspaces = toolbox::workspaces(request.workspace.as_deref(), context)?;
    let root = workspaces.of(&request.scope, None).map_err(ToolError::from)?;
    Ok(root.map(|root| root.path().to_path_buf()))
}

fn output_directory(request: &Request, context: &Context) -> Result<Option<PathBuf>, Failure> {
    let Some(directory) = &request.output_directory else {
        return Ok(None);
    };
    let absolute = std::path::absolute(directory).map_err(|error| unusable(directory, &error))?;
    let found = mount_guard::resolve_new(&absolute)?;
    check_shown(&found.path, context)?;
    trust::check_links(&found, context)?;
    Ok(Some(found.path))
}

/// Creates the output directory. A program whose files would be lost is not run.
fn make_output_directory(
    directory: &Path,
    request: &policy::Request,
    config: &Config,
) -> Result<(), Failure> {
    let protected = &config.permissions.filesystem.protected;
    check_output_directory(directory, protected, &request.trusted)
        .map_err(|error| unusable(directory, &error))
}

fn unusable(directory: &Path, error: &std::io::Error) -> Failure {
    Failure::usage(
        format!("cannot use the output directory {}: {error}", directory.display()),
        "name a directory that you may write, or one that can be made",
    )
}

/// Returns a Python interpreter that is named as `key`: its absolute path, or its name on the PATH.
///
/// # Errors
/// If there is no such program.
pub fn python(key: &str, path: &Path, context: &Context) -> Result<PathBuf, Failure> {
    let absolute = match crate::parts::is_bare(path) {
        true => path.to_path_buf(),
        false => std::path::absolute(path).map_err(|error| {
            Failure::usage(
                format!("{}: {error}", path.display()),
                "give the interpreter's path",
            )
        })?,
    };
    let named = crate::parts::interpreter(key, &absolute)?;
    let on_path = ringfence_exec::interpreter::named(&named, context.environment.get("PATH"));
    match named.is_absolute() || !on_path.paths.is_empty() {
        true => Ok(named),
        false => Err(Failure::usage(
            format!(
                "`{key}`: expected a program, found none called `{}` on the PATH",
                named.display()
            ),
            "name an existing interpreter, such as /usr/bin/python3 or a venv's bin/python",
        )),
    }
}
