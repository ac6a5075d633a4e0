"""Mistakes in calls, and what is accepted in more than one form."""

from __future__ import annotations

import asyncio
import logging
import re
from datetime import timedelta
from functools import partial
from pathlib import Path, PurePosixPath
from typing import Any, Callable

import pytest

from conftest import KEY, Server
from ringfence import (
    AsyncClient,
    AsyncSandbox,
    Client,
    InvalidArguments,
    LimitExceeded,
    RingfenceError,
    Sandbox,
    ServerUnavailable,
    errors,
)
from ringfence._arguments import size
from ringfence.models import RunResult


def refused(call: Callable[[], Any], expected: str) -> None:
    with pytest.raises(InvalidArguments) as error:
        call()
    assert isinstance(error.value, TypeError) and isinstance(error.value, ValueError) and isinstance(error.value, RingfenceError)
    assert error.value.status == 0, "something was sent"
    assert re.search(expected, str(error.value)), f"{expected!r} is not in {str(error.value)!r}"


def test_leaving_a_block_ends_its_sandbox(client: Client, server: Server) -> None:
    def left(work: Callable[[Sandbox], Any]) -> Sandbox:
        with Sandbox(socket=server.socket) as sandbox:
            work(sandbox)
        return sandbox

    def nested(sandbox: Sandbox) -> None:
        with sandbox:
            pass
        assert sandbox.commands.run("echo on").stdout == "on\n"

    def closed(sandbox: Sandbox) -> None:
        sandbox.close()
        sandbox.close()

    def closed_and_killed(sandbox: Sandbox) -> None:
        sandbox.close()
        assert sandbox.kill() and not sandbox.kill()

    for work in (Sandbox.close, Sandbox.kill, closed, closed_and_killed, nested):
        assert left(work) and Sandbox.list(client=client) == []
    with pytest.raises(RingfenceError, match="the sandbox .* has ended.*leaving the `with`"):
        left(lambda _: None).run_code("1")
    with Sandbox(socket=server.socket) as sandbox:
        sandbox.close()
        with pytest.raises(RingfenceError, match="connections of the sandbox .* are closed.*`Sandbox.connect`"):
            sandbox.run_code("1")
    with Client(socket=server.socket) as other, Sandbox(client=other):
        other.close()
    assert Sandbox.list(client=client) == []

    async def asynchronously() -> None:
        async with AsyncSandbox(socket=server.socket) as sandbox:
            async with sandbox:
                pass
            await sandbox.close()
        with pytest.raises(KeyError):
            async with AsyncSandbox(socket=server.socket) as sandbox:
                await sandbox.aclose()
                raise KeyError

    asyncio.run(asynchronously())
    assert Sandbox.list(client=client) == []


def test_what_a_block_raises_comes_first(server: Server, client: Client, caplog: pytest.LogCaptureFixture) -> None:
    with pytest.raises(KeyError), Sandbox(socket=server.socket) as sandbox:
        sandbox.close()
        raise KeyError
    assert Sandbox.list(client=client) == []
    with Client(url=server.url, api_key="rf_unknown") as stranger:
        with caplog.at_level(logging.WARNING, "ringfence"), pytest.raises(KeyError), Sandbox(client=client) as sandbox:
            sandbox._transport = stranger._transport
            raise KeyError
        with pytest.raises(errors.Unauthenticated), Sandbox(client=client) as other:
            other._transport = stranger._transport
    assert sandbox.sandbox_id in caplog.text and "was not ended: the server does not know the key" in caplog.text
    for each in Sandbox.list(client=client):
        Sandbox.connect(each.id, client=client).kill()


class _Own(Sandbox):
    pass


class _AsyncOwn(AsyncSandbox):
    pass


