//! Calls of tools by clients.

use std::sync::Arc;

use ringfence_tools::toolbox::{Caller, Surface};
use serde_json::Value;

use super::admission::Turn;
use super::error::ApiError;
use super::extract::Owner;
use super::invocation::Use;
use super::keys::Grant;
use super::state::Api;

impl Api {
    /// Waits for a turn of a client, and returns its call of a tool.
    pub(super) async fn admitted(
        &self,
        grant: &Grant,
        tool: &str,
        arguments: Value,
    ) -> Result<Use, ApiError> {
        // A client over its quota is refused at once, without waiting for a turn.
        self.check_quota(grant)?;
        let turn = self.admission.enter(grant).await?;
        self.used(grant, tool, arguments, turn)
    }

    /// Returns a call of a tool by a client whose turn it is.
    pub(super) fn used(
        &self,
        grant: &Grant,
        tool: &str,
        arguments: Value,
        turn: Turn,
    ) -> Result<Use, ApiError> {
        Ok(Use {
            toolbox: Arc::clone(&self.toolbox),
            caller: Caller {
                // The sessions of a key are its own.
                scope: Owner::default().scope(grant)?,
                session: None,
                surface: Surface::Http,
                client: Some(grant.client.clone()),
            },
            tool: tool.to_owned(),
            arguments,
            turn,
            begun: self.begin(grant)?,
            using: self.key_uses.begin(&grant.client, grant.first_right()),
        })
    }
}
