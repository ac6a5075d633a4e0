//! Selects the cryptography provider of TLS.

use tokio_rustls::rustls::crypto::ring;

/// Installs the provider for all libraries in this process. Must be called before the first connection.
pub(crate) fn use_ring() {
    // A failure means that the same provider is already installed.
    let _ = ring::default_provider().install_default();
}
