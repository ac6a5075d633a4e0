//! All network access: the rules of addresses, the proxy of programs, and requests of tools, with the secrets
//! that are sent and their redaction from responses.

pub mod address;
pub mod egress;
pub mod fetch;
pub mod redact;
pub mod secret;
