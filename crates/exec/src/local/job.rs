//! The message that assigns a job to a Python worker.

use ringfence_policy::EnvName;

/// Job of length zero, which turns a worker into a session.
pub(super) const SESSION: &[u8] = &[0; 4];

/// Prefix of a job that makes a worker import the packages first. A worker that was forked from a zygote can
/// then be forked itself.
pub(super) const PRELOADED: &[u8] = &[0xfe, 0xff, 0xff, 0xff];

/// Prefix of texts that an interpreter compiles when it first uses them.
pub(super) const TEXTS: &[u8] = &[0xfd, 0xff, 0xff, 0xff];

/// Prefix of a job whose program uses the channel as its bridge.
const BRIDGED: [u8; 4] = [0xff; 4];

/// Marks a job whose program uses the channel as its bridge.
pub(super) fn bridged(job: &[u8]) -> Vec<u8> {
    [&BRIDGED, job].concat()
}

/// Encodes a job for `python/worker.py`: byte strings, each with a length prefix of four bytes, behind the
/// total length.
pub(super) fn encode(
    name: &str,
    code: &str,
    arguments: &[String],
    variables: &[(EnvName, String)],
) -> Vec<u8> {
    let count = arguments.len().to_string();
    let head = [name, code, &count];
    let pairs = variables
        .iter()
        .flat_map(|(name, value)| [name.as_str(), value.as_str()]);
    let fields = head
        .into_iter()
        .chain(arguments.iter().map(String::as_str))
        .chain(pairs);
    let mut message = vec![0; 4];
    for field in fields {
        message.extend(length(field.len()));
        message.extend(field.as_bytes());
    }
    let total = length(message.len() - 4);
    message[..4].copy_from_slice(&total);
    message
}

/// Encodes a length. Sources, arguments and variables are limited far below four gigabytes before.
fn length(bytes: usize) -> [u8; 4] {
    u32::try_from(bytes).unwrap_or(u32::MAX).to_le_bytes()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_follow_their_lengths() {
        let job = encode(
            "a.py",
            "x",
            &["1".to_owned()],
            &[("K".parse().unwrap(), "v".to_owned())],
        );
        let expected = [
            &[4 + 4 + 4 + 1 + 4 + 1 + 4 + 1 + 4 + 1 + 4 + 1, 0, 0, 0][..],
            b"\x04\0\0\0a.py",
            b"\x01\0\0\0x",
            b"\x01\0\0\x001",
            b"\x01\0\0\x001",
            b"\x01\0\0\0K",
            b"\x01\0\0\0v",
        ];
        assert_eq!(job, expected.concat());
    }
}
