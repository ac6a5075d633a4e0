//! A command line as we understand it.

/// A whole line.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Script {
    /// What runs, in order.
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
        /// Which.
        kind: Compound,
        /// The variable that a loop sets.
        variable: Option<String>,
        /// Words that it looks at: what is looped over, what is matched.
        words: Vec<Word>,
        /// What it runs, perhaps.
        body: Vec<Self>,
        /// Redirections of all of it.
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
    /// `if`
    If,
    /// `case`
    Case,
    /// `[[ … ]]`
    Test,
    /// A function that is defined.
    Function,
}

impl Compound {
    /// How it is called in messages.
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
    /// Files that are opened.
    pub redirects: Vec<Redirect>,
    /// As it was written.
    pub text: String,
}

/// `NAME=value` before a command.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Assignment {
    /// The variable.
    pub name: String,
    /// What it is set to.
    pub value: Word,
}

/// A file that is opened, or a descriptor that is copied.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Redirect {
    /// The descriptor, if one was written.
    pub descriptor: Option<u32>,
    /// What is done.
    pub kind: RedirectKind,
    /// The file, the descriptor or the text.
    pub target: Word,
}

/// What a redirection does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RedirectKind {
    /// `<`
    Read,
    /// `>`, `>>`, `>|`, `&>`, `&>>`, `<>`
    Write,
    /// `<&`, `>&` with a descriptor
    Duplicate,
    /// `<<`, `<<<`
    Text,
}

/// An argument, before expansion.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Word {
    /// What it is made of.
    pub pieces: Vec<Piece>,
    /// As it was written.
    pub text: String,
    /// The character of the line behind its last one; none where the line does not hold it as it is.
    pub end: Option<usize>,
}

/// A stretch of a word.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Piece {
    /// Stands for itself, quotes taken off.
    Literal(String),
    /// `*`, `?` or `[`, which the names of files decide about.
    Glob(char),
    /// `~` or `~name`.
    Home(String),
    /// A variable or a number that is computed.
    Variable(Variable),
    /// `$( … )`, or backquotes.
    Commands(Vec<Node>),
    /// `<( … )`, or `>( … )` if it is written to.
    Process {
        /// Whether the command reads what is written.
        output: bool,
        /// The commands at its other end.
        body: Vec<Node>,
    },
    /// `{a,b}`, which becomes several words; nothing where they are not read.
    Braces(Vec<String>),
}

/// A variable whose value stands in a word.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Variable {
    /// Its name, or what is computed.
    pub name: String,
    /// How its value gets into the word.
    pub form: Form,
}

impl Variable {
    /// Whether its value is a number, whatever happens.
    pub fn is_number(&self) -> bool {
        self.form != Form::Changed && matches!(self.name.as_str(), "?" | "#" | "$")
    }
}

/// How the value of a variable gets into a word.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Form {
    /// As it is: `"$x"`.
    Quoted,
    /// Split at blanks, and read as file patterns: `$x`.
    Split,
    /// Changed on the way: `${x%y}`, or computed.
    Changed,
}

impl Word {
    /// What it is for certain, if it depends on nothing.
    pub fn literal(&self) -> Option<String> {
        let mut text = String::new();
        for piece in &self.pieces {
            let Piece::Literal(part) = piece else { return None };
            text.push_str(part);
        }
        Some(text)
    }

    /// Like [`Word::literal`], with the home directory and file patterns as they are written.
    pub fn shape(&self) -> Option<String> {
        let mut text = String::new();
        for piece in &self.pieces {
            match piece {
                Piece::Literal(part) | Piece::Home(part) => text.push_str(part),
                Piece::Glob(sign) => text.push(*sign),
                Piece::Process { output: false, .. } => text.push_str("/dev/fd/63"),
                // A number.
                Piece::Variable(variable) if variable.is_number() => text.push('0'),
                Piece::Variable(_) | Piece::Commands(_) | Piece::Process { .. } | Piece::Braces(_) => {
                    return None;
                }
            }
        }
        Some(text)
    }

    /// Whether names of files decide what it becomes.
    pub fn is_glob(&self) -> bool {
        self.pieces.iter().any(|piece| matches!(piece, Piece::Glob(_)))
    }
}

impl Script {
    /// The program and its arguments, if the line is one command that needs no shell: nothing to expand, no redirection.
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
