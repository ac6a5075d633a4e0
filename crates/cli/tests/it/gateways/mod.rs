//! Gateways to chat services, each against its service as played on this machine.

mod discord;
mod telegram;
