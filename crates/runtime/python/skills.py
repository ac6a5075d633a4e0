"""Serves the functions of one file of skills to the host, over the bridge of the program that this is.

It is given the file with `execute`, says with `complete` what the file offers, and answers calls until the bridge is
closed. docs/protocol/bridge.md says what goes over it.
"""
import asyncio
import collections.abc
import dataclasses
import datetime
import enum
import inspect
import linecache
import os
import sys
import traceback
import types
import typing

# How types are written that are one of several.
UNIONS = (typing.Union, getattr(types, "UnionType", typing.Union))


class LeftOut(Exception):
    """Why a function is not offered."""


def schema(hint):
    """The JSON Schema of a type; None where it says nothing."""
    origin, parts = typing.get_origin(hint), typing.get_args(hint)
    plain = {str: "string", int: "integer", float: "number", bool: "boolean", type(None): "null", None: "null"}
    if origin is None and isinstance(hint, collections.abc.Hashable) and hint in plain:
        return {"type": plain[hint]}
    if origin is typing.Annotated:
        return schema(parts[0])
    if origin in UNIONS:
        return {"anyOf": [schema(part) or {} for part in parts]}
    if origin is typing.Literal:
        return {"enum": list(parts)}
    if hasattr(hint, "__required_keys__"):
        return members(typing.get_type_hints(hint), hint.__required_keys__)
    if isinstance(hint, type) and dataclasses.is_dataclass(hint):
        hints = typing.get_type_hints(hint)
        fields = [field for field in dataclasses.fields(hint) if field.init]
        needed = [
            field.name
            for field in fields
            if field.default is dataclasses.MISSING and field.default_factory is dataclasses.MISSING
        ]
        return members({field.name: hints[field.name] for field in fields}, needed)
    if isinstance(hint, type) and issubclass(hint, enum.Enum):
        return {"enum": [member.value for member in hint]}
    base = origin or hint
    if not isinstance(base, type) or base is object:
        return None
    if issubclass(base, tuple) and parts and parts[-1] is not Ellipsis:
        items = [schema(part) or {} for part in parts]
        return {"type": "array", "prefixItems": items, "minItems": len(items), "maxItems": len(items)}
    if issubclass(base, collections.abc.Mapping):
        return {"type": "object", "additionalProperties": schema(parts[1]) or {} if len(parts) == 2 else {}}
    if issubclass(base, (list, tuple, set, frozenset)) or base in (collections.abc.Sequence, collections.abc.Iterable):
        return {"type": "array", "items": schema(parts[0]) or {} if parts else {}}
    if issubclass(base, (datetime.date, datetime.time)):
        return {"type": "string"}
    return None


def members(hints, needed):
    properties = {name: schema(hint) or {} for name, hint in hints.items()}
    return {"type": "object", "properties": properties, "required": sorted(needed), "additionalProperties": False}


def revive(hint, value):
    """An argument as its function expects it."""
    origin, parts = typing.get_origin(hint), typing.get_args(hint)
    if origin is typing.Annotated:
        return revive(parts[0], value)
    if origin in UNIONS:
        for part in parts:
            revived = revive(part, value)
            if revived is not value:
                return revived
        return value
    if isinstance(value, list):
        base = origin or hint
        each = parts if base is tuple and parts[1:2] != (Ellipsis,) else parts[:1] * len(value)
        made = [revive(part, item) for part, item in zip(each, value)] if each else value
        return base(made) if base in (tuple, set, frozenset) else made
    if isinstance(value, dict) and isinstance(hint, type) and dataclasses.is_dataclass(hint):
        hints = typing.get_type_hints(hint)
        return hint(**{name: revive(hints[name], part) for name, part in value.items()})
    if isinstance(hint, type) and issubclass(hint, enum.Enum) and not isinstance(value, enum.Enum):
        return hint(value) if value in [member.value for member in hint] else value
    if isinstance(value, str) and hint in (datetime.date, datetime.datetime, datetime.time):
        return hint.fromisoformat(value)
    return value


