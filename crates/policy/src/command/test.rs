//! `test` and `[`, whose words may come from variables.
//!
//! Only `-v` and `-R` do more than look: bash evaluates the index in `-v 'a[$(id)]'`. An unknown word must
//! therefore never stand where bash looks for an operator. With one word there is none; with two it is the
//! first; with three it is the second, if it is a binary operator (so POSIX, and so bash). A leading `!` is
//! skipped; `-a` and `-o` are refused together with unknown words.

use super::analysis::Analysis;
use super::effect::Effect;
use crate::shell::{Form, Piece, Word};

const UNARY: &str = "abcdefghknprstuwxzGLNOS";
const BINARY: &[&str] = &[
    "=", "==", "!=", "<", ">", "-nt", "-ot", "-ef", "-eq", "-ne", "-lt", "-le", "-gt", "-ge",
];

pub(super) fn check(args: &[Word], title: &str, analysis: &mut Analysis) {
    let args = match (title, args.split_last()) {
        ("[", Some((last, rest))) if last.text == "]" => rest,
        _ => args,
    };
    if args.iter().all(|word| word.literal().is_some()) {
        if args.iter().any(|word| matches!(word.text.as_str(), "-v" | "-R")) {
            analysis.add(Effect::Code, format!("{title}: an index in the name is computed"));
        }
        return;
    }
    let args = match args.split_first() {
        Some((not, rest)) if not.text == "!" => rest,
        _ => args,
    };
    let harmless = match args {
        [only] => is_one(only),
        [operator, operand] => is_unary(operator) && is_one(operand),
        [left, operator, right] => BINARY.contains(&operator.text.as_str()) && is_one(left) && is_one(right),
        _ => false,
    };
    if !harmless {
        analysis.add(
            Effect::Unknown,
            format!("{title}: what is not known beforehand could become an operator"),
        );
    }
}

fn is_unary(word: &Word) -> bool {
    let letter = word.text.strip_prefix('-');
    letter.is_some_and(|letter| letter.len() == 1 && UNARY.contains(letter))
}

/// Returns `true` if the shell makes exactly one word of it.
fn is_one(word: &Word) -> bool {
    word.pieces.iter().all(|piece| match piece {
        Piece::Literal(_) | Piece::Home(_) => true,
        Piece::Variable(variable) => match variable.form {
            // All arguments, each as a word of its own.
            Form::Quoted => variable.name != "@",
            Form::Split | Form::Changed => variable.is_number(),
        },
        Piece::Glob(_) | Piece::Commands(_) | Piece::Process { .. } | Piece::Braces(_) => false,
    })
}
