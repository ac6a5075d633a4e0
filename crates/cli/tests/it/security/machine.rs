//! Threat: a guest that inspects the machine: its boot parameters, uptime and activity.

use super::fence::Fence;
use super::probe::{Probe, deny_all, probe};

const FACTS: &[Probe] = &[
    probe(
        "the kernel's command line",
        "EACCES",
        "os.open('/proc/cmdline', os.O_RDONLY)",
    ),
    probe("interrupts", "EACCES", "os.open('/proc/interrupts', os.O_RDONLY)"),
    probe(
        "soft interrupts",
        "EACCES",
        "os.open('/proc/softirqs', os.O_RDONLY)",
    ),
    probe(
        "what disks do",
        "EACCES",
        "os.open('/proc/diskstats', os.O_RDONLY)",
    ),
    probe("partitions", "EACCES", "os.open('/proc/partitions', os.O_RDONLY)"),
    probe(
        "the kernel's configuration",
        "EACCES",
        "os.path.exists('/proc/config.gz') and os.open('/proc/config.gz', os.O_RDONLY)",
    ),
];

#[test]
fn what_the_machine_does_is_hidden() {
    for fence in [Fence::root(), Fence::ordinary_user()] {
        let Some(fence) = fence else { return };
        let there = |probe: &&Probe| {
            !probe.act.contains("config.gz") || std::path::Path::new("/proc/config.gz").exists()
        };
        deny_all(&fence, &FACTS.iter().filter(there).copied().collect::<Vec<_>>());
        let needed = "for name in ('cpuinfo', 'meminfo', 'stat', 'loadavg', 'uptime', 'version', 'self/status',\n             \
                      'sys/kernel/osrelease', 'sys/kernel/random/uuid'):\n    \
                          assert open('/proc/' + name).read(), name\n\
                      print('all')";
        assert_eq!(fence.printed(&[], needed), "all\n");
    }
}

#[test]
fn a_cell_has_a_boot_id_of_its_own() {
    for fence in [Fence::root(), Fence::ordinary_user()] {
        let Some(fence) = fence else { return };
        let code = "path = '/proc/sys/kernel/random/boot_id'\n\
                    import uuid; print(uuid.UUID(open(path).read().strip()).version)\n\
                    print(open(path).read())";
        let machine = fence.outside(code, &[]).ok().to_owned();
        let (first, second) = (fence.printed(&[], code), fence.printed(&[], code));
        let length = |text: &String| (text.len(), text.starts_with("4\n"));
        assert_eq!(
            [&machine, &first, &second].map(length),
            [(40, true); 3],
            "{first}"
        );
        assert!(first != machine && first != second, "{machine}{first}{second}");
        let change = "import errno, os\ntry: os.chmod('/proc/sys/kernel/random/boot_id', 0o644)\n\
                      except OSError as error: print(errno.errorcode[error.errno])";
        assert_eq!(fence.printed(&[], change), "EROFS\n");
    }
}

#[test]
fn clocks_do_not_tell_how_long_the_machine_runs() {
    for fence in [Fence::root(), Fence::ordinary_user()] {
        let Some(fence) = fence else { return };
        let code = "print(sorted(line.split()[1] == '0' for line in open('/proc/self/timens_offsets')))";
        assert_eq!(fence.outside(code, &[]).ok(), "[True, True]\n");
        let result = fence.result(&[], code);
        assert_eq!(result["stdout"], "[False, False]\n", "{result:#}");
        assert_eq!(result["meta"]["isolation"]["time_ns"], true);
        // In every clock the machine booted an hour before the guest started.
        let code = "import os, time\n\
                    hour = lambda seconds: 3600 <= seconds < 2 * 3600\n\
                    boot = int(open('/proc/stat').read().split('btime ')[1].split()[0])\n\
                    print(hour(time.monotonic()), hour(time.clock_gettime(time.CLOCK_BOOTTIME)),\n      \
                          hour(float(open('/proc/uptime').read().split()[0])), hour(time.time() - boot))";
        assert_eq!(fence.printed(&[], code), "True True True True\n");
        let bash = fence.printed(
            &["-l", "bash"],
            "read -r up _ < /proc/uptime; echo $(( ${up%.*} / 3600 ))",
        );
        assert_eq!(bash, "1\n");
    }
}
