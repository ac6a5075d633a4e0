//! Expands words as far as the line determines them: loop variables, brace lists, substitutions that print
//! file names.
//!
//! Only arguments are expanded. A program whose name is computed stays unknown.

use crate::command::{INPUT, prints_ids, prints_names};
use crate::shell::{Form, Node, Piece, Simple, Variable, Word};

/// Most variants of one command, and most words that one word may expand to.
const MAX_VARIANTS: usize = 32;

/// Most words that expansion may add to a command.
const MAX_MORE: usize = 100;

/// Possible values of a loop variable.
#[derive(Debug, Clone)]
enum Value {
    /// One of these words.
    Words(Vec<Word>),
    /// File names that a command prints.
    Names,
    /// Numbers or hashes that a command prints.
    Ids,
    Unknown,
}

/// The variables of the enclosing loops.
#[derive(Debug, Clone, Default)]
pub(super) struct Scope(Vec<(String, Value)>);

impl Scope {
    /// Returns this scope extended by the variable of a loop over `words`.
    pub(super) fn with(&self, name: &str, words: &[Word], body: &[Node]) -> Self {
        let mut inner = self.clone();
        // A variable that is assigned a second time does not hold the loop's values.
        let twice = sets(body, name) || self.0.iter().any(|(known, _)| known == name);
        inner.0.retain(|(known, _)| known != name);
        let value = match twice {
            true => Value::Unknown,
            false => self.value(words),
        };
        inner.0.push((name.to_owned(), value));
        inner
    }

    fn value(&self, words: &[Word]) -> Value {
        if let [only] = words
            && let [Piece::Commands(body)] = only.pieces.as_slice()
        {
            match (prints_ids(body), prints_names(body)) {
                (true, _) => return Value::Ids,
                (false, true) => return Value::Names,
                (false, false) => {}
            }
        }
        let mut values = Vec::new();
        for word in words {
            for variant in self.variants(&[Word::default(), word.clone()]) {
                values.extend(variant.into_iter().skip(1));
            }
        }
        let known = |word: &Word| word.shape().is_some() && word.text != INPUT;
        match !values.is_empty() && values.len() <= MAX_VARIANTS && values.iter().all(known) {
            true => Value::Words(values),
            false => Value::Unknown,
        }
    }

    /// Returns every expansion of the words. The program name is never expanded.
    pub(super) fn variants(&self, words: &[Word]) -> Vec<Vec<Word>> {
        let Some((program, args)) = words.split_first() else {
            return vec![Vec::new()];
        };
        let used = |(name, value): &&(String, Value)| {
            matches!(value, Value::Words(_)) && args.iter().any(|word| uses(word, name))
        };
        let mut choices: Vec<Choice<'_>> = vec![Vec::new()];
        for (name, value) in self.0.iter().filter(used) {
            let Value::Words(values) = value else { continue };
            if choices.len() * values.len() > MAX_VARIANTS {
                break;
            }
            let pairs: Vec<Choice<'_>> = values.iter().map(|value| vec![(name.as_str(), value)]).collect();
            choices = product(&choices, &pairs);
        }
        let reading = |choice: &Choice<'_>| {
            let read: Vec<Word> = args.iter().flat_map(|word| self.words(word, choice)).collect();
            let read = match read.len() > args.len() + MAX_MORE {
                true => args.to_vec(),
                false => read,
            };
            std::iter::once(program.clone()).chain(read).collect()
        };
        choices.iter().map(reading).collect()
    }

    /// Expands one word; braces and loop values may yield several.
    fn words(&self, word: &Word, choice: &[(&str, &Word)]) -> Vec<Word> {
        if word.pieces.len() > MAX_VARIANTS || word.shape().is_some() {
            return vec![word.clone()];
        }
        let mut all: Vec<Vec<Piece>> = vec![Vec::new()];
        let mut splits = false;
        for piece in &word.pieces {
            let first = all.iter().all(|before| before.iter().all(is_empty));
            let alternatives = match piece {
                Piece::Braces(words) if !words.is_empty() && all.len() * words.len() <= MAX_VARIANTS => words
                    .iter()
                    .map(|text| vec![Piece::Literal(text.clone())])
                    .collect(),
                Piece::Variable(variable) => match self.variable(variable, choice, first) {
                    Known::Pieces(pieces) => vec![pieces],
                    Known::Split(pieces) => {
                        splits = true;
                        vec![pieces]
                    }
                },
                Piece::Commands(body) if prints_here(body) => vec![vec![Piece::Literal(".".to_owned())]],
                Piece::Commands(body) if prints_ids(body) => vec![id()],
                Piece::Commands(body) if prints_names(body) => {
                    splits = true;
                    vec![vec![Piece::Glob('*')]]
                }
                other => vec![vec![other.clone()]],
            };
            all = product(&all, &alternatives);
        }
        if all.len() > 1 && all.iter().any(|pieces| pieces.iter().all(is_empty)) {
            // Bash drops an empty word.
            return vec![word.clone()];
        }
        all.into_iter()
            .map(|pieces| rewritten(word, pieces, splits))
            .collect()
    }

    fn variable(&self, variable: &Variable, choice: &[(&str, &Word)], first: bool) -> Known {
        let unchanged = Known::Pieces(vec![Piece::Variable(variable.clone())]);
        if variable.form == Form::Changed {
            return unchanged;
        }
        match variable.name.as_str() {
            "HOME" if first => return Known::Pieces(vec![Piece::Home("~".to_owned())]),
            "USER" | "LOGNAME" | "HOSTNAME" if variable.form == Form::Quoted => {
                return Known::Pieces(vec![Piece::Literal("user".to_owned())]);
            }
            "PWD" if first => return Known::Pieces(vec![Piece::Literal(".".to_owned())]),
            _ => {}
        }
        if let Some((_, value)) = choice.iter().find(|(name, _)| *name == variable.name) {
            let whole = variable.form == Form::Quoted || value.literal().is_some_and(|text| is_plain(&text));
            return match whole {
                true => Known::Pieces(value.pieces.clone()),
                // Unquoted, a file name is split at blanks.
                false => Known::Split(value.pieces.clone()),
            };
        }
        let known = self.0.iter().find(|(name, _)| *name == variable.name);
        match known {
            Some((_, Value::Names)) => Known::Split(vec![Piece::Glob('*')]),
            Some((_, Value::Ids)) => Known::Pieces(id()),
            _ => unchanged,
        }
    }
}

