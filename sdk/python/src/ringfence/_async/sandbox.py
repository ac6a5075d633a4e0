"""Sandboxes: create, find, use, end."""

from __future__ import annotations

import asyncio  # async
import os
from contextlib import asynccontextmanager
from typing import Any, AsyncIterator, Callable, Dict, List, Literal, Mapping, Optional, Sequence, Tuple, Union

from .._arguments import StrPath, check_callbacks, check_known, language_of, named, texts, unexpected
from .._blocks import OnlyAsync, log_not_ended  # async
# sync: from .._blocks import OnlyPlain, log_not_ended
from .._events import Kept, Texts
from .._packages import keys_of
from .._path import segment
from ..errors import InvalidArguments, NotFound, RingfenceError, ServerGone, ServerUnavailable
from ..models import Context, Execution, LifeEvent, Result, SandboxInfo, SandboxPage, Seconds, SnapshotInfo, build, execution
from .callbacks import called
from .client import AsyncClient
from .commands import AsyncCommands, AsyncPty
from .files import AsyncFiles
from .life import life_events
from .ports import AsyncPorts
from .transport import AsyncTransport

OnText = Callable[[str], Any]

CONNECTION = ("url", "api_key", "socket", "autostart", "plain_http")
"""Arguments of a client."""

MAX_OUTPUT = 8 << 20
"""Characters kept of each stream of code."""


def _selected(metadata: Optional[Mapping[str, str]]) -> Dict[str, Any]:
    return {f"metadata.{name}": value for name, value in (named(metadata, "metadata") or {}).items()}


class AsyncContexts:
    """Interpreters of a sandbox beside the default ones."""

    def __init__(self, transport: AsyncTransport, base: str) -> None:
        self._transport = transport
        self._base = base + "/contexts"

    async def create(
        self, language: str = "python", *, cwd: Optional[StrPath] = None, user: Optional[str] = None
    ) -> Context:
        """Starts an interpreter.

        `user` is a name of the sandbox's /etc/passwd or a number, for sandboxes with the fence `box`. Raises `NotFound` if there is
        no such user, `NotSupported` in another sandbox.
        """
        body = {"language": language_of(language), "cwd": cwd, "user": user}
        return build(Context, await self._transport.json("POST", self._base, json=body))

    async def list(self) -> List[Context]:
        answer = await self._transport.json("GET", self._base)
        return [build(Context, each) for each in answer.get("contexts", [])]

    async def remove(self, context: Union[str, Context]) -> None:
        """Ends an interpreter."""
        await self._transport.json("DELETE", f"{self._base}/{_id(context)}")

    async def interrupt(self, context: Union[str, Context]) -> None:
        """Interrupts the code that an interpreter runs; it keeps its state."""
        await self._transport.json("POST", f"{self._base}/{_id(context)}/interrupt")


