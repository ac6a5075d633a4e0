//! Speaks the distribution protocol of OCI registries.
//!
//! Credentials go to the registry that they are for and to the token server that it names, and to nobody whom a
//! redirect leads to.

use std::net::IpAddr;
use std::ops::ControlFlow;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use ringfence_network::egress::Resolver;
use ringfence_network::fetch::{
    FetchCause, FetchLimits, FetchRequest, Page, ParseUrlError, RequestError, Scheme, Sink, Trust, Url,
    receive,
};
use ringfence_policy::{Host, is_public};
use tokio::net::TcpStream;
use tokio::time::timeout;

use crate::challenge::{Challenge, Wanted, token};
use crate::credentials::{CredentialFiles, Login, LoginSecret, Lookup};
use crate::reference::Reference;
use crate::registry_error::RegistryError;

/// Media types of manifests that are understood.
const ACCEPT: &str = "application/vnd.oci.image.index.v1+json, application/vnd.oci.image.manifest.v1+json, \
                      application/vnd.docker.distribution.manifest.list.v2+json, \
                      application/vnd.docker.distribution.manifest.v2+json";

const CONNECTING: Duration = Duration::from_secs(20);
/// Time without a byte after which a transfer is aborted.
const STALL: Duration = Duration::from_secs(60);
/// Time for one transfer.
const TRANSFER: Duration = Duration::from_secs(4 * 60 * 60);
/// Maximum number of redirects of a request.
const MAX_REDIRECTS: usize = 5;
/// Maximum number of tokens for one image: they expire during long pulls.
const MAX_TOKENS: usize = 16;
/// Maximum number of addresses of a host that are tried.
const MAX_TRIED: usize = 4;
/// Maximum length of a token server's answer.
const MAX_ANSWER: usize = 64 * 1024;

/// The way to the network.
#[derive(Debug, Clone)]
pub struct Network {
    pub resolver: Resolver,
    pub trust: Arc<Trust>,
    pub credentials: CredentialFiles,
}

/// A client of a registry, for one image.
pub(crate) struct Registry<'a> {
    reference: &'a Reference,
    network: &'a Network,
    origin: String,
    /// Value of `Authorization`, for the registry itself.
    authorization: Option<String>,
    tokens: usize,
    /// The search for credentials, once they were asked for.
    lookup: Option<Lookup>,
    /// Set once the registry was found on the internet: nothing it names may be elsewhere.
    is_public: bool,
}

impl<'a> Registry<'a> {
    pub(crate) fn new(reference: &'a Reference, network: &'a Network) -> Self {
        let host = reference.host();
        Self {
            origin: format!("{}://{host}", scheme(host)),
            reference,
            network,
            authorization: None,
            tokens: 0,
            lookup: None,
            is_public: false,
        }
    }

    /// Returns a manifest or an index by tag or digest.
    pub(crate) async fn manifest(&mut self, version: &str, most: u64) -> Result<Vec<u8>, RegistryError> {
        let mut kept = Vec::new();
        let mut keep = |bytes: &[u8]| {
            kept.extend_from_slice(bytes);
            ControlFlow::Continue(())
        };
        self.get(&format!("manifests/{version}"), most, &mut keep).await?;
        Ok(kept)
    }

    /// Passes a blob on as it arrives.
    pub(crate) async fn blob(
        &mut self,
        digest: &str,
        most: u64,
        sink: &mut Sink<'_>,
    ) -> Result<(), RegistryError> {
        self.get(&format!("blobs/{digest}"), most, sink).await
    }

