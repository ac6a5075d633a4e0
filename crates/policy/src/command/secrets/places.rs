//! Denied places with allowlists.
//!
//! A list of secret files is never complete. Where secrets are stored by convention (below a home under names
//! with a dot, in the configuration and data of services, in the kernel's process information) everything
//! counts as secret, and public files are listed.

use super::super::within_word;

/// Returns `true` if the path is in a denied place. The path is normalized, in lower case, and may contain a
/// glob.
pub(super) fn is_closed(path: &str) -> bool {
    let parts: Vec<&str> = path.split('/').collect();
    match parts.as_slice() {
        ["", "root", rest @ ..] => in_home(rest),
        ["", "home" | "users", _, rest @ ..] => in_home(rest),
        [first, rest @ ..] if first.starts_with('~') => in_home(rest),
        ["", "etc", rest @ ..] => !matches(rest, ETC),
        ["", "proc", rest @ ..] => in_proc(rest),
        ["", "dev", rest @ ..] => !matches(rest, DEV),
        ["", "run", rest @ ..] | ["", "var", "run", rest @ ..] => !matches(rest, RUN),
        ["", "var", "log", first, ..]
            if ["auth", "secure", "btmp", "audit"]
                .iter()
                .any(|name| first.starts_with(name)) =>
        {
            true
        }
        ["", "var", rest @ ..] => !matches(rest, VAR),
        // A glob at the top could match any of these.
        ["", first, ..] => first.contains(['*', '?', '[']),
        _ => false,
    }
}

/// Returns `true` for a secret path in a home. Dot files there are settings and keys; other names are the
/// user's own work.
fn in_home(rest: &[&str]) -> bool {
    match rest.first() {
        Some(first) if first.starts_with(['.', '[', '?']) => !matches(rest, HOME),
        Some(&"library") => !matches(rest, &["library/logs/**", "library/developer/**"]),
        Some(&"appdata" | &"snap") => true,
        _ => false,
    }
}

fn in_proc(rest: &[&str]) -> bool {
    match rest {
        [] | ["sys" | "net" | "irq" | "fs" | "bus", ..] => false,
        [process, what] if is_process(process) => !PROCESS.contains(what),
        [process, "task", _, what] if is_process(process) => !PROCESS.contains(what),
        [process] if is_process(process) => false,
        [process, "net", ..] if is_process(process) => false,
        _ => !matches(rest, PROC),
    }
}

fn is_process(name: &str) -> bool {
    let number = name
        .chars()
        .all(|sign| sign.is_ascii_digit() || "*?[]-$".contains(sign));
    number || matches!(name, "self" | "thread-self")
}

/// Returns `true` if one of the patterns matches the path: `*` matches one name, a final `**` any number.
fn matches(path: &[&str], patterns: &[&str]) -> bool {
    patterns.iter().any(|pattern| {
        let wanted: Vec<&str> = pattern.split('/').collect();
        match wanted.split_last() {
            Some((&"**", above)) => path.len() >= above.len() && pairs(above, path),
            _ => path.len() == wanted.len() && pairs(&wanted, path),
        }
    })
}

fn pairs(wanted: &[&str], path: &[&str]) -> bool {
    let one = |(pattern, name): (&&str, &&str)| {
        *pattern == "*" || !name.contains(['*', '?', '[']) && within_word(pattern, name)
    };
    wanted.iter().zip(path).all(one)
}

/// Home files that contain no key in any known program.
const HOME: &[&str] = &[
    ".vimrc",
    ".vim/**",
    ".gvimrc",
    ".inputrc",
    ".editorconfig",
    ".gitignore",
    ".gitignore_global",
    ".tool-versions",
    ".nvmrc",
    ".python-version",
    ".node-version",
    ".ruby-version",
    ".dircolors",
    ".ripgreprc",
    ".hushlogin",
    ".rustup/**",
    ".cargo/bin/**",
    ".cargo/registry/**",
    ".cargo/git/**",
    ".nvm/**",
    ".pyenv/**",
    ".rbenv/**",
    ".asdf/**",
    ".sdkman/**",
    ".volta/**",
    ".local/bin/**",
    ".local/lib/**",
    ".local/share/man/**",
    ".local/share/applications/**",
    ".local/share/fonts/**",
    ".fonts/**",
    ".config/nvim/**",
    ".config/htop/**",
    ".config/bat/**",
    ".config/alacritty/**",
    ".config/kitty/**",
    ".config/starship.toml",
    ".config/tmux/**",
    ".config/helix/**",
    ".config/ripgrep/**",
    ".config/fontconfig/**",
    ".config/user-dirs.dirs",
    ".config/systemd/user/*.target",
    ".emacs.d/lisp/**",
    ".oh-my-zsh/**",
    ".tmux.conf",
];

