"""Lines of a session that are no Python but commands, as IPython has them: `!command`, and `%pip`.

Compiled when a session's code first fails to compile. Whatever is Python stays as it is.
"""
import builtins
import os
import shlex
import shutil
import signal
import subprocess
import sys

NAME = "__ringfence_command__"
MAX = 100


def with_command(code, error):
    """The code with a call in place of the command for which it does not compile; None if the error is about something else."""
    lines = code.split("\n")
    at = (error.lineno or 0) - 1
    if not 0 <= at < len(lines):
        return None
    text = lines[at].lstrip()
    if text.startswith("%pip "):
        command = f"{shlex.quote(sys.executable)} -m {text[1:]}"
    elif text.startswith("!"):
        command = text[1:]
    else:
        return None
    indentation = lines[at][: len(lines[at]) - len(text)]
    lines[at] = f"{indentation}{NAME}({command.strip()!r})"
    setattr(builtins, NAME, run)
    return "\n".join(lines)


def run(command):
    """Runs a command whose output is that of the session. Its exit status is `_exit_code`."""
    for stream in (sys.stdout, sys.stderr):
        stream.flush()
    shell = shutil.which("bash") or "sh"
    process = subprocess.Popen([shell, "-c", command], stdin=subprocess.DEVNULL, start_new_session=True)
    try:
        status = process.wait()
    except BaseException:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        raise
    sys.modules["__main__"].__dict__["_exit_code"] = status
