# Written by generate.py from _async: do not change it here.
"""Commands of a sandbox, and its terminals."""

from __future__ import annotations

import time
from dataclasses import replace
from datetime import timedelta
from typing import Any, Iterator, Callable, Dict, List, Mapping, Optional, Sequence, Union

from .._arguments import StrPath, check_callbacks, command_of, named, number, positive_seconds, size
from .._body import Data, pieces, sized
from .._deadline import DeadlinePassed, deadline
from .._events import Event, Kept, Texts
from .._retries import Retries
from ..errors import CommandFailed, NotFound, ServerGone, ServerUnavailable, StillRunning
from ..models import CommandResult, Output, ProcessInfo, Seconds, build
from .callbacks import called
from .transport import Transport, pause

OnText = Callable[[str], Any]
Command = Union[str, Sequence[StrPath]]
"""A line for the shell, or a program and its arguments."""

MAX_OUTPUT = 1 << 20
"""Characters kept of each stream, unless asked for others."""


class CommandHandle:
    """A process of a sandbox. It runs on without this handle."""

    def __init__(self, transport: Transport, base: str, pid: int) -> None:
        self._transport = transport
        self._base = f"{base}/{pid}"
        self.pid = pid

    def info(self) -> ProcessInfo:
        return build(ProcessInfo, self._transport.json("GET", self._base))

    def stream(self) -> Iterator[Output]:
        """Yields the output from its beginning, of which the server keeps the last MiB, until the end.

        A reader that is slow slows the process. A connection that breaks is made again, and no output is missed or repeated.
        """
        for event in self._events():
            if event.name in ("stdout", "stderr"):
                yield Output(event.name, event.output())

    def _events(self) -> Iterator[Event]:
        position, retries = 0, Retries("GET", has_key=False, whole=True)
        while True:
            try:
                path, after = self._base + "/output", {"from": position}
                with self._transport.events("GET", path, params=after) as events:
                    for event in events:
                        yield event
                        if event.name == "end":
                            return
                        if event.name in ("stdout", "stderr"):
                            position = event.data["position"] + len(event.output())
                            retries = Retries("GET", has_key=False, whole=True)
                        elif event.name == "lost":
                            position += event.data["bytes"]
                raise _unfinished()
            except (ServerGone, ServerUnavailable) as error:
                pause(retries, error)

    def wait(
        self,
        *,
        on_stdout: Optional[OnText] = None,
        on_stderr: Optional[OnText] = None,
        max_output: Union[int, str] = MAX_OUTPUT,
        check: bool = False,
        timeout: Union[int, float, timedelta, None] = None,
    ) -> CommandResult:
        """Waits for the end, and returns it with the output.

        `timeout` seconds end the waiting alone, by `StillRunning`: the process runs on, and can be waited for again.
        """
        max_output = size(max_output, "max_output")
        check_callbacks(on_stdout=on_stdout, on_stderr=on_stderr)
        collected = _Collected(on_stdout, on_stderr, max_output)
        if timeout is None:
            return self._ended(collected, check)
        seconds = positive_seconds(timeout)
        try:
            with deadline(seconds):
                return self._ended(collected, check)
        except DeadlinePassed:
            pass
        raise StillRunning(self.pid, seconds)

    def _ended(self, collected: _Collected, check: bool) -> CommandResult:
        for event in self._events():
            ended = collected.event(event)
            if ended is not None:
                return _checked(ended, check)
        raise _unfinished()

    def kill(self) -> bool:
        """Kills the process with its descendants, and waits for its end. Returns `False` if it had ended."""
        info = self.info()
        if info.end is not None:
            return False
        self._transport.json("DELETE", self._base)
        return True

    def send_signal(self, signal: Union[int, str]) -> None:
        """Sends a signal, by its number or a name such as `SIGINT`."""
        self._transport.json("POST", self._base + "/signal", json={"signal": signal})

    def send_stdin(self, data: Data, *, end: bool = False) -> None:
        """Sends input, as fast as the process reads. `end` closes the input after it; in a terminal, send `"\\x04"` for it.

        Tasks of asyncio take turns, so that input arrives in the order of their calls; threads do not. Raises `Conflict` if the input is
        closed or the process has ended.
        """
        content, _ = sized(data)
        request = {"params": {"end": end}, "content": pieces(content)}
        self._transport.json("POST", self._base + "/stdin", **request)

    def close_stdin(self) -> None:
        """Closes the input. A program in a terminal does not see that: send `"\\x04"` there."""
        self.send_stdin(b"", end=True)

    def resize(self, columns: int, rows: int) -> None:
        """Changes the size of its terminal, in characters. Raises `InvalidArguments` beyond 65535."""
        self._transport.json("POST", self._base + "/resize", json={"columns": columns, "rows": rows})


