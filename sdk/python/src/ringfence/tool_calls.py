"""Tool calls of OpenAI and Anthropic, answered by a sandbox: their JSON in, their JSON out.

The calls are what the clients have as dictionaries (`item.model_dump()`), and the answers are what they take. Nothing
but the package itself is needed. What the server failed at is an exception, and never an answer for the model.
"""

from __future__ import annotations

import json
from typing import Any, Dict, List, Mapping, Optional

from . import CommandResult, Sandbox
from ._ends import exit_status, not_started, why_cut
from .errors import ApiError

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


def openai_shell(sandbox: Sandbox, call: Mapping[str, Any], *, timeout: float = TIMEOUT) -> Json:
    """Answers a `shell_call` of the Responses API with a `shell_call_output`.

    The commands run one after the other, whatever the status of those before. The time limit is that of all together.
    """
    action = call["action"]
    limit = action.get("max_output_length")
    left = _seconds(action.get("timeout_ms"), timeout)
    output: List[Json] = []
    for command in action["commands"]:
        if left <= 0:
            output.append({"stdout": "", "stderr": "", "outcome": {"type": "timeout"}})
            continue
        result = sandbox.commands.run(command, timeout=left)
        left -= result.duration or 0.0
        output.append(_shell_output(result, limit))
    answer: Json = {"type": "shell_call_output", "call_id": call["call_id"], "output": output, "status": "completed"}
    if limit is not None:
        answer["max_output_length"] = limit
    return answer


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
    action = call["action"]
    result = _started(
        sandbox,
        list(action["command"]),
        cwd=action.get("working_directory"),
        env=action.get("env"),
        timeout=_seconds(action.get("timeout_ms"), timeout),
    )
    output = {"stdout": result.stdout, "stderr": result.stderr, "exit_code": exit_status(result)}
    if result.outcome == "timed_out":
        output["timed_out"] = True
    return {"type": "local_shell_call_output", "id": call["call_id"], "output": json.dumps(output), "status": "completed"}


def anthropic_bash(sandbox: Sandbox, block: Mapping[str, Any], *, timeout: float = TIMEOUT) -> Json:
    """Answers a `tool_use` of the tool `bash` with a `tool_result`.

    The shell stays from call to call, with its directory and variables; `restart` ends it.
    """
    given = block["input"]
    answer: Json = {"type": "tool_result", "tool_use_id": block["id"]}
    if given.get("restart"):
        for context in sandbox.contexts.list():
            if context.language == "bash":
                sandbox.contexts.remove(context)
        return {**answer, "content": "the shell was restarted"}
    execution = sandbox.run_code(given["command"], "bash", timeout=timeout)
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
    result = sandbox.commands.run(block["input"]["command"], timeout=timeout)
    return _execution("bash_code_execution", block, result)


def anthropic_code_execution(sandbox: Sandbox, block: Mapping[str, Any], *, timeout: float = TIMEOUT) -> Json:
    """Answers a use of `code_execution`, whose code is Python, with a `code_execution_tool_result`."""
    result = sandbox.commands.run(["python3", "-c", block["input"]["code"]], timeout=timeout)
    return _execution("code_execution", block, result)


def _execution(kind: str, block: Mapping[str, Any], result: CommandResult) -> Json:
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
    return {"type": f"{kind}_tool_result", "tool_use_id": block["id"], "content": content}


def _with_reason(result: CommandResult) -> str:
    return "\n".join(part for part in (result.stderr.rstrip("\n"), why_cut(result)) if part)


def _started(sandbox: Sandbox, command: List[str], **options: Any) -> CommandResult:
    """Runs a command. What cannot be started has the status that a shell gives it."""
    try:
        return sandbox.commands.run(command, **options)
    except ApiError as error:
        status = not_started(error)
        if status is None:
            raise
        return CommandResult(status, "exited", stderr=error.message)


def _seconds(milliseconds: Optional[int], otherwise: float) -> float:
    return otherwise if milliseconds is None else milliseconds / 1000
