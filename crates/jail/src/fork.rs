//! A session's side of being forked into a cell of its own.

/// What the library's symbol does; see `sys::export`.
pub(crate) fn serve() -> i32 {
    -libc::ENOSYS
}
