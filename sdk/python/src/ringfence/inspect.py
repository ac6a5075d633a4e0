"""Sandboxes for evaluations of Inspect: `pip install ringfence[inspect]`, then `Task(sandbox="ringfence")`."""

from __future__ import annotations

import contextlib
import errno
from pathlib import Path
from typing import Any, Dict, List, Literal, NoReturn, Optional, Union, overload

try:
    import anyio
    from inspect_ai.util import (
        ExecResult,
        OutputLimitExceededError,
        SandboxConnection,
        SandboxEnvironment,
        SandboxEnvironmentConfigType,
        SandboxEnvironmentLimits,
        SandboxUnavailableError,
        SandboxUserUnsupportedError,
        sandboxenv,
    )
    from pydantic import BaseModel, ConfigDict
except ImportError as error:
    raise ImportError("ringfence.inspect needs the package inspect_ai: install ringfence[inspect]") from error

from . import AsyncCommandHandle, AsyncSandbox
from ._async.files import absolute
from ._async.transport import ENDED
from ._ends import exit_status, file_failure, not_started
from .errors import (
    ApiError,
    Busy,
    Conflict,
    LimitExceeded,
    NotFound,
    RingfenceError,
    RuntimeUnavailable,
    ServerGone,
    ServerUnavailable,
)
from .models import CommandResult

__all__ = ["RingfenceConfig", "RingfenceSandboxEnvironment"]

MADE_BY = {"made_by": "inspect_ai"}
"""Metadata of the sandboxes, by which `inspect sandbox cleanup ringfence` finds them."""

AT_ONCE = 64
"""Sandboxes at once, unless `--max-sandboxes` says otherwise. A server has 512 for one user."""


class RingfenceConfig(BaseModel, frozen=True):
    """The options of a sandbox, as `AsyncSandbox` has them.

    With an address (`url` or `socket`), the sandboxes are those of that server, else of this user's own. A key comes
    from RINGFENCE_API_KEY: logs have the configuration.
    """

    model_config = ConfigDict(extra="forbid")

    timeout: Union[int, float, str] = "6h"
    memory: Union[int, str, None] = None
    disk: Union[int, str, None] = None
    cpus: Optional[float] = None
    pids: Optional[int] = None
    env: Optional[Dict[str, str]] = None
    allowed_hosts: Optional[List[str]] = None
    runtime: Optional[str] = None
    image: Optional[str] = None
    packages: Union[str, List[str], None] = None
    snapshot: Optional[str] = None
    fence: Optional[Literal["run", "box"]] = None
    url: Optional[str] = None
    socket: Optional[str] = None

    def __hash__(self) -> int:
        # Inspect hashes it, and lists and dictionaries have no hash.
        return hash(self.model_dump_json())


