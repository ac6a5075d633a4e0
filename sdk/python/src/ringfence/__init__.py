"""Runs untrusted code in a Ringfence server's fence.

`Sandbox` is a sandbox that lives, `run` runs a program once, and `AsyncSandbox` and `AsyncClient` do the same for asyncio.
"""

from __future__ import annotations

from typing import Any

from . import errors
from ._async.client import AsyncClient
from ._async.commands import AsyncCommandHandle
from ._async.sandbox import AsyncSandbox
from ._sync.client import Client
from ._sync.commands import CommandHandle
from ._sync.sandbox import Sandbox
from ._version import VERSION as __version__
from .administration import (
    AuditBreak,
    AuditRecord,
    AuditVerification,
    KeyInfo,
    KeyUsage,
    Quota,
    UsageFigures,
    UsageReport,
)
from .errors import (
    ApiError,
    CommandFailed,
    Conflict,
    IncompatibleServer,
    InvalidArguments,
    LimitExceeded,
    NotFound,
    PermissionDenied,
    RingfenceError,
    RuntimeUnavailable,
    ServerGone,
    ServerUnavailable,
    StillRunning,
)
from .models import (
    BatchItem,
    CommandResult,
    Context,
    DownloadedDir,
    EntryInfo,
    EntryPage,
    Execution,
    ExecutionError,
    FileChange,
    ForwardedPort,
    LifeEvent,
    Logs,
    Output,
    ProcessInfo,
    Resources,
    Result,
    RunResult,
    SandboxInfo,
    SandboxPage,
    SnapshotInfo,
    Tool,
    ToolAnswer,
    UploadedDir,
)
from .operations import (
    Approval,
    ApprovalEvent,
    ImageInfo,
    PulledImage,
    PullProgress,
    RunPage,
    RunSummary,
    StoredRun,
)


def run(code: str, language: str = "python", **options: Any) -> RunResult:
    """Runs a program once. The options are those of `Client.run`."""
    with Client() as client:
        return client.run(code, language, **options)


__all__ = [
    "ApiError",
    "Approval",
    "ApprovalEvent",
    "AsyncClient",
    "AsyncCommandHandle",
    "AsyncSandbox",
    "AuditBreak",
    "AuditRecord",
    "AuditVerification",
    "BatchItem",
    "Client",
    "CommandFailed",
    "CommandHandle",
    "CommandResult",
    "Conflict",
    "Context",
    "DownloadedDir",
    "EntryInfo",
    "EntryPage",
    "Execution",
    "ExecutionError",
    "FileChange",
    "ForwardedPort",
    "ImageInfo",
    "IncompatibleServer",
    "InvalidArguments",
    "KeyInfo",
    "KeyUsage",
    "LifeEvent",
    "LimitExceeded",
    "Logs",
    "NotFound",
    "Output",
    "PermissionDenied",
    "ProcessInfo",
    "PullProgress",
    "PulledImage",
    "Quota",
    "Resources",
    "Result",
    "RingfenceError",
    "RunPage",
    "RunResult",
    "RunSummary",
    "RuntimeUnavailable",
    "Sandbox",
    "SandboxInfo",
    "SandboxPage",
    "ServerGone",
    "ServerUnavailable",
    "SnapshotInfo",
    "StillRunning",
    "StoredRun",
    "Tool",
    "ToolAnswer",
    "UploadedDir",
    "UsageFigures",
    "UsageReport",
    "__version__",
    "errors",
    "run",
]
