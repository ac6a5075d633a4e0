//! What we say of a program's end where it could not say it itself.

use ringfence_policy::{Bytes, Outcome, ResourceLimits, Timeout};

/// What is added to the errors of a program that ended so within these limits; nothing where it spoke for itself.
pub fn notice(outcome: Outcome, limits: &ResourceLimits) -> Option<String> {
    Some(match outcome {
        Outcome::TimedOut => match Timeout::try_from(limits.timeout) {
            Ok(timeout) => format!("execution timed out after {timeout}"),
            // No run has such a limit, but an engine's answer might claim it.
            Err(_) => "execution timed out".to_owned(),
        },
        Outcome::MemoryExceeded => {
            format!(
                "killed: the memory limit of {} was exceeded",
                Bytes(limits.memory_bytes)
            )
        }
        Outcome::Cancelled => "execution cancelled".to_owned(),
        Outcome::Unknown => "the executor broke; nothing is known of the program's end".to_owned(),
        Outcome::Exited | Outcome::Signalled | Outcome::Blocked => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use ringfence_policy::Limits;

    #[test]
    fn limits_are_named_as_they_were_given() {
        for (given, shown) in [
            ("1ms", "1ms"),
            ("0.7", "700ms"),
            ("1.001s", "1001ms"),
            ("90", "90s"),
        ] {
            let limits = Limits {
                timeout: given.parse().unwrap(),
                ..Limits::DEFAULT
            };
            assert_eq!(
                notice(Outcome::TimedOut, &limits.into()),
                Some(format!("execution timed out after {shown}"))
            );
        }
        assert_eq!(
            notice(Outcome::MemoryExceeded, &Limits::DEFAULT.into()).as_deref(),
            Some("killed: the memory limit of 256MiB was exceeded")
        );
        assert_eq!(notice(Outcome::Exited, &Limits::DEFAULT.into()), None);
    }
}
