//! Extended attributes (xattr(7)).

use std::ffi::CStr;
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};

use super::check;

/// Writes the names of a file's attributes to a buffer, each with its NUL, and returns their length.
pub(crate) fn list_attributes(path: &CStr, names: &mut [u8]) -> io::Result<usize> {
    // SAFETY: the path is a live C string, and the buffer has the length.
    let length = check(unsafe {
        libc::listxattr(path.as_ptr(), names.as_mut_ptr().cast(), names.len()) as libc::c_long
    })?;
    Ok(usize::try_from(length).unwrap_or_default())
}

/// Writes an attribute of a file to a buffer, and returns its length.
pub(crate) fn attribute(path: &CStr, name: &CStr, value: &mut [u8]) -> io::Result<usize> {
    if value.is_empty() {
        // The kernel would return the length alone.
        return Err(io::Error::from_raw_os_error(libc::ERANGE));
    }
    // SAFETY: path and name are live C strings, and the buffer has the length.
    let length = check(unsafe {
        libc::getxattr(
            path.as_ptr(),
            name.as_ptr(),
            value.as_mut_ptr().cast(),
            value.len(),
        ) as libc::c_long
    })?;
    Ok(usize::try_from(length).unwrap_or_default())
}

/// Sets an attribute of an open file.
pub(crate) fn set_attribute(file: BorrowedFd<'_>, name: &CStr, value: &[u8]) -> io::Result<()> {
    // SAFETY: the name is a live C string, and the value has the length.
    let done = unsafe {
        libc::fsetxattr(
            file.as_raw_fd(),
            name.as_ptr(),
            value.as_ptr().cast(),
            value.len(),
            0,
        )
    };
    check(libc::c_long::from(done)).map(drop)
}
