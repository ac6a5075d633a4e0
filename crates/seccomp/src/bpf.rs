//! Compiles decisions to BPF instructions.
//!
//! A filter only ever jumps forward, so it is written back to front: the target of a jump already exists, its
//! distance is known, and a distance that does not fit in the eight bits of a jump is bridged on the spot.

use super::Error;
use super::policy::{Action, Condition, Decision, Decisions, Test};
use libc::sock_filter;

/// Offsets in `struct seccomp_data`; both supported architectures are little-endian.
const NUMBER: u32 = 0;
const ARCH: u32 = 4;
const fn argument_low(index: u8) -> u32 {
    16 + 8 * index as u32
}
const fn argument_high(index: u8) -> u32 {
    argument_low(index) + 4
}

const LOAD: u16 = 0x20; // BPF_LD | BPF_W | BPF_ABS
const AND: u16 = 0x54; // BPF_ALU | BPF_AND | BPF_K
const JUMP: u16 = 0x05; // BPF_JMP | BPF_JA
const JUMP_EQUAL: u16 = 0x15; // BPF_JMP | BPF_JEQ | BPF_K
const JUMP_AT_LEAST: u16 = 0x35; // BPF_JMP | BPF_JGE | BPF_K
const RETURN: u16 = 0x06; // BPF_RET | BPF_K

const KILL_PROCESS: u32 = 0x8000_0000;
const ALLOW: u32 = 0x7fff_0000;
const ANNOUNCE: u32 = 0x7fc0_0000; // SECCOMP_RET_USER_NOTIF
const ERRNO: u32 = 0x0005_0000;

/// `BPF_MAXINSNS`.
const LONGEST: usize = 4096;

/// Compiles the decisions.
///
/// Calls made in another processor mode (i386 on x86_64, Arm on aarch64) carry another architecture and kill
/// the process: their numbers mean other calls. The x32 calls of x86_64 carry this architecture with bit 30
/// set in the number, which puts them above the newest known call.
pub(super) fn compile(decisions: &Decisions) -> Result<Vec<sock_filter>, Error> {
    let mut writer = Writer {
        backwards: Vec::new(),
    };
    let spans = spans(decisions);
    let tree = writer.tree(&spans);
    writer.load(NUMBER);
    let start = writer.here();
    debug_assert_eq!(
        start.0,
        tree.0 + 1,
        "the tree comes right after the load of the number"
    );
    let kill = writer.push(RETURN, KILL_PROCESS, 0, 0);
    writer.branch(JUMP_EQUAL, decisions.arch.audit(), start, kill);
    writer.load(ARCH);
    let length = writer.backwards.len();
    if length > LONGEST {
        return Err(Error::TooLong { length });
    }
    writer.backwards.reverse();
    Ok(writer.backwards)
}

/// Consecutive numbers with the same decision: from `first` up to the next span's.
struct Span<'a> {
    first: u32,
    cases: &'a [(Vec<Condition>, Action)],
    otherwise: Action,
}

fn spans(decisions: &Decisions) -> Vec<Span<'_>> {
    let mut spans: Vec<Span<'_>> = Vec::new();
    let mut add = |first, cases, otherwise| {
        let same = |last: &Span<'_>| (last.cases, last.otherwise) == (cases, otherwise);
        if !spans.last().is_some_and(same) {
            spans.push(Span {
                first,
                cases,
                otherwise,
            });
        }
    };
    let mut next = 0;
    for (number, Decision { cases, otherwise }) in (0..).zip(&decisions.by_number) {
        add(number, cases.as_slice(), *otherwise);
        next = number + 1;
    }
    add(next, &[], decisions.unknown);
    spans
}

/// The position of an instruction, counted from the end of the program.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Offset(usize);

struct Writer {
    backwards: Vec<sock_filter>,
}

impl Writer {
    /// Returns the instruction written last, which is the one that runs first.
    fn here(&self) -> Offset {
        Offset(self.backwards.len().saturating_sub(1))
    }

