//! Coverage of an input, from the counters of `-C instrument-coverage`.
//!
//! The counters lie in a section of this program. They are read from its memory as a file, so that no pointer is made
//! of an address. A build without them has no feedback.

use std::fs::{self, File};
use std::io;
use std::os::unix::fs::FileExt;

const SECTION: &[u8] = b"__llvm_prf_cnts";
/// Bytes that are compared at once.
const BLOCK: usize = 512;
const COUNTER: usize = 8;

/// The counters, and those values of each that were seen.
pub(crate) struct Coverage {
    memory: File,
    address: u64,
    before: Vec<u8>,
    now: Vec<u8>,
    /// For each counter, one bit for each class of the increase by an input.
    seen: Vec<u8>,
}

impl Coverage {
    /// Finds the counters of this program; `None` if it has none.
    pub(crate) fn find() -> Option<Self> {
        let program = fs::read("/proc/self/exe").ok()?;
        let section = section(&program)?;
        let maps = fs::read_to_string("/proc/self/maps").ok()?;
        let base = u64::from_str_radix(maps.split('-').next()?, 16).ok()?;
        let size = usize::try_from(section.size).ok()?;
        Some(Self {
            memory: File::open("/proc/self/mem").ok()?,
            address: base + section.address,
            before: vec![0; size],
            now: vec![0; size],
            seen: vec![0; size / COUNTER],
        })
    }

    /// Starts the count of an input.
    pub(crate) fn start(&mut self) -> io::Result<()> {
        self.memory.read_exact_at(&mut self.before, self.address)
    }

    /// Returns `true` if the input did something that no earlier one did: ran a new piece of code, or one more often.
    pub(crate) fn is_new(&mut self) -> io::Result<bool> {
        self.memory.read_exact_at(&mut self.now, self.address)?;
        let blocks = self.before.chunks(BLOCK).zip(self.now.chunks(BLOCK));
        let seen = self.seen.chunks_mut(BLOCK / COUNTER);
        let mut found = false;
        for ((before, now), seen) in blocks.zip(seen) {
            if before != now {
                found |= mark(before, now, seen);
            }
        }
        Ok(found)
    }

    /// Returns the number of counters that moved.
    pub(crate) fn reached(&self) -> usize {
        self.seen.iter().filter(|bits| **bits != 0).count()
    }

    /// Forgets what was seen, for another target.
    pub(crate) fn clear(&mut self) {
        self.seen.fill(0);
    }
}

/// Marks what is new, and returns `true` if anything is.
fn mark(before: &[u8], now: &[u8], seen: &mut [u8]) -> bool {
    let mut found = false;
    let counters = before.chunks(COUNTER).zip(now.chunks(COUNTER));
    for ((before, now), seen) in counters.zip(seen) {
        let increase = number(now).wrapping_sub(number(before));
        if increase != 0 {
            let class = 1 << increase.ilog2().min(7);
            found |= *seen & class == 0;
            *seen |= class;
        }
    }
    found
}

/// Place of a section in memory, from the start of the program.
#[derive(Debug, PartialEq, Eq)]
struct Place {
    address: u64,
    size: u64,
}

/// Finds the section of the counters in a 64-bit ELF file of this machine's byte order.
fn section(file: &[u8]) -> Option<Place> {
    let table = usize::try_from(number(file.get(0x28..0x30)?)).ok()?;
    let short = |at: usize| {
        file.get(at..at + 2)
            .map(|bytes| usize::try_from(number(bytes)).unwrap_or(0))
    };
    let (entry, count, names) = (short(0x3a)?, short(0x3c)?, short(0x3e)?);
    let header = |index: usize| {
        let start = table.checked_add(index * entry)?;
        file.get(start..)?.get(..entry)
    };
    let field = |header: &[u8], at: usize| header.get(at..at + 8).map(number);
    let names = usize::try_from(field(header(names)?, 0x18)?).ok()?;
    (0..count).find_map(|index| {
        let header = header(index)?;
        let name = names.checked_add(usize::try_from(number(header.get(..4)?)).ok()?)?;
        let name = file.get(name..)?.strip_prefix(SECTION)?;
        (name.first() == Some(&0)).then_some(())?;
        Some(Place {
            address: field(header, 0x10)?,
            size: field(header, 0x20)?,
        })
    })
}

/// Reads a number of up to eight bytes.
fn number(bytes: &[u8]) -> u64 {
    let mut whole = [0; COUNTER];
    for (slot, byte) in whole.iter_mut().zip(bytes) {
        *slot = *byte;
    }
    u64::from_le_bytes(whole)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_counter_is_new_once_for_each_class_of_its_increase() {
        let mut seen = [0; 2];
        let mut check = |increase: u64, expected: bool| {
            let (before, mut now) = ([0xff; 16], [0xff; 16]);
            now[8..].copy_from_slice(&u64::MAX.wrapping_add(increase).to_le_bytes());
            assert_eq!(mark(&before, &now, &mut seen), expected, "{increase}");
        };
        check(0, false);
        check(1, true);
        check(1, false);
        check(2, true);
        check(3, false);
        check(1 << 20, true);
        check(1 << 30, false);
        assert_eq!(seen[0], 0);
    }

    #[test]
    fn a_file_that_is_no_program_has_no_counters() {
        let program = fs::read("/proc/self/exe").unwrap();
        for bytes in [&b""[..], b"#!/bin/sh", &program[..0x40], &[0xff; 4096]] {
            assert_eq!(section(bytes), None);
        }
    }
}
