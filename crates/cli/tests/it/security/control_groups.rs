//! Threat: a guest that loosens its own limits.

use super::fence::Fence;
use super::probe::{deny, probe};

#[test]
fn control_groups_are_out_of_reach() {
    let Some(fence) = Fence::root() else { return };
    let procs = probe(
        "entering another control group",
        "ENOENT",
        "import glob\n\
         places = glob.glob('/sys/fs/cgroup/memory/cgroup.procs') + glob.glob('/sys/fs/cgroup/cgroup.procs')\n\
         os.open(places[0] if places else '/sys/fs/cgroup/cgroup.procs', os.O_WRONLY)",
    );
    deny(&fence, &[], &procs, &[]);
    for (kind, name) in [
        ("cgroup2", "mounting control groups"),
        ("cgroup", "mounting old control groups"),
    ] {
        let mount = probe(
            name,
            "EPERM",
            "os.makedirs('groups', exist_ok=True)\n\
             options = b'' if ARGS[0] == 'cgroup2' else b'none,name=ringfence-test'\n\
             call(number(165, 40), b'none', b'groups', ARGS[0].encode(), 0, options)\n\
             call(number(166, 39), b'groups', 0)",
        );
        deny(&fence, &[], &mount, &[kind]);
    }
}

#[test]
fn the_guest_sees_itself_at_the_root_of_every_control_group() {
    let Some(fence) = Fence::root() else { return };
    let code = "print({line.rstrip().split(':', 2)[2] for line in open('/proc/self/cgroup')})";
    assert_eq!(fence.printed(&[], code), "{'/'}\n");
    let result = fence.result(&["--memory", "64MiB", "--pids", "8"], code);
    assert!(result["meta"]["isolation"]["cgroup"].is_string(), "{result}");
}
