//! Functional tests in a virtual machine: Debian's kernel, cgroups v2, no network, no KVM.
//!
//! The machine's root is in memory: it boots `init.sh`, which runs `checks.py`. Their output goes to a
//! report.

use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};

use crate::process::{cargo, program};
use crate::report;
use crate::setup::{self, Package};

const PACKAGES: &[Package] = &[
    ("qemu-system-x86", "qemu-system-x86_64", &["--version"]),
    ("debootstrap", "debootstrap", &["--version"]),
    ("cpio", "cpio", &["--version"]),
];

/// Packages beside Debian's essential ones.
const INCLUDED: &str = "--include=python3-minimal,libpython3-stdlib,util-linux,procps";

const RELEASE: &str = "bookworm";

/// Directories removed from the machine's root.
const UNUSED: &[&str] = &[
    "usr/share/doc",
    "usr/share/locale",
    "usr/share/man",
    "var/cache/apt",
    "var/lib/apt/lists",
];

const PLACE: &str = "target/vm";
const REPORT: &str = "docs/reports/vm.txt";

/// Prefixes of the report's first and last line.
const FIRST: &str = "kernel ";
const LAST: &str = "vm: ";

/// Timeout of the whole run, in seconds: without KVM everything takes some twenty times as long.
const PATIENCE: &str = "3600";

/// Builds the machine, boots it and writes the report.
pub(crate) fn run(root: &Path) -> Result<()> {
    setup::packages(root, PACKAGES)?;
    let place = root.join(PLACE);
    fs::create_dir_all(&place)?;
    let kernel = kernel(&place).context("fetch Debian's kernel")?;
    base(&place).context("make the root of the machine")?;
    programs(root, &place).context("build what is tested")?;
    archive(&place).context("pack the root of the machine")?;
    report::line("booting; this takes some minutes");
    let said = boot(&place, &kernel)?;
    let lines = results(&said).context("the machine did not come to an end; see target/vm/serial.log")?;
    let path = root.join(REPORT);
    fs::create_dir_all(path.parent().unwrap_or(root))?;
    fs::write(&path, format!("{}{lines}", heading(root)?)).with_context(|| format!("write {REPORT}"))?;
    report::line(&format!("{REPORT}: written"));
    let failed: Vec<&str> = lines.lines().filter(|line| line.starts_with("FAIL")).collect();
    if !failed.is_empty() {
        bail!("{} failed:\n{}", failed.len(), failed.join("\n"));
    }
    Ok(())
}

/// Downloads the kernel of this machine's Debian. It is unpacked and not installed.
fn kernel(place: &Path) -> Result<PathBuf> {
    let boot = place.join("kernel/boot");
    if let Some(found) = named(&boot, "vmlinuz-") {
        return Ok(found);
    }
    let described = program(place, "apt-cache", &["depends", "linux-image-amd64"]).stdout()?;
    let depends = described
        .lines()
        .find_map(|line| line.trim().strip_prefix("Depends: "));
    let package = depends.context("linux-image-amd64 depends on no kernel")?;
    program(place, "apt-get", &["download", "--quiet", package]).run()?;
    let archive = named(place, package).context("apt-get left no package")?;
    program(place, "dpkg", &["-x", &archive.to_string_lossy(), "kernel"]).run()?;
    named(&boot, "vmlinuz-").context("the package holds no kernel")
}

/// Returns a directory's entry by its prefix.
fn named(directory: &Path, beginning: &str) -> Option<PathBuf> {
    let paths = fs::read_dir(directory).ok()?.flatten().map(|entry| entry.path());
    let begins = |name: &OsStr| name.to_string_lossy().starts_with(beginning);
    paths.filter(|path| path.file_name().is_some_and(begins)).max()
}

/// Creates a Debian root with Python, once.
fn base(place: &Path) -> Result<()> {
    let done = place.join("root/vm");
    if done.exists() {
        return Ok(());
    }
    report::line("debootstrap: making a root");
    let _ = fs::remove_dir_all(place.join("root"));
    program(
        place,
        "debootstrap",
        &["--variant=minbase", INCLUDED, RELEASE, "root"],
    )
    .run()?;
    for unused in UNUSED {
        let _ = fs::remove_dir_all(place.join("root").join(unused));
    }
    fs::create_dir(done)?;
    Ok(())
}

