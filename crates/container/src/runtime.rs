//! Calls the API of a container engine, with a timeout for each call.
//!
//! One type serves Docker and Podman: both speak the same API, and [`super::Error`] handles differences in
//! their errors.

use std::collections::{BTreeSet, HashMap};
use std::os::unix::fs::MetadataExt;
use std::os::unix::net::UnixStream;
use std::path::{Component, Path, PathBuf};
use std::time::Duration;

use bollard::models::VolumeCreateRequest;
use bollard::query_parameters as query;
use bollard::{ClientVersion, Docker};
use futures_util::StreamExt;
use ringfence_policy::{EngineKind, EnvName};
use rustix::net::sockopt::socket_peercred;

use super::Error;
use super::answers;
use super::endpoint::{self, API_VERSION, Address, Surroundings};
use super::error::ApiCall;
use super::filters::Filters;
use super::info::{self, Info};
pub use super::inspected::{Id, Inspected, Listed, Status, Version};
use super::spec::lower::MAX_PROCESSES;
use super::spec::name::PREFIX;
use super::spec::{Image, Name, ProcessLimit, Spec, Volume};
use super::wire::Wire;

/// Timeout of queries.
const QUICK: Duration = Duration::from_secs(15);
/// Timeout of a ping, and interval between pings.
const TIMEOUT: Duration = Duration::from_secs(5);
/// Timeout of creation and removal.
const SLOW: Duration = Duration::from_secs(60);

/// Limit of the volumes that an image may declare.
const MAX_IMAGE_VOLUMES: usize = 16;

/// Polling interval.
const ASK_AGAIN: Duration = Duration::from_millis(50);

/// Returns the process that serves a socket.
fn serving(socket: &Path) -> Option<String> {
    let stream = UnixStream::connect(socket).ok()?;
    let peer = socket_peercred(&stream).ok()?;
    Some(peer.pid.as_raw_nonzero().to_string())
}

/// Returns the hard limit of processes of the user of Podman's service (RLIMIT_NPROC), -1 if there is none; `None` for a process
/// that is neither Podman nor systemd, which starts it with its own limits: what stands between says nothing of Podman's.
fn max_processes(process: &str) -> Option<i64> {
    let read = |file: &str| std::fs::read_to_string(format!("/proc/{process}/{file}")).ok();
    if !matches!(read("comm")?.trim(), "podman" | "systemd") {
        return None;
    }
    let limits = read("limits")?;
    let line = limits
        .lines()
        .find_map(|line| line.strip_prefix("Max processes"))?;
    match line.split_whitespace().nth(1)? {
        "unlimited" => Some(-1),
        hard => hard.parse().ok(),
    }
}

/// A connection to a container engine.
#[derive(Debug, Clone)]
pub struct ContainerRuntime {
    pub(super) docker: Docker,
    wire: Wire,
    engine_kind: EngineKind,
    address: Address,
    filters: Filters,
}

impl ContainerRuntime {
    /// Connects to the engine and checks its API version.
    ///
    /// # Errors
    /// If the engine does not respond, or is too old.
    pub async fn open(engine_kind: EngineKind, surroundings: &Surroundings) -> Result<Self, Error> {
        let mut first = None;
        for address in endpoint::candidates(engine_kind, surroundings)? {
            match Self::at(engine_kind, address, surroundings).await {
                Ok(runtime) => return Ok(runtime),
                Err(error @ Error::TooOld { .. }) => return Err(error),
                // A socket without permission is a better explanation than one that does not exist.
                Err(error @ Error::NotPermitted { .. }) => first = Some(error),
                Err(error) => first = first.or(Some(error)),
            }
        }
        Err(first.unwrap_or(Error::Unavailable {
            engine_kind,
            place: String::new(),
            why: "no place to look for it".to_owned(),
        }))
    }

