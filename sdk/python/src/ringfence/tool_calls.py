"""Tool calls of OpenAI and Anthropic, answered by a sandbox: their JSON in, their JSON out.

The calls are what the clients have as dictionaries (`item.model_dump()`), and the answers are what they take. Nothing
but the package itself is needed. What the server failed at is an exception, and never an answer for the model. A call that the model
made wrongly is answered with an error that says what was expected and found.
"""

from __future__ import annotations

import json
from typing import Any, Dict, List, Mapping, Optional, Union

from . import CommandResult, Sandbox
from ._arguments import MAX_SHOWN, check_sandbox, positive_seconds, unexpected
from ._ends import exit_status, not_started, why_cut
from .errors import ApiError, InvalidArguments

__all__ = [
    "anthropic_bash",
    "anthropic_bash_code_execution",
    "anthropic_code_execution",
    "openai_local_shell",
    "openai_shell",
]

Json = Dict[str, Any]

TIMEOUT = 10 * 60
"""Seconds that a command has, unless the call says otherwise."""

USAGE = 2
"""Exit status for a malformed call, as shells have it for wrong usage."""


def openai_shell(sandbox: Sandbox, call: Mapping[str, Any], *, timeout: float = TIMEOUT) -> Json:
    """Answers a `shell_call` of the Responses API with a `shell_call_output`.

    The commands run one after the other, whatever the status of those before. The time limit is that of all together.
    """
    given = _call(sandbox, call)
    call_id, timeout = _id(given), positive_seconds(timeout)
    answer: Json = {"type": "shell_call_output", "call_id": call_id, "status": "completed"}
    try:
        action = _action(given, "shell_call")
        commands = _texts(action, "commands")
        limit = _member(action, "action", "max_output_length", int, "a number of characters", None)
        left = _seconds(action, timeout)
    except _Unusable as error:
        return {**answer, "output": [_shell_output(_failed(error), None)]}
    output: List[Json] = []
    for command in commands:
        if left <= 0:
            output.append({"stdout": "", "stderr": "", "outcome": {"type": "timeout"}})
            continue
        result = _started(sandbox, command, timeout=left)
        left -= result.duration or 0.0
        output.append(_shell_output(result, limit))
    if limit is not None:
        answer["max_output_length"] = limit
    return {**answer, "output": output}


def _shell_output(result: CommandResult, limit: Optional[int]) -> Json:
    outcome: Json = {"type": "exit", "exit_code": exit_status(result)}
    if result.outcome == "timed_out":
        outcome = {"type": "timeout"}
    stdout = result.stdout[:limit]
    # The limit is that of both streams together.
    stderr = result.stderr if limit is None else result.stderr[: limit - len(stdout)]
    return {"stdout": stdout, "stderr": stderr, "outcome": outcome}


def openai_local_shell(sandbox: Sandbox, call: Mapping[str, Any], *, timeout: float = TIMEOUT) -> Json:
    """Answers a `local_shell_call` of the Responses API with a `local_shell_call_output`.

    `user` is not obeyed: a sandbox has one user.
    """
    given = _call(sandbox, call)
    call_id, timeout = _id(given), positive_seconds(timeout)
    try:
        action = _action(given, "local_shell_call")
        result = _started(
            sandbox,
            _texts(action, "command"),
            cwd=_member(action, "action", "working_directory", str, "a path", None),
            env=_member(action, "action", "env", Mapping, "an object", None),
            timeout=_seconds(action, timeout),
        )
    except _Unusable as error:
        result = _failed(error)
    output = {"stdout": result.stdout, "stderr": result.stderr, "exit_code": exit_status(result)}
    if result.outcome == "timed_out":
        output["timed_out"] = True
    return {"type": "local_shell_call_output", "id": call_id, "output": json.dumps(output), "status": "completed"}


def anthropic_bash(sandbox: Sandbox, block: Mapping[str, Any], *, timeout: float = TIMEOUT) -> Json:
    """Answers a `tool_use` of the tool `bash` with a `tool_result`.

    The shell stays from call to call, with its directory and variables; `restart` ends it.
    """
    use = _call(sandbox, block)
    call_id, timeout = _id(use), positive_seconds(timeout)
    answer: Json = {"type": "tool_result", "tool_use_id": call_id}
    try:
        given = _input(use, "bash")
        if _member(given, "input", "restart", bool, "true or false", False):
            for context in sandbox.contexts.list():
                if context.language == "bash":
                    sandbox.contexts.remove(context)
            return {**answer, "content": "the shell was restarted"}
        execution = sandbox.run_code(_member(given, "input", "command", str, "a line for the shell"), "bash", timeout=timeout)
    except (_Unusable, InvalidArguments) as error:
        return {**answer, "content": str(error), "is_error": True}
    parts = ["".join(execution.logs.stdout), "".join(execution.logs.stderr)]
    restarted = "; the shell was restarted" if execution.context_ended else ""
    if execution.outcome != "exited":
        parts.append(f"[{execution.outcome}{restarted}]")
    elif execution.exit_code or restarted:
        parts.append(f"[exit status {execution.exit_code}{restarted}]")
    text = "\n".join(part.rstrip("\n") for part in parts if part)
    return {**answer, "content": text, "is_error": execution.error is not None}


