//! Confines threads of this process that handle hostile files.

use std::io;
use std::path::Path;

use ringfence_jail::protocol::LandlockRules;

/// Confines the calling thread for the rest of its life: it reads and writes below `directory` and nowhere else, and
/// has no TCP. Files that are open already stay usable.
///
/// # Errors
/// If the kernel has no Landlock.
pub fn confine_thread_to(directory: &Path) -> io::Result<()> {
    ringfence_jail::confine_thread(&LandlockRules {
        writable: vec![directory.to_owned()],
        ..LandlockRules::default()
    })
}