    async fn at(
        engine_kind: EngineKind,
        address: Address,
        surroundings: &Surroundings,
    ) -> Result<Self, Error> {
        let wire = Wire::new(address.clone());
        let call = |address| ApiCall {
            engine_kind,
            address,
            doing: "reach the engine",
            what: "engine",
        };
        wire.probe().await.map_err(|error| call(&address).io(error))?;
        let versions = within(QUICK, call(&address), answers::versions(&wire, engine_kind)).await?;
        let wire = wire.speaking(info::spoken(engine_kind, &versions)?);
        let version = ClientVersion {
            major_version: API_VERSION.major as usize,
            minor_version: API_VERSION.minor as usize,
        };
        let transport = {
            let wire = wire.clone();
            move |request| wire.clone().request(request)
        };
        // Timeouts are ours: the library's own would cut off long streams.
        let docker = Docker::connect_with_custom_transport(
            transport,
            Some("http://engine"),
            u64::from(u32::MAX),
            &version,
        )
        .map_err(|error| call(&address).failed(error))?;
        let filters = match engine_kind {
            EngineKind::Docker => Filters::Inline,
            EngineKind::Podman => Filters::Files(surroundings.files.clone()),
        };
        Ok(Self {
            docker,
            wire,
            engine_kind,
            address,
            filters,
        })
    }

    pub fn kind(&self) -> EngineKind {
        self.engine_kind
    }

    pub fn address(&self) -> &Address {
        &self.address
    }

    /// Checks that the engine responds.
    ///
    /// # Errors
    /// If it does not.
    pub async fn ping(&self) -> Result<(), Error> {
        let call = self.call("reach the engine", "engine");
        within(QUICK, call, self.docker.ping()).await.map(drop)
    }

    /// Resolves when the engine stops responding.
    pub(super) async fn silence(&self) {
        while let Ok(Ok(_)) = tokio::time::timeout(TIMEOUT, self.docker.ping()).await {
            tokio::time::sleep(TIMEOUT).await;
        }
    }

    /// Queries the engine's version.
    ///
    /// # Errors
    /// If the engine does not respond.
    pub async fn version(&self) -> Result<Version, Error> {
        let call = self.call("ask for the engine's version", "engine");
        let version = within(QUICK, call, self.docker.version()).await?;
        Ok(Version {
            engine: version.version.unwrap_or_default(),
            api: version.api_version.unwrap_or_default(),
        })
    }

    /// Queries the engine's capabilities.
    ///
    /// # Errors
    /// If the engine does not respond.
    pub async fn info(&self) -> Result<Info, Error> {
        let call = self.call("ask what the engine offers", "engine");
        let said = within(QUICK, call, answers::engine_info(&self.wire)).await?;
        Ok(info::understood(self.engine_kind, said))
    }

    /// Returns `true` if the engine sees the mounts of this process.
    pub(super) fn shares_mounts(&self) -> bool {
        let Address::Unix(path) = &self.address else {
            return false;
        };
        let namespace = |process: &str| std::fs::metadata(format!("/proc/{process}/ns/mnt")).ok();
        let theirs = serving(path).and_then(|peer| namespace(&peer));
        theirs
            .zip(namespace("self"))
            .is_some_and(|(theirs, ours)| theirs.ino() == ours.ino())
    }

    /// Returns the limit of processes of one user in all containers together; `None` for the engine's own.
    fn processes_of_user(&self, limit: ProcessLimit) -> Option<i64> {
        match (limit, self.engine_kind) {
            (ProcessLimit::User, _) => Some(MAX_PROCESSES),
            (ProcessLimit::Container, EngineKind::Docker) => None,
            // Podman would set one for which it may lack the permission. Its process may keep the one that it has.
            (ProcessLimit::Container, EngineKind::Podman) => {
                let own = match &self.address {
                    Address::Unix(path) => serving(path).and_then(|process| max_processes(&process)),
                    Address::Loopback(_) => None,
                };
                Some(own.unwrap_or(MAX_PROCESSES))
            }
        }
    }