/// The expansion of a variable.
enum Known {
    Pieces(Vec<Piece>),
    /// Subject to word splitting.
    Split(Vec<Piece>),
}

/// One value for each variable.
type Choice<'a> = Vec<(&'a str, &'a Word)>;

/// Concatenates every prefix with every suffix.
fn product<T: Clone>(beginnings: &[Vec<T>], ends: &[Vec<T>]) -> Vec<Vec<T>> {
    let mut all = Vec::with_capacity(beginnings.len() * ends.len());
    for beginning in beginnings {
        all.extend(
            ends.iter()
                .map(|end| [beginning.as_slice(), end.as_slice()].concat()),
        );
    }
    all
}

/// Returns the placeholder of a number or a hash, which never begins with a minus.
fn id() -> Vec<Piece> {
    vec![Piece::Literal("0".to_owned()), Piece::Glob('*')]
}

fn is_empty(piece: &Piece) -> bool {
    matches!(piece, Piece::Literal(text) if text.is_empty())
}

fn uses(word: &Word, name: &str) -> bool {
    let named = |piece: &Piece| matches!(piece, Piece::Variable(variable) if variable.name == name);
    word.pieces.iter().any(named)
}

fn is_plain(text: &str) -> bool {
    let splits = |sign: char| sign.is_whitespace() || "*?[\\".contains(sign);
    !text.is_empty() && !text.contains(splits)
}

/// Returns the word with other pieces. A word subject to splitting begins with a star, because it could begin
/// with anything; a wholly unknown one is written like the input of `xargs`.
fn rewritten(word: &Word, mut pieces: Vec<Piece>, splits: bool) -> Word {
    if pieces == word.pieces {
        return word.clone();
    }
    if !pieces.iter().all(is_empty) {
        pieces.retain(|piece| !is_empty(piece));
    }
    if splits && pieces != [Piece::Glob('*')] {
        pieces.insert(0, Piece::Glob('*'));
    }
    let mut next = Word {
        pieces,
        text: word.text.clone(),
        end: None,
    };
    if next.pieces == [Piece::Glob('*')] {
        next.text = INPUT.to_owned();
    } else if let Some(text) = next.shape() {
        next.text = text;
    }
    next
}

/// Matches commands that print the directory where the line starts, or the root of its repository.
fn prints_here(body: &[Node]) -> bool {
    let [Node::Simple(Simple { words, redirects, .. })] = body else {
        return false;
    };
    let words: Vec<&str> = words.iter().map(|word| word.text.as_str()).collect();
    redirects.is_empty()
        && matches!(
            words.as_slice(),
            ["pwd"] | ["git", "rev-parse", "--show-toplevel"]
        )
}

/// Returns `true` if a command may set the variable: a loop, `read`, an assignment.
fn sets(nodes: &[Node], name: &str) -> bool {
    let says = |word: &Word| word.text.contains(name);
    nodes.iter().any(|node| match node {
        Node::Simple(simple) => {
            let reads = simple.words.iter().any(|word| word.text == "read");
            reads && simple.words.iter().any(says) || simple.assignments.iter().any(|set| set.name == name)
        }
        Node::Pipe(nodes) => sets(nodes, name),
        Node::Compound { variable, body, .. } => variable.as_deref() == Some(name) || sets(body, name),
    })
}