class Commands:
    """Runs commands in a sandbox."""

    def __init__(self, transport: Transport, base: str) -> None:
        self._transport = transport
        self._base = base

    def run(
        self,
        command: Command,
        *,
        cwd: Optional[StrPath] = None,
        env: Optional[Mapping[str, str]] = None,
        timeout: Optional[Seconds] = None,
        user: Optional[str] = None,
        max_output: Union[int, str] = MAX_OUTPUT,
        check: bool = False,
        on_stdout: Optional[OnText] = None,
        on_stderr: Optional[OnText] = None,
    ) -> CommandResult:
        """Runs a command to its end. Cancelling the call kills it.

        `user` is a name of the sandbox's /etc/passwd or a number, for sandboxes with the fence `box`. A status other than 0 is a result; with `check`, it raises `CommandFailed`.
        """
        max_output = size(max_output, "max_output")
        check_callbacks(on_stdout=on_stdout, on_stderr=on_stderr)
        body = _process(command, cwd, env, timeout, user)
        if on_stdout is None and on_stderr is None and max_output <= MAX_OUTPUT:
            body["max_output"] = max_output
            answer = self._transport.json("POST", self._base + "/exec", json=body, ends_with_call=True)
            return _checked(build(CommandResult, answer), check)
        collected, begun = _Collected(on_stdout, on_stderr, max_output), time.monotonic()
        with self._transport.events("POST", self._base + "/exec", json=body) as events:
            for event in events:
                ended = collected.event(event)
                if ended is not None:
                    # The event has no time: this one has the way and the callbacks in it.
                    return _checked(replace(ended, duration=time.monotonic() - begun), check)
        raise _unfinished()

    def start(
        self,
        command: Command,
        *,
        cwd: Optional[StrPath] = None,
        env: Optional[Mapping[str, str]] = None,
        timeout: Optional[Seconds] = None,
        user: Optional[str] = None,
        stdin: bool = False,
    ) -> CommandHandle:
        """Starts a command, which runs on until it ends, is killed, or its sandbox ends."""
        body = _process(command, cwd, env, timeout, user)
        body["stdin"] = stdin
        return self._start(body)

    def _start(self, body: Dict[str, Any]) -> CommandHandle:
        info = build(ProcessInfo, self._transport.json("POST", self._base + "/processes", json=body))
        return self._handle(info.pid)

    def _handle(self, pid: int) -> CommandHandle:
        return CommandHandle(self._transport, self._base + "/processes", number(pid, "pid"))

    def connect(self, pid: int) -> CommandHandle:
        """Returns the handle of a process."""
        handle = self._handle(pid)
        handle.info()
        return handle

    def list(self) -> List[ProcessInfo]:
        """Lists the processes that run, and the last ones that have ended."""
        answer = self._transport.json("GET", self._base + "/processes")
        return [build(ProcessInfo, each) for each in answer.get("processes", [])]

    def kill(self, pid: int) -> bool:
        """Kills a process. Returns `False` if there is none."""
        try:
            return self._handle(pid).kill()
        except NotFound:
            return False


class Pty:
    """Terminals of a sandbox."""

    def __init__(self, commands: Commands) -> None:
        self._commands = commands

    def create(
        self,
        command: Command = ("bash", "-i"),
        *,
        columns: int = 80,
        rows: int = 24,
        cwd: Optional[StrPath] = None,
        env: Optional[Mapping[str, str]] = None,
        timeout: Optional[Seconds] = None,
        user: Optional[str] = None,
    ) -> CommandHandle:
        """Starts a command in a terminal of this size, in characters. All its output is `stdout`; keys go to `send_stdin`.

        It runs on without the handle: `commands.connect(pid)` returns another one. Raises `InvalidArguments` if the size is beyond 65535,
        and, as `commands.start` does, `NotFound` if there is no such program or user.
        """
        body = _process(command, cwd, env, timeout, user)
        body.update(stdin=True, terminal={"columns": columns, "rows": rows})
        return self._commands._start(body)


class _Collected:
    """The output of a process so far."""

    def __init__(self, on_stdout: Optional[OnText], on_stderr: Optional[OnText], limit: int) -> None:
        self._texts = Texts()
        self._callbacks = {"stdout": on_stdout, "stderr": on_stderr}
        self._kept = {"stdout": Kept(limit), "stderr": Kept(limit)}
        self._lost = False

    def event(self, event: Event) -> Optional[CommandResult]:
        """Takes an event. Returns the result at the end."""
        if event.name in self._kept:
            self.push(event.name, event.output())
        elif event.name == "lost":
            self._lost = True
        elif event.name == "end":
            return self.result(build(CommandResult, event.data))
        return None

    def push(self, stream: str, data: bytes) -> None:
        self._text(stream, self._texts.push(stream, data))

    def _text(self, stream: str, text: str) -> None:
        callback = self._callbacks[stream]
        if text and callback is not None:
            called(callback, text)
        self._kept[stream].push(text)

    def result(self, end: CommandResult) -> CommandResult:
        for stream in self._kept:
            self._text(stream, self._texts.end(stream))
        stdout, stderr = self._kept["stdout"], self._kept["stderr"]
        members = {
            **end.__dict__,
            "stdout": stdout.text(),
            "stderr": stderr.text(),
            "truncated": self._lost or stdout.truncated or stderr.truncated,
        }
        return CommandResult(**members)


def _process(
    command: Command,
    cwd: Optional[StrPath],
    env: Optional[Mapping[str, str]],
    timeout: Optional[Seconds],
    user: Optional[str],
) -> Dict[str, Any]:
    return {
        "command": command_of(command),
        "cwd": cwd,
        "env": named(env, "env"),
        "timeout": timeout,
        "user": user,
    }


def _unfinished() -> ServerGone:
    return ServerGone("the stream of output ended before the process")


def _checked(result: CommandResult, check: bool) -> CommandResult:
    if check and not result.ok:
        raise CommandFailed(result)
    return result
