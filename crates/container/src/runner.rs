//! The trait of backends that run requests in containers.

use std::fmt;
use std::future::Future;
use std::path::PathBuf;
use std::pin::Pin;

use ringfence_exec::backend::{Error, Reason, Running};
use ringfence_exec::local::{Connection, Fence};
use ringfence_policy::Request;

use crate::keepalive::Wanted;
use crate::{Containers, Flavor};

/// A future that resolves to the error if the container engine is unavailable.
pub type Missing<'a> = Pin<Box<dyn Future<Output = Option<Error>> + Send + 'a>>;

/// A backend that runs requests in containers.
pub trait InContainers: fmt::Debug + Send + Sync {
    /// Checks that the container engine is available.
    fn missing(&self, flavor: Flavor) -> Missing<'_>;

    /// Runs a request to completion in a container of its own.
    fn run_in<'a>(
        &'a self,
        flavor: Flavor,
        order: (&'a Request, Fence),
        output_directory: Option<PathBuf>,
        connection: Connection,
    ) -> Running<'a>;

    /// Runs a request to completion in the persistent container for requests like it.
    fn call_in<'a>(
        &'a self,
        wanted: &'a Wanted,
        order: (&'a Request, Fence),
        connection: Connection,
    ) -> Running<'a>;
}

impl InContainers for Containers {
    fn missing(&self, flavor: Flavor) -> Missing<'_> {
        Box::pin(async move {
            let error = Error::from(self.manager(flavor).await.err()?);
            (error.reason == Reason::Unavailable).then_some(error)
        })
    }

    fn run_in<'a>(
        &'a self,
        flavor: Flavor,
        order: (&'a Request, Fence),
        output_directory: Option<PathBuf>,
        connection: Connection,
    ) -> Running<'a> {
        Box::pin(async move { Ok(self.run(flavor, order, output_directory, connection).await?) })
    }

    fn call_in<'a>(
        &'a self,
        wanted: &'a Wanted,
        order: (&'a Request, Fence),
        connection: Connection,
    ) -> Running<'a> {
        Box::pin(async move { Ok(self.call(wanted, order, connection).await?) })
    }
}