class AsyncSandbox(OnlyAsync):  # async
# sync: class AsyncSandbox(OnlyPlain):
    """A sandbox, which stays until it is killed, its time is up, or the server ends.

    `with` creates it and kills it in the end. The options are the members of `POST /v1/sandboxes`: sizes are bytes or
    texts such as `"512MiB"`, times are seconds, texts such as `"10m"` or `timedelta`; `image` is one that `ringfence image ls` lists,
    `packages` a list of names (those of npm begin with `npm:`), or a key that `ringfence packages ls --json` lists, or a list of such keys,
    `snapshot` an id or name.
    """

    _plain_name = "Sandbox"
    _is_over = False

    def __init__(
        self,
        name: Optional[str] = None,
        *,
        timeout: Optional[Seconds] = None,
        memory: Union[int, str, None] = None,
        disk: Union[int, str, None] = None,
        cpus: Optional[float] = None,
        pids: Optional[int] = None,
        env: Optional[Mapping[str, str]] = None,
        metadata: Optional[Mapping[str, str]] = None,
        allowed_hosts: Optional[Sequence[str]] = None,
        runtime: Optional[str] = None,
        image: Optional[str] = None,
        ports: bool = False,
        packages: Union[str, Sequence[str], None] = None,
        snapshot: Optional[str] = None,
        fence: Optional[Literal["run", "box"]] = None,
        on_expiry: Optional[Literal["kill", "pause"]] = None,
        client: Optional[AsyncClient] = None,
        **connection: Any,
    ) -> None:
        self._options: Dict[str, Any] = {
            "name": name,
            "timeout": timeout,
            "memory": memory,
            "disk": disk,
            "cpus": cpus,
            "pids": pids,
            "env": named(env, "env"),
            "metadata": named(metadata, "metadata"),
            "allowed_hosts": texts(allowed_hosts or (), "allowed_hosts") or None,
            "runtime": runtime,
            "image": image,
            "ports": ports or None,
            "packages": packages or None,
            "snapshot": snapshot,
            "fence": fence,
            "on_expiry": on_expiry,
        }
        check_known(type(self).__name__, connection, [*self._options, "client", *CONNECTION])
        self._adopt_client(client, connection)
        self._id: Optional[str] = None
        self._name = name
        self._kill_at_exit = True
        self._process = os.getpid()
        # sync: self._open()

    def _adopt_client(self, client: Optional[AsyncClient], connection: Dict[str, Any]) -> None:
        self._depth = 0
        self._owns_client = client is None
        self._client = _client_of(client, connection)

    async def _open(self) -> None:
        if self._id is not None:
            return
        try:
            await self._install()
            answer = await self._client._transport.json("POST", "/sandboxes", json=self._options)
            self._adopt(build(SandboxInfo, answer))
            self._process = os.getpid()
        except BaseException:
            await self._close_client()
            raise

    async def _install(self) -> None:
        packages, address = self._options["packages"], self._client._transport.address
        if packages:
            self._options["packages"] = await asyncio.to_thread(keys_of, address, packages)  # async
            # sync: self._options["packages"] = keys_of(address, packages)

    def _adopt(self, info: SandboxInfo) -> None:
        self._transport = transport = self._client._transport.of_sandbox()
        base = f"/sandboxes/{segment(info.id)}"
        self._id, self._base, self._name = info.id, base, info.name
        self.files = AsyncFiles(transport, base)
        self.commands = AsyncCommands(transport, base)
        self.pty = AsyncPty(self.commands)
        self.contexts = AsyncContexts(transport, base)
        self.ports = AsyncPorts(transport, base)

    @classmethod
    async def create(cls, name: Optional[str] = None, **options: Any) -> AsyncSandbox:
        """Creates a sandbox; the arguments are those of the class."""
        sandbox = cls(name, **options)
        await sandbox._open()
        return sandbox

    @classmethod
    async def connect(
        cls, sandbox_id: str, *, client: Optional[AsyncClient] = None, **connection: Any
    ) -> AsyncSandbox:
        """Returns the sandbox with this id or name. Leaving its `with` does not kill it."""
        check_known(f"{cls.__name__}.connect", connection, ["client", *CONNECTION])
        sandbox = cls.__new__(cls)
        sandbox._options = {}
        sandbox._id = sandbox._name = None
        sandbox._adopt_client(client, connection)
        sandbox._kill_at_exit = False
        try:
            answer = await sandbox._client._transport.json("GET", f"/sandboxes/{segment(sandbox_id, 'sandbox_id')}")
            sandbox._adopt(build(SandboxInfo, answer))
        except BaseException:
            await sandbox._close_client()
            raise
        return sandbox

    @classmethod
    async def list(
        cls,
        *,
        metadata: Optional[Mapping[str, str]] = None,
        client: Optional[AsyncClient] = None,
        **connection: Any,
    ) -> List[SandboxInfo]:
        """Lists the sandboxes, the oldest first; `metadata` selects those with these labels."""
        check_known(f"{cls.__name__}.list", connection, ["metadata", "client", *CONNECTION])
        return (await cls._page(_selected(metadata), client, connection)).sandboxes

    @classmethod
    async def list_page(
        cls,
        *,
        limit: int = 100,
        after: Optional[str] = None,
        metadata: Optional[Mapping[str, str]] = None,
        client: Optional[AsyncClient] = None,
        **connection: Any,
    ) -> SandboxPage:
        """Lists a page of the sandboxes, the oldest first: at most `limit`, of 1000. `after` is `next` of the page before."""
        check_known(f"{cls.__name__}.list_page", connection, ["limit", "after", "metadata", "client", *CONNECTION])
        params = {**_selected(metadata), "limit": limit, "after": after}
        return await cls._page(params, client, connection)

    @classmethod
    async def _page(cls, params: Dict[str, Any], client: Optional[AsyncClient], connection: Dict[str, Any]) -> SandboxPage:
        own = _client_of(client, connection)
        try:
            answer = await own._transport.json("GET", "/sandboxes", params=params)
        finally:
            if client is None:
                await own.aclose()
        return SandboxPage([build(SandboxInfo, each) for each in answer.get("sandboxes", [])], answer.get("next"))

    @property
    def sandbox_id(self) -> str:
        if self._id is None:
            raise RingfenceError("the sandbox is not created yet", "use `async with`, or `await AsyncSandbox.create()`")
        return self._id

    def __repr__(self) -> str:
        closed = ", closed" if self._client._transport.is_closed else ""
        server = f"server={str(self._client._transport.address)!r}{closed}"
        if self._id is None:
            return f"{type(self).__name__}({self._name!r}, not created, {server})"
        return f"{type(self).__name__}(id={self._id!r}, name={self._name!r}, {server})"

    async def __aenter__(self) -> AsyncSandbox:
        await self._open()
        self._depth += 1
        return self

    async def __aexit__(self, *raised: Any) -> None:
        self._depth -= 1
        # An outer `with` of the same sandbox goes on.
        if self._depth > 0:
            return
        try:
            await self._end()
        except RingfenceError as error:
            # What the block raised comes first.
            if not raised or raised[0] is None:
                raise
            log_not_ended(self, error)
        finally:
            await self.aclose()

    async def _end(self) -> None:
        # A fork that leaves the `with` leaves the sandbox to the process that created it.
        if not self._kill_at_exit or self._process != os.getpid():
            return
        try:
            await self.kill()
        except (ServerGone, ServerUnavailable):
            # Its sandboxes end with it.
            pass

    async def aclose(self) -> None:
        """Closes the connections. The sandbox stays, unless its `with` is left later."""
        await self._close_client()

    close = aclose  # async

    async def _close_client(self) -> None:
        if self._owns_client:
            if self._id is not None:
                self._client._transport.why_closed = self._why_closed()
            await self._client.aclose()

    def _why_closed(self) -> Tuple[str, str]:
        if self._is_over:
            return f"the sandbox {self._id} has ended", "create another one: leaving the `with` removes a sandbox"
        return f"the connections of the sandbox {self._id} are closed", "`AsyncSandbox.connect` opens others"

    async def kill(self) -> bool:
        """Ends the sandbox with everything in it, also after `close`. Returns `False` if it is gone."""
        path, closed = f"/sandboxes/{segment(self.sandbox_id)}", self._client._transport.is_closed
        transport = AsyncTransport(self._transport.address) if closed else self._transport
        try:
            await transport.json("DELETE", path)
            self._is_over = True
        except NotFound:
            self._is_over = True
            return False
        except ServerGone:
            if not self._transport.has_ended():
                raise
            self._is_over = True
            return False
        finally:
            if closed:
                await transport.aclose()
        return True

    async def get_info(self) -> SandboxInfo:
        path = f"/sandboxes/{segment(self.sandbox_id)}"
        return build(SandboxInfo, await self._transport.json("GET", path))

    async def is_running(self) -> bool:
        try:
            await self.get_info()
        except NotFound:
            return False
        except ServerGone:
            if not self._transport.has_ended():
                raise
            return False
        return True

    async def set_timeout(self, timeout: Seconds) -> SandboxInfo:
        """Sets the time until the sandbox ends, from now on."""
        path = f"/sandboxes/{segment(self.sandbox_id)}/timeout"
        return build(SandboxInfo, await self._transport.json("POST", path, json={"timeout": timeout}))

    async def set_network(self, allowed_hosts: Sequence[str]) -> SandboxInfo:
        """Replaces the hosts that programs may reach; without any, they reach none. Connections to other hosts are closed.

        Programs that run keep their variables: those that began without hosts find the proxy when they start anew. Raises
        `NotSupported` if the sandbox was created without `allowed_hosts` and `ports`.
        """
        path = f"/sandboxes/{segment(self.sandbox_id)}/network"
        json = {"allowed_hosts": texts(allowed_hosts, "allowed_hosts")}
        return build(SandboxInfo, await self._transport.json("PUT", path, json=json))

    async def pause(self) -> SandboxInfo:
        """Stops all processes: they use no processor, and keep their memory. Commands, code and files are refused meanwhile.

        The sandbox's time goes on. Raises `NotSupported` where the server has no control group with a freezer.
        """
        path = f"/sandboxes/{segment(self.sandbox_id)}/pause"
        return build(SandboxInfo, await self._transport.json("POST", path))

    async def resume(self) -> SandboxInfo:
        """Continues the processes of a paused sandbox."""
        path = f"/sandboxes/{segment(self.sandbox_id)}/resume"
        return build(SandboxInfo, await self._transport.json("POST", path))

    async def fork(self, count: int = 1, *, name: Optional[str] = None) -> List[AsyncSandbox]:
        """Copies the files into new sandboxes, 16 at most, with the same limits, lifetime, environment, metadata and network.

        They have no processes, contexts or variables of this one. A single one can have a `name`. Leaving their `with` kills
        them. Raises `Conflict` if the name is taken or the sandbox paused.
        """
        path = f"/sandboxes/{segment(self.sandbox_id)}/fork"
        answer = await self._transport.json("POST", path, json={"count": count, "name": name})
        return [self._copy(build(SandboxInfo, each)) for each in answer.get("sandboxes", [])]

    def _copy(self, info: SandboxInfo) -> AsyncSandbox:
        copy = AsyncSandbox.__new__(AsyncSandbox)
        copy._options = {}
        # It outlives this one, whose own connections end with it.
        copy._owns_client = self._owns_client
        copy._client = self._client._another() if self._owns_client else self._client
        copy._depth = 0
        copy._kill_at_exit = True
        copy._process = os.getpid()
        copy._adopt(info)
        return copy

    async def snapshot(self, name: Optional[str] = None) -> SnapshotInfo:
        """Keeps the files on the server's disk, until `client.snapshots.remove`: `Sandbox(snapshot=ID)` begins with them.

        Raises `Conflict` if the name is taken or the sandbox paused, `LimitExceeded` if there are too many snapshots, or they
        are too large.
        """
        path = f"/sandboxes/{segment(self.sandbox_id)}/snapshots"
        return build(SnapshotInfo, await self._transport.json("POST", path, json={"name": name}))

    @asynccontextmanager
    async def events(self) -> AsyncIterator[AsyncIterator[LifeEvent]]:
        """Follows the sandbox's life: `with sb.events() as events: ...`. What happens after the `with` is seen.

        The loop ends with the sandbox, whose last event is `expired`, `removed` or `ended`. Raises `ServerGone` if the server
        ends before.
        """
        path = f"/sandboxes/{segment(self.sandbox_id)}/events"
        async with life_events(self._transport, path, to_end=True) as events:
            yield events

    async def run_code(
        self,
        code: str,
        language: Optional[str] = None,
        *,
        context: Union[str, Context, None] = None,
        user: Optional[str] = None,
        timeout: Optional[Seconds] = None,
        on_stdout: Optional[OnText] = None,
        on_stderr: Optional[OnText] = None,
        on_result: Optional[Callable[[Result], Any]] = None,
    ) -> Execution:
        """Runs code in an interpreter, which keeps what it defines: the default one of a language, or `context`.

        `user` is one as `contexts.create` takes it: each has default interpreters of its own, and with `context` it must be that
        one's. An exception of the code is `error` of what this returns. Cancelling the call interrupts the code.
        """
        check_callbacks(on_stdout=on_stdout, on_stderr=on_stderr, on_result=on_result)
        body = {
            "code": code,
            "language": language_of(language),
            "context": context.id if isinstance(context, Context) else context,
            "user": user,
            "timeout": timeout,
        }
        path = f"/sandboxes/{segment(self.sandbox_id)}/run"
        if on_stdout is None and on_stderr is None:
            answer = await self._transport.json("POST", path, json=body, ends_with_call=True)
            printed = [[answer[name]] if answer.get(name) else [] for name in ("stdout", "stderr")]
            ended = execution(answer, printed[0], printed[1], bool(answer.get("truncated", False)))
            return await _shown(ended, on_result)
        texts = Texts()
        callbacks = {"stdout": on_stdout, "stderr": on_stderr}
        kept = {name: Kept(MAX_OUTPUT) for name in callbacks}

        async def push(stream: str, text: str) -> None:
            callback = callbacks[stream]
            if text and callback is not None:
                await called(callback, text)
            kept[stream].push(text)

        async with self._transport.events("POST", path, json=body) as events:
            async for event in events:
                if event.name in kept:
                    await push(event.name, texts.push(event.name, event.output()))
                elif event.name == "end":
                    for stream in kept:
                        await push(stream, texts.end(stream))
                    truncated = any(each.truncated for each in kept.values())
                    ended = execution(event.data, kept["stdout"].pieces, kept["stderr"].pieces, truncated)
                    return await _shown(ended, on_result)
        raise ServerGone("the stream of output ended before the code")


def _client_of(client: Optional[AsyncClient], connection: Mapping[str, Any]) -> AsyncClient:
    """Returns the client that the caller names, or a new one."""
    if client is None:
        return AsyncClient(**connection)
    if not isinstance(client, AsyncClient):
        raise unexpected("an `AsyncClient`", "client", client)
    if connection:
        raise InvalidArguments(f"`client` and `{next(iter(connection))}` exclude each other", "pass one of them")
    return client


async def _shown(ended: Execution, on_result: Optional[Callable[[Result], Any]]) -> Execution:
    if on_result is not None:
        for result in ended.results:
            await called(on_result, result)
    return ended


def _id(context: Union[str, Context]) -> str:
    return segment(context.id if isinstance(context, Context) else context, "context")
