//! TLS at a listener: a certificate and its key from files, which may be renewed while the server runs.
#![forbid(unsafe_code)]

use std::convert::Infallible;
use std::fs::{File, Metadata};
use std::io::{self, Read};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use ringfence_trust::{NamedPathError, NamedPaths};
use tokio::net::TcpStream;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::client::{verify_server_cert_signed_by_trust_anchor, verify_server_name};
use tokio_rustls::rustls::crypto::{CryptoProvider, ring};
use tokio_rustls::rustls::pki_types::pem::{self, PemObject};
use tokio_rustls::rustls::pki_types::{
    CertificateDer, PrivateKeyDer, ServerName, SignatureVerificationAlgorithm, UnixTime,
};
use tokio_rustls::rustls::server::{ClientHello, ParsedCertificate, ResolvesServerCert};
use tokio_rustls::rustls::sign::CertifiedKey;
use tokio_rustls::rustls::{self, RootCertStore, ServerConfig};
use tokio_rustls::server::TlsStream;

/// Maximum size of a file.
const MAX_FILE: u64 = 1 << 20;
/// Deadline for a handshake.
const HANDSHAKE: Duration = Duration::from_secs(10);
/// Minimum time between two looks at the files.
const INTERVAL: Duration = Duration::from_secs(1);
/// Interval between checks of the files without connections, so that an invalid renewal is reported soon.
const LOOK: Duration = Duration::from_secs(10);

/// The files of a certificate, both PEM.
#[derive(Debug, Clone)]
pub struct CertificateFiles {
    /// The certificate chain: the server's certificate, followed by intermediate ones.
    pub certificate: PathBuf,
    /// Private key of the certificate: PKCS #8, PKCS #1 or SEC 1.
    pub key: PathBuf,
    /// Names that the certificate must be valid for.
    pub names: Vec<String>,
    /// The rules by which both are opened, at first and when they are renewed.
    pub named: NamedPaths,
    /// Called when renewed files cannot be used, once until they can, and then again.
    pub tell: fn(Renewal<'_>),
}

/// An error of loading the certificate files.
#[derive(Debug, thiserror::Error)]
pub enum CertificateError {
    /// A path that cannot be opened, or that a program may have made a link on.
    #[error("cannot open {}: {source}", path.display())]
    Named { path: PathBuf, source: NamedPathError },
    /// A file that cannot be read, or is larger than 1 MiB.
    #[error("cannot read {}: {source}", path.display())]
    Read { path: PathBuf, source: io::Error },
    /// A file in a directory that programs could write.
    #[error("{} lies in {}, where programs could write", path.display(), tree.display())]
    Exposed { path: PathBuf, tree: PathBuf },
    /// A file of another user than the server's and root.
    #[error("{} belongs to user {user}: expected the user of the server, or root", path.display())]
    Foreign { path: PathBuf, user: u32 },
    /// A key that every user of the machine may read.
    #[error("every user of this machine may read the key {} (mode {mode:o})", path.display())]
    Open { path: PathBuf, mode: u32 },
    /// A file that is not PEM, or has nothing of the kind.
    #[error("expected {expected} as PEM in {}: {source}", path.display())]
    Pem {
        path: PathBuf,
        expected: &'static str,
        source: pem::Error,
    },
    /// A certificate that is not X.509 of version 3 (RFC 5280).
    #[error("expected an X.509 certificate of version 3 in {}: {source}", path.display())]
    Form { path: PathBuf, source: rustls::Error },
    /// A certificate that has expired, or is not valid yet.
    #[error("clients refuse the certificate {} at this time: {source}", path.display())]
    Period { path: PathBuf, source: rustls::Error },
    /// A certificate without a name that clients ask for.
    #[error("the certificate {} is not for `{name}`: {source}", path.display())]
    Name {
        path: PathBuf,
        name: String,
        source: rustls::Error,
    },
    /// A certificate and a key that do not belong together, or of an algorithm that TLS does not use.
    #[error("the certificate {} and the key {} cannot be used together: {source}", certificate.display(), key.display())]
    Pair {
        certificate: PathBuf,
        key: PathBuf,
        source: rustls::Error,
    },
}

/// A change of what is in use of the files of a certificate.
#[derive(Debug, Clone, Copy)]
pub enum Renewal<'a> {
    /// The files cannot be used, so the certificate of before stays.
    Failed(&'a CertificateError),
    /// After that, their certificate is in use again.
    Current,
}

/// The state of a certificate that may be renewed: stale if it has expired, or the files cannot be used.
#[derive(Debug, Default)]
pub struct CertificateState(AtomicBool);

impl CertificateState {
    /// Returns `true` while the certificate in use has expired, or the renewed one cannot be used.
    pub fn is_stale(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }

