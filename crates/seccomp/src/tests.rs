//! Tests the compiled filter, run by a small interpreter, against a naive reading of the policy.

mod denials;
mod document;
mod profiles;

use super::policy::{Action, Policy};
use super::*;
use serde_json::Value;
use std::collections::BTreeSet;

const KILL: u32 = 0x8000_0000;
const ALLOW: u32 = 0x7fff_0000;
const ANNOUNCED: u32 = 0x7fc0_0000;
const fn refused(errno: i32) -> u32 {
    0x0005_0000 | errno as u32
}

const ARCHES: [Arch; 2] = [Arch::X86_64, Arch::Aarch64];

fn surfaces() -> impl Iterator<Item = Surface> {
    let sockets = [
        Sockets::PairsOnly,
        Sockets::Unix,
        Sockets::PairsAndTcp,
        Sockets::UnixAndTcp,
        Sockets::UnixAndInternet,
    ];
    let others = [
        (Ipc::Own, Forks::Never, Exits::Silent, Users::One),
        (Ipc::Own, Forks::Never, Exits::Announced, Users::One),
        (Ipc::Own, Forks::IntoCells, Exits::Silent, Users::One),
        (Ipc::Own, Forks::Adopted, Exits::Silent, Users::One),
        (Ipc::Own, Forks::Adopted, Exits::Silent, Users::Several),
        (Ipc::Shared, Forks::Never, Exits::Silent, Users::One),
        (Ipc::Shared, Forks::IntoCells, Exits::Silent, Users::One),
    ];
    sockets.into_iter().flat_map(move |sockets| {
        others.into_iter().map(move |(ipc, forks, exits, users)| Surface {
            sockets,
            ipc,
            forks,
            exits,
            users,
        })
    })
}

const TIGHT: Surface = Surface {
    sockets: Sockets::PairsOnly,
    ipc: Ipc::Own,
    forks: Forks::Never,
    exits: Exits::Silent,
    users: Users::One,
};

struct Filter(Vec<libc::sock_filter>, Arch);

impl Filter {
    fn new(arch: Arch, surface: Surface) -> Self {
        Self::of(shipped().unwrap(), arch, surface)
    }

    fn of(policy: &Policy, arch: Arch, surface: Surface) -> Self {
        Self(bpf::compile(&policy.decisions(arch, surface)).unwrap(), arch)
    }

    fn call(&self, name: &str, args: &[u64]) -> u32 {
        let number = shipped()
            .unwrap()
            .number(name, self.1)
            .unwrap_or_else(|| panic!("{name} on {:?}", self.1));
        self.number(number, args)
    }

    fn number(&self, number: u32, args: &[u64]) -> u32 {
        run(&self.0, number, self.1.audit(), args)
    }
}

/// Interprets the instructions that the compiler uses, like the kernel.
fn run(program: &[libc::sock_filter], number: u32, arch: u32, args: &[u64]) -> u32 {
    let mut data = vec![number, arch, 0, 0];
    for index in 0..6 {
        let value = args.get(index).copied().unwrap_or(0);
        data.extend([value as u32, (value >> 32) as u32]);
    }
    let (mut accumulator, mut at) = (0u32, 0usize);
    loop {
        let step = program[at];
        at += 1;
        let mut branch = |holds: bool| at += usize::from(if holds { step.jt } else { step.jf });
        match step.code {
            0x20 => accumulator = data[step.k as usize / 4],
            0x54 => accumulator &= step.k,
            0x05 => at += step.k as usize,
            0x15 => branch(accumulator == step.k),
            0x35 => branch(accumulator >= step.k),
            0x06 => return step.k,
            code => panic!("instruction {code:#x}"),
        }
    }
}

fn policy_file() -> Value {
    serde_json::from_str(include_str!("../profiles/fence.json")).unwrap()
}

fn strict_file() -> Value {
    serde_json::from_str(include_str!("../profiles/strict.json")).unwrap()
}

