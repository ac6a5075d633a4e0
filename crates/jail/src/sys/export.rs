//! Symbols that an interpreter looks up in the extension library.

/// Serves fork requests. Returns in each forked guest, with the number of its control channel; in the zygote
/// itself only if the launcher has exited (-1) or this process is not CPython (-2).
///
/// To be called through `ctypes.PyDLL` from the main thread of a single-threaded interpreter.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn ringfence_zygote() -> i32 {
    crate::zygote::serve()
}

/// Forks the calling session, as requested by the launcher on file descriptor 5. Returns 0 in the session
/// after the attempt, and 3 in the fork: the number of its control channel. A negative error number means
/// that there is no fork: `ECANCELED` if the launcher cancelled it, `EBUSY` if other threads would be
/// missing.
///
/// To be called like [`ringfence_zygote`], in a guest that was created as a session or by forking one.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn ringfence_fork() -> i32 {
    crate::fork::serve()
}
