//! The targets of output: captures, rich results, and secrets in it.

use ringfence_exec::local::RichResults;
use ringfence_exec::output::{Capture, gaps};
use ringfence_network::redact::Redactor;
use ringfence_policy::Bytes;

/// The first byte is the limit, the second the chunk size. Chunking never changes the text, which is bounded,
/// and the count is correct.
pub(crate) fn output_capture(input: &[u8]) {
    let [limit, chunk, stream @ ..] = input else {
        return;
    };
    let captured = |size: usize| {
        let mut capture = Capture::new(Bytes(u64::from(*limit)));
        stream.chunks(size).for_each(|chunk| capture.push(chunk));
        capture.finish()
    };
    let whole = captured(stream.len().max(1));
    assert_eq!(whole, captured(usize::from(*chunk).max(1)));
    assert_eq!(whole.total_bytes, stream.len() as u64);
    assert_eq!(whole.truncated, stream.len() > usize::from(*limit));
    // A byte that is not UTF-8 becomes three, plus the notice.
    assert!(
        whole.text.len() <= 3 * usize::from(*limit) + 80,
        "{} bytes kept",
        whole.text.len()
    );
}

const SECRET: &str = "s3cr3t-Value!42";

/// Results are rejected, or bounded and fit for the wire.
pub(crate) fn session_results(input: &[u8]) {
    let Some(found) = RichResults::parse(input) else {
        return;
    };
    assert!(found.results.len() <= 32);
    let written = serde_json::to_vec(&found.results).expect("results can be written");
    // Base64 adds a third, escapes of control characters five bytes to each.
    assert!(written.len() <= 6 * input.len() + 1024 * found.results.len() + 2);
    let read: Vec<ringfence_policy::RichResult> = serde_json::from_slice(&written).expect("and read again");
    assert_eq!(read.len(), found.results.len());
}

/// The first byte is the limit of the capture. A known secret never comes through, whole or truncated.
pub(crate) fn redaction(input: &[u8]) {
    thread_local!(static REDACTOR: Redactor = Redactor::new([("API_KEY", SECRET)]));
    let [limit, stream @ ..] = input else { return };
    let mut capture = Capture::new(Bytes(u64::from(*limit)));
    capture.push(stream);
    let text = capture.finish().text;
    let clean = REDACTOR.with(|redactor| redactor.redact_cut(&text, &gaps(&text)).into_owned());
    assert!(!clean.contains(SECRET), "whole: {clean:?}");
    let mut start = 0;
    for gap in gaps(&clean) {
        let head = &clean[start..gap.start];
        assert!(!head.ends_with(&SECRET[..4]), "before a gap: {clean:?}");
        let tail = &clean[gap.end..];
        assert!(
            !tail.starts_with(&SECRET[SECRET.len() - 4..]),
            "behind a gap: {clean:?}"
        );
        start = gap.end;
    }
    assert!(!clean.ends_with(&SECRET[..4]), "at the end: {clean:?}");
}
