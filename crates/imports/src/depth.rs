//! Bounds the nesting depth of a source from its tokens, before anything recurses over it.

use ruff_python_ast::token::TokenKind;
use ruff_python_parser::{Mode, lexer};

/// Maximum length of a source in which a string ends a line within an f-string: the parser may then recover
/// from an error and see other tokens than we do. A source of this length cannot nest dangerously however it
/// is parsed.
const MAX_AMBIGUOUS: usize = 16 * 1024;

/// Nesting depth of a source.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Depth {
    /// At most this depth.
    Within(usize),
    /// Deeper than the limit, or ambiguous.
    Beyond,
    /// The source has an invalid token or unbalanced brackets.
    Malformed,
}

/// Returns an upper bound of the depth of the syntax tree of `source`.
///
/// Indentation, brackets and operators deepen a tree. Operators add up until the comma that ends their
/// expression; tokens whose operand may contain a comma, such as `lambda`, add up until the end of the line.
pub(super) fn of(source: &str, limit: usize) -> Depth {
    let mut lexer = lexer::lex(source, Mode::Module);
    let mut gauge = Gauge::default();
    let mut deepest = 0;
    let mut previous = TokenKind::Newline;
    loop {
        let token = lexer.next_token();
        let line_ends = matches!(token, TokenKind::NonLogicalNewline | TokenKind::Comment);
        if previous == TokenKind::String
            && line_ends
            && gauge.in_interpolation()
            && source.len() > MAX_AMBIGUOUS
        {
            return Depth::Beyond;
        }
        previous = token;
        match token {
            TokenKind::EndOfFile if gauge.open.is_empty() => return Depth::Within(deepest),
            TokenKind::EndOfFile | TokenKind::Unknown => return Depth::Malformed,
            _ if !gauge.take(token) => return Depth::Malformed,
            _ => {}
        }
        deepest = deepest.max(gauge.depth());
        if deepest > limit {
            return Depth::Beyond;
        }
    }
}

struct Bracket {
    opener: TokenKind,
    /// Depth that the enclosing expression had added.
    outer: usize,
    /// Set if the bracket is the replacement field of an f-string, or inside one.
    in_interpolation: bool,
}

#[derive(Default)]
struct Gauge {
    indents: usize,
    open: Vec<Bracket>,
    strings: usize,
    /// Depth added by the expressions around the innermost bracket.
    outer: usize,
    /// Depth added by the current expression since its last comma.
    chain: usize,
    /// Depth that only the end of the line resets.
    line: usize,
}

impl Gauge {
    fn depth(&self) -> usize {
        self.indents + self.outer + self.chain + self.line
    }

    fn in_interpolation(&self) -> bool {
        self.open.last().is_some_and(|bracket| bracket.in_interpolation)
    }

    /// Consumes a token. Returns `false` if it closes a bracket that is not open.
    fn take(&mut self, token: TokenKind) -> bool {
        use TokenKind as T;
        match token {
            T::Indent => self.indents += 1,
            T::Dedent => self.indents = self.indents.saturating_sub(1),
            T::Lpar | T::Lsqb | T::Lbrace => self.open(token),
            T::Rpar => return self.close(T::Lpar),
            T::Rsqb => return self.close(T::Lsqb),
            T::Rbrace => return self.close(T::Lbrace),
            T::Comma | T::Semi => self.chain = 0,
            T::Newline => (self.chain, self.line) = (0, 0),
            T::FStringStart | T::TStringStart => self.strings += 1,
            T::FStringEnd | T::TStringEnd => self.strings = self.strings.saturating_sub(1),
            T::Name | T::Int | T::Float | T::Complex | T::String | T::FStringMiddle | T::TStringMiddle => {}
            T::True | T::False | T::None | T::Ellipsis | T::Comment | T::NonLogicalNewline => {}
            // Keywords that begin a block count too: between brackets the parser, recovering from an error,
            // may take them for the start of a line and nest the rest.
            T::Lambda | T::Yield | T::If | T::For | T::While | T::With | T::Try | T::Def | T::Class => {
                self.line += 1
            }
            T::Match | T::Case | T::Elif | T::Except | T::Finally | T::Async => self.line += 1,
            _ => self.chain += 1,
        }
        true
    }

    fn open(&mut self, opener: TokenKind) {
        let in_interpolation = self.strings > 0;
        self.chain += 1;
        self.open.push(Bracket {
            opener,
            outer: self.chain,
            in_interpolation,
        });
        self.outer += self.chain;
        self.chain = 0;
    }

    fn close(&mut self, opener: TokenKind) -> bool {
        let Some(bracket) = self.open.pop() else {
            return false;
        };
        self.outer -= bracket.outer;
        self.chain = bracket.outer;
        bracket.opener == opener
    }
}
