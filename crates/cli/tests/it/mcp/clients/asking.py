"""The official Python client, whose person is asked. Prints one JSON object a check; the test judges them.

Usage: asking.py BINARY MODE, where MODE is "auto" or "legacy". On standard input: steps, each a call and what the person
answers to the question that it raises, if any: {"answer": an ElicitResult} or {"wait": a file}. In MODE "legacy" a
person who waits does so until the question is taken back, else until the file is there, and says yes then.
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

BINARY, MODE = sys.argv[1], sys.argv[2]
STEPS = json.loads(sys.stdin.read())


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


async def until(holds):
    deadline = time.monotonic() + 20
    while not holds() and time.monotonic() < deadline:
        await asyncio.sleep(0.01)


class Person:
    def __init__(self):
        self.step, self.asked, self.taken_back = None, [], False

    async def decide(self, context, params):
        self.asked.append(params.model_dump(mode="json", by_alias=True, exclude_none=True))
        if "wait" in self.step:
            try:
                await self.wait(pathlib.Path(self.step["wait"]))
            except asyncio.CancelledError:
                self.taken_back = True
                raise
        answer = self.step.get("answer") or {"action": "accept", "content": {"decision": "approve once"}}
        return types.ElicitResult.model_validate(answer)

    async def wait(self, path):
        while MODE == "legacy" or not path.exists():
            await asyncio.sleep(0.01)


async def take(steps, **options):
    person = options.pop("person")
    server = StdioServerParameters(command=BINARY, args=["mcp", "--workspace", "."], env=dict(os.environ))
    async with Client(server, mode=MODE, **options) as client:
        for step in steps:
            person.step, person.asked, person.taken_back = step, [], False
            told = await outcome(client.call_tool(step["tool"], step["arguments"]))
            if MODE == "legacy" and "wait" in step:
                await until(lambda: person.taken_back)
            fact = {"check": step["check"], "asked": person.asked, "taken_back": person.taken_back, **told}
            print(json.dumps(fact), flush=True)


async def main():
    person = Person()
    with_form = [step for step in STEPS if not step.get("plain")]
    await take(with_form, person=person, elicitation_callback=person.decide)
    await take([step for step in STEPS if step.get("plain")], person=Person())


asyncio.run(main())