    async fn get(&mut self, below: &str, most: u64, sink: &mut Sink<'_>) -> Result<(), RegistryError> {
        let url = format!("{}/v2/{}/{below}", self.origin, self.reference.name());
        let mut is_fresh = false;
        loop {
            let mut headers = vec![("accept".to_owned(), ACCEPT.to_owned())];
            headers.extend(self.authorization.clone().map(authorization));
            let page = self.follow(request(&url, &headers)?, most, sink).await?;
            match page.status.as_u16() {
                200 if page.truncated => return Err(RegistryError::TooLong),
                200 => return Ok(()),
                // What a new token does not open stays closed.
                401 if !is_fresh && self.tokens < MAX_TOKENS => {
                    self.authenticate(&page).await?;
                    is_fresh = true;
                }
                status @ (401 | 403) => return Err(self.denied(status).await),
                404 => return Err(RegistryError::NotFound),
                429 => return Err(RegistryError::TooMany),
                status => return Err(RegistryError::Status(status)),
            }
        }
    }

    /// Sends a request and follows redirects, to another origin without credentials. That one's challenge is an error:
    /// nobody but the registry may ask for the user's credentials.
    async fn follow(
        &mut self,
        mut request: FetchRequest,
        most: u64,
        sink: &mut Sink<'_>,
    ) -> Result<Page, RegistryError> {
        let origin = request.url().clone();
        for _ in 0..=MAX_REDIRECTS {
            let page = self.exchange(&request, most, sink).await?;
            let Some(location) = page.location() else {
                let status = page.status.as_u16();
                return match matches!(status, 401 | 403) && !request.url().same_origin(&origin) {
                    true => Err(RegistryError::Elsewhere {
                        host: request.url().host.to_string(),
                        status,
                    }),
                    false => Ok(page),
                };
            };
            let host = request.url().host.to_string();
            let next = request.redirected(page.status, location.as_bytes());
            request = next.map_err(|cause| RegistryError::Exchange { host, cause })?;
            checked(request.url())?;
        }
        Err(RegistryError::Exchange {
            host: request.url().host.to_string(),
            cause: FetchCause::TooManyRedirects(MAX_REDIRECTS),
        })
    }

    /// Answers the challenge of a page with credentials, if there are any, and a token.
    async fn authenticate(&mut self, page: &Page) -> Result<(), RegistryError> {
        let values = page.headers.get_all("www-authenticate").iter();
        let values: Vec<_> = values.filter_map(|value| value.to_str().ok()).collect();
        let wanted = Wanted::read(&values);
        let wanted = wanted.ok_or(RegistryError::Challenge)?;
        self.tokens += 1;
        let lookup = self.look_up().await?;
        self.authorization = Some(match (wanted, lookup) {
            (Wanted::Token(challenge), lookup) => {
                let request = self.token_request(&challenge, lookup.ok())?;
                format!("Bearer {}", self.token(request).await?)
            }
            (Wanted::Password, Ok(login)) => match login.secret {
                LoginSecret::Password(pair) => format!("Basic {pair}"),
                LoginSecret::Identity(_) => return Err(RegistryError::OnlyToken(login.file)),
            },
            (Wanted::Password, Err(search)) => return Err(RegistryError::Denied(search)),
        });
        Ok(())
    }

    /// Returns the credentials for the registry, which are searched for once.
    async fn look_up(&mut self) -> Result<Lookup, RegistryError> {
        if let Some(known) = &self.lookup {
            return Ok(known.clone());
        }
        let (files, reference) = (self.network.credentials.clone(), self.reference.clone());
        let searching = tokio::task::spawn_blocking(move || files.find(&reference));
        let lookup = searching.await.map_err(|_| RegistryError::Search)??;
        Ok(self.lookup.insert(lookup).clone())
    }

    /// Returns the error for a registry that refuses what it was sent.
    async fn denied(&mut self, status: u16) -> RegistryError {
        match self.look_up().await {
            Ok(Ok(Login { file, .. })) => RegistryError::Refused { file, status },
            Ok(Err(search)) => RegistryError::Denied(search),
            Err(error) => error,
        }
    }

