//! Suggests commands that enable missing layers.

use ringfence_policy::{Remedy, remedy};

use super::machine::Machine;

const EPERM: i32 = 1;
const ENOSPC: i32 = 28;
const ENOSYS: i32 = 38;
const EUSERS: i32 = 87;
const EOPNOTSUPP: i32 = 95;

/// System calls of the fence that Docker's default filter denies.
const CALLS: &str = "clone, clone3, unshare, setns, mount, umount2, pivot_root, open_tree, move_mount, fsopen, fsconfig, \
                     fsmount, mount_setattr and sethostname";

/// Returns the fix for a denied namespace, or a denied mount in one.
pub(super) fn namespaces(machine: &Machine, errno: i32) -> String {
    if machine.filtered || machine.container {
        return container(machine);
    }
    if machine.unprivileged_clone == Some(0) && !machine.is_root() {
        return "sudo sysctl -w kernel.unprivileged_userns_clone=1  (to keep it: put \
                `kernel.unprivileged_userns_clone=1` into /etc/sysctl.d/60-ringfence.conf)"
            .to_owned();
    }
    if machine.max_user_namespaces == Some(0) {
        return "sudo sysctl -w user.max_user_namespaces=15000  (to keep it: put `user.max_user_namespaces=15000` \
                into /etc/sysctl.d/60-ringfence.conf)"
            .to_owned();
    }
    if machine.apparmor_restricts == Some(1) && !machine.is_root() {
        return apparmor(machine);
    }
    match errno {
        ENOSPC | EUSERS => {
            "too many namespaces are in use or nested: sudo sysctl -w user.max_user_namespaces=15000, \
                            or run outside of other sandboxes"
                .to_owned()
        }
        ENOSYS => {
            "use a kernel built with namespaces (CONFIG_NAMESPACES, CONFIG_USER_NS), Linux 5.12 or newer"
                .to_owned()
        }
        _ => format!(
            "something above this process forbids namespaces: {}",
            Remedy::from(remedy::Run::AcceptFlatFence).person()
        ),
    }
}

/// Returns the fix for Ubuntu's AppArmor restriction: ordinary users can create user namespaces, but have no
/// capabilities in them.
fn apparmor(machine: &Machine) -> String {
    let program = machine.executable.display();
    format!(
        "Ubuntu's AppArmor forbids user namespaces to ordinary users. Either allow them to Ringfence alone:\n\
         sudo tee /etc/apparmor.d/ringfence <<'END'\n\
         abi <abi/4.0>,\n\
         include <tunables/global>\n\
         profile ringfence {program} flags=(unconfined) {{\n\
         \x20 userns,\n\
         }}\n\
         END\n\
         sudo apparmor_parser -r /etc/apparmor.d/ringfence\n\
         or allow them to every program: sudo sysctl -w kernel.apparmor_restrict_unprivileged_userns=0"
    )
}

/// Returns the fix for containers: Docker's default filter denies namespaces, and its masks over /proc
/// prevent a new mount of /proc.
///
/// Root of a container lacks the capability to mount, so namespaces are created there as an ordinary user
/// would.
fn container(machine: &Machine) -> String {
    let apparmor = match machine.apparmor_profile {
        Some(_) => " --security-opt apparmor=unconfined",
        None => "",
    };
    if !machine.container {
        return "a system-call filter on this process forbids it: start Ringfence outside of whatever put it there (a service's \
                `SystemCallFilter=` or `RestrictNamespaces=`, another sandbox)"
            .to_owned();
    }
    format!(
        "inside a container, Docker's default seccomp profile and its masked /proc forbid it. Start the container with\n\
         docker run --user 1000 --security-opt seccomp=unconfined --security-opt systempaths=unconfined{apparmor} …\n\
         or, narrower, with seccomp=PROFILE.json: Docker's default profile that also allows {CALLS};\n\
         or accept best effort: runs are held by Landlock, the system-call filter and resource limits, and their results say so"
    )
}

