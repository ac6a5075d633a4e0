//! The policy: ordered rules over system calls and their arguments.

use super::table::{self, Syscall};
use super::{Arch, Error, Exits, Forks, Ipc, Sockets, Surface, Users};
use serde::{Deserialize, Deserializer};
use std::collections::BTreeMap;

/// The rules, with the table that maps their names to numbers.
#[derive(Debug)]
pub(super) struct Policy {
    document: Document,
    table: Vec<Syscall>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Document {
    /// Error of a known call that no rule matches.
    default: Errno,
    /// Error of a number that is not in the table.
    unknown: Errno,
    rules: Vec<Rule>,
}

/// A rule: these calls, on these surfaces, under all of these conditions, are allowed, refused with an error,
/// or announced. The first matching rule decides.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Rule {
    pub(super) names: Vec<String>,
    pub(super) reason: String,
    /// Error of refused calls.
    pub(super) errno: Option<Errno>,
    /// Receiver of announced calls.
    announce: Option<Receiver>,
    sockets: Option<Vec<Sockets>>,
    ipc: Option<Vec<Ipc>>,
    forks: Option<Vec<Forks>>,
    exits: Option<Vec<Exits>>,
    users: Option<Vec<Users>>,
    #[serde(default)]
    pub(super) when: Vec<Condition>,
}

/// A comparison of one argument's bits under a mask. The mask is always explicit: the kernel reads 32 bits of
/// an `int`, and a filter that compares 64 can be bypassed with garbage in the others.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Condition {
    pub(super) arg: u8,
    #[serde(deserialize_with = "bits")]
    pub(super) mask: u64,
    #[serde(flatten)]
    pub(super) test: Test,
}

/// A condition on an argument of a system call. In JSON, each value is labelled with the kernel's name for
/// it.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Test {
    /// Met by any of the values.
    #[serde(deserialize_with = "labelled_bits")]
    Equals(Vec<u64>),
    /// Met by everything except the values.
    #[serde(deserialize_with = "labelled_bits")]
    Differs(Vec<u64>),
}

impl Test {
    pub(super) fn values(&self) -> &[u64] {
        match self {
            Self::Equals(values) | Self::Differs(values) => values,
        }
    }
}

/// The errors of refused calls. With `Zero`, the call is skipped, and returns success.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Deserialize)]
#[serde(rename_all = "UPPERCASE")]
pub(super) enum Errno {
    Zero,
    Eperm,
    Eacces,
    Emfile,
    Enomem,
    Enosys,
    Eopnotsupp,
    Eafnosupport,
}

impl Errno {
    /// Returns the kernel's number, which is the same on the supported architectures.
    pub(super) const fn number(self) -> u16 {
        match self {
            Self::Zero => 0,
            Self::Eperm => 1,
            Self::Enomem => 12,
            Self::Eacces => 13,
            Self::Emfile => 24,
            Self::Enosys => 38,
            Self::Eopnotsupp => 95,
            Self::Eafnosupport => 97,
        }
    }
}

/// The receivers of announced calls.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Receiver {
    /// The holder of the filter's listener.
    Listener,
}

/// The action on a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Action {
    Allow,
    Refuse(Errno),
    /// The call waits until the holder of the filter's listener answers.
    Announce,
}

/// The decision on the calls of one number: the first case whose conditions all hold, else `otherwise`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Decision {
    pub(super) cases: Vec<(Vec<Condition>, Action)>,
    pub(super) otherwise: Action,
}

/// Decisions for one architecture, indexed by call number.
#[derive(Debug)]
pub(super) struct Decisions {
    pub(super) arch: Arch,
    pub(super) by_number: Vec<Decision>,
    pub(super) unknown: Action,
}

impl Rule {
    pub(super) fn action(&self) -> Action {
        match (self.announce, self.errno) {
            (Some(Receiver::Listener), _) => Action::Announce,
            (None, Some(errno)) => Action::Refuse(errno),
            (None, None) => Action::Allow,
        }
    }

    fn applies(&self, surface: Surface) -> bool {
        self.sockets
            .as_ref()
            .is_none_or(|sockets| sockets.contains(&surface.sockets))
            && self.ipc.as_ref().is_none_or(|ipc| ipc.contains(&surface.ipc))
            && self
                .forks
                .as_ref()
                .is_none_or(|forks| forks.contains(&surface.forks))
            && self
                .exits
                .as_ref()
                .is_none_or(|exits| exits.contains(&surface.exits))
            && self
                .users
                .as_ref()
                .is_none_or(|users| users.contains(&surface.users))
    }

    fn check(&self, table: &[Syscall]) -> Result<(), Error> {
        if let Some(name) = self.names.iter().find(|name| table::find(table, name).is_none()) {
            return Err(Error::UnknownSyscall { name: name.clone() });
        }
        let senseless = |condition: &&Condition| {
            let repeated = self
                .when
                .iter()
                .filter(|other| other.arg == condition.arg)
                .count()
                > 1;
            let values = condition.test.values();
            condition.arg > 5
                || repeated
                || values.is_empty()
                || values.iter().any(|value| value & !condition.mask != 0)
        };
        match self.when.iter().find(senseless) {
            Some(condition) => Err(Error::Condition {
                name: self.names.first().cloned().unwrap_or_default(),
                argument: condition.arg,
            }),
            None => Ok(()),
        }
    }
}

