//! The symbols that an interpreter looks up in the extension library.

/// Serves fork requests. Returns in each forked guest, with the number of its control descriptor; in the
/// zygote itself only when the launcher has gone (-1) or this process is no CPython (-2).
///
/// To be called through `ctypes.PyDLL` from the main thread of a single-threaded interpreter.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn ringfence_zygote() -> i32 {
    crate::zygote::serve()
}

/// Forks the session that calls it, as the launcher will say through descriptor 5. Returns 0 in the session once
/// that has been tried, and 3 in the fork: the number of its control descriptor. A negative error number says that
/// there is no fork: `ECANCELED` that the launcher will not have one, `EBUSY` that other threads would be missing.
///
/// To be called as [`ringfence_zygote`], in a guest that was made as a session or by forking one.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn ringfence_fork() -> i32 {
    crate::fork::serve()
}