def anthropic_bash_code_execution(
    sandbox: Sandbox, block: Mapping[str, Any], *, timeout: float = TIMEOUT
) -> Json:
    """Answers a use of `bash_code_execution` with a `bash_code_execution_tool_result`.

    For programs that stand in for Anthropic's own execution: the API itself takes no such results from a client.
    """
    return _execution("bash_code_execution", sandbox, block, "command", [], timeout)


def anthropic_code_execution(sandbox: Sandbox, block: Mapping[str, Any], *, timeout: float = TIMEOUT) -> Json:
    """Answers a use of `code_execution`, whose code is Python, with a `code_execution_tool_result`."""
    return _execution("code_execution", sandbox, block, "code", ["python3", "-c"], timeout)


def _execution(
    kind: str, sandbox: Sandbox, block: Mapping[str, Any], member: str, program: List[str], timeout: float
) -> Json:
    use = _call(sandbox, block)
    call_id, timeout = _id(use), positive_seconds(timeout)
    try:
        code = _member(_input(use, kind), "input", member, str, "a text")
        result = _started(sandbox, [*program, code] if program else code, timeout=timeout)
    except _Unusable as error:
        result = _failed(error)
    status = exit_status(result)
    content: Json = {
        "type": f"{kind}_result",
        "stdout": result.stdout,
        "stderr": _with_reason(result),
        "return_code": status,
        "content": [],
    }
    if result.outcome == "timed_out":
        content = {"type": f"{kind}_tool_result_error", "error_code": "execution_time_exceeded"}
    return {"type": f"{kind}_tool_result", "tool_use_id": call_id, "content": content}


def _with_reason(result: CommandResult) -> str:
    return "\n".join(part for part in (result.stderr.rstrip("\n"), why_cut(result)) if part)


def _started(sandbox: Sandbox, command: Union[str, List[str]], **options: Any) -> CommandResult:
    """Runs a command. What cannot be started has the status that a shell gives it."""
    try:
        return sandbox.commands.run(command, **options)
    except ApiError as error:
        status = not_started(error)
        if status is None and isinstance(error, InvalidArguments):
            # The command, directory and variables are the model's; the rest was checked before.
            status = USAGE
        if status is None:
            raise
        return CommandResult(status, "exited", stderr=error.message)


class _Unusable(Exception):
    """A call that its model must make in another way."""


def _failed(error: _Unusable) -> CommandResult:
    return CommandResult(USAGE, "exited", stderr=str(error))


def _call(sandbox: Sandbox, call: Any) -> Mapping[str, Any]:
    """Returns a call as a dictionary: the clients' objects make one of themselves."""
    check_sandbox(sandbox)
    found = call.model_dump() if hasattr(call, "model_dump") else call
    if not isinstance(found, Mapping):
        raise unexpected("a call as a dictionary", "call", call, "pass `item.model_dump()` of an object of the client")
    return found


def _id(call: Mapping[str, Any]) -> str:
    """Returns the id by which the answer is found. Without one there is nobody to answer."""
    found = call.get("call_id") or call.get("id")
    if not isinstance(found, str):
        raise unexpected("a call with an id as `call_id` or `id`", "call", call)
    return found


_REQUIRED: Any = object()


def _member(owner: Mapping[str, Any], place: str, name: str, kind: Any, expected: str, otherwise: Any = _REQUIRED) -> Any:
    value = owner.get(name)
    if value is None and otherwise is not _REQUIRED:
        return otherwise
    is_bool_as_number = isinstance(value, bool) and kind is not bool
    if not isinstance(value, kind) or is_bool_as_number or (isinstance(value, (int, float)) and value < 0):
        raise _Unusable(f"expected {expected} as `{place}.{name}`, found {_shown(value)}")
    return value


def _shown(value: Any) -> str:
    if value is None:
        return "nothing"
    text = json.dumps(value, default=lambda each: type(each).__name__)
    return text if len(text) <= MAX_SHOWN else f"{text[:MAX_SHOWN]}…"


def _texts(action: Mapping[str, Any], name: str) -> List[str]:
    found = _member(action, "action", name, (list, tuple), "a list of texts")
    if not found or not all(isinstance(each, str) for each in found):
        raise _Unusable(f"expected a list of texts as `action.{name}`, found {_shown(found)}")
    return list(found)


def _action(call: Mapping[str, Any], kind: str) -> Mapping[str, Any]:
    if call.get("type", kind) != kind:
        raise _Unusable(f"expected a call of the type `{kind}`, found {_shown(call.get('type'))}")
    action: Mapping[str, Any] = _member(call, "call", "action", Mapping, "an object")
    return action


def _input(use: Mapping[str, Any], tool: str) -> Mapping[str, Any]:
    if use.get("name", tool) != tool:
        raise _Unusable(f"expected a use of the tool `{tool}`, found {_shown(use.get('name'))}")
    given: Mapping[str, Any] = _member(use, "call", "input", Mapping, "an object")
    return given


def _seconds(action: Mapping[str, Any], otherwise: float) -> float:
    milliseconds = _member(action, "action", "timeout_ms", (int, float), "a number of milliseconds", None)
    return otherwise if milliseconds is None else milliseconds / 1000
