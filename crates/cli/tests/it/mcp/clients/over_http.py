"""The official Python client against `/mcp`. Prints one JSON object a check; the test judges them.

Usage: over_http.py URL MODE KEY, where MODE is "auto" or "legacy".
"""

import asyncio
import json
import sys
import warnings

warnings.simplefilter("ignore")

import httpx2
from mcp import Client, MCPError
from mcp.client.streamable_http import streamable_http_client

URL, MODE, KEY = sys.argv[1:]


def report(check, **facts):
    print(json.dumps({"check": check, **facts}), flush=True)


def http(key=KEY):
    return httpx2.AsyncClient(headers={"Authorization": "Bearer " + key}, timeout=60)


def connect(http_client, **options):
    return Client(streamable_http_client(URL, http_client=http_client), mode=MODE, **options)


async def outcome(calling):
    try:
        result = await calling
    except MCPError as error:
        return {"protocol_error": error.error.code, "message": error.error.message}
    return {
        "error": bool(result.is_error),
        "text": result.content[0].text,
        "structured": result.structured_content,
    }


async def square(client, number):
    return (await client.call_tool("run_python_code", {"code": f"print({number} ** 2)"})).content[0].text


async def basics(client):
    report("greeting", protocol=client.protocol_version, instructions=client.instructions or "")
    tools = (await client.list_tools()).tools
    report("tools", names=[tool.name for tool in tools])
    code = {"code": "echo $((6 * 7)); exit 3", "language": "bash"}
    report("code", **await outcome(client.call_tool("run_code", code)))
    report("invalid_arguments", **await outcome(client.call_tool("run_code", {"code": 5})))
    report("permission_denied", **await outcome(client.call_tool("shell", {"command": "id"})))
    report("unknown", **await outcome(client.call_tool("no_such_tool", {})))
    heard = []

    async def hear(value, total, message):
        heard.append(message)

    code = "import time\nprint('half way', flush=True)\ntime.sleep(1.2)"
    await client.call_tool("run_code", {"code": code}, progress_callback=hear)
    report("progress", heard=heard)


async def main():
    async with http() as one, http() as other:
        async with connect(one) as first, connect(other) as second:
            await basics(first)
            calls = [square(client, number) for number in range(10) for client in (first, second)]
            told = await asyncio.gather(*calls)
            report("two", right=told == [f"{number ** 2}\n" for number in range(10) for _ in range(2)])
        report("closed", well=True)
    async with http("wrong") as wrong:
        try:
            async with connect(wrong):
                report("wrong", refused=False)
        except BaseException as error:
            report("wrong", refused=True)


asyncio.run(main())
