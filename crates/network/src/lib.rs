//! Every way out to the network: the rules of addresses, the proxy of programs, and requests of tools. Secrets that go
//! out with them, and their redaction from what comes back.

pub mod address;
pub mod egress;
pub mod fetch;
pub mod redact;
pub mod secret;
