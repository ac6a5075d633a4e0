"""Values of answers. Members that a newer server adds are ignored; `raw` has the whole answer where it is large."""

from __future__ import annotations

import base64
import dataclasses
import functools
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any, Dict, FrozenSet, List, Mapping, Optional, Type, TypedDict, TypeVar, Union

from ._exceptions import printed
from .errors import IncompatibleServer, RingfenceError

T = TypeVar("T")


def build(cls: Type[T], data: Any, **more: Any) -> T:
    """Creates a value from the members of an answer that it knows."""
    if not isinstance(data, dict):
        raise IncompatibleServer(f"expected an object for {cls.__name__}, found {type(data).__name__}")
    names = _members(cls)  # type: ignore[arg-type]
    known = {name: value for name, value in data.items() if name in names}
    known.update(more)
    try:
        return cls(**known)
    except TypeError as error:
        raise IncompatibleServer(f"the server's answer lacks a member of {cls.__name__}: {error}") from error


@functools.lru_cache(maxsize=None)
def _members(cls: Any) -> FrozenSet[str]:
    return frozenset(each.name for each in dataclasses.fields(cls))


@dataclass(frozen=True)
class RunResult:
    """The result of a program that ran once."""

    stdout: str
    stderr: str
    exit_code: int
    duration: float
    meta: Dict[str, Any]
    """Limits, isolation and usage; `docs/guide/running.md` describes them."""

    @property
    def outcome(self) -> str:
        """`exited`, `timed_out`, `memory_exceeded`, `signalled`, `blocked`, `cancelled` or `unknown`."""
        return str(self.meta.get("outcome", "unknown"))

    @property
    def ok(self) -> bool:
        return self.outcome == "exited" and self.exit_code == 0

    @property
    def truncated(self) -> bool:
        """Set if output was left out of `stdout` or `stderr`."""
        return bool(self.meta.get("truncated", False))

    @property
    def warnings(self) -> List[str]:
        """What the server did otherwise than asked, such as a shorter time limit."""
        return [str(each) for each in self.meta.get("warnings") or []]


@dataclass(frozen=True)
class BatchItem:
    """The end of one program of a batch: a result, or the reason why it has none."""

    index: int
    result: Optional[RunResult] = None
    error: Optional[RingfenceError] = None


@dataclass(frozen=True)
class Tool:
    name: str
    title: str
    description: str
    input_schema: Dict[str, Any]
    output_schema: Optional[Dict[str, Any]] = None


@dataclass(frozen=True)
class ToolAnswer:
    text: str
    structured: Any = None


class Resources(TypedDict, total=False):
    """Limits and usage of a sandbox. A limit that does not hold, and a figure that nobody measures, is `None`."""

    memory_limit: Optional[int]
    cpu_limit: Optional[float]
    pids_limit: Optional[int]
    disk_limit: int
    memory_bytes: Optional[int]
    peak_memory_bytes: Optional[int]
    cpu_seconds: Optional[float]
    pids: Optional[int]
    disk_bytes: Optional[int]
    """Bytes of all files together, in whole pages; `None` in a container."""


@dataclass(frozen=True)
class SandboxInfo:
    id: str
    runtime: str
    state: str
    created_at: str
    expires_at: str
    name: Optional[str] = None
    fence: Optional[str] = None
    """`run` or `box`; `None` in a container."""
    image: str = ""
    """`host`, or the reference of the image whose files it has."""
    image_digest: Optional[str] = None
    on_expiry: str = "kill"
    metadata: Dict[str, str] = field(default_factory=dict)
    resources: Resources = field(default_factory=Resources)
    allowed_hosts: List[str] = field(default_factory=list)
    ports: bool = False
    isolation: Optional[Dict[str, Any]] = None
    processes: int = 0
    contexts: int = 0
    packages: List[str] = field(default_factory=list)
    """Packages of its interpreters, with their versions."""
    warnings: List[str] = field(default_factory=list)