    /// Returns the request for a token. Credentials go with it, but not over a network without TLS.
    fn token_request(
        &self,
        challenge: &Challenge,
        login: Option<Login>,
    ) -> Result<FetchRequest, RegistryError> {
        let name = self.reference.name();
        let Some(Login { file, secret }) = login else {
            return request(&challenge.url(name), &[]);
        };
        let (realm, registry) = (request(challenge.realm(), &[])?, request(&self.origin, &[])?);
        let (realm, registry) = (realm.url(), registry.url());
        // Another port may be another user's.
        if realm.scheme == Scheme::Http && (&realm.host, realm.port) != (&registry.host, registry.port) {
            return Err(RegistryError::Realm {
                host: realm.host.to_string(),
                file,
            });
        }
        match secret {
            LoginSecret::Password(pair) => {
                request(&challenge.url(name), &[authorization(format!("Basic {pair}"))])
            }
            LoginSecret::Identity(identity) => {
                let form = "application/x-www-form-urlencoded".to_owned();
                let headers = [("content-type".to_owned(), form)];
                let body = challenge.form(name, &identity).into_bytes();
                FetchRequest::new(challenge.realm(), "POST", &headers, body).map_err(unusable)
            }
        }
    }

    /// Fetches a token. A form with credentials follows no redirect.
    async fn token(&mut self, request: FetchRequest) -> Result<String, RegistryError> {
        let mut kept = Vec::new();
        let mut keep = |bytes: &[u8]| {
            kept.extend_from_slice(bytes);
            ControlFlow::Continue(())
        };
        let page = match request.has_body() {
            true => self.exchange(&request, MAX_ANSWER as u64, &mut keep).await?,
            false => self.follow(request, MAX_ANSWER as u64, &mut keep).await?,
        };
        match page.status.as_u16() {
            200 if !page.truncated => token(&kept),
            status @ (401 | 403) => Err(self.denied(status).await),
            429 => Err(RegistryError::TooMany),
            _ => Err(RegistryError::Token),
        }
    }

    async fn exchange(
        &mut self,
        request: &FetchRequest,
        most: u64,
        sink: &mut Sink<'_>,
    ) -> Result<Page, RegistryError> {
        let url = request.url();
        let host = url.host.to_string();
        let connecting = timeout(CONNECTING, self.connect(&url.host, url.port));
        let unreachable = |_| RegistryError::Unreachable(host.clone());
        let stream = connecting.await.map_err(unreachable)??;
        let limits = FetchLimits {
            max_body: usize::try_from(most).unwrap_or(usize::MAX),
            ..FetchLimits::until(Instant::now() + TRANSFER)
        };
        let received = AtomicU64::new(0);
        let mut counting = |bytes: &[u8]| {
            received.fetch_add(bytes.len() as u64, Ordering::Relaxed);
            sink(bytes)
        };
        let receiving = receive(stream, request, &self.network.trust, &limits, &mut counting);
        tokio::select! {
            page = receiving => page.map_err(|cause| RegistryError::Exchange { host: host.clone(), cause }),
            () = stalled(&received) => Err(RegistryError::Stalled(host.clone())),
            () = tokio::time::sleep_until(limits.deadline.into()) => Err(RegistryError::Stalled(host.clone())),
        }
    }

    /// Connects to a host. A name is resolved once, and only checked addresses are connected to.
    async fn connect(&mut self, host: &Host, port: u16) -> Result<TcpStream, RegistryError> {
        let addresses = match host {
            Host::Address(address) => vec![*address],
            Host::Name(name) => self.network.resolver.resolve(name).await,
        };
        if self.is_public && !addresses.iter().all(|address| is_public(*address)) {
            return Err(RegistryError::Inner(host.to_string()));
        }
        for address in addresses.iter().take(MAX_TRIED) {
            if let Ok(stream) = TcpStream::connect((*address, port)).await {
                self.is_public = self.is_public || is_public(*address);
                return Ok(stream);
            }
        }
        Err(RegistryError::Unreachable(host.to_string()))
    }
}

