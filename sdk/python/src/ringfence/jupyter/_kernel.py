"""The kernel: a front end's requests become code of a sandbox's interpreter, and its results become messages."""

from __future__ import annotations

import argparse
import asyncio
import re
import signal
from typing import Any, Awaitable, Dict, List, Optional, Set

from ipykernel._version import kernel_protocol_version
from ipykernel.kernelbase import Kernel

from .. import AsyncSandbox, Context, Execution, NotFound, Result, RingfenceError, ServerGone
from .._version import VERSION
from . import _guest
from ._outputs import MAX_STREAMED, Outputs, Stream, display_of

CELL = "24h"
"""Time that a cell has: the longest time limit of the API. A person interrupts it before."""

QUESTION = 3
"""Seconds that an answer for the front end has, such as completions."""

CLOSE = 4
"""Seconds that killing the sandbox has at the end. Jupyter kills the kernel after 5."""

MAX_MATCHES, MAX_MATCH, MAX_INDENT, MAX_TEXT = 1000, 1000, 256, 100_000
"""Bounds of a guest's answers: completions, their characters, those of an indent, and those of a text."""

_CELL = re.compile(r"<cell (\d{1,9})>")

LANGUAGES: Dict[str, Dict[str, Any]] = {
    "python": {"mimetype": "text/x-python", "file_extension": ".py", "codemirror_mode": {"name": "ipython", "version": 3}},
    "bash": {"mimetype": "text/x-sh", "file_extension": ".sh", "codemirror_mode": "shell"},
    "javascript": {"mimetype": "text/javascript", "file_extension": ".js", "codemirror_mode": "javascript"},
}


_LIMITS = {
    "timed_out": "the cell went past its time limit ({}); install the kernel with a larger `--cell-timeout`",
    "memory_exceeded": "the sandbox reached its memory limit; install the kernel with a larger `--memory`",
}
"""Explanations of a stopped cell, by its outcome, with the option that raises the limit."""


