//! The user whose rights a thread has on files.

use std::io;
use std::marker::PhantomData;

use crate::sys;

/// The calling thread's rights on files, and the owner of what it creates: those of a user, until this is dropped
/// (setfsuid(2)). A file system of a user namespace takes files of its own users only, root not excepted.
#[derive(Debug)]
pub struct FileUser {
    former: (u32, u32),
    /// It belongs to the thread that made it.
    _thread: PhantomData<*const ()>,
}

impl FileUser {
    /// Changes the calling thread's rights on files to those of a user and a group.
    ///
    /// # Errors
    /// If the thread may not do that.
    pub fn of_thread(user: u32, group: u32) -> io::Result<Self> {
        let changed = Self {
            former: sys::file_ids(),
            _thread: PhantomData,
        };
        // The group first, while the thread may.
        sys::set_file_ids(user, group);
        match sys::file_ids() == (user, group) {
            true => Ok(changed),
            false => Err(io::ErrorKind::PermissionDenied.into()),
        }
    }
}

impl Drop for FileUser {
    fn drop(&mut self) {
        let (user, group) = self.former;
        sys::set_file_ids(user, group);
    }
}
