"""The life of a sandbox: pauses, copies, snapshots, and the events of all this."""

from __future__ import annotations

import asyncio
import threading
from typing import List

import pytest

from conftest import KEY, Server
from ringfence import (
    AsyncClient,
    AsyncSandbox,
    Client,
    Conflict,
    InvalidArguments,
    LifeEvent,
    NotFound,
    Sandbox,
    ServerGone,
    errors,
)


def _pause(sandbox: Sandbox) -> None:
    try:
        assert sandbox.pause().state == "paused"
    except errors.NotSupported as error:
        assert error.status == 422 and "freezer" in error.message
        pytest.skip("this machine has no freezer")


def test_a_paused_sandbox_refuses_until_it_is_resumed(sandbox: Sandbox) -> None:
    sandbox.run_code("kept = 1")
    _pause(sandbox)
    for refused in (
        lambda: sandbox.commands.run("true"),
        lambda: sandbox.run_code("1"),
        lambda: sandbox.files.list(),
        lambda: sandbox.fork(),
        lambda: sandbox.snapshot(),
    ):
        with pytest.raises(Conflict, match=r"is paused \(hint: resume it first: `sandbox.resume\(\)`\)"):
            refused()
    assert sandbox.get_info().state == "paused"
    assert sandbox.resume().state == "running"
    assert sandbox.run_code("kept").text == "1"


def test_forks_have_the_files_and_lives_of_their_own(client: Client, server: Server) -> None:
    with Sandbox(client=client, metadata={"team": "red"}) as sandbox:
        sandbox.files.write("a", "1")
        sandbox.run_code("x = 1")
        (twin,) = sandbox.fork(name="twin")
        with twin:
            assert twin.get_info().name == "twin" and twin.get_info().metadata == {"team": "red"}
            assert twin.files.read("a") == "1" and twin.run_code("x").error is not None
            twin.files.write("a", "2")
            assert sandbox.files.read("a") == "1"
            with pytest.raises(Conflict):
                sandbox.fork(name="twin")
        assert not twin.is_running() and sandbox.is_running()
        with pytest.raises(InvalidArguments):
            sandbox.fork(17)
        copies = sandbox.fork(2)
        assert len({each.sandbox_id for each in copies}) == 2
        for copy in copies:
            assert copy.kill()
    # Its own connections end with it, those of a copy do not.
    with Sandbox(socket=server.socket) as first:
        (copy,) = first.fork()
    with copy:
        assert copy.commands.run("echo on").stdout == "on\n"


def test_hosts_are_changed(client: Client) -> None:
    ask = "curl --silent --output /dev/null --write-out '%{http_code} ' http://127.0.0.1:9/"
    with Sandbox(client=client, ports=True) as sandbox:
        assert sandbox.commands.run(ask).exit_code == 7
        # The proxy is told of from now on, and says why it does not go there.
        assert sandbox.set_network(["a.invalid"]).allowed_hosts == ["a.invalid"]
        assert sandbox.commands.run(ask).stdout == "403 "
        assert sandbox.set_network([]).allowed_hosts == sandbox.get_info().allowed_hosts == []
        with pytest.raises(InvalidArguments, match="`allowed_hosts`"):
            sandbox.set_network(["?"])
    with Sandbox(client=client) as sandbox:
        with pytest.raises(errors.NotSupported, match="created without a network"):
            sandbox.set_network(["a.invalid"])
        with pytest.raises(InvalidArguments, match="a list of texts for `allowed_hosts`"):
            sandbox.set_network("a.invalid")


def test_snapshots(client: Client) -> None:
    with Sandbox(client=client, memory="256MiB", disk="64MiB") as sandbox:
        sandbox.files.write("a", "kept")
        made = sandbox.snapshot("base")
        assert (made.name, made.sandbox, made.disk_limit) == ("base", sandbox.sandbox_id, 64 << 20)
        assert made.cpu_limit == sandbox.get_info().resources["cpu_limit"]
        with pytest.raises(Conflict):
            sandbox.snapshot("base")
        unnamed = sandbox.snapshot()
    try:
        assert client.snapshots.list() == [made, unnamed]
        assert client.snapshots.get("base") == client.snapshots.get(made.id) == made
        with Sandbox(client=client, snapshot=made.id) as again:
            assert again.files.read("a") == "kept"
    finally:
        for each in (made, unnamed):
            client.snapshots.remove(each.id)
    for gone in (client.snapshots.get, client.snapshots.remove):
        with pytest.raises(NotFound, match="base"):
            gone("base")
    assert client.snapshots.list() == []


def test_events_end_with_the_sandbox(client: Client) -> None:
    with Sandbox("lab", client=client) as sandbox, client.sandbox_events() as all_events:
        with sandbox.events() as events:
            expiry = sandbox.set_timeout("10m").expires_at
            (copy,) = sandbox.fork()
            copy.kill()
            kept = sandbox.snapshot()
            client.snapshots.remove(kept.id)
            sandbox.kill()
            seen = list(events)
        assert [each.type for each in seen] == ["expiry_changed", "forked", "snapshot_created", "removed"]
        assert {(each.sandbox, each.name) for each in seen} == {(sandbox.sandbox_id, "lab")}
        assert (seen[0].expires_at, seen[1].copies, seen[2].snapshot) == (expiry, [copy.sandbox_id], kept.id)
        assert seen[3].is_end and seen[3].reason == "it was removed" and not seen[0].is_end
        # Those of all have the copy's, too.
        both: List[LifeEvent] = []
        while len([each for each in both if each.is_end]) < 2:
            both.append(next(all_events))
        assert {each.sandbox for each in both} == {sandbox.sandbox_id, copy.sandbox_id}
        with pytest.raises(NotFound), sandbox.events():
            pass


def test_events_can_be_left(sandbox: Sandbox) -> None:
    for _ in range(40):
        with sandbox.events() as events:
            sandbox.set_timeout("10m")
            for event in events:
                assert event.type == "expiry_changed"
                break
    pool = sandbox._client._transport._pool
    assert pool is not None and len(pool.connections) <= 2, pool.connections


def test_a_server_that_ends_is_told_from_a_sandbox_that_does(own_server: Server) -> None:
    with Client(own_server.url, api_key=KEY) as client, Sandbox(client=client) as sandbox, sandbox.events() as events:
        killing = threading.Thread(target=own_server.process.kill)
        killing.start()
        with pytest.raises(ServerGone):
            next(events)
        killing.join()


def test_the_same_with_asyncio(server: Server) -> None:
    async def work() -> None:
        async with AsyncClient(socket=server.socket) as client, AsyncSandbox(client=client) as sandbox:
            await sandbox.files.write("a", "1")
            async with sandbox.events() as events:
                task = asyncio.ensure_future(events.__anext__())
                copies = await sandbox.fork(2)
                assert set((await task).copies) == {each.sandbox_id for each in copies}
                for copy in copies:
                    async with copy:
                        assert await copy.files.read("a") == "1"
                made = await sandbox.snapshot()
                assert await client.snapshots.list() == [made]
                await client.snapshots.remove(made.id)
                # A reader that is cancelled leaves the stream.
                async def read() -> None:
                    async for _ in events:
                        pass

                task_ = asyncio.ensure_future(read())
                await asyncio.sleep(0)
                task_.cancel()
                with pytest.raises(asyncio.CancelledError):
                    await task_
            async with sandbox.events() as events:
                await sandbox.kill()
                assert [each.type async for each in events] == ["removed"]

    asyncio.run(work())
