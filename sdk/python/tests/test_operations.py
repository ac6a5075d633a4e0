"""Questions to people, stored runs and images."""

from __future__ import annotations

import asyncio
import hashlib
import io
import json
import platform
import tarfile
import threading
from concurrent.futures import ThreadPoolExecutor
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any, Dict, Iterator, List, Tuple

import pytest

from conftest import ASK, KEY, LONG, Server
from ringfence import (
    AsyncClient,
    Client,
    Conflict,
    InvalidArguments,
    NotFound,
    PermissionDenied,
    PullProgress,
    RunSummary,
    Sandbox,
    ServerGone,
)

@pytest.fixture(scope="module")
def asking(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A server that asks at a tool's time limit."""
    server = Server(tmp_path_factory.mktemp("a"), ASK)
    yield server
    server.stop()


def test_a_program_answers_what_people_are_asked(asking: Server) -> None:
    with Client(socket=asking.socket) as client, ThreadPoolExecutor() as pool:
        # Nobody is there to be asked.
        assert client.run("while True: pass").outcome == "timed_out"
        with client.approvals.events() as events:
            running = pool.submit(client.run, "while True: pass # first")
            event = next(events)
            question = event.question
            assert question is not None and (event.type, event.id) == ("question", question.id)
            assert (question.kind, question.state, question.risk) == ("soft_timeout", "pending", None)
            assert "`run_code` has run for 200ms" in question.text and "# first" in question.text
            assert question.text == "".join(each["plain"] for each in question.pieces)
            assert question.expires > question.created and "once" in question.remember
            assert client.approvals.list() == [question] == [client.approvals.get(question.id)]
            with pytest.raises(InvalidArguments):
                client.approvals.answer(question, True, remember="always")
            client.approvals.answer(question, False, remember="session")
            over = next(events)
            assert (over.type, over.id, over.state, over.question) == ("over", question.id, "rejected", None) and over.by
            assert running.result().outcome == "timed_out"
            with pytest.raises(Conflict):
                client.approvals.answer(question, True)

            running = pool.submit(client.run, LONG)
            second = next(events).question
            assert second is not None
            client.approvals.answer(second, True)
            assert next(events).state == "approved"
            assert running.result().stdout == "done\n"
        assert client.approvals.list() == []
        past = client.approvals.list(past=True)
        assert [(each.id, each.state) for each in past] == [(second.id, "approved"), (question.id, "rejected")]
        assert past[0].ended is not None and past[0].by == over.by
        with pytest.raises(NotFound):
            client.approvals.get("apr_" + "0" * 32)


def test_escapes_stand_for_what_is_invisible(asking: Server) -> None:
    with Client(socket=asking.socket) as client, ThreadPoolExecutor() as pool, client.approvals.events() as events:
        running = pool.submit(client.run, "while True: pass # \u202e")
        question = next(events).question
        assert question is not None
        client.approvals.answer(question, False)
        running.result()
    assert "\\u{202e}" in question.text and "\u202e" not in question.text
    assert {"escape": "\\u{202e}"} in question.pieces


def test_a_key_without_the_right_answers_nothing(server: Server) -> None:
    with Client(server.url, api_key=KEY) as client:
        for refused in (client.approvals.list, client.approvals.events().__enter__, client.images.list):
            with pytest.raises(PermissionDenied):
                refused()


def test_questions_with_asyncio(asking: Server) -> None:
    async def work() -> None:
        async with AsyncClient(socket=asking.socket) as client, client.approvals.events() as events:
            running = asyncio.create_task(client.run(LONG))
            async for event in events:
                if event.question is None:
                    assert event.state == "approved"
                    break
                await client.approvals.answer(event.question, True)
            assert (await running).stdout == "done\n"
            waiting = asyncio.ensure_future(events.__anext__())
            await asyncio.sleep(0)
            waiting.cancel()
            with pytest.raises(asyncio.CancelledError):
                await waiting

    asyncio.run(work())


def test_questions_end_with_the_server(tmp_path: Path) -> None:
    server = Server(tmp_path, ASK)
    with Client(socket=server.socket) as client, client.approvals.events() as events:
        killing = threading.Thread(target=server.process.kill)
        killing.start()
        with pytest.raises(ServerGone):
            next(events)
        killing.join()
    server.process.wait()


def test_stored_runs(client: Client, server: Server) -> None:
    results = [client.run(f"print('é'); raise SystemExit({status})") for status in (3, 4, 5)]
    ids = [result.meta["artifact"].removesuffix(".json") for result in results]
    newest = client.runs.list(limit=2)
    assert [(each.id, each.exit_code, each.outcome, each.language) for each in newest.runs] == [
        (ids[2], 5, "exited", "python"),
        (ids[1], 4, "exited", "python"),
    ]
    assert newest.next is not None
    older = client.runs.list(before=newest.next)
    assert older.runs[0] == RunSummary(ids[0], older.runs[0].time, "python", "exited", 3)
    stored = client.runs.get(ids[0])
    assert (stored.code, stored.result.stdout, stored.result.exit_code) == ("print('é'); raise SystemExit(3)", "é\n", 3)
    assert stored.time == older.runs[0].time and stored == client.runs.get(results[0].meta["artifact"])
    with pytest.raises(NotFound, match="no stored run"):
        client.runs.get("20200101T000000.000Z_000000000000")

    async def work() -> None:
        async with AsyncClient(socket=server.socket) as same:
            assert await same.runs.get(ids[0]) == stored
            assert (await same.runs.list(limit=2)).next == newest.next

    asyncio.run(work())


class _Registry(HTTPServer):
    """A registry with one image, whose layer has one file. It says nothing about those below `silent`."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Answers)
        self.answers: Dict[str, bytes] = {}
        self.asked = threading.Event()
        layer = self._blob(_archive(), "blobs")
        configuration = {
            "architecture": {"x86_64": "amd64", "aarch64": "arm64"}[platform.machine()],
            "os": "linux",
            "config": {"Env": ["COLOUR=red"], "WorkingDir": "/app"},
            "rootfs": {"type": "layers", "diff_ids": [layer["digest"]]},
        }
        config = self._blob(json.dumps(configuration).encode(), "blobs")
        manifest = {"schemaVersion": 2, "config": config, "layers": [layer]}
        self.answers["/v2/app/manifests/1"] = json.dumps(manifest).encode()
        self.name = f"127.0.0.1:{self.server_port}/app:1"

    def _blob(self, body: bytes, kind: str) -> Dict[str, Any]:
        digest = "sha256:" + hashlib.sha256(body).hexdigest()
        self.answers[f"/v2/app/{kind}/{digest}"] = body
        return {"digest": digest, "size": len(body), "mediaType": "application/vnd.oci.image.layer.v1.tar"}


def _archive() -> bytes:
    archive = io.BytesIO()
    with tarfile.open(fileobj=archive, mode="w") as tar:
        entry = tarfile.TarInfo("app/data")
        entry.size = 4
        tar.addfile(entry, io.BytesIO(b"here"))
    return archive.getvalue()


class _Answers(BaseHTTPRequestHandler):
    server: _Registry

    def do_GET(self) -> None:
        self.server.asked.set()
        if "/silent/" in self.path:
            # Until whoever asks has gone.
            self.rfile.read(1)
            return
        body = self.server.answers.get(self.path)
        self.send_response(404 if body is None else 200)
        self.send_header("content-length", str(len(body or b"")))
        self.end_headers()
        self.wfile.write(body or b"")

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def registry() -> Iterator[_Registry]:
    registry = _Registry()
    thread = threading.Thread(target=registry.serve_forever)
    thread.start()
    yield registry
    registry.shutdown()
    thread.join()
    registry.server_close()


def test_images_are_pulled(client: Client, registry: _Registry) -> None:
    before = client.images.list()
    progress: List[PullProgress] = []
    pulled = client.images.pull(registry.name, on_progress=progress.append)
    image = pulled.image
    assert not pulled.was_there and (image.references, image.layers) == ([registry.name], 1)
    assert image.process["Env"] == ["COLOUR=red"] and image.content["bytes"] == 4
    assert (progress[-1].layer, progress[-1].layers) == (1, 1) and progress[-1].received == progress[-1].size > 0
    assert [each for each in client.images.list() if each not in before] == [image]
    assert client.images.pull(registry.name).was_there
    with Sandbox(client=client, image=registry.name) as sandbox:
        assert sandbox.files.read("/app/data") == "here"
        assert client.images.remove(registry.name) == "in_use"
    assert client.images.list() == before
    with pytest.raises(NotFound):
        client.images.remove(registry.name)
    with pytest.raises(InvalidArguments, match="no such image"):
        client.images.pull(registry.name.replace(":1", ":2"))
    with pytest.raises(InvalidArguments):
        client.images.pull("Not A Reference")


def test_cancelling_a_pull_ends_it(client: Client, server: Server, registry: _Registry) -> None:
    async def work() -> Tuple[bool, str]:
        async with AsyncClient(socket=server.socket) as same:
            task = asyncio.create_task(same.images.pull(registry.name.replace("/app", "/silent/app")))
            await asyncio.to_thread(registry.asked.wait)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task

            async def note(progress: PullProgress) -> None:
                seen.append(progress)

            seen: List[PullProgress] = []
            pulled = await same.images.pull(registry.name, on_progress=note)
            return bool(seen), await same.images.remove(pulled.image.digest)

    # The registry answers one request after another: it has seen the end of the first.
    assert asyncio.run(work()) == (True, "removed")
