//! The table of commands: their effects, and the options that change them.
//!
//! The files in `table/` are the table. An unindented line names commands, or commands with a subcommand, and
//! their effect; the indented lines below it name options. `docs/guide/command-policy.md` has the notation.

use std::collections::HashMap;
use std::sync::LazyLock;

use super::effect::Effect;

const FILES: &[&str] = &[
    include_str!("table/files.txt"),
    include_str!("table/text.txt"),
    include_str!("table/system.txt"),
    include_str!("table/macos.txt"),
];

/// Programs that read settings from the directory where they run.
const WITH_SETTINGS: &[&str] = &[
    include_str!("table/git.txt"),
    include_str!("table/development.txt"),
    include_str!("table/containers.txt"),
    include_str!("table/cloud.txt"),
];

static TABLE: LazyLock<Table> = LazyLock::new(Table::read);

/// Every entry, by program name.
pub(super) struct Table {
    entries: HashMap<&'static str, Vec<Entry>>,
    /// Unparsable lines. They have no effect; a test keeps the list empty.
    broken: Vec<&'static str>,
}

/// The table's knowledge of a command or one of its subcommands.
#[derive(Debug, Clone)]
pub(super) struct Entry {
    /// The program and its subcommands; a star matches anything within a word.
    pub(super) path: Vec<&'static str>,
    pub(super) effect: Effect,
    pub(super) reason: Option<&'static str>,
    pub(super) options: Vec<Opt>,
    /// Reason why unlisted options are harmless; without one they are unknown.
    pub(super) any: Option<&'static str>,
    /// Number of leading operands that are not files; the others are files whose contents are shown.
    pub(super) files: Option<usize>,
    /// Set if project files determine which program runs, with any arguments.
    pub(super) local: bool,
    /// `-v` alone prints the version.
    pub(super) version: bool,
    /// `-h`, `-help` and the like, alone, print help.
    pub(super) helps: bool,
    /// Set if any arguments are harmless, including words that only the shell determines.
    pub(super) safe: bool,
    /// Set if the command shows file names, but no contents.
    pub(super) names: bool,
    /// Set if the command shows files of whole trees, through links too: of its operands, or else of its
    /// working directory.
    pub(super) walks: bool,
    /// Set if the command reads the settings of the project in which it runs, including the project's
    /// members.
    pub(super) project: bool,
    /// `-name` is one option, as with `find`.
    pub(super) single: bool,
    /// The first operand ends the options.
    pub(super) ordered: bool,
    /// The first operands are subcommand names.
    pub(super) sub: bool,
    /// Set if the command can be used without a subcommand.
    pub(super) bare: bool,
    /// Effect of unlisted subcommands.
    pub(super) other: Effect,
    /// Set if the command's options may also follow its subcommands.
    pub(super) everywhere: bool,
    /// Maximum number of operands with which the command is harmless.
    pub(super) operands: usize,
    /// Number of operands before a command among the arguments, which this command runs.
    pub(super) wraps: Option<usize>,
    /// Set if the command reads settings from its working directory.
    pub(super) settings: bool,
    /// Name of the handler for its arguments.
    pub(super) handler: Option<&'static str>,
    /// The option without which the command is never allowed.
    pub(super) confined: Confined,
}

/// The confinement of a program with a language of its own.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Confined {
    /// None: it has no language, or a harmless one.
    Not,
    /// Options after its name.
    By(&'static str),
    /// Options that depend on this machine's implementation.
    ByMake,
}

/// One option.
#[derive(Debug, Clone, Copy)]
pub(super) struct Opt {
    /// The name, with its minus signs.
    pub(super) name: &'static str,
    pub(super) value: Value,
    pub(super) effect: Effect,
    pub(super) reason: Option<&'static str>,
}

/// An option's value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Value {
    None,
    /// `-o value`, `-ovalue`, `--option value`, `--option=value`
    Required,
    /// `-ovalue`, `--option=value`
    Attached,
    /// `--option name value`
    Pair,
}

