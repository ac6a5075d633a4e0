"""Terminals, and input that is sent while other input is on its way."""

from __future__ import annotations

import asyncio
from typing import AsyncIterator, Iterator, Union

import pytest

from conftest import Server
from ringfence import AsyncCommandHandle, AsyncSandbox, Client, CommandHandle, Conflict, InvalidArguments, NotFound, Output, Sandbox


def _until(output: Iterator[Output], text: str) -> str:
    seen = ""
    while text not in seen:
        seen += next(output).text
    return seen


def test_a_terminal_is_left_and_found_again(sandbox: Sandbox) -> None:
    pty = sandbox.pty.create("stty size; read -r x; echo got $x; read -r y; exit 5", columns=65535, rows=1)
    output = pty.stream()
    _until(output, "1 65535")
    output.close()
    again = sandbox.commands.connect(pty.pid)
    assert again.info().terminal and again.info().end is None
    again.send_stdin("one\r")
    _until(again.stream(), "got one")
    # The character for the end of a file.
    pty.send_stdin("\x04")
    result = again.wait()
    assert (result.exit_code, result.stderr) == (5, "") and "1 65535\r\n" in result.stdout


def test_a_key_interrupts(sandbox: Sandbox) -> None:
    pty = sandbox.pty.create("trap 'echo stopped; exit 4' INT; echo ready; while :; do sleep 0.01; done")
    output = pty.stream()
    _until(output, "ready")
    pty.send_stdin("\x03")
    assert "stopped" in _until(output, "stopped") and pty.wait().exit_code == 4


def test_terminals_that_are_misused(client: Client) -> None:
    wrong = [(-1, 24), (65536, 24), (80, 1 << 40), (80.5, 24), ("wide", 24), (None, 24)]
    with Sandbox(client=client) as sandbox:
        pty = sandbox.pty.create(["cat"])
        for columns, rows in wrong:
            with pytest.raises(InvalidArguments, match="columns|rows"):
                pty.resize(columns, rows)  # type: ignore[arg-type]
        for columns, rows in wrong:
            with pytest.raises(InvalidArguments, match="columns|rows"):
                sandbox.pty.create(columns=columns, rows=rows)  # type: ignore[arg-type]
        with pytest.raises(NotFound):
            sandbox.pty.create(["no-such-program"])
        with pytest.raises(InvalidArguments):
            pty.send_stdin(None)  # type: ignore[arg-type]
        pty.kill()
        assert pty.wait().outcome == "cancelled"
        with pytest.raises(Conflict):
            pty.send_stdin("late")
    for call in (sandbox.pty.create, lambda: pty.resize(80, 24), lambda: pty.send_stdin("x"), lambda: next(pty.stream()), pty.wait):
        with pytest.raises(NotFound, match="was removed at"):
            call()


async def _first(handle: Union[AsyncCommandHandle, CommandHandle]) -> bytes:
    assert isinstance(handle, AsyncCommandHandle)
    async for output in handle.stream():
        return output.data
    raise AssertionError("no output")


def test_input_arrives_in_the_order_of_the_calls(server: Server) -> None:
    async def work() -> None:
        gate = asyncio.Event()

        async def held() -> AsyncIterator[str]:
            yield "1"
            await gate.wait()
            yield "2"

        async with AsyncSandbox(socket=server.socket) as sandbox:
            cat = await sandbox.commands.start("cat", stdin=True)
            calls = [asyncio.create_task(cat.send_stdin(held()))]
            assert await _first(cat) == b"1"
            calls += [asyncio.create_task(cat.send_stdin(str(n), end=n == 9)) for n in range(3, 10)]
            # Calls that did not wait would be over by now.
            for _ in range(3):
                await cat.info()
            gate.set()
            await asyncio.gather(*calls)
            assert (await cat.wait()).stdout == "123456789"

    asyncio.run(work())


def test_cancelling_input_leaves_the_process(server: Server) -> None:
    async def work() -> None:
        begun = asyncio.Event()

        async def endless() -> AsyncIterator[bytes]:
            while True:
                yield bytes(1 << 16)
                begun.set()

        async with AsyncSandbox(socket=server.socket) as sandbox:
            deaf = await sandbox.commands.start("read -r line; echo $line", stdin=True)
            calls = [asyncio.create_task(deaf.send_stdin(data)) for data in ("kept\n", endless(), "waits")]
            await begun.wait()
            for call in reversed(calls[1:]):
                call.cancel()
                with pytest.raises(asyncio.CancelledError):
                    await call
            await calls[0]
            assert (await deaf.wait()).stdout == "kept\n"

    asyncio.run(work())