def test_a_block_of_the_other_kind_makes_nothing(server: Server, client: Client) -> None:
    async def wrong(made: Any) -> None:
        async with made:
            pass

    refused(lambda: asyncio.run(wrong(Sandbox(socket=server.socket))), "`Sandbox` is used with plain `with`.*async with AsyncSandbox")
    refused(lambda: asyncio.run(wrong(Client(socket=server.socket))), "async with AsyncClient")
    refused(lambda: asyncio.run(wrong(_Own(socket=server.socket))), "`_Own` is used .*async with AsyncSandbox")
    plain: Any
    for plain, name in ((AsyncSandbox, "Sandbox"), (AsyncClient, "Client"), (_AsyncOwn, "Sandbox")):
        refused(plain(socket=server.socket).__enter__, rf"`{plain.__name__}` is used with `async with`.*`with {name}\(")
    assert Sandbox.list(client=client) == []


def test_arguments_of_another_type_are_named(client: Client, sandbox: Sandbox, server: Server) -> None:
    files, commands = sandbox.files, sandbox.commands
    mapping = "expected a mapping of names to texts for `{}`, got list"
    number = "a number, or a text such as `10KiB` or `256MiB`, for `max_output`, got"
    of = partial
    cases = [
        (of(_listed, client, "print(1)"), r"a list of programs for `programs`, got 'print\(1\)' \(hint: pass a list"),
        (of(_listed, client, b"print(1)"), "a list of programs for `programs`, got bytes"),
        (of(_listed, client, {"code": "1"}), "a list of programs for `programs`, got dict"),
        (of(_listed, client, [1]), "code, or a mapping .* got 1"),
        (of(Sandbox, client=client, allowed_hosts="a.invalid"), r"a list of texts for `allowed_hosts`, got 'a.invalid' \(hint: pass `allowed_hosts=\['a"),
        (of(Sandbox, client=client, allowed_hosts=[b"a"]), "texts for `allowed_hosts`, got bytes"),
        (of(Sandbox, client=client, packages="numpy"), r"pass `packages=\['numpy'\]`"),
        (of(Sandbox, client=client, packages=b"numpy"), "a list of texts for `packages`, got bytes"),
        (of(commands.run, b"ls"), "for `command`, got bytes"),
        (of(commands.run, None), "for `command`, got None"),
        (of(commands.run, ["echo", 1]), "texts for `command`, got 1"),
        (of(commands.run, {"echo", "x"}), "a list of a program and its arguments, for `command`, got set"),
        (of(Sandbox, client=client, env=["A=1"]), mapping.format("env")),
        (of(Sandbox, client=client, metadata=["A"]), mapping.format("metadata")),
        (of(Sandbox.list, client=client, metadata=["A"]), mapping.format("metadata")),
        (of(commands.start, "true", env=["A"]), mapping.format("env")),
        (of(client.run, "1", files=["a"]), mapping.format("files")),
        (of(Sandbox, client=client, mem="1GiB"), r"^`Sandbox` has no argument `mem` \(hint: use `memory`\)"),
        (of(AsyncSandbox, hosts=[]), "^`AsyncSandbox` has no argument `hosts`"),
        (of(Sandbox.list, limit=1), "`Sandbox.list` has no argument `limit`"),
        (of(Sandbox, client=client, url="http://127.0.0.1:1"), "`client` and `url` exclude each other"),
        (of(Sandbox, client="x"), "a.* `Client` for `client`, got 'x'"),
        (of(commands.run, "true", timeout=float("nan")), "`timeout` cannot be sent: expected a finite number"),
        (of(sandbox.set_timeout, float("inf")), "`timeout` cannot be sent: expected a finite number"),
        (of(sandbox.run_code, b"1"), "`code` cannot be sent: bytes is no value of JSON"),
        (of(sandbox.run_code, "'\ud800'"), "`code` cannot be sent: it has half of a surrogate pair"),
        (of(commands.run, "true", max_output="much"), f"{number} 'much'"),
        (of(commands.run, "true", max_output=-1), f"{number} -1"),
        (of(files.download_dir, "a", "b", max_size="much"), "for `max_size`, got 'much'"),
        (of(commands.run, "true", on_stdout="x"), "a function for `on_stdout`, got 'x'"),
        (of(sandbox.run_code, "1", on_result=5), "a function for `on_result`, got 5"),
        (of(files.read, b"a"), "a path as text, or one of pathlib, for `path`, got bytes"),
        (of(files.read, None), "a path as text, or one of pathlib, for `path`, got None"),
        (of(files.download, "a", 5), "for `to`, got 5"),
        (of(files.upload_dir, 5, "a"), "for `source`, got 5"),
        (of(files.write, "a", Path("b")), r"got PosixPath \(hint: open the file"),
        (of(files.write, "a", "b", mode="644"), "`mode`, got '644'"),
        (of(files.read, "a", "lines"), '"text" or "bytes" for `format`'),
        (of(files.list, "a", depth=0), "at least 1 for `depth`, got 0"),
        (of(commands.connect, "1"), "`pid`, got '1'"),
        (of(Sandbox.connect, "", client=client), "expected an id or a name for `sandbox_id`, got ''"),
        (of(Sandbox.connect, None, client=client), "expected an id or a name for `sandbox_id`, got None"),
        (of(client.call_tool, ""), "for `name`, got ''"),
        (of(client.runs.get, ""), "for `run_id`, got ''"),
        (of(client.approvals.get, ""), "for `approval_id`, got ''"),
        (of(client.snapshots.remove, ""), "for `snapshot_id`, got ''"),
        (of(client.keys.revoke, ""), "for `key_id`, got ''"),
        (of(sandbox.contexts.remove, None), "for `context`, got None"),
        (of(Client, server.url, api_key=" "), "`api_key` is empty"),
        (of(client.approvals.answer, "an-id", True), "an `Approval`, .* for `question`, got 'an-id'"),
        (of(Client, 5), "expected an address such as https"),
    ]
    for call, expected in cases:
        refused(call, expected)
    refused(lambda: asyncio.run(_batched(server)), "a list of programs")