/// Returns the most specific entry for a command that begins with these words, and the length of its path.
pub(super) fn lookup(program: &str, words: &[&str]) -> Option<(&'static Entry, usize)> {
    let entries = TABLE.entries.get(program)?;
    let mut best: Option<(&'static Entry, usize)> = None;
    for entry in entries {
        if let Some(count) = entry.matches(words)
            && best.is_none_or(|(_, before)| count > before)
        {
            best = Some((entry, count));
        }
    }
    best
}

/// Returns `true` if the program has a subcommand of this name.
pub(super) fn has_subcommand(program: &str, word: &str) -> bool {
    let entries = TABLE.entries.get(program);
    entries.is_some_and(|entries| {
        entries.iter().any(|entry| {
            entry
                .path
                .get(1)
                .is_some_and(|name| *name != "*" && one_of(name, word))
        })
    })
}

/// Returns the entry of the program itself.
pub(super) fn root(program: &str) -> Option<&'static Entry> {
    let entries = TABLE.entries.get(program)?;
    entries.iter().find(|entry| entry.path.len() == 1)
}

impl Entry {
    /// Returns the number of words that the path matches.
    fn matches(&self, words: &[&str]) -> Option<usize> {
        let path = &self.path[1..];
        if path.first() == Some(&"**") {
            // The last plain word is the operation.
            let (last, wanted) = (words.last()?, path.get(1)?);
            return (words.len() > 1 && one_of(wanted, last)).then_some(words.len());
        }
        let fits =
            path.len() <= words.len() && path.iter().zip(words).all(|(wanted, word)| one_of(wanted, word));
        fits.then_some(path.len())
    }

    /// Returns `true` if no option adds an effect to the command.
    pub(super) fn takes_anything(&self) -> bool {
        // A file named like an option cannot lie in another directory: names in this one are not secret from
        // it.
        let mild = |option: &Opt| option.effect.is_read_only() || option.effect == Effect::Secret;
        self.any.is_some() && self.options.iter().all(mild)
    }

    pub(super) fn option(&self, name: &str) -> Option<&Opt> {
        let fits = |option: &&Opt| match option.name.strip_suffix('*') {
            Some(beginning) => name.starts_with(beginning),
            None => option.name == name,
        };
        self.options.iter().find(fits)
    }
}

/// Returns `true` if one of several patterns matches the word: `list|describe-*`.
fn one_of(patterns: &str, word: &str) -> bool {
    patterns.split('|').any(|pattern| within_word(pattern, word))
}

/// Returns `true` if the pattern matches the word; a star matches any characters.
pub(crate) fn within_word(pattern: &str, word: &str) -> bool {
    let Some((head, tail)) = pattern.split_once('*') else {
        return pattern == word;
    };
    let Some(mut rest) = word.strip_prefix(head) else {
        return false;
    };
    if !tail.contains('*') {
        return rest.ends_with(tail);
    }
    let parts: Vec<&str> = tail.split('*').collect();
    let Some((last, middle)) = parts.split_last() else {
        return false;
    };
    for part in middle {
        match rest.find(part) {
            Some(at) => rest = &rest[at + part.len()..],
            None => return false,
        }
    }
    rest.ends_with(last)
}

impl Table {
    fn read() -> Self {
        let mut table = Self {
            entries: HashMap::new(),
            broken: Vec::new(),
        };
        for file in FILES.iter().chain(WITH_SETTINGS) {
            let settings = WITH_SETTINGS.contains(file);
            let mut open: Vec<Entry> = Vec::new();
            for line in file.lines() {
                if line.trim().is_empty() || line.starts_with('#') {
                    continue;
                }
                let read = match line.starts_with(' ') {
                    true => options(line, &mut open),
                    false => {
                        table.store(&mut open, settings);
                        header(line).map(|entries| open = entries)
                    }
                };
                if read.is_none() {
                    table.broken.push(line);
                }
            }
            table.store(&mut open, settings);
        }
        table.spread();
        table
    }

    /// Copies the options of an `everywhere` program to its subcommands.
    fn spread(&mut self) {
        for entries in self.entries.values_mut() {
            let has_subcommands = entries.iter().any(|entry| entry.path.len() > 1);
            if let Some(root) = entries.iter_mut().find(|entry| entry.path.len() == 1) {
                root.sub |= has_subcommands;
            }
            let root = entries
                .iter()
                .find(|entry| entry.everywhere && entry.path.len() == 1);
            let Some(shared) = root.map(|root| root.options.clone()) else {
                continue;
            };
            for entry in entries.iter_mut().filter(|entry| entry.path.len() > 1) {
                entry.options.extend(&shared);
            }
        }
    }