    /// Sets the state, and returns the previous one.
    fn set(&self, is_stale: bool) -> bool {
        self.0.swap(is_stale, Ordering::Relaxed)
    }
}

/// The server's side of TLS 1.2 and 1.3 (RFC 5246, RFC 8446).
pub struct Tls {
    acceptor: TlsAcceptor,
    current: Arc<Current>,
}

/// The certificate that new connections get.
#[derive(Debug)]
struct Current {
    files: CertificateFiles,
    provider: Arc<CryptoProvider>,
    loaded: Mutex<Loaded>,
    certificate: Arc<CertificateState>,
}

#[derive(Debug)]
struct Loaded {
    pair: Arc<CertifiedKey>,
    state: State,
    /// Time of the last look at the files.
    seen: Instant,
}

/// State of both files: device, inode, and time of change.
type State = [(u64, u64, i64, i64); 2];

impl Tls {
    /// Reads the files.
    ///
    /// # Errors
    /// If they cannot be used.
    pub fn open(files: CertificateFiles) -> Result<Self, CertificateError> {
        let provider = Arc::new(ring::default_provider());
        let loaded = Mutex::new(Loaded {
            state: files.state()?,
            pair: files.load(&provider)?,
            seen: Instant::now(),
        });
        let current = Arc::new(Current {
            files,
            provider: Arc::clone(&provider),
            loaded,
            certificate: Arc::default(),
        });
        let mut config = ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .map_err(|source| current.files.unusable(source))?
            .with_no_client_auth()
            .with_cert_resolver(Arc::clone(&current) as Arc<dyn ResolvesServerCert>);
        config.alpn_protocols = vec![b"http/1.1".to_vec()];
        Ok(Self {
            acceptor: TlsAcceptor::from(Arc::new(config)),
            current,
        })
    }

    pub fn certificate(&self) -> &Arc<CertificateState> {
        &self.current.certificate
    }

    /// Performs a handshake, with the certificate that the files hold now. Files that cannot be used leave the one before
    /// in use.
    pub async fn accept(&self, stream: TcpStream) -> io::Result<TlsStream<TcpStream>> {
        self.look().await;
        tokio::time::timeout(HANDSHAKE, self.acceptor.accept(stream)).await?
    }

    /// Checks the files at intervals, with or without connections.
    pub async fn keep_new(&self) -> Infallible {
        loop {
            tokio::time::sleep(LOOK).await;
            self.look().await;
        }
    }

    async fn look(&self) {
        if self.current.is_due() {
            let current = Arc::clone(&self.current);
            // A panic there leaves the one before in use.
            let _ = tokio::task::spawn_blocking(move || current.renew()).await;
        }
    }
}

impl std::fmt::Debug for Tls {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Tls").field(&self.current.files).finish()
    }
}

impl Current {
    fn loaded(&self) -> std::sync::MutexGuard<'_, Loaded> {
        self.loaded.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns `true` if the interval between checks of the files has passed, to one of concurrent callers.
    fn is_due(&self) -> bool {
        let mut loaded = self.loaded();
        let is_due = loaded.seen.elapsed() >= INTERVAL;
        if is_due {
            loaded.seen = Instant::now();
        }
        is_due
    }

    fn supported(&self) -> &[&dyn SignatureVerificationAlgorithm] {
        self.provider.signature_verification_algorithms.all
    }

    fn renew(&self) {
        let used = self.loaded().state;
        let found = self.files.state().and_then(|state| match state == used {
            true => {
                let pair = Arc::clone(&self.loaded().pair);
                self.files
                    .check_period(&pair.cert, self.supported())
                    .map(|()| None)
            }
            false => Ok(Some((self.files.load(&self.provider)?, state))),
        });
        match found {
            Ok(new) => {
                if let Some((pair, state)) = new {
                    let mut loaded = self.loaded();
                    (loaded.pair, loaded.state) = (pair, state);
                }
                if self.certificate.set(false) {
                    (self.files.tell)(Renewal::Current);
                }
            }
            Err(error) => {
                if !self.certificate.set(true) {
                    (self.files.tell)(Renewal::Failed(&error));
                }
            }
        }
    }
}

impl ResolvesServerCert for Current {
    fn resolve(&self, _: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        Some(Arc::clone(&self.loaded().pair))
    }
}

impl CertificateFiles {
    fn state(&self) -> Result<State, CertificateError> {
        let of = |path| {
            let (_, found) = self.open(path)?;
            Ok((found.dev(), found.ino(), found.ctime(), found.ctime_nsec()))
        };
        Ok([of(&self.certificate)?, of(&self.key)?])
    }

