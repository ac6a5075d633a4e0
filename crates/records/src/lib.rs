//! Records in the state directory: approvals, that is questions to people with their answers, and the audit log.

pub mod approval;
pub mod audit;