    fn store(&mut self, open: &mut Vec<Entry>, settings: bool) {
        for mut entry in open.drain(..) {
            entry.settings = settings;
            self.entries.entry(entry.path[0]).or_default().push(entry);
        }
    }
}

/// Parses `name, name sub : effect, attribute, … -> reason`.
fn header(line: &'static str) -> Option<Vec<Entry>> {
    let (names, rest) = line.split_once(" : ")?;
    let (attributes, reason) = match rest.split_once(" -> ") {
        Some((attributes, reason)) => (attributes, Some(reason.trim())),
        None => (rest, None),
    };
    let mut attributes = attributes.split(',').map(str::trim);
    let mut entry = Entry {
        path: Vec::new(),
        effect: Effect::parse(attributes.next()?)?,
        reason,
        options: Vec::new(),
        any: None,
        files: None,
        local: false,
        helps: false,
        version: false,
        safe: false,
        names: false,
        walks: false,
        project: false,
        single: false,
        ordered: false,
        sub: false,
        bare: false,
        other: Effect::Unknown,
        everywhere: false,
        operands: usize::MAX,
        wraps: None,
        settings: false,
        handler: None,
        confined: Confined::Not,
    };
    for attribute in attributes {
        set(&mut entry, attribute)?;
    }
    let named = |name: &'static str| Entry {
        path: name.split_whitespace().collect(),
        ..entry.clone()
    };
    let entries: Vec<Entry> = names.split(',').map(named).collect();
    entries
        .iter()
        .all(|entry| !entry.path.is_empty())
        .then_some(entries)
}

fn set(entry: &mut Entry, attribute: &'static str) -> Option<()> {
    match attribute.split_once('=') {
        None => match attribute {
            "files" => entry.files = Some(0),
            "helps" => entry.helps = true,
            "version" => entry.version = true,
            "local" => entry.local = true,
            "safe" => entry.safe = true,
            "names" => entry.names = true,
            "walks" => entry.walks = true,
            "project" => entry.project = true,
            "single" => entry.single = true,
            "ordered" => entry.ordered = true,
            "bare" => entry.bare = true,
            "sub" => entry.sub = true,
            "everywhere" => entry.everywhere = true,
            "confined" => entry.confined = Confined::ByMake,
            _ => return None,
        },
        Some(("files", skip)) => entry.files = Some(skip.parse().ok()?),
        Some(("operands", count)) => entry.operands = count.parse().ok()?,
        Some(("wraps", skip)) => {
            entry.wraps = Some(skip.parse().ok()?);
            entry.ordered = true;
        }
        Some(("else", effect)) => {
            entry.other = Effect::parse(effect)?;
            entry.sub = true;
        }
        Some(("by", name)) => entry.handler = Some(name),
        Some(("confined", words)) => entry.confined = Confined::By(words),
        Some(_) => return None,
    }
    Some(())
}