def plain(value):
    """A result as JSON carries it."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {field.name: plain(getattr(value, field.name)) for field in dataclasses.fields(value)}
    if isinstance(value, enum.Enum):
        return plain(value.value)
    if isinstance(value, (datetime.date, datetime.time)):
        return value.isoformat()
    if isinstance(value, (list, tuple, set, frozenset)):
        return [plain(part) for part in value]
    if isinstance(value, dict):
        return {key: plain(part) for key, part in value.items()}
    if isinstance(value, os.PathLike):
        return os.fspath(value)
    return value


def shown(hint):
    if hint is inspect.Parameter.empty:
        return None
    return hint if isinstance(hint, str) else inspect.formatannotation(hint)


class Function:
    """A public method of a skill."""

    def __init__(self, path, method):
        self.path, self.method = path, method
        self.signature = inspect.signature(method)
        try:
            self.hints = typing.get_type_hints(method)
        except Exception as error:
            raise LeftOut(f"its types cannot be understood: {error}") from None

    def parameter(self, given):
        if given.kind in (given.VAR_POSITIONAL, given.VAR_KEYWORD):
            raise LeftOut(f"it takes any number of arguments (`{given}`)")
        hint = self.hints.get(given.name)
        return {
            "name": given.name,
            "kind": given.kind.name.lower(),
            "annotation": shown(given.annotation),
            "default": None if given.default is given.empty else repr(given.default),
            "schema": None if hint is None else schema(hint),
        }

    def declared(self):
        returns = self.hints.get("return")
        return {
            "path": self.path,
            "doc": inspect.getdoc(self.method) or "",
            "parameters": [self.parameter(given) for given in self.signature.parameters.values()],
            "returns": shown(self.signature.return_annotation),
            # What says that it returns nothing at all is not held to it.
            "result": None if returns in (None, type(None)) else schema(returns),
        }

    def call(self, arguments):
        """What the method returns: its value, or what has to be awaited for that."""
        by_place, by_name = [], {}
        for given in self.signature.parameters.values():
            if given.name not in arguments:
                continue
            value = revive(self.hints.get(given.name), arguments[given.name])
            if given.kind is given.POSITIONAL_ONLY:
                by_place.append(value)
            else:
                by_name[given.name] = value
        return self.method(*by_place, **by_name)


def is_skill(name, thing, module):
    if not isinstance(thing, type) or name.startswith("_") or thing.__module__ != module.__name__:
        return False
    if hasattr(module, "__all__"):
        return name in module.__all__
    return not (issubclass(thing, (BaseException, enum.Enum, tuple, dict)) or dataclasses.is_dataclass(thing))


def load(file, code):
    """The functions that a file offers, and why others are left out."""
    module = types.ModuleType(file.removesuffix(".py"))
    module.__file__ = file
    sys.modules[module.__name__] = module
    linecache.cache[file] = (len(code), None, code.splitlines(True), file)
    exec(compile(code, file, "exec", dont_inherit=True), module.__dict__)
    functions, left_out = {}, []
    for skill, thing in vars(module).items():
        if not is_skill(skill, thing, module):
            continue
        instance = thing()
        for name in dir(thing):
            if name.startswith("_") or not inspect.isroutine(getattr(thing, name)):
                continue
            path = f"{skill}.{name}"
            try:
                function = Function(path, getattr(instance, name))
                function.declaration = function.declared()
                functions[path] = function
            except LeftOut as why:
                left_out.append(f"`{path}` is not offered: {why}")
    return functions, left_out


def fault(error):
    words = traceback.format_exception_only(type(error), error)
    return {"kind": "failed", "error": "".join(words).strip()}


class Server:
    def __init__(self, channel, functions):
        self.channel, self.functions = channel, functions
        self.tasks = {}

    def say(self, kind, id, data):
        try:
            self.channel.check(data)
            line = self.channel.line(kind, id, data)
        except (TypeError, ValueError) as error:
            line = self.channel.line("error", id, fault(error))
        self.channel.write(line, lambda: None)

    def answer(self, id, outcome):
        """Says what came of a call, where `outcome` gives its value or raises."""
        try:
            value = plain(outcome())
        except asyncio.CancelledError:
            return self.say("error", id, {"kind": "cancelled", "error": "taken back"})
        except Exception as error:
            return self.say("error", id, fault(error))
        self.say("result", id, {"value": value})

    def begin(self, message):
        call = message["data"]
        return self.functions[call["path"]].call(call["kwargs"])

    def serve(self):
        """One call after the other."""
        import select

        ready = select.poll()
        ready.register(self.channel.descriptor, select.POLLIN)
        while self.channel.closed is None:
            for message in self.channel.read():
                if message["type"] == "call":
                    self.answer(message["id"], lambda: self.begin(message))
            ready.poll()

    async def serve_at_once(self):
        """Coroutines at once; what is none holds the others up."""
        loop, over = asyncio.get_running_loop(), asyncio.Event()

        def hear():
            for message in self.channel.read():
                if message["type"] == "call":
                    task = loop.create_task(self.attend(message))
                    self.tasks[message["id"]] = task
                elif task := self.tasks.get(message["id"]):
                    task.cancel()
            if self.channel.closed is not None:
                over.set()

        loop.add_reader(self.channel.descriptor, hear)
        await over.wait()

    async def attend(self, message):
        id = message["id"]
        try:
            value = self.begin(message)
            if inspect.isawaitable(value):
                value = await value
            self.answer(id, lambda: value)
        except BaseException as error:
            raised = error

            def outcome():
                raise raised

            self.answer(id, outcome)
        finally:
            del self.tasks[id]


def first(channel):
    import select

    while channel.closed is None:
        for message in channel.read():
            return message
        ready = select.poll()
        ready.register(channel.descriptor, select.POLLIN)
        ready.poll()
    raise SystemExit


def main(channel):
    message = first(channel)
    server = Server(channel, {})
    try:
        server.functions, left_out = load(message["data"]["file"], message["data"]["code"])
    except BaseException as error:
        server.say("error", message["id"], fault(error))
        # The host ends this process once it has heard that; by itself it could end before.
        return first(channel)
    offered = [function.declaration for function in server.functions.values()]
    server.say("complete", message["id"], {"functions": offered, "left_out": left_out})
    if any(inspect.iscoroutinefunction(function.method) for function in server.functions.values()):
        asyncio.run(server.serve_at_once())
    else:
        server.serve()


main(device._bridge().channel)
