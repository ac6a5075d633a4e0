//! Provides host functions to a tool and to the programs that it runs.

use ringfence_exec::backend;
use ringfence_exec::execute::Order;
use ringfence_exec::local::Connection;
use ringfence_policy::{ExecutionResult, Language, RuntimeKind};

use super::{Call, ErrorKind, Questions, ToolError};
use crate::skills::{CallInfo, Gatekeeper, Skills, bridged};

impl Call<'_> {
    /// Returns the gatekeeper of host functions for this caller.
    ///
    /// # Errors
    /// If skills are not configured.
    pub(crate) fn gatekeeper(&self) -> Result<Gatekeeper<'_>, ToolError> {
        let skills = self.kernel.skills.as_deref();
        let skills = skills.ok_or_else(|| {
            ToolError::new(
                ErrorKind::NotFound,
                "there are no skills here",
                "have `skills.path` set to a directory of them",
            )
        })?;
        Ok(self.gatekeeper_of(skills))
    }

    fn gatekeeper_of<'g>(&'g self, skills: &'g Skills) -> Gatekeeper<'g> {
        let visitor = CallInfo {
            caller: self.caller,
            audit: self.kernel.audit.as_ref(),
            redactor: &self.kernel.rules.redactor,
            approvals: self.kernel.approvals.as_ref(),
            questions: self.questions.as_ref().map(Questions::sender),
            notices: self.notices.as_ref(),
        };
        Gatekeeper::new(skills, visitor)
    }

    /// Runs an order's program with `run`, with a bridge to host functions where that is supported.
    pub(super) async fn bridged(
        &self,
        order: &Order,
        connection: Connection,
        run: impl AsyncFnOnce(Connection) -> Result<ExecutionResult, backend::Error>,
    ) -> Result<ExecutionResult, backend::Error> {
        match self.kernel.skills.as_deref().filter(|_| has_bridge(order)) {
            Some(skills) => bridged(&self.gatekeeper_of(skills), connection, run).await,
            None => run(connection).await,
        }
    }
}

/// Returns `true` if the program of an order supports a bridge.
fn has_bridge(order: &Order) -> bool {
    let request = &order.request;
    let carried = match order.runtime {
        RuntimeKind::Local | RuntimeKind::Docker | RuntimeKind::Podman | RuntimeKind::Pyodide => true,
        RuntimeKind::E2b => false,
    };
    carried && request.language == Language::Python
}
