//! The one symbol that the zygote's interpreter looks up in the extension library.

/// Serves fork requests. Returns in each forked guest, with the number of its control descriptor; in the
/// zygote itself only when the launcher has gone (-1) or this process is no CPython (-2).
///
/// To be called through `ctypes.PyDLL` from the main thread of a single-threaded interpreter.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn ringfence_zygote() -> i32 {
    crate::zygote::serve()
}
