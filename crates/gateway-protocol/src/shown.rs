//! Renders untrusted text for a person.

use std::collections::BTreeSet;

use ringfence_records::approval::{Kind, Request};
use serde::Serialize;

/// Maximum number of listed non-ASCII characters.
const MAX_FOREIGN: usize = 8;

/// Escapes line breaks, control sequences, and invisible and bidirectional characters: messages quote names
/// that others chose.
pub fn visible(text: &str) -> String {
    text.chars().map(escaped_if(is_hidden)).collect()
}

/// Maximum length of a question in a single line, in characters.
const MAX_LINE: usize = 300;

/// Renders a question in one line, for a person who must answer it elsewhere. The agent's text comes last,
/// behind a bar. It cannot imitate Ringfence's words, since none follow it. An answer is offered only where the
/// whole text is shown.
pub fn waiting(request: &Request) -> String {
    // In one line, what follows a comment must not look like a part of it.
    let mut text = match &request.kind {
        // JSON that we wrote: its strings have no line breaks.
        Kind::Skill { .. } => lines(&request.text)
            .iter()
            .map(|line| line.trim_start())
            .collect::<Vec<_>>()
            .join(" "),
        Kind::Command { .. } | Kind::SoftTimeout { .. } => lines(&request.text).join("\\u{a}"),
    };
    let id = &request.id;
    let mut answer = format!("`ringfence approvals approve {id}`, or `ringfence approvals deny {id}`");
    if let Some((end, _)) = text.char_indices().nth(MAX_LINE) {
        text.truncate(end);
        text.push('…');
        answer = format!("`ringfence approvals ls` shows the whole text, as {id}");
    }
    format!(
        "{} waits for your answer ({answer}): | {text}",
        what(&request.kind)
    )
}

/// Names a question's kind, with the risk and the directory of a command.
fn what(kind: &Kind) -> String {
    match kind {
        Kind::Command { risk, place, .. } => {
            let risk = risk.map_or_else(String::new, |risk| format!(" of risk {risk}"));
            let directory = match place.directory.as_str() {
                "" => String::new(),
                directory => format!(" in {}", visible(directory)),
            };
            format!("a command{risk}{directory}")
        }
        Kind::SoftTimeout { .. } => "a tool at its time limit".to_owned(),
        Kind::Skill { .. } => "a call of a skill".to_owned(),
    }
}

/// Renders a text that needs a decision: its lines, and a warning about characters that resemble plain
/// letters.
pub fn decidable(text: &str) -> Vec<String> {
    let mut shown = lines(text);
    shown.extend(foreign(text));
    shown
}

/// Renders a text that needs a decision with a bar before each line, and our warning with another sign: no
/// text can imitate the warning.
pub fn framed(text: &str) -> String {
    let lines = lines(text).into_iter().map(|line| format!("    | {line}\n"));
    lines
        .chain(foreign(text).map(|note| format!("    ! {note}\n")))
        .collect()
}

/// Splits a text that needs a decision into lines, escaping invisible characters and anything that resembles
/// our own escapes.
///
/// Long runs of blanks and of empty lines are folded: they would push the rest off the screen.
pub fn lines(text: &str) -> Vec<String> {
    let shown: String = runs(text)
        .into_iter()
        .map(|(run, note)| note.unwrap_or_else(|| run.split('\n').map(line).collect::<Vec<_>>().join("\n")))
        .collect();
    shown.split('\n').map(str::to_owned).collect()
}

/// Maximum number of consecutive blanks, and of line breaks, that are shown as is.
const MAX_BLANKS: usize = 16;
const MAX_LINES: usize = 3;

/// Splits a text at runs of blanks and line breaks, with a note that replaces each run that is too long.
fn runs(text: &str) -> Vec<(&str, Option<String>)> {
    let blank = |c: char| c == ' ' || c == '\n';
    let mut runs = Vec::new();
    let mut rest = text;
    while !rest.is_empty() {
        let is_blank = rest.starts_with(blank);
        let end = rest.find(|c| blank(c) != is_blank).unwrap_or(rest.len());
        let (run, behind) = rest.split_at(end);
        let ends = run.matches('\n').count();
        let blanks = run.len() - ends;
        let indent = run.rsplit('\n').next().unwrap_or_default().len();
        let is_indent = ends > 0 && ends <= MAX_LINES && indent == blanks && blanks <= MAX_INDENT;
        let is_much = is_blank && !is_indent && (blanks > MAX_BLANKS || ends > MAX_LINES);
        let note = is_much.then(|| match ends {
            0 => format!(" \\u{{20}}[{blanks} blanks] "),
            _ => format!("\n\\u{{a}}[{ends} ends of lines, {blanks} blanks]\n"),
        });
        runs.push((run, note));
        rest = behind;
    }
    runs
}

