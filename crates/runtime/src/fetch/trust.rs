//! Whose certificates are believed.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use tokio::sync::OnceCell;
use tokio::task::spawn_blocking;
use tokio_rustls::rustls::client::Resumption;
use tokio_rustls::rustls::crypto::ring;
use tokio_rustls::rustls::pki_types::CertificateDer;
use tokio_rustls::rustls::pki_types::pem::PemObject;
use tokio_rustls::rustls::{ClientConfig, Error, RootCertStore};

/// The authorities of the system, and those of a file if one is named. They are read when first needed.
#[derive(Debug, Default)]
pub struct Trust {
    own: Option<PathBuf>,
    config: OnceCell<Arc<ClientConfig>>,
}

/// Why there is nobody to believe.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum TrustError {
    /// The system has none.
    #[error("this machine has no certificate authorities")]
    Nobody,
    /// The file cannot be read, or holds none. Its path is the reader's own affair, and not a model's.
    #[error("no certificate authority can be read from the configured file")]
    File,
    /// The library refused what it was given.
    #[error("tls cannot be set up")]
    Setup,
}

impl TrustError {
    /// What the reader can do about it.
    pub fn hint(&self) -> &'static str {
        match self {
            Self::Nobody => "install the package ca-certificates, or name a file with an authority",
            Self::File => "name a file with certificates in PEM form",
            Self::Setup => "this is a fault of Ringfence; please report it",
        }
    }
}

impl Trust {
    /// The system's authorities, and those in the PEM file `own` as well.
    pub fn new(own: Option<PathBuf>) -> Self {
        Self {
            own,
            config: OnceCell::new(),
        }
    }

    /// Reads the file beside the system's, if one is named, for those who want to know early.
    ///
    /// # Errors
    /// If it cannot be read, or holds no certificate.
    pub fn check_own(&self) -> Result<(), TrustError> {
        let own = self.own.as_deref();
        own.map_or(Ok(()), |file| {
            add_file(&mut RootCertStore::empty(), file).ok_or(TrustError::File)
        })
    }

    /// The file beside the system's.
    pub(crate) fn own(&self) -> Option<&Path> {
        self.own.as_deref()
    }

    /// The settings of a connection.
    pub(crate) async fn config(&self) -> Result<Arc<ClientConfig>, TrustError> {
        let load = async || {
            let own = self.own.clone();
            let loading = spawn_blocking(move || load(own.as_deref()));
            loading.await.map_err(|_| TrustError::Setup)?
        };
        self.config.get_or_try_init(load).await.cloned()
    }
}

fn load(own: Option<&Path>) -> Result<Arc<ClientConfig>, TrustError> {
    let mut roots = RootCertStore::empty();
    roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
    if let Some(file) = own {
        add_file(&mut roots, file).ok_or(TrustError::File)?;
    }
    if roots.is_empty() {
        return Err(TrustError::Nobody);
    }
    let config = configure(roots).map_err(|_| TrustError::Setup)?;
    Ok(Arc::new(config))
}

/// Adds every certificate of the file; none at all, or a broken one, is a failure.
fn add_file(roots: &mut RootCertStore, file: &Path) -> Option<()> {
    let before = roots.len();
    for certificate in CertificateDer::pem_file_iter(file).ok()? {
        roots.add(certificate.ok()?).ok()?;
    }
    (roots.len() > before).then_some(())
}

fn configure(roots: RootCertStore) -> Result<ClientConfig, Error> {
    let mut config = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()?
        .with_root_certificates(roots)
        .with_no_client_auth();
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    // A ticket would tell a server which callers share this engine.
    config.resumption = Resumption::disabled();
    Ok(config)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_file_without_certificates_is_an_error() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("ca.pem");
        for text in [
            None,
            Some(""),
            Some("hello"),
            Some("-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n"),
        ] {
            if let Some(text) = text {
                std::fs::write(&file, text).unwrap();
            }
            assert_eq!(
                Trust::new(Some(file.clone())).check_own(),
                Err(TrustError::File),
                "{text:?}"
            );
            let refusal = Trust::new(Some(file.clone())).config().await.unwrap_err();
            assert_eq!(refusal, TrustError::File, "{text:?}");
        }
    }
}