@sandboxenv(name="ringfence")
class RingfenceSandboxEnvironment(SandboxEnvironment):
    """A sandbox for each sample.

    A program that fails is a result, or the exception that Inspect describes. If the sandbox cannot be reached or
    starts nothing, it is `SandboxUnavailableError`; other failures of the server are exceptions of `ringfence`.
    """

    def __init__(self, sandbox: AsyncSandbox) -> None:
        super().__init__()
        self._sandbox = sandbox
        self._user: Optional[List[str]] = None

    async def exec(
        self,
        cmd: List[str],
        input: Union[str, bytes, None] = None,
        cwd: Optional[str] = None,
        env: Optional[Dict[str, str]] = None,
        user: Optional[str] = None,
        timeout: Optional[int] = None,
        timeout_retry: bool = True,
        concurrency: bool = True,
    ) -> ExecResult[str]:
        """Runs a command. It is not tried again after its time: nothing but the command makes it late."""
        if user is not None:
            await self._check_user(user)
        options: Dict[str, Any] = {"cwd": None if cwd is None else absolute(cwd), "env": env, "timeout": timeout}
        limit = SandboxEnvironmentLimits.MAX_EXEC_OUTPUT_SIZE
        try:
            if input is None:
                result = await self._sandbox.commands.run(cmd, max_output=limit, **options)
            else:
                result = await self._with_input(cmd, input, limit, options)
        except (ApiError, ServerGone, ServerUnavailable) as error:
            status = not_started(error) if isinstance(error, ApiError) else None
            if status is None:
                _raise_unavailable(error)
            if "permission denied" in error.message.lower():
                raise PermissionError(errno.EACCES, error.message, cmd[0]) from error
            return ExecResult(False, status, "", error.message + "\n")
        return _exec_result(result, timeout)

    async def _with_input(
        self, cmd: List[str], input: Union[str, bytes], limit: int, options: Dict[str, Any]
    ) -> CommandResult:
        handle = await self._sandbox.commands.start(cmd, stdin=True, **options)
        failed: List[RingfenceError] = []
        result: Optional[CommandResult] = None

        async def send() -> None:
            try:
                await handle.send_stdin(input, end=True)
            except (Conflict, NotFound):
                # A program need not read to the end.
                pass
            except RingfenceError as error:
                failed.append(error)
                # It would wait for the rest.
                await _kill(handle)

        try:
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(send)
                try:
                    result = await handle.wait(max_output=limit)
                except RingfenceError as error:
                    failed.append(error)
                tasks.cancel_scope.cancel()
        except BaseException:
            with anyio.CancelScope(shield=True):
                await _kill(handle)
            raise
        if failed or result is None:
            raise failed[0]
        return result

    async def _check_user(self, user: str) -> None:
        if self._user is None:
            found = [await self.exec(["id", option]) for option in ("-u", "-un")]
            self._user = [each.stdout.strip() for each in found if each.success]
        if user not in self._user:
            raise SandboxUserUnsupportedError(f"a Ringfence sandbox has one user: {' or '.join(self._user)}, not {user}")

    async def write_file(self, file: str, contents: Union[str, bytes]) -> None:
        path = absolute(file)
        try:
            await self._check_writable(path, file)
            await self._sandbox.files.write(path, contents)
        except (ApiError, ServerGone, ServerUnavailable) as error:
            _raise_file_error(error, file)

    async def _check_writable(self, path: str, file: str) -> None:
        # The server replaces a file, which its own mode does not forbid.
        try:
            entry = await self._sandbox.files.stat(path)
        except NotFound as error:
            if file_failure(error) is None:
                raise
            return
        if entry.type == "file" and not entry.mode & 0o222:
            raise PermissionError(errno.EACCES, "the file is read-only", file)

    @overload
    async def read_file(self, file: str, text: Literal[True] = True) -> str: ...

    @overload
    async def read_file(self, file: str, text: Literal[False]) -> bytes: ...

    async def read_file(self, file: str, text: bool = True) -> Union[str, bytes]:
        limit = SandboxEnvironmentLimits.MAX_READ_FILE_SIZE
        content = bytearray()
        try:
            async with self._sandbox.files.stream(absolute(file), length=limit + 1) as pieces:
                async for piece in pieces:
                    content += piece
        except (ApiError, ServerGone, ServerUnavailable) as error:
            _raise_file_error(error, file)
        if len(content) > limit:
            raise OutputLimitExceededError(SandboxEnvironmentLimits.MAX_READ_FILE_SIZE_STR, None)
        return content.decode() if text else bytes(content)

    async def connection(self, *, user: Optional[str] = None) -> SandboxConnection:
        """Describes how a person on the server's machine gets a shell."""
        if not self._sandbox._client._transport.address.socket:
            raise NotImplementedError("the command line opens shells at servers of this machine alone")
        if user is not None:
            await self._check_user(user)
        if not await self._sandbox.is_running():
            raise ConnectionError(f"the sandbox {self._sandbox.sandbox_id} has ended")
        return SandboxConnection(type="ringfence", command=f"ringfence sandbox shell {self._sandbox.sandbox_id}")

    @classmethod
    async def sample_init(
        cls, task_name: str, config: Optional[SandboxEnvironmentConfigType], metadata: Dict[str, str]
    ) -> Dict[str, SandboxEnvironment]:
        options = _resolved(config).model_dump(exclude_none=True)
        return {"default": cls(await AsyncSandbox.create(metadata=MADE_BY, **options))}

    @classmethod
    async def sample_cleanup(
        cls,
        task_name: str,
        config: Optional[SandboxEnvironmentConfigType],
        environments: Dict[str, SandboxEnvironment],
        interrupted: bool,
    ) -> None:
        with anyio.CancelScope(shield=True):
            for environment in environments.values():
                # Kills it. Sandboxes of a server that is gone are gone, too.
                await environment.as_type(RingfenceSandboxEnvironment)._sandbox.__aexit__()

    @classmethod
    async def cli_cleanup(cls, id: Optional[str]) -> None:
        """Kills the sandboxes that Inspect left at the server of the environment, or one of them."""
        for found in await AsyncSandbox.list(metadata=MADE_BY):
            if id in (None, found.id, found.name):
                sandbox = await AsyncSandbox.connect(found.id)
                await sandbox.kill()
                await sandbox.aclose()

    @classmethod
    def config_deserialize(cls, config: Dict[str, Any]) -> RingfenceConfig:
        return RingfenceConfig(**config)

    @classmethod
    def default_concurrency(cls) -> Optional[int]:
        return AT_ONCE

    def default_polling_interval(self) -> float:
        return 0.2


