//! Remedies for containers and their engines.

use std::borrow::Cow;

use serde::{Deserialize, Serialize};

use super::Remedy;
use crate::EngineKind;

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Container {
    StartEngine(EngineKind),
    /// For a socket that this user may not open.
    JoinEngine(EngineKind),
    UpgradeEngine,
    /// For an engine without control groups.
    LimitEngine,
    MakeImage,
    /// From the packages of this machine, without a registry.
    MakeImageHere,
    /// The command alone.
    MakeImageOf(EngineKind),
    PinImage(EngineKind),
    RemakeImages,
    /// The state directory.
    OwnState,
    ListFilters,
    AllowHosts,
    List,
    Examine,
    Resume,
    Remove,
    /// One that serves calls.
    RemoveKept,
}

impl Container {
    pub(super) fn person(self) -> Cow<'static, str> {
        Cow::Borrowed(match self {
            Self::StartEngine(EngineKind::Docker) => "Set SANDBOX_TYPE=local or start Docker daemon",
            Self::StartEngine(EngineKind::Podman) => {
                "Set SANDBOX_TYPE=local or start the Podman service (`systemctl --user start podman.socket`)"
            }
            Self::JoinEngine(EngineKind::Docker) => {
                "join the group of the socket (`sudo usermod -aG docker $USER`, then log in again), or use rootless \
                 Docker, or set SANDBOX_TYPE=local"
            }
            Self::JoinEngine(EngineKind::Podman) => {
                "start your own service with `systemctl --user start podman.socket`, or set SANDBOX_TYPE=local"
            }
            Self::UpgradeEngine => {
                "upgrade it to Docker 20.10 or Podman 4, or later ones, or set SANDBOX_TYPE=local"
            }
            Self::LimitEngine => {
                "give it control groups (rootless engines: version 2), or run without them: `--isolation best-effort`"
            }
            Self::MakeImage => "make it with `ringfence setup image`, or name an image that is there",
            Self::MakeImageHere => {
                "check that the container engine reaches the registry; `ringfence setup image --from host` needs none"
            }
            Self::MakeImageOf(engine) => {
                return format!("ringfence setup image --engine {}", engine.as_str()).into();
            }
            Self::PinImage(engine) => {
                let engine = engine.as_str();
                return format!(
                    "`ringfence setup image --engine {engine}` pins it, and so does a name with `@sha256:…`"
                )
                .into();
            }
            Self::RemakeImages => "remove the file, and make the images again with `ringfence setup image`",
            Self::OwnState => "make the state directory yours and writable (`ringfence doctor`)",
            Self::ListFilters => "`ringfence seccomp show` names the filters",
            Self::AllowHosts => {
                "choose the filter `standard-net` for it, or leave out the hosts (`allowed_hosts`)"
            }
            Self::List => "`ringfence sandbox ls` shows which there are",
            Self::Examine => "see its state with `ringfence sandbox ls`",
            Self::Resume => "resume it with `ringfence sandbox resume NAME`",
            Self::Remove => "remove one with `ringfence sandbox rm`",
            Self::RemoveKept => {
                "what runs there prints to its caller; `ringfence sandbox rm` ends it, and the next call gets another one"
            }
        })
    }
}

impl From<Container> for Remedy {
    fn from(remedy: Container) -> Self {
        Self::Container(remedy)
    }
}
