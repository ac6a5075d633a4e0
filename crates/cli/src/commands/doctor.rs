//! `ringfence doctor`: reports this machine's isolation layers, and the fix for each missing one.

use std::fs;
use std::path::Path;
use std::process::ExitCode;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use ringfence_container::pins::Pins;
use ringfence_exec::local::{self as local_runs, Local, Log, Warmth};
use ringfence_exec::probe::{self, Layer, Report, Situation, Status};
use ringfence_exec::pyodide::{Settings, install};
use ringfence_policy::{Scope, Trusted};

use crate::args::DoctorArgs;
use crate::context::Context;
use crate::ui::{Tone, Ui, visible};
use ringfence::Failure;
use ringfence::config::values::ServerFence;
use ringfence::{container, local, pyodide, settings, trust};

pub(crate) fn run(args: &DoctorArgs, context: &Context) -> anyhow::Result<ExitCode> {
    let settings = local::settings(&settings::settings(context)?, Warmth::Cold, context)?;
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    let image = context.parts()?.containers.runs.clone();
    let surroundings = container::surroundings(context);
    let pins = Pins::read(&container::pins(context))
        .map_err(|error| Failure::refused(error.to_string(), error.hint()))?;
    let mut report = runtime.block_on(probe::examine(&settings));
    let engines = ringfence_container::probe::layers(&surroundings, (&image, &pins));
    report.layers.extend(runtime.block_on(engines));
    report.layers.extend(runtime.block_on(preload_layer(settings)));
    let pyodide = pyodide::settings(0, context)?;
    report.layers.push(pyodide_layer(&pyodide));
    report.layers.push(wheels_layer(&pyodide));
    report.layers.extend(directories(context));
    report.layers.extend(servers_layer(context)?);
    if args.json {
        context.ui.out(serde_json::to_string_pretty(&report)? + "\n")?;
    } else {
        context.ui.out(readable(&report, context.ui))?;
    }
    Ok(ExitCode::from(u8::from(report.situation == Situation::None)))
}

/// Longer than a person would wait for any set of modules.
const PRELOAD_PATIENCE: Duration = Duration::from_secs(600);

/// Checks that the modules of `sandbox.preload` can be imported, in a warm interpreter.
async fn preload_layer(settings: local_runs::Settings) -> Option<Layer> {
    const NAME: &str = "preload";
    if settings.preload.is_empty() {
        return None;
    }
    let reports = Arc::new(Mutex::new(Vec::new()));
    let heard = Arc::clone(&reports);
    let log = Log::new(move |report| {
        let mut heard = heard.lock().unwrap_or_else(PoisonError::into_inner);
        heard.push(report.to_owned());
    });
    let modules = settings.preload.join(", ");
    let warmth = Warmth::Pool {
        size: 1,
        renew_after: 0,
        renew_every: PRELOAD_PATIENCE,
    };
    let backend = Local::new(local_runs::Settings {
        log,
        warmth,
        ..settings
    });
    let warmed = backend
        .warm_up_within(PRELOAD_PATIENCE, (&Scope::local(), None), &Trusted::none())
        .await;
    // Leftovers are removed at the next start.
    backend.close().await;
    let reports = reports.lock().unwrap_or_else(PoisonError::into_inner);
    Some(match (warmed, reports.is_empty()) {
        (Err(error), _) => Layer::missing(NAME, error.explain(), error.hint()),
        (Ok(true), true) => Layer::ok(NAME, format!("imported beforehand: {modules}")),
        (Ok(_), false) => Layer::missing(
            NAME,
            reports.join("; "),
            "install it for the interpreter of `sandbox.python`, or take it out of `sandbox.preload`",
        ),
        (Ok(false), true) => Layer::info(
            NAME,
            "no interpreter can be kept warm here: each program starts one",
        ),
    })
}

/// Checks that programs can run in Pyodide.
fn pyodide_layer(settings: &Settings) -> Layer {
    match install::found(settings) {
        Ok([deno, pyodide]) => Layer::ok("pyodide", format!("{} in {}", pyodide.display(), deno.display())),
        Err(error) => Layer {
            fix: Some(error.hint().to_owned()),
            ..Layer::info("pyodide", error.to_string())
        },
    }
}

/// Checks that Pyodide can import the wheels of the configured directory.
fn wheels_layer(settings: &Settings) -> Layer {
    const NAME: &str = "pyodide wheels";
    match (install::wheels(settings), &settings.packages) {
        (Some(Ok(count)), Some(directory)) => Layer::ok(NAME, format!("{count} in {}", directory.display())),
        (Some(Err(error)), _) => Layer::missing(NAME, error.to_string(), error.hint()),
        _ => Layer::info(NAME, "no directory is named (`skills.sandbox.packages`)"),
    }
}

/// Checks that MCP servers on the host have no code where programs may be expected to write.
fn servers_layer(context: &Context) -> anyhow::Result<Option<Layer>> {
    const NAME: &str = "MCP servers on the host";
    let mut servers = context.config()?.skills.servers.values();
    if !servers.any(|server| server.fence == ServerFence::Host) {
        return Ok(None);
    }
    let conflicts = trust::server_conflicts(context)?;
    Ok(Some(match conflicts.first() {
        None => Layer::ok(
            NAME,
            "none has code in this directory or in a configured workspace",
        ),
        Some(conflict) => Layer::missing(NAME, conflict.to_string(), conflict.hint()),
    }))
}

/// Checks the state and runtime directories.
fn directories(context: &Context) -> [Layer; 2] {
    let paths = &context.paths;
    [
        directory("state directory", &paths.state, paths.make_state()),
        directory("runtime directory", &paths.runtime, paths.make_runtime()),
    ]
}

fn directory(name: &'static str, path: &Path, made: Result<&Path, Failure>) -> Layer {
    const FIX: &str =
        "make it yours and mode 700, or set XDG_STATE_HOME and XDG_RUNTIME_DIR to directories of your own";
    let written = made.map_err(|failure| failure.to_string()).and_then(|path| {
        write_in(path).map_err(|error| format!("cannot write in {}: {error}", path.display()))
    });
    match written {
        Ok(()) => Layer::ok(name, format!("{} can be written", path.display())),
        Err(why) => Layer::missing(name, why, FIX),
    }
}

fn write_in(path: &Path) -> std::io::Result<()> {
    let file = path.join(format!("doctor-{}", std::process::id()));
    fs::write(&file, "x")?;
    fs::remove_file(file)
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
    use crate::args::ColorChoice;
    use ringfence::env::Environment;

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
