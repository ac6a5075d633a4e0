//! Provides host functions to a tool and to the programs that it runs.

use ringfence_policy::remedy;

use super::{Call, ErrorKind, Questions, ToolError};
use crate::skills::{CallInfo, Gatekeeper, Skills};

impl Call<'_> {
    /// Returns the gatekeeper of host functions for this caller.
    ///
    /// # Errors
    /// If skills are not configured.
    pub(crate) fn gatekeeper(&self) -> Result<Gatekeeper<'_>, ToolError> {
        let skills = self.toolbox.skills.as_deref();
        let skills = skills.ok_or_else(|| {
            ToolError::new(
                ErrorKind::NotFound,
                "there are no skills here",
                remedy::Tool::NameSkills,
            )
        })?;
        Ok(self.gatekeeper_of(skills))
    }

    fn gatekeeper_of<'g>(&'g self, skills: &'g Skills) -> Gatekeeper<'g> {
        let visitor = CallInfo {
            caller: self.caller,
            audit: self.toolbox.audit.as_ref(),
            redactor: &self.toolbox.runner.rules().redactor,
            approvals: self.toolbox.approvals.as_ref(),
            questions: self.questions.as_ref().map(Questions::sender),
            notices: self.notices.as_ref(),
        };
        Gatekeeper::new(skills, visitor)
    }

    /// Returns the gatekeeper of the host functions that a program may call, if there are any.
    pub(super) fn bridge(&self) -> Option<Gatekeeper<'_>> {
        let skills = self.toolbox.skills.as_deref()?;
        Some(self.gatekeeper_of(skills))
    }
}