/// Maximum indentation of a line.
const MAX_INDENT: usize = 60;

fn line(text: &str) -> String {
    let escape = escaped_if(unseen);
    let shown = text.char_indices().map(|(at, c)| {
        if text[at..].starts_with("\\u{") {
            c.escape_unicode().to_string()
        } else {
            escape(c)
        }
    });
    shown.collect()
}

/// Part of a text that needs a decision.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Piece {
    /// Text as written; lines end with `\n`.
    Plain(String),
    /// Escape of an invisible character.
    Escape(String),
}

/// Splits a text that needs a decision into visible text and escapes.
pub fn pieces(text: &str) -> Vec<Piece> {
    let mut pieces = Vec::new();
    for (run, note) in runs(text) {
        if let Some(note) = note {
            pieces.push(Piece::Escape(note));
            continue;
        }
        for c in run.chars() {
            match pieces.last_mut() {
                _ if unseen(c) && c != '\n' => pieces.push(Piece::Escape(c.escape_unicode().to_string())),
                Some(Piece::Plain(plain)) => plain.push(c),
                Some(Piece::Escape(_)) | None => pieces.push(Piece::Plain(c.to_string())),
            }
        }
    }
    pieces
}

/// Renders a warning that lists non-ASCII characters, if any: some resemble plain letters.
pub fn foreign(text: &str) -> Option<String> {
    let foreign: BTreeSet<char> = text.chars().filter(|c| !c.is_ascii()).collect();
    let escape = escaped_if(unseen);
    let named: Vec<String> = foreign
        .iter()
        .take(MAX_FOREIGN)
        .map(|c| format!("{} U+{:04X}", escape(*c), u32::from(*c)))
        .collect();
    let more = match foreign.len().saturating_sub(MAX_FOREIGN) {
        0 => String::new(),
        more => format!(" and {more} more"),
    };
    (!named.is_empty()).then(|| format!("(not plain ASCII: {}{more})", named.join(", ")))
}

/// Renders a remaining time: `4m 59s`.
pub fn remaining(seconds: u64) -> String {
    match (seconds / 60, seconds % 60) {
        (0, seconds) => format!("{seconds}s"),
        (minutes, seconds) => format!("{minutes}m {seconds:02}s"),
    }
}

fn escaped_if(hides: fn(char) -> bool) -> impl Fn(char) -> String {
    move |c| {
        if hides(c) {
            c.escape_unicode().to_string()
        } else {
            c.to_string()
        }
    }
}

/// Returns `true` for characters that control a terminal, reorder text or are invisible.
pub fn is_hidden(c: char) -> bool {
    c.is_control()
        || matches!(
            c,
            '\u{ad}' | '\u{34f}' | '\u{61c}' | '\u{115f}' | '\u{1160}' | '\u{17b4}' | '\u{17b5}'
        )
        || matches!(c, '\u{180b}'..='\u{180f}' | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}')
        || matches!(
            c,
            '\u{2060}'..='\u{206f}' | '\u{2800}' | '\u{3164}' | '\u{feff}' | '\u{ffa0}'
        )
        || matches!(c, '\u{fff0}'..='\u{fffb}' | '\u{1bca0}'..='\u{1bca3}' | '\u{1d173}'..='\u{1d17a}')
        || matches!(c, '\u{e0000}'..='\u{e0fff}')
}

/// Returns `true` for invisible characters, including those that look like a space.
fn unseen(c: char) -> bool {
    is_hidden(c)
        || matches!(
            c,
            '\u{a0}' | '\u{1680}' | '\u{2000}'..='\u{200a}' | '\u{202f}' | '\u{205f}' | '\u{3000}'
        )
        || matches!(c, '\u{fe00}'..='\u{fe0f}')
}

#[cfg(test)]
mod tests {
    use ringfence_records::approval::{Chat, CommandContext, Lasting, State};

    use super::*;

