//! Queries the container engines, located as for runs in containers.

use ringfence_exec::probe::Layer;
use ringfence_policy::{EngineKind, Remedy, remedy};

use crate::info::Info;
use crate::pins::Pins;
use crate::spec::Image;
use crate::{ContainerRuntime, Error, Surroundings};

/// An available engine with its properties.
struct AvailableEngine {
    engine: ContainerRuntime,
    version: String,
    info: Info,
}

/// Queries the engines, also for this image. Returns their entries and that of gVisor, all of them optional.
pub async fn layers(surroundings: &Surroundings, image: &Image, pins: &Pins) -> Vec<Layer> {
    let (docker, podman) = (
        find(EngineKind::Docker, surroundings).await,
        find(EngineKind::Podman, surroundings).await,
    );
    let gvisor = gvisor([&docker, &podman].into_iter().flatten());
    vec![
        layer(EngineKind::Docker, docker, image, pins).await,
        layer(EngineKind::Podman, podman, image, pins).await,
        gvisor,
    ]
}

async fn find(engine_kind: EngineKind, surroundings: &Surroundings) -> Result<AvailableEngine, Error> {
    let engine = ContainerRuntime::open(engine_kind, surroundings).await?;
    Ok(AvailableEngine {
        version: engine.version().await?.engine,
        info: engine.info().await?,
        engine,
    })
}

async fn layer(
    engine_kind: EngineKind,
    found: Result<AvailableEngine, Error>,
    image: &Image,
    pins: &Pins,
) -> Layer {
    let name = engine_kind.as_str();
    let refused = |error: &Error| Layer {
        fix: Some(error.hint().into()),
        ..Layer::info(name, error.to_string())
    };
    let found = match found {
        Ok(found) => found,
        Err(error) => return refused(&error),
    };
    let said = found.said();
    let fix = || Some(Remedy::from(remedy::Container::MakeImageOf(engine_kind)).into());
    let used = pins.get(engine_kind, image);
    match found.engine.image(used.as_ref().unwrap_or(image)).await {
        Ok(_) if pins.hold(engine_kind, image) => {
            Layer::ok(name, format!("{said}; the image {image} is there"))
        }
        Ok(_) => Layer {
            fix: fix(),
            ..Layer::info(
                name,
                format!(
                    "{said}; the image {image} is there, and not pinned: its name can be given to another"
                ),
            )
        },
        Err(Error::ImageMissing { .. }) => Layer {
            fix: fix(),
            ..Layer::info(name, format!("{said}; there is no image {image}"))
        },
        Err(error) => refused(&error),
    }
}

impl AvailableEngine {
    fn said(&self) -> String {
        let rights = match self.info.rootless {
            true => "rootless, ",
            false => "",
        };
        let limits = match self.info.unlimited.is_empty() {
            true => String::new(),
            false => format!("; it does not limit {}", self.info.unlimited.join(", ")),
        };
        format!(
            "{} at {}, {rights}makes containers with {}{limits}",
            self.version,
            self.engine.address(),
            self.info.default_runtime,
        )
    }

    /// Returns `true` if the engine can use an OCI runtime.
    fn knows(&self, name: &str) -> bool {
        match self.engine.kind() {
            EngineKind::Docker => self.info.runtimes.iter().any(|known| known == name),
            EngineKind::Podman => self.info.default_runtime == name,
        }
    }
}

fn gvisor<'a>(engines: impl Iterator<Item = &'a AvailableEngine>) -> Layer {
    const NAME: &str = "gvisor";
    let known: Vec<_> = engines.filter(|found| found.knows("runsc")).collect();
    let names: Vec<_> = known.iter().map(|found| found.engine.kind().as_str()).collect();
    match names.is_empty() {
        true => Layer::info(NAME, "no container engine here makes containers with runsc"),
        false => Layer::ok(NAME, format!("known as runsc to {}", names.join(" and "))),
    }
}