    /// Creates a container.
    ///
    /// # Errors
    /// If the image is missing, the name is in use, or the engine rejects the request.
    pub async fn create(&self, spec: &Spec) -> Result<Id, Error> {
        let name = spec.name.as_str();
        let options = query::CreateContainerOptionsBuilder::new().name(name).build();
        let call = self.call("make a container", name);
        let filter = self
            .filters
            .place(&spec.filter)
            .map_err(|why| Error::Files { why: why.to_string() })?;
        let body = spec.body(&filter, self.processes_of_user(spec.process_limit));
        let making = self.docker.create_container(Some(options), body);
        let made = within(SLOW, call, making).await;
        let made = made.map_err(|error| match error {
            // Of the two names in the request, only the image's can be missing.
            Error::ImageMissing { .. } => Error::ImageMissing {
                image: spec.image.to_string(),
            },
            other => other,
        })?;
        Id::new(&made.id).ok_or_else(|| call.senseless())
    }

    /// Starts a container.
    ///
    /// # Errors
    /// If it cannot be started.
    pub async fn start(&self, id: &Id) -> Result<(), Error> {
        let call = self.call("start the container", id.as_str());
        within(SLOW, call, self.docker.start_container(id.as_str(), None)).await
    }

    /// Stops a container: SIGTERM, then SIGKILL after `grace`. Succeeds if it has ended already.
    ///
    /// # Errors
    /// If it does not exist.
    pub async fn stop(&self, id: &Id, grace: Duration) -> Result<(), Error> {
        let seconds = i32::try_from(grace.as_millis().div_ceil(1000)).unwrap_or(i32::MAX);
        let options = query::StopContainerOptionsBuilder::new().t(seconds).build();
        let call = self.call("stop the container", id.as_str());
        within(
            SLOW + grace,
            call,
            self.docker.stop_container(id.as_str(), Some(options)),
        )
        .await
    }

    /// Kills a container. Succeeds if it has ended already.
    ///
    /// # Errors
    /// If it does not exist.
    pub async fn kill(&self, id: &Id) -> Result<(), Error> {
        let call = self.call("kill the container", id.as_str());
        let killed = within(SLOW, call, self.docker.kill_container(id.as_str(), None)).await;
        match killed {
            Err(Error::Conflict { .. }) => Ok(()),
            Err(Error::Said { .. }) if !self.is_running(id).await? => Ok(()),
            other => other,
        }
    }

    async fn is_running(&self, id: &Id) -> Result<bool, Error> {
        let status = self.inspect(id).await?.status;
        Ok(matches!(status, Status::Running | Status::Paused))
    }

    /// Removes a container with its anonymous volumes, running or not, and waits until it is gone. Succeeds
    /// if it does not exist.
    ///
    /// # Errors
    /// If it cannot be removed.
    pub async fn remove(&self, id: &Id) -> Result<(), Error> {
        let options = query::RemoveContainerOptionsBuilder::new()
            .force(true)
            .v(true)
            .build();
        let call = self.call("remove the container", id.as_str());
        let removing = self.docker.remove_container(id.as_str(), Some(options));
        match within(SLOW, call, removing).await {
            Err(Error::NotFound { .. }) => Ok(()),
            // A concurrent removal is in progress.
            Err(Error::Conflict { said, .. }) if said.contains("already in progress") => self.gone(id).await,
            other => other,
        }
    }

    /// Waits until the container does not exist.
    async fn gone(&self, id: &Id) -> Result<(), Error> {
        let deadline = tokio::time::Instant::now() + SLOW;
        loop {
            match self.inspect(id).await {
                Err(Error::NotFound { .. }) => return Ok(()),
                Err(error) => return Err(error),
                Ok(_) if tokio::time::Instant::now() > deadline => {
                    return Err(Error::Deadline {
                        doing: "remove the container",
                        patience: SLOW,
                    });
                }
                Ok(_) => tokio::time::sleep(ASK_AGAIN).await,
            }
        }
    }

    /// Inspects a container.
    ///
    /// # Errors
    /// If it does not exist.
    pub async fn inspect(&self, id: &Id) -> Result<Inspected, Error> {
        let call = self.call("look at the container", id.as_str());
        let found = within(QUICK, call, answers::container(&self.wire, id)).await?;
        found.ok_or_else(|| call.senseless())
    }

