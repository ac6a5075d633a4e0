"""The official Python client against `ringfence mcp`. Prints one JSON object a check; the test judges them.

Usage: contract.py BINARY MODE DIRECTORY, where MODE is "auto" or "legacy" and DIRECTORY holds `one` and `two`.
"""

import asyncio
import json
import os
import pathlib
import sys
import time
import warnings

warnings.simplefilter("ignore")

import mcp_types as types
from mcp import Client, MCPError
from mcp.client.stdio import StdioServerParameters

BINARY, MODE, DIRECTORY = sys.argv[1], sys.argv[2], pathlib.Path(sys.argv[3])
CALLS = json.loads(sys.stdin.read())


def report(check, **facts):
    print(json.dumps({"check": check, **facts}), flush=True)


def connect(*args, **options):
    server = StdioServerParameters(command=BINARY, args=["mcp", *args], env=dict(os.environ))
    return Client(server, mode=MODE, **options)


async def outcome(calling):
    """What a call came to, in the words that both clients use."""
    try:
        result = await calling
    except MCPError as error:
        return {"protocol_error": error.error.code, "message": error.error.message}
    return {
        "error": bool(result.is_error),
        "text": result.content[0].text,
        "structured": result.structured_content,
    }


def running(mark):
    """Whether a process of this machine has the mark among its arguments."""
    for process in pathlib.Path("/proc").iterdir():
        try:
            if mark in (process / "cmdline").read_text(errors="replace").split("\0"):
                return True
        except OSError:
            pass
    return False


async def until(holds):
    deadline = time.monotonic() + 20
    while not holds():
        if time.monotonic() > deadline:
            return False
        await asyncio.sleep(0.01)
    return True


async def basics():
    async with connect() as client:
        report(
            "greeting",
            protocol=client.protocol_version,
            server=client.server_info.name if client.server_info else None,
            instructions=client.instructions or "",
        )
        tools = (await client.list_tools()).tools
        report("tools", tools=[tool.model_dump(mode="json", by_alias=True, exclude_none=True) for tool in tools])
        for call in CALLS:
            report(call["check"], **await outcome(client.call_tool(call["tool"], call["arguments"])))
        await fifty(client)
        await progress(client)
        await cancel(client)
        if MODE == "legacy":
            await client.send_ping()
            report("ping", answered=True)


async def fifty(client):
    calls = [client.call_tool("run_python_code", {"code": f"print({n} * {n})"}) for n in range(50)]
    results = await asyncio.gather(*calls)
    right = [result.content[0].text == f"{n * n}\n" for n, result in enumerate(results)]
    report("fifty", right=sum(right))


async def progress(client):
    heard = []

    async def hear(value, total, message):
        heard.append([value, message])

    code = "import time\nprint('half way', flush=True)\ntime.sleep(1.7)"
    result = await client.call_tool("run_code", {"code": code}, progress_callback=hear)
    report("progress", heard=heard, error=bool(result.is_error))


async def cancel(client):
    mark = f"86399.{os.getpid()}"
    calling = asyncio.create_task(client.call_tool("shell", {"command": "sleep", "args": [mark]}))
    started = await until(lambda: running(mark))
    calling.cancel()
    ended = await asyncio.gather(calling, return_exceptions=True)
    gone = await until(lambda: not running(mark))
    after = await outcome(client.call_tool("run_python_code", {"code": "print('still here')"}))
    report(
        "cancel",
        started=started,
        cancelled=isinstance(ended[0], asyncio.CancelledError),
        gone=gone,
        after=after["text"],
    )


async def roots():
    offered = [DIRECTORY / "one"]

    async def list_roots(context):
        return types.ListRootsResult(roots=[types.Root(uri=path.as_uri()) for path in offered])

    async with connect(list_roots_callback=list_roots) as client:
        write = {"path": "tool.txt", "content": "from a tool"}
        report("root_write", **await outcome(client.call_tool("file_write", write)))
        code = "print(open('tool.txt').read()); open('code.txt', 'w').write('from code')"
        report("root_code", **await outcome(client.call_tool("run_python_code", {"code": code})))
        if MODE == "legacy":
            offered[:] = [DIRECTORY / "two"]
            await client.send_roots_list_changed()
            report("root_changed", **await outcome(client.call_tool("file_write", write)))


async def log():
    heard = []

    async def hear(message):
        heard.append([message.level, str(message.data)])

    async def list_roots(context):
        return types.ListRootsResult(roots=[types.Root(uri="file:///proc")])

    level = {} if MODE == "legacy" else {"log_level": "warning"}
    async with connect(list_roots_callback=list_roots, logging_callback=hear, **level) as client:
        if MODE == "legacy":
            await client.set_logging_level("warning")
        answer = await outcome(client.call_tool("run_python_code", {"code": "print('all the same')"}))
        await until(lambda: heard)
        report("log", heard=heard, text=answer["text"])


async def main():
    await basics()
    await roots()
    await log()


asyncio.run(main())
