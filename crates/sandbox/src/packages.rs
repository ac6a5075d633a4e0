//! The packages of a sandbox's interpreters.

use std::sync::Arc;

use ringfence_packages::{Checkout, DefaultPackages, Ecosystem};
use ringfence_policy::{EnvName, Mount};

use super::error::Error;

/// Sets of packages, at most one of each ecosystem. They are not removed while this exists.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct SandboxPackages {
    sets: Vec<Arc<Checkout>>,
    /// Set unless the configuration alone gives them, as it will again.
    pub(crate) are_named: bool,
    /// Remarks about packages that the sandbox lacks.
    pub(crate) warnings: Vec<String>,
}

impl SandboxPackages {
    /// Adds a set.
    ///
    /// # Errors
    /// If there is one of its ecosystem.
    pub(crate) fn add(&mut self, set: Checkout) -> Result<(), Error> {
        if self.of(set.ecosystem).is_some() {
            return Err(Error::Invalid(format!(
                "`packages`: a sandbox has one set of packages for {}, and two were named",
                set.ecosystem.language()
            )));
        }
        self.sets.push(Arc::new(set));
        Ok(())
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.sets.is_empty()
    }

    pub(crate) fn of(&self, ecosystem: Ecosystem) -> Option<&Checkout> {
        let set = self.sets.iter().find(|set| set.ecosystem == ecosystem);
        set.map(|set| &**set)
    }

    /// Returns names and versions of all packages.
    pub(crate) fn names(&self) -> Vec<String> {
        let names = self.sets.iter().flat_map(|set| &set.packages);
        names.cloned().collect()
    }

    /// Adds the mounts of the packages, and the variables by which interpreters find them.
    pub(crate) fn add_to(&self, mounts: &mut Vec<Mount>, env: &mut Vec<(EnvName, String)>) {
        for set in &self.sets {
            set.add_to(mounts, env);
        }
    }

    /// Warns that packages of the configuration are left out where interpreters are not this machine's.
    pub(crate) fn leave_out_defaults(&mut self) {
        let warning = "`packages.default` is left out: its packages are for the interpreters of this machine";
        self.warnings = vec![warning.to_owned()];
    }

    /// Warns of packages of the configuration that a set which takes their place lacks.
    pub(crate) fn compare(&mut self, defaults: &DefaultPackages) {
        let missing = self
            .of(Ecosystem::Python)
            .map(|chosen| defaults.missing_in(chosen).join(", "));
        let missing = missing.filter(|missing| !missing.is_empty());
        self.warnings = missing.into_iter().map(left_out).collect();
    }
}

fn left_out(missing: String) -> String {
    format!("the named packages take the place of `packages.default`, and lack: {missing}")
}