impl Policy {
    pub(super) fn parse(json: &str, table: Vec<Syscall>) -> Result<Self, Error> {
        let document: Document = serde_json::from_str(json).map_err(Error::Parse)?;
        document.rules.iter().try_for_each(|rule| rule.check(&table))?;
        Ok(Self { document, table })
    }

    pub(super) fn default_errno(&self) -> Errno {
        self.document.default
    }

    pub(super) fn unknown_errno(&self) -> Errno {
        self.document.unknown
    }

    /// Returns the rules that apply to a surface, in order.
    pub(super) fn rules(&self, surface: Surface) -> impl Iterator<Item = &Rule> {
        self.document
            .rules
            .iter()
            .filter(move |rule| rule.applies(surface))
    }

    pub(super) fn number(&self, name: &str, arch: Arch) -> Option<u32> {
        table::find(&self.table, name)?.number(arch)
    }

    /// Returns the decision for each number. Rules after an unconditional one are dead and omitted.
    pub(super) fn decisions(&self, arch: Arch, surface: Surface) -> Decisions {
        let unknown = Action::Refuse(self.document.unknown);
        let newest = self.table.iter().filter_map(|call| call.number(arch)).max();
        let length = newest.map_or(0, |newest| newest as usize + 1);
        let mut by_number = vec![
            Decision {
                cases: Vec::new(),
                otherwise: unknown
            };
            length
        ];
        for number in self.table.iter().filter_map(|call| call.number(arch)) {
            by_number[number as usize].otherwise = Action::Refuse(self.document.default);
        }
        let mut settled = vec![false; length];
        for rule in self.rules(surface) {
            for number in rule
                .names
                .iter()
                .filter_map(|name| self.number(name, arch))
                .map(|number| number as usize)
            {
                match rule.when.is_empty() {
                    _ if settled[number] => {}
                    false => by_number[number].cases.push((rule.when.clone(), rule.action())),
                    true => {
                        by_number[number].otherwise = rule.action();
                        settled[number] = true;
                    }
                }
            }
        }
        Decisions {
            arch,
            by_number,
            unknown,
        }
    }

    pub(super) fn table(&self) -> &[Syscall] {
        &self.table
    }
}

/// JSON has no hexadecimal numbers, so bits may be written as a string.
#[derive(Deserialize)]
#[serde(untagged)]
enum Bits {
    Number(u64),
    Text(String),
}

impl Bits {
    fn value<E: serde::de::Error>(self) -> Result<u64, E> {
        match self {
            Self::Number(value) => Ok(value),
            Self::Text(text) => text
                .strip_prefix("0x")
                .and_then(|digits| u64::from_str_radix(digits, 16).ok())
                .ok_or_else(|| E::custom(format_args!("`{text}` is not a number such as 0x1f"))),
        }
    }
}

fn bits<'de, D: Deserializer<'de>>(deserializer: D) -> Result<u64, D::Error> {
    Bits::deserialize(deserializer)?.value()
}

fn labelled_bits<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<u64>, D::Error> {
    BTreeMap::<String, Bits>::deserialize(deserializer)?
        .into_values()
        .map(Bits::value)
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn error(rule: &str) -> String {
        let json = format!(r#"{{"default": "EPERM", "unknown": "ENOSYS", "rules": [{rule}]}}"#);
        match Policy::parse(&json, table::shipped().unwrap()) {
            Ok(_) => "none".to_owned(),
            Err(Error::Parse(source)) => source.to_string(),
            Err(error) => error.to_string(),
        }
    }

    #[test]
    fn mistakes_are_refused_and_named() {
        let check =
            |rule: &str, expected: &str| assert!(error(rule).contains(expected), "{}: {rule}", error(rule));
        check(r#"{"names": ["read"], "reason": "r"}"#, "none");
        check(
            r#"{"names": ["raed"], "reason": "r"}"#,
            "unknown system call `raed`",
        );
        check(r#"{"names": ["read"]}"#, "missing field `reason`");
        check(
            r#"{"names": ["read"], "reason": "r", "wen": []}"#,
            "unknown field `wen`",
        );
        check(
            r#"{"names": ["read"], "reason": "r", "errno": "EBADF"}"#,
            "unknown variant `EBADF`",
        );
        let when =
            |condition: &str| format!(r#"{{"names": ["read"], "reason": "r", "when": [{condition}]}}"#);
        check(&when(r#"{"arg": 0, "mask": "0xf", "equals": {"a": 1}}"#), "none");
        check(
            &when(r#"{"arg": 0, "mask": "0xf", "equals": {"a": 16}}"#),
            "argument 0",
        );
        check(
            &when(r#"{"arg": 6, "mask": "0xf", "equals": {"a": 1}}"#),
            "argument 6",
        );
        check(&when(r#"{"arg": 0, "mask": "0xf", "equals": {}}"#), "argument 0");
        check(
            &when(r#"{"arg": 0, "mask": "f", "equals": {"a": 1}}"#),
            "not a number",
        );
        check(&when(r#"{"arg": 0, "equals": {"a": 1}}"#), "missing field `mask`");
        check(&when(r#"{"arg": 0, "mask": 1}"#), "no variant");
        let twice = r#"{"arg": 0, "mask": 1, "equals": {"a": 1}}, {"arg": 0, "mask": 2, "equals": {"b": 2}}"#;
        check(&when(twice), "argument 0");
    }
}
