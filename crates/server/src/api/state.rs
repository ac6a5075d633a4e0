//! State of the routes.

use std::sync::{Arc, Mutex, OnceLock};
use std::time::Instant;

use ringfence_container::sandboxes::Sandboxes as Containers;
use ringfence_images::Network;
use ringfence_records::audit::RedactedLog;
use ringfence_sandbox::Sandboxes;
use ringfence_tools::toolbox::Toolbox;
use tokio::sync::Semaphore;

use super::admission::Admission;
use super::budget::BodyBudget;
use super::drain::{Drain, Work};
use super::error::ApiError;
use super::idempotency::Idempotency;
use super::images;
use super::invocation::Invocations;
use super::key_uses::KeyUses;
use super::keys::{ApiKeys, Grant};
use super::mcp::sessions::Sessions;
use crate::metrics::Metrics;
use crate::questions::hub::Hub;
use crate::sources::Sources;
use crate::usage::Usage;
use ringfence_http::CertificateState;

/// State of the routes.
#[derive(Debug)]
pub struct Api {
    pub(super) toolbox: Arc<Toolbox>,
    pub(super) keys: Arc<ApiKeys>,
    pub(super) key_uses: KeyUses,
    /// Rights of the server's own user.
    pub(super) owner: Arc<Grant>,
    pub(super) admission: Admission,
    pub(super) drain: Drain,
    pub(super) bodies: Arc<BodyBudget>,
    pub(super) answers: Arc<BodyBudget>,
    pub(super) invocations: Invocations,
    pub(super) idempotency: Arc<Idempotency>,
    pub(super) mcp: Sessions,
    pub(super) metrics: Arc<Metrics>,
    pub(super) usage: Arc<Usage>,
    /// Time at which sandboxes were measured for a request.
    pub(super) measured: Mutex<Option<Instant>>,
    pub(super) sandboxes: Arc<Sandboxes>,
    /// Containers of templates, which only the server's user makes.
    pub(super) containers: Arc<Containers>,
    /// Questions to people, and the other records that are shown.
    pub(super) questions: Arc<Hub>,
    pub(super) e2b: ringfence_e2b::Service,
    pub(super) jupyter: Arc<ringfence_jupyter::Service>,
    pub(super) librechat: ringfence_librechat::Service,
    /// The way to registries of images.
    pub(super) registries: Network,
    /// Room for pulls of images.
    pub(super) pulls: Arc<Semaphore>,
    /// Log of operations without a tool.
    pub(super) log: RedactedLog,
    /// State of the certificate of its listener with TLS.
    pub(super) certificate: OnceLock<Arc<CertificateState>>,
}

/// Sandboxes, with the log of operations on them and the records that clients may see.
#[derive(Debug)]
pub struct RecordedSandboxes {
    pub sandboxes: Sandboxes,
    /// Containers of templates.
    pub containers: Arc<Containers>,
    pub log: RedactedLog,
    pub sources: Sources,
    /// Images of the server's user on which keys may build templates of E2B's.
    pub template_images: Vec<String>,
    /// The way to registries of images.
    pub registries: Network,
}

impl Api {
    /// Creates the API of a toolbox and of sandboxes, for holders of `keys`, whose calls pass `admission`. It counts its errors in `metrics`.
    pub fn new(
        toolbox: Toolbox,
        sandboxes: RecordedSandboxes,
        keys: ApiKeys,
        metrics: Arc<Metrics>,
        admission: Admission,
    ) -> Arc<Self> {
        let RecordedSandboxes {
            sandboxes,
            containers,
            log,
            sources,
            template_images,
            registries,
        } = sandboxes;
        let (sandboxes, keys) = (Arc::new(sandboxes), Arc::new(keys));
        Arc::new(Self {
            toolbox: Arc::new(toolbox),
            key_uses: KeyUses::new(Arc::clone(&keys)),
            keys,
            owner: Arc::new(Grant::of_owner()),
            admission,
            drain: Drain::default(),
            bodies: Arc::default(),
            answers: Arc::default(),
            invocations: Invocations::default(),
            idempotency: Arc::default(),
            mcp: Sessions::default(),
            usage: Arc::clone(metrics.usage()),
            measured: Mutex::default(),
            metrics,
            questions: Arc::new(Hub::new(sources)),
            e2b: ringfence_e2b::Service::new(Arc::clone(&sandboxes), template_images),
            jupyter: Arc::new(ringfence_jupyter::Service::new(Arc::clone(&sandboxes))),
            librechat: ringfence_librechat::Service::new(Arc::clone(&sandboxes)),
            sandboxes,
            containers,
            registries,
            pulls: Arc::new(Semaphore::new(images::MAX_PULLS)),
            log,
            certificate: OnceLock::new(),
        })
    }

    /// Sets the certificate whose state the API reports.
    pub(crate) fn report_certificate(&self, state: Arc<CertificateState>) {
        // A server has one listener with TLS.
        let _ = self.certificate.set(state);
    }

    /// Checks that an image is in the store of the server's user, and can be a root.
    ///
    /// # Errors
    /// If it is not.
    pub async fn check_template_image(&self, image: &str) -> Result<(), ringfence_sandbox::Error> {
        self.sandboxes.image(image).await.map(drop)
    }

    /// Begins a run of the server's own user.
    pub(crate) fn begin_own_work(&self) -> Result<Work, ApiError> {
        self.drain.begin()
    }

    /// Lets no more work begin: what is asked for now gets the status 503. Returns the number of runs, calls, processes and
    /// pieces of code that clients wait for.
    pub(crate) fn start_drain(&self) -> usize {
        self.drain.start()
    }

    /// Waits until no client waits for work.
    pub(crate) async fn idle(&self) {
        self.drain.idle().await;
    }

    /// Cancels the calls of clients, and waits until they have been told, for a few seconds at most. Returns the number of
    /// calls. The listeners still serve.
    pub async fn stop(&self) -> usize {
        self.invocations.stop().await
    }

    /// Returns the containers of templates.
    pub fn containers(&self) -> &Arc<Containers> {
        &self.containers
    }

    /// Waits until every call has ended, and ends all sessions and sandboxes. The listeners have ended before.
    pub async fn close(&self) {
        self.mcp.close().await;
        self.idempotency.close().await;
        self.jupyter.close();
        self.librechat.close();
        self.sandboxes.close().await;
        self.invocations.close().await;
        self.key_uses.close().await;
    }
}