    /// Freezes a container's processes.
    ///
    /// # Errors
    /// If it is not running.
    pub async fn pause(&self, id: &Id) -> Result<(), Error> {
        let call = self.call("pause the container", id.as_str());
        within(SLOW, call, self.docker.pause_container(id.as_str())).await
    }

    /// Resumes a container's processes.
    ///
    /// # Errors
    /// If it is not paused.
    pub async fn resume(&self, id: &Id) -> Result<(), Error> {
        let call = self.call("resume the container", id.as_str());
        within(SLOW, call, self.docker.unpause_container(id.as_str())).await
    }

    /// Waits for the end of a container, without a timeout; returns its exit status.
    ///
    /// # Errors
    /// If it does not exist, or the engine goes away meanwhile.
    pub async fn wait(&self, id: &Id) -> Result<i64, Error> {
        let call = self.call("wait for the container", id.as_str());
        let mut ends = Box::pin(self.docker.wait_container(id.as_str(), None));
        match ends.next().await {
            Some(Ok(end)) => Ok(end.status_code),
            // The library turns every status but 0 into an error.
            Some(Err(bollard::errors::Error::DockerContainerWaitError { code, error }))
                if error.is_empty() =>
            {
                Ok(code)
            }
            Some(Err(error)) => Err(call.failed(error)),
            None => Err(call.senseless()),
        }
    }

    /// Creates a tmpfs volume with the owner's labels.
    ///
    /// # Errors
    /// If a volume with the name but other labels exists, or the engine rejects the request.
    pub async fn create_volume(&self, volume: &Volume, labels: HashMap<String, String>) -> Result<(), Error> {
        let name = &volume.name;
        let call = self.call("make a volume", name.as_str());
        let body = VolumeCreateRequest {
            name: Some(name.as_str().to_owned()),
            driver: Some("local".to_owned()),
            driver_opts: Some(volume.options()),
            labels: Some(labels.clone()),
            ..VolumeCreateRequest::default()
        };
        let made = within(SLOW, call, self.docker.create_volume(body)).await?;
        // An engine returns the existing volume if the name is in use.
        match labels
            .iter()
            .all(|(key, value)| made.labels.get(key) == Some(value))
        {
            true => Ok(()),
            false => Err(Error::NameTaken {
                name: name.to_string(),
            }),
        }
    }

    /// Removes a volume. Succeeds if it does not exist.
    ///
    /// # Errors
    /// If a container uses it.
    pub async fn remove_volume(&self, name: &Name) -> Result<(), Error> {
        let call = self.call("remove the volume", name.as_str());
        match within(
            SLOW,
            call,
            self.docker
                .remove_volume(name.as_str(), None::<query::RemoveVolumeOptions>),
        )
        .await
        {
            Err(Error::NotFound { .. }) => Ok(()),
            other => other,
        }
    }

    /// Lists the containers with our name prefix, of any owner.
    ///
    /// # Errors
    /// If the engine does not respond.
    pub async fn list(&self) -> Result<Vec<Listed>, Error> {
        let call = self.call("list the containers", "engine");
        let mut found = within(QUICK, call, answers::containers(&self.wire)).await?;
        found.retain(|container| is_ours(&container.name));
        Ok(found)
    }

    /// Lists the volumes with our name prefix, of any owner.
    ///
    /// # Errors
    /// If the engine does not respond.
    pub async fn list_volumes(&self) -> Result<Vec<Listed>, Error> {
        let options = query::ListVolumesOptionsBuilder::new().filters(&ours()).build();
        let call = self.call("list the volumes", "engine");
        let found = within(QUICK, call, self.docker.list_volumes(Some(options))).await?;
        let listed = found
            .volumes
            .unwrap_or_default()
            .into_iter()
            .filter(|volume| is_ours(&volume.name));
        Ok(listed
            .map(|volume| Listed {
                name: volume.name,
                labels: volume.labels,
                state: String::new(),
                created: 0,
            })
            .collect())
    }

