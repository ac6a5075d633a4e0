//! Options that confine a program with a language of its own.
//!
//! A text in such a language is read here as well, but what another program makes of it is never known for certain: GNU sed
//! ends a label where we did not, and a command ran. So the program itself is told to refuse what it must not do, and where
//! it cannot be told, a person is asked.

use super::effect::{Effect, Found};
use super::table::{Confined, Entry};
use crate::shell::Word;

/// An option that a program of the line gets when the policy lets it run.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Forced {
    /// The place in the line, in characters, behind the program or its subcommand.
    pub at: usize,
    /// The words that are put there.
    pub words: String,
}

/// A program of which there are several makes, and how the one of this machine is confined.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Confinement {
    /// The name of the program.
    pub program: &'static str,
    /// The words that confine it.
    pub words: &'static str,
}

/// Notes the option of a command, or that it cannot be forced. `name` is the last word that names the command.
pub(super) fn confine(entry: &Entry, title: &str, name: &Word, found: &mut Found) {
    let words = match entry.confined {
        Confined::Not => return,
        Confined::By(words) => Some(words),
        Confined::ByMake => {
            let known = found
                .confinements
                .iter()
                .find(|known| known.program == entry.path[0]);
            known.map(|known| known.words)
        }
    };
    match (words, name.end.filter(|_| !found.quoted)) {
        (Some(words), Some(at)) => {
            let forced = Forced {
                at,
                words: words.to_owned(),
            };
            if !found.forced.contains(&forced) {
                found.forced.push(forced);
            }
        }
        (Some(words), None) => found.add(
            Effect::Unknown,
            format!("{title}: `{words}` cannot be added to it here"),
        ),
        (None, _) => found.add(
            Effect::Unknown,
            format!(
                "{title}: it has a language of its own, and this machine's has no option that confines it"
            ),
        ),
    }
}

/// The line with the options in it.
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
