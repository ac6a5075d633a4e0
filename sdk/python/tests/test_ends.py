"""Whose failure it was, as adapters tell it."""

from __future__ import annotations

import contextlib

import pytest

from ringfence import Client, CommandResult, InvalidArguments, NotFound, RingfenceError, Sandbox
from ringfence._ends import exit_status, file_failure, not_started, why_cut
from ringfence.errors import ApiError, InternalError


def test_an_end_that_says_nothing_is_no_status() -> None:
    assert [exit_status(CommandResult(code, "exited")) for code in (0, 3, 255)] == [0, 3, 255]
    assert exit_status(CommandResult(-15, "signalled")) == 143
    assert exit_status(CommandResult(-9, "memory_exceeded")) == 137
    assert exit_status(CommandResult(-1, "timed_out")) == 124
    for outcome in ("unknown", "cancelled"):
        with pytest.raises(RingfenceError, match=f"{outcome}: lost"):
            exit_status(CommandResult(125, outcome, error="lost"))
    assert [bool(why_cut(CommandResult(0, outcome))) for outcome in ("exited", "signalled", "timed_out")] == [False, False, True]


def test_failures_of_files_are_those_of_the_server(sandbox: Sandbox) -> None:
    def failure(path: str) -> object:
        with pytest.raises(ApiError) as failed:
            sandbox.files.write(path, "x") if path.startswith("/w") else sandbox.files.read(path)
        return file_failure(failed.value)

    sandbox.commands.run("touch closed; chmod 000 closed; mkfifo fifo; ln -s loop loop", check=True)
    found = {name: failure(name) for name in ("none", "closed", "fifo", "loop", "closed/x", "/workspace", "x" * 300)}
    assert found == {
        "none": "not_found", "closed": "denied", "fifo": "not_a_file", "loop": "invalid", "closed/x": "not_a_directory",
        "/workspace": "is_a_directory", "x" * 300: "invalid",
    }
    assert file_failure(NotFound("there is no sandbox `/x`")) is None
    assert file_failure(InvalidArguments("the name has no such file or directory")) is None
    assert file_failure(InternalError("no such file or directory: /x")) is None


def test_programs_that_are_not_started_are_those_of_the_server(sandbox: Sandbox) -> None:
    def status(*command: str, cwd: "str | None" = None) -> object:
        with pytest.raises(ApiError) as failed:
            sandbox.commands.run(command, cwd=cwd)
        return not_started(failed.value)

    assert [status("none"), status("/etc/passwd"), status("true", cwd="/none"), status("echo", "x" * 200_000)] == [127, 126, 126, 126]
    assert status("") is None
    sandbox.kill()
    assert status("true") is None


def test_a_sandbox_that_expired_says_so_in_the_words_of_the_package(client: Client) -> None:
    sandbox = Sandbox(client=client, timeout=0.2)
    with sandbox:
        # It is cut off, and which of the two is told first is the server's choice.
        with contextlib.suppress(RingfenceError):
            assert sandbox.commands.run("sleep 600").outcome != "exited"
        with pytest.raises(NotFound, match=r"expired at 20.*more time \(`timeout`\).*`sandbox\.set_timeout\(\)`"):
            sandbox.commands.run("true")
