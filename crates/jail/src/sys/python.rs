//! The three calls that CPython requires around a fork that it did not make itself.

use std::ffi::CStr;

/// CPython's fork hooks (`PyOS_BeforeFork` and its kin, part of the public C API), found in the process that
/// loaded this library.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ForkHooks {
    before: unsafe extern "C" fn(),
    after_parent: unsafe extern "C" fn(),
    after_child: unsafe extern "C" fn(),
}

impl ForkHooks {
    /// Finds the hooks of the interpreter in this process; `None` without one.
    pub(crate) fn find() -> Option<Self> {
        Some(Self {
            before: symbol(c"PyOS_BeforeFork")?,
            after_parent: symbol(c"PyOS_AfterFork_Parent")?,
            after_child: symbol(c"PyOS_AfterFork_Child")?,
        })
    }

    /// Prepares the interpreter. Must be called before the fork, with the interpreter lock held.
    pub(crate) fn before(self) {
        // SAFETY: called from the interpreter's main thread, which holds its lock (ctypes.PyDLL).
        unsafe { (self.before)() }
    }

    /// Restores the interpreter. Must be called after the fork, in the parent.
    pub(crate) fn after_in_parent(self) {
        // SAFETY: as `before`, and the fork has happened.
        unsafe { (self.after_parent)() }
    }

    /// Restores the interpreter. Must be called after the fork, in the child.
    pub(crate) fn after_in_child(self) {
        // SAFETY: as `before`, in the child, whose only thread is the one that forked.
        unsafe { (self.after_child)() }
    }
}

fn symbol(name: &CStr) -> Option<unsafe extern "C" fn()> {
    // SAFETY: looks a name up among the loaded objects.
    let address = unsafe { libc::dlsym(libc::RTLD_DEFAULT, name.as_ptr()) };
    if address.is_null() {
        return None;
    }
    // SAFETY: the three names looked up are functions without arguments and results in every CPython since
    // 3.7.
    Some(unsafe { std::mem::transmute::<*mut libc::c_void, unsafe extern "C" fn()>(address) })
}
