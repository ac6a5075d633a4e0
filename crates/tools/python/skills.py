"""Serves the functions of one file of skills to the host, over the bridge of the program that this is.

It is given the file with `execute`, says with `complete` what the file offers, and answers calls until the bridge is
closed. docs/protocol/bridge.md says what goes over it.
"""
import ast
import asyncio
import collections.abc
import dataclasses
import datetime
import enum
import importlib.machinery
import inspect
import io
import linecache
import os
import re
import sys
import traceback
import types
import typing

CHANNEL = device._bridge().channel

# How types are written that are one of several.
UNIONS = (typing.Union, getattr(types, "UnionType", typing.Union))


class LeftOut(Exception):
    """Why a function is not offered."""


class Unfit(Exception):
    """Why an argument is none of its type."""


def scalars(hint, values):
    """Values that JSON carries as they are, in place of these."""
    values = [value.value if isinstance(value, enum.Enum) else value for value in values]
    if all(value is None or isinstance(value, (str, int, float)) for value in values):
        return values
    raise LeftOut(f"`{shown(hint)}` has values that JSON does not carry")


def schema(hint, around=()):
    """The JSON Schema of a type, within these; None where it says nothing."""
    origin, parts = typing.get_origin(hint), typing.get_args(hint)
    plain = {str: "string", int: "integer", float: "number", bool: "boolean", type(None): "null", None: "null"}
    if origin is None and isinstance(hint, collections.abc.Hashable) and hint in plain:
        return {"type": plain[hint]}
    if origin is typing.Annotated:
        return schema(parts[0], around)
    if hasattr(hint, "__supertype__"):
        return schema(hint.__supertype__, around)
    if origin in UNIONS:
        return {"anyOf": [schema(part, around) or {} for part in parts]}
    if origin is typing.Literal:
        return {"enum": scalars(hint, parts)}
    if (within := members(hint)) is not None:
        if hint in around:
            return {"type": "object"}
        around += (hint,)
        return {
            "type": "object",
            "properties": {name: schema(part, around) or {} for name, (part, _) in within.items()},
            "required": sorted(name for name, (_, needed) in within.items() if needed),
            "additionalProperties": False,
        }
    if isinstance(hint, type) and issubclass(hint, enum.Enum):
        return {"enum": scalars(hint, hint)}
    base = origin or hint
    if not isinstance(base, type) or base is object:
        return None
    if issubclass(base, tuple) and parts and parts[-1] is not Ellipsis:
        items = [schema(part, around) or {} for part in parts]
        return {"type": "array", "prefixItems": items, "minItems": len(items), "maxItems": len(items)}
    if issubclass(base, collections.abc.Mapping):
        return {"type": "object", "additionalProperties": schema(parts[1], around) or {} if len(parts) == 2 else {}}
    if issubclass(base, (list, tuple, set, frozenset)) or base in (collections.abc.Sequence, collections.abc.Iterable):
        return {"type": "array", "items": schema(parts[0], around) or {} if parts else {}}
    if issubclass(base, (datetime.date, datetime.time)):
        return {"type": "string"}
    return None


def members(hint):
    """What a type with named parts holds, each with its type and whether it must be given; None for other types."""
    if hasattr(hint, "__required_keys__"):
        return {name: (part, name in hint.__required_keys__) for name, part in typing.get_type_hints(hint).items()}
    if not isinstance(hint, type) or not dataclasses.is_dataclass(hint):
        return None
    hints = typing.get_type_hints(hint)

    def needed(field):
        return field.default is dataclasses.MISSING and field.default_factory is dataclasses.MISSING

    return {field.name: (hints[field.name], needed(field)) for field in dataclasses.fields(hint) if field.init}


def explain(hint, known):
    """Puts into `known` what a program is to write for a type that has a name, and for those in it."""
    for part in typing.get_args(hint):
        explain(part, known)
    if not isinstance(hint, type) or hint.__name__ in known:
        return
    if (within := members(hint)) is not None:
        known[hint.__name__] = ""
        parts = [f"{name!r}: {shown(part)}{'' if needed else ' (optional)'}" for name, (part, needed) in within.items()]
        known[hint.__name__] = "{" + ", ".join(parts) + "}"
        for part, _ in within.values():
            explain(part, known)
    elif issubclass(hint, enum.Enum):
        known[hint.__name__] = " or ".join(repr(member.value) for member in hint)
    elif issubclass(hint, (datetime.date, datetime.time)):
        example = {"date": "2026-05-31", "time": "14:30:00"}.get(hint.__name__, "2026-05-31T14:30:00")
        known[shown(hint)] = f"a text such as {example!r}"


