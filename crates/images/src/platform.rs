//! The platform of this machine, in the words of images.

/// The only operating system whose images run here.
pub(crate) const OS: &str = "linux";

/// Returns the architecture of this machine as images name it.
pub(crate) fn architecture() -> &'static str {
    match std::env::consts::ARCH {
        "x86_64" => "amd64",
        "aarch64" => "arm64",
        other => other,
    }
}
