//! The policy as an OCI seccomp profile (`linux.seccomp` of the runtime specification).
//!
//! Such a profile has no order: every entry that matches counts. So "everything but these values" is spelled out as
//! the comparisons that cover the rest, and no two entries for one call may overlap; a test holds the policy to that.
//! The reasons travel as comments. Runtimes answer `ENOSYS` to calls newer than the profile by themselves.

use super::policy::{Action, Condition, Policy, Rule, Test};
use super::{Arch, Surface};
use serde_json::{Value, json};

pub(super) fn profile(policy: &Policy, arch: Arch, surface: Surface) -> Value {
    let syscalls: Vec<Value> = policy
        .rules(surface)
        .flat_map(|rule| entries(policy, arch, rule))
        .collect();
    json!({
        "defaultAction": "SCMP_ACT_ERRNO",
        "defaultErrnoRet": policy.default_errno().number(),
        "architectures": [arch.oci()],
        "syscalls": syscalls,
    })
}

/// One entry for each combination of values: the comparisons within an entry must all hold.
fn entries(policy: &Policy, arch: Arch, rule: &Rule) -> Vec<Value> {
    let names: Vec<_> = rule
        .names
        .iter()
        .filter(|name| policy.number(name, arch).is_some())
        .collect();
    if names.is_empty() {
        return Vec::new();
    }
    let mut combinations = vec![Vec::new()];
    for condition in &rule.when {
        let alternatives = comparisons(condition);
        let extend = |comparison: &Value| {
            let with = |mut chosen: Vec<Value>| {
                chosen.push(comparison.clone());
                chosen
            };
            combinations.iter().cloned().map(with).collect::<Vec<_>>()
        };
        combinations = alternatives.iter().flat_map(extend).collect();
    }
    let entry = |comparisons: Vec<Value>| {
        let mut entry = json!({ "names": names, "comment": rule.reason });
        match rule.action() {
            Action::Allow => entry["action"] = json!("SCMP_ACT_ALLOW"),
            Action::Refuse(errno) => {
                entry["action"] = json!("SCMP_ACT_ERRNO");
                entry["errnoRet"] = json!(errno.number());
            }
        }
        if !comparisons.is_empty() {
            entry["args"] = Value::Array(comparisons);
        }
        entry
    };
    combinations.into_iter().map(entry).collect()
}

/// The comparisons of which any one meets the condition.
fn comparisons(condition: &Condition) -> Vec<Value> {
    let masked = |(mask, value): (u64, u64)| json!({ "index": condition.arg, "value": mask, "valueTwo": value, "op": "SCMP_CMP_MASKED_EQ" });
    match &condition.test {
        Test::Equals(values) => values
            .iter()
            .map(|&value| masked((condition.mask, value)))
            .collect(),
        Test::Differs(values) => rest(condition.mask, values).into_iter().map(masked).collect(),
    }
}

/// Masks and values that together cover every number under `mask` but `values`, none twice: for each bit from the top,
/// the numbers that agree with some value so far and part from all of them there.
fn rest(mask: u64, values: &[u64]) -> Vec<(u64, u64)> {
    let mut found = Vec::new();
    let mut shared = vec![(0, 0)];
    for bit in (0..u64::BITS)
        .rev()
        .map(|bit| 1 << bit)
        .filter(|bit| mask & bit != 0)
    {
        let mut longer = Vec::new();
        for (fixed, prefix) in shared {
            let halves = [(fixed | bit, prefix), (fixed | bit, prefix | bit)];
            let (taken, free): (Vec<_>, Vec<_>) = halves
                .into_iter()
                .partition(|(fixed, prefix)| values.iter().any(|value| value & fixed == *prefix));
            longer.extend(taken);
            found.extend(free);
        }
        shared = longer;
    }
    found
}

#[cfg(test)]
mod tests {
    use super::rest;

    #[test]
    fn the_rest_covers_everything_else_once() {
        for values in [
            vec![0u64],
            vec![5],
            vec![0, 1, 14],
            vec![2, 10],
            (0..16).map(|n| n * 2 % 16).collect(),
        ] {
            let found = rest(0x2f, &values);
            for number in 0..256u64 {
                let matching = found
                    .iter()
                    .filter(|(mask, value)| number & mask == *value)
                    .count();
                let excluded = values.contains(&(number & 0x2f));
                assert_eq!(matching, usize::from(!excluded), "{number} without {values:?}");
            }
        }
    }
}