class RingfenceKernel(Kernel):
    """A kernel whose cells run in a context of a sandbox of its own.

    The sandbox is created with the first request that needs it, and killed at the end. If the kernel is killed, nobody
    extends its sandbox's time any more.
    """

    implementation = "ringfence"
    implementation_version = VERSION
    options: argparse.Namespace

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self._language: str = self.options.language
        self._outputs = Outputs(self.options.outputs == "all")
        self._starting = asyncio.Lock()
        self._sandbox: Optional[AsyncSandbox] = None
        self._context: Optional[Context] = None
        self._version = ""
        # Numbers of the notebook's cells by those of the context, which counts questions as well.
        self._numbers: Dict[int, int] = {}
        self._running = False
        self._tasks: Set["asyncio.Future[None]"] = set()
        self._extending: Optional["asyncio.Future[None]"] = None

    # What front ends ask about the kernel itself.

    @property
    def banner(self) -> str:  # type: ignore[override]
        place = f"in the sandbox {self._sandbox.sandbox_id}" if self._sandbox else "in a sandbox"
        return f"Ringfence {VERSION}: cells run {place}"

    @property
    def language_info(self) -> Dict[str, Any]:  # type: ignore[override]
        return {"name": self._language, "version": self._version, **LANGUAGES[self._language]}

    @property
    def kernel_info(self) -> Dict[str, Any]:
        # The base class would promise a debugger, that of this process.
        return {
            "protocol_version": kernel_protocol_version,
            "implementation": self.implementation,
            "implementation_version": self.implementation_version,
            "language_info": self.language_info,
            "banner": self.banner,
            "help_links": [],
            "supported_features": [],
        }

    async def kernel_info_request(self, stream: Any, ident: Any, parent: Any) -> None:
        """Describes the kernel; the language's version is that of the sandbox."""
        try:
            await self._in_main_loop(self._start())
        except RingfenceError as error:
            # The first cell says so, too.
            self.log.error("%s", error)
        await super().kernel_info_request(stream, ident, parent)

    # Life.

    def start(self) -> None:
        super().start()
        loop = self._main_loop = self.io_loop.asyncio_loop  # type: ignore[attr-defined]
        loop.add_signal_handler(signal.SIGINT, lambda: self._spawn(self._interrupt()))
        loop.add_signal_handler(signal.SIGTERM, lambda: self._spawn(self._terminate()))

    def pre_handler_hook(self) -> None:
        """Leaves SIGINT to the handler above: an exception in here would stop the kernel, and not the cell."""

    post_handler_hook = pre_handler_hook

    def _spawn(self, work: Awaitable[None]) -> "asyncio.Future[None]":
        task = asyncio.ensure_future(work, loop=self._main_loop)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    async def _in_main_loop(self, work: Any) -> Any:
        """Runs a coroutine where the sandbox's connections belong. Requests of the control channel come in another thread."""
        if asyncio.get_running_loop() is self._main_loop:
            return await work
        return await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(work, self._main_loop))

    async def _start(self) -> "tuple[AsyncSandbox, Context]":
        async with self._starting:
            if self._sandbox is None:
                self._sandbox = await AsyncSandbox.create(**_arguments(self.options))
                self._extending = self._spawn(self._extend(self._sandbox))
            if self._context is None:
                self._context = await self._sandbox.contexts.create(self._language)
                self._numbers.clear()
                if self._language == "python":
                    begun = await self._sandbox.run_code(_guest.prelude(), context=self._context, timeout=60)
                    self._version = self._outputs.text("".join(begun.logs.stdout).strip())[:40]
            return self._sandbox, self._context

    async def _extend(self, sandbox: AsyncSandbox) -> None:
        """Extends the sandbox's time as long as the kernel lives."""
        while True:
            await asyncio.sleep(self.options.linger / 3)
            try:
                await sandbox.set_timeout(self.options.linger)
            except NotFound:
                return
            except RingfenceError as error:
                self.log.warning("cannot extend the sandbox's time: %s", error)

    async def _close(self) -> None:
        sandbox, self._sandbox, self._context = self._sandbox, None, None
        if self._extending is not None:
            self._extending.cancel()
        if sandbox is not None:
            try:
                await sandbox.kill()
            finally:
                await sandbox.aclose()

    async def do_shutdown(self, restart: bool) -> Dict[str, Any]:
        try:
            await asyncio.wait_for(self._in_main_loop(self._close()), CLOSE)
        except (RingfenceError, asyncio.TimeoutError) as error:
            self.log.warning("the sandbox could not be killed, and will expire: %s", error)
        return {"status": "ok", "restart": restart}

    async def _terminate(self) -> None:
        await self.do_shutdown(False)
        self.io_loop.stop()

    async def interrupt_request(self, stream: Any, ident: Any, parent: Any) -> None:
        content: Dict[str, Any] = {"status": "ok"}
        try:
            await self._in_main_loop(self._interrupt())
        except RingfenceError as error:
            content = _error(type(error).__name__, str(error))
        if self.session:
            self.session.send(stream, "interrupt_reply", content, parent, ident=ident)

    async def _interrupt(self) -> None:
        if self._running and self._sandbox is not None and self._context is not None:
            await self._sandbox.contexts.interrupt(self._context)

    # Cells.

    async def do_execute(
        self,
        code: str,
        silent: bool,
        store_history: bool = True,
        user_expressions: Optional[Dict[str, str]] = None,
        allow_stdin: bool = False,
        *,
        cell_meta: Any = None,
        cell_id: Any = None,
    ) -> Dict[str, Any]:
        count = self.execution_count
        if not silent and not store_history:
            # The base class has counted it.
            self.execution_count -= 1
        try:
            ended = await self._execute(code, silent)
            self._numbers[ended.execution_count] = count
            failed = self._failure(ended)
        except Exception as error:
            # Without a reply the front end would wait for ever, whatever the failure.
            failed = self._unavailable(error)
        if failed is not None:
            if not silent:
                self.send_response(self.iopub_socket, "error", {n: failed[n] for n in ("ename", "evalue", "traceback")})
            return {**failed, "execution_count": count, "payload": [], "user_expressions": {}}
        evaluated = await self._evaluate(user_expressions or {})
        return {"status": "ok", "execution_count": count, "payload": [], "user_expressions": evaluated}

    async def _execute(self, code: str, silent: bool) -> Execution:
        sandbox, context = await self._start()
        streams = {name: _Streamed(self, name, silent) for name in ("stdout", "stderr")}
        self._running = True
        try:
            ended = await sandbox.run_code(
                code,
                context=context,
                timeout=self.options.cell_timeout,
                on_stdout=streams["stdout"].push,
                on_stderr=streams["stderr"].push,
            )
        finally:
            self._running = False
            for stream in streams.values():
                stream.end()
        if ended.context_ended:
            self._context = None
        if not silent:
            self._show(ended)
        return ended

    def _show(self, ended: Execution) -> None:
        notes = list(ended.warnings)
        for result in ended.results:
            notes += [
                f"left out: {media} (`install --outputs all` passes it on)" for media in self._outputs.left_out(result.raw)
            ]
            data = self._outputs.bundle(result.raw)
            if not data:
                continue
            content: Dict[str, Any] = {"data": data, "metadata": {}}
            if result.is_main_result:
                kind, content["execution_count"] = "execute_result", self.execution_count
            else:
                content["transient"], is_update = display_of(result.raw)
                kind = "update_display_data" if is_update else "display_data"
            self.send_response(self.iopub_socket, kind, content)
        for note in notes:
            self._print("stderr", f"[ringfence] {self._outputs.text(note)}\n")

    def _print(self, name: str, text: str) -> None:
        self.send_response(self.iopub_socket, "stream", {"name": name, "text": text})

    def _failure(self, ended: Execution) -> Optional[Dict[str, Any]]:
        """Returns how code failed, if it did. The guest's own report counts only if the server says that it failed."""
        if ended.error is None:
            return None
        clean = self._outputs.text
        reports = [result.raw[_guest.ERROR] for result in ended.results if _guest.ERROR in result.raw]
        if ended.outcome == "exited" and reports and isinstance(reports[-1], dict):
            name, value, trace = (str(reports[-1].get(each, "")) for each in ("name", "value", "traceback"))
            value, trace = (_CELL.sub(self._numbered, clean(text)) for text in (value, trace))
            return _error(clean(name), value, trace.rstrip("\n").split("\n"))
        value = _LIMITS.get(ended.outcome, ended.error.value)
        if ended.outcome == "timed_out":
            value = value.format(self.options.cell_timeout)
        if ended.context_ended:
            value = f"{value}; " if value else ""
            value += "the interpreter is lost, and with it all variables; the next cell starts a new one"
        return _error(clean(ended.error.name), clean(value))

    def _numbered(self, name: "re.Match[str]") -> str:
        number = self._numbers.get(int(name.group(1)))
        return name.group() if number is None else f"<cell {number}>"

    def _unavailable(self, error: Exception) -> Dict[str, Any]:
        value = str(error)
        if isinstance(error, (NotFound, ServerGone)):
            # Its time was up while the machine slept, or somebody removed it.
            value += "; restart the kernel to get a new sandbox"
        return _error(type(error).__name__, value)

    # Questions, which the guest answers about itself.

    async def _ask(self, function: str, *arguments: Any) -> Dict[str, Any]:
        """Returns a guest's answer, which may be anything that JSON has in an object; empty if there is none."""
        if self._language != "python":
            return {}
        try:
            sandbox, context = await self._start()
            self._running = True
            ended = await sandbox.run_code(_guest.question(function, *arguments), context=context, timeout=QUESTION)
        except RingfenceError as error:
            self.log.warning("no answer from the sandbox: %s", error)
            return {}
        finally:
            self._running = False
        if ended.context_ended:
            self._context = None
        answers = [result.raw[_guest.ANSWER] for result in ended.results if _guest.ANSWER in result.raw]
        return answers[-1] if answers and isinstance(answers[-1], dict) else {}

    async def _evaluate(self, expressions: Dict[str, str]) -> Dict[str, Any]:
        if not expressions:
            return {}
        answer = await self._ask("evaluate", expressions)
        evaluated = {}
        for name in expressions:
            found = answer.get(name)
            found = found if isinstance(found, dict) else {"name": "NotAvailable", "value": "there is no answer"}
            if isinstance(found.get("text"), str):
                data = {"text/plain": self._outputs.text(found["text"][:MAX_TEXT])}
                evaluated[name] = {"status": "ok", "data": data, "metadata": {}}
            else:
                error, value = (self._outputs.text(str(found.get(each, ""))[:MAX_TEXT]) for each in ("name", "value"))
                evaluated[name] = _error(error, value)
        return evaluated

    async def do_complete(self, code: str, cursor_pos: int) -> Dict[str, Any]:
        answer = await self._ask("complete", code, cursor_pos)
        matches, start = answer.get("matches"), answer.get("start")
        if not isinstance(matches, list) or type(start) is not int or not 0 <= start <= cursor_pos:
            matches, start = [], cursor_pos
        matches = [self._outputs.text(each[:MAX_MATCH]) for each in matches[:MAX_MATCHES] if isinstance(each, str)]
        return {"status": "ok", "matches": matches, "cursor_start": start, "cursor_end": cursor_pos, "metadata": {}}

    async def do_inspect(
        self, code: str, cursor_pos: int, detail_level: int = 0, omit_sections: Any = ()
    ) -> Dict[str, Any]:
        answer = await self._ask("describe", code, cursor_pos, detail_level)
        text = answer.get("text")
        data = {"text/plain": self._outputs.text(text[:MAX_TEXT])} if isinstance(text, str) else {}
        return {"status": "ok", "found": bool(data), "data": data, "metadata": {}}

    async def do_is_complete(self, code: str) -> Dict[str, Any]:
        answer = await self._ask("is_complete", code)
        status, indent = answer.get("status"), answer.get("indent")
        if status == "incomplete":
            blank = indent if isinstance(indent, str) and not indent.strip(" \t") else ""
            return {"status": status, "indent": blank[:MAX_INDENT]}
        return {"status": status if status in ("complete", "invalid") else "unknown"}


class _Streamed:
    """A stream of one cell, within its bound."""

    def __init__(self, kernel: RingfenceKernel, name: str, silent: bool) -> None:
        self._kernel = kernel
        self._name = name
        self._stream = Stream(kernel._outputs)
        self._left = 0 if silent else MAX_STREAMED
        self._silent = silent

    def push(self, piece: str) -> None:
        self._send(self._stream.push(piece))

    def end(self) -> None:
        self._send(self._stream.end())

    def _send(self, text: str) -> None:
        if self._silent or not text or self._left < 0:
            return
        if text[: self._left]:
            self._kernel._print(self._name, text[: self._left])
        self._left -= len(text)
        if self._left < 0:
            self._kernel._print("stderr", f"\n[ringfence] {self._name} has more than {MAX_STREAMED} characters: the rest is left out\n")


def _error(name: str, value: str, trace: Optional[List[str]] = None) -> Dict[str, Any]:
    text = f"{name}: {value}" if value else name
    return {"status": "error", "ename": name, "evalue": value, "traceback": [text] if trace is None else trace}


def _arguments(options: argparse.Namespace) -> Dict[str, Any]:
    return {**options.sandbox, "timeout": options.linger, "metadata": {"kernel": "jupyter"}}
