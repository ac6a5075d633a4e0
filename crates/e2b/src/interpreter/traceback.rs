//! Tells the traceback of an execution that fails from the rest of its standard error.
//!
//! Python prints it there, and E2B's clients get it as an error with a name and a value. It is a guest's text: one that
//! looks like a traceback and is none misleads its own client alone.

use ringfence_sandbox::context::Language;

/// Beginnings of the line at which a traceback begins. Errors of syntax have no other line first.
const PYTHON: &[&str] = &["Traceback (most recent call last):", "  File \"<cell "];
const JAVASCRIPT: &[&str] = &[UNCAUGHT];
const UNCAUGHT: &str = "Uncaught ";
/// Length of a text that is held back, in bytes.
const MAX: usize = 64 * 1024;

/// Standard error, of which a possible traceback is held back to the end.
#[derive(Debug)]
pub(super) struct Filter {
    beginnings: &'static [&'static str],
    held: String,
    is_holding: bool,
    is_inside_line: bool,
}

/// An exception, as its traceback tells it.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Exception {
    pub(super) name: String,
    pub(super) value: String,
    pub(super) traceback: String,
}

impl Filter {
    pub(super) fn new(language: Language) -> Self {
        Self {
            beginnings: match language {
                Language::Python => PYTHON,
                Language::Javascript | Language::Typescript => JAVASCRIPT,
                Language::Bash => &[],
            },
            held: String::new(),
            is_holding: false,
            is_inside_line: false,
        }
    }

    /// Adds text, and returns what is no part of a traceback.
    pub(super) fn push(&mut self, text: &str) -> String {
        self.held.push_str(text);
        if self.is_holding {
            return if self.held.len() > MAX {
                self.release()
            } else {
                String::new()
            };
        }
        let mut at = 0;
        while at < self.held.len() {
            let line = &self.held[at..];
            if !self.is_inside_line {
                if self
                    .beginnings
                    .iter()
                    .any(|beginning| line.starts_with(beginning))
                {
                    self.is_holding = true;
                    break;
                }
                if self
                    .beginnings
                    .iter()
                    .any(|beginning| beginning.starts_with(line))
                {
                    break;
                }
            }
            self.is_inside_line = !line.contains('\n');
            at += line.find('\n').map_or(line.len(), |end| end + 1);
        }
        let rest = self.held.split_off(at);
        std::mem::replace(&mut self.held, rest)
    }

    /// Returns what is held back, as ordinary text.
    pub(super) fn release(&mut self) -> String {
        self.is_holding = false;
        self.is_inside_line = !self.held.ends_with('\n');
        std::mem::take(&mut self.held)
    }

    /// Returns what is held back, as an exception, if it is one.
    pub(super) fn exception(&mut self) -> Option<Exception> {
        if !self.is_holding {
            return None;
        }
        let text = self.held.trim_end();
        let exception = match text.strip_prefix(UNCAUGHT) {
            Some(thrown) => thrown_by_javascript(thrown),
            None => Self::raised_by_python(text)?,
        };
        self.held.clear();
        Some(exception)
    }

    fn raised_by_python(text: &str) -> Option<Exception> {
        let lines: Vec<&str> = text.lines().collect();
        // Behind the last line of code.
        let at = lines.iter().rposition(|line| line.starts_with("  "))? + 1;
        let told = lines.get(at..)?.join("\n");
        let (name, value) = told.split_once(": ").unwrap_or((&told, ""));
        let name = name.rsplit('.').next().unwrap_or(name);
        if name.is_empty() || name.contains(char::is_whitespace) {
            return None;
        }
        Some(Exception {
            name: name.to_owned(),
            value: value.to_owned(),
            traceback: text.to_owned(),
        })
    }
}

/// Returns an exception of JavaScript, where anything may be thrown.
fn thrown_by_javascript(thrown: &str) -> Exception {
    let told = thrown.split("\n    at ").next().unwrap_or(thrown);
    let is_name = |name: &&str| !name.is_empty() && name.chars().all(char::is_alphanumeric);
    let named = told.split_once(": ").filter(|(name, _)| is_name(name));
    let (name, value) = named.unwrap_or(("Error", told));
    Exception {
        name: name.to_owned(),
        value: value.to_owned(),
        traceback: thrown.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_javascript_throws_is_an_exception() {
        for (text, name, value) in [
            (
                "Uncaught TypeError: no\n    at f (cell-1.js:1:1)\n",
                "TypeError",
                "no",
            ),
            ("Uncaught { a: 1 }\n", "Error", "{ a: 1 }"),
            ("Uncaught 5\n", "Error", "5"),
        ] {
            let mut filter = Filter::new(Language::Javascript);
            assert_eq!(filter.push(&format!("warning\n{text}")), "warning\n");
            let exception = filter.exception().unwrap();
            assert_eq!((exception.name.as_str(), exception.value.as_str()), (name, value));
        }
    }

    const TRACEBACK: &str = "Traceback (most recent call last):\n  File \"<cell 1>\", line 1, in <module>\n    1/0\n    ~^~\n\
        ZeroDivisionError: division by zero\n";

    #[test]
    fn a_traceback_is_told_from_what_is_before_it_however_it_arrives() {
        let whole = format!("warning\n  indented\n{TRACEBACK}");
        for size in [1, 5, 1000] {
            let mut filter = Filter::new(Language::Python);
            let pieces = whole.as_bytes().chunks(size);
            let told: String = pieces
                .map(|piece| filter.push(std::str::from_utf8(piece).unwrap()))
                .collect();
            assert_eq!(told, "warning\n  indented\n", "{size}");
            let exception = filter.exception().unwrap();
            assert_eq!(exception.name, "ZeroDivisionError");
            assert_eq!(exception.value, "division by zero");
            assert_eq!(exception.traceback, TRACEBACK.trim_end());
        }
    }

    #[test]
    fn errors_of_syntax_and_errors_without_a_value_are_exceptions() {
        let exception = |text: &str| {
            let mut filter = Filter::new(Language::Python);
            assert_eq!(filter.push(text), "");
            let exception = filter.exception().unwrap();
            (exception.name, exception.value)
        };
        let told = exception("  File \"<cell 2>\", line 1\n    a b\n    ^^^\nSyntaxError: invalid syntax\n");
        assert_eq!(told, ("SyntaxError".to_owned(), "invalid syntax".to_owned()));
        let told =
            exception("Traceback (most recent call last):\n  File \"<cell 3>\", line 1, in f\na.b.Odd\n");
        assert_eq!(told, ("Odd".to_owned(), String::new()));
        let told =
            exception("Traceback (most recent call last):\n  File \"<cell 3>\", line 1, in f\nE: one\ntwo\n");
        assert_eq!(told, ("E".to_owned(), "one\ntwo".to_owned()));
    }

    #[test]
    fn text_that_is_no_exception_is_released() {
        let mut filter = Filter::new(Language::Python);
        assert_eq!(filter.push("Traceback (most"), "");
        assert_eq!(filter.push(" of it)\n"), "Traceback (most of it)\n");
        assert_eq!(filter.push("Traceback (most recent call last):\n"), "");
        assert!(filter.exception().is_none());
        assert_eq!(filter.release(), "Traceback (most recent call last):\n");
        filter.push("Traceback (most recent call last):\n");
        assert!(filter.push(&"x".repeat(MAX)).len() > MAX);
    }
}
