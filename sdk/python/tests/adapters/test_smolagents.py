"""The executor for smolagents, with agents whose model is a script."""

from __future__ import annotations

import datetime
import subprocess
import sys
from pathlib import Path
from typing import Any, List

import pytest
from smolagents import ActionStep, ChatMessage, CodeAgent, LogLevel, MessageRole, Model, Tool, tool

from conftest import World
from ringfence import Client, InvalidArguments, NotFound, RingfenceError, Sandbox
from ringfence.smolagents import RingfenceExecutor, SandboxFailed

ROOT = Path(__file__).parents[4]


class Script(Model):
    def __init__(self, steps: List[str]) -> None:
        super().__init__(model_id="script")
        self.steps = iter(steps)

    def generate(self, messages: Any, **options: Any) -> ChatMessage:
        content = f"Thought: go on.\n<code>\n{next(self.steps)}\n</code>"
        return ChatMessage(role=MessageRole.ASSISTANT, content=content)


@tool
def double(number: int) -> int:
    """Doubles a number.

    Args:
        number: The number.
    """
    return 2 * number


class Roots(Tool):
    name = "root"
    description = "Computes a square root."
    inputs = {"number": {"type": "number", "description": "The number."}}
    output_type = "number"

    def forward(self, number: float) -> float:
        import math

        return math.sqrt(number)


def agent(sandbox: Sandbox, *steps: str, **options: Any) -> CodeAgent:
    executor = RingfenceExecutor(sandbox, **options)
    tools = [double, Roots()]
    return CodeAgent(tools, Script(list(steps)), executor=executor, verbosity_level=LogLevel.OFF)


def test_an_agent_works_and_answers(sandbox: Sandbox) -> None:
    steps = ["x = double(20)\nprint('x is', x)\nx", "1 / 0", "final_answer({'x': x + y, 'root': root(16), 'at': day})"]
    working = agent(sandbox, *steps)
    day = datetime.date(2026, 11, 27)
    answer = working.run("add", additional_args={"y": 2, "day": day})
    assert answer == {"x": 42, "root": 4.0, "at": day}
    first, second, _ = [step for step in working.memory.steps if isinstance(step, ActionStep)]
    assert first.observations == "Execution logs:\nx is 40\nLast output from code snippet:\n40"
    assert second.error is not None and "ZeroDivisionError: division by zero" in second.error.message


@pytest.mark.parametrize(
    "answer", ["'é: \\n'", "None", "(1, 2)", "'x' * 3_000_000", "b'\\x00'", "[1.5, True, {'a': {1}}]"]
)
def test_answers_come_whole(sandbox: Sandbox, answer: str) -> None:
    assert agent(sandbox, f"try:\n    final_answer({answer})\nexcept Exception:\n    pass").run("go") == eval(answer)


def test_an_answer_that_cannot_come_is_told(sandbox: Sandbox) -> None:
    working = agent(sandbox, "final_answer(object())", "final_answer('x' * 9_000_000)", "print('x' * 99_999)\n1 / 0", "final_answer(1)")
    assert working.run("go") == 1
    *told, _ = [step.error.message for step in working.memory.steps if isinstance(step, ActionStep) and step.error] + [""]
    for message, expected in zip(told, ["Cannot safely serialize", "longer than 8388608", "ZeroDivisionError"], strict=True):
        assert expected in message and len(message) < 50_000


def test_a_pickle_is_refused(sandbox: Sandbox) -> None:
    executor = RingfenceExecutor(sandbox)
    with pytest.raises(Exception, match="[Pp]ickle data rejected"):
        executor("class FinalAnswerException(BaseException): pass\nraise FinalAnswerException('pickle:gASVAAAAAAAAAIwAlC4=')")
    with pytest.raises(Exception, match="Cannot safely serialize"):
        executor.send_variables({"x": object()})


def test_a_step_that_is_late_keeps_state_or_gets_tools_again(sandbox: Sandbox) -> None:
    stubborn = "import signal\nsignal.signal(signal.SIGINT, signal.SIG_IGN)\nwhile True: pass"
    steps = ["x = 1\nwhile True: pass", "print(x)", stubborn, "print('x' in globals())", "final_answer(double(y))"]
    late = agent(sandbox, *steps, timeout=1)
    assert late.run("go", additional_args={"y": 21}) == 42
    first, second, third, fourth, _ = [step for step in late.memory.steps if isinstance(step, ActionStep)]
    assert first.error is not None and "timed_out" in first.error.message and "lost" not in first.error.message
    assert "stopped at its time limit of 1 s" in first.error.message and "variables and imports are kept" in first.error.message
    assert second.observations is not None and "\n1\n" in second.observations
    assert third.error is not None and "all variables" in third.error.message
    assert fourth.observations is not None and "False" in fourth.observations


def test_arguments_are_checked(sandbox: Sandbox) -> None:
    for arguments, expected in [(("lab",), "a `Sandbox`"), ((sandbox, "1m"), "above 0"), ((sandbox, 0), "above 0")]:
        with pytest.raises(InvalidArguments, match=expected):
            RingfenceExecutor(arguments[0], **({"timeout": arguments[1]} if len(arguments) > 1 else {}))


def test_modules_that_a_tool_needs_are_checked(sandbox: Sandbox) -> None:
    executor = RingfenceExecutor(sandbox)
    assert executor.install_packages(["json", "xml.dom"]) == ["json", "xml.dom"]
    with pytest.raises(RingfenceError, match=r"\['no_such_module'\]") as missing:
        executor.install_packages(["json", "no_such_module"])
    assert "packages=['no_such_module']" in missing.value.hint


def test_a_failure_of_ours_is_not_told_to_the_model(client: Client) -> None:
    with Sandbox(client=client) as sandbox:
        working = agent(sandbox, "print(1)", "print(2)")
        executor = working.python_executor

        class Ending:
            def __call__(self, code: str) -> Any:
                sandbox.kill()
                return executor(code)

            def __getattr__(self, name: str) -> Any:
                return getattr(executor, name)

        working.python_executor = Ending()
        with pytest.raises(SandboxFailed) as failed:
            working.run("go")
        assert isinstance(failed.value.__cause__, NotFound)
        assert [step for step in working.memory.steps if isinstance(step, ActionStep) and step.error] == []


def test_the_example(tmp_path: Path) -> None:
    world = World(tmp_path)
    command = [sys.executable, str(ROOT / "examples/sdk/smolagents_agent.py")]
    done = subprocess.run(command, env=world.env, cwd=tmp_path, capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (0, "{'sum': 400, 'euros': '4.00 EUR'}\n"), done.stderr
