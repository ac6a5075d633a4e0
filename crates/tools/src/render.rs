//! Renders the result of a program for a model: in sections, of bounded length.

use std::borrow::Cow;

use ringfence_exec::local::is_for_operators;
use ringfence_exec::output;
use ringfence_policy::hints;
use ringfence_policy::{Bytes, ExecutionResult, Outcome, OutputFile};

use crate::shell::ShellOutput;

/// Maximum length of a program's output that a model gets, in characters.
pub(crate) const MOST: usize = 10_000;

/// The parts of a result that a model gets.
#[derive(Debug, Clone)]
pub(crate) struct ModelOutput<'a> {
    stdout: &'a str,
    stderr: &'a str,
    /// `None` if the program was killed.
    exit_code: Option<i32>,
    timed_out: bool,
    truncated: bool,
    warnings: &'a [String],
    hints: Vec<String>,
    /// Value of the last expression.
    value: Option<&'a str>,
    /// Remarks about files and pictures.
    files: Vec<String>,
}

impl<'a> From<&'a ShellOutput> for ModelOutput<'a> {
    fn from(output: &'a ShellOutput) -> Self {
        Self {
            stdout: &output.stdout,
            stderr: &output.stderr,
            exit_code: output.exit_code,
            timed_out: output.timed_out,
            truncated: output.truncated,
            warnings: &output.warnings,
            hints: Vec::new(),
            value: None,
            files: Vec::new(),
        }
    }
}

impl<'a> From<&'a ExecutionResult> for ModelOutput<'a> {
    fn from(result: &'a ExecutionResult) -> Self {
        let meta = &result.meta;
        let ended = matches!(
            meta.outcome,
            Outcome::Exited | Outcome::Signalled | Outcome::Blocked
        );
        Self {
            stdout: &result.stdout,
            stderr: &result.stderr,
            exit_code: ended.then_some(result.exit_code),
            timed_out: meta.timed_out,
            truncated: meta.truncated,
            warnings: &meta.warnings,
            hints: hints::hints(result)
                .into_iter()
                .filter_map(|hint| hint.model)
                .collect(),
            value: None,
            files: Vec::new(),
        }
    }
}

impl<'a> ModelOutput<'a> {
    /// Renders a run's output, with the value of its last expression and its files. `remarks` are about its
    /// pictures.
    pub(crate) fn of_run(result: &'a ExecutionResult, remarks: &[String]) -> Self {
        let meta = &result.meta;
        let mut files: Vec<String> = meta.output_files.iter().take(MAX_FILES).map(file).collect();
        let more = meta.output_files.len().saturating_sub(MAX_FILES);
        if more > 0 {
            files.push(format!("{more} more files in /output"));
        }
        files.extend_from_slice(remarks);
        let session = meta.session.as_ref();
        Self {
            value: session.and_then(|session| session.value.as_deref()),
            files,
            ..Self::from(result)
        }
    }
}

/// Files that are named one by one.
const MAX_FILES: usize = 20;

fn file(file: &OutputFile) -> String {
    format!("file /output/{}: {}", file.path.escape_debug(), Bytes(file.bytes))
}

impl ModelOutput<'_> {
    /// Renders standard output, a section of standard error, the exit status if not 0, and notices. Only
    /// output is truncated, never the notices.
    pub(crate) fn text(self) -> String {
        let (stdout, stderr) = shares(self.stdout, self.stderr);
        let cut = matches!(stdout, Cow::Owned(_)) || matches!(stderr, Cow::Owned(_));
        let mut text = stdout.into_owned();
        let mut add = |part: &str| output::add(&mut text, part);
        if !stderr.is_empty() {
            add("[stderr]\n");
            add(&stderr);
        }
        match self.exit_code {
            Some(0) => {}
            Some(code) => add(&format!("[exit code {code}]")),
            None => add("[killed]"),
        }
        if self.timed_out {
            add("[timed out]");
        }
        if let Some(value) = self.value {
            add(&format!("[value] {}", beginning(value, MOST)));
        }
        for file in &self.files {
            add(&format!("[{file}]"));
        }
        for warning in self.warnings.iter().filter(|warning| !is_for_operators(warning)) {
            add(&format!("[warning: {warning}]"));
        }
        for hint in &self.hints {
            add(&format!("[hint: {hint}]"));
        }
        if cut {
            add(&format!("[output truncated at {MOST} characters]"));
        } else if self.truncated {
            add("[output truncated]");
        }
        text
    }
}