/// Parses `  -a -b= --long= -> effect reason`.
fn options(line: &'static str, open: &mut [Entry]) -> Option<()> {
    let (names, meaning) = match line.split_once(" -> ") {
        Some((names, meaning)) => (names, Some(meaning.trim())),
        None => (line, None),
    };
    if names.trim() == "any" {
        let reason = meaning.filter(|reason| !reason.is_empty())?;
        for entry in open.iter_mut() {
            entry.any = Some(reason);
        }
        return (!open.is_empty()).then_some(());
    }
    let (effect, reason) = match meaning {
        None => (Effect::Read, None),
        Some(text) => {
            let (effect, reason) = text.split_once(' ').unwrap_or((text, ""));
            (
                Effect::parse(effect)?,
                Some(reason).filter(|reason| !reason.is_empty()),
            )
        }
    };
    for name in names.split_whitespace() {
        let (name, value) = match (name.strip_suffix('='), name.strip_suffix('?')) {
            (Some(name), _) if name.ends_with('=') => (name.trim_end_matches('='), Value::Pair),
            (Some(name), _) => (name, Value::Required),
            (None, Some(name)) if name.len() > 1 => (name, Value::Attached),
            _ => (name, Value::None),
        };
        if !name.starts_with(['-', '+']) {
            return None;
        }
        for entry in open.iter_mut() {
            entry.options.push(Opt {
                name,
                value,
                effect,
                reason,
            });
        }
    }
    (!open.is_empty()).then_some(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_line_can_be_read() {
        assert_eq!(TABLE.broken, Vec::<&str>::new());
    }

    /// Returns an option as it is written in a line.
    fn written(option: &Opt) -> String {
        let name = option.name.trim_end_matches('*');
        match (option.value, name.starts_with("--")) {
            (Value::None, _) => name.to_owned(),
            (Value::Pair, _) => format!("{name} a b"),
            (_, true) => format!("{name}=x"),
            (_, false) => format!("{name}x"),
        }
    }

    /// A flag of the table may take a value in one of the commands that share its list, and then the `--` is that value. So
    /// may any option that is not in the table.
    #[test]
    fn no_delimiter_hides_an_option_that_does_harm() {
        let mut tried = 0;
        for entry in TABLE.entries.values().flatten() {
            let path: Vec<&str> = entry
                .path
                .iter()
                .map(|word| word.split('|').next().unwrap())
                .collect();
            let command = path.join(" ").replace('*', "x");
            let harms = |option: &&Opt| !option.effect.is_read_only();
            let flags = entry
                .options
                .iter()
                .filter(|option| option.value == Value::None && !harms(option));
            let flags = flags.map(|option| option.name).filter(|_| entry.path.len() > 1);
            for flag in flags.chain(["-Q", "--unheard-of"]) {
                for harm in entry.options.iter().filter(harms) {
                    let line = format!("{command} {flag} -- {}", written(harm));
                    let Ok(script) = crate::shell::parse(&line) else {
                        continue;
                    };
                    let [crate::shell::Node::Simple(simple)] = script.nodes.as_slice() else {
                        panic!("{line}")
                    };
                    let context = crate::command::LineContext::default();
                    let findings = crate::command::simple_findings(simple, &context).findings;
                    let is_refused = findings.iter().any(|finding| !finding.effect.is_read_only());
                    assert!(is_refused, "{line}");
                    tried += 1;
                }
            }
        }
        assert!(tried > 1000, "{tried}");
    }

    /// Each reason claims that no option of a program, now or later, does harm: read its manual before
    /// raising the number.
    #[test]
    fn options_that_are_not_listed_are_unknown_but_where_a_reason_is_written() {
        let reasons = |(_, text): &(usize, &str)| text.trim_start().starts_with("any -> ");
        let files = FILES.iter().chain(WITH_SETTINGS);
        let written = files
            .clone()
            .flat_map(|file| file.lines().enumerate())
            .filter(reasons)
            .count();
        assert_eq!(written, ANY);
        let attributes = |line: &&str| {
            let header = line.split_once(" : ").filter(|_| !line.starts_with([' ', '#']));
            header.is_some_and(|(_, rest)| {
                let (attributes, _) = rest.split_once(" -> ").unwrap_or((rest, ""));
                attributes.split(',').any(|attribute| attribute.trim() == "any")
            })
        };
        assert_eq!(
            files
                .flat_map(|file| file.lines())
                .filter(attributes)
                .collect::<Vec<_>>(),
            Vec::<&str>::new()
        );
        for entry in TABLE.entries.values().flatten() {
            assert!(
                entry.any.is_none_or(|reason| reason.len() > 20),
                "{:?}",
                entry.path
            );
            assert!(
                entry.any.is_none() || entry.effect.is_read_only(),
                "{:?}",
                entry.path
            );
        }
    }

    /// Number of such reasons.
    const ANY: usize = 33;

    #[test]
    fn a_star_stands_for_characters_of_one_word() {
        assert!(within_word("describe-*", "describe-images"));
        assert!(within_word("*", "x"));
        assert!(within_word("a*b*c", "aXbYc"));
        assert!(!within_word("a*b*c", "aXcYb"));
        assert!(!within_word("list", "list-x"));
        assert!(!within_word("ab*ba", "aba"));
    }
}
