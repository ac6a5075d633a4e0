"""Runs a program whose functions are its client's tools: each call goes over the bridge, and waits for the client's answer."""


def tool(bridge, entry):
    """The function of a tool, which takes its arguments by name, or in the order of its schema."""
    schema = entry["parameters"] if isinstance(entry["parameters"], dict) else {}
    names = list(schema.get("properties") or {})
    needed = [name for name in names if name in (schema.get("required") or [])]
    names = needed + [name for name in names if name not in needed]

    async def function(*args, **kwargs):
        if len(args) > len(names):
            raise TypeError(f"{entry['function']}() takes {len(names)} arguments, and {len(args)} were given")
        for name, value in zip(names, args):
            if name in kwargs:
                raise TypeError(f"{entry['function']}() got multiple values for the argument {name!r}")
            kwargs[name] = value
        given = {name: value for name, value in kwargs.items() if value is not None}
        try:
            return await bridge.call_at_once(entry["name"], (), given)
        except RuntimeError as error:
            raise ToolExecutionError(str(error)) from None

    function.__name__ = function.__qualname__ = entry["function"]
    function.__doc__ = entry["description"]
    return function


class ToolExecutionError(Exception):
    """A tool failed."""


def compiled(source, path):
    import _ast

    awaiting = _ast.PyCF_ALLOW_TOP_LEVEL_AWAIT
    try:
        return compile(source, path, "exec", awaiting)
    except SyntaxError as error:
        # `return` ends a program that others make a function of.
        indented = "".join("    " + line if line.strip() else line for line in source.splitlines(True))
        wrapped = "async def __user_main__():\n" + indented + "\nawait __user_main__()\n"
        try:
            return compile(wrapped, path, "exec", awaiting)
        except SyntaxError:
            raise error.with_traceback(None) from None


def main(path, tools):
    import asyncio
    import json
    import os
    import sys
    import types
    import typing

    bridge = Bridge(Channel(posix.dup(3)))
    posix.close(3)
    with open(tools) as file:
        entries = json.load(file)
    with open(path) as file:
        source = file.read()
    program = sys.modules["__main__"] = types.ModuleType("__main__")
    program.__file__ = path
    names = vars(program)
    names.update(asyncio=asyncio, json=json, os=os, sys=sys, ToolExecutionError=ToolExecutionError)
    names.update({name: getattr(typing, name) for name in ("Any", "Dict", "List", "Optional", "Union")})
    names.update({entry["function"]: tool(bridge, entry) for entry in entries})
    sys.argv = [path]

    def run():
        code = compiled(source, path)
        if not code.co_flags & 0x80:  # CO_COROUTINE (inspect)
            return exec(code, names)
        return asyncio.run(types.FunctionType(code, names)())

    try:
        run()
    except Exception as error:
        import traceback

        # Without the lines of this file.
        frames = error.__traceback__
        while frames is not None and frames.tb_frame.f_code.co_filename != path:
            frames = frames.tb_next
        traceback.print_exception(type(error), error, frames)
        sys.stdout.flush()
        sys.exit(1)


import posix

main("/mnt/data/.main.py", "/tmp/.tools.json")
