"""The environment for Inspect, by Inspect's own checks of environments and an evaluation with a scripted model."""

from __future__ import annotations

import asyncio
import errno
import json
import subprocess
import sys
from pathlib import Path
from typing import Any, AsyncIterator

import pytest
from inspect_ai.util import (
    OutputLimitExceededError,
    SandboxEnvironmentSpec,
    SandboxUnavailableError,
    SandboxUserUnsupportedError,
    override_sandbox_output_limit,
)
from inspect_ai.util._sandbox.registry import registry_find_sandboxenv
from inspect_ai.util._sandbox.self_check import *  # noqa: F403

from conftest import Server, World
from ringfence import RingfenceError, Sandbox
from ringfence.inspect import RingfenceConfig, RingfenceSandboxEnvironment

ROOT = Path(__file__).parents[4]

CANNOT_HOLD = {
    "test_exec_as_user": "a sandbox has one user and no root, so no user can be added",
}
"""Inspect's checks that the fence forbids, with the reason."""


async def environment(server: Server, **options: Any) -> RingfenceSandboxEnvironment:
    config = RingfenceConfig(socket=server.socket, **options)
    made = await RingfenceSandboxEnvironment.sample_init("task", config, {})
    return made["default"].as_type(RingfenceSandboxEnvironment)


async def end(environment: RingfenceSandboxEnvironment) -> None:
    await RingfenceSandboxEnvironment.sample_cleanup("task", None, {"default": environment}, False)


@pytest.fixture
async def sandbox_env(server: Server, request: pytest.FixtureRequest) -> AsyncIterator[RingfenceSandboxEnvironment]:
    reason = CANNOT_HOLD.get(getattr(request.node, "originalname", ""))
    if reason:
        request.node.add_marker(pytest.mark.xfail(reason=reason, strict=True))
    made = await environment(server)
    yield made
    await end(made)


async def test_what_is_not_started_has_the_status_of_a_shell(sandbox_env: RingfenceSandboxEnvironment) -> None:
    missing = await sandbox_env.exec(["no-such-program"])
    assert (missing.success, missing.returncode) == (False, 127) and "no-such-program" in missing.stderr
    nowhere = await sandbox_env.exec(["true"], cwd="nowhere")
    assert (nowhere.success, nowhere.returncode) == (False, 126) and "nowhere" in nowhere.stderr


async def test_users(sandbox_env: RingfenceSandboxEnvironment) -> None:
    own = (await sandbox_env.exec(["id", "-un"])).stdout.strip()
    assert (await sandbox_env.exec(["id", "-un"], user=own)).stdout.strip() == own
    for other in ("root", "0", "nobody-at-all"):
        with pytest.raises(SandboxUserUnsupportedError):
            await sandbox_env.exec(["true"], user=other)


async def test_input_that_is_not_read_and_output_that_is_too_long(sandbox_env: RingfenceSandboxEnvironment) -> None:
    deaf = await sandbox_env.exec(["sh", "-c", "exec < /dev/null; echo deaf"], input=b"x" * (4 << 20))
    assert deaf.stdout == "deaf\n"
    with override_sandbox_output_limit(1000):
        assert len((await sandbox_env.exec(["sh", "-c", "printf %01000d 0"])).stdout) == 1000
        for input in (None, "x"):
            with pytest.raises(OutputLimitExceededError):
                await sandbox_env.exec(["sh", "-c", "printf %01001d 0"], input=input)


async def test_a_cancelled_command_is_killed(sandbox_env: RingfenceSandboxEnvironment, server: Server) -> None:
    # First the one that is ended by its connection, then the one that is ended by a request.
    for input in (None, "x"):
        task = asyncio.create_task(sandbox_env.exec(["sh", "-c", "echo > begun; exec sleep 600"], input=input))
        while not (await sandbox_env.exec(["test", "-e", "begun"])).success:
            assert not task.done()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        with Sandbox.connect(sandbox_env._sandbox.sandbox_id, socket=server.socket) as seen:
            while any(process.end is None for process in seen.commands.list()):
                await asyncio.sleep(0)
        await sandbox_env.exec(["rm", "begun"])


async def test_a_place_that_takes_nothing_is_an_error_of_the_file(server: Server) -> None:
    small = await environment(server, disk="16MiB", memory="128MiB")
    with pytest.raises(PermissionError):
        await small.write_file("/usr/x", "x")
    with pytest.raises(NotADirectoryError):
        await small.read_file("/etc/passwd/x")
    await small.write_file("one", b"x" * (10 << 20))
    with pytest.raises(OSError) as full:
        await small.write_file("two", b"x" * (10 << 20))
    assert full.value.errno == errno.ENOSPC
    await end(small)


async def test_a_sandbox_that_is_gone_is_no_result(server: Server) -> None:
    gone = await environment(server)
    await gone._sandbox.kill()
    for call in (
        lambda: gone.exec(["true"]),
        lambda: gone.exec(["cat"], input="x"),
        lambda: gone.read_file("x"),
        lambda: gone.write_file("x", "x"),
    ):
        with pytest.raises(SandboxUnavailableError):
            await call()
    with pytest.raises(ConnectionError):
        await gone.connection()
    await end(gone)


@pytest.mark.parametrize("input", [None, "x" * (4 << 20)])
async def test_a_server_that_ends_is_no_result(own_server: Server, input: Any) -> None:
    left = await environment(own_server)
    task = asyncio.create_task(left.exec(["sh", "-c", "echo > begun; sleep 600"], input=input))
    while not (await left.exec(["test", "-e", "begun"])).success:
        assert not task.done()
    own_server.process.kill()
    with pytest.raises(RingfenceError):
        await task
    own_server.process.wait()
    with pytest.raises(SandboxUnavailableError):
        await left.exec(["true"])
    await end(left)


async def test_the_connection_opens_a_shell(sandbox_env: RingfenceSandboxEnvironment) -> None:
    connection = await sandbox_env.connection()
    assert connection.command == f"ringfence sandbox shell {sandbox_env._sandbox.sandbox_id}"


def test_a_configuration_survives_a_log(tmp_path: Path) -> None:
    config = RingfenceConfig(memory="256MiB", allowed_hosts=["pypi.org"], env={"A": "b"})
    assert hash(config) == hash(RingfenceConfig(memory="256MiB", allowed_hosts=["pypi.org"], env={"A": "b"}))
    spec = SandboxEnvironmentSpec("ringfence", config)
    logged = json.loads(spec.model_dump_json())
    logged["config"] = config.model_dump()
    assert SandboxEnvironmentSpec.model_validate(logged).config == config
    assert registry_find_sandboxenv("ringfence") is RingfenceSandboxEnvironment
    with pytest.raises(ValueError):
        RingfenceConfig(memmory="256MiB")  # type: ignore[call-arg]


async def test_what_was_left_is_removed(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(server.root / "run"))
    left = await environment(server)
    with Sandbox(socket=server.socket) as other:
        await RingfenceSandboxEnvironment.cli_cleanup(None)
        assert [each.id for each in Sandbox.list(socket=server.socket)] == [other.sandbox_id]
    await left._sandbox.aclose()


def test_the_example(tmp_path: Path) -> None:
    world = World(tmp_path)
    command = [sys.executable, str(ROOT / "examples/sdk/inspect_task.py")]
    done = subprocess.run(command, env=world.env, cwd=tmp_path, capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (0, "success, accuracy 1.0\n"), done.stderr
