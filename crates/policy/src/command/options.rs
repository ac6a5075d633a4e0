//! Parses options like the programs do: long, abbreviated, bundled, with values.

use super::analysis::Analysis;
use super::effect::Effect;
use super::table::{Entry, Opt, Value};
use crate::shell::Word;

/// The classified arguments of a command.
#[derive(Debug, Clone, Default)]
pub(super) struct Scanned {
    /// Indices of the operands.
    pub(super) operands: Vec<usize>,
    /// Option values, where known.
    pub(super) values: Vec<(&'static str, Option<String>)>,
    /// Options found in the table.
    pub(super) options: Vec<&'static str>,
    /// Index of the delimiter `--`, where it certainly ends the options.
    pub(super) delimiter: Option<usize>,
}

impl Scanned {
    /// Returns `true` if one of the options is there.
    pub(super) fn has_any(&self, options: &[&str]) -> bool {
        self.options.iter().any(|option| options.contains(option))
    }
}

/// Classifies the arguments of a command by its table entry.
///
/// An option that is not in the table counts as unknown; so does an argument that could expand to an option.
pub(super) fn scan(entry: &Entry, args: &[Word], title: &str, analysis: &mut Analysis) -> Scanned {
    let mut scan = Scan {
        entry,
        args,
        title,
        analysis,
        at: 0,
        possible_values: 0,
        scanned: Scanned::default(),
    };
    scan.run();
    scan.scanned
}

/// Most values of an option that is not in the table: a name and a value.
const MAX_UNLISTED_VALUES: usize = 2;

struct Scan<'a> {
    entry: &'a Entry,
    args: &'a [Word],
    title: &'a str,
    analysis: &'a mut Analysis,
    at: usize,
    /// Number of next words that may be values of the options before them, although the table does not say so.
    possible_values: usize,
    scanned: Scanned,
}

/// Programs whose flags are known to take no value, so that a `--` behind one is the delimiter: their patterns and files often
/// begin with a minus. Elsewhere several commands share a list, and a flag of one may take a value in another; commands of git
/// share some as well, but what does harm counts behind the delimiter there.
const KNOWN_FLAGS: &[&str] = &["git", "grep", "egrep", "fgrep", "rg", "sort", "wc", "du"];