def revive(hint, value):
    """An argument as its function expects it."""
    origin, parts = typing.get_origin(hint), typing.get_args(hint)
    if origin is typing.Annotated:
        return revive(parts[0], value)
    if hasattr(hint, "__supertype__"):
        return revive(hint.__supertype__, value)
    if origin in UNIONS:
        return revive_one_of(parts, value)
    if hint is int and isinstance(value, float):
        # JSON Schema takes 3.0 for a whole number.
        return int(value)
    if isinstance(value, list):
        base = origin or hint
        each = parts if base is tuple and parts[1:2] != (Ellipsis,) else parts[:1] * len(value)
        made = [revive(part, item) for part, item in zip(each, value)] if each else value
        return base(made) if base in (tuple, set, frozenset) else made
    if isinstance(value, dict) and (within := members(hint)) is not None:
        return hint(**{name: revive(within[name][0], part) for name, part in value.items()})
    if isinstance(value, dict) and len(parts) == 2:
        return {name: revive(parts[1], part) for name, part in value.items()}
    if isinstance(hint, type) and issubclass(hint, enum.Enum):
        return hint(value)
    if origin is typing.Literal:
        return next((part for part in parts if isinstance(part, enum.Enum) and part.value == value), value)
    if isinstance(value, str) and hint in (datetime.date, datetime.datetime, datetime.time):
        return hint.fromisoformat(value)
    return value


def revive_one_of(hints, value):
    """An argument as the first of these types that it is one of."""
    wrong = None
    for hint in hints:
        if hint is type(value) or isinstance(value, float) and float in hints:
            return value
        try:
            revived = revive(hint, value)
        except Exception as error:
            wrong = error
        else:
            if revived is not value:
                return revived
    if wrong is not None:
        raise wrong
    return value


def plain(value, room=CHANNEL.MAX_DEPTH + 1):
    """A result as JSON carries it."""
    if not room:
        raise ValueError(f"a value that is nested more than {CHANNEL.MAX_DEPTH} deep cannot go over the bridge")
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {field.name: plain(getattr(value, field.name), room - 1) for field in dataclasses.fields(value)}
    if isinstance(value, enum.Enum):
        return plain(value.value, room - 1)
    if isinstance(value, (datetime.date, datetime.time)):
        return value.isoformat()
    if isinstance(value, (list, tuple, set, frozenset)):
        return [plain(part, room - 1) for part in value]
    if isinstance(value, dict):
        return {key: plain(part, room - 1) for key, part in value.items()}
    if isinstance(value, os.PathLike):
        return os.fspath(value)
    return value


# The longest type and default in a signature, and what a docstring says; the host takes no longer ones.
MAX_SHOWN, MAX_DOC = 200, 1500


def shown(hint):
    """A type as a program's author knows it: its module is none of theirs."""
    text = hint if isinstance(hint, str) else inspect.formatannotation(hint)
    text = re.sub(rf"\b({OWN}|typing)\.", "", text)
    return text if len(text) <= MAX_SHOWN else text[: MAX_SHOWN - 3] + "..."


def shown_default(value):
    """A default as a program would write it, if it could."""
    try:
        text = repr(plain(value))
        ast.literal_eval(text)
    except Exception:
        return "..."
    return text if len(text) <= MAX_SHOWN else "..."


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
            "annotation": None if given.annotation is given.empty else shown(given.annotation),
            "default": None if given.default is given.empty else shown_default(given.default),
            "schema": None if hint is None else schema(hint),
        }

    def doc(self):
        """What it does; then, apart from its summary, what the types are that it names."""
        known = {}
        for hint in self.hints.values():
            explain(hint, known)
        types = "\n".join(f"{name}: {words}" for name, words in known.items())
        doc = (inspect.getdoc(self.method) or "")[:MAX_DOC]
        return f"{doc}\n\n{types}" if types else doc

    def declared(self):
        returns, given = self.hints.get("return"), self.signature.return_annotation
        return {
            "path": self.path,
            "doc": self.doc(),
            "parameters": [self.parameter(given) for given in self.signature.parameters.values()],
            "returns": None if given is inspect.Signature.empty else shown(given),
            # What says that it returns nothing at all is not held to it.
            "result": None if returns in (None, type(None)) else schema(returns),
        }

    def call(self, arguments):
        """What the method returns: its value, or what has to be awaited for that."""
        by_place, by_name = [], {}
        for given in self.signature.parameters.values():
            if given.name not in arguments:
                continue
            try:
                value = revive(self.hints.get(given.name), arguments[given.name])
            except Exception as error:
                raise Unfit(f"`{given.name}`: {error}") from None
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
    # What is there to be inherited from.
    if inspect.isabstract(thing) or getattr(thing, "_is_protocol", False):
        return False
    return not (issubclass(thing, (BaseException, enum.Enum, tuple, dict)) or dataclasses.is_dataclass(thing))