/// Resolves when nothing was received for a while.
async fn stalled(received: &AtomicU64) {
    let mut before = u64::MAX;
    loop {
        let now = received.load(Ordering::Relaxed);
        if now == before {
            return;
        }
        before = now;
        tokio::time::sleep(STALL).await;
    }
}

fn request(url: &str, headers: &[(String, String)]) -> Result<FetchRequest, RegistryError> {
    let request = FetchRequest::new(url, "GET", headers, Vec::new());
    let request = request.map_err(unusable)?;
    checked(request.url())?;
    Ok(request)
}

fn unusable(error: RequestError) -> RegistryError {
    RegistryError::Address(error.to_string())
}

fn authorization(value: String) -> (String, String) {
    ("authorization".to_owned(), value)
}

/// Rejects URLs that would go over the network unencrypted.
fn checked(url: &Url) -> Result<(), RegistryError> {
    match url.scheme {
        Scheme::Https => Ok(()),
        Scheme::Http if is_loopback(&url.host.to_string()) => Ok(()),
        Scheme::Http => {
            let error = ParseUrlError::Scheme;
            Err(RegistryError::Address(format!("{}: {error}", url.host)))
        }
    }
}

/// Returns the scheme of a registry: `http` only for one on this machine.
fn scheme(authority: &str) -> &'static str {
    let host = match authority.rsplit_once(':') {
        Some((host, _)) if !host.ends_with(':') => host,
        _ => authority,
    };
    match is_loopback(host) {
        true => "http",
        false => "https",
    }
}

fn is_loopback(host: &str) -> bool {
    let address = host.trim_matches(['[', ']']).parse::<IpAddr>();
    host == "localhost" || address.is_ok_and(|address| address.is_loopback())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_loopback_is_spoken_to_in_the_clear() {
        for (reference, origin) in [
            ("python", "https://registry-1.docker.io"),
            ("localhost:5000/a", "http://localhost:5000"),
            ("localhost/a", "http://localhost"),
            ("127.0.0.1:5000/a", "http://127.0.0.1:5000"),
            ("[::1]:5000/a", "http://[::1]:5000"),
            ("10.0.0.1:5000/a", "https://10.0.0.1:5000"),
            ("localhost.test:5000/a", "https://localhost.test:5000"),
            ("127.0.0.1.test/a", "https://127.0.0.1.test"),
        ] {
            let reference: Reference = reference.parse().unwrap();
            let network = Network {
                resolver: Resolver::fixed(|_| Vec::new()),
                trust: Arc::default(),
                credentials: CredentialFiles::none(),
            };
            assert_eq!(Registry::new(&reference, &network).origin, origin);
        }
        for (url, is_allowed) in [
            ("http://127.0.0.1:1/token", true),
            ("https://auth.test/token", true),
            ("http://auth.test/token", false),
        ] {
            assert_eq!(request(url, &[]).is_ok(), is_allowed, "{url}");
        }
    }

    #[tokio::test]
    async fn a_registry_on_the_internet_leads_to_no_inner_address() {
        let reference: Reference = "registry.test/a".parse().unwrap();
        for address in ["127.0.0.1", "10.0.0.1", "169.254.169.254", "::1"] {
            let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
            let port = listener.local_addr().unwrap().port();
            let network = Network {
                resolver: Resolver::fixed(move |_| vec![address.parse().unwrap()]),
                trust: Arc::default(),
                credentials: CredentialFiles::none(),
            };
            let mut registry = Registry::new(&reference, &network);
            registry.is_public = true;
            let host = "auth.test".parse().unwrap();
            let error = registry.connect(&host, port).await.unwrap_err();
            assert!(matches!(error, RegistryError::Inner(_)), "{address}: {error}");
            // Else, what is on this machine can be reached.
            registry.is_public = false;
            if address == "127.0.0.1" {
                registry.connect(&host, port).await.unwrap();
            }
        }
    }
}
