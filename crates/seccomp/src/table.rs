//! Names and numbers of system calls.

use super::Error;

/// An architecture with filter support.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Arch {
    /// 64-bit x86, without the x32 and i386 calls that its kernels also serve.
    X86_64,
    /// 64-bit Arm.
    Aarch64,
}

impl Arch {
    /// Returns the target architecture of this build.
    pub const fn native() -> Option<Self> {
        if cfg!(target_arch = "x86_64") {
            Some(Self::X86_64)
        } else if cfg!(target_arch = "aarch64") {
            Some(Self::Aarch64)
        } else {
            None
        }
    }

    /// Returns the kernel's identifier in filters: `AUDIT_ARCH_*`, the ELF machine with the 64-bit and
    /// little-endian flags.
    pub(super) const fn audit(self) -> u32 {
        match self {
            Self::X86_64 => 0xc000_003e,
            Self::Aarch64 => 0xc000_00b7,
        }
    }

    /// Returns the name in OCI profiles.
    pub(super) const fn oci(self) -> &'static str {
        match self {
            Self::X86_64 => "SCMP_ARCH_X86_64",
            Self::Aarch64 => "SCMP_ARCH_AARCH64",
        }
    }
}

/// A system call, with its number on each architecture that has it.
#[derive(Debug)]
pub(super) struct Syscall {
    pub(super) name: &'static str,
    x86_64: Option<u32>,
    aarch64: Option<u32>,
}

impl Syscall {
    pub(super) fn number(&self, arch: Arch) -> Option<u32> {
        match arch {
            Arch::X86_64 => self.x86_64,
            Arch::Aarch64 => self.aarch64,
        }
    }
}

/// Returns every system call of both architectures, sorted by name.
pub(super) fn shipped() -> Result<Vec<Syscall>, Error> {
    parse(include_str!("../profiles/syscalls.tsv"))
}

/// Finds a name in a table sorted by name.
pub(super) fn find<'a>(table: &'a [Syscall], name: &str) -> Option<&'a Syscall> {
    let place = table.binary_search_by_key(&name, |call| call.name).ok()?;
    table.get(place)
}

fn parse(text: &'static str) -> Result<Vec<Syscall>, Error> {
    let lines = text
        .lines()
        .enumerate()
        .filter(|(_, line)| !line.starts_with('#'));
    lines
        .map(|(index, line)| row(line).ok_or(Error::Table { line: index + 1 }))
        .collect()
}

fn row(line: &'static str) -> Option<Syscall> {
    let mut cells = line.split('\t');
    let name = cells.next().filter(|name| !name.is_empty())?;
    let x86_64 = number(cells.next()?)?;
    let aarch64 = number(cells.next()?)?;
    cells.next().is_none().then_some(Syscall {
        name,
        x86_64,
        aarch64,
    })
}

/// Parses a number; the inner `None` is the `-` of an absent call, the outer one an error.
fn number(cell: &str) -> Option<Option<u32>> {
    if cell == "-" {
        Some(None)
    } else {
        cell.parse().ok().map(Some)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_broken_line_is_named() {
        for text in [
            "read\t0\t63\nwrite\t1",
            "read\t0\t63\nwrite\tone\t64",
            "read\t0\t63\n",
            "read\t0\t63\n\t1\t64",
        ] {
            let found = parse(text);
            match text {
                "read\t0\t63\n" => assert_eq!(found.unwrap().len(), 1),
                _ => assert!(matches!(found, Err(Error::Table { line: 2 })), "{text:?}"),
            }
        }
    }

    #[test]
    fn every_name_is_found() {
        let table = shipped().unwrap();
        assert!(table.is_sorted_by(|one, next| one.name < next.name));
        for call in &table {
            assert_eq!(find(&table, call.name).map(|found| found.name), Some(call.name));
        }
        assert!(find(&table, "raed").is_none());
    }

    #[test]
    fn every_number_belongs_to_one_call() {
        for arch in [Arch::X86_64, Arch::Aarch64] {
            let table = shipped().unwrap();
            let mut numbers: Vec<_> = table.iter().filter_map(|call| call.number(arch)).collect();
            let count = numbers.len();
            numbers.sort_unstable();
            numbers.dedup();
            assert_eq!((numbers.len(), numbers.last()), (count, Some(&469)), "{arch:?}");
        }
    }

    /// From 424 on both architectures use the same numbers.
    #[test]
    fn newer_calls_have_one_number() {
        for call in shipped().unwrap() {
            if let Some(number) = call.x86_64.filter(|&number| number >= 424) {
                assert_eq!(call.aarch64, Some(number), "{}", call.name);
            }
        }
    }
}
