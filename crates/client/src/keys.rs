//! Keys of the API.

use hyper::Method;

use super::client::{Body, Client, Error, encode};

impl Client {
    /// Removes a key that is revoked or has expired, with what the server keeps for it.
    ///
    /// # Errors
    /// If there is no server or no such key, or the key still opens something.
    pub async fn remove_key(&self, id: &str) -> Result<(), Error> {
        let mut path = "/v1/keys/".to_owned();
        encode(id, &mut path);
        self.order(Method::DELETE, &path, Body::Empty).await
    }
}