@dataclass(frozen=True)
class EntryPage:
    """Entries of a directory."""

    entries: List[EntryInfo]
    complete: bool = True
    """Nothing is missing behind these but entries of directories that cannot be read."""
    next: Optional[str] = None
    """`after` of the next page; `None` at the end."""


@dataclass(frozen=True)
class SandboxPage:
    """Sandboxes, the oldest first."""

    sandboxes: List[SandboxInfo]
    next: Optional[str] = None
    """`after` of the next page; `None` at the end."""


@dataclass(frozen=True)
class SnapshotInfo:
    """The files of a sandbox, kept on the server's disk. Sizes and limits are bytes."""

    id: str
    sandbox: str
    """Id of the sandbox that it was made of."""
    created_at: str
    """RFC 3339."""
    size: int
    memory_limit: int
    """That of the sandbox, and of those made of the snapshot unless they ask for another."""
    disk_limit: int
    name: Optional[str] = None
    skipped: int = 0
    """Number of files that could not be kept, such as sockets."""
    not_copied: List[str] = field(default_factory=list)
    """What the sandbox was created with and the snapshot has not, such as `packages`."""
    cpu_limit: Optional[float] = None
    """Number of cores; `None` from servers that do not keep it."""
    fence: Optional[str] = None
    image: Optional[Dict[str, Any]] = None
    """`reference` and `digest` of the image on which the sandbox was made."""


@dataclass(frozen=True)
class LifeEvent:
    """An event in the life of a sandbox.

    `type` is `created`, `paused`, `resumed`, `expiry_changed`, `forked`, `snapshot_created`, at the end `expired`,
    `removed` or `ended`, or `lost` in place of events that came while the reader was 256 behind.
    """

    type: str
    time: str = ""
    """RFC 3339; empty if `lost`."""
    sandbox: str = ""
    """Id of the sandbox; empty if `lost`."""
    name: Optional[str] = None
    reason: Optional[str] = None
    """Cause of an end, or of a pause that nobody asked for."""
    expires_at: Optional[str] = None
    copies: List[str] = field(default_factory=list)
    """Ids of the sandboxes that were made of it."""
    snapshot: Optional[str] = None
    events: int = 0
    """Number of lost events."""

    @property
    def is_end(self) -> bool:
        return self.type in ("expired", "removed", "ended")


@dataclass(frozen=True)
class ForwardedPort:
    """An address of this machine at which a port of a sandbox answers."""

    host: str
    port: int

    @property
    def url(self) -> str:
        """The address for programs that speak HTTP."""
        return f"http://{self.host}:{self.port}"


@dataclass(frozen=True)
class EntryInfo:
    """A file of a sandbox. `modified` is nanoseconds since 1970; `target` is that of a symbolic link."""

    name: str
    path: str
    type: str
    size: int = 0
    mode: int = 0
    uid: int = 0
    gid: int = 0
    modified: int = 0
    target: Optional[str] = None


@dataclass(frozen=True)
class UploadedDir:
    """A directory that was copied into a sandbox."""

    entries: int
    bytes: int
    skipped: int = 0
    """Number of entries that the sandbox left out."""
    named: List[Dict[str, str]] = field(default_factory=list)
    """`path` and `reason` of the first of them."""


@dataclass(frozen=True)
class DownloadedDir:
    """A directory that was copied out of a sandbox."""

    entries: int = 0
    bytes: int = 0
    left_out: List[str] = field(default_factory=list)
    """Paths that were not copied: symbolic links that could lead out of the directory, and `protected`."""
    protected: List[str] = field(default_factory=list)
    """Those that programs of this machine execute or obey, such as `.git`, with all below, and other hard links to such files."""


@dataclass(frozen=True)
class FileChange:
    """A change below a watched directory. `path` is relative to it."""

    type: str
    path: str