    #[test]
    fn nothing_in_a_text_to_decide_about_is_invisible_or_passes_for_something_else() {
        let check = |text: &str, expected: &[&str]| assert_eq!(decidable(text), expected, "{text:?}");
        check("ls -l", &["ls -l"]);
        check("a\nb\r", &["a", "b\\u{d}"]);
        check("a\\u{d} \\n", &["a\\u{5c}u{d} \\n"]);
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

    fn asking(text: &str) -> Request {
        Request {
            id: format!("apr_{}", "0".repeat(32)).parse().unwrap(),
            kind: Kind::Command {
                reasons: Vec::new(),
                risk: None,
                lasting: Lasting::Never,
                place: CommandContext::default(),
            },
            text: text.to_owned(),
            scope: String::new(),
            session: None,
            chat: Chat::local(),
            asker: String::new(),
            created: 0,
            expires: 0,
            state: State::Pending,
            by: None,
            ended: None,
        }
    }

    #[test]
    fn an_answer_is_offered_only_where_the_whole_text_is_shown() {
        let told = |text: &str| waiting(&asking(text));
        assert!(told("ls").ends_with("`): | ls") && told("ls").contains("approvals approve "));
        assert!(told("ls # a\ntouch x").ends_with("| ls # a\\u{a}touch x"));
        assert!(told("ls\u{a0}x\u{fe0f}").ends_with("| ls\\u{a0}x\\u{fe0f}"));
        let long = told(&format!("ls {} touch x", "a ".repeat(MAX_LINE)));
        assert!(!long.contains("approvals approve ") && long.contains("`ringfence approvals ls`"));
    }

    #[test]
    fn a_command_is_named_with_its_risk_and_directory() {
        let command = Kind::Command {
            reasons: Vec::new(),
            risk: Some(6),
            lasting: Lasting::Never,
            place: CommandContext {
                directory: "/work\u{1b}".to_owned(),
                ..CommandContext::default()
            },
        };
        assert_eq!(what(&command), "a command of risk 6 in /work\\u{1b}");
    }

    #[test]
    fn blanks_push_nothing_off_the_screen() {
        let blanks = " ".repeat(6_000);
        assert_eq!(
            lines(&format!("ls{blanks}; rm x")),
            ["ls \\u{20}[6000 blanks] ; rm x"]
        );
        let empty = "\n".repeat(3_001);
        let note = "\\u{a}[3001 ends of lines, 0 blanks]";
        assert_eq!(lines(&format!("ls{empty}rm x")), ["ls", note, "rm x"]);
        let mixed = " \n".repeat(2_000);
        assert_eq!(lines(&format!("ls{mixed}rm x")).len(), 3);
        assert_eq!(lines(&format!("ls\n{blanks}rm x")).len(), 3);
        // Ordinary indentation.
        let written = "if x\n\n                        y\n";
        assert_eq!(lines(written).join("\n"), written);
        // No text can imitate the note.
        assert_eq!(lines("\\u{20}[9 blanks]"), ["\\u{5c}u{20}[9 blanks]"]);
        let escape = Piece::Escape(" \\u{20}[6000 blanks] ".to_owned());
        assert_eq!(pieces(&format!("ls{blanks}x"))[1], escape);
    }

    #[test]
    fn a_text_cannot_pass_for_our_note_of_it() {
        let note = "(not plain ASCII: a U+0061)";
        assert_eq!(
            framed(&format!("ls\n{note}")),
            format!("    | ls\n    | {note}\n")
        );
        assert_eq!(
            framed("l\u{455}\n! (none)"),
            "    | l\u{455}\n    | ! (none)\n    ! (not plain ASCII: \u{455} U+0455)\n"
        );
    }

    #[test]
    fn the_pieces_of_a_text_are_its_lines() {
        let escape = |text: &str| Piece::Escape(text.to_owned());
        let plain = |text: &str| Piece::Plain(text.to_owned());
        for (text, expected) in [
            ("", vec![]),
            ("a\nb", vec![plain("a\nb")]),
            (
                "\u{202e}a\r\u{200b}\n",
                vec![
                    escape("\\u{202e}"),
                    plain("a"),
                    escape("\\u{d}"),
                    escape("\\u{200b}"),
                    plain("\n"),
                ],
            ),
        ] {
            assert_eq!(pieces(text), expected, "{text:?}");
            let joined: String = expected
                .iter()
                .map(|(Piece::Plain(text) | Piece::Escape(text))| text.as_str())
                .collect();
            assert_eq!(joined, lines(text).join("\n"));
        }
    }

    #[test]
    fn control_characters_are_shown_not_sent() {
        assert_eq!(visible("a\u{1b}[2Jb\nc"), "a\\u{1b}[2Jb\\u{a}c");
        assert_eq!(visible("naïve"), "naïve");
        assert_eq!(visible("a\u{3164}\u{e0100}"), "a\\u{3164}\\u{e0100}");
    }

    #[test]
    fn times_are_read_at_a_glance() {
        assert_eq!([0, 59, 60, 299].map(remaining), ["0s", "59s", "1m 00s", "4m 59s"]);
    }
}
