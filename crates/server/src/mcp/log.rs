//! What a client is told beside its answers.

use std::sync::atomic::{AtomicU8, Ordering};

use rmcp::RoleServer;
use rmcp::model::{LoggingLevel, LoggingMessageNotificationParam, ProtocolVersion};
use rmcp::service::{Peer, RequestContext};
use serde_json::Value;

/// Told to a client that has not said what it wants to hear.
const DEFAULT: LoggingLevel = LoggingLevel::Warning;

/// How grave a message must be for a client to hear it.
#[derive(Debug)]
pub(super) struct Log(AtomicU8);

impl Log {
    pub(super) const fn new() -> Self {
        Self(AtomicU8::new(DEFAULT as u8))
    }

    /// From here on, nothing below `level`.
    pub(super) fn set(&self, level: LoggingLevel) {
        self.0.store(level as u8, Ordering::Relaxed);
    }

    /// Tells a client something, outside any request.
    pub(super) async fn tell(&self, peer: &Peer<RoleServer>, level: LoggingLevel, what: &str) {
        if level as u8 >= self.0.load(Ordering::Relaxed) {
            send(peer, level, what).await;
        }
    }

    /// Tells a client something about its request. Since 2026-07-28 a request says itself what it wants to hear.
    pub(super) async fn tell_about(
        &self,
        context: &RequestContext<RoleServer>,
        level: LoggingLevel,
        what: &str,
    ) {
        if !is_stateless(context) {
            return self.tell(&context.peer, level, what).await;
        }
        if context
            .meta
            .log_level()
            .is_some_and(|wanted| level as u8 >= wanted as u8)
        {
            send(&context.peer, level, what).await;
        }
    }
}

/// Whether the request belongs to a version of the protocol in which each request stands for itself.
pub(super) fn is_stateless(context: &RequestContext<RoleServer>) -> bool {
    context
        .protocol_version()
        .is_some_and(|version| version >= ProtocolVersion::V_2026_07_28)
}

async fn send(peer: &Peer<RoleServer>, level: LoggingLevel, what: &str) {
    let message = LoggingMessageNotificationParam::new(level, Value::from(what)).with_logger("ringfence");
    // A client that has gone hears nothing.
    let _ = peer.notify_logging_message(message).await;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn levels_are_in_the_order_of_their_gravity() {
        assert!((LoggingLevel::Debug as u8) < LoggingLevel::Info as u8);
        assert!((LoggingLevel::Info as u8) < LoggingLevel::Warning as u8);
        assert!((LoggingLevel::Warning as u8) < LoggingLevel::Emergency as u8);
    }
}
