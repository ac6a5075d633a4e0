//! Names of files that hold secrets, also where a pattern could become one.

use super::effect::{Effect, Found};
use super::within_word;
use crate::shell::Word;

/// Names of files and directories, in lower case; a star stands for anything.
const NAMES: &[&str] = &[
    ".env",
    ".env.*",
    "*.env",
    ".envrc",
    ".netrc",
    "_netrc",
    ".npmrc",
    ".yarnrc*",
    ".pypirc",
    ".pgpass",
    ".my.cnf",
    ".mylogin.cnf",
    ".git-credentials",
    ".htpasswd",
    "shadow",
    "shadow-",
    "gshadow",
    "gshadow-",
    "sudoers",
    "sudoers.d",
    "master.passwd",
    "opasswd",
    ".ssh",
    "sshd_config*",
    ".gnupg",
    ".aws",
    ".azure",
    ".kube",
    ".docker",
    ".dockercfg",
    ".gcloud",
    "application_default_credentials.json",
    "service-account*.json",
    "service_account*.json",
    ".oci",
    ".vault-token",
    ".boto",
    ".s3cfg",
    ".terraformrc",
    ".terraform.d",
    "terraform.tfstate*",
    "*.tfstate",
    "*.tfvars",
    "*.tfvars.json",
    "credentials",
    "credentials.*",
    ".credentials*",
    "secrets.*",
    "secret.*",
    ".secret*",
    "*_secret",
    "*_secrets",
    "kubeconfig*",
    "*.kubeconfig",
    "admin.conf",
    "super-admin.conf",
    "kubelet.conf",
    "controller-manager.conf",
    "scheduler.conf",
    "id_rsa*",
    "id_dsa*",
    "id_ecdsa*",
    "id_ed25519*",
    "ssh_host_*",
    "*.key",
    "*.pem",
    "*.p12",
    "*.pfx",
    "*.p8",
    "*.jks",
    "*.keystore",
    "*.kdbx",
    "*.kdb",
    "*.ppk",
    "*.gpg",
    "*.asc",
    "*.age",
    "*.ovpn",
    "wallet.dat",
    ".password-store",
    "*.keychain*",
    "login data",
    "logins.json",
    "key*.db",
    "cookies.sqlite",
    ".bash_history",
    ".zsh_history",
    ".*_history",
    ".token",
    "token.json",
    "tokens.json",
    "auth.json",
    ".passwd*",
    "passwords*",
    "password.*",
    "htpasswd",
    "environ",
    "kcore",
    "kmem",
    ".pgadmin",
    ".config.json",
    "wp-config.php",
    ".vnc",
    ".wgetrc",
    ".curlrc",
    "wg*.conf",
    "wireguard",
    "krb5.keytab",
    "*.keytab",
    ".rclone.conf",
    "rclone.conf",
    ".cargo-credentials",
    "vault.yml",
    "vault.yaml",
    "local_settings.py",
    "database.yml",
    "master.key",
];

/// Parts of paths below which secrets lie.
const PLACES: &[&str] = &[
    "/.config/gcloud",
    "/.config/gh/",
    "/.config/hub",
    "/.config/op/",
    "/.config/google-chrome",
    "/.config/chromium",
    "/.mozilla/",
    "/.thunderbird/",
    "/.m2/settings",
    "/.gem/",
    "/.subversion/auth",
    "/.bitcoin",
    "/.ethereum",
    "/.electrum",
    "/keyrings/",
    "/keychains",
    "/run/secrets",
    "/ssl/private",
    "/etc/letsencrypt",
    "/secrets/",
    "/.databrickscfg",
    "/.snowsql",
    "/.password-store",
    "/etc/kubernetes",
    "/var/lib/kubelet",
];

/// Names that the patterns above would take, and that are public.
const PUBLIC: &[&str] = &[
    ".env.example",
    ".env.sample",
    ".env.template",
    ".env.dist",
    "*cert*.pem",
    "*chain*.pem",
    "ca.pem",
    "ca-*.pem",
    "cacert*.pem",
    "*.pub",
    "*pub*.pem",
];

/// What a pattern of files is tried on.
const SAMPLES: &[&str] = &[
    ".env",
    ".env.local",
    "prod.env",
    ".netrc",
    ".npmrc",
    ".pypirc",
    ".git-credentials",
    "shadow",
    ".ssh",
    ".aws",
    ".kube",
    ".gnupg",
    ".docker",
    "credentials",
    "credentials.json",
    "secrets.yml",
    "secrets.json",
    "kubeconfig",
    "admin.conf",
    "id_rsa",
    "id_ed25519",
    "id_ecdsa",
    "id_dsa",
    "server.key",
    "key.pem",
    "keystore.p12",
    "terraform.tfstate",
    ".bash_history",
    "environ",
];

/// Adds a finding for every argument that names a place of secrets, for a program that shows no contents only if it names it
/// in full.
pub(super) fn check_names(args: &[Word], title: &str, found: &mut Found) {
    for word in args {
        let secret = |text: String| {
            readings(&text, found)
                .iter()
                .any(|text| names_secret(text, false))
        };
        if word.shape().is_some_and(secret) {
            found.add(
                Effect::Secret,
                format!("{title}: `{}` may name a secret", word.text),
            );
        }
    }
}

/// Adds a finding for every argument that names a place of secrets.
pub(super) fn check(args: &[Word], title: &str, found: &mut Found) {
    for word in args {
        if word.text == super::special::INPUT {
            continue;
        }
        let Some(text) = word.shape() else { continue };
        // These read patterns themselves.
        let pattern = title == "find" || title.starts_with("git ") || is_filter(&text);
        let glob = pattern || word.is_glob();
        if readings(&text, found).iter().any(|text| names_secret(text, glob)) {
            found.add(
                Effect::Secret,
                format!("{title}: `{}` may name a secret", word.text),
            );
        }
    }
}

