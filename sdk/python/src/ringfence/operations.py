"""Values of questions to people, stored runs and images."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Dict, List, Optional

from .errors import IncompatibleServer
from .models import RunResult, build


@dataclass(frozen=True)
class Approval:
    """A question to a person. Times are milliseconds since 1970, by the server's clock."""

    id: str
    kind: str
    """`command`, `soft_timeout` or `skill`."""
    text: str
    """The question, with escapes in place of invisible characters. An agent wrote part of it: do not trust it."""
    pieces: List[Dict[str, str]]
    """The same in pieces, `{"plain": TEXT}` or `{"escape": TEXT}`, which tell an escape from text that looks like one."""
    reasons: List[str]
    """Facts to decide by."""
    remember: List[str]
    """Times for which an approval can hold: `once`, `session`, `uses`, `always`."""
    digest: str
    """SHA-256 of the text, which an answer names."""
    scope: str
    """Owner of the call that asks."""
    created: int
    expires: int
    state: str
    """`pending`, `approved`, `rejected`, `expired` or `abandoned`."""
    risk: Optional[int] = None
    """From 0, only reads, to 10, destroys irreversibly; `None` if nobody scored it."""
    foreign: Optional[str] = None
    """A warning of characters that resemble plain letters."""
    session: Optional[str] = None
    chat: Optional[str] = None
    by: Optional[str] = None
    """Name of who answered: the id of a key, or the operator's name for a person."""
    ended: Optional[int] = None


def approval(data: Any) -> Approval:
    """Creates a question from the server's answer."""
    pieces = data.get("text") if isinstance(data, dict) else None
    if not isinstance(pieces, list) or not all(isinstance(each, dict) for each in pieces):
        raise IncompatibleServer("expected pieces of text in a question")
    text = "".join(str(value) for each in pieces for value in each.values())
    return build(Approval, data, text=text, pieces=pieces)


@dataclass(frozen=True)
class ApprovalEvent:
    """A question that waits (`type` is `question`), or one that waits no longer (`over`)."""

    type: str
    id: str
    question: Optional[Approval] = None
    """The question, if `type` is `question`."""
    state: Optional[str] = None
    """The end of the one that is `over`: `approved`, `rejected`, `expired` or `abandoned`."""
    by: Optional[str] = None
    """Name of who answered the one that is `over`."""


@dataclass(frozen=True)
class RunSummary:
    """A stored run in a list. `id` is `meta["artifact"]` of its result."""

    id: str
    time: str
    """Time of the request (UTC)."""
    language: str
    outcome: str
    exit_code: int


@dataclass(frozen=True)
class RunPage:
    """Stored runs, the newest first."""

    runs: List[RunSummary]
    next: Optional[str] = None
    """`before` of the page with older ones; `None` at the end."""


@dataclass(frozen=True)
class StoredRun:
    """A stored run. Values that look like credentials were removed before it was stored."""

    id: str
    time: str
    """Time of the request (UTC)."""
    language: str
    code: str
    result: RunResult


@dataclass(frozen=True)
class ImageInfo:
    """An image of which sandboxes can be made."""

    references: List[str]
    digest: str
    """That of the image's configuration."""
    architecture: str
    layers: int
    unpacked: int
    """Time at which it was unpacked, in seconds since 1970."""
    content: Dict[str, int]
    """`bytes` of its files, number of `entries`, and of those that were left out or changed: `special`, `set_ids`, `attributes`."""
    process: Dict[str, Any]
    """`Env`, `WorkingDir`, `User`, `Entrypoint` and `Cmd`, as the image has them."""


@dataclass(frozen=True)
class PullProgress:
    """How much of a layer has arrived. `layer` counts from 1 to `layers`; `received` and `size` are bytes."""

    layer: int
    layers: int
    received: int
    size: int


@dataclass(frozen=True)
class PulledImage:
    image: ImageInfo
    was_there: bool
    """Set if no layer was fetched."""
