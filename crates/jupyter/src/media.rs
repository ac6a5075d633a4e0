//! Media types of results that a kernel takes for itself.

/// Media type of an exception that ended a cell.
pub(crate) const ERROR: &str = "application/vnd.ringfence.error+json";

/// Media type of the answer to a question.
pub(crate) const ANSWER: &str = "application/vnd.ringfence.answer+json";

/// Media type of the mark on a result that can be updated.
pub(crate) const DISPLAY: &str = "application/vnd.ringfence.display+json";