def _listed(client: Client, programs: Any) -> Any:
    return list(client.batch(programs))


async def _batched(server: Server) -> None:
    async with AsyncClient(socket=server.socket) as client:
        async for _ in client.batch("print(1)"):
            pass


def test_arguments_have_more_than_one_form(client: Client, sandbox: Sandbox, tmp_path: Path, server: Server) -> None:
    files = sandbox.files
    assert files.write(PurePosixPath("d/a"), "x").path == "/workspace/d/a"
    assert files.read(Path("/workspace/d/a")) == "x" and files.exists(Path("d"))
    assert files.download("d/a", tmp_path / "a") == 1 and (tmp_path / "a").read_text() == "x"
    assert files.upload_dir(tmp_path, Path("up")).entries == 1
    assert files.download_dir(Path("up"), tmp_path / "down", max_size="1MiB").entries == 1
    assert [each.path for each in files.list(Path("d"))] == ["/workspace/d/a"]
    run = sandbox.commands.run
    assert run(["cat", PurePosixPath("a")], cwd=PurePosixPath("/workspace/d"), timeout=timedelta(seconds=5)).stdout == "x"
    assert run("sleep 9", timeout=timedelta(milliseconds=200)).outcome == "timed_out"
    assert (len(run("seq 1000", max_output="1KiB").stdout) >= 1024) and run("seq 1000", max_output="1KiB").truncated
    for text, expected in [("7", 7), ("1.5k", 1536), ("2 MB", 2_000_000), ("1GiB", 1 << 30), ("1TiB", 1 << 40), (3, 3)]:
        assert size(text, "size") == expected
    for language, code, expected in [("js", "6 * 7", "42"), ("py", "6 * 7", "42"), ("sh", "echo 42", None)]:
        execution = sandbox.run_code(code, language)
        assert execution.error is None and execution.text == expected
    assert client.run("console.log(42)", "node").stdout == "42\n"
    (item,) = client.batch([{"code": "exit 3", "language": "sh", "timeout": timedelta(seconds=5)}])
    assert item.result is not None and item.result.exit_code == 3
    with Client(f"{server.url}/v1/", api_key=KEY) as other:
        assert other.run("print(1)").ok
        assert Sandbox.list(url=f"{server.url}/v1", api_key=KEY) == []
    with Client(socket=Path(server.socket)) as again:
        assert again.tools()


