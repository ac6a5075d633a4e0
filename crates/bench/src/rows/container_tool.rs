//! `ringfence tool sandbox_exec` as a shell would start it, compared with the engine's own `exec`.

use std::fs;
use std::path::Path;
use std::process::Command;

use anyhow::Context as _;
use ringfence_container::spec::OciRuntime;
use ringfence_policy::EngineKind;

use super::super::containers::{Dock, PRINT};
use super::super::context::BenchContext;
use super::super::figure::{Figure, Sample, Target};
use super::super::process::in_turns;
use super::containers::{ENGINES, unmeasured};

const NAME: &str = "container-tool";
const ARGUMENTS: &str = r#"{"language": "python", "code": "print(1)"}"#;

pub(super) fn whole(place: &mut BenchContext) -> anyhow::Result<Vec<Figure>> {
    let measured = ENGINES.map(|engine_kind| {
        in_engine(place, engine_kind).unwrap_or_else(|error| unmeasured(NAME, engine_kind, &error))
    });
    Ok(measured.into())
}

fn in_engine(place: &BenchContext, engine_kind: EngineKind) -> anyhow::Result<Figure> {
    let name = engine_kind.as_str();
    let program = place.find(name)?.context("its command is not on the PATH")?;
    let dock = place.runtime.block_on(Dock::open(place, engine_kind))?;
    let measured = beside_exec(place, &dock, &program);
    place.runtime.block_on(dock.close());
    let [ours, peer] = measured?;
    let what = format!("whole command, against `{name} exec`");
    Ok(Figure::ratio(NAME, what, ours, peer).against(Target::AtMost(0.08)))
}

/// Measures Ringfence and `exec`, each in a running container. Ringfence reuses the one of its first,
/// uncounted call.
fn beside_exec(place: &BenchContext, dock: &Dock, program: &Path) -> anyhow::Result<[Sample; 2]> {
    let name = dock.engine_kind.as_str();
    let address = place.runtime.block_on(dock.address())?;
    let env = [
        ("DOCKER_HOST", address.as_str()),
        ("CONTAINER_HOST", address.as_str()),
    ];
    let world = format!("tool-{name}");
    let config = place.directory(&world).join("config/ringfence");
    fs::create_dir_all(&config)?;
    let text = format!("[codeExecution]\ncontainerRuntime = '{name}'\n");
    fs::write(config.join("ringfence.toml"), text)?;
    let _engine = place.start_engine(&world, &env)?;
    let mut ours = place.ringfence(&world, &["tool", "sandbox_exec", ARGUMENTS]);
    ours.envs(env);
    let warm = place.runtime.block_on(dock.warm(OciRuntime::Default))?;
    let peer = exec(place, program, warm.container().id().as_str(), &env);
    in_turns([ours, peer])
}

fn exec(place: &BenchContext, program: &Path, id: &str, env: &[(&str, &str)]) -> Command {
    let mut command = place.plain(program, &["exec", id]);
    command.args(PRINT).envs(env.iter().copied());
    command
}
