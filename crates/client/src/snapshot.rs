//! Snapshots of sandboxes.

use hyper::Method;
use serde_json::Value;

use super::client::{Body, Client, Error, encode, query};

/// The snapshots of the server.
#[derive(Debug, Clone)]
pub struct Snapshots {
    client: Client,
    /// User on whose behalf the caller acts.
    user: Option<String>,
}

impl Snapshots {
    pub const fn new(client: Client, user: Option<String>) -> Self {
        Self { client, user }
    }

    /// Returns the descriptions of the snapshots.
    ///
    /// # Errors
    /// If there is no server.
    pub async fn list(&self) -> Result<Vec<Value>, Error> {
        let response: Value = self.client.get(&self.path("")).await?;
        Ok(response["snapshots"].as_array().cloned().unwrap_or_default())
    }

    /// Removes a snapshot by its id or name.
    ///
    /// # Errors
    /// If there is no server, or no such snapshot.
    pub async fn remove(&self, name: &str) -> Result<(), Error> {
        let mut path = "/".to_owned();
        encode(name, &mut path);
        self.client
            .order(Method::DELETE, &self.path(&path), Body::Empty)
            .await
    }

    fn path(&self, below: &str) -> String {
        let user = self.user.iter().map(|user| ("user", user.as_str()));
        query(&format!("/v1/snapshots{below}"), &user.collect::<Vec<_>>())
    }
}