def test_a_path_in_the_address_is_named(server: Server) -> None:
    with Client(f"{server.url}/api", api_key=KEY) as client:
        with pytest.raises(errors.IncompatibleServer, match="no route GET /api/v1/tools .*leave '/api' out of the URL"):
            client.tools()


def test_results_say_what_they_know(client: Client, sandbox: Sandbox) -> None:
    for options in ({}, {"on_stdout": print}):
        duration = sandbox.commands.run("sleep 0.2", **options).duration
        assert duration is not None and duration >= 0.2
    assert sandbox.commands.start("true").wait().duration is None
    long = client.run("print('x' * 100_000)", timeout=60)
    assert long.truncated and long.warnings == ["the caller asked for more time than 30s, and there is no more"]
    plain = RunResult("", "", 0, 0.0, {})
    assert (plain.truncated, plain.warnings) == (False, [])


def test_a_sandbox_shows_itself(client: Client, server: Server) -> None:
    with Sandbox("shown", client=client) as sandbox:
        assert repr(sandbox) == f"Sandbox(id={sandbox.sandbox_id!r}, name='shown', server={server.socket!r})"
        other = Sandbox.connect("shown", socket=server.socket)
        other.close()
        assert repr(other) == f"Sandbox(id={sandbox.sandbox_id!r}, name='shown', server={server.socket!r}, closed)"
    assert repr(AsyncSandbox(socket="/s")) == "AsyncSandbox(None, not created, server='/s')"


def test_a_listing_has_pages_and_what_is_too_deep_says_what_to_do(sandbox: Sandbox) -> None:
    sandbox.commands.run("mkdir d; cd d; seq 10001 | xargs touch", check=True)
    first = sandbox.files.list_page("d")
    assert (len(first.entries), first.complete, first.next) == (10000, False, first.entries[-1].path)
    last = sandbox.files.list_page("d", after=first.next)
    assert (len(last.entries), last.complete, last.next) == (1, True, None)
    assert len(sandbox.files.list(depth=2)) == 10002
    sandbox.commands.run("mkdir -p deep/$(seq -s / 200)", check=True)
    with pytest.raises(LimitExceeded, match="not complete.*ask for fewer levels"):
        sandbox.files.list("deep", depth=1000)


def test_keys_and_addresses_that_do_not_fit(tmp_path: Path, authority: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("RINGFENCE_API_KEY", raising=False)
    (key := authority.with_name("key")).chmod(0o600)
    server = Server(tmp_path / "own", "", "--tls-cert", str(authority), "--tls-key", str(key))
    try:
        tls = re.findall(r"https://(\S+)", server.log.read_text())[0]
        for options, kind, expected in [
            ({"url": server.url}, errors.Unauthenticated, "with a key alone, and none was given .*`api_key=.*RINGFENCE_API_KEY"),
            ({"url": server.url, "api_key": "rf_x"}, errors.Unauthenticated, "does not know the key: it is wrong, or has expired"),
            ({"url": f"http://{tls}", "api_key": KEY}, ServerUnavailable, "does not speak plain HTTP .*use https://127.0.0.1"),
            ({"url": server.url.replace("http", "https"), "api_key": KEY}, ServerUnavailable, "does not speak TLS .*use http://127.0.0.1"),
        ]:
            with Client(**options) as client, pytest.raises(kind, match=expected):  # type: ignore[arg-type]
                client.tools()
        for name, value in server.env.items():
            monkeypatch.setenv(name, value)
        monkeypatch.delenv("RINGFENCE_API_URL", raising=False)
        monkeypatch.setenv("RINGFENCE_API_KEY", KEY)
        # The second one is called from deeper in the package.
        for made in (Client, AsyncSandbox):
            with pytest.warns(UserWarning, match="RINGFENCE_API_KEY is not used: .*RINGFENCE_API_URL") as caught:
                made()
            assert caught[0].filename == __file__
    finally:
        server.stop()
