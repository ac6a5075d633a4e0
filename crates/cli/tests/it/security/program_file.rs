//! The program's own file (ELF): where it is loaded is random, and what the loader writes is read-only afterwards.

use std::fs;

const PT_DYNAMIC: u64 = 2;
const PT_GNU_RELRO: u64 = 0x6474_e552;
const DT_FLAGS_1: u64 = 0x6fff_fffb;
const DF_1_NOW: u64 = 1;
const DF_1_PIE: u64 = 0x0800_0000;

/// An ELF file for 64-bit little-endian machines.
struct Elf(Vec<u8>);

impl Elf {
    fn number(&self, at: u64, length: usize) -> u64 {
        let at = usize::try_from(at).unwrap();
        let mut bytes = [0; 8];
        bytes[..length].copy_from_slice(&self.0[at..at + length]);
        u64::from_le_bytes(bytes)
    }

    /// Returns the place and length of the first segment of this type.
    fn segment(&self, kind: u64) -> Option<(u64, u64)> {
        let (table, size, count) = (self.number(0x20, 8), self.number(0x36, 2), self.number(0x38, 2));
        let headers = (0..count).map(|index| table + index * size);
        let mut found = headers.filter(|header| self.number(*header, 4) == kind);
        found
            .next()
            .map(|header| (self.number(header + 0x08, 8), self.number(header + 0x20, 8)))
    }

    /// Returns the value of the first entry of the dynamic section with this tag.
    fn dynamic(&self, tag: u64) -> Option<u64> {
        let (start, length) = self.segment(PT_DYNAMIC)?;
        let mut entries = (0..length / 16).map(|index| start + index * 16);
        let entry = entries.find(|entry| self.number(*entry, 8) == tag)?;
        Some(self.number(entry + 8, 8))
    }
}

#[test]
fn the_program_has_full_relro_and_no_fixed_address() {
    let elf = Elf(fs::read(env!("CARGO_BIN_EXE_ringfence")).unwrap());
    assert_eq!(&elf.0[..6], b"\x7fELF\x02\x01", "ELF of another class");
    assert!(elf.segment(PT_GNU_RELRO).is_some(), "no RELRO");
    let flags = elf.dynamic(DT_FLAGS_1).unwrap_or_default();
    assert_eq!(
        flags & DF_1_NOW,
        DF_1_NOW,
        "the loader binds late, and its table stays writable"
    );
    assert_eq!(flags & DF_1_PIE, DF_1_PIE, "a fixed address");
}
