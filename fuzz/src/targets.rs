//! The targets: whatever parses foreign bytes, with what must hold for every input.

use std::fmt::Display;
use std::str::FromStr;

use ringfence_policy::{Bytes, Cpus, EnvName, ExecutionResult, Mount, Pids, Scope, Timeout};

/// A function that panics on a finding, and inputs to start from.
pub(crate) struct Target {
    pub(crate) name: &'static str,
    pub(crate) run: fn(&[u8]),
    pub(crate) seeds: &'static [&'static [u8]],
}

pub(crate) const TARGETS: &[Target] = &[Target {
    name: "policy_values",
    run: policy_values,
    seeds: &[
        b"10KiB",
        b"256m",
        b"1.5s",
        b"500ms",
        b"2m",
        b"0.5",
        b"64",
        b"/data:/mnt/data:ro",
        b"PATH",
        b"local",
        b"18446744073709551615GiB",
        b"1e308",
        b"{\"stdout\":\"\",\"stderr\":\"\",\"exit_code\":0,\"duration\":0.1,\"meta\":{\"runtime\":\"local\"}}",
    ],
}];

/// What parses must print as something that parses to the same value.
fn policy_values(input: &[u8]) {
    let _ = serde_json::from_slice::<ExecutionResult>(input);
    let Ok(text) = std::str::from_utf8(input) else {
        return;
    };
    stable::<Bytes>(text);
    stable::<Timeout>(text);
    stable::<Cpus>(text);
    stable::<Pids>(text);
    stable::<Mount>(text);
    let _ = text.parse::<EnvName>();
    let _ = text.parse::<Scope>();
}

fn stable<T: FromStr + Display + PartialEq>(text: &str) {
    let Ok(value) = text.parse::<T>() else { return };
    let printed = value.to_string();
    assert!(
        printed.parse::<T>().is_ok_and(|again| again == value),
        "{text:?} prints as {printed:?}"
    );
}
