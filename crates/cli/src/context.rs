//! The state of all commands: the terminal, and the library's context.

use std::ops::Deref;

use ringfence::{Configuration, Environment};
use ringfence_exec::local::Log;

use crate::ui::Ui;
use ringfence_args::{ErrorFormat, GlobalArgs};

/// The state of all commands.
#[derive(Debug)]
pub(crate) struct Context {
    pub(crate) ui: Ui,
    /// Format of errors on standard output.
    pub(crate) form: ErrorFormat,
    library: ringfence::Context,
}

impl Context {
    /// Creates the context of a command line.
    pub(crate) fn new(environment: Environment, global: GlobalArgs, form: ErrorFormat) -> Self {
        let ui = Ui::new(global.color, &environment);
        let log = Log::new(move |warning| ui.warn(warning));
        let configuration = global.config.map_or(Configuration::Layers, Configuration::File);
        Self {
            ui,
            form,
            library: ringfence::Context::new(environment, configuration, log),
        }
    }
}

/// Every part of the library that takes its context takes this one.
impl Deref for Context {
    type Target = ringfence::Context;

    fn deref(&self) -> &ringfence::Context {
        &self.library
    }
}
