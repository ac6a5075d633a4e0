"""The same surface for asyncio, and what only it can do: cancel."""

from __future__ import annotations

import asyncio
from typing import Any, AsyncIterator, Awaitable, Callable, List

import pytest

from conftest import Server
from ringfence import AsyncClient, AsyncSandbox, InvalidArguments, NotFound, RingfenceError, StillRunning


def run(server: Server, work: Callable[[AsyncSandbox], Awaitable[None]]) -> None:
    async def inside() -> None:
        async with AsyncSandbox(socket=server.socket) as sandbox:
            await work(sandbox)

    asyncio.run(inside())


def test_the_surface(server: Server) -> None:
    async def pieces() -> AsyncIterator[bytes]:
        yield b"a"
        yield b"b"

    async def cut() -> AsyncIterator[Any]:
        yield b"x"
        yield None

    async def work(sandbox: AsyncSandbox) -> None:
        await sandbox.files.write("a", pieces())
        assert await sandbox.files.read("a") == "ab"
        for data in (None, {"a": 1}, iter([b"x", None]), cut()):
            with pytest.raises(InvalidArguments, match="got (NoneType|dict)$"):
                await sandbox.files.write("a", data)  # type: ignore[arg-type]
        async with sandbox.files.stream("a") as stream:
            assert b"".join([piece async for piece in stream]) == b"ab"
        printed: List[str] = []
        ex = await sandbox.run_code("print(1); 2", on_stdout=printed.append)
        assert (printed, ex.text) == (["1\n"], "2")
        handle = await sandbox.commands.start("cat", stdin=True)
        await handle.send_stdin("x", end=True)
        assert (await handle.wait()).stdout == "x"
        async with sandbox.files.watch() as changes:
            await sandbox.files.write("b", b"")
            async for change in changes:
                if change.path == "b":
                    break
        with pytest.raises(NotFound):
            await sandbox.files.read("nothing")
        async with AsyncClient(socket=server.socket) as client:
            items = [item async for item in client.batch(["print(1)"] * 5)]
            assert sorted(item.index for item in items) == [0, 1, 2, 3, 4]
            assert (await client.run("print(2)")).stdout == "2\n"

    run(server, work)


def test_callbacks_are_awaited(server: Server) -> None:
    seen: List[str] = []

    async def slow(text: Any) -> None:
        await asyncio.sleep(0)
        seen.append(str(text))

    async def work(sandbox: AsyncSandbox) -> None:
        await sandbox.run_code("import sys\nprint('code')\nprint('error', file=sys.stderr)\n7", on_stdout=slow, on_stderr=slow)
        await sandbox.run_code("8", on_result=slow)
        await sandbox.commands.run("echo command", on_stdout=slow)
        handle = await sandbox.commands.start("echo handle >&2")
        await handle.wait(on_stderr=slow)
        async with AsyncClient(socket=server.socket) as client:
            await client.run("print('program')", on_stdout=slow)
        assert sorted(seen[:2]) == ["code\n", "error\n"]
        assert seen[2:] == ["8", "command\n", "handle\n", "program\n"]

        async def broken(text: str) -> None:
            raise KeyError(text)

        with pytest.raises(KeyError):
            await sandbox.commands.run("echo x", on_stdout=broken)

    run(server, work)


def test_many_at_once(server: Server) -> None:
    async def work(sandbox: AsyncSandbox) -> None:
        results = await asyncio.gather(*(sandbox.commands.run(["echo", str(n)]) for n in range(20)))
        assert [result.stdout for result in results] == [f"{n}\n" for n in range(20)]

    run(server, work)


def test_it_must_be_created_first(server: Server) -> None:
    with pytest.raises(RingfenceError, match="not created yet"):
        AsyncSandbox(socket=server.socket).sandbox_id


async def _cancelled(task: "asyncio.Task[Any]") -> None:
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


def test_cancelling_a_command_kills_it(server: Server) -> None:
    async def work(sandbox: AsyncSandbox) -> None:
        begun = asyncio.Event()
        command = "echo ready; echo $$ > pid; exec sleep 600"
        task = asyncio.create_task(sandbox.commands.run(command, on_stdout=lambda _: begun.set()))
        await begun.wait()
        running = [each for each in await sandbox.commands.list() if each.end is None]
        assert len(running) == 1
        handle = await sandbox.commands.connect(running[0].pid)
        with pytest.raises(StillRunning):
            await handle.wait(timeout=0.2)
        await _cancelled(task)
        assert (await handle.wait()).outcome == "cancelled"

    run(server, work)


def test_cancelling_code_interrupts_it(server: Server) -> None:
    async def work(sandbox: AsyncSandbox) -> None:
        await sandbox.run_code("kept = 1")
        begun = asyncio.Event()
        code = "print('ready', flush=True)\nwhile True: pass"
        task = asyncio.create_task(sandbox.run_code(code, on_stdout=lambda _: begun.set()))
        await begun.wait()
        await _cancelled(task)
        # It waits for what runs before it.
        assert (await sandbox.run_code("kept")).text == "1"

    run(server, work)


def test_cancelling_without_events(server: Server) -> None:
    async def work(sandbox: AsyncSandbox) -> None:
        async with sandbox.files.watch() as changes:
            task = asyncio.create_task(sandbox.commands.run("touch begun; exec sleep 600"))
            async for change in changes:
                if change.path == "begun":
                    break
        running = [each for each in await sandbox.commands.list() if each.end is None]
        handle = await sandbox.commands.connect(running[0].pid)
        await _cancelled(task)
        assert (await handle.wait()).outcome == "cancelled"

    run(server, work)