/// Truncates both streams so that together they fit. Each may use at least half of the limit.
fn shares<'a>(stdout: &'a str, stderr: &'a str) -> (Cow<'a, str>, Cow<'a, str>) {
    let length = |text: &str| text.chars().take(MOST).count();
    let (out, err) = (length(stdout), length(stderr));
    let most = |other: usize| (MOST - other.min(MOST / 2)).max(MOST / 2);
    (ends(stdout, most(err)), ends(stderr, most(out)))
}

/// Returns the first and the last half of `most` characters of a text that has more, owned: an error is at the end of
/// an output, and its cause at the beginning.
fn ends(text: &str, most: usize) -> Cow<'_, str> {
    if beginning(text, most).len() == text.len() {
        return Cow::Borrowed(text);
    }
    let tail = most / 2;
    let start = text.char_indices().nth_back(tail.saturating_sub(1));
    let start = start.map_or(text.len(), |(start, _)| start);
    let mut cut = beginning(text, most - tail).to_owned();
    output::add(&mut cut, "...\n");
    cut.push_str(&text[start..]);
    Cow::Owned(cut)
}

/// Returns the first `most` characters of a text.
pub(crate) fn beginning(text: &str, most: usize) -> &str {
    let end = text.char_indices().nth(most).map_or(text.len(), |(end, _)| end);
    &text[..end]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rendered(stdout: &str, stderr: &str, exit_code: Option<i32>) -> String {
        let told = ModelOutput {
            stdout,
            stderr,
            exit_code,
            timed_out: exit_code.is_none(),
            truncated: false,
            warnings: &[],
            hints: Vec::new(),
            value: None,
            files: Vec::new(),
        };
        told.text()
    }

    #[test]
    fn each_thing_has_a_section_of_its_own() {
        assert_eq!(rendered("a\n", "", Some(0)), "a\n");
        assert_eq!(rendered("a", "b\n", Some(3)), "a\n[stderr]\nb\n[exit code 3]");
        assert_eq!(rendered("", "", Some(-11)), "[exit code -11]");
        assert_eq!(rendered("", "", None), "[killed]\n[timed out]");
    }

    #[test]
    fn what_is_too_long_is_cut_and_what_is_said_of_it_is_not() {
        let check = |(out, err): (usize, usize), kept: (usize, usize)| {
            let text = rendered(&"é".repeat(out), &"ü".repeat(err), Some(1));
            let count = |wanted: char| text.chars().filter(|c| *c == wanted).count();
            assert_eq!((count('é'), count('ü')), kept, "{out} {err}");
            assert!(text.contains("[exit code 1]"), "{text}");
            let cut = text.ends_with("[output truncated at 10000 characters]");
            assert_eq!(cut, kept != (out, err), "{out} {err}");
        };
        check((10_000, 0), (10_000, 0));
        check((10_001, 0), (10_000, 0));
        check((20_000, 0), (10_000, 0));
        check((0, 20_000), (0, 10_000));
        check((9_000, 1_000), (9_000, 1_000));
        check((9_000, 2_000), (8_000, 2_000));
        check((20_000, 20_000), (5_000, 5_000));
        check((1_000, 20_000), (1_000, 9_000));
    }

    #[test]
    fn the_end_of_what_is_cut_is_kept() {
        let long = format!("first\n{}last", "middle\n".repeat(2_000));
        let text = rendered(&long, "", Some(0));
        assert!(text.starts_with("first\n") && text.contains("\n...\n"), "{text}");
        assert!(text.contains("last\n[output truncated"), "{text}");
    }

    #[test]
    fn what_was_cut_before_is_told_too() {
        let told = ModelOutput {
            stdout: "a",
            stderr: "",
            exit_code: Some(0),
            timed_out: false,
            truncated: true,
            warnings: &["b".to_owned()],
            hints: vec!["c".to_owned()],
            value: Some("d"),
            files: vec!["e".to_owned()],
        };
        assert_eq!(
            told.text(),
            "a\n[value] d\n[e]\n[warning: b]\n[hint: c]\n[output truncated]"
        );
    }
}
