//! `curl` and `wget`: one request to one public host, too short to exfiltrate much.

use super::analysis::{Analysis, Host};
use super::effect::Effect;
use super::files;
use super::options::Scanned;
use crate::shell::Word;

/// Longest URL. Its host learns everything in it.
const MAX_ADDRESS: usize = 60;

/// Longest path segment, and most segments: keys and encoded data are longer.
const MAX_NAME: usize = 12;
const MAX_NAMES: usize = 4;

/// Suffixes of names for this machine, this network, or nothing.
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

/// Public names that resolve to an address written into them, or to this machine.
const MIRRORS: &[&str] = &[
    "nip.io",
    "sslip.io",
    "xip.io",
    "traefik.me",
    "localtest.me",
    "lvh.me",
    "vcap.me",
    "lacolhost.com",
    "readme.io",
];

/// Options whose value is sent to the host, with its longest length: a byte range is a number and carries no
/// message.
const HEARD: &[(&str, usize)] = &[("-r", 12), ("--range", 12), ("-C", 1), ("--continue-at", 1)];

/// Options whose values are numbers or words from a fixed list.
const NUMBERS: &[&str] = &[
    "-m",
    "--max-time",
    "--connect-timeout",
    "--max-redirs",
    "--retry",
    "--retry-delay",
    "--retry-max-time",
    "--limit-rate",
    "--speed-limit",
    "--speed-time",
    "--max-filesize",
    "-y",
    "-Y",
    "--keepalive-time",
    "--happy-eyeballs-timeout-ms",
    "--expect100-timeout",
    "--tls-max",
];

/// Judges `curl`: sends a request and prints the response.
pub(super) fn curl(args: &[Word], scanned: &Scanned, analysis: &mut Analysis) {
    if scanned
        .options
        .iter()
        .any(|option| matches!(*option, "-h" | "--help" | "--manual" | "-V" | "--version"))
        && !asks_anybody(args)
    {
        return;
    }
    let mut addresses: Vec<Option<String>> = scanned
        .operands
        .iter()
        .map(|index| args[*index].literal())
        .collect();
    for (name, value) in &scanned.values {
        let value = value.as_deref();
        match *name {
            "--url" => addresses.push(value.map(str::to_owned)),
            "-X" | "--request" if !value.is_some_and(is_question) => {
                analysis.add(Effect::Write, "curl: another method than GET");
            }
            "--proto"
                if !value.is_some_and(|value| {
                    value
                        .chars()
                        .all(|sign| sign.is_ascii_alphabetic() || "=,+-".contains(sign))
                }) =>
            {
                analysis.add(
                    Effect::Network,
                    "curl --proto: the value is not a list of protocols",
                );
            }
            _ => {}
        }
        let plain = |value: &str| {
            value
                .chars()
                .all(|sign| sign.is_ascii_digit() || ".-kKmMgG".contains(sign))
        };
        let heard = HEARD.iter().find(|(option, _)| option == name);
        if heard.is_some_and(|(_, most)| !value.is_some_and(|value| value.len() <= *most && plain(value)))
            || NUMBERS.contains(name) && !value.is_some_and(|value| value.len() <= 12 && plain(value))
        {
            analysis.add(
                Effect::Network,
                format!("curl {name}: the value may tell the host something"),
            );
        }
    }
    one_address(&addresses, "curl", analysis);
}

/// Judges `wget --spider`: checks existence and stores nothing.
pub(super) fn wget(args: &[Word], scanned: &Scanned, analysis: &mut Analysis) {
    if !scanned.options.contains(&"--spider") {
        return stored(args, scanned, analysis);
    }
    let addresses: Vec<Option<String>> = scanned
        .operands
        .iter()
        .map(|index| args[*index].literal())
        .collect();
    one_address(&addresses, "wget", analysis);
}

