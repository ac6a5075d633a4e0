//! Tries the isolation layers of the Linux kernel.

use std::collections::HashMap;
use std::io;

use ringfence_jail::probe::{self, Layer as Tried, Trial};

use super::fixes;
use super::layer::Layer;
use super::machine::Machine;

/// Display names, in display order.
const NAMES: &[(Tried, &str)] = &[
    (Tried::UserNamespace, "user namespace"),
    (Tried::PidNamespace, "pid namespace"),
    (Tried::MountNamespace, "mount namespace"),
    (Tried::NetNamespace, "net namespace"),
    (Tried::IpcNamespace, "ipc namespace"),
    (Tried::UtsNamespace, "uts namespace"),
    (Tried::CgroupNamespace, "cgroup namespace"),
    (Tried::TimeNamespace, "time namespace"),
    (Tried::Proc, "fresh /proc"),
    (Tried::Tmpfs, "tmpfs"),
    (Tried::MappedMount, "id-mapped mount"),
    (Tried::Landlock, "landlock"),
    (Tried::Seccomp, "seccomp"),
    (Tried::NoNewPrivs, "no_new_privs"),
    (Tried::Pidfd, "pidfd"),
];

/// Tries each layer in a child process.
pub(super) fn layers(machine: &Machine) -> Vec<Layer> {
    let mut layers = match probe::try_layers() {
        Ok(trials) => tried(machine, &trials),
        Err(error) => vec![Layer::missing(
            "launcher",
            format!("no process to try the layers in: {error}"),
            "check the limits on open files and processes (`ulimit -n -u`)",
        )],
    };
    layers.push(memfd(machine));
    layers
}

fn tried(machine: &Machine, trials: &HashMap<Tried, Trial>) -> Vec<Layer> {
    let named = NAMES
        .iter()
        .filter_map(|(tried, name)| Some((*tried, *name, trials.get(tried)?)));
    named
        .map(|(tried, name, trial)| layer(machine, tried, name, trial))
        .collect()
}

fn layer(machine: &Machine, tried: Tried, name: &'static str, trial: &Trial) -> Layer {
    let (detail, errno) = match trial {
        Trial::Works => return Layer::ok(name, works(tried)),
        Trial::Refused { step, errno } => (
            format!("cannot {step}: {}", io::Error::from_raw_os_error(*errno)),
            *errno,
        ),
        Trial::Toothless => ("it could be had, and then held nothing back".to_owned(), 0),
        Trial::Killed(signal) => (format!("trying it ended by signal {signal}"), 0),
    };
    match tried {
        Tried::MappedMount => Layer::info(
            name,
            format!("{detail} (only root can; mounts then keep their owners)"),
        ),
        Tried::TimeNamespace => Layer {
            fix: Some(fixes::namespaces(machine, errno)),
            ..Layer::info(name, format!("{detail} (runs do without it)"))
        },
        Tried::Landlock => Layer::missing(name, detail, fixes::landlock(machine, errno)),
        Tried::Seccomp => Layer::missing(
            name,
            detail,
            "use a kernel with CONFIG_SECCOMP_FILTER, on x86_64 or aarch64",
        ),
        Tried::NoNewPrivs | Tried::Pidfd => Layer::missing(name, detail, "use Linux 5.10 or newer"),
        Tried::UserNamespace
        | Tried::PidNamespace
        | Tried::MountNamespace
        | Tried::NetNamespace
        | Tried::IpcNamespace
        | Tried::UtsNamespace
        | Tried::CgroupNamespace
        | Tried::Proc
        | Tried::Tmpfs => Layer::missing(name, detail, fixes::namespaces(machine, errno)),
    }
}

fn works(tried: Tried) -> String {
    match tried {
        Tried::Landlock => landlock_features(ringfence_jail::landlock_abi().unwrap_or(0)),
        Tried::Seccomp => "the fence's filter loads, and refuses".to_owned(),
        Tried::NoNewPrivs => "set, and seen".to_owned(),
        Tried::Tmpfs => "made, attached and written, by the new mount calls".to_owned(),
        Tried::Proc => "mounted in a new pid namespace".to_owned(),
        Tried::MappedMount => "owners of a mount can be mapped".to_owned(),
        Tried::Pidfd => "processes are held by handle".to_owned(),
        Tried::UserNamespace
        | Tried::PidNamespace
        | Tried::MountNamespace
        | Tried::NetNamespace
        | Tried::IpcNamespace
        | Tried::UtsNamespace
        | Tried::CgroupNamespace
        | Tried::TimeNamespace => "made".to_owned(),
    }
}

/// Lists the features of a Landlock ABI (landlock(7)).
fn landlock_features(abi: u32) -> String {
    let features = [
        (1, "files"),
        (2, "refer"),
        (3, "truncate"),
        (4, "tcp"),
        (5, "ioctl"),
        (6, "scopes"),
    ];
    let (has, lacks): (Vec<_>, Vec<_>) = features.iter().partition(|(since, _)| abi >= *since);
    let names =
        |list: Vec<&(u32, &'static str)>| list.iter().map(|(_, name)| *name).collect::<Vec<_>>().join(", ");
    if lacks.is_empty() {
        format!("ABI {abi}: {}", names(has))
    } else {
        format!("ABI {abi}: {}; this kernel lacks {}", names(has), names(lacks))
    }
}

fn memfd(machine: &Machine) -> Layer {
    const NAME: &str = "vm.memfd_noexec";
    match machine.memfd_noexec {
        Some(value) => Layer::info(
            NAME,
            format!("{value} here; guests in namespaces get 1: files in memory cannot be executed"),
        ),
        None => Layer::info(
            NAME,
            "not in this kernel (Linux 6.3); the filter refuses execveat anyway",
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::super::Status;
    use super::*;

    #[test]
    fn every_layer_has_a_name_of_its_own() {
        let mut names: Vec<_> = NAMES.iter().map(|(_, name)| *name).collect();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), Tried::ALL.len());
        assert!(
            Tried::ALL
                .iter()
                .all(|tried| NAMES.iter().any(|(named, _)| named == tried))
        );
    }

    #[test]
    fn what_is_refused_is_missing_and_says_what_to_do() {
        let trial = Trial::Refused {
            step: "make a pid namespace".to_owned(),
            errno: 1,
        };
        let layer = layer(&Machine::default(), Tried::PidNamespace, "pid namespace", &trial);
        assert_eq!(layer.status, Status::Missing);
        assert!(
            layer
                .detail
                .starts_with("cannot make a pid namespace: Operation not permitted")
        );
        assert!(layer.fix.is_some());
    }

    #[test]
    fn features_follow_the_abi() {
        assert_eq!(
            landlock_features(7),
            "ABI 7: files, refer, truncate, tcp, ioctl, scopes"
        );
        assert_eq!(
            landlock_features(3),
            "ABI 3: files, refer, truncate; this kernel lacks tcp, ioctl, scopes"
        );
    }
}
