//! Loads the trusted certificate authorities.

use std::fmt;
use std::fs::File;
use std::io::BufReader;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use tokio::sync::OnceCell;
use tokio::task::spawn_blocking;
use tokio_rustls::rustls::client::Resumption;
use tokio_rustls::rustls::crypto::ring;
use tokio_rustls::rustls::pki_types::CertificateDer;
use tokio_rustls::rustls::pki_types::pem::PemObject;
use tokio_rustls::rustls::{ClientConfig, Error, RootCertStore};

/// The system's certificate authorities, and optionally those of a file. Loaded on first use.
#[derive(Debug, Default)]
pub struct Trust {
    own: Option<ExtraRoots>,
    config: OnceCell<Arc<ClientConfig>>,
}

/// Opens a file by rules of the caller.
type Open = dyn Fn(&Path) -> Option<File> + Send + Sync;

/// A file of further authorities.
#[derive(Clone)]
struct ExtraRoots {
    path: PathBuf,
    open: Arc<Open>,
}

impl fmt::Debug for ExtraRoots {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ExtraRoots")
            .field("path", &self.path)
            .finish_non_exhaustive()
    }
}

/// An error of loading the certificate authorities.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum TrustError {
    /// The system has none.
    #[error("this machine has no certificate authorities")]
    Nobody,
    /// The file is unreadable, or contains none. Its path is for the user, not for a model, and omitted.
    #[error("no certificate authority can be read from the configured file")]
    File,
    /// The TLS library rejected the configuration.
    #[error("tls cannot be set up")]
    Setup,
}

impl TrustError {
    /// Returns a hint for the user.
    pub fn hint(&self) -> &'static str {
        match self {
            Self::Nobody => "install the package ca-certificates, or name a file with an authority",
            Self::File => "name a file with certificates in PEM form",
            Self::Setup => "this is a fault of Ringfence; please report it",
        }
    }
}

impl Trust {
    /// Trusts the system's authorities, and those in the PEM file `own`.
    pub fn new(own: Option<PathBuf>) -> Self {
        Self::opened_by(own, |path| File::open(path).ok())
    }

    /// Trusts the system's authorities, and those in the PEM file `own`, which `open` opens by rules of its own.
    pub fn opened_by(
        own: Option<PathBuf>,
        open: impl Fn(&Path) -> Option<File> + Send + Sync + 'static,
    ) -> Self {
        Self {
            own: own.map(|path| ExtraRoots {
                path,
                open: Arc::new(open),
            }),
            config: OnceCell::new(),
        }
    }

    /// Reads the additional file, if configured, to report errors early.
    ///
    /// # Errors
    /// If it is unreadable, or contains no certificate.
    pub fn check_own(&self) -> Result<(), TrustError> {
        self.own.as_ref().map_or(Ok(()), |own| {
            add_file(&mut RootCertStore::empty(), own).ok_or(TrustError::File)
        })
    }

    /// Returns the path of the additional file.
    pub fn own(&self) -> Option<&Path> {
        self.own.as_ref().map(|own| own.path.as_path())
    }

    /// Returns the client configuration; loads it on first use.
    pub async fn config(&self) -> Result<Arc<ClientConfig>, TrustError> {
        let load = async || {
            let own = self.own.clone();
            let loading = spawn_blocking(move || load(own.as_ref()));
            loading.await.map_err(|_| TrustError::Setup)?
        };
        self.config.get_or_try_init(load).await.cloned()
    }
}

fn load(own: Option<&ExtraRoots>) -> Result<Arc<ClientConfig>, TrustError> {
    let mut roots = RootCertStore::empty();
    roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
    if let Some(own) = own {
        add_file(&mut roots, own).ok_or(TrustError::File)?;
    }
    if roots.is_empty() {
        return Err(TrustError::Nobody);
    }
    let config = configure(roots).map_err(|_| TrustError::Setup)?;
    Ok(Arc::new(config))
}

/// Adds the certificates of the file; `None` if there is none, or one is malformed.
fn add_file(roots: &mut RootCertStore, own: &ExtraRoots) -> Option<()> {
    let before = roots.len();
    let file = (own.open)(&own.path)?;
    for certificate in CertificateDer::pem_reader_iter(BufReader::new(file)) {
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
    // A session ticket would tell a server which callers share this process.
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
