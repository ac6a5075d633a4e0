//! The policy as an OCI seccomp profile (`linux.seccomp` of the runtime specification).
//!
//! Such a profile has no order: every entry that matches applies. So "everything but these values" is spelled
//! out as the comparisons that cover the rest, and no two entries for one call may overlap; a test enforces
//! this. The reasons become comments.
//!
//! The profile's default applies to calls that it does not name, so calls under the policy's default are
//! spelled out too: a runtime whose library is older than a call drops the name, and the program should fall
//! back.

use super::policy::{Action, Condition, Policy, Rule, Test};
use super::table::Syscall;
use super::{Arch, Surface};
use serde_json::{Value, json};
use std::collections::BTreeMap;

pub(super) fn profile(policy: &Policy, arch: Arch, surface: Surface) -> Value {
    let mut syscalls: Vec<Value> = policy
        .rules(surface)
        .flat_map(|rule| entries(policy, arch, rule))
        .collect();
    syscalls.extend(remaining(policy, arch, surface));
    json!({
        "defaultAction": "SCMP_ACT_ERRNO",
        "defaultErrnoRet": policy.unknown_errno().number(),
        "architectures": [arch.oci()],
        "syscalls": syscalls,
    })
}

/// For each argument, the compared bits and their required values.
type Arguments = [(u64, u64); 6];
const ANY: Arguments = [(0, 0); 6];

/// Returns one entry for each combination of values: the comparisons within an entry must all hold.
fn entries(policy: &Policy, arch: Arch, rule: &Rule) -> Vec<Value> {
    let here = |name: &&String| policy.number(name, arch).is_some();
    let names: Vec<&str> = rule.names.iter().filter(here).map(String::as_str).collect();
    if names.is_empty() {
        return Vec::new();
    }
    let entry = |arguments| entry(&names, &rule.reason, rule.action(), &arguments);
    combinations(&rule.when).into_iter().map(entry).collect()
}

/// Returns entries for the calls and arguments of this architecture that no rule decides.
fn remaining(policy: &Policy, arch: Arch, surface: Surface) -> Vec<Value> {
    let mut calls: BTreeMap<Arguments, Vec<&str>> = BTreeMap::new();
    for call in policy.table().iter().filter(|call| call.number(arch).is_some()) {
        for arguments in undecided(policy, surface, call) {
            calls.entry(arguments).or_default().push(call.name);
        }
    }
    let entry = |(arguments, names): (_, Vec<_>)| {
        entry(
            &names,
            "no rule allows it",
            Action::Refuse(policy.default_errno()),
            &arguments,
        )
    };
    calls.into_iter().map(entry).collect()
}

fn undecided(policy: &Policy, surface: Surface, call: &Syscall) -> Vec<Arguments> {
    policy
        .rules(surface)
        .filter(|rule| rule.names.iter().any(|name| name == call.name))
        .flat_map(|rule| combinations(&rule.when))
        .fold(vec![ANY], |left, taken| without(&left, &taken))
}

fn entry(names: &[&str], reason: &str, action: Action, arguments: &Arguments) -> Value {
    let mut entry = json!({ "names": names, "comment": reason });
    match action {
        Action::Allow => entry["action"] = json!("SCMP_ACT_ALLOW"),
        Action::Announce => entry["action"] = json!("SCMP_ACT_NOTIFY"),
        Action::Refuse(errno) => {
            entry["action"] = json!("SCMP_ACT_ERRNO");
            entry["errnoRet"] = json!(errno.number());
        }
    }
    let compared = arguments.iter().enumerate().filter(|(_, (mask, _))| *mask != 0);
    let comparisons: Vec<Value> = compared
        .map(|(index, (mask, value))| {
            json!({ "index": index, "value": mask, "valueTwo": value, "op": "SCMP_CMP_MASKED_EQ" })
        })
        .collect();
    if !comparisons.is_empty() {
        entry["args"] = Value::Array(comparisons);
    }
    entry
}

/// Returns the disjoint argument sets that meet all conditions.
fn combinations(conditions: &[Condition]) -> Vec<Arguments> {
    conditions.iter().fold(vec![ANY], |chosen, condition| {
        let alternatives = alternatives(condition);
        let extend = |arguments: Arguments| {
            alternatives.iter().map(move |&comparison| {
                let mut longer = arguments;
                longer[usize::from(condition.arg)] = comparison;
                longer
            })
        };
        chosen.into_iter().flat_map(extend).collect()
    })
}

/// Returns comparisons of which exactly one holds if the condition does.
fn alternatives(condition: &Condition) -> Vec<(u64, u64)> {
    let equal = condition
        .test
        .values()
        .iter()
        .map(|&value| (condition.mask, value));
    match &condition.test {
        Test::Equals(_) => equal.collect(),
        Test::Differs(_) => {
            let alone = |comparison| [comparison, (0, 0), (0, 0), (0, 0), (0, 0), (0, 0)];
            let others = equal.fold(vec![ANY], |left, taken| without(&left, &alone(taken)));
            others.into_iter().map(|arguments| arguments[0]).collect()
        }
    }
}

/// Returns `all` minus `taken`, as disjoint sets.
fn without(all: &[Arguments], taken: &Arguments) -> Vec<Arguments> {
    all.iter().flat_map(|arguments| split(arguments, taken)).collect()
}

/// Returns, for each bit that `taken` compares and `arguments` leaves open, the set that agrees with `taken`
/// so far and differs there.
fn split(arguments: &Arguments, taken: &Arguments) -> Vec<Arguments> {
    let apart =
        |((mask, value), (other, wanted)): (&(u64, u64), &(u64, u64))| (value ^ wanted) & mask & other != 0;
    if arguments.iter().zip(taken).any(apart) {
        return vec![*arguments];
    }
    let (mut shared, mut found) = (*arguments, Vec::new());
    for (index, (mask, wanted)) in taken.iter().enumerate() {
        let open = mask & !arguments[index].0;
        for bit in (0..u64::BITS)
            .rev()
            .map(|bit| 1 << bit)
            .filter(|bit| open & bit != 0)
        {
            let (fixed, value) = shared[index];
            let mut parting = shared;
            parting[index] = (fixed | bit, value | (!wanted & bit));
            found.push(parting);
            shared[index] = (fixed | bit, value | (wanted & bit));
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::{ANY, without};

    #[test]
    fn what_is_left_covers_everything_else_once() {
        for values in [
            vec![0u64],
            vec![5],
            vec![0, 1, 14],
            vec![2, 10],
            (0..16).map(|n| n * 2 % 16).collect(),
        ] {
            let mut left = vec![ANY];
            for value in &values {
                let mut taken = ANY;
                taken[3] = (0x2f, *value);
                taken[1] = (0x3, 1);
                left = without(&left, &taken);
            }
            for (number, other) in (0..256u64).flat_map(|number| [0, 1, 2, 5].map(|other| (number, other))) {
                let arguments = [0, other, 0, number, 0, 0];
                let holds = |(value, (mask, wanted)): (&u64, &(u64, u64))| value & mask == *wanted;
                let matching = left
                    .iter()
                    .filter(|left| arguments.iter().zip(*left).all(holds))
                    .count();
                let excluded = other & 3 == 1 && values.contains(&(number & 0x2f));
                assert_eq!(matching, usize::from(!excluded), "{number} without {values:?}");
            }
        }
    }
}
