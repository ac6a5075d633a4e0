"""Keys, their usage, and the audit log."""

from __future__ import annotations

import asyncio
import threading
from typing import Any, Iterator, List

import pytest

from conftest import DEADLINE, KEY, Server
from ringfence import (
    AsyncClient,
    Client,
    Conflict,
    InvalidArguments,
    KeyInfo,
    LimitExceeded,
    NotFound,
    PermissionDenied,
    Quota,
    Sandbox,
    errors,
)


@pytest.fixture
def keys(client: Client) -> Iterator[List[str]]:
    """Keys that a test makes. They are removed, with what they own."""
    yield []
    for key in client.keys.list():
        client.keys.revoke(key.id)
        client.keys.remove(key.id)


@pytest.mark.usefixtures("keys")
def test_keys_are_listed_revoked_and_removed(server: Server, client: Client) -> None:
    assert client.keys.list() == []
    quota = ["--quota-cpu", "1h", "--quota-runs", "5", "--quota-egress", "1MiB"]
    old = server.key("old", "--tenant", "team-a", "--days", "2", *quota)
    new = server.key("new", "--tenant", "team-a", "--rights", "admin")
    listed = client.keys.list()
    first, second = (next(each for each in listed if each.id == key[:11]) for key in (old, new))
    assert first == KeyInfo(
        old[:11], "old", ["run", "sandboxes"], first.created, False, Quota(3600, 5, 1 << 20), first.created + 2 * 86400, "team-a"
    )
    assert (second.rights, second.expires, second.quota, second.tenant) == (["admin"], None, Quota(), "team-a")
    assert old[11:] not in repr(first)
    with Client(server.url, api_key=new) as admin, Client(server.url, api_key=old) as holder:
        assert admin.keys.list() == listed and len(listed) == 2
        assert holder.run("print(1)").ok
        with pytest.raises(Conflict, match="neither revoked nor expired"):
            admin.keys.remove(first.id)
        admin.keys.revoke(first.id)
        admin.keys.revoke(first.id)
        with pytest.raises(errors.Unauthenticated):
            holder.run("print(1)")
        assert [each.id for each in admin.keys.list() if each.revoked] == [first.id]
        admin.keys.remove(first.id)
        for unknown in (first.id, "rf_00000000", "../../x", old):
            for call in (admin.keys.revoke, admin.keys.remove):
                with pytest.raises(NotFound, match="no key") as refused:
                    call(unknown)
                assert old[11:] not in str(refused.value)
        recorded = str(admin.audit.list(tool="key.revoke", outcome="failed", limit=4))
        assert old[:11] in recorded and old[11:] not in recorded
        admin.keys.revoke(second.id)
        with pytest.raises(errors.Unauthenticated):
            admin.keys.list()
    client.keys.remove(second.id)
    assert client.keys.list() == []


def test_a_revoked_key_ends_what_is_open(server: Server, client: Client, keys: List[str]) -> None:
    keys.append(server.key("ends"))
    with Sandbox(url=server.url, api_key=keys[0]) as sandbox:
        handle = sandbox.commands.start("echo ready; exec sleep 600")
        revoke = threading.Thread(target=client.keys.revoke, args=[keys[0][:11]])
        with pytest.raises(errors.Unauthenticated):
            handle.wait(on_stdout=lambda _: revoke.start())
        revoke.join()
        # Nothing of it is open to the key any more, and the sandbox goes with it.
        sandbox._kill_at_exit = False


def test_a_key_without_the_right_administers_nothing(server: Server, keys: List[str]) -> None:
    keys.append(server.key("small", "--rights", "run,sandboxes,tools"))
    for key in (keys[0], KEY):
        with Client(server.url, api_key=key) as client:
            id = keys[0][:11]
            calls = [client.keys.list, client.audit.list, client.audit.verify]
            for refused in [*calls, lambda: client.keys.revoke(id), lambda: client.keys.remove(id)]:
                with pytest.raises(PermissionDenied):
                    refused()
            assert client.usage().keys[0].id == (id if key != KEY else "RINGFENCE_API_KEY")


