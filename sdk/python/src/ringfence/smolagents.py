"""Sandboxes for code agents of smolagents: `pip install ringfence[smolagents]`."""

from __future__ import annotations

from typing import Any, Dict, List, Optional

try:
    from smolagents import AgentError, AgentLogger, LogLevel, Tool
    from smolagents.local_python_executor import CodeOutput
    from smolagents.remote_executors import RemotePythonExecutor
    from smolagents.utils import truncate_content
except ImportError as error:
    raise ImportError("ringfence.smolagents needs the package smolagents: install ringfence[smolagents]") from error

from . import Execution, Sandbox
from ._arguments import check_sandbox, positive_seconds
from ._sync.sandbox import MAX_OUTPUT
from .errors import RingfenceError

__all__ = ["RingfenceExecutor", "SandboxFailed"]

TIMEOUT = 60
"""Seconds that a step has, unless the caller says otherwise."""

# Names of packages whose module has another one.
_MODULES = {"pillow": "PIL", "beautifulsoup4": "bs4", "scikit-learn": "sklearn", "opencv-python": "cv2"}

_KEPT = "variables and imports are kept, those from before it and those that it had made"
_LOST = "the interpreter was lost, and with it all variables; tools and the task's variables are there again"


class SandboxFailed(BaseException):
    """The server or the sandbox failed, and the code did not. `__cause__` is the exception of `ringfence`.

    smolagents tells the model every `Exception` as an error of its code, and goes on. So this one is none.
    """


class RingfenceExecutor(RemotePythonExecutor):
    """An executor for `CodeAgent(executor=...)`: the agent's code runs in a Python interpreter of a sandbox.

    The sandbox is the caller's, who kills it. What comes out of it is read as JSON, and never as a pickle.
    """

    def __init__(
        self, sandbox: Sandbox, *, timeout: float = TIMEOUT, logger: Optional[AgentLogger] = None
    ) -> None:
        super().__init__([], logger or AgentLogger(level=LogLevel.ERROR), allow_pickle=False)
        self._sandbox: Sandbox = check_sandbox(sandbox)
        self._timeout = positive_seconds(timeout)
        self._defined: List[str] = []
        self._lost = False

    def __call__(self, code_action: str) -> CodeOutput:
        """Runs a step. An exception of the code, and a step that goes past its time, are `AgentError`."""
        execution = self._run(code_action)
        logs = "".join(execution.logs.stdout)
        error = execution.error
        if error is None:
            return CodeOutput(output=execution.text, logs=logs, is_final_answer=False)
        # A class that a function defines has the function's name before its own.
        if error.name.rpartition(".")[2] == self.FINAL_ANSWER_EXCEPTION:
            if execution.truncated:
                raise AgentError(f"the answer is longer than {MAX_OUTPUT} characters", self.logger)
            return CodeOutput(output=self._deserialize_final_answer(error.value), logs=logs, is_final_answer=True)
        raise AgentError(self._model_output(execution), self.logger)

    def run_code_raise_errors(self, code: str) -> CodeOutput:
        """Runs the definitions of tools and variables. They are there again in a new interpreter."""
        execution = self._run(code)
        if execution.error is not None:
            raise AgentError(self._model_output(execution), self.logger)
        self._defined = [each for each in self._defined if each != code] + [code]
        return CodeOutput(output=execution.text, logs="".join(execution.logs.stdout), is_final_answer=False)

    def install_packages(self, additional_imports: List[str]) -> List[str]:
        """Checks that the sandbox's Python has the packages that tools need. It installs none."""
        modules = [_MODULES.get(name, name).partition(".")[0] for name in additional_imports]
        code = f"import importlib.util\n[name for name in {modules!r} if importlib.util.find_spec(name) is None]"
        missing = self._run(code).text or ""
        if missing != "[]":
            names = [name for name, module in zip(additional_imports, modules) if repr(module) in missing]
            raise RingfenceError(
                f"the sandbox's Python lacks modules that tools need: {missing}",
                f"create it with `packages={names!r}`, or name them in the server's `packages.default`",
            )
        return additional_imports

    def _run(self, code: str) -> Execution:
        try:
            if self._lost:
                for each in self._defined:
                    again = self._sandbox.run_code(each, "python", timeout=self._timeout)
                    if again.error is not None:
                        raise SandboxFailed(f"tools and variables cannot be defined again: {again.error}")
                self._lost = False
            # With a callback the output is a stream, of which more is kept: an answer comes at its end.
            execution = self._sandbox.run_code(code, "python", timeout=self._timeout, on_stderr=lambda _: None)
        except RingfenceError as error:
            raise SandboxFailed(str(error)) from error
        self._lost = execution.context_ended
        if execution.outcome in ("unknown", "cancelled"):
            raise SandboxFailed("; ".join(execution.warnings) or f"the end of the code is {execution.outcome}")
        return execution

    def _model_output(self, execution: Execution) -> str:
        error = execution.error
        parts = ["".join(execution.logs.stdout), "Executing code yielded an error:"]
        if error is not None:
            parts += [str(error), error.traceback]
        if execution.outcome == "timed_out":
            parts.append(f"the step was stopped at its time limit of {self._timeout:g} s: take smaller steps")
        if execution.context_ended:
            parts.append(_LOST)
        elif execution.interrupted:
            parts.append(_KEPT)
        return "\n".join(truncate_content(part) for part in parts if part)