/// Returns all policies, both as parsed by the code under test and as raw JSON.
fn policies() -> impl Iterator<Item = (&'static Policy, Value, Surface)> {
    let (strict, surface) = Profile::Strict.policy().unwrap();
    surfaces()
        .map(|surface| (shipped().unwrap(), policy_file(), surface))
        .chain([(strict, strict_file(), surface)])
}

fn bits(value: &Value) -> u64 {
    let text = || u64::from_str_radix(value.as_str().unwrap().trim_start_matches("0x"), 16).unwrap();
    value.as_u64().unwrap_or_else(text)
}

fn errno(name: &Value) -> u32 {
    refused(match name.as_str().unwrap() {
        "ZERO" => 0,
        "EPERM" => libc::EPERM,
        "EACCES" => libc::EACCES,
        "EMFILE" => libc::EMFILE,
        "ENOSYS" => libc::ENOSYS,
        "ENOMEM" => libc::ENOMEM,
        "EOPNOTSUPP" => libc::EOPNOTSUPP,
        "EAFNOSUPPORT" => libc::EAFNOSUPPORT,
        other => panic!("{other}"),
    })
}

/// The JSON's decision on a call, read with none of the code under test: the first matching rule, from the
/// top.
struct Naive {
    rules: Vec<(Vec<Condition>, u32)>,
    otherwise: u32,
}

struct Condition {
    arg: usize,
    mask: u64,
    values: Vec<u64>,
    equals: bool,
}

impl Naive {
    fn read(file: &Value, surface: Surface, name: &str) -> Self {
        let has = |list: &Value, item: &str| {
            list.as_array()
                .is_none_or(|list| list.iter().any(|entry| entry == item))
        };
        let [sockets, ipc, forks, exits, users] = words(surface);
        let rules = file["rules"].as_array().unwrap().iter().filter(|rule| {
            has(&rule["names"], name)
                && has(&rule["sockets"], sockets)
                && has(&rule["ipc"], ipc)
                && has(&rule["forks"], forks)
                && has(&rule["exits"], exits)
                && has(&rule["users"], users)
        });
        let conditions = |rule: &Value| {
            let conditions = rule.get("when").and_then(Value::as_array).into_iter().flatten();
            conditions.map(Condition::read).collect()
        };
        let answer = |rule: &Value| match (rule.get("announce"), rule.get("errno")) {
            (Some(_), _) => ANNOUNCED,
            (None, found) => found.map_or(ALLOW, errno),
        };
        Self {
            rules: rules.map(|rule| (conditions(rule), answer(rule))).collect(),
            otherwise: errno(&file["default"]),
        }
    }

    fn decide(&self, args: &[u64]) -> u32 {
        let mut rules = self.rules.iter();
        let found = rules.find(|(conditions, _)| conditions.iter().all(|condition| condition.holds(args)));
        found.map_or(self.otherwise, |&(_, answer)| answer)
    }
}

impl Condition {
    fn read(condition: &Value) -> Self {
        let equals = condition.get("equals");
        let values = equals.unwrap_or(&condition["differs"]).as_object().unwrap();
        Self {
            arg: bits(&condition["arg"]) as usize,
            mask: bits(&condition["mask"]),
            values: values.values().map(bits).collect(),
            equals: equals.is_some(),
        }
    }

    fn holds(&self, args: &[u64]) -> bool {
        let argument = args.get(self.arg).copied().unwrap_or(0) & self.mask;
        self.values.contains(&argument) == self.equals
    }
}

/// Returns the JSON names of a surface's parts.
fn words(surface: Surface) -> [&'static str; 5] {
    let sockets = match surface.sockets {
        Sockets::PairsOnly => "pairs-only",
        Sockets::Unix => "unix",
        Sockets::PairsAndTcp => "pairs-and-tcp",
        Sockets::UnixAndTcp => "unix-and-tcp",
        Sockets::UnixAndInternet => "unix-and-internet",
    };
    let ipc = match surface.ipc {
        Ipc::Own => "own",
        Ipc::Shared => "shared",
    };
    let forks = match surface.forks {
        Forks::Never => "never",
        Forks::IntoCells => "into-cells",
        Forks::Adopted => "adopted",
    };
    let exits = match surface.exits {
        Exits::Silent => "silent",
        Exits::Announced => "announced",
    };
    let users = match surface.users {
        Users::One => "one",
        Users::Several => "several",
    };
    [sockets, ipc, forks, exits, users]
}

