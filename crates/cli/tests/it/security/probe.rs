//! An act, and its expected denial.

use super::fence::Fence;
use crate::support::Output;

/// An act that the fence must deny.
#[derive(Debug, Clone, Copy)]
pub(super) struct Probe {
    /// The name in messages.
    pub(super) name: &'static str,
    /// Python code that may use `prelude.py`.
    pub(super) act: &'static str,
    /// The error inside: `EPERM`, or `signal 31`.
    pub(super) denied: &'static str,
}

/// Outside errors of a kernel built without the feature, so that only its absence inside can be tested.
const UNABLE: &[&str] = &[
    "errno ENOSYS",
    "errno EAFNOSUPPORT",
    "errno EPROTONOSUPPORT",
    "errno ESOCKTNOSUPPORT",
    "errno EOPNOTSUPP",
    "errno ENODEV",
];

/// Creates a probe.
pub(super) const fn probe(name: &'static str, denied: &'static str, act: &'static str) -> Probe {
    Probe { name, act, denied }
}

/// Returns the whole program of an act.
pub(super) fn program(act: &str) -> String {
    let body: String = act.lines().map(|line| format!("    {line}\n")).collect();
    format!("{}def act():\n{body}\nprobe(act)\n", include_str!("prelude.py"))
}

/// Returns the last line that a probe printed, or the signal that killed it.
pub(super) fn verdict(output: &Output) -> String {
    match (output.status, output.stdout.lines().last()) {
        (0, Some(line)) if line == "ok" || line.starts_with("errno ") => line.to_owned(),
        (status @ 129..=192, _) => format!("signal {}", status - 128),
        _ => format!("neither: {output:?}"),
    }
}

/// Runs every act outside and inside, and reports all deviations.
#[track_caller]
pub(super) fn deny_all(fence: &Fence, probes: &[Probe]) {
    deny_all_with(fence, &[], probes);
}

/// Like [`deny_all`], with options of `ringfence run`.
#[track_caller]
pub(super) fn deny_all_with(fence: &Fence, options: &[&str], probes: &[Probe]) {
    let failures: Vec<String> = probes
        .iter()
        .filter_map(|probe| failure(fence, options, probe, &[]))
        .collect();
    assert!(failures.is_empty(), "\n{}", failures.join("\n"));
}

/// Runs every act outside and in a sandbox, with arguments, and reports all deviations.
#[track_caller]
pub(super) fn deny_all_in_sandbox(fence: &Fence, name: &str, probes: &[Probe], args: &[&str]) {
    let inside = |program: &str| fence.inside_sandbox(name, program, args);
    let failures: Vec<String> = probes
        .iter()
        .filter_map(|probe| deviation(fence, probe, args, inside))
        .collect();
    assert!(failures.is_empty(), "\n{}", failures.join("\n"));
}

/// Runs one act outside and inside, with arguments, and with options of `ringfence run`.
#[track_caller]
pub(super) fn deny(fence: &Fence, options: &[&str], probe: &Probe, args: &[&str]) {
    if let Some(failure) = failure(fence, options, probe, args) {
        panic!("{failure}");
    }
}

fn failure(fence: &Fence, options: &[&str], probe: &Probe, args: &[&str]) -> Option<String> {
    deviation(fence, probe, args, |program| fence.inside(options, program, args))
}

/// Returns what is not as expected of an act outside, and of its program inside.
fn deviation(fence: &Fence, probe: &Probe, args: &[&str], inside: impl Fn(&str) -> Output) -> Option<String> {
    let program = program(probe.act);
    let outside = verdict(&fence.outside(&program, args));
    if UNABLE.contains(&outside.as_str()) {
        eprintln!("skipped: {} outside: this kernel answers {outside}", probe.name);
    } else if fence.is_contained() && ["errno EPERM", "errno EACCES"].contains(&outside.as_str()) {
        eprintln!("skipped: {} outside: the container itself refuses it", probe.name);
    } else if outside != "ok" {
        return Some(format!("{}: outside: {outside}", probe.name));
    }
    let inside = verdict(&inside(&program));
    let expected = match probe.denied {
        signal if signal.starts_with("signal ") => signal.to_owned(),
        errno => format!("errno {errno}"),
    };
    (inside != expected).then(|| format!("{}: inside: {inside} instead of {expected}", probe.name))
}