/// Returns the fix for Landlock.
pub(super) fn landlock(machine: &Machine, errno: i32) -> String {
    match errno {
        ENOSYS => format!(
            "use Linux 5.13 or newer with CONFIG_SECURITY_LANDLOCK; this is {}",
            machine.kernel
        ),
        EOPNOTSUPP => {
            let modules = machine.security_modules.as_deref().unwrap_or("lockdown,yama,apparmor,bpf");
            format!(
                "the kernel has Landlock, but it is not switched on: boot with `lsm=landlock,{modules}` (GRUB_CMDLINE_LINUX in \
                 /etc/default/grub, then `sudo update-grub`)"
            )
        }
        EPERM if machine.filtered => "the filter of the container refuses Landlock's calls: use Docker 20.10.22 or newer, or \
                                      --security-opt seccomp=PROFILE.json that allows landlock_create_ruleset, landlock_add_rule \
                                      and landlock_restrict_self"
            .to_owned(),
        _ => "use Linux 5.13 or newer with Landlock switched on".to_owned(),
    }
}

/// Returns advice for a user whose machine offers no usable control groups.
pub(super) fn groups(machine: &Machine) -> String {
    if machine.container {
        return "limit the container itself: docker run --memory 1g --pids-limit 512 --cpus 2 …; without that, each process of a \
                run is limited, not all together"
            .to_owned();
    }
    let program = machine.executable.display();
    match (machine.systemd, machine.is_root()) {
        (true, false) => format!(
            "start it in a scope of its own: systemd-run --user --scope -p Delegate=yes {program} …  (in a unit file: \
             `Delegate=yes`; where that is not enough, systemd must run with cgroup v2)"
        ),
        (true, true) => format!(
            "start it in a scope of its own: systemd-run --scope -p Delegate=yes {program} …  (in a unit file: `Delegate=yes`)"
        ),
        (false, true) => "mount the control groups: mount -t cgroup2 none /sys/fs/cgroup".to_owned(),
        (false, false) => "have root make a control group that you own, with the controllers memory, pids and cpu, and start \
                           the shell in it; without it, each process of a run is limited, not all together"
            .to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn user() -> Machine {
        Machine {
            uid: 1000,
            host_ids: true,
            ..Machine::default()
        }
    }

    #[test]
    fn each_cause_has_its_fix() {
        let debian = Machine {
            unprivileged_clone: Some(0),
            ..user()
        };
        let none = Machine {
            max_user_namespaces: Some(0),
            ..user()
        };
        let ubuntu = Machine {
            apparmor_restricts: Some(1),
            ..user()
        };
        let docker = Machine {
            container: true,
            filtered: true,
            ..Machine::default()
        };
        let service = Machine {
            filtered: true,
            ..user()
        };
        for (machine, words) in [
            (&debian, "kernel.unprivileged_userns_clone=1"),
            (&none, "user.max_user_namespaces="),
            (&ubuntu, "kernel.apparmor_restrict_unprivileged_userns=0"),
            (&ubuntu, "userns,"),
            (&docker, "--security-opt seccomp="),
            (&docker, "systempaths=unconfined"),
            (&service, "SystemCallFilter="),
        ] {
            assert!(namespaces(machine, EPERM).contains(words), "{words}");
        }
    }

    #[test]
    fn what_binds_ordinary_users_is_not_blamed_for_roots_troubles() {
        let root = Machine {
            apparmor_restricts: Some(1),
            unprivileged_clone: Some(0),
            ..Machine::default()
        };
        let fix = namespaces(&root, EPERM);
        assert!(
            !fix.contains("apparmor_restrict") && !fix.contains("userns_clone"),
            "{fix}"
        );
    }

    #[test]
    fn an_apparmor_profile_around_a_container_must_go_too() {
        let docker = Machine {
            container: true,
            apparmor_profile: Some("docker-default (enforce)".to_owned()),
            ..Machine::default()
        };
        assert!(namespaces(&docker, EPERM).contains("apparmor=unconfined"));
    }

    #[test]
    fn landlock_may_be_absent_or_switched_off() {
        let old = Machine {
            kernel: "5.10.0".to_owned(),
            ..user()
        };
        assert!(landlock(&old, ENOSYS).contains("this is 5.10.0"));
        let off = Machine {
            security_modules: Some("capability,yama".to_owned()),
            ..user()
        };
        assert!(landlock(&off, EOPNOTSUPP).contains("lsm=landlock,capability,yama"));
    }

    #[test]
    fn control_groups_come_from_whoever_owns_them() {
        let systemd = Machine {
            systemd: true,
            ..user()
        };
        assert!(groups(&systemd).contains("systemd-run --user --scope -p Delegate=yes"));
        let docker = Machine {
            container: true,
            ..user()
        };
        assert!(groups(&docker).contains("docker run --memory"));
    }
}