    fn push(&mut self, code: u16, k: u32, jt: u8, jf: u8) -> Offset {
        self.backwards.push(sock_filter { code, jt, jf, k });
        self.here()
    }

    fn load(&mut self, offset: u32) -> Offset {
        self.push(LOAD, offset, 0, 0)
    }

    /// Returns the number of instructions that the next one has to skip to reach `target`.
    fn distance(&self, target: Offset) -> usize {
        self.backwards.len() - target.0 - 1
    }

    /// Returns `target`, or a jump to it if a branch written soon could not reach it.
    fn within_reach(&mut self, target: Offset) -> Offset {
        // A branch may have to bridge its other target first: leave room for that instruction.
        if self.distance(target) < usize::from(u8::MAX) {
            return target;
        }
        let k = u32::try_from(self.distance(target)).unwrap_or(u32::MAX);
        self.push(JUMP, k, 0, 0)
    }

    fn branch(&mut self, code: u16, k: u32, yes: Offset, no: Offset) -> Offset {
        let yes = self.within_reach(yes);
        let no = self.within_reach(no);
        let skip = |distance| u8::try_from(distance).unwrap_or(u8::MAX);
        let (jt, jf) = (skip(self.distance(yes)), skip(self.distance(no)));
        self.push(code, k, jt, jf)
    }

    fn answer(&mut self, action: Action) -> Offset {
        let value = match action {
            Action::Allow => ALLOW,
            Action::Refuse(errno) => ERRNO | u32::from(errno.number()),
            Action::Announce => ANNOUNCE,
        };
        self.push(RETURN, value, 0, 0)
    }

    /// Emits a balanced search: each branch tests whether the number lies in the upper half.
    fn tree(&mut self, spans: &[Span<'_>]) -> Offset {
        let (low, high) = spans.split_at(spans.len() / 2);
        match (low, high) {
            ([], [span]) => self.decision(span),
            (_, [middle, ..]) => {
                let upper = self.tree(high);
                let lower = self.tree(low);
                self.branch(JUMP_AT_LEAST, middle.first, upper, lower)
            }
            (_, []) => self.here(),
        }
    }

    fn decision(&mut self, span: &Span<'_>) -> Offset {
        let mut next = self.answer(span.otherwise);
        for (conditions, action) in span.cases.iter().rev() {
            let mut holds = self.answer(*action);
            for condition in conditions.iter().rev() {
                holds = match &condition.test {
                    Test::Equals(values) => self.any_of(condition, values, holds, next),
                    Test::Differs(values) => self.any_of(condition, values, next, holds),
                };
            }
            next = holds;
        }
        next
    }

    /// Continues at `yes` if the argument's masked bits are among the values, else at `no`.
    fn any_of(&mut self, condition: &Condition, values: &[u64], yes: Offset, no: Offset) -> Offset {
        let (mask_high, mask_low) = halves(condition.mask);
        let mut next = no;
        for &value in values.iter().rev() {
            let (high, low) = halves(value);
            let mut equal = yes;
            if mask_high != 0 {
                self.branch(JUMP_EQUAL, high, equal, next);
                equal = self.masked(argument_high(condition.arg), mask_high);
            }
            next = self.branch(JUMP_EQUAL, low, equal, next);
            if mask_high != 0 {
                next = self.masked(argument_low(condition.arg), mask_low);
            }
        }
        if mask_high == 0 {
            // All values compare the same loaded half.
            next = self.masked(argument_low(condition.arg), mask_low);
        }
        next
    }

    /// Prepends the instructions that load and mask half an argument.
    fn masked(&mut self, offset: u32, mask: u32) -> Offset {
        if mask != u32::MAX {
            self.push(AND, mask, 0, 0);
        }
        self.load(offset)
    }
}

fn halves(value: u64) -> (u32, u32) {
    ((value >> 32) as u32, value as u32)
}
