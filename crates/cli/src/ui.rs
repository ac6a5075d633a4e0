//! Output to the terminal; no other module writes there.

use std::io::{self, IsTerminal, Write};

pub(crate) use ringfence_gateway_protocol::{table, visible};

use ringfence::env::Environment;
use ringfence_args::ColorChoice;
use ringfence_gateway_protocol::is_hidden;
use serde::Serialize;

/// Style and destination of messages.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Ui {
    /// For standard error.
    color: Color,
    /// For standard output.
    output: Color,
}

/// Colour setting of messages.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Color {
    On,
    Off,
}

/// The tone of a word in a report.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Tone {
    /// Success.
    Good,
    /// Failure.
    Bad,
    /// An action to take.
    Hint,
    /// Neutral.
    Plain,
}

/// Renders a value as indented JSON, and a line break. What controls a terminal or cannot be seen is escaped in its strings,
/// which may be a guest's, a package's or an image's: parsed, they are the same.
pub(crate) fn json(value: &(impl Serialize + ?Sized)) -> serde_json::Result<String> {
    Ok(ascii_where_hidden(&serde_json::to_string_pretty(value)?) + "\n")
}

/// Renders a value as JSON on one line, escaped as by [`json`].
pub(crate) fn json_line(value: &serde_json::Value) -> String {
    ascii_where_hidden(&value.to_string()) + "\n"
}

/// Escapes hidden characters of a JSON text as `\uXXXX`. Its line breaks are layout: those of strings are escaped already.
fn ascii_where_hidden(json: &str) -> String {
    let mut escaped = String::with_capacity(json.len());
    for c in json.chars() {
        if c == '\n' || !is_hidden(c) {
            escaped.push(c);
            continue;
        }
        for unit in c.encode_utf16(&mut [0; 2]) {
            escaped.push_str(&format!("\\u{unit:04x}"));
        }
    }
    escaped
}

const RED: &str = "\x1b[1;31m";
const YELLOW: &str = "\x1b[1;33m";
const CYAN: &str = "\x1b[36m";
const GREEN: &str = "\x1b[32m";
const RESET: &str = "\x1b[0m";

impl Ui {
    /// Applies `--color`, `NO_COLOR` and the kind of terminal.
    pub(crate) fn new(choice: ColorChoice, environment: &Environment) -> Self {
        let plain = environment.get("NO_COLOR").is_some() || environment.text("TERM") == Some("dumb");
        let color_of = |is_terminal: bool| match choice {
            ColorChoice::Always => Color::On,
            ColorChoice::Auto if !plain && is_terminal => Color::On,
            ColorChoice::Auto | ColorChoice::Never => Color::Off,
        };
        Self {
            color: color_of(io::stderr().is_terminal()),
            output: color_of(io::stdout().is_terminal()),
        }
    }

    /// Renders a text of the command line's parser.
    pub(crate) fn styled(self, text: &clap::builder::StyledStr) -> String {
        match self.color {
            Color::On => text.ansi().to_string(),
            Color::Off => text.to_string(),
        }
    }

    /// Writes to standard output, unchanged.
    pub(crate) fn out(self, bytes: impl AsRef<[u8]>) -> io::Result<()> {
        let mut out = io::stdout().lock();
        out.write_all(bytes.as_ref())?;
        out.flush()
    }

    /// Writes a value to standard output as [`json`] renders it.
    pub(crate) fn json(self, value: &(impl Serialize + ?Sized)) -> io::Result<()> {
        self.out(json(value)?)
    }

    /// Writes to standard error, unchanged.
    pub(crate) fn err(self, bytes: impl AsRef<[u8]>) -> io::Result<()> {
        io::stderr().lock().write_all(bytes.as_ref())
    }

    /// Prints `error: …`.
    pub(crate) fn error(self, message: &str) {
        self.labelled("error", RED, message);
    }

    /// Prints `warning: …`.
    pub(crate) fn warn(self, message: &str) {
        self.labelled("warning", YELLOW, message);
    }

    /// Prints `note: …`.
    pub(crate) fn note(self, message: &str) {
        self.labelled("note", CYAN, message);
    }

    /// Prints `hint: …`.
    pub(crate) fn hint(self, message: &str) {
        self.labelled("hint", CYAN, message);
    }

    /// Colours a word of a report on standard output.
    pub(crate) fn toned(self, text: &str, tone: Tone) -> String {
        match tone {
            Tone::Good => painted(text, GREEN, self.output),
            Tone::Bad => painted(text, RED, self.output),
            Tone::Hint => painted(text, CYAN, self.output),
            Tone::Plain => text.to_owned(),
        }
    }

    fn labelled(self, label: &str, color: &str, message: &str) {
        // A closed standard error leaves nobody to notify.
        let _ = self.err(format!(
            "{}: {}\n",
            painted(label, color, self.color),
            visible(message)
        ));
    }
}

fn painted(text: &str, color: &str, wanted: Color) -> String {
    match wanted {
        Color::On => format!("{color}{text}{RESET}"),
        Color::Off => text.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn json_has_no_character_that_controls_a_terminal() {
        let name = "a\u{9b}31m\u{7f}\u{202e}\u{e0041}é\n";
        let text = json(&[name]).unwrap();
        assert_eq!(text, "[\n  \"a\\u009b31m\\u007f\\u202e\\udb40\\udc41é\\n\"\n]\n");
        assert_eq!(serde_json::from_str::<[String; 1]>(&text).unwrap(), [name]);
        assert_eq!(json_line(&"\u{9b}\n".into()), "\"\\u009b\\n\"\n");
    }

    #[test]
    fn colours_obey_the_flag_and_the_variable() {
        let painted = |choice, environment: &Environment| Ui::new(choice, environment).color;
        let no_color = Environment::from([("NO_COLOR", "1")]);
        assert_eq!(painted(ColorChoice::Always, &no_color), Color::On);
        assert_eq!(painted(ColorChoice::Auto, &no_color), Color::Off);
        assert_eq!(painted(ColorChoice::Never, &Environment::default()), Color::Off);
    }
}