    /// Returns an image by digest.
    ///
    /// # Errors
    /// If it is not present.
    pub async fn image(&self, image: &Image) -> Result<Image, Error> {
        let name = image.to_string();
        let call = self.call("look at the image", &name);
        let found = within(QUICK, call, self.docker.inspect_image(&name))
            .await
            .map_err(|error| match error {
                Error::NotFound { .. } => Error::ImageMissing { image: name.clone() },
                other => other,
            })?;
        let digest = found.id.and_then(|id| id.parse().ok()).filter(Image::is_id);
        digest.ok_or_else(|| call.senseless())
    }

    /// Returns a label of an image, if there is such an image with that label.
    pub(super) async fn image_label(&self, image: &Image, label: &str) -> Option<String> {
        let name = image.to_string();
        let call = self.call("look at the image", &name);
        let found = within(QUICK, call, self.docker.inspect_image(&name)).await;
        found.ok()?.config?.labels?.remove(label)
    }

    /// Returns the environment of an image; skips variables with unsupported names.
    ///
    /// # Errors
    /// If the image is not present.
    pub(super) async fn image_environment(&self, image: &Image) -> Result<Vec<(EnvName, String)>, Error> {
        let name = image.to_string();
        let call = self.call("look at the image", &name);
        let found = within(QUICK, call, self.docker.inspect_image(&name)).await?;
        let words = found.config.and_then(|config| config.env).unwrap_or_default();
        let pair = |word: &String| {
            let (name, value) = word.split_once('=')?;
            Some((name.parse().ok()?, value.to_owned()))
        };
        Ok(words.iter().filter_map(pair).collect())
    }

    /// Returns the paths at which an image declares volumes.
    ///
    /// # Errors
    /// If the image is not present, or declares too many volumes or one at an invalid path.
    pub(super) async fn image_volumes(&self, image: &Image) -> Result<Vec<PathBuf>, Error> {
        let name = image.to_string();
        let call = self.call("look at the image", &name);
        let missing = |error| match error {
            Error::NotFound { .. } => Error::ImageMissing { image: name.clone() },
            other => other,
        };
        let found = within(QUICK, call, self.docker.inspect_image(&name))
            .await
            .map_err(missing)?;
        let declared = found.config.and_then(|config| config.volumes).unwrap_or_default();
        let place = |text: &String| {
            let path = Path::new(text);
            let plain = |part: Component<'_>| matches!(part, Component::RootDir | Component::Normal(_));
            // Normalized as the engine does: without a trailing slash.
            let usable = path.is_absolute() && path.parent().is_some() && path.components().all(plain);
            usable.then(|| path.components().collect())
        };
        let places: Option<BTreeSet<PathBuf>> = declared.iter().map(place).collect();
        let places = places.filter(|places| places.len() <= MAX_IMAGE_VOLUMES);
        places
            .map(Vec::from_iter)
            .ok_or(Error::ImageVolumes { image: name })
    }

    pub(super) fn call<'a>(&'a self, doing: &'static str, what: &'a str) -> ApiCall<'a> {
        ApiCall {
            engine_kind: self.engine_kind,
            address: &self.address,
            doing,
            what,
        }
    }
}

/// Awaits a response with a timeout.
pub(super) async fn within<T>(
    patience: Duration,
    call: ApiCall<'_>,
    answer: impl Future<Output = Result<T, bollard::errors::Error>>,
) -> Result<T, Error> {
    match tokio::time::timeout(patience, answer).await {
        Ok(answer) => answer.map_err(|error| call.failed(error)),
        Err(_) => Err(Error::Deadline {
            doing: call.doing,
            patience,
        }),
    }
}

/// Returns the filter for Ringfence's containers. The engine matches substrings of names, so results are
/// filtered again.
fn ours() -> HashMap<&'static str, Vec<&'static str>> {
    HashMap::from([("name", vec![PREFIX])])
}

fn is_ours(name: &str) -> bool {
    name.starts_with(PREFIX)
}

#[cfg(test)]
mod tests;