@dataclass(frozen=True)
class CommandResult:
    """The end of a command, with its output."""

    exit_code: int
    outcome: str
    stdout: str = ""
    stderr: str = ""
    truncated: bool = False
    duration: Optional[float] = None
    """Seconds that it ran; `None` from a handle, for the server keeps no time of a process's end."""
    cpu_seconds: Optional[float] = None
    peak_memory_bytes: Optional[int] = None
    error: Optional[str] = None

    @property
    def ok(self) -> bool:
        return self.outcome == "exited" and self.exit_code == 0


@dataclass(frozen=True)
class ProcessInfo:
    """A process. `end` is set once it has ended."""

    pid: int
    command: List[str]
    cwd: str
    terminal: bool
    started_at: str
    end: Optional[Dict[str, Any]] = None


@dataclass(frozen=True)
class Output:
    """A piece of output of a process. `stream` is `stdout` or `stderr`."""

    stream: str
    data: bytes

    @property
    def text(self) -> str:
        return self.data.decode("utf-8", "replace")


@dataclass(frozen=True)
class Context:
    """An interpreter of a sandbox, which keeps what code defines."""

    id: str
    language: str
    cwd: str = ""
    created_at: str = ""
    executions: int = 0
    user: Optional[str] = None
    """Its user, if it is not the sandbox's."""


_TEXTS = {
    "text/plain": "text",
    "text/html": "html",
    "text/markdown": "markdown",
    "image/svg+xml": "svg",
    "text/latex": "latex",
    "application/javascript": "javascript",
}
_BINARIES = {"image/png": "png", "image/jpeg": "jpeg", "application/pdf": "pdf"}
_VALUES = {
    "application/json": "json",
    "application/vnd.ringfence.data+json": "data",
    "application/vnd.ringfence.chart+json": "chart",
}


@dataclass(frozen=True)
class Result:
    """Something that code showed, or its last value, in each format that it offers. A guest wrote it: do not trust it."""

    is_main_result: bool
    raw: Dict[str, Any]
    """Data by media type, as the server sent them: binary data are base64."""
    omitted: Dict[str, int] = field(default_factory=dict)
    """Sizes of formats that are too large, by media type."""

    def _find(self, table: Mapping[str, str], name: str) -> Any:
        for media, known in table.items():
            if known == name and media in self.raw:
                return self.raw[media]
        return None

    def _text(self, name: str) -> Optional[str]:
        value = self._find(_TEXTS, name)
        return None if value is None else str(value)

    def _bytes(self, name: str) -> Optional[bytes]:
        value = self._find(_BINARIES, name)
        if not isinstance(value, str):
            return None
        try:
            return base64.b64decode(value, validate=True)
        except ValueError as error:
            raise IncompatibleServer(f"the data of a {name} are not base64: {error}") from error

    @property
    def text(self) -> Optional[str]:
        return self._text("text")

    @property
    def html(self) -> Optional[str]:
        return self._text("html")

    @property
    def markdown(self) -> Optional[str]:
        return self._text("markdown")

    @property
    def svg(self) -> Optional[str]:
        return self._text("svg")

    @property
    def latex(self) -> Optional[str]:
        return self._text("latex")

    @property
    def javascript(self) -> Optional[str]:
        return self._text("javascript")

    @property
    def png(self) -> Optional[bytes]:
        return self._bytes("png")

    @property
    def jpeg(self) -> Optional[bytes]:
        return self._bytes("jpeg")

    @property
    def pdf(self) -> Optional[bytes]:
        return self._bytes("pdf")

    @property
    def json(self) -> Any:
        return self._find(_VALUES, "json")

    @property
    def data(self) -> Any:
        """A data frame's columns by name, up to 1,000 rows."""
        return self._find(_VALUES, "data")

    @property
    def chart(self) -> Any:
        """Elements of a figure, as `docs/guide/sessions.md` describes them."""
        return self._find(_VALUES, "chart")

    def __repr__(self) -> str:
        # A picture has megabytes.
        raw = ", ".join(f"{media!r}: {_shortened(media, self.raw[media])}" for media in self.formats())
        return f"Result(is_main_result={self.is_main_result}, raw={{{raw}}}, omitted={self.omitted!r})"

    def formats(self) -> List[str]:
        """Returns the media types that it has."""
        return sorted(self.raw)

    def __str__(self) -> str:
        return self.text or f"<Result: {', '.join(self.formats())}>"


