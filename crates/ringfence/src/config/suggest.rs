//! "Did you mean": the known name nearest to a mistyped one.

/// Returns the candidate nearest to `name`, if it is near enough.
pub fn nearest<'a>(name: &str, candidates: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let allowed = (name.chars().count() / 3).clamp(1, 4);
    candidates
        .into_iter()
        .map(|candidate| (strsim::damerau_levenshtein(name, candidate), candidate))
        .filter(|(distance, _)| *distance <= allowed)
        .min_by_key(|(distance, _)| *distance)
        .map(|(_, candidate)| candidate)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn finds_typing_errors_and_nothing_far_off() {
        let known = ["memory", "max_output", "timeout"];
        assert_eq!(nearest("memry", known), Some("memory"));
        assert_eq!(nearest("tiemout", known), Some("timeout"));
        assert_eq!(nearest("colour", known), None);
        assert_eq!(nearest("x", known), None);
    }
}
