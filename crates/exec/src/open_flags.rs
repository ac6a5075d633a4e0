//! Flags of `open` that the standard library has no names for.

/// From `fcntl.h`; the same on x86_64 and aarch64, except `O_DIRECTORY` and `O_NOFOLLOW`.
pub const O_NONBLOCK: i32 = 0o4000;
pub(crate) const O_PATH: i32 = 0o10_000_000;
#[cfg(target_arch = "aarch64")]
pub const O_DIRECTORY: i32 = 0o40000;
#[cfg(target_arch = "aarch64")]
pub const O_NOFOLLOW: i32 = 0o100000;
#[cfg(not(target_arch = "aarch64"))]
pub const O_DIRECTORY: i32 = 0o200000;
#[cfg(not(target_arch = "aarch64"))]
pub const O_NOFOLLOW: i32 = 0o400000;
