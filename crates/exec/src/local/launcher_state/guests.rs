//! Starts the guest of a request, by its language.

use std::path::Path;

use ringfence_jail::protocol::Guest as Origin;
use ringfence_policy::{Language, Request};

use super::super::error::Error;
use super::super::guest::Guest;
use super::super::interpreters::script;
use super::super::settings::Settings;
use super::super::{layout, network};
use super::{LauncherState, Start, Terms, Text, environment};

/// The number of an attempt to start a guest for a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in super::super) enum Attempt {
    First,
    Second,
}

impl LauncherState {
    /// Returns a guest for a request, with a bridge if `bridged`, and its start. The pool is asked once.
    pub(in super::super) async fn guest(
        &self,
        request: &Request,
        bridged: bool,
        attempt: Attempt,
        settings: &Settings,
    ) -> Result<(Guest, Start), Error> {
        network::check_dirs(request, &self.dirs)?;
        match request.language {
            Language::Python if self.extra.image.is_some() => self.script_guest(request, settings).await,
            Language::Python => self.python_guest(request, bridged, attempt, settings).await,
            Language::Command => self.command_guest(request, settings).await,
            Language::Bash | Language::Javascript => self.script_guest(request, settings).await,
        }
    }

    async fn script_guest(&self, request: &Request, settings: &Settings) -> Result<(Guest, Start), Error> {
        let directory = self.directory(settings)?;
        let dirs = self.dirs_in(directory.as_ref());
        let (executable, name, arguments) = script(&self.extra, request, settings)?;
        let path = match &directory {
            Some(directory) => directory
                .write_code(&name, &request.code)
                .map_err(Error::Directory)?,
            None => Path::new("/code").join(&name),
        };
        let mut all = arguments;
        all.push(path.display().to_string());
        all.extend(request.args.iter().cloned());
        let program = layout::program(&executable, all, environment(&dirs, &self.extra, request));
        let text = match directory {
            Some(_) => Text::OnHost,
            None => Text::File {
                name,
                text: request.code.clone(),
            },
        };
        self.start(Origin::Exec(program), text, Terms::of(request), directory)
            .await
            .map(|guest| (guest, Start::Cold))
    }
}
