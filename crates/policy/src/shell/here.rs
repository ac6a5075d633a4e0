//! Parses here documents.

use super::cursor::{Cursor, Pending};
use super::{Piece, Unclear, Word, word};

/// Parses `<<END` or `<<-END`, after the operator.
pub(super) fn announce(cursor: &mut Cursor, strip_tabs: bool) -> Result<Word, Unclear> {
    cursor.skip_blanks();
    let word = word::word(cursor)?;
    let Some(end) = word
        .literal()
        .filter(|end| !end.is_empty() && !end.contains('\n'))
    else {
        return Err(cursor.unsupported("this end of a here document"));
    };
    let expands = end == word.text;
    cursor.pending.push(Pending {
        end,
        expands,
        strip_tabs,
    });
    Ok(Word {
        pieces: vec![Piece::Literal(String::new())],
        text: word.text,
        end: None,
    })
}

/// Parses the bodies that follow a newline.
pub(super) fn bodies(cursor: &mut Cursor) -> Result<(), Unclear> {
    if cursor.pending.is_empty() {
        return Ok(());
    }
    if cursor.substitutions > 0 {
        return Err(cursor.unsupported("a here document around a substitution"));
    }
    for pending in std::mem::take(&mut cursor.pending) {
        let text = body(cursor, &pending)?;
        if pending.expands {
            let mut inner = cursor.within(&text);
            let word = word::body(&mut inner)?;
            cursor.account(&inner);
            cursor.here.push(word);
        }
    }
    Ok(())
}

fn body(cursor: &mut Cursor, pending: &Pending) -> Result<String, Unclear> {
    let mut text = String::new();
    loop {
        if cursor.peek().is_none() {
            return Err(cursor.syntax("a here document does not end"));
        }
        let line = cursor.rest_of_line();
        cursor.take('\n');
        let shown = match pending.strip_tabs {
            true => line.trim_start_matches('\t'),
            false => &line,
        };
        if shown == pending.end {
            return Ok(text);
        }
        text.push_str(shown);
        text.push('\n');
    }
}