/// Returns every value named by a rule, its neighbours, and the same with garbage in the upper half.
fn interesting(file: &Value) -> Vec<u64> {
    let mut values = BTreeSet::from([0, 1, u64::MAX, 1 << 32]);
    for rule in file["rules"].as_array().unwrap() {
        for condition in rule.get("when").and_then(Value::as_array).into_iter().flatten() {
            let tests = condition.get("equals").or(condition.get("differs")).unwrap();
            values.insert(bits(&condition["mask"]));
            values.extend(tests.as_object().unwrap().values().map(bits));
        }
    }
    let around = |value: u64| {
        [
            value,
            value.wrapping_sub(1),
            value.wrapping_add(1),
            value | 0xdead_beef_0000_0000,
        ]
    };
    values.into_iter().flat_map(around).collect()
}

/// Returns arguments that exercise a call's conditions: each interesting value alone in each position, socket
/// triples, and flags of open with modes.
fn arguments(file: &Value, name: &str) -> Vec<Vec<u64>> {
    let conditional = |rule: &&Value| {
        rule.get("when").is_some() && rule["names"].as_array().unwrap().iter().any(|n| n == name)
    };
    if !file["rules"]
        .as_array()
        .unwrap()
        .iter()
        .any(|rule| conditional(&rule))
    {
        return vec![vec![], vec![u64::MAX; 6]];
    }
    let mut all = Vec::new();
    for value in interesting(file) {
        for place in 0..4 {
            let mut args = vec![0; 6];
            args[place] = value;
            all.push(args);
        }
    }
    if name.starts_with("open") {
        let flags = [
            0,
            libc::O_RDWR,
            libc::O_CREAT,
            libc::O_TMPFILE,
            libc::O_DIRECTORY,
            -1,
        ];
        for flags in flags.map(|flags| u64::from(flags as u32)) {
            for mode in [0, 0o1777, 0o2000, 0o4000, 0o6000, 0o7777, 1 << 16] {
                all.extend([vec![0, flags, mode, 0], vec![0, 0, flags, mode]]);
            }
        }
    }
    if name.starts_with("socket") {
        for family in 0..50 {
            for kind in (0..16).map(|kind| kind | 0x80800) {
                all.extend(
                    [0, 1, 6, 17, 132, 255, 262, 1 << 32].map(|protocol| vec![family, kind, protocol]),
                );
            }
        }
    }
    all
}

#[test]
fn the_filter_decides_as_the_policy_reads() {
    for (policy, file, surface) in policies() {
        for arch in ARCHES {
            let filter = Filter::of(policy, arch, surface);
            for number in 0..600 {
                let mut table = policy.table().iter();
                let Some(call) = table.find(|call| call.number(arch) == Some(number)) else {
                    let found = filter.number(number, &[]);
                    assert_eq!(found, refused(libc::ENOSYS), "{number} on {arch:?}");
                    continue;
                };
                let naive = Naive::read(&file, surface, call.name);
                for args in arguments(&file, call.name) {
                    let found = filter.number(number, &args);
                    assert_eq!(
                        found,
                        naive.decide(&args),
                        "{} {args:x?} {arch:?} {surface:?}",
                        call.name
                    );
                }
            }
        }
    }
}

/// Catches calls that the next table adds without anybody's decision.
#[test]
fn every_call_has_a_reason() {
    let policy = shipped().unwrap();
    for surface in surfaces() {
        let named: BTreeSet<_> = policy
            .rules(surface)
            .flat_map(|rule| &rule.names)
            .map(String::as_str)
            .collect();
        let missing: Vec<_> = policy
            .table()
            .iter()
            .map(|call| call.name)
            .filter(|name| !named.contains(name))
            .collect();
        assert_eq!(missing, [""; 0], "{surface:?}");
        assert!(policy.rules(surface).all(|rule| rule.reason.len() > 8));
    }
}