impl Scan<'_> {
    fn run(&mut self) {
        let (mut ended, mut is_certain) = (false, false);
        while let Some(word) = self.args.get(self.at) {
            let here = self.at;
            self.at += 1;
            let text = word.literal();
            match text.as_deref() {
                Some("--") if !ended => {
                    ended = true;
                    is_certain = self.possible_values == 0 && self.knows_delimiter();
                    self.scanned.delimiter = is_certain.then_some(here);
                }
                Some(text) if !ended && is_option(text, self.entry) => self.option(text),
                Some(text) => {
                    if ended && is_option(text, self.entry) {
                        self.behind_delimiter(text, is_certain);
                    }
                    self.operand(here);
                }
                None => {
                    self.computed(word, is_certain);
                    self.operand(here);
                }
            }
            // The wrapped command has options of its own.
            if self.entry.ordered && !self.scanned.operands.is_empty() {
                self.scanned.operands.extend(self.at..self.args.len());
                return;
            }
        }
    }

    fn operand(&mut self, index: usize) {
        self.possible_values = self.possible_values.saturating_sub(1);
        self.scanned.operands.push(index);
    }

    /// Returns `true` if the program ends its options at `--`. In an expression of `find` they go on, and other programs with
    /// `-name` may not know it.
    fn knows_delimiter(&self) -> bool {
        !self.entry.single && self.entry.handler != Some("find")
    }

    fn has_known_flags(&self) -> bool {
        self.entry
            .path
            .first()
            .is_some_and(|program| KNOWN_FLAGS.contains(program))
    }

    /// Judges a word behind `--` that would be an option before it. Where the `--` may be the value of an option, it is one.
    fn behind_delimiter(&mut self, text: &str, is_certain: bool) {
        if is_certain && self.has_known_flags() && self.entry.path.len() == 1 {
            return;
        }
        let title = self.title;
        match self.worst(text) {
            Some(effect) if !effect.is_read_only() => self.analysis.add(
                effect,
                format!("{title}: `{text}` may be an option behind `--`, too"),
            ),
            Some(_) => {}
            None if is_certain || self.entry.any.is_some() => {}
            None => self.unknown(text),
        }
    }

    /// Returns the worst effect of the options that a word may be; `None` if one of them is not in the table.
    fn worst(&self, text: &str) -> Option<Effect> {
        let name = text.split_once('=').map_or(text, |(name, _)| name);
        if let Some(option) = self.find(name) {
            return Some(option.effect);
        }
        if name.starts_with("--") || self.entry.single {
            return self.abbreviated(name).map(|option| option.effect);
        }
        let letters = &name[1..];
        let worst = self.worst_letter(letters)?.effect;
        let are_known = letters.chars().all(|letter| self.letter(letter).is_some());
        (!worst.is_read_only() || are_known).then_some(worst)
    }

    /// Judges a word whose value only the running shell knows.
    fn computed(&mut self, word: &Word, ended: bool) {
        let title = self.title;
        match word.shape() {
            Some(shape) => {
                let starts = shape.starts_with(['*', '?', '[', '-']);
                if starts && !ended && !self.entry.takes_anything() {
                    self.analysis.add(
                        Effect::Unknown,
                        format!("{title}: `{}` may become an option", word.text),
                    );
                }
            }
            None if self.entry.safe => {}
            None => self.analysis.add(
                Effect::Unknown,
                format!("{title}: `{}` is not known beforehand", word.text),
            ),
        }
    }

    fn option(&mut self, text: &str) {
        self.possible_values = usize::from(!self.has_known_flags());
        if text.starts_with("--") || self.entry.single || text.starts_with('+') {
            self.long(text);
        } else {
            self.bundle(text);
        }
    }

    fn long(&mut self, text: &str) {
        let (name, attached) = match text.split_once('=') {
            Some((name, value)) => (name, Some(value)),
            None => (text, None),
        };
        if let Some(option) = self.find(name) {
            self.note(&option, name);
            match (option.value, attached) {
                (Value::Required, None) => self.value(&option),
                (Value::Pair, None) => {
                    self.value(&option);
                    self.value(&option);
                }
                (Value::None | Value::Pair, Some(_)) => self.unknown(text),
                (_, Some(value)) => self.scanned.values.push((option.name, Some(value.to_owned()))),
                (Value::None | Value::Attached, None) => {}
            }
            return;
        }
        if self.entry.option("-#").is_some() && is_number(name) {
            return;
        }
        match self.abbreviated(name) {
            Some(option) if !option.effect.is_read_only() => {
                self.note(&option, name);
                self.unknown(text);
            }
            _ if self.entry.any.is_some() => {}
            _ => self.unknown(text),
        }
        self.possible_values = MAX_UNLISTED_VALUES;
    }

    /// Finds the option by name; programs with `-name` take `--name` too.
    fn find(&self, name: &str) -> Option<Opt> {
        let exact = self.entry.option(name);
        let shorter = name.strip_prefix('-').filter(|_| self.entry.single);
        let found = exact.or_else(|| shorter.and_then(|name| self.entry.option(name)));
        found.copied()
    }

    /// Finds the most harmful option that a name abbreviates: GNU programs accept any unambiguous prefix, and the table may lack
    /// the names that make it ambiguous.
    fn abbreviated(&self, name: &str) -> Option<Opt> {
        let listed = self.entry.options.iter();
        let meant = listed.filter(|option| option.name.starts_with(name));
        meant.max_by_key(|option| option.effect).copied()
    }

    fn letter(&self, letter: char) -> Option<Opt> {
        self.find(&format!("-{letter}"))
    }

    /// Finds the most harmful option among the letters of a bundle.
    fn worst_letter(&self, letters: &str) -> Option<Opt> {
        let known = letters.chars().filter_map(|letter| self.letter(letter));
        known.max_by_key(|option| option.effect)
    }

    fn bundle(&mut self, text: &str) {
        if self.entry.option("-#").is_some() && is_number(text) {
            return;
        }
        if let Some(option) = self.entry.option(text).copied().filter(|_| text.len() > 2) {
            // Such as `-vv`, or a long option with a single minus.
            return self.note(&option, text);
        }
        let letters: Vec<char> = text.chars().skip(1).collect();
        for (index, letter) in letters.iter().enumerate() {
            let rest: String = letters[index + 1..].iter().collect();
            let name = format!("-{letter}");
            let Some(option) = self.entry.option(&name).copied() else {
                self.possible_values = MAX_UNLISTED_VALUES;
                if self.entry.any.is_none() {
                    return self.unknown(text);
                }
                continue;
            };
            self.note(&option, &name);
            match option.value {
                Value::None => {}
                Value::Attached => return self.attached(&option, rest),
                Value::Required if !rest.is_empty() => return self.attached(&option, rest),
                Value::Required => return self.value(&option),
                Value::Pair => return self.unknown(text),
            }
        }
    }

    /// Takes the rest of a bundle as an option's value. In some programs each letter takes a word of its own (`tree -Lo 2 out`),
    /// and the rest are options.
    fn attached(&mut self, option: &Opt, rest: String) {
        if !self.has_known_flags() {
            let worst = self.worst_letter(&rest);
            if let Some(worst) = worst.filter(|option| !option.effect.is_read_only()) {
                self.note(&worst, worst.name);
            }
        }
        self.scanned.values.push((option.name, Some(rest)));
    }

    /// Consumes the next argument as an option's value.
    fn value(&mut self, option: &Opt) {
        if let Some(word) = self.args.get(self.at) {
            self.at += 1;
            self.possible_values = 0;
            let value = word.literal();
            // If the table were wrong about the value, this would be an unjudged option.
            if let Some(text) = value
                .as_deref()
                .filter(|text| text.starts_with('-') && text.len() > 1)
                && self.entry.any.is_none()
                && !(self.entry.handler == Some("find") && is_measure(option.name, text))
                && !is_number(text.trim_start_matches(['-', '+']))
            {
                self.unknown(text);
            }
            self.scanned.values.push((option.name, value));
            if word.shape().is_none() && !self.entry.safe {
                self.analysis.add(
                    Effect::Unknown,
                    format!("{}: `{}` is not known beforehand", self.title, word.text),
                );
            } else if word.is_glob() {
                // It may expand to several words, of which the second is not a value.
                self.analysis.add(
                    Effect::Unknown,
                    format!("{}: `{}` may become an option", self.title, word.text),
                );
            }
        }
    }

    fn note(&mut self, option: &Opt, name: &str) {
        self.scanned.options.push(option.name);
        if option.effect > Effect::Read {
            let what = option.reason.unwrap_or_else(|| option.effect.describe());
            self.analysis
                .add(option.effect, format!("{} {name}: {what}", self.title));
        }
    }

    fn unknown(&mut self, text: &str) {
        // No star allows these effects: one finding per unknown option would bury the important ones.
        if matches!(self.entry.effect, Effect::Code | Effect::Privilege) {
            return;
        }
        let text = crate::shell::visible(&text.chars().take(40).collect::<String>());
        self.analysis.add(
            Effect::Unknown,
            format!("{}: the option `{text}` is not in the table", self.title),
        );
    }
}

fn is_option(text: &str, entry: &Entry) -> bool {
    (text.len() > 1 && text.starts_with('-'))
        || (text.len() > 1
            && text.starts_with('+')
            && entry.options.iter().any(|option| option.name.starts_with('+')))
}

/// Matches operands of `find` tests: less than, more than, missing permissions. The tests take any next word.
fn is_measure(option: &str, text: &str) -> bool {
    let measures = [
        "-size", "-perm", "-mtime", "-atime", "-ctime", "-mmin", "-amin", "-cmin", "-links", "-inum",
        "-used", "-uid", "-gid",
    ];
    let plain = |sign: char| sign.is_ascii_alphanumeric() || "+-=,/".contains(sign);
    measures.contains(&option) && !text.starts_with("--") && text.chars().all(plain)
}

fn is_number(text: &str) -> bool {
    let digits = text.trim_start_matches('-');
    !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit())
}
