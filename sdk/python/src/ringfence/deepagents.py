"""Sandboxes for agents of deepagents: `pip install ringfence[deepagents]`."""

from __future__ import annotations

import asyncio
import contextlib
from typing import List, Optional, Tuple

try:
    from deepagents.backends.composite import CompositeBackend
    from deepagents.backends.protocol import ExecuteResponse, FileDownloadResponse, FileUploadResponse
    from deepagents.backends.sandbox import BaseSandbox
except ImportError as error:
    raise ImportError("ringfence.deepagents needs the package deepagents: install ringfence[deepagents]") from error

from . import CommandHandle, Sandbox
from ._arguments import check_sandbox, positive_seconds, unexpected
from ._ends import exit_status, file_failure, why_cut
from .errors import ApiError, RingfenceError
from .models import CommandResult

__all__ = ["RingfenceSandbox", "agent_backend"]

TIMEOUT = 30 * 60
"""Seconds that a command has, unless the agent asks for others."""

ARTIFACTS = "/tmp/deepagents"
"""Directory for long results of agents. deepagents itself would put them into `/`, where programs cannot write."""

# deepagents knows these four; others are told in words.
_FAILURES = {
    "not_found": "file_not_found",
    "denied": "permission_denied",
    "is_a_directory": "is_directory",
    "invalid": "invalid_path",
    "not_a_directory": "invalid_path",
}


def agent_backend(sandbox: Sandbox, *, timeout: int = TIMEOUT) -> CompositeBackend:
    """Returns a backend for `create_deep_agent(backend=...)`, with a place in the sandbox for long results."""
    backend = RingfenceSandbox(sandbox, timeout=timeout)
    backend.enable_capture_offload = True
    return CompositeBackend(default=backend, routes={}, artifacts_root=ARTIFACTS)


class RingfenceSandbox(BaseSandbox):
    """Files and commands of a sandbox, as deepagents uses them. `agent_backend` makes an agent's backend of it.

    The sandbox is the caller's, who kills it. A command that fails is an answer to the agent; if the server or the
    sandbox fails, an exception of `ringfence` is raised.
    """

    def __init__(self, sandbox: Sandbox, *, timeout: int = TIMEOUT) -> None:
        self._sandbox: Sandbox = check_sandbox(sandbox)
        if isinstance(timeout, bool):
            raise unexpected("a number of seconds, or 0 for no limit,", "timeout", timeout)
        self._timeout = timeout if timeout == 0 else positive_seconds(timeout)

    @property
    def id(self) -> str:
        return self._sandbox.sandbox_id

    def execute(self, command: str, *, timeout: Optional[int] = None) -> ExecuteResponse:
        """Runs a line of shell. The output is both streams in their order; 0 seconds mean no limit of time."""
        return _response(self._sandbox.commands.run(_combined(command), timeout=self._limit(timeout)))

    async def aexecute(self, command: str, *, timeout: Optional[int] = None) -> ExecuteResponse:
        """Runs a line of shell. Cancelling the task kills it."""
        handle: Optional[CommandHandle] = None
        starting = asyncio.ensure_future(
            asyncio.to_thread(self._sandbox.commands.start, _combined(command), timeout=self._limit(timeout))
        )
        try:
            handle = await asyncio.shield(starting)
            return _response(await asyncio.to_thread(handle.wait))
        except asyncio.CancelledError:
            # A thread cannot be cancelled: what it started must be found, and ended.
            with contextlib.suppress(RingfenceError):
                handle = handle or await starting
                await asyncio.to_thread(handle.kill)
            raise

    def _limit(self, timeout: Optional[int]) -> Optional[float]:
        return (self._timeout if timeout is None else timeout) or None

    def upload_files(self, files: List[Tuple[str, bytes]]) -> List[FileUploadResponse]:
        return [FileUploadResponse(path=path, error=self._upload(path, content)) for path, content in files]

    def _upload(self, path: str, content: bytes) -> Optional[str]:
        if not path.startswith("/"):
            return "invalid_path"
        try:
            self._sandbox.files.write(path, content)
        except ApiError as error:
            return _failure(error)
        return None

    def download_files(self, paths: List[str]) -> List[FileDownloadResponse]:
        return [self._download(path) for path in paths]

    def _download(self, path: str) -> FileDownloadResponse:
        if not path.startswith("/"):
            return FileDownloadResponse(path=path, error="invalid_path")
        try:
            return FileDownloadResponse(path=path, content=self._sandbox.files.read(path, "bytes"))
        except ApiError as error:
            return FileDownloadResponse(path=path, error=_failure(error))


def _combined(command: str) -> str:
    # Two pipes would lose the order of what is printed to them. On the same line, for numbers of lines stay.
    return f"exec 2>&1; {command}"


def _response(result: CommandResult) -> ExecuteResponse:
    output = result.stdout + result.stderr
    why = why_cut(result)
    if why:
        output = f"{output.rstrip()}\n{why}".lstrip()
    return ExecuteResponse(output=output, exit_code=exit_status(result), truncated=result.truncated)


def _failure(error: ApiError) -> str:
    failure = file_failure(error)
    if failure is None:
        raise error
    return _FAILURES.get(failure, error.message)
