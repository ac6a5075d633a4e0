//! Options that confine a program with a language of its own.
//!
//! Scripts in such a language are parsed here as well, but another program's reading of them is never
//! certain: GNU sed ended a label where our parser did not, and a command ran. So the program itself gets an
//! option that makes it refuse, and a program without such an option goes to review.

use super::analysis::{Analysis, Forced};
use super::effect::Effect;
use super::table::{Confined, Entry};
use crate::shell::Word;

/// Records the command's confining option, or that it cannot be inserted. `name` is the last word of the
/// command's name.
pub(super) fn confine(entry: &Entry, title: &str, name: &Word, analysis: &mut Analysis) {
    let words = match entry.confined {
        Confined::Not => return,
        Confined::By(words) => Some(words),
        Confined::ByMake => {
            let known = analysis
                .confinements
                .iter()
                .find(|known| known.program == entry.path[0]);
            known.map(|known| known.words)
        }
    };
    match (words, name.end.filter(|_| !analysis.quoted)) {
        (Some(words), Some(at)) => {
            let forced = Forced {
                at,
                words: words.to_owned(),
            };
            if !analysis.forced.contains(&forced) {
                analysis.forced.push(forced);
            }
        }
        (Some(words), None) => analysis.add(
            Effect::Unknown,
            format!("{title}: `{words}` cannot be added to it here"),
        ),
        (None, _) => analysis.add(
            Effect::Unknown,
            format!(
                "{title}: it has a language of its own, and this machine's has no option that confines it"
            ),
        ),
    }
}

/// Returns the line with the options inserted.
pub(crate) fn with(line: &str, forced: &[Forced]) -> String {
    let mut forced: Vec<&Forced> = forced.iter().collect();
    forced.sort();
    forced.dedup();
    let mut forced = forced.into_iter().peekable();
    let mut text = String::with_capacity(line.len());
    for (at, character) in line.chars().chain(std::iter::once('\n')).enumerate() {
        while let Some(next) = forced.next_if(|next| next.at == at) {
            text.push(' ');
            text.push_str(&next.words);
        }
        text.push(character);
    }
    text.pop();
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_put_behind_the_program() {
        let forced = |at, words: &str| Forced {
            at,
            words: words.to_owned(),
        };
        assert_eq!(with("sed p", &[forced(3, "-s")]), "sed -s p");
        assert_eq!(with("é|sed", &[forced(5, "-s")]), "é|sed -s");
        let twice = [forced(9, "-s"), forced(3, "-s"), forced(3, "-s")];
        assert_eq!(with("sed p|sed q", &twice), "sed -s p|sed -s q");
        assert_eq!(with("sed p\n", &[]), "sed p\n");
    }
}
