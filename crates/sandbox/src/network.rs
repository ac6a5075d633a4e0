//! The hosts that the programs of a sandbox may reach, which can be changed while it lives.

use ringfence_exec::local::NoSockets;
use ringfence_policy::EgressPolicy;

use super::error::Error;
use super::lock::lock;
use super::registry::{SandboxEnd, check_hosts};
use super::sandbox::Sandbox;

impl Sandbox {
    /// Replaces the hosts that its programs may reach; `None`: none. Connections that are no longer allowed are closed before this
    /// returns, and the next ones are judged by the new rules. Has the same effect while the sandbox is paused.
    ///
    /// # Errors
    /// If it was created without a network, and hosts are to be opened; if there are too many; or if it has ended.
    pub fn set_network(&self, egress: Option<EgressPolicy>) -> Result<(), Error> {
        let policy = egress.unwrap_or_default();
        check_hosts(&policy)?;
        // Held meanwhile, so that what is told is what holds.
        let mut told = lock(&self.egress);
        let replaced = self.of_place(|place| place.replace_egress(&policy));
        match replaced.ok_or_else(|| self.ended())? {
            // Also without hosts: copies have sockets as it has, so that their rules can be changed, too.
            Ok(()) => *told = Some(policy),
            Err(NoSockets) if policy.allowed.is_empty() => {}
            Err(NoSockets) => return Err(Error::NoSockets),
        }
        Ok(())
    }

    fn ended(&self) -> Error {
        Error::Gone {
            sandbox: self.id().to_string(),
            end: SandboxEnd::now("it has just been closed"),
        }
    }
}
