"""Runs a program in Pyodide and tells how it ended. What it prints takes the way of everything that is printed.

bridge.py, port.py and wheels.py are put before this file.
"""
import ast
import atexit
import base64
import contextlib
import inspect
import io
import json
import linecache
import os
import posix
import random
import secrets
import stat
import sys
import threading
import traceback
import types

FILE = "<sandbox>"
HOME, OUTPUT = "/workspace", "/output"
MAX_OUTPUT = 32 * 1024 * 1024
# Ways to JavaScript that a program has no use for. That they are gone is no barrier: what lies behind them can do nothing.
HIDDEN = ("js", "pyodide_js", "pyodide._package_loader", "pyodide.code", "pyodide.http", "pyodide.ffi.wrappers")


def settle():
    """Once in each worker: what all have from the same snapshot and must not share, and packages, which it does not hold."""
    sys.path.append("/packages")
    random.seed(secrets.token_bytes(32))
    for name in list(sys.modules):
        if name in HIDDEN or name.startswith("pyodide_js."):
            del sys.modules[name]
    # All that the event loop asks Pyodide for.
    api = types.ModuleType("pyodide_js._api")
    api.config = types.SimpleNamespace(enableRunUntilComplete=True)
    sys.modules["pyodide_js._api"] = api


# What most programs do.
COMMON = """
class Thing:
    def all(self, x):
        return [x, {x: str(x)}, f"{x:>4}"]
def count(n):
    try:
        return sum(Thing().all(i) is not None for i in range(n)) / 0
    except ZeroDivisionError as error:
        return str(error)
print(count(2))
"""


async def warm_up():
    """Has WebAssembly compiled what each program needs. It leaves nothing that a program could see."""
    await run(json.dumps({"code": COMMON, "args": [], "env": {}, "files": {}}), None, None)


async def run(order, port, end):
    """The status that the program ends with, as CPython would have it, and the files that it left."""
    order = json.loads(order)
    os._exit = posix._exit = lambda status: end(completed(status & 0xFF))
    os.environ.update(order["env"])
    os.makedirs(HOME, exist_ok=True)
    os.makedirs(OUTPUT, exist_ok=True)
    for path, content in order["files"].items():
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(path, "wb") as file:
            file.write(base64.b64decode(content))
    os.chdir(HOME)
    sys.argv = [FILE, *order["args"]]
    status = await ended(order["code"], {} if port is None else {"device": ported_device(port)})
    if end is not None:
        atexit._run_exitfuncs()
    for stream in sys.stdout, sys.stderr:
        # The program may have put something else there, or closed it.
        with contextlib.suppress(Exception):
            stream.flush()
    return completed(status)


def completed(status):
    return json.dumps({"exit_code": status, "files": left()})


async def ended(code, given):
    linecache.cache[FILE] = (len(code), None, io.StringIO(code + "\n", None).readlines(), FILE)
    main = sys.modules["__main__"] = types.ModuleType("__main__")
    vars(main).update(given, __file__=FILE)
    try:
        program = compile(code, FILE, "exec", ast.PyCF_ALLOW_TOP_LEVEL_AWAIT, dont_inherit=True)
        awaitable = eval(program, vars(main))
        if inspect.iscoroutine(awaitable):
            await awaitable
    except SystemExit as left:
        return status(left.code)
    except BaseException as error:
        tell(error)
        return 130 if isinstance(error, KeyboardInterrupt) else 1
    return 0


def status(code):
    if code is None:
        return 0
    if isinstance(code, int):
        return code & 0xFF
    say(f"{code}\n")
    return 1


def say(text):
    with contextlib.suppress(Exception):
        return sys.stderr.write(text)
    # It would be lost where the program has closed the stream, or put something else there.
    with contextlib.suppress(Exception):
        sys.__stderr__.write(text)


def tell(error):
    """Prints a traceback of the program's own frames."""
    told = traceback.TracebackException.from_exception(error)
    chain = [told]
    for each in chain:
        own = [frame for frame in each.stack if frame.filename == FILE]
        each.stack = traceback.StackSummary.from_list(own)
        chain += [other for other in (each.__cause__, each.__context__, *(each.exceptions or ())) if other]
    say("".join(told.format()))


def left():
    """What lies below the output directory, as far as there is room for it."""
    files, room = {}, MAX_OUTPUT
    for directory, _, names in os.walk(OUTPUT):
        for name in names:
            path = os.path.join(directory, name)
            if os.path.islink(path) or os.path.getsize(path) > room:
                say(f"{path} is too large to be kept, or a link\n")
                continue
            with open(path, "rb") as file:
                content = file.read()
            room -= len(content)
            files[os.path.relpath(path, OUTPUT)] = base64.b64encode(content).decode()
    return files
