//! The syntax tree of a command line.

/// A whole line.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Script {
    /// The commands, in order.
    pub nodes: Vec<Node>,
    /// Bodies of here documents that bash expands.
    pub here: Vec<Word>,
}

/// One element of a list.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Node {
    /// A command with its words.
    Simple(Simple),
    /// Commands joined by `|`.
    Pipe(Vec<Self>),
    /// Control flow around other commands.
    Compound {
        kind: Compound,
        /// The loop variable.
        variable: Option<String>,
        /// Loop values, or the words of a test.
        words: Vec<Word>,
        /// Commands that the construct may run.
        body: Vec<Self>,
        /// Redirections of the whole construct.
        redirects: Vec<Redirect>,
    },
}

/// The kinds of control flow.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Compound {
    /// `( … )`
    Subshell,
    /// `{ …; }`
    Group,
    /// `… &`
    Background,
    /// `for`
    For,
    /// `while` or `until`
    While,
    If,
    Case,
    /// `[[ … ]]`
    Test,
    /// A function definition.
    Function,
}

impl Compound {
    /// Returns the name used in messages.
    pub fn name(self) -> &'static str {
        match self {
            Self::Subshell => "a subshell",
            Self::Group => "a group",
            Self::Background => "a background job",
            Self::For => "a `for` loop",
            Self::While => "a `while` loop",
            Self::If => "an `if`",
            Self::Case => "a `case`",
            Self::Test => "a `[[` test",
            Self::Function => "a function",
        }
    }
}

/// A command with its words.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Simple {
    /// Variables set for the command, or for the shell if there are no words.
    pub assignments: Vec<Assignment>,
    /// The program and its arguments.
    pub words: Vec<Word>,
    /// Redirections.
    pub redirects: Vec<Redirect>,
    /// Source text.
    pub text: String,
}

/// `NAME=value` before a command.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Assignment {
    /// The variable.
    pub name: String,
    pub value: Word,
}

/// A redirection: a file to open, or a file descriptor to duplicate.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Redirect {
    /// The file descriptor, if written.
    pub descriptor: Option<u32>,
    pub kind: RedirectKind,
    /// The file, the file descriptor or the text.
    pub target: Word,
}

/// The effect of a redirection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RedirectKind {
    /// `<`
    Read,
    /// `>`, `>>`, `>|`, `&>`, `&>>`, `<>`
    Write,
    /// `<&`, `>&` with a file descriptor
    Duplicate,
    /// `<<`, `<<<`
    Text,
}

/// An argument, before expansion.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Word {
    pub pieces: Vec<Piece>,
    /// Source text.
    pub text: String,
    /// Index of the line's character after the word; `None` if the word does not stand in the line verbatim.
    pub end: Option<usize>,
}

/// A piece of a word.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Piece {
    /// Literal text, without quotes.
    Literal(String),
    /// `*`, `?` or `[`: expands to file names.
    Glob(char),
    /// `~`.
    Home(String),
    /// A variable or an arithmetic expansion.
    Variable(Variable),
    /// `$( … )`, or backquotes.
    Commands(Vec<Node>),
    /// A process substitution: `<( … )`, or `>( … )` for output.
    Process {
        /// Set for `>( … )`, where the commands read the written data.
        output: bool,
        /// The commands.
        body: Vec<Node>,
    },
    /// `{a,b}`, which expands to several words; empty if the alternatives were not parsed.
    Braces(Vec<String>),
}

/// A variable that is expanded in a word.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Variable {
    /// Name of the variable, or the arithmetic expression.
    pub name: String,
    /// The way in which the shell expands the value: quoted, split or modified.
    pub form: Form,
}

impl Variable {
    /// Returns `true` if the value is always a number.
    pub fn is_number(&self) -> bool {
        self.form != Form::Changed && matches!(self.name.as_str(), "?" | "#" | "$")
    }
}

/// The form of a variable's expansion.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Form {
    /// Unchanged: `"$x"`.
    Quoted,
    /// Split at blanks, and expanded as a glob: `$x`.
    Split,
    /// Modified, `${x%y}`, or computed.
    Changed,
}

impl Word {
    /// Returns the word's text, if it depends on nothing.
    pub fn literal(&self) -> Option<String> {
        let mut text = String::new();
        for piece in &self.pieces {
            let Piece::Literal(part) = piece else { return None };
            text.push_str(part);
        }
        Some(text)
    }

    /// Like [`Word::literal`], with the home directory and globs as written.
    pub fn shape(&self) -> Option<String> {
        let mut text = String::new();
        for piece in &self.pieces {
            match piece {
                Piece::Literal(part) | Piece::Home(part) => text.push_str(part),
                Piece::Glob(sign) => text.push(*sign),
                Piece::Process { output: false, .. } => text.push_str("/dev/fd/63"),
                // Always a number.
                Piece::Variable(variable) if variable.is_number() => text.push('0'),
                Piece::Variable(_) | Piece::Commands(_) | Piece::Process { .. } | Piece::Braces(_) => {
                    return None;
                }
            }
        }
        Some(text)
    }

    /// Returns `true` if the word expands to file names.
    pub fn is_glob(&self) -> bool {
        self.pieces.iter().any(|piece| matches!(piece, Piece::Glob(_)))
    }
}

impl Script {
    /// Returns the program and its arguments, if the line is one command that needs no shell: no expansions,
    /// no redirection.
    pub fn argv(&self) -> Option<Vec<String>> {
        let [Node::Simple(simple)] = self.nodes.as_slice() else {
            return None;
        };
        if !simple.assignments.is_empty() || !simple.redirects.is_empty() || simple.words.is_empty() {
            return None;
        }
        simple.words.iter().map(Word::literal).collect()
    }
}
