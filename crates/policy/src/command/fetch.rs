//! `curl`: one question to one public host, so short that hardly anything can be told with it.

use super::effect::{Effect, Found};
use super::options::Scanned;
use crate::shell::Word;

/// The longest address. What an address says, its host learns.
const MAX_ADDRESS: usize = 100;

/// The longest name in it: keys and encoded data are longer.
const MAX_NAME: usize = 30;

/// Ends of names that stand for this machine, this network, or nothing.
const PRIVATE: &[&str] = &[
    "local",
    "localhost",
    "localdomain",
    "internal",
    "intranet",
    "lan",
    "home",
    "corp",
    "private",
    "test",
    "example",
    "invalid",
    "onion",
    "arpa",
    "svc",
    "cluster",
    "consul",
];

pub(super) fn check(args: &[Word], scanned: &Scanned, found: &mut Found) {
    let mut addresses: Vec<Option<String>> = scanned
        .operands
        .iter()
        .map(|index| args[*index].literal())
        .collect();
    for (name, value) in &scanned.values {
        match *name {
            "--url" => addresses.push(value.clone()),
            "-X" | "--request" if !value.as_deref().is_some_and(asks) => {
                found.add(Effect::Write, "curl: another method than GET");
            }
            _ => {}
        }
    }
    if found.feeds {
        return found.add(Effect::Network, "curl: a host decides about arguments");
    }
    let [Some(address)] = addresses.as_slice() else {
        return found.add(Effect::Network, "curl: not one address that is known beforehand");
    };
    match is_plain(address) {
        true => found.add(Effect::Remote, "curl: fetches from a public host"),
        false => found.add(
            Effect::Network,
            "curl: the address is long, or not that of a public host",
        ),
    }
}

fn asks(method: &str) -> bool {
    method.eq_ignore_ascii_case("get") || method.eq_ignore_ascii_case("head")
}

/// A host with a public name, the usual port, and a short path of plain names.
fn is_plain(address: &str) -> bool {
    let rest = address
        .strip_prefix("https://")
        .or_else(|| address.strip_prefix("http://"));
    let Some(rest) = rest.filter(|_| address.len() <= MAX_ADDRESS) else {
        return false;
    };
    let (host, path) = rest.split_once('/').unwrap_or((rest, ""));
    let plain = |name: &str| {
        name.len() <= MAX_NAME
            && name
                .bytes()
                .all(|byte| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte))
    };
    let labels: Vec<&str> = host.split('.').collect();
    let last = labels
        .last()
        .map(|label| label.to_ascii_lowercase())
        .unwrap_or_default();
    labels.len() > 1
        && labels.iter().all(|label| !label.is_empty() && plain(label))
        && last.len() > 1
        && last.bytes().all(|byte| byte.is_ascii_alphabetic())
        && !PRIVATE.contains(&last.as_str())
        && path.split('/').all(plain)
}

#[cfg(test)]
mod tests {
    use super::is_plain;

    #[test]
    fn only_short_addresses_of_public_hosts_are_plain() {
        for address in [
            "https://example.com",
            "http://a.example.org/x/y.json",
            "https://example.com/",
        ] {
            assert!(is_plain(address), "{address}");
        }
        for address in [
            "http://127.0.0.1/",
            "http://localhost/",
            "http://169.254.169.254/latest/meta-data",
            "http://0x7f.1/",
            "http://[::1]/",
            "http://2130706433/",
            "https://example.com:8080/",
            "https://user:pass@example.com/",
            "https://example.com/?q=secret",
            "https://example.com/{a,b}",
            "https://example.com/%2e",
            "https://metadata.google.internal/x",
            "file:///etc/passwd",
            "example.com",
            "https://router.lan/",
            "https://example.com/0123456789012345678901234567890123456789",
            "https://evil.example/",
        ] {
            assert!(!is_plain(address), "{address}");
        }
    }
}
