//! `ringfence doctor`: reports this machine's isolation layers, and the fix for each missing one.

use std::process::ExitCode;
use std::time::Duration;

use ringfence::doctor;
use ringfence_client::Client;
use ringfence_exec::probe::{Layer, Report, Situation, Status};
use serde_json::Value;

use crate::context::Context;
use crate::ui::{Tone, Ui, visible};
use ringfence_args::DoctorArgs;

pub(crate) fn run(args: &DoctorArgs, context: &Context) -> anyhow::Result<ExitCode> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    let mut report = runtime.block_on(doctor::examine(context))?;
    report.layers.extend(runtime.block_on(certificate_layer(context)));
    if args.json {
        context.ui.json(&report)?;
    } else {
        context.ui.out(readable(&report, context.ui))?;
    }
    Ok(ExitCode::from(u8::from(report.situation == Situation::None)))
}

/// Time for the running server to answer.
const TIMEOUT: Duration = Duration::from_secs(5);

/// Returns an entry if the running server has a certificate that it cannot renew.
async fn certificate_layer(context: &Context) -> Option<Layer> {
    let client = Client::new(&context.paths.socket_if_ours()?);
    let asked = tokio::time::timeout(TIMEOUT, client.get::<Value>("/readyz"));
    let ready = asked.await.ok()?.ok()?;
    (ready["certificate"] == "stale").then(|| {
        Layer::missing(
            "certificate",
            "the server that runs cannot use the renewed files of its certificate, or the one in use has expired",
            "see its messages, and repair the files of `--tls-cert` and `--tls-key`: it takes them within seconds",
        )
    })
}

/// Renders one line per layer, with the fix below a missing one.
fn readable(report: &Report, ui: Ui) -> String {
    let width = report
        .layers
        .iter()
        .map(|layer| layer.name.len())
        .max()
        .unwrap_or(0);
    let mut text = String::new();
    for layer in &report.layers {
        let (word, tone) = match layer.status {
            Status::Ok => ("ok     ", Tone::Good),
            Status::Missing => ("missing", Tone::Bad),
            Status::Info => ("info   ", Tone::Plain),
        };
        text.push_str(&format!(
            "{}  {:width$}  {}\n",
            ui.toned(word, tone),
            layer.name,
            visible(&layer.detail)
        ));
        let indent = " ".repeat("missing".len() + 2 + width + 2);
        let fix = told_fix(layer, &report.layers);
        for (number, line) in fix.iter().flat_map(|fix| fix.lines()).enumerate() {
            let label = if number == 0 { "fix: " } else { "     " };
            text.push_str(&format!(
                "{indent}{}{}\n",
                ui.toned(label, Tone::Hint),
                visible(line)
            ));
        }
    }
    let tone = match report.situation {
        Situation::None => Tone::Bad,
        Situation::Root | Situation::UserNamespace | Situation::Flat => Tone::Good,
    };
    text.push_str(&format!(
        "\n{} {}\n",
        ui.toned("verdict:", tone),
        visible(&report.verdict)
    ));
    text
}

/// Returns the fix, or a reference to the layer with the same fix: one cause may disable many layers.
fn told_fix(layer: &Layer, all: &[Layer]) -> Option<String> {
    let fix = layer.fix.as_ref()?;
    let first = all.iter().find(|other| other.fix.as_ref() == Some(fix))?;
    Some(if first.name == layer.name {
        fix.clone()
    } else {
        format!("as for {}", first.name)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use ringfence::env::Environment;
    use ringfence_args::ColorChoice;

    fn report() -> Report {
        Report {
            situation: Situation::Flat,
            verdict: "flat fence: a default run gets little".to_owned(),
            layers: vec![
                Layer::ok("seccomp", "loads"),
                Layer::missing("a long name", "cannot\x1b[2J", "first\nsecond"),
                Layer::missing("another", "cannot", "first\nsecond"),
            ],
        }
    }

    #[test]
    fn columns_line_up_and_fixes_stand_below() {
        let ui = Ui::new(ColorChoice::Never, &Environment::default());
        let expected = "ok       seccomp      loads\n\
                        missing  a long name  cannot\\u{1b}[2J\n\
                        \x20                     fix: first\n\
                        \x20                          second\n\
                        missing  another      cannot\n\
                        \x20                     fix: as for a long name\n\
                        \n\
                        verdict: flat fence: a default run gets little\n";
        assert_eq!(readable(&report(), ui), expected);
    }

    #[test]
    fn colours_surround_words_not_columns() {
        let ui = Ui::new(ColorChoice::Always, &Environment::default());
        assert!(readable(&report(), ui).contains("missing\x1b[0m  a long name"));
    }
}
