//! Keys of the API.

use hyper::Method;
use serde::de::DeserializeOwned;

use super::client::{Body, Client, Error, encode};

impl Client {
    /// Returns the usage of all keys, as the server reports it.
    ///
    /// # Errors
    /// If there is no server, or its answer is of another shape.
    pub async fn usage<T: DeserializeOwned>(&self) -> Result<T, Error> {
        self.get("/v1/usage").await
    }

    /// Removes a revoked or expired key, with the files that the server stores for it.
    ///
    /// # Errors
    /// If there is no server or no such key, or the key is still valid.
    pub async fn remove_key(&self, id: &str) -> Result<(), Error> {
        let mut path = "/v1/keys/".to_owned();
        encode(id, &mut path);
        self.order(Method::DELETE, &path, Body::Empty).await
    }
}