def _resolved(config: Optional[SandboxEnvironmentConfigType]) -> RingfenceConfig:
    if config is None:
        return RingfenceConfig()
    if isinstance(config, str):
        return RingfenceConfig.model_validate_json(Path(config).read_text())
    if isinstance(config, RingfenceConfig):
        return config
    raise TypeError(f"expected a RingfenceConfig or the path of one in JSON, found {type(config).__name__}")


async def _kill(handle: AsyncCommandHandle) -> None:
    # What cannot be reached is reported by whoever waits.
    with contextlib.suppress(RingfenceError):
        await handle.kill()


def _exec_result(result: CommandResult, timeout: Optional[int]) -> ExecResult[str]:
    status = exit_status(result)
    if result.outcome == "timed_out":
        raise TimeoutError(f"the command went past its time of {timeout} s")
    if result.truncated:
        raise OutputLimitExceededError(SandboxEnvironmentLimits.MAX_EXEC_OUTPUT_SIZE_STR, result.stdout)
    return ExecResult(status == 0, status, result.stdout, result.stderr)


def _raise_file_error(error: Union[ApiError, ServerGone, ServerUnavailable], file: str) -> NoReturn:
    failure = file_failure(error) if isinstance(error, ApiError) else None
    if failure is None:
        _raise_unavailable(error)
    kinds = {
        "not_found": (FileNotFoundError, errno.ENOENT),
        "denied": (PermissionError, errno.EACCES),
        "is_a_directory": (IsADirectoryError, errno.EISDIR),
        "not_a_directory": (NotADirectoryError, errno.ENOTDIR),
        "no_space": (OSError, errno.ENOSPC),
    }
    kind, number = kinds.get(failure, (OSError, errno.EINVAL))
    raise kind(number, error.message, file) from error


def _raise_unavailable(error: Union[ApiError, ServerGone, ServerUnavailable]) -> NoReturn:
    """Raises what Inspect has for a sandbox that starts nothing, or the error itself."""
    has_ended = isinstance(error, ServerGone) and error.message == ENDED[0]
    if has_ended or isinstance(error, (NotFound, Conflict, LimitExceeded, Busy, RuntimeUnavailable, ServerUnavailable)):
        raise SandboxUnavailableError(str(error)) from error
    raise error
