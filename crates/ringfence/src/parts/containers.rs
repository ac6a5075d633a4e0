//! Images, mounts and templates of containers.

use std::str::FromStr;

use ringfence_container::RunError;
use ringfence_container::spec::{Bind, Binds, Image};
use ringfence_exec::trust;
use ringfence_policy::{HostPattern, Mount};

use super::checks::{Checks, Wrong};
use super::files::absolute;
use crate::config::schema::Template;
use crate::config::values::{NetworkMode, OciRuntime, SeccompProfile, VolumeMount};

/// Images of containers, and the mounts of `sandbox_exec`.
#[derive(Debug, Clone)]
pub struct Containers {
    pub runs: Image,
    /// The image of the tool `shell`.
    pub shell: Image,
    /// Host directories mounted by `sandbox_exec`; absolute.
    pub mounts: Vec<Mount>,
}

pub(super) fn containers(checks: &mut Checks<'_>) -> Option<Containers> {
    let config = checks.config();
    let runs = checks.parse("sandbox.docker.image", &config.sandbox.docker.image);
    let shell = checks.parse(
        "permissions.shell.container_image",
        &config.permissions.shell.container_image,
    );
    let calls = checks.parse::<Image>("codeExecution.dockerImage", &config.code_execution.docker_image);
    let mounts = mounts(checks);
    for (name, template) in &config.templates.0 {
        check_template(checks, name, template);
    }
    calls?;
    Some(Containers {
        runs: runs?,
        shell: shell?,
        mounts: mounts?,
    })
}

const MOUNTS: &str = "codeExecution.volumeMounts";

/// Checks the mounts of `sandbox_exec`. Each use checks them again.
fn mounts(checks: &mut Checks<'_>) -> Option<Vec<Mount>> {
    let hidden = checks.hidden();
    let (mut mounts, mut binds) = (Vec::new(), Vec::new());
    let mut complete = true;
    for VolumeMount(written) in &checks.config().code_execution.volume_mounts {
        let guest = written.guest().to_string_lossy();
        let mount = Mount::new(absolute(&written.host), &guest, written.access)
            .map_err(|error| Wrong::new(MOUNTS, error, super::checks::CORRECT));
        let Some(mount) = checks.keep(mount) else {
            complete = false;
            continue;
        };
        // A disk may be plugged in later.
        if !mount.host.exists() {
            let missing = format!(
                "there is no {}: calls fail until it is there",
                mount.host.display()
            );
            let allowed = Bind::check_missing(&mount.host, &hidden)
                .map_err(|error| Wrong::new(MOUNTS, format!("`{written}`: {error}"), error.hint()));
            match checks.keep(allowed) {
                Some(()) => checks.warn(MOUNTS, missing),
                None => complete = false,
            }
        } else {
            // Each use rejects links that a program may have made.
            let mut resolved = mount.clone();
            resolved.host = trust::resolve(&mount.host).map_or(mount.host.clone(), |found| found.path);
            let bind = Bind::new(&resolved, &hidden)
                .map_err(|error| Wrong::new(MOUNTS, format!("`{written}`: {error}"), error.hint()));
            match checks.keep(bind) {
                Some(bind) => binds.push(bind),
                None => complete = false,
            }
        }
        mounts.push(mount);
    }
    let together = Binds::new(binds).map_err(|error| Wrong::new(MOUNTS, &error, error.hint()));
    complete &= checks.keep(together).is_some();
    complete.then_some(mounts)
}

fn check_template(checks: &mut Checks<'_>, name: &str, template: &Template) {
    let key = |last: &str| format!("templates.{name}.{last}");
    if let Some(image) = &template.image {
        checks.parse::<Image>(&key("image"), image);
    }
    checks.parse_all::<HostPattern>(&key("allowed_hosts"), &template.allowed_hosts);
    let reaches = template.network_mode == NetworkMode::Restricted && !template.allowed_hosts.is_empty();
    if template.seccomp_profile != SeccompProfile::Strict {
        return;
    }
    if reaches {
        let refused = RunError::ReachUnder("strict".to_owned());
        checks.wrong(Wrong::new(key("allowed_hosts"), &refused, refused.hint()));
    }
    if template.oci_runtime == OciRuntime::Runsc {
        // `sandbox create --oci-runtime` may choose another.
        checks.warn(
            &key("oci_runtime"),
            "no sandbox can be created from this template: the profile `strict` is not available under `runsc`; choose `standard`",
        );
    }
}

/// Parses the name of an image on the command line.
pub fn image(key: &str, name: &str) -> Result<Image, Wrong> {
    Image::from_str(name).map_err(|error| Wrong::new(key, error, super::checks::CORRECT))
}
