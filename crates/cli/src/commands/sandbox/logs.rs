//! `ringfence sandbox logs`: the output that the processes of a sandbox have left.

use std::process::ExitCode;

use ringfence_args::SandboxLogsArgs;
use ringfence_client::Error;
use ringfence_client::logs::{LogItem, title};

use super::{container, failure, find};
use crate::context::Context;
use crate::ui::{Ui, json_line, visible};

pub(super) async fn logs(args: &SandboxLogsArgs, context: &Context) -> anyhow::Result<ExitCode> {
    let Some((sandbox, _)) = find(&args.name, &args.options, context).await? else {
        return container::logs(args, context).await;
    };
    let (ui, mut text) = (context.ui, Text::default());
    let each = |pid, item: LogItem<'_>| {
        let printed = match (item, args.options.json) {
            (LogItem::Forgotten, _) => {
                ui.note(&format!("left out process {pid}: it is no longer kept"));
                Ok(())
            }
            (LogItem::Process(process), true) => ui.out(line(pid, "process", process)),
            (LogItem::Event(event), true) => ui.out(line(pid, &event.name, &event.data)),
            (LogItem::Process(process), false) => text.begin(&title(process, visible), ui),
            (LogItem::Event(event), false) => match event.name.as_str() {
                "stdout" => text.add(&event.output(), |bytes| ui.out(bytes)),
                "stderr" => text.add(&event.output(), |bytes| ui.err(bytes)),
                _ => Ok(()),
            },
        };
        printed.map_err(Error::Output)
    };
    sandbox.logs(args.follow, each).await.map_err(failure)?;
    Ok(ExitCode::SUCCESS)
}

/// Renders an item as a line of JSON.
fn line(pid: u64, kind: &str, data: &serde_json::Value) -> String {
    let mut object = data.clone();
    object["pid"] = pid.into();
    object["type"] = kind.into();
    json_line(&object)
}

/// The output of one process after the other.
#[derive(Default)]
struct Text {
    has_begun: bool,
    /// Set if the last line has no end.
    is_open: bool,
}

impl Text {
    fn begin(&mut self, title: &str, ui: Ui) -> std::io::Result<()> {
        let end = if self.is_open { "\n" } else { "" };
        let gap = if self.has_begun { "\n" } else { "" };
        *self = Self {
            has_begun: true,
            is_open: false,
        };
        ui.out(format!("{end}{gap}{title}\n"))
    }

    fn add(&mut self, bytes: &[u8], print: impl FnOnce(&[u8]) -> std::io::Result<()>) -> std::io::Result<()> {
        self.is_open = bytes.last().map_or(self.is_open, |last| *last != b'\n');
        print(bytes)
    }
}
