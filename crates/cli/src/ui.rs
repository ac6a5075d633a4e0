//! The only place that writes to the terminal.

use std::collections::BTreeSet;
use std::io::{self, IsTerminal, Write};

use crate::args::ColorChoice;
use crate::env::Environment;

/// How messages look, and where they go.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Ui {
    color: Color,
}

/// Whether messages are coloured.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Color {
    On,
    Off,
}

/// What a word in a report says of its line.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Tone {
    /// All is well.
    Good,
    /// Something is wrong.
    Bad,
    /// Something can be done.
    Hint,
    /// Nothing of these.
    Plain,
}

const RED: &str = "\x1b[1;31m";
const YELLOW: &str = "\x1b[1;33m";
const CYAN: &str = "\x1b[36m";
const GREEN: &str = "\x1b[32m";
const RESET: &str = "\x1b[0m";

impl Ui {
    /// The choice of `--color`, `NO_COLOR` and the terminal.
    pub(crate) fn new(choice: ColorChoice, environment: &Environment) -> Self {
        let color = match choice {
            ColorChoice::Always => Color::On,
            ColorChoice::Never => Color::Off,
            ColorChoice::Auto => {
                let plain = environment.get("NO_COLOR").is_some() || environment.text("TERM") == Some("dumb");
                if !plain && io::stderr().is_terminal() {
                    Color::On
                } else {
                    Color::Off
                }
            }
        };
        Self { color }
    }

    /// Writes to standard output, as it is.
    pub(crate) fn out(self, bytes: impl AsRef<[u8]>) -> io::Result<()> {
        let mut out = io::stdout().lock();
        out.write_all(bytes.as_ref())?;
        out.flush()
    }

    /// Writes to standard error, as it is.
    pub(crate) fn err(self, bytes: impl AsRef<[u8]>) -> io::Result<()> {
        io::stderr().lock().write_all(bytes.as_ref())
    }

    /// `error: …`
    pub(crate) fn error(self, message: &str) {
        self.labelled("error", RED, message);
    }

    /// `warning: …`
    pub(crate) fn warn(self, message: &str) {
        self.labelled("warning", YELLOW, message);
    }

    /// `hint: …`
    pub(crate) fn hint(self, message: &str) {
        self.labelled("hint", CYAN, message);
    }

    /// A word of a report, in the colour of its tone.
    pub(crate) fn toned(self, text: &str, tone: Tone) -> String {
        match tone {
            Tone::Good => self.paint(text, GREEN),
            Tone::Bad => self.paint(text, RED),
            Tone::Hint => self.paint(text, CYAN),
            Tone::Plain => text.to_owned(),
        }
    }

    fn labelled(self, label: &str, color: &str, message: &str) {
        // There is nobody left to tell if standard error is closed.
        let _ = self.err(format!("{}: {}\n", self.paint(label, color), visible(message)));
    }

    fn paint(self, text: &str, color: &str) -> String {
        match self.color {
            Color::On => format!("{color}{text}{RESET}"),
            Color::Off => text.to_owned(),
        }
    }
}

/// `text` on one line and without terminal control sequences: messages quote names that others chose.
pub(crate) fn visible(text: &str) -> String {
    let hidden = |c: char| {
        c.is_control()
            || matches!(c, '\u{ad}' | '\u{61c}' | '\u{180e}' | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}')
            || matches!(c, '\u{2060}'..='\u{206f}' | '\u{feff}' | '\u{fff9}'..='\u{fffb}' | '\u{e0000}'..='\u{e007f}')
    };
    text.chars()
        .map(|c| {
            if hidden(c) {
                c.escape_unicode().to_string()
            } else {
                c.to_string()
            }
        })
        .collect()
}

/// The lines of a text that a person decides about, each visible, and a note of what only looks like plain letters.
pub(crate) fn decidable(text: &str) -> Vec<String> {
    let blank = |c: char| {
        matches!(
            c,
            '\u{a0}' | '\u{34f}' | '\u{115f}' | '\u{1160}' | '\u{17b4}' | '\u{17b5}' | '\u{2000}'
                ..='\u{200a}'
        ) || matches!(
            c,
            '\u{202f}' | '\u{205f}' | '\u{2800}' | '\u{3000}' | '\u{3164}' | '\u{ffa0}'
        ) || matches!(c, '\u{180b}'..='\u{180f}' | '\u{fe00}'..='\u{fe0f}' | '\u{e0080}'..='\u{e0fff}')
    };
    let escaped = |c: char| match c {
        c if blank(c) => c.escape_unicode().to_string(),
        c => visible(c.encode_utf8(&mut [0; 4])),
    };
    let mut lines: Vec<String> = text
        .split('\n')
        .map(|line| line.chars().map(escaped).collect())
        .collect();
    let foreign: BTreeSet<char> = text.chars().filter(|c| !c.is_ascii()).collect();
    if !foreign.is_empty() {
        let shown = foreign.iter().take(MAX_FOREIGN);
        let named: Vec<String> = shown
            .map(|c| format!("{} U+{:04X}", escaped(*c), u32::from(*c)))
            .collect();
        let more = foreign.len().saturating_sub(MAX_FOREIGN);
        let more = if more > 0 {
            format!(" and {more} more")
        } else {
            String::new()
        };
        lines.push(format!("(not plain ASCII: {}{more})", named.join(", ")));
    }
    lines
}

/// How many characters beyond ASCII are named.
const MAX_FOREIGN: usize = 8;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn colours_obey_the_flag_and_the_variable() {
        let painted = |choice, environment: &Environment| Ui::new(choice, environment).color;
        let no_color = Environment::from([("NO_COLOR", "1")]);
        assert_eq!(painted(ColorChoice::Always, &no_color), Color::On);
        assert_eq!(painted(ColorChoice::Auto, &no_color), Color::Off);
        assert_eq!(painted(ColorChoice::Never, &Environment::default()), Color::Off);
    }

    #[test]
    fn nothing_in_a_text_to_decide_about_is_invisible_or_passes_for_something_else() {
        let check = |text: &str, expected: &[&str]| assert_eq!(decidable(text), expected, "{text:?}");
        check("ls -l", &["ls -l"]);
        check("a\nb\r", &["a", "b\\u{d}"]);
        check("rm\u{a0}x", &["rm\\u{a0}x", "(not plain ASCII: \\u{a0} U+00A0)"]);
        check(
            "\u{202e}x",
            &["\\u{202e}x", "(not plain ASCII: \\u{202e} U+202E)"],
        );
        check("l\u{455}", &["l\u{455}", "(not plain ASCII: \u{455} U+0455)"]);
        check(
            "\u{3164}\u{fe0f}",
            &[
                "\\u{3164}\\u{fe0f}",
                "(not plain ASCII: \\u{3164} U+3164, \\u{fe0f} U+FE0F)",
            ],
        );
    }

    #[test]
    fn control_characters_are_shown_not_sent() {
        assert_eq!(visible("a\u{1b}[2Jb\nc"), "a\\u{1b}[2Jb\\u{a}c");
        assert_eq!(visible("naïve"), "naïve");
    }
}
