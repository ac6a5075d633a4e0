//! The text format of Prometheus, version 0.0.4.

use std::fmt::{Display, Write as _};

/// Media type of the format.
pub(crate) const MEDIA: &str = "text/plain; version=0.0.4; charset=utf-8";

/// Figures as text, family by family.
#[derive(Debug, Default)]
pub(super) struct Text(String);

/// The type of a family.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    Counter,
    Gauge,
    Histogram,
}

/// A label of a sample.
#[derive(Debug, Clone, Copy)]
pub(super) struct Label<'a> {
    name: &'static str,
    value: &'a str,
}

impl<'a> Label<'a> {
    pub(super) const fn new(name: &'static str, value: &'a str) -> Self {
        Self { name, value }
    }
}

impl Text {
    /// Begins a family: its samples follow.
    pub(super) fn family(&mut self, name: &str, kind: Kind, help: &str) {
        let kind = match kind {
            Kind::Counter => "counter",
            Kind::Gauge => "gauge",
            Kind::Histogram => "histogram",
        };
        // Writing to a string never fails.
        let _ = writeln!(self.0, "# HELP {name} {help}\n# TYPE {name} {kind}");
    }

    /// Adds a sample.
    pub(super) fn sample(&mut self, name: &str, labels: &[Label<'_>], value: impl Display) {
        self.0.push_str(name);
        for (at, Label { name, value }) in labels.iter().enumerate() {
            let before = if at == 0 { '{' } else { ',' };
            let value = value
                .replace('\\', "\\\\")
                .replace('"', "\\\"")
                .replace('\n', "\\n");
            let _ = write!(self.0, "{before}{name}=\"{value}\"");
        }
        let after = if labels.is_empty() { "" } else { "}" };
        let _ = writeln!(self.0, "{after} {value}");
    }

    pub(super) fn into_string(self) -> String {
        self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_label_does_not_end_its_sample() {
        let mut text = Text::default();
        text.family("a_total", Kind::Counter, "Things.");
        text.sample(
            "a_total",
            &[Label::new("of", "x\"} 1\ny\\"), Label::new("in", "")],
            7,
        );
        text.sample("a_total", &[], 1.5);
        assert_eq!(
            text.into_string(),
            "# HELP a_total Things.\n# TYPE a_total counter\na_total{of=\"x\\\"} 1\\ny\\\\\",in=\"\"} 7\na_total 1.5\n"
        );
    }
}
