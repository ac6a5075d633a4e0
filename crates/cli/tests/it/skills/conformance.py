# What a program with a bridge can rely on, in every runtime. Each check that holds prints its name.
import asyncio
import inspect
import os
import sys
import threading

# WebAssembly has one thread, one process and a small stack.
WASM = sys.platform == "emscripten"


def refused(kind, words, act):
    try:
        value = act()
    except kind as error:
        assert words in str(error), (words, str(error))
        assert len(str(error)) <= 1000 and "/home" not in str(error), str(error)
        return
    raise AssertionError(f"not refused: {value!r}")


def calls_give_values():
    for value in (None, True, 0, -(2**63), 2**64 - 1, 1.5, "é\n\u2028\0", [], {"a": [1, {"b": None}]}, "x" * 500_000):
        assert device.Probe.echo(value) == value, value
    assert device.Probe.echo((1, 2)) == [1, 2]


def arguments_are_python():
    assert device.Probe.add(1) == 2
    assert device.Probe.add(5, b=3, minus=True) == 2
    assert device.Probe.paint("red", coats=2) == ["red", "red"]


def wrong_arguments_are_refused():
    refused(TypeError, "it needs `a`", lambda: device.Probe.add())
    refused(TypeError, 'is not of type "integer"', lambda: device.Probe.add("1"))
    refused(TypeError, 'is not of type "integer"', lambda: device.Probe.add(True))
    refused(TypeError, "unexpected argument `z`", lambda: device.Probe.add(1, z=2))
    refused(TypeError, "given twice", lambda: device.Probe.add(1, a=2))
    refused(TypeError, "positional arguments", lambda: device.Probe.add(1, 2, True))
    refused(TypeError, "colour", lambda: device.Probe.paint("green"))


def what_json_cannot_carry_is_not_sent():
    refused(TypeError, "bytes", lambda: device.Probe.echo(b"x"))
    refused(TypeError, "keys", lambda: device.Probe.echo({1: 2}))
    refused(ValueError, "64 bits", lambda: device.Probe.echo(2**64))
    refused(ValueError, "", lambda: device.Probe.echo(float("nan")))
    refused(ValueError, "surrogate", lambda: device.Probe.echo("\ud800"))
    refused(ValueError, "1048576 is the limit", lambda: device.Probe.echo("x" * 100_000_000))
    refused(ValueError, "more than 100000 values", lambda: device.Probe.echo([0] * 100_001))
    deep = []
    for _ in range(1_000 if WASM else 100_000):
        deep = [deep]
    refused(ValueError, "nested more than 32", lambda: device.Probe.echo(deep))
    assert device.Probe.echo([0] * 99_000) == [0] * 99_000


def what_is_not_there_is_told():
    refused(AttributeError, "not found", lambda: device.Nope.do())
    refused(AttributeError, "Probe", lambda: device.Nope)
    refused(AttributeError, "echo", lambda: device.Probe.nope)
    for name in ("_private", "any_number", "__globals__"):
        refused(AttributeError, name, lambda: getattr(device.Probe, name))
    refused(AttributeError, "helper", lambda: device.helper)
    bridge = device._bridge()
    for path in ("Probe._private", "Probe.__init__", "Probe", "", "Probe.echo.x", "os.system", "Colour.RED"):
        refused(AttributeError, "not found", lambda: bridge.call(path))


def failures_tell_nothing_of_the_host():
    refused(RuntimeError, "No such file or directory", device.Probe.fail)
    refused(RuntimeError, "does not promise", device.Probe.lie)
    refused(RuntimeError, "is the limit", lambda: device.Probe.much(2_000_000))
    refused(RuntimeError, "cannot go over the bridge", device.Probe.odd)
    assert device.Probe.add(1) == 2


