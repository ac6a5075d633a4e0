//! An idle container.

use std::sync::Arc;

use ringfence_network::egress::NetworkSettings;
use ringfence_policy::{EnvName, Isolation};

use crate::exchange::Exchange;
use crate::layout::Layout;
use crate::warm::Warm;

/// An idle container.
#[derive(Debug)]
pub(crate) struct Ready {
    /// First, so that it is dropped before its directories.
    pub(super) warm: Warm,
    pub(super) places: Arc<Layout>,
    pub(super) exchange: Exchange,
    pub(super) isolation: Isolation,
    /// Environment of every program: the image's and Ringfence's variables.
    pub(super) environment: Vec<(EnvName, String)>,
    /// Egress settings of its outlet, if the request has a network.
    pub(super) egress: NetworkSettings,
    /// Set if the container was created for its request.
    pub(super) fresh: bool,
}
