//! The host's functions, for a tool and for the programs that it runs.

use ringfence_policy::{ExecutionResult, Language, RuntimeKind};

use super::{Call, ErrorKind, Questions, ToolError};
use crate::backend;
use crate::execute::Order;
use crate::local::Connection;
use crate::skills::{Gatekeeper, Skills, Visitor, bridged};

impl Call<'_> {
    /// The host's functions, as this caller may call them.
    ///
    /// # Errors
    /// If there are none.
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
        let visitor = Visitor {
            caller: self.caller,
            audit: self.kernel.audit.as_ref(),
            redactor: &self.kernel.rules.redactor,
            approvals: self.kernel.approvals.as_ref(),
            questions: self.questions.as_ref().map(Questions::sender),
            notices: self.notices.as_ref(),
        };
        Gatekeeper::new(skills, visitor)
    }

    /// Has `run` run the program of an order, with the host's functions at hand where that is possible.
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

/// Whether the program of an order can have a bridge.
fn has_bridge(order: &Order) -> bool {
    let request = &order.request;
    let carried = match order.runtime {
        RuntimeKind::Local | RuntimeKind::Docker | RuntimeKind::Podman | RuntimeKind::Pyodide => true,
        RuntimeKind::E2b => false,
    };
    carried && request.language == Language::Python
}