class Beside:
    """Finds the modules that lie beside the file, of which the host has sent the texts."""

    def __init__(self, texts):
        self.texts = texts

    def names(self):
        return [file.removesuffix(".py").removesuffix("/__init__").replace("/", ".") for file in self.texts]

    def find_spec(self, name, path=None, target=None):
        place = name.replace(".", "/")
        for file, is_package in ((f"{place}/__init__.py", True), (f"{place}.py", False)):
            if file in self.texts:
                return importlib.machinery.ModuleSpec(name, self, origin=file, is_package=is_package)
        return None

    def create_module(self, spec):
        return None

    def exec_module(self, module):
        file = module.__spec__.origin
        run(module, file, self.texts[file])


def run(module, file, code):
    module.__file__ = file
    linecache.cache[file] = (len(code), None, io.StringIO(code + "\n", None).readlines(), file)
    exec(compile(code, file, "exec", dont_inherit=True), module.__dict__)


def load(file, code):
    """The functions that a file offers, and why others are left out."""
    module = types.ModuleType(MODULE)
    sys.modules[module.__name__] = module
    run(module, file, code)
    functions, left_out = {}, []
    for skill, thing in list(vars(module).items()):
        if not is_skill(skill, thing, module):
            continue
        try:
            instance = thing()
        except Exception as error:
            left_out.append(f"`{skill}` is not offered: it cannot be made: {told(error)}")
            continue
        for name in dir(thing):
            # What is no routine, such as a property, has not been asked for its value here.
            of_class = inspect.getattr_static(thing, name)
            if name.startswith("_") or not inspect.isroutine(of_class) or is_property(of_class):
                continue
            path = f"{skill}.{name}"
            try:
                function = Function(path, getattr(instance, name))
                function.declaration = function.declared()
                functions[path] = function
            except Exception as error:
                why = error if isinstance(error, LeftOut) else told(error)
                left_out.append(f"`{path}` is not offered: {why}")
    return functions, left_out


def is_property(thing):
    """Whether it gives a value where it is looked up."""
    return not callable(thing) and not isinstance(thing, (staticmethod, classmethod))


def told(error):
    """What is wrong, in a line."""
    if isinstance(error, SyntaxError):
        return f"{type(error).__name__}: {error}"
    words = traceback.format_exception_only(type(error), error)
    return re.sub(rf"^({OWN})\.", "", "".join(words).strip())


def fault(error):
    if isinstance(error, Unfit):
        return {"kind": "invalid_arguments", "error": str(error)}
    return {"kind": "failed", "error": told(error)}


def journal(error):
    """Tells the author of the file, who alone reads it, where it went wrong."""
    try:
        traceback.print_exception(error)
    except BaseException:
        pass  # It is the author's own standard error, or exception, that does not work.


def unloaded(error, file):
    """Why a file could not be loaded, and where."""
    lines = [frame.lineno for frame in traceback.extract_tb(error.__traceback__) if frame.filename == file]
    where = f" (line {lines[-1]})" if lines else ""
    return {"kind": "failed", "error": told(error) + where}


class Server:
    def __init__(self, channel, functions):
        self.channel, self.functions = channel, functions
        self.tasks = {}
        self.process = os.getpid()

    def say(self, kind, id, data):
        if os.getpid() != self.process:
            # A function has forked, and returned twice.
            os._exit(0)
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
            return self.say("error", id, {"kind": "cancelled", "error": "cancelled"})
        except BaseException as error:
            # Such as SystemExit of a library: it is the call that is over, not the process.
            journal(error)
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
    global MODULE, OWN
    message = first(channel)
    server = Server(channel, {})
    try:
        # A file may have the name of a module of Python's library.
        MODULE = "skills." + message["data"]["file"].removesuffix(".py")
        beside = Beside(message["data"]["beside"])
        # The names of modules that say nothing to a program's author, the longest first.
        OWN = "|".join(map(re.escape, sorted([MODULE, *beside.names()], key=len, reverse=True)))
        # Behind Python's own modules: what lies beside the skills may be written by one of them.
        sys.meta_path.append(beside)
        server.functions, left_out = load(message["data"]["file"], message["data"]["code"])
    except BaseException as error:
        journal(error)
        server.say("error", message["id"], unloaded(error, message["data"]["file"]))
        # The host ends this process once it has heard that; by itself it could end before.
        return first(channel)
    offered = [function.declaration for function in server.functions.values()]
    at_once = any(inspect.iscoroutinefunction(function.method) for function in server.functions.values())
    server.say("complete", message["id"], {"functions": offered, "left_out": left_out, "at_once": at_once})
    if at_once:
        asyncio.run(server.serve_at_once())
    else:
        server.serve()


main(CHANNEL)
