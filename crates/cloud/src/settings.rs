//! The service: its addresses, its key and the template of sandboxes.

use std::sync::Arc;

use ringfence_exec::backend::Fingerprint;
use ringfence_exec::key::Key;
use ringfence_network::fetch::{BaseUrl, Chosen, ParseBaseUrlError, Trust};
use ringfence_network::secret::KeyError;

/// The domain of E2B's own service.
pub const HOSTED: &str = "e2b.app";

/// Domains at which all sandboxes are reached by one host, which reads their names in headers.
const ONE_HOST: &[&str] = &[HOSTED, "e2b.dev", "e2b.pro"];

/// Settings of the backend.
#[derive(Debug, Clone)]
pub struct Settings {
    pub key: Key,
    /// Base URL of the control plane.
    pub api: BaseUrl,
    pub sandboxes: Sandboxes,
    /// Template of the sandboxes.
    pub template: String,
    /// The one who chose the addresses.
    pub chosen: Chosen,
    /// Trusted certificate authorities.
    pub trust: Arc<Trust>,
}

/// The place where sandboxes are reached.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Sandboxes {
    /// One address for all of them.
    At(BaseUrl),
    /// A host name each, below this domain.
    Below(String),
}

/// An error in the settings. Omits addresses, which may contain a password, and the key.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SettingsError {
    #[error("`{name}`: {source}")]
    Url {
        /// The setting.
        name: &'static str,
        source: ParseBaseUrlError,
    },
    #[error("expected a domain, such as `{HOSTED}`")]
    Domain,
    #[error(transparent)]
    Key(KeyError),
}

impl Sandboxes {
    /// Returns the place below a domain: one host for those that have one.
    ///
    /// # Errors
    /// If it is not a domain.
    pub fn below(domain: &str) -> Result<Self, SettingsError> {
        let host = match ONE_HOST.contains(&domain) {
            true => format!("https://sandbox.{domain}"),
            false => format!("https://49983-a.{domain}"),
        };
        let is_plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '-' | ':');
        let base = host.parse().map_err(|_| SettingsError::Domain)?;
        let is_domain =
            domain.starts_with(|c: char| c.is_ascii_alphanumeric()) && domain.chars().all(is_plain);
        match (is_domain, ONE_HOST.contains(&domain)) {
            (false, _) => Err(SettingsError::Domain),
            (true, true) => Ok(Self::At(base)),
            (true, false) => Ok(Self::Below(domain.to_owned())),
        }
    }
}

impl Settings {
    /// Returns the base URL of the control plane below a domain.
    ///
    /// # Errors
    /// If it is not a domain.
    pub fn api_below(domain: &str) -> Result<BaseUrl, SettingsError> {
        let url = format!("https://api.{domain}").parse();
        url.map_err(|_| SettingsError::Domain)
    }

    /// Returns the fingerprint of the service and of the key, if that is known without a file.
    pub(crate) fn fingerprint(&self) -> Option<Fingerprint> {
        let sandboxes = match &self.sandboxes {
            Sandboxes::At(base) => base.to_string(),
            Sandboxes::Below(domain) => domain.clone(),
        };
        let key = match &self.key {
            Key::Known(secret) => secret.clone().into_text(),
            Key::File(path, _) => path.to_str()?.to_owned(),
            Key::Needless | Key::Missing(_) => return None,
        };
        Fingerprint::of(&(self.api.to_string(), sandboxes, &self.template, key))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_domain_is_one_host_or_the_end_of_many() {
        let at = |url: &str| Ok(Sandboxes::At(url.parse().unwrap()));
        assert_eq!(Sandboxes::below(HOSTED), at("https://sandbox.e2b.app"));
        let own = Sandboxes::Below("cloud.example.com:8443".to_owned());
        assert_eq!(Sandboxes::below("cloud.example.com:8443"), Ok(own));
        for wrong in ["", "a/b", "a@b", "a b", "a.example?x", "a.example#x", "me:x@a"] {
            assert_eq!(Sandboxes::below(wrong), Err(SettingsError::Domain), "{wrong:?}");
        }
        assert_eq!(
            Settings::api_below("a.example").unwrap().to_string(),
            "https://api.a.example/"
        );
    }
}
