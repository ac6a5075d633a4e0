//! Which cryptography secure connections use.

use tokio_rustls::rustls::crypto::ring;

/// Has every library in this process use the same cryptography. To be called before the first connection.
pub(crate) fn use_ring() {
    // Whoever was first has chosen the same.
    let _ = ring::default_provider().install_default();
}