/// System configuration that every user and program reads, and in which no service stores a key.
const ETC: &[&str] = &[
    "",
    "hosts",
    "hostname",
    "resolv.conf",
    "*-release",
    "*_version",
    "issue",
    "issue.net",
    "motd",
    "passwd",
    "passwd-",
    "group",
    "group-",
    "fstab",
    "mtab",
    "services",
    "protocols",
    "networks",
    "rpc",
    "ethertypes",
    "shells",
    "timezone",
    "localtime",
    "locale.*",
    "default/locale",
    "nsswitch.conf",
    "host.conf",
    "gai.conf",
    "ld.so.*",
    "ld.so.conf.d/**",
    "profile",
    "profile.d/**",
    "bash.bashrc",
    "inputrc",
    "apt/sources.list",
    "apt/sources.list.d/**",
    "apt/preferences.d/**",
    "yum.repos.d/**",
    "pacman.conf",
    "apk/repositories",
    "nginx/**",
    "apache2/**",
    "httpd/**",
    "caddy/caddyfile",
    "ssh/ssh_config",
    "systemd/**",
    "sysctl.conf",
    "sysctl.d/**",
    "modules",
    "modules-load.d/**",
    "modprobe.d/**",
    "udev/**",
    "logrotate.conf",
    "logrotate.d/**",
    "crontab",
    "cron.d/**",
    "cron.daily/**",
    "cron.hourly/**",
    "cron.weekly/**",
    "cron.monthly/**",
    "anacrontab",
    "alternatives/**",
    "ca-certificates.conf",
    "ssl/certs/**",
    "ssl/openssl.cnf",
    "security/limits.conf",
    "security/limits.d/**",
    "login.defs",
    "adduser.conf",
    "deluser.conf",
    "manpath.config",
    "magic",
    "mime.types",
    "python3*/**",
    "vim/**",
    "x11/**",
    "xdg/**",
    "fonts/**",
    "iproute2/**",
    "skel/**",
    "init.d/**",
    "kernel/**",
    "lsb-release",
    "machine-id",
    "mke2fs.conf",
    "nanorc",
    "debconf.conf",
    "dpkg/**",
    "docker/daemon.json",
    "containerd/config.toml",
    "hosts.allow",
    "hosts.deny",
    "exports",
    "tmpfiles.d/**",
    "sysusers.d/**",
    "os-release",
    "papersize",
    "lsb-base/**",
    "environment.d/**",
    "bash_completion*/**",
    "terminfo/**",
    "pam.d/**",
    "polkit-1/**",
    "dbus-1/**",
    "grub.d/**",
    "default/grub",
    "netconfig",
    "aliases",
    "updatedb.conf",
    "subuid",
    "subgid",
    "zsh/**",
    "fish/**",
];

/// Process information from the kernel, without the arguments and variables of the process.
const PROCESS: &[&str] = &[
    "status",
    "stat",
    "statm",
    "limits",
    "comm",
    "cmdline",
    "cgroup",
    "mountinfo",
    "mounts",
    "mountstats",
    "io",
    "sched",
    "schedstat",
    "wchan",
    "oom_score",
    "oom_adj",
    "oom_score_adj",
    "maps",
    "smaps",
    "smaps_rollup",
    "numa_maps",
    "loginuid",
    "sessionid",
    "uid_map",
    "gid_map",
    "setgroups",
    "cpuset",
    "coredump_filter",
    "timerslack_ns",
    "personality",
    "attr",
    "ns",
    "task",
    "autogroup",
];

/// Machine information from the kernel.
const PROC: &[&str] = &[
    "cpuinfo",
    "meminfo",
    "loadavg",
    "uptime",
    "version",
    "version_signature",
    "stat",
    "mounts",
    "filesystems",
    "partitions",
    "swaps",
    "devices",
    "diskstats",
    "interrupts",
    "softirqs",
    "modules",
    "vmstat",
    "zoneinfo",
    "buddyinfo",
    "slabinfo",
    "cgroups",
    "cmdline",
    "consoles",
    "crypto",
    "dma",
    "execdomains",
    "fb",
    "iomem",
    "ioports",
    "kallsyms",
    "locks",
    "misc",
    "mtrr",
    "mdstat",
    "pagetypeinfo",
    "schedstat",
    "timer_list",
    "vmallocinfo",
    "pressure/**",
    "driver/**",
    "acpi/**",
    "scsi/**",
    "asound/**",
    "tty/**",
    "sysvipc/**",
    "config.gz",
    "bootconfig",
    "dynamic_debug/**",
    "latency_stats",
];

/// Devices without stored data.
const DEV: &[&str] = &[
    "", "null", "zero", "full", "random", "urandom", "stdin", "stdout", "stderr", "tty", "fd/0", "fd/1",
    "fd/2", "fd/63", "shm/**",
];

/// Public runtime data of services.
const RUN: &[&str] = &[
    "*.pid",
    "*/*.pid",
    "utmp",
    "systemd/system/**",
    "systemd/resolve/**",
    "motd",
    "os-release",
    "reboot-required*",
    "resolvconf/**",
    "udev/data/**",
];

/// Public data of services.
const VAR: &[&str] = &[
    "log/*.log",
    "log/*.log.*",
    "log/syslog*",
    "log/messages*",
    "log/dmesg*",
    "log/*/**",
    "log/wtmp",
    "log/lastlog",
    "www/**",
    "tmp/**",
    "cache/apt/**",
    "cache/man/**",
    "cache/fontconfig/**",
    "lib/dpkg/**",
    "lib/apt/**",
    "lib/rpm/**",
    "lib/pacman/**",
    "lib/ucf/**",
    "lib/python/**",
    "lib/mlocate/**",
    "lib/plocate/**",
    "lib/command-not-found/**",
    "lib/update-notifier/**",
    "lib/man-db/**",
    "mail",
    "local/**",
];
