//! Starts the guest of a request, by its language.

use std::path::Path;
use std::sync::Arc;

use ringfence_jail::protocol::Guest as Origin;
use ringfence_policy::{Language, Request};

use super::super::error::Error;
use super::super::guest::Guest;
use super::super::initial_files::InitialFiles;
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

/// Options of a guest beside its request.
#[derive(Debug, Clone, Copy)]
pub(in super::super) struct GuestOptions<'a> {
    /// Set if the program has a bridge.
    pub(in super::super) bridged: bool,
    /// Files that it finds when it begins.
    pub(in super::super) initial_files: Option<&'a Arc<InitialFiles>>,
    pub(in super::super) attempt: Attempt,
}

impl GuestOptions<'_> {
    /// Returns the options of a program without bridge and output directory.
    pub(in super::super) const fn plain() -> Self {
        Self {
            bridged: false,
            initial_files: None,
            attempt: Attempt::First,
        }
    }

    /// Returns the options for the second attempt.
    pub(in super::super) fn again(self) -> Self {
        Self {
            attempt: Attempt::Second,
            ..self
        }
    }
}

impl LauncherState {
    /// Returns a guest for a request, and its start. The pool is asked once.
    pub(in super::super) async fn guest(
        &self,
        request: &Request,
        options: GuestOptions<'_>,
        settings: &Settings,
    ) -> Result<(Guest, Start), Error> {
        network::check_dirs(request, &self.dirs)?;
        match request.language {
            Language::Python if self.extra.image.is_some() => {
                self.script_guest(request, options, settings).await
            }
            Language::Python => self.python_guest(request, options, settings).await,
            Language::Command => self.command_guest(request, options, settings).await,
            Language::Bash | Language::Javascript => self.script_guest(request, options, settings).await,
        }
    }

    async fn script_guest(
        &self,
        request: &Request,
        options: GuestOptions<'_>,
        settings: &Settings,
    ) -> Result<(Guest, Start), Error> {
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
        self.start(
            Origin::Exec(program),
            text,
            Terms::of(request).with_options(options),
            directory,
        )
        .await
        .map(|guest| (guest, Start::Cold))
    }
}