/// The kernel reads 32 bits of an `int`; comparing more would let a caller bypass the rule with garbage
/// above.
#[test]
fn no_condition_reads_the_upper_half() {
    for (policy, _, surface) in policies() {
        let conditions = policy.rules(surface).flat_map(|rule| &rule.when);
        assert!(conditions.into_iter().all(|condition| condition.mask >> 32 == 0));
    }
}

/// With many cases the tree's jumps exceed 255, so bridges are needed; the decisions must not change.
#[test]
fn far_jumps_are_bridged() {
    let wide = |mask: &str| {
        let values: Vec<String> = (0..200).map(|n| format!("\"{n}\": {n}")).collect();
        format!(
            r#"{{"arg": 0, "mask": "{mask}", "equals": {{{}}}}}"#,
            values.join(",")
        )
    };
    let rule =
        |name: &str, when: &str| format!(r#"{{"names": ["{name}"], "reason": "r", "when": [{when}]}}"#);
    let rules = [
        rule("read", &wide("0xff")),
        rule("write", &wide("0xffffffffff")),
        rule("close", &wide("0xffff")),
        rule(
            "stat",
            r#"{"arg": 1, "mask": "0xffffffffffffffff", "differs": {"a": "0x100000002"}}"#,
        ),
    ];
    let json = format!(
        r#"{{"default": "EPERM", "unknown": "ENOSYS", "rules": [{}]}}"#,
        rules.join(",")
    );
    let policy = Policy::parse(&json, table::shipped().unwrap()).unwrap();
    let filter = Filter(
        bpf::compile(&policy.decisions(Arch::X86_64, TIGHT)).unwrap(),
        Arch::X86_64,
    );
    assert!(filter.0.iter().any(|step| step.code == 0x05), "there is a bridge");
    for value in (0..300).chain([1 << 16, 1 << 32, 1 << 39, 1 << 40]) {
        let expected = |mask: u64| {
            if value & mask < 200 {
                ALLOW
            } else {
                refused(libc::EPERM)
            }
        };
        assert_eq!(filter.call("read", &[value]), expected(0xff), "{value}");
        assert_eq!(
            filter.call("write", &[value]),
            expected(0xff_ffff_ffff),
            "{value}"
        );
        assert_eq!(filter.call("close", &[value]), expected(0xffff), "{value}");
        assert_eq!(filter.call("open", &[value]), refused(libc::EPERM), "{value}");
    }
    for (value, expected) in [
        (0x1_0000_0002, refused(libc::EPERM)),
        (2, ALLOW),
        (1 << 32, ALLOW),
        (0x2_0000_0002, ALLOW),
    ] {
        assert_eq!(filter.call("stat", &[0, value]), expected, "{value:x}");
    }
}

#[test]
fn a_program_that_the_kernel_would_not_take_is_an_error() {
    let values: Vec<String> = (0..5000).map(|n| format!("\"{n}\": {n}")).collect();
    let rule = format!(
        r#"{{"names": ["read"], "reason": "r", "when": [{{"arg": 0, "mask": "0xffff", "equals": {{{}}}}}]}}"#,
        values.join(",")
    );
    let json = format!(r#"{{"default": "EPERM", "unknown": "ENOSYS", "rules": [{rule}]}}"#);
    let policy = Policy::parse(&json, table::shipped().unwrap()).unwrap();
    let result = bpf::compile(&policy.decisions(Arch::X86_64, TIGHT));
    assert!(matches!(result, Err(Error::TooLong { length }) if length > 5000));
}

/// Filters are cached, each in its own slot.
#[test]
fn each_surface_gets_its_filter() {
    let Some(arch) = Arch::native() else { return };
    for surface in surfaces().chain(surfaces()) {
        let code = |program: &[libc::sock_filter]| -> Vec<_> {
            program
                .iter()
                .map(|step| (step.code, step.jt, step.jf, step.k))
                .collect()
        };
        assert_eq!(
            code(fence(surface).unwrap().as_slice()),
            code(&Filter::new(arch, surface).0),
            "{surface:?}"
        );
    }
}

/// Catches growth of the filter: loading costs time in each guest.
#[test]
fn the_fence_stays_short() {
    for (arch, surface) in ARCHES
        .into_iter()
        .flat_map(|arch| surfaces().map(move |surface| (arch, surface)))
    {
        let length = Filter::new(arch, surface).0.len();
        assert!(length < 500, "{length} instructions for {arch:?} {surface:?}");
    }
}

/// Labels of conditions are the kernel's names; libc knows most of their values.
#[test]
fn labels_carry_their_values() {
    let known = [
        ("PR_SET_NAME", libc::PR_SET_NAME as u64),
        ("PR_SET_VMA", libc::PR_SET_VMA as u64),
        ("S_IFIFO", u64::from(libc::S_IFIFO)),
        ("S_IFREG", u64::from(libc::S_IFREG)),
        ("TCGETS", libc::TCGETS),
        ("TIOCGPGRP", libc::TIOCGPGRP),
        ("TIOCGWINSZ", libc::TIOCGWINSZ),
        ("FIONREAD", libc::FIONREAD),
        ("FIONBIO", libc::FIONBIO),
        ("FIOCLEX", libc::FIOCLEX),
        ("FIONCLEX", libc::FIONCLEX),
        ("TIOCSTI", libc::TIOCSTI),
        ("TIOCLINUX", libc::TIOCLINUX),
        ("TIOCSETD", libc::TIOCSETD),
        ("MAP_HUGETLB", libc::MAP_HUGETLB as u64),
        ("SHM_HUGETLB", libc::SHM_HUGETLB as u64),
        ("MFD_EXEC", u64::from(libc::MFD_EXEC)),
        ("AF_UNIX", libc::AF_UNIX as u64),
        ("AF_INET", libc::AF_INET as u64),
        ("AF_INET6", libc::AF_INET6 as u64),
        ("SOCK_STREAM", libc::SOCK_STREAM as u64),
        ("SOCK_SEQPACKET", libc::SOCK_SEQPACKET as u64),
        ("IPPROTO_TCP", libc::IPPROTO_TCP as u64),
        ("SOCK_DGRAM", libc::SOCK_DGRAM as u64),
        ("IPPROTO_UDP", libc::IPPROTO_UDP as u64),
        ("SOL_TCP", libc::SOL_TCP as u64),
        ("TCP_ULP", libc::TCP_ULP as u64),
        ("LAST_EXIT", u64::from(LAST_EXIT)),
    ];
    let files = [policy_file(), strict_file()];
    let mut seen = BTreeSet::new();
    for rule in files.iter().flat_map(|file| file["rules"].as_array().unwrap()) {
        for condition in rule.get("when").and_then(Value::as_array).into_iter().flatten() {
            let labels = condition
                .get("equals")
                .or(condition.get("differs"))
                .unwrap()
                .as_object()
                .unwrap();
            for (label, value) in labels {
                if let Some((_, expected)) = known.iter().find(|(name, _)| name == label) {
                    assert_eq!(bits(value), *expected, "{label}");
                    seen.insert(label.clone());
                }
            }
        }
    }
    assert_eq!(seen.len(), known.len(), "{seen:?}");
}

#[test]
fn an_unconditional_rule_settles_a_call() {
    let rules =
        r#"{"names": ["read"], "reason": "r", "errno": "EACCES"}, {"names": ["read"], "reason": "r"}"#;
    let json = format!(r#"{{"default": "EPERM", "unknown": "ENOSYS", "rules": [{rules}]}}"#);
    let decisions = Policy::parse(&json, table::shipped().unwrap())
        .unwrap()
        .decisions(Arch::X86_64, TIGHT);
    assert_eq!(
        decisions.by_number[0].otherwise,
        Action::Refuse(policy::Errno::Eacces)
    );
    assert_eq!(decisions.by_number[0].cases, []);
}
