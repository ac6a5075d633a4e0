//! Warnings about variables that were likely meant for the configuration, and have no effect.
//!
//! Silently ignored, such a variable would weaken the fence: `SANDBOX_TYP=docker` runs locally,
//! `SANDBOX_TIMEOUT=5` for thirty seconds.

use ringfence_policy::RuntimeKind;

use super::suggest;
use super::variables::{self, is_plain};
use crate::env::Environment;

/// Docker's own variables.
const DOCKERS: &[&str] = &[
    "DOCKER_HOST",
    "DOCKER_CONTEXT",
    "DOCKER_CONFIG",
    "DOCKER_CERT_PATH",
    "DOCKER_API_VERSION",
    "DOCKER_BUILDKIT",
    "DOCKER_DEFAULT_PLATFORM",
];

/// Returns a warning for each such variable.
pub(super) fn near_misses(environment: &Environment) -> Vec<String> {
    environment
        .names()
        .filter_map(|name| Some((name, environment.text(name)?)))
        .filter_map(|(name, value)| near_miss(name, value))
        .collect()
}

fn near_miss(name: &str, value: &str) -> Option<String> {
    let (first, _) = name.split_once('_')?;
    if !resembles(first) || is_plain(name) || DOCKERS.contains(&name) {
        return None;
    }
    if name == "SANDBOX_SUPPORTED_LANGUAGES" {
        return Some(format!(
            "the environment variable {name} sets nothing: python, bash and javascript are always supported"
        ));
    }
    let meant = meant(&name.to_ascii_uppercase(), value)?;
    Some(format!(
        "the environment variable {name} sets nothing; did you mean {meant}?"
    ))
}

/// Returns `true` if a variable's first word is a known prefix other than `RINGFENCE`, or is at most one
/// typing error away from one.
fn resembles(first: &str) -> bool {
    let near = |known: &&str| {
        first.len().abs_diff(known.len()) <= 1
            && strsim::damerau_levenshtein(&first.to_ascii_uppercase(), known) <= 1
    };
    ["SANDBOX", "DOCKER", "RINGFENCE"].iter().any(near) && first != "RINGFENCE"
}

/// Returns the variable that `name`, in capitals, was likely meant to be.
fn meant(name: &str, value: &str) -> Option<String> {
    let (first, rest) = name.split_once('_')?;
    let distance = |known: &str| strsim::damerau_levenshtein(known, name);
    // Many programs have variables that begin with `DOCKER_`; one with an invalid value is not meant for us.
    let fits = |known: &&str| first != "DOCKER" || variables::accepts(known, value);
    let kin = variables::plain_names().filter(|known| known.starts_with(&format!("{first}_")));
    let kin: Vec<&str> = kin.filter(fits).collect();
    let has_all = |of: &str, words: &str| words.split('_').all(|word| of.split('_').any(|own| own == word));
    let same_words = kin
        .iter()
        .find(|known| has_all(known, name) || has_all(name, known));
    let near_rest = || {
        let rests = kin.iter().filter_map(|known| Some(known.split_once('_')?.1));
        let near = suggest::nearest(rest, rests)?;
        kin.iter().find(|known| known.ends_with(&format!("_{near}")))
    };
    if let Some(found) = same_words.or_else(near_rest) {
        return Some((*found).to_owned());
    }
    let slip = variables::plain_names().find(|known| !known.starts_with(first) && distance(known) <= 2);
    match (first, slip) {
        (_, Some(found)) => Some(found.to_owned()),
        ("SANDBOX", None) if value.parse::<RuntimeKind>().is_ok() => Some("SANDBOX_TYPE".to_owned()),
        ("SANDBOX", None) if variables::is_key_of_sandbox(rest) => Some(format!("RINGFENCE_{name}")),
        ("SANDBOX" | "DOCKER" | "RINGFENCE", None) => None,
        (first, None) => {
            let ours = strsim::damerau_levenshtein(first, "RINGFENCE") == 1;
            ours.then(|| format!("RINGFENCE_{rest}"))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(name: &str, value: &str, expected: Option<&str>) {
        let found = near_misses(&Environment::from([(name, value)]));
        match expected {
            None => assert_eq!(found, Vec::<String>::new(), "{name}={value}"),
            Some(meant) => assert_eq!(
                found,
                [format!(
                    "the environment variable {name} sets nothing; did you mean {meant}?"
                )],
            ),
        }
    }

    #[test]
    fn what_was_likely_meant_is_told() {
        for (name, value, meant) in [
            ("SANDBOX_TYP", "docker", "SANDBOX_TYPE"),
            ("SANDBOX_TYPES", "docker", "SANDBOX_TYPE"),
            ("sandbox_type", "docker", "SANDBOX_TYPE"),
            ("SANBOX_TYPE", "docker", "SANDBOX_TYPE"),
            ("SANDBOX_RUNTIME", "docker", "SANDBOX_TYPE"),
            ("SANDBOX_TIMEOUT", "5", "SANDBOX_TIMEOUT_SEC"),
            ("SANDBOX_TIMEOUT_SECS", "5", "SANDBOX_TIMEOUT_SEC"),
            ("SANDBOX_MAX_OUTPUT", "5", "SANDBOX_MAX_OUTPUT_KB"),
            ("SANDBOX_BLOCK_IMPORTS", "true", "SANDBOX_BLOCK_DANGEROUS_IMPORTS"),
            ("SANDBOX_MEMORY", "64m", "RINGFENCE_SANDBOX_MEMORY"),
            ("DOCKER_MEMORY", "64m", "DOCKER_MEMORY_LIMIT"),
            ("DOCKER_MEM_LIMIT", "64m", "DOCKER_MEMORY_LIMIT"),
            ("DOCKER_CPU", "0.5", "DOCKER_CPU_LIMIT"),
            ("DOCKER_NETWORK", "false", "DOCKER_NETWORK_ENABLED"),
            ("DOKCER_IMAGE", "a:1", "DOCKER_IMAGE"),
            ("RINGFENSE_SANDBOX_TYPE", "docker", "RINGFENCE_SANDBOX_TYPE"),
        ] {
            check(name, value, Some(meant));
        }
        let told = near_misses(&Environment::from([("SANDBOX_SUPPORTED_LANGUAGES", "python")]));
        assert!(told[0].contains("are always supported"), "{told:?}");
    }

    #[test]
    fn what_is_others_is_none_of_our_business() {
        for (name, value) in [
            ("SANDBOX_TYPE", "docker"),
            ("SANDBOX_TYP", ""),
            ("SANDBOX_RUNTIME", "1"),
            ("SANDBOX_WRITE", "/tmp"),
            ("DOCKER_HOST", "unix:///x"),
            ("DOCKER_NETWORK", "mine"),
            ("DOCKER_TAG", "latest"),
            ("DOCKER_USERNAME", "ann"),
            ("PATH", "/bin"),
            ("SANDBOX", "docker"),
            ("RINGFENCE_X", "1"),
        ] {
            check(name, value, None);
        }
    }
}