/// The name as it is, and below the directory to which the line may have changed.
fn readings(text: &str, found: &Found) -> Vec<String> {
    let below = found
        .directory
        .as_ref()
        .map(|directory| format!("{directory}/{text}"));
    std::iter::once(text.to_owned()).chain(below).collect()
}

/// An option of `rg` or `grep` that chooses files by a pattern.
fn is_filter(text: &str) -> bool {
    ["-g", "--glob=", "--iglob=", "--include="]
        .iter()
        .any(|option| text.starts_with(option))
}

/// Whether a place below which the secrets of a user or of the system lie.
pub(super) fn is_broad(word: &Word) -> bool {
    let Some(text) = word.shape() else { return true };
    let text = plain_path(&text);
    let text = text.as_str();
    let above = text.split('/').filter(|part| !part.is_empty());
    text.is_empty()
        || text == "/"
        || text.starts_with('~') && (!text.contains('/') || text.contains("/.."))
        || [
            "/root", "/home", "/etc", "/Users", "/proc", "/var", "/run", "/dev",
        ]
        .contains(&text)
        || (text.starts_with("/home/") || text.starts_with("/Users/")) && above.clone().count() < 3
        || above.clone().count() > 0 && above.clone().all(|part| part == "..")
}

/// The path without `.`, and without a name that the `..` behind it takes back.
fn plain_path(text: &str) -> String {
    let rooted = text.starts_with('/');
    let mut parts: Vec<&str> = Vec::new();
    for part in text.split('/').filter(|part| !part.is_empty() && *part != ".") {
        match parts.last() {
            Some(last) if part == ".." && *last != ".." && !last.starts_with('~') => {
                parts.pop();
            }
            None if part == ".." && rooted => {}
            _ => parts.push(part),
        }
    }
    match (rooted, parts.as_slice()) {
        (true, parts) => format!("/{}", parts.join("/")),
        (false, []) if !text.is_empty() => ".".to_owned(),
        (false, parts) => parts.join("/"),
    }
}

/// Whether a text names a place of secrets; with `glob`, also as a pattern.
pub(super) fn names_secret(text: &str, glob: bool) -> bool {
    let lower = text.to_ascii_lowercase();
    if PLACES.iter().any(|place| lower.contains(place)) || lower.starts_with("secrets/") {
        return true;
    }
    if is_device(&lower) || lower.starts_with("/proc/") && lower.ends_with("/mem") {
        return true;
    }
    let separates = |sign: char| sign.is_whitespace() || "/:=@,'\"();|<>{}".contains(sign);
    let is_path = lower.contains('/');
    lower
        .split(separates)
        .filter(|part| !part.is_empty())
        .any(|part| {
            is_secret(part) || is_telling(part, is_path) || is_attached(part) || glob && becomes_secret(part)
        })
}

/// A name of a file that says what is in it.
fn is_telling(name: &str, is_path: bool) -> bool {
    let telling = [
        "secret",
        "credential",
        "passwd",
        "password",
        "api_key",
        "apikey",
        "private_key",
        "privatekey",
        "_token",
        "token.",
    ];
    let looks_like_a_file = is_path || name.trim_matches('.').contains('.');
    // The list of users is no list of passwords.
    looks_like_a_file && name != "passwd" && telling.iter().any(|word| name.contains(word))
}

/// The value of a short option without a blank: `-f.env`.
fn is_attached(part: &str) -> bool {
    let letters = part
        .strip_prefix('-')
        .filter(|rest| !rest.starts_with('-') && rest.is_ascii() && rest.len() < 60);
    letters.is_some_and(|rest| (1..rest.len()).any(|at| is_secret(&rest[at..])))
}

fn is_device(text: &str) -> bool {
    let Some(at) = text.find("/dev/") else {
        return false;
    };
    let name = &text[at + 5..];
    at == 0 && !(["null", "zero", "stdin", "stdout", "stderr"].contains(&name) || name.starts_with("fd/"))
}

fn is_secret(name: &str) -> bool {
    // `.key` is no key, `server.key` is.
    let fits = |pattern: &&str| {
        within_word(pattern, name) && (pattern.len() <= name.len() || !pattern.starts_with("*."))
    };
    NAMES.iter().any(fits) && !PUBLIC.iter().any(fits)
}

/// Whether a pattern, as the shell reads it, could be the name of a secret.
fn becomes_secret(pattern: &str) -> bool {
    if !pattern.contains(['*', '?', '[']) {
        return false;
    }
    let first = pattern.as_bytes()[0];
    SAMPLES.iter().any(|sample| {
        // A leading dot is never meant by a star.
        (!sample.starts_with('.') || matches!(first, b'.' | b'['))
            && could_be(pattern.as_bytes(), sample.as_bytes())
    })
}

/// Whether a pattern fits a name of fewer than 64 characters. A set in brackets is taken to mean any character.
fn could_be(pattern: &[u8], name: &[u8]) -> bool {
    // One bit for each position of the name that can be reached.
    let mut reached: u64 = 1;
    let mut at = 0;
    while let Some(sign) = pattern.get(at).filter(|_| reached != 0) {
        reached = match sign {
            b'*' => u64::MAX << reached.trailing_zeros(),
            b'?' => reached << 1,
            b'[' => {
                at += pattern[at..].iter().position(|sign| *sign == b']').unwrap_or(0);
                reached << 1
            }
            plain => {
                let here = |index: &usize| name[*index] == *plain;
                let fits = (0..name.len())
                    .filter(here)
                    .fold(0, |bits, index| bits | 1 << index);
                (reached & fits) << 1
            }
        };
        at += 1;
    }
    reached & (1 << name.len()) != 0
}
