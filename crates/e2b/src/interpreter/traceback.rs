//! Tells the traceback of an execution that fails from the rest of its standard error.
//!
//! Python prints it there, and E2B's clients get it as an error with a name and a value. It is a guest's text: one that
//! looks like a traceback and is none misleads its own client alone.

/// Beginnings of the line at which a traceback begins. Errors of syntax have no other line first.
const BEGINNINGS: [&str; 2] = ["Traceback (most recent call last):", "  File \"<cell "];
/// Length of a text that is held back, in bytes.
const MAX: usize = 64 * 1024;

/// Standard error, of which a possible traceback is held back to the end.
#[derive(Debug, Default)]
pub(super) struct Filter {
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
                if BEGINNINGS.iter().any(|beginning| line.starts_with(beginning)) {
                    self.is_holding = true;
                    break;
                }
                if BEGINNINGS.iter().any(|beginning| beginning.starts_with(line)) {
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
        let lines: Vec<&str> = text.lines().collect();
        // Behind the last line of code.
        let at = lines.iter().rposition(|line| line.starts_with("  "))? + 1;
        let told = lines.get(at..)?.join("\n");
        let (name, value) = told.split_once(": ").unwrap_or((&told, ""));
        let name = name.rsplit('.').next().unwrap_or(name);
        if name.is_empty() || name.contains(char::is_whitespace) {
            return None;
        }
        let exception = Exception {
            name: name.to_owned(),
            value: value.to_owned(),
            traceback: text.to_owned(),
        };
        self.held.clear();
        Some(exception)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TRACEBACK: &str = "Traceback (most recent call last):\n  File \"<cell 1>\", line 1, in <module>\n    1/0\n    ~^~\n\
        ZeroDivisionError: division by zero\n";

    #[test]
    fn a_traceback_is_told_from_what_is_before_it_however_it_arrives() {
        let whole = format!("warning\n  indented\n{TRACEBACK}");
        for size in [1, 5, 1000] {
            let mut filter = Filter::default();
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
            let mut filter = Filter::default();
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
        let mut filter = Filter::default();
        assert_eq!(filter.push("Traceback (most"), "");
        assert_eq!(filter.push(" of it)\n"), "Traceback (most of it)\n");
        assert_eq!(filter.push("Traceback (most recent call last):\n"), "");
        assert!(filter.exception().is_none());
        assert_eq!(filter.release(), "Traceback (most recent call last):\n");
        filter.push("Traceback (most recent call last):\n");
        assert!(filter.push(&"x".repeat(MAX)).len() > MAX);
    }
}