def functions_are_found_and_described():
    found = device.search_skills("adds numbers")
    assert found[0] == {
        "path": "Probe.add",
        "signature": "add(a: int, b: int = 1, *, minus: bool = False) -> int",
        "summary": "Adds two numbers.",
    }, found
    assert {entry["path"] for entry in device.search_skills()} >= {"Probe.echo", "Pace.nap"}
    assert device.search_skills("zebra") == []
    described = device.describe_function("Probe.add")
    assert described.startswith("def add(a: int") and "Or subtracts them." in described
    refused(AttributeError, "not found", lambda: device.describe_function("Probe.nope"))


def functions_are_pythons_own():
    add = device.Probe.add
    assert str(inspect.signature(add)) == "(a: int, b: int = 1, *, minus: bool = False) -> int"
    assert inspect.getdoc(add).startswith("Adds two numbers.")
    assert "Probe" in dir(device) and "add" in dir(device.Probe)
    import pydoc

    assert "Or subtracts them." in pydoc.plain(pydoc.render_doc(add))


def many_calls_run_at_once():
    # More at once than the host takes: the others wait, and nothing is lost.
    async def all_of_them():
        naps = [device.Pace.nap.aio(0.01) for _ in range(40)]
        adds = [device.Probe.add.aio(number) for number in range(40)]
        return await asyncio.gather(*naps, *adds)

    answers = asyncio.run(all_of_them())
    assert answers == [0.01] * 40 + list(range(1, 41)), answers


def threads_share_the_bridge():
    if WASM:
        return refused(RuntimeError, "can't start new thread", threading.Thread(target=print).start)
    answers = []
    threads = [
        threading.Thread(target=lambda number=number: answers.extend(device.Probe.add(number) for _ in range(10)))
        for number in range(8)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(answers) == sorted([number + 1 for number in range(8)] * 10)


def calls_can_be_taken_back():
    async def hurried():
        try:
            await asyncio.wait_for(device.Pace.nap.aio(60), 0.05)
        except (asyncio.TimeoutError, TimeoutError):
            return device.Probe.add(1)

    assert asyncio.run(hurried()) == 2


def calls_that_wait_and_others_go_together():
    # Some wait in an event loop while others hold it up, and answers come in any order.
    async def both(number):
        slow = asyncio.ensure_future(device.Pace.nap.aio(0.01 * (number % 3)))
        await asyncio.sleep(0)
        return device.Probe.add(number), await slow

    async def all_of_them():
        return await asyncio.gather(*[both(number) for number in range(8)])

    assert [added for added, _ in asyncio.run(all_of_them())] == list(range(1, 9))


def much_goes_both_ways_at_once():
    text = "y" * 200_000

    async def all_of_them():
        return await asyncio.gather(*[device.Probe.echo.aio(text) for _ in range(20)])

    assert asyncio.run(all_of_them()) == [text] * 20


def another_process_has_no_bridge():
    if WASM:
        return refused(OSError, "", os.fork)
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            device.Probe.add(1)
            os.write(writer, b"called")
        except RuntimeError as error:
            os.write(writer, str(error).encode())
        finally:
            os._exit(0)
    os.waitpid(child, 0)
    assert b"belongs to the process" in os.read(reader, 1000)
    assert device.Probe.add(1) == 2


def what_is_printed_is_no_message():
    line = '{"type":"call","id":"1","data":{"path":"Probe.count"}}'
    before = device.Probe.count()
    for stream in (sys.stdout, sys.stderr):
        print(line, file=stream, flush=True)
    assert device.Probe.count() == before + 1


for check in (
    calls_give_values,
    arguments_are_python,
    wrong_arguments_are_refused,
    what_json_cannot_carry_is_not_sent,
    what_is_not_there_is_told,
    failures_tell_nothing_of_the_host,
    functions_are_found_and_described,
    functions_are_pythons_own,
    many_calls_run_at_once,
    threads_share_the_bridge,
    calls_can_be_taken_back,
    calls_that_wait_and_others_go_together,
    much_goes_both_ways_at_once,
    another_process_has_no_bridge,
    what_is_printed_is_no_message,
):
    check()
    print("holds:", check.__name__)
