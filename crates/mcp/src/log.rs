//! Sends log messages to a client.

use std::sync::atomic::{AtomicU8, Ordering};

use rmcp::RoleServer;
use rmcp::model::{
    Extensions, LoggingLevel, LoggingMessageNotification, LoggingMessageNotificationParam, ProtocolVersion,
    RequestId,
};
use rmcp::service::{Peer, RequestContext};
use serde_json::Value;

/// Level until the client sets one.
const DEFAULT: LoggingLevel = LoggingLevel::Warning;

/// Minimum level of messages for a client.
#[derive(Debug)]
pub(super) struct Log(AtomicU8);

impl Log {
    pub(super) const fn new() -> Self {
        Self(AtomicU8::new(DEFAULT as u8))
    }

    pub(super) fn set(&self, level: LoggingLevel) {
        self.0.store(level as u8, Ordering::Relaxed);
    }

    /// Sends a log message outside any request.
    pub(super) async fn send(&self, peer: &Peer<RoleServer>, level: LoggingLevel, what: &str) {
        if level as u8 >= self.0.load(Ordering::Relaxed) {
            send(peer, level, what, Extensions::new()).await;
        }
    }

    /// Sends a log message about a request. Since protocol version 2026-07-28 the request contains the level.
    pub(super) async fn tell_about(
        &self,
        context: &RequestContext<RoleServer>,
        level: LoggingLevel,
        what: &str,
    ) {
        let is_wanted = match is_stateless(context) {
            false => level as u8 >= self.0.load(Ordering::Relaxed),
            true => {
                let wanted = context.meta.log_level();
                wanted.is_some_and(|wanted| level as u8 >= wanted as u8)
            }
        };
        if is_wanted {
            let mut extensions = Extensions::new();
            extensions.insert(About(context.id.clone()));
            send(&context.peer, level, what, extensions).await;
        }
    }
}

/// Returns `true` for protocol versions without sessions, in which each request is independent.
pub(super) fn is_stateless(context: &RequestContext<RoleServer>) -> bool {
    context
        .protocol_version()
        .is_some_and(|version| version >= ProtocolVersion::V_2026_07_28)
}

/// The request that a message is about, for transports with a stream for each.
#[derive(Debug, Clone)]
pub(super) struct About(pub(super) RequestId);

async fn send(peer: &Peer<RoleServer>, level: LoggingLevel, what: &str, extensions: Extensions) {
    let message = LoggingMessageNotificationParam::new(level, Value::from(what)).with_logger("ringfence");
    let mut notification = LoggingMessageNotification::new(message);
    notification.extensions = extensions;
    // A client that is gone needs no log.
    let _ = peer.send_notification(notification.into()).await;
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