/// Judges what wget stores: a host or a file chooses the names of some options.
fn stored(args: &[Word], scanned: &Scanned, analysis: &mut Analysis) {
    analysis.add(Effect::Write, "wget: writes what it fetches");
    let chosen = [
        "-r",
        "-m",
        "-p",
        "-x",
        "-i",
        "--recursive",
        "--mirror",
        "--page-requisites",
        "--force-directories",
        "--content-disposition",
        "--input-file",
    ];
    if scanned.has_any(&chosen) {
        analysis.add(
            Effect::Code,
            "wget: names that it does not know beforehand may be run or obeyed",
        );
    }
    let named = |options: [&str; 2]| {
        let values = scanned
            .values
            .iter()
            .filter(move |(name, _)| options.contains(name));
        values.map(|(_, value)| value.as_deref()).collect::<Vec<_>>()
    };
    let directories = named(["-P", "--directory-prefix"]);
    for path in named(["-O", "--output-document"]).iter().chain(&directories) {
        files::destination(*path, "wget", analysis);
    }
    for index in &scanned.operands {
        let address = args[*index].shape();
        let name = address.as_deref().and_then(|address| address.rsplit('/').next());
        let name = name.and_then(|name| name.split(['?', '#']).next());
        let prefix = directories.last().copied().flatten().unwrap_or(".");
        // wget decodes what is escaped.
        let name = name.filter(|name| !name.contains('%'));
        let path = name.map(|name| format!("{prefix}/{name}"));
        files::destination(path.as_deref(), "wget", analysis);
    }
}

/// Returns `true` if an argument of a help request could still be a URL.
fn asks_anybody(args: &[Word]) -> bool {
    args.iter().any(|word| {
        !word.literal().is_some_and(|text| {
            text.chars()
                .all(|sign| sign.is_ascii_alphanumeric() || sign == '-')
        })
    })
}

fn one_address(addresses: &[Option<String>], title: &str, analysis: &mut Analysis) {
    if analysis.feeds {
        return analysis.add(
            Effect::Network,
            format!("{title}: a host decides about arguments"),
        );
    }
    let [Some(address)] = addresses else {
        return analysis.add(
            Effect::Network,
            format!("{title}: not one address that is known beforehand"),
        );
    };
    match host(address) {
        Some(host) => {
            analysis.hosts.push(Host {
                name: host.to_owned(),
                at: analysis.at.filter(|_| title == "curl"),
            });
            analysis.add(Effect::Remote, format!("{title}: asks a public host"));
        }
        None => analysis.add(
            Effect::Network,
            format!("{title}: the address is long, or not that of a public host"),
        ),
    }
}

fn is_question(method: &str) -> bool {
    method.eq_ignore_ascii_case("get") || method.eq_ignore_ascii_case("head")
}

/// Returns the host of a short URL: a public name, the default port, a few plain path segments.
fn host(address: &str) -> Option<&str> {
    let rest = address
        .strip_prefix("https://")
        .or_else(|| address.strip_prefix("http://"))
        .filter(|_| address.len() <= MAX_ADDRESS)?;
    let (host, path) = rest.split_once('/').unwrap_or((rest, ""));
    let labels: Vec<&str> = host.split('.').collect();
    let last = labels.last()?;
    let public = labels.len() > 1
        && labels.len() <= 4
        && labels.iter().all(|label| is_word(label) && !label.is_empty())
        && last.len() > 1
        && last.bytes().all(|byte| byte.is_ascii_lowercase())
        && !PRIVATE.contains(last)
        && !MIRRORS
            .iter()
            .any(|mirror| host == *mirror || host.ends_with(&format!(".{mirror}")));
    let names = path.split('/').count();
    (public && names <= MAX_NAMES && path.split('/').all(is_word)).then_some(host)
}

/// Returns `true` for a word rather than an encoded value: lower case, few digits. Extensions and version
/// dots are allowed.
fn is_word(name: &str) -> bool {
    let digits = name.bytes().filter(u8::is_ascii_digit).count();
    let plain = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || b"-_.".contains(&byte);
    name.len() <= MAX_NAME && digits <= 4 && name.bytes().all(plain) && !name.contains("..")
}

#[cfg(test)]
mod tests {
    use super::host;

    #[test]
    fn only_short_addresses_of_public_hosts_are_plain() {
        for address in [
            "https://example.com",
            "http://a.example.org/x/y.json",
            "https://example.com/",
            "https://example.com/v1.2/list",
        ] {
            assert!(host(address).is_some(), "{address}");
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
            "https://example.com/sk-ant-abcdefgh/ijklmnop",
            "https://example.com/AbCdEf",
            "https://example.com/a1b2c3d4e5",
            "https://example.com/a/b/c/d/e",
            "https://10.0.0.1.nip.io/",
            "https://a-10-0-0-1.sslip.io/",
            "https://evil.example/",
        ] {
            assert!(host(address).is_none(), "{address}");
        }
    }
}
