//! Tests the OCI profile against the filter.

use super::*;

/// An entry of an OCI profile: index, mask and value of each comparison, and the result.
type Entry = (Vec<(usize, u64, u64)>, u32);

/// Returns the entries that name a call.
fn entries(document: &Value, name: &str) -> Vec<Entry> {
    let named = |entry: &&Value| entry["names"].as_array().unwrap().iter().any(|n| n == name);
    let comparison = |test: &Value| {
        assert_eq!(test["op"], "SCMP_CMP_MASKED_EQ");
        (
            bits(&test["index"]) as usize,
            bits(&test["value"]),
            bits(&test["valueTwo"]),
        )
    };
    let read = |entry: &Value| {
        let tests = entry.get("args").and_then(Value::as_array).into_iter().flatten();
        let answer = match entry["action"].as_str().unwrap() {
            "SCMP_ACT_ALLOW" => ALLOW,
            "SCMP_ACT_NOTIFY" => ANNOUNCED,
            _ => refused(bits(&entry["errnoRet"]) as i32),
        };
        (tests.map(comparison).collect(), answer)
    };
    let all = document["syscalls"].as_array().unwrap().iter();
    all.filter(named).map(read).collect()
}

/// Evaluates the entries: they have no order, so all that match must agree.
fn said(entries: &[Entry], args: &[u64]) -> u32 {
    let met =
        |&(index, mask, value): &(usize, u64, u64)| args.get(index).copied().unwrap_or(0) & mask == value;
    let mut answers = entries
        .iter()
        .filter(|(tests, _)| tests.iter().all(met))
        .map(|(_, answer)| *answer);
    let first = answers.next().unwrap();
    assert!(answers.all(|answer| answer == first), "{args:x?}: {entries:x?}");
    first
}

#[test]
fn the_document_says_what_the_filter_does() {
    for (policy, file, surface) in policies() {
        for arch in ARCHES {
            let filter = Filter::of(policy, arch, surface);
            let document = oci::profile(policy, arch, surface);
            for call in policy.table().iter().filter(|call| call.number(arch).is_some()) {
                let entries = entries(&document, call.name);
                for args in arguments(&file, call.name) {
                    let expected = filter.call(call.name, &args);
                    assert_eq!(said(&entries, &args), expected, "{} {args:x?}", call.name);
                }
            }
            assert_eq!(document["defaultAction"], "SCMP_ACT_ERRNO");
            assert_eq!(document["defaultErrnoRet"], libc::ENOSYS);
            assert_eq!(document["architectures"], serde_json::json!([arch.oci()]));
        }
    }
}
