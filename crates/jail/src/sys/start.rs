//! Erases the strings that the kernel put into a process's memory when it was executed.

use std::{io, slice};

/// The replacement for the arguments in process listings.
const TITLE: &[u8] = b"ringfence __jail";

/// Overwrites the arguments, the environment and the path that the calling process was executed with. Only
/// for single-threaded callers that hold no reference into them.
pub(crate) fn blank_start() -> io::Result<()> {
    let [arguments, arguments_end, environment, environment_end] = places()?;
    // SAFETY: nobody else is there to use the environment.
    unsafe { libc::clearenv() };
    // SAFETY: the kernel says that these ranges of our stack hold the strings; they are writable, and the
    // caller vouches that nothing refers to them.
    let (arguments, environment) = unsafe {
        (
            slice::from_raw_parts_mut(arguments as *mut u8, arguments_end - arguments),
            slice::from_raw_parts_mut(environment as *mut u8, environment_end - environment),
        )
    };
    blank(environment);
    blank(arguments);
    // The last byte stays zero: without it the kernel would go on reading in the former environment.
    let length = TITLE.len().min(arguments.len().saturating_sub(1));
    arguments[..length].copy_from_slice(&TITLE[..length]);
    // SAFETY: a plain call.
    let path = unsafe { libc::getauxval(libc::AT_EXECFN) } as *mut libc::c_char;
    if !path.is_null() {
        // SAFETY: the kernel put a string there, on our stack, that nothing refers to.
        blank(unsafe { slice::from_raw_parts_mut(path.cast(), libc::strlen(path)) });
    }
    Ok(())
}

/// Returns the address ranges of arguments and environment.
fn places() -> io::Result<[usize; 4]> {
    // The name comes second, in parentheses, and may contain anything: the fields after it are numbers
    // (proc(5)).
    let stat = std::fs::read("/proc/self/stat")?;
    let behind_name = stat.rsplit(|byte| *byte == b')').next().unwrap_or_default();
    let mut fields = behind_name.split(u8::is_ascii_whitespace).skip(1);
    let mut number = |index: usize| {
        let field = fields.nth(index).and_then(|field| str::from_utf8(field).ok());
        field
            .and_then(|field| field.parse().ok())
            .ok_or(io::ErrorKind::InvalidData)
    };
    // The first field here is the third; the wanted ones are the 48th to the 51st.
    let found: [usize; 4] = [number(45)?, number(0)?, number(0)?, number(0)?];
    let ordered = found[0] != 0 && found.is_sorted();
    ordered.then_some(found).ok_or(io::ErrorKind::InvalidData.into())
}

/// Overwrites bytes in a way that the compiler cannot optimize away.
pub(crate) fn blank(bytes: &mut [u8]) {
    // SAFETY: the pointer and length describe `bytes`.
    unsafe { libc::explicit_bzero(bytes.as_mut_ptr().cast(), bytes.len()) };
}