MAX_SHOWN = 200
"""Characters of a datum in the `repr` of a result."""


def _shortened(media: str, value: Any) -> str:
    if media in _BINARIES and isinstance(value, str):
        return f"<{len(value) * 3 // 4} bytes>"
    text = repr(value[: MAX_SHOWN + 1] if isinstance(value, str) else value)
    if len(text) <= MAX_SHOWN:
        return text
    return f"{text[:MAX_SHOWN]}…"


@dataclass(frozen=True)
class Logs:
    """The output of code, in chunks."""

    stdout: List[str] = field(default_factory=list)
    stderr: List[str] = field(default_factory=list)

    def __str__(self) -> str:
        return "".join(self.stdout) + "".join(self.stderr)


@dataclass(frozen=True)
class ExecutionError:
    """The reason for which code did not reach its end: an exception, or an outcome such as `timed_out`.

    Name and value of an exception are read from what the interpreter printed.
    """

    name: str
    value: str
    traceback: str = ""

    def __str__(self) -> str:
        return f"{self.name}: {self.value}" if self.value else self.name


@dataclass(frozen=True)
class Execution:
    """Code that has ended."""

    results: List[Result]
    logs: Logs
    error: Optional[ExecutionError]
    execution_count: int
    outcome: str
    exit_code: int
    duration: float
    truncated: bool
    """Set if output was left out of `logs`."""
    interrupted: bool
    """Set if it was interrupted, and its context has kept its state."""
    context_ended: bool
    """Set if its context has ended, and its state is lost."""
    warnings: List[str]

    @property
    def text(self) -> Optional[str]:
        """The text of the last expression's value."""
        for result in self.results:
            if result.is_main_result:
                return result.text
        return None

    @property
    def ok(self) -> bool:
        return self.error is None


def execution(data: Any, stdout: List[str], stderr: List[str], truncated: bool) -> Execution:
    """Creates an execution from the server's last event, and the output that came before it."""
    if not isinstance(data, dict):
        raise IncompatibleServer("expected an object for an execution")
    found = data.get("results") or []
    results = [
        Result(bool(each.get("main")), dict(each.get("data") or {}), dict(each.get("omitted") or {}))
        for each in found
        if isinstance(each, dict)
    ]
    value = data.get("value")
    if value is not None and not any(result.is_main_result for result in results):
        results.append(Result(True, {"text/plain": value}))
    try:
        outcome, exit_code = str(data["outcome"]), int(data["exit_code"])
    except (KeyError, TypeError, ValueError) as error:
        raise IncompatibleServer(f"the server's answer lacks the end of an execution: {error}") from error
    warnings = [str(each) for each in data.get("warnings") or []]
    return Execution(
        results=results,
        logs=Logs(stdout, stderr),
        error=_error(outcome, exit_code, "".join(stderr), warnings),
        execution_count=int(data.get("execution_count", 0)),
        outcome=outcome,
        exit_code=exit_code,
        duration=float(data.get("duration", 0.0)),
        truncated=truncated,
        interrupted=bool(data.get("interrupted", False)),
        context_ended=bool(data.get("context_ended", False)),
        warnings=warnings,
    )


def _error(outcome: str, exit_code: int, stderr: str, warnings: List[str]) -> Optional[ExecutionError]:
    if outcome != "exited":
        return ExecutionError(outcome, "; ".join(warnings), stderr)
    if exit_code == 0:
        return None
    found = printed(stderr)
    return ExecutionError(*found) if found else ExecutionError("exit status", str(exit_code), stderr)


Seconds = Union[int, float, str, timedelta]
"""Seconds, a text such as `"500ms"` or `"5m"`, or a `timedelta`."""