def test_usage_and_quotas(server: Server, client: Client, keys: List[str]) -> None:
    keys.append(server.key("student", "--quota-runs", "2", "--tenant", "class"))
    keys.append(server.key("other"))
    with Client(server.url, api_key=keys[0]) as student:
        assert student.usage().keys[0].today.runs == 0
        for _ in range(2):
            assert student.run("print(sum(range(10 ** 6)))").ok
        with pytest.raises(LimitExceeded, match="2 of 2 runs") as refused:
            student.run("print(1)")
        assert refused.value.retry_after and refused.value.retry_after <= 86400
        report = student.usage()
    (used,) = report.keys
    assert (used.id, used.name, used.tenant, used.quota) == (keys[0][:11], "student", "class", Quota(runs=2))
    assert used.today == used.total and used.today.runs == 2
    assert used.today.cpu_seconds > 0 and used.today.memory_gib_seconds > 0 and used.today.egress_bytes == 0
    assert report.resets_at.endswith("T00:00:00.000Z")
    everyone = {each.id: each for each in client.usage().keys}
    assert everyone[used.id] == used and everyone[keys[1][:11]].today.runs == 0


def test_the_audit_log(server: Server, client: Client, keys: List[str]) -> None:
    keys.append(server.key("logged", "--tenant", "logged"))
    id = keys[0][:11]
    with Client(server.url, api_key=keys[0]) as logged:
        logged.run("print('first')")
        logged.run("print('second')")
        with Sandbox(client=logged) as sandbox, pytest.raises(NotFound):
            sandbox.files.write("/proc/nothing/x", "")
    newest, older = client.audit.list(client=id, tool="run_code", limit=2)
    assert newest["sequence"] > older["sequence"] and newest["arguments"]["code"] == "print('second')"
    assert newest["who"]["client"] == id and newest["who"]["surface"] == "http"
    assert (newest["decision"], newest["outcome"], newest["error"]) == ("allowed", "answered", None)
    assert 0 < newest["duration_micros"] < 60_000_000 and len(newest["hash"]) == 64
    failed = client.audit.list(tenant="logged", outcome="failed")
    assert [each["error"] for each in failed] == ["not_found"]
    assert len(client.audit.list(limit=1)) == 1 and client.audit.list(client="nobody") == []
    assert client.audit.list(host=True) == [] and client.audit.verify(host=True).intact
    for wrong in ({"limit": -1}, {"limit": "many"}, {"tenant": "No Tenant"}):
        with pytest.raises(InvalidArguments):
            client.audit.list(**wrong)  # type: ignore[arg-type]


def test_the_audit_log_is_verified(client: Client) -> None:
    client.run("print(1)")
    checked = client.audit.verify()
    assert checked.intact and checked.broken is None and checked.records and checked.head
    assert (checked.first, checked.removed, checked.repairs, checked.torn_bytes) == (1, None, 0, 0)
    client.run("print(2)")
    again = client.audit.verify(head=checked.head)
    assert again.intact and again.records == checked.records + 1
    sequence = checked.head.split(":")[0]
    broken = client.audit.verify(head=f"{sequence}:{'0' * 64}")
    assert not broken.intact and broken.broken and broken.records is broken.head is None
    assert (broken.broken.sequence, broken.broken.file) == (int(sequence), "audit.jsonl") and "noted" in broken.broken.what
    with pytest.raises(InvalidArguments, match="SEQUENCE:HASH"):
        client.audit.verify(head="x")


def test_a_cancelled_check_of_the_audit_log_ends_its_request() -> None:
    async def work() -> None:
        arrived, left = asyncio.Event(), asyncio.Event()

        async def silent(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await reader.readuntil(b"\r\n\r\n")
            arrived.set()
            assert await reader.read() == b""
            left.set()
            writer.close()

        listener = await asyncio.start_server(silent, "127.0.0.1", 0)
        host, port = listener.sockets[0].getsockname()
        async with listener, AsyncClient(f"http://{host}:{port}", api_key=KEY) as client:
            task = asyncio.create_task(client.audit.verify())
            await arrived.wait()
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            # The client is open, and this connection is not.
            await asyncio.wait_for(left.wait(), DEADLINE / 1000)

    asyncio.run(work())


def test_administration_with_asyncio(server: Server, client: Client, keys: List[str]) -> None:
    keys.append(server.key("same"))

    async def work() -> None:
        async with AsyncClient(socket=server.socket) as same:
            found: "List[Any]" = await asyncio.gather(same.keys.list(), same.usage(), same.audit.list(limit=3), same.audit.verify())
            assert found == [client.keys.list(), client.usage(), client.audit.list(limit=3), client.audit.verify()]
            await same.keys.revoke(keys[0][:11])
            assert (await same.keys.list())[0].revoked

    asyncio.run(work())