    fn load(&self, provider: &CryptoProvider) -> Result<Arc<CertifiedKey>, CertificateError> {
        let (file, found) = self.open(&self.certificate)?;
        let text = read(&self.certificate, file, &found)?;
        let chain = CertificateDer::pem_slice_iter(&text).collect::<Result<Vec<_>, _>>();
        let chain = chain.and_then(|chain| match chain.is_empty() {
            true => Err(pem::Error::NoItemsFound),
            false => Ok(chain),
        });
        let chain = chain.map_err(no_pem(&self.certificate, "a certificate"))?;
        let (file, found) = self.open(&self.key)?;
        let mode = found.mode() & 0o7777;
        if mode & 0o007 != 0 {
            let path = self.key.clone();
            return Err(CertificateError::Open { path, mode });
        }
        self.check_period(&chain, provider.signature_verification_algorithms.all)?;
        self.check_names(&chain)?;
        let key = PrivateKeyDer::from_pem_slice(&read(&self.key, file, &found)?);
        let key = key.map_err(no_pem(&self.key, "a private key"))?;
        let pair = CertifiedKey::from_der(chain, key, provider).map_err(|source| self.unusable(source))?;
        Ok(Arc::new(pair))
    }

    /// Checks that a chain's certificate can be read, and is valid at this time.
    fn check_period(
        &self,
        chain: &[CertificateDer<'_>],
        supported: &[&dyn SignatureVerificationAlgorithm],
    ) -> Result<(), CertificateError> {
        let Some(first) = chain.first() else {
            return Ok(());
        };
        let path = || self.certificate.clone();
        let first = ParsedCertificate::try_from(first)
            .map_err(|source| CertificateError::Form { path: path(), source })?;
        // The period is checked before the issuer, and nothing is known of the authorities that clients trust.
        let (roots, now) = (RootCertStore::empty(), UnixTime::now());
        match verify_server_cert_signed_by_trust_anchor(&first, &roots, &[], now, supported) {
            Err(
                source @ rustls::Error::InvalidCertificate(
                    rustls::CertificateError::Expired
                    | rustls::CertificateError::ExpiredContext { .. }
                    | rustls::CertificateError::NotValidYet
                    | rustls::CertificateError::NotValidYetContext { .. },
                ),
            ) => Err(CertificateError::Period { path: path(), source }),
            Ok(()) | Err(_) => Ok(()),
        }
    }

    /// Checks that a chain's certificate is valid for the names.
    fn check_names(&self, chain: &[CertificateDer<'_>]) -> Result<(), CertificateError> {
        let Some(first) = chain.first() else {
            return Ok(());
        };
        for name in &self.names {
            let asked = ServerName::try_from(name.as_str()).map_err(|_| rustls::Error::UnsupportedNameType);
            let checked =
                asked.and_then(|asked| verify_server_name(&ParsedCertificate::try_from(first)?, &asked));
            checked.map_err(|source| CertificateError::Name {
                path: self.certificate.clone(),
                name: name.clone(),
                source,
            })?;
        }
        Ok(())
    }

    fn open(&self, path: &Path) -> Result<(File, Metadata), CertificateError> {
        let named = |source| CertificateError::Named {
            path: path.to_owned(),
            source,
        };
        let (file, resolved) = self.named.open_file(path).map_err(named)?;
        let tree = self.named.written(&resolved);
        if let Some(tree) = tree.map_err(|source| named(NamedPathError::Unknown(source)))? {
            let path = path.to_owned();
            return Err(CertificateError::Exposed { path, tree });
        }
        let found = file.metadata().map_err(|source| unreadable(path, source))?;
        let user = found.uid();
        if user != 0 && user != rustix::process::geteuid().as_raw() {
            let path = path.to_owned();
            return Err(CertificateError::Foreign { path, user });
        }
        Ok((file, found))
    }

    fn unusable(&self, source: rustls::Error) -> CertificateError {
        CertificateError::Pair {
            certificate: self.certificate.clone(),
            key: self.key.clone(),
            source,
        }
    }
}

fn unreadable(path: &Path, source: io::Error) -> CertificateError {
    CertificateError::Read {
        path: path.to_owned(),
        source,
    }
}

fn read(path: &Path, file: File, found: &Metadata) -> Result<Vec<u8>, CertificateError> {
    if found.len() > MAX_FILE {
        return Err(unreadable(path, io::ErrorKind::FileTooLarge.into()));
    }
    let mut bytes = Vec::new();
    let done = file.take(MAX_FILE).read_to_end(&mut bytes);
    done.map_err(|source| unreadable(path, source))?;
    Ok(bytes)
}

fn no_pem(path: &Path, expected: &'static str) -> impl FnOnce(pem::Error) -> CertificateError {
    let path = path.to_owned();
    move |source| CertificateError::Pem {
        path,
        expected,
        source,
    }
}
