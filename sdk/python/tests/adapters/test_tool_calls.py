"""Answers to tool calls, read by the types of OpenAI's and Anthropic's clients."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any, Dict

import pytest
from anthropic.types.beta import (
    BetaBashCodeExecutionToolResultBlock,
    BetaCodeExecutionToolResultBlock,
    BetaToolResultBlockParam,
)
from openai.types.responses.response_input_item import LocalShellCall, LocalShellCallOutput, ShellCall, ShellCallOutput
from pydantic import TypeAdapter

from conftest import World
from ringfence import Client, InvalidArguments, NotFound, Sandbox
from ringfence.tool_calls import (
    anthropic_bash,
    anthropic_bash_code_execution,
    anthropic_code_execution,
    openai_local_shell,
    openai_shell,
)


ROOT = Path(__file__).parents[4]


def shell(*commands: str, **action: Any) -> Dict[str, Any]:
    call = {"type": "shell_call", "call_id": "call_1", "action": {"commands": commands, **action}}
    return ShellCall.model_validate(call).model_dump()


def test_openai_shell(sandbox: Sandbox) -> None:
    answer = openai_shell(sandbox, shell("echo one; echo two >&2; exit 3", "kill -9 $$", "cat < /dev/null"))
    assert ShellCallOutput.model_validate(answer).to_dict() == answer
    assert answer == {
        "type": "shell_call_output",
        "call_id": "call_1",
        "status": "completed",
        "output": [
            {"stdout": "one\n", "stderr": "two\n", "outcome": {"type": "exit", "exit_code": 3}},
            {"stdout": "", "stderr": "", "outcome": {"type": "exit", "exit_code": 137}},
            {"stdout": "", "stderr": "", "outcome": {"type": "exit", "exit_code": 0}},
        ],
    }


def test_openai_shell_keeps_its_limits(sandbox: Sandbox) -> None:
    answer = openai_shell(sandbox, shell("echo begun; sleep 60", "echo never", timeout_ms=300, max_output_length=4))
    assert ShellCallOutput.model_validate(answer).max_output_length == 4
    assert answer["output"] == [
        {"stdout": "begu", "stderr": "", "outcome": {"type": "timeout"}},
        {"stdout": "", "stderr": "", "outcome": {"type": "timeout"}},
    ]


def test_openai_local_shell(sandbox: Sandbox) -> None:
    def answer(*command: str, **action: Any) -> Any:
        given = {"type": "exec", "command": command, "env": {"N": "7"}, **action}
        call = {"type": "local_shell_call", "id": "l", "call_id": "call_2", "status": "completed", "action": given}
        found = openai_local_shell(sandbox, LocalShellCall.model_validate(call).model_dump())
        assert LocalShellCallOutput.model_validate(found).id == "call_2"
        return json.loads(found["output"])

    assert answer("sh", "-c", "echo $N in $PWD; exit 4", working_directory="/tmp", user="root") == {
        "stdout": "7 in /tmp\n", "stderr": "", "exit_code": 4,
    }
    assert answer("sleep", "60", timeout_ms=300)["timed_out"] is True
    assert answer("no-such-program")["exit_code"] == 127
    assert answer("/etc/passwd")["exit_code"] == 126
    assert answer("true", working_directory="/nowhere")["exit_code"] == 126


def use(name: str, **given: Any) -> Dict[str, Any]:
    return {"type": "tool_use", "id": "toolu_1", "name": name, "input": given}


def test_anthropic_bash_keeps_its_shell(sandbox: Sandbox) -> None:
    def answer(**given: Any) -> Dict[str, Any]:
        found = anthropic_bash(sandbox, use("bash", **given), timeout=1)
        TypeAdapter(BetaToolResultBlockParam).validate_python(found)
        return found

    assert answer(command="cd /tmp; N=7; echo err >&2") == {
        "type": "tool_result", "tool_use_id": "toolu_1", "content": "err", "is_error": False,
    }
    assert answer(command="echo $N in $PWD; false")["content"] == "7 in /tmp\n[exit status 1]"
    assert answer(command="sleep 60")["content"] == "[timed_out]"
    assert answer(command="echo $N")["content"] == "7"
    assert answer(restart=True)["content"] == "the shell was restarted"
    assert answer(command="echo $N in $PWD")["content"] == "in /workspace"


def test_anthropic_code_execution(sandbox: Sandbox) -> None:
    bash = anthropic_bash_code_execution(sandbox, use("bash_code_execution", command="echo x; echo y >&2; exit 2"))
    assert BetaBashCodeExecutionToolResultBlock.model_validate(bash).to_dict() == bash
    assert bash["content"] == {
        "type": "bash_code_execution_result", "stdout": "x\n", "stderr": "y", "return_code": 2, "content": [],
    }
    late = anthropic_bash_code_execution(sandbox, use("bash_code_execution", command="sleep 60"), timeout=0.3)
    assert BetaBashCodeExecutionToolResultBlock.model_validate(late).to_dict() == late
    assert late["content"]["error_code"] == "execution_time_exceeded"
    python = anthropic_code_execution(sandbox, use("code_execution", code="print(6 * 7)"))
    assert BetaCodeExecutionToolResultBlock.model_validate(python).to_dict() == python
    assert python["content"]["stdout"] == "42\n"


def test_a_call_that_a_model_made_wrongly_is_answered(sandbox: Sandbox) -> None:
    action = "expected an object as `call.action`, found nothing"
    commands = "expected a list of texts as `action.commands`, found {}"
    command = "expected a list of texts as `action.command`, found {}"
    for call, expected in [
        ({}, action),
        ({"action": "ls"}, 'expected an object as `call.action`, found "ls"'),
        ({"action": {}}, commands.format("nothing")),
        ({"action": {"commands": "ls"}}, commands.format('"ls"')),
        ({"action": {"commands": [1]}}, commands.format("[1]")),
        ({"action": {"commands": ["ls"], "timeout_ms": "5"}}, 'expected a number of milliseconds as `action.timeout_ms`, found "5"'),
        ({"action": {"commands": ["ls"], "max_output_length": -1}}, "a number of characters as `action.max_output_length`, found -1"),
        ({"type": "tool_use", "action": {}}, 'expected a call of the type `shell_call`, found "tool_use"'),
        ({"action": {"commands": ["echo \0"]}}, "has a NUL character"),
    ]:
        answer = openai_shell(sandbox, {"call_id": "c", **call})
        assert ShellCallOutput.model_validate(answer).to_dict() == answer
        (only,) = answer["output"]
        assert expected in only["stderr"] and only["outcome"] == {"type": "exit", "exit_code": 2}, only
    for call, expected in [
        ({}, action),
        ({"action": {"command": []}}, command.format("[]")),
        ({"action": {"command": "ls"}}, command.format('"ls"')),
        ({"action": {"command": ["ls"], "env": ["A"]}}, 'expected an object as `action.env`, found ["A"]'),
        ({"action": {"command": ["ls"], "env": {"A": 1}}}, "expected a string"),
    ]:
        output = json.loads(openai_local_shell(sandbox, {"call_id": "c", **call})["output"])
        assert expected in output["stderr"] and output["exit_code"] == 2, output
    for given, expected in [
        ({}, "expected a line for the shell as `input.command`, found nothing"),
        ({"command": ["ls"]}, 'expected a line for the shell as `input.command`, found ["ls"]'),
        ({"restart": "yes"}, 'expected true or false as `input.restart`, found "yes"'),
    ]:
        found = anthropic_bash(sandbox, use("bash", **given))
        TypeAdapter(BetaToolResultBlockParam).validate_python(found)
        assert found == {"type": "tool_result", "tool_use_id": "toolu_1", "content": expected, "is_error": True}
    assert "expected a use of the tool `bash`, found" in anthropic_bash(sandbox, use("get_weather", command="ls"))["content"]
    for function, name in ((anthropic_bash_code_execution, "command"), (anthropic_code_execution, "code")):
        for block in ({"id": "t"}, {"id": "t", "input": {name: 5}}, {"id": "t", "name": "other", "input": {name: "1"}}):
            content = function(sandbox, block)["content"]
            assert content["return_code"] == 2 and content["stderr"].startswith("expected "), content
    # A program that uses the functions wrongly learns it itself.
    for sandboxes, call, options, expected in [
        (sandbox, object(), {}, "model_dump"),
        (sandbox, {"action": {}}, {}, "an id as `call_id` or `id`"),
        ("lab", shell("true"), {}, "expected a `Sandbox` for `sandbox`, got 'lab'"),
        (sandbox, shell("true"), {"timeout": "x"}, "above 0 for `timeout`, got 'x'"),
    ]:
        with pytest.raises(InvalidArguments, match=expected):
            openai_shell(sandboxes, call, **options)
    assert openai_shell(sandbox, ShellCall.model_validate(shell("echo x")))["output"][0]["stdout"] == "x\n"


def test_a_call_without_an_id_runs_nothing(sandbox: Sandbox) -> None:
    touch = "touch ran"
    for function, call in (
        (openai_shell, {"action": {"commands": [touch]}}),
        (openai_local_shell, {"action": {"command": ["touch", "ran"]}}),
        (anthropic_bash, {"input": {"command": touch}}),
        (anthropic_bash_code_execution, {"input": {"command": touch}}),
        (anthropic_code_execution, {"input": {"code": "open('ran', 'w')"}}),
    ):
        with pytest.raises(InvalidArguments, match="a call with an id as `call_id` or `id` for `call`, got dict"):
            function(sandbox, call)
    assert not sandbox.files.exists("ran")


def test_a_sandbox_that_is_gone_is_no_answer(client: Client) -> None:
    with Sandbox(client=client) as sandbox:
        sandbox.kill()
        local = {"call_id": "c", "action": {"type": "exec", "command": ["true"], "env": {}}}
        for call in (
            lambda: openai_shell(sandbox, shell("true")),
            lambda: openai_local_shell(sandbox, local),
            lambda: anthropic_bash(sandbox, use("bash", command="true")),
            lambda: anthropic_bash_code_execution(sandbox, use("bash_code_execution", command="true")),
            lambda: anthropic_code_execution(sandbox, use("code_execution", code="1")),
        ):
            with pytest.raises(NotFound):
                call()


def test_the_example(tmp_path: Path) -> None:
    world = World(tmp_path)
    command = [sys.executable, str(ROOT / "examples/sdk/tool_calls.py")]
    done = subprocess.run(command, env=world.env, cwd=tmp_path, capture_output=True, text=True)
    exits = '[{"type": "exit", "exit_code": 0}, {"type": "exit", "exit_code": 0}]'
    assert (done.returncode, done.stdout) == (0, f"{exits}\nIt has 3 lines.\n"), done.stderr
