//! End-to-end tests through the built binary.
#![allow(clippy::unwrap_used, reason = "a test may end at once")]

mod support;

mod approvals;
mod artifacts_store;
mod audit;
mod audit_kill;
mod bad_input;
mod bench;
mod config;
mod console;
mod containers;
mod containers_served;
mod corpus;
mod doctor;
mod engine;
mod examples;
mod fetch;
mod gateways;
mod host_exec;
mod languages;
mod leftovers;
mod mcp;
mod model;
mod network;
mod network_containers;
mod oci;
mod policy;
mod proofs;
mod providers;
mod pyodide;
mod python;
mod sandbox_exec;
mod sandboxes;
mod scenarios;
mod security;
mod sessions;
mod situations;
mod soak;
mod soak_tools;
mod streams;
mod tools;
mod tools_everywhere;
mod usage;
mod workspace;
mod world;
