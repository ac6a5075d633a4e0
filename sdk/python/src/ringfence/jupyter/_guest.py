"""The program that answers a front end's questions, in the sandbox. Here it is text alone, and never runs."""

from __future__ import annotations

import json
from typing import Any

ERROR = "application/vnd.ringfence.error+json"
"""Media type of an exception that ended a cell."""

ANSWER = "application/vnd.ringfence.answer+json"
"""Media type of the answer to a question."""

DISPLAY = "application/vnd.ringfence.display+json"
"""Media type of the mark on a result that can be updated."""

_MODULE = "ringfence_jupyter"

_SOURCE = r'''
import builtins, codeop, inspect, json, keyword, os, re, sys, traceback, warnings

MAX_MATCHES, MAX_TEXT, MAX_RESULTS = 1000, 100_000, 32
DOTTED = re.compile(r"[^\W\d]\w*(?:\.[^\W\d]\w*)*")
main, process, show = sys.modules["__main__"].__dict__, os.getpid(), builtins.display


def told(error):
    try:
        value = str(error)
    except Exception:
        value = "<exception str() failed>"
    return {"name": type(error).__name__, "value": value.encode("utf-8", "backslashreplace").decode()[:MAX_TEXT]}


def report(kind, value, trace):
    """Sends the exception of a cell to the kernel, which shows it as an error, and not as output."""
    shown = getattr(getattr(getattr(show, "__self__", None), "results", None), "count", 0)
    # A process that the code forked has no results, and a cell that showed much has no room for another.
    if os.getpid() != process or shown >= MAX_RESULTS:
        return sys.__excepthook__(kind, value, trace)
    text = "".join(traceback.format_exception(kind, value, trace))
    text = text.encode("utf-8", "backslashreplace").decode()
    show({ERROR: {**told(value), "traceback": text[-MAX_TEXT:]}}, raw=True)


def find(path):
    name, *rest = path.split(".")
    value = main[name] if name in main else getattr(builtins, name)
    for each in rest:
        value = getattr(value, each)
    return value


def complete(code, cursor):
    word = re.search(r"(?:[^\W\d]\w*\.)*(?:[^\W\d]\w*)?$", code[:cursor]).group()
    path, _, last = word.rpartition(".")
    names = dir(find(path)) if path else {*main, *dir(builtins), *keyword.kwlist}
    hidden = not last.startswith("_")
    matches = sorted(n for n in names if n.startswith(last) and not (hidden and n.startswith("_")))
    return {"matches": matches[:MAX_MATCHES], "start": cursor - len(last)}


def describe(code, cursor, detail):
    end = re.compile(r"\w*").match(code, cursor).end()
    path = DOTTED.findall(code[:end])[-1]
    value = find(path)
    lines = []
    try:
        lines.append(f"Signature: {path}{inspect.signature(value)}")
    except (TypeError, ValueError):
        lines.append(f"Value: {repr(value)[:1000]}")
    lines += [f"Type: {type(value).__name__}", "", inspect.getdoc(value) or ""]
    if detail:
        try:
            lines += ["", inspect.getsource(value)]
        except (OSError, TypeError):
            pass
    return {"text": "\n".join(lines).rstrip()[:MAX_TEXT]}


def has_commands(code):
    """Whether code of notebooks compiles once its commands are calls."""
    try:
        show.__self__.shell().parse(code)
    except Exception:
        return False
    return True


def is_complete(code):
    compiler = codeop.CommandCompiler()
    compiler.compiler.flags |= 0x2000  # ast.PyCF_ALLOW_TOP_LEVEL_AWAIT
    last = code.rsplit("\n", 1)[-1]
    indent = re.match(r"[ \t]*", last).group() + ("    " if last.rstrip().endswith(":") else "")
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            compiled = compiler(code, "<cell>", "exec")
    except (SyntaxError, OverflowError, ValueError):
        return {"status": "complete" if has_commands(code) else "invalid"}
    # As at a prompt, an empty line ends a block.
    if compiled is None or (last[:1] in (" ", "\t") and last.strip()):
        return {"status": "incomplete", "indent": indent}
    return {"status": "complete"}


def evaluate(expressions):
    answers = {}
    for name, expression in expressions.items():
        try:
            answers[name] = {"text": repr(eval(expression, main))[:MAX_TEXT]}
        except BaseException as error:
            answers[name] = told(error)
    return answers


def answer(function, *arguments):
    show({ANSWER: globals()[function](*arguments)}, raw=True)


sys.excepthook = report
# Front ends can show an update of what an earlier cell displayed.
show.__self__.marked = True
'''


def prelude() -> str:
    """Returns the code that a Python interpreter runs before the first cell."""
    source = f"ERROR, ANSWER = {ERROR!r}, {ANSWER!r}\n{_SOURCE}"
    return f"""\
import sys
sys.modules[{_MODULE!r}] = type(sys)({_MODULE!r})
exec(compile({source!r}, "<ringfence.jupyter>", "exec"), sys.modules[{_MODULE!r}].__dict__)
print(sys.version.split()[0])
del sys
"""


def question(function: str, *arguments: Any) -> str:
    """Returns the code that has a question answered. It leaves no name and no value behind."""
    given = json.dumps([function, *arguments])
    return f"__import__({_MODULE!r}).answer(*__import__({_MODULE!r}).json.loads({given!r}))"
