//! Hints about hosts that the egress policy refused.

use core::net::IpAddr;

use crate::{Cidr, EgressAttempt, EgressFacts};

use super::Hint;

/// Maximum number of refused hosts with a hint of their own.
const MAX_HINTS: usize = 3;

/// Returns a hint for each of the first refused hosts.
pub(super) fn hints(facts: &EgressFacts) -> Vec<Hint> {
    let mut refused: Vec<Refused<'_>> = Vec::new();
    for attempt in &facts.attempts {
        let Some(found) = Refused::by(attempt) else {
            continue;
        };
        if !refused.contains(&found) {
            refused.push(found);
        }
    }
    refused.into_iter().take(MAX_HINTS).map(Refused::hint).collect()
}

/// Returns the setting that opens the address of a refused host; `None` if it was refused for another reason.
pub fn closed_address(attempt: &EgressAttempt) -> Option<String> {
    let refused = Refused::by(attempt).filter(|refused| !is_unlisted(refused.reason))?;
    Some(open(refused.host_and_port().0))
}

/// A host and port that was refused, and why.
#[derive(PartialEq)]
struct Refused<'a> {
    target: &'a str,
    reason: &'a str,
}

impl<'a> Refused<'a> {
    fn by(attempt: &'a EgressAttempt) -> Option<Self> {
        let reason = attempt.reason.as_deref()?;
        (attempt.verdict == "refused").then_some(Self {
            target: &attempt.target,
            reason,
        })
    }

    fn host_and_port(&self) -> (&'a str, &'a str) {
        self.target.rsplit_once(':').unwrap_or((self.target, ""))
    }

    fn hint(self) -> Hint {
        let Self { target, reason } = self;
        let (host, port) = self.host_and_port();
        // The target is named already.
        let cause = match reason.strip_suffix(host) {
            Some(rest) if !rest.contains(host) => format!("{rest}it"),
            _ => reason.to_owned(),
        };
        let remedy = match is_unlisted(reason) {
            true => {
                let pattern = if matches!(port, "80" | "443") {
                    host
                } else {
                    target
                };
                format!("allow it with `--allow-host {pattern}` or `egress.allowed_hosts`")
            }
            false => open(host),
        };
        Hint {
            person: format!("refused: {target} ({cause}); {remedy}"),
            model: Some(format!(
                "refused: {target} ({cause}); only the allowed hosts can be reached"
            )),
        }
    }
}

/// Returns `true` if a pattern would allow the target.
fn is_unlisted(reason: &str) -> bool {
    ["no pattern of the allowed hosts", "no host is allowed"]
        .iter()
        .any(|begin| reason.starts_with(begin))
        || reason.contains(", but not at port ")
}

/// Returns the setting that opens an address that is not public.
fn open(host: &str) -> String {
    let address: Option<IpAddr> = host.trim_matches(['[', ']']).parse().ok();
    let range = match address {
        Some(address) => format!("`{}`", Cidr::single(address)),
        // A guest chose the name: nothing else may stand in a command line that a person copies.
        None if host
            .bytes()
            .all(|byte| byte.is_ascii_alphanumeric() || b"-.".contains(&byte)) =>
        {
            format!("the range of its address, which `getent hosts {host}` prints,")
        }
        None => "its range".to_owned(),
    };
    format!(
        "add {range} to `egress.private_networks` in your own configuration, $XDG_CONFIG_HOME/ringfence/ringfence.toml (by default in ~/.config)"
    )
}

#[cfg(test)]
mod tests {
    use crate::{EgressPolicy, Host, HostPattern};

    use super::*;

    fn refused(allowed: &[&str], host: &str, port: u16) -> EgressAttempt {
        let allowed: Vec<HostPattern> = allowed.iter().map(|text| text.parse().unwrap()).collect();
        let policy = EgressPolicy {
            allowed,
            private_networks: Vec::new(),
        };
        let name: Host = host.parse().unwrap();
        let address = "127.0.0.1".parse().unwrap();
        let refusal = match policy.check_host(&name, port) {
            Err(refusal) => refusal,
            Ok(_) => policy.check_address(&name, address).unwrap_err(),
        };
        EgressAttempt {
            target: format!("{name}:{port}"),
            verdict: "refused".to_owned(),
            reason: Some(refusal.to_string()),
        }
    }

    #[track_caller]
    fn check(allowed: &[&str], host: &str, port: u16, expected: &str) {
        let attempt = refused(allowed, host, port);
        let facts = EgressFacts {
            bytes: 0,
            attempts: vec![attempt.clone(), attempt],
            left_off: 0,
        };
        let found: Vec<String> = hints(&facts).into_iter().map(|hint| hint.person).collect();
        assert_eq!(found, [expected]);
    }

    #[test]
    fn each_reason_has_its_remedy() {
        check(
            &["a.test"],
            "example.invalid",
            443,
            "refused: example.invalid:443 (no pattern of the allowed hosts names it); allow it with `--allow-host example.invalid` or \
             `egress.allowed_hosts`",
        );
        check(
            &[],
            "a.test",
            8443,
            "refused: a.test:8443 (no host is allowed, so a.test is not); allow it with `--allow-host a.test:8443` or \
             `egress.allowed_hosts`",
        );
        check(
            &["a.test"],
            "a.test",
            8080,
            "refused: a.test:8080 (`a.test` allows a.test, but not at port 8080); allow it with `--allow-host a.test:8080` or \
             `egress.allowed_hosts`",
        );
        check(
            &["127.0.0.1:8123"],
            "127.0.0.1",
            8123,
            "refused: 127.0.0.1:8123 (127.0.0.1 has a loopback address, which is not allowed (RFC 1122)); add `127.0.0.1/32` to `egress.private_networks` \
             in your own configuration, $XDG_CONFIG_HOME/ringfence/ringfence.toml (by default in ~/.config)",
        );
    }

    #[test]
    fn a_name_has_a_command_for_its_address_unless_it_could_be_another_command() {
        assert!(open("pypi.org").contains("`getent hosts pypi.org` prints"));
        assert!(open("a;b").contains("add its range to"));
    }

    #[test]
    fn other_verdicts_have_none() {
        let attempt = EgressAttempt {
            target: "a.test:443".to_owned(),
            verdict: "closed".to_owned(),
            reason: Some("no pattern of the allowed hosts names b.test".to_owned()),
        };
        let facts = EgressFacts {
            bytes: 0,
            attempts: vec![attempt],
            left_off: 0,
        };
        assert_eq!(hints(&facts), []);
    }
}
