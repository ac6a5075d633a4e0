//! Digests of keys, and their comparison in constant time.

use std::hint::black_box;

use ringfence_records::audit::Digest;

pub(super) fn digest(key: &str) -> String {
    Digest::of(key.as_bytes()).to_string()
}

/// Compares digests in constant time.
pub(super) fn is_same(ours: &str, theirs: &str) -> bool {
    let pairs = ours.bytes().zip(theirs.bytes());
    let difference = pairs.fold(0, |difference, (ours, theirs)| {
        black_box(difference | (ours ^ theirs))
    });
    ours.len() == theirs.len() && black_box(difference) == 0
}