/// Installs the binary and the cgroup tests into the machine. Nothing is measured there, and an unoptimized
/// build is faster.
fn programs(root: &Path, place: &Path) -> Result<()> {
    cargo(
        root,
        &[
            "build",
            "--quiet",
            "--locked",
            "--workspace",
            "--bin",
            "ringfence",
        ],
    )
    .run()?;
    let inside = place.join("root/vm");
    fs::copy(root.join("target/debug/ringfence"), inside.join("ringfence"))?;
    fs::copy(cgroup_tests(root)?, inside.join("cgroup-tests"))?;
    fs::copy(root.join("xtask/vm/checks.py"), inside.join("checks.py"))?;
    fs::copy(root.join("xtask/vm/init.sh"), place.join("root/init"))?;
    Ok(())
}

/// Builds the tests of control groups.
fn cgroup_tests(root: &Path) -> Result<PathBuf> {
    let build = [
        "test",
        "--quiet",
        "--locked",
        "--workspace",
        "--test",
        "cgroup",
        "--no-run",
    ];
    let told = cargo(root, &[&build[..], &["--message-format=json"]].concat()).stdout()?;
    let messages = told
        .lines()
        .filter_map(|line| serde_json::from_str::<serde_json::Value>(line).ok());
    let mut tests = messages.filter(|message| message["target"]["name"] == "cgroup");
    let executable = tests.find_map(|message| message["executable"].as_str().map(PathBuf::from));
    executable.context("cargo told of no executable")
}

/// Packs the root in the kernel's initramfs format.
fn archive(place: &Path) -> Result<()> {
    // The names come from a pipe, which is all that the shell is for.
    let pack = "find . | cpio --create --format=newc --quiet --file=../root.cpio";
    program(&place.join("root"), "sh", &["-c", pack]).run()
}

fn boot(place: &Path, kernel: &Path) -> Result<String> {
    let kernel = kernel.to_string_lossy();
    let machine = "-machine q35,accel=tcg -cpu max -smp 2 -m 3G -display none -monitor none -no-reboot -nic none \
                   -serial file:serial.log -initrd root.cpio";
    let mut arguments = vec![PATIENCE, "qemu-system-x86_64"];
    arguments.extend(machine.split_whitespace());
    let line = "console=ttyS0 panic=-1 rdinit=/init loglevel=1";
    arguments.extend(["-kernel", &kernel, "-append", line]);
    program(place, "timeout", &arguments).run()?;
    let said = fs::read(place.join("serial.log")).context("read serial.log")?;
    Ok(String::from_utf8_lossy(&said).replace('\r', ""))
}

/// Returns the tests' output, if its last line is complete.
fn results(said: &str) -> Option<String> {
    let begin = said.find(FIRST)?;
    let end = said.rfind(LAST)?;
    let end = end + said[end..].find('\n')? + 1;
    said.get(begin..end).map(str::to_owned)
}

fn heading(root: &Path) -> Result<String> {
    let commit = program(root, "git", &["rev-parse", "--short", "HEAD"]).stdout()?;
    let qemu = program(root, "qemu-system-x86_64", &["--version"]).stdout()?;
    let qemu = qemu.lines().next().unwrap_or_default();
    Ok(format!(
        "`cargo xtask vm` on commit {}, {qemu}, without KVM, without a network.\n\n",
        commit.trim()
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn results_are_cut_out_of_what_the_machine_says() {
        let check = |said: &str, expected: Option<&str>| assert_eq!(results(said).as_deref(), expected);
        check(
            "SeaBIOS\nkernel 6.1 x\npass  a\nvm: 0 failed\nPower down\n",
            Some("kernel 6.1 x\npass  a\nvm: 0 failed\n"),
        );
        check("SeaBIOS\nkernel 6.1\npass  a\n", None);
        check("panic\n", None);
    }
}
