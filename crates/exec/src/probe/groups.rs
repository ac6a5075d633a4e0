//! Detects if control groups can limit memory, processes and processor time of a run.

use ringfence_cgroup::{Detection, GroupLimits, Hierarchy, Version};

use super::fixes;
use super::layer::Layer;
use super::machine::Machine;

const NAME: &str = "control groups";

/// Looks for a writable hierarchy, and tries to create a group with limits there.
pub(super) fn layer(machine: &Machine) -> Layer {
    let Detection { hierarchy, reasons } = Hierarchy::detect_verbose();
    let Some(hierarchy) = hierarchy else {
        return Layer::missing(NAME, reasons.join("; "), fixes::groups(machine));
    };
    if let Err(error) = try_group(&hierarchy) {
        let why = std::error::Error::source(&error).map_or(String::new(), |source| format!(": {source}"));
        return Layer::missing(NAME, format!("{error}{why}"), fixes::groups(machine));
    }
    let version = match hierarchy.version() {
        Version::V1 => "v1",
        Version::V2 => "v2",
    };
    let controllers = if hierarchy.limits_cpu() {
        "memory, pids, cpu"
    } else {
        "memory, pids"
    };
    let mut detail = format!("{version}, delegated: {controllers}; a group was made, limited and removed");
    for reason in reasons {
        detail.push_str("; ");
        detail.push_str(&reason);
    }
    Layer::ok(NAME, detail)
}

fn try_group(hierarchy: &Hierarchy) -> Result<(), ringfence_cgroup::Error> {
    // No process has the start time 0, so a sweep treats this as a dead server's group, should we be killed
    // now.
    let name = format!("ringfence-{}-0", std::process::id());
    let limits = GroupLimits {
        memory_bytes: 64 << 20,
        pids: 8,
        cpus: 0.5,
    };
    hierarchy.group(&name, limits)?.close()
}
