"""Lets an agent of deepagents work in a sandbox: `pip install './sdk/python[deepagents]'`, then `python deepagents_agent.py`.

The model is a script, so that it runs without a key; put yours in its place.
"""

import sys
from typing import Any

from deepagents import create_deep_agent
from langchain_core.language_models.fake_chat_models import GenericFakeChatModel
from langchain_core.messages import AIMessage

from ringfence import Sandbox
from ringfence.deepagents import agent_backend

CODE = """
import csv
rows = list(csv.DictReader(open("/workspace/data.csv")))
print(len(rows), "rows, x sums to", sum(int(row["x"]) for row in rows))
"""


class Script(GenericFakeChatModel):
    """A model that says what is written here."""

    def bind_tools(self, tools: Any, **options: Any) -> Any:
        return self


def use(tool: str, **arguments: str) -> AIMessage:
    return AIMessage("", tool_calls=[{"name": tool, "args": arguments, "id": tool, "type": "tool_call"}])


def main() -> int:
    model = Script(
        messages=iter(
            [
                use("write_file", file_path="/workspace/sum.py", content=CODE),
                use("execute", command="python3 sum.py"),
                AIMessage("Done."),
            ]
        )
    )
    with Sandbox(memory="512MiB", timeout="10m") as sandbox:
        sandbox.files.write("data.csv", "x,y\n1,2\n3,4\n")
        agent = create_deep_agent(model=model, backend=agent_backend(sandbox))
        ended = agent.invoke({"messages": [("user", "How many rows has data.csv, and what is the sum of x?")]})
    answers = [message for message in ended["messages"] if message.type == "tool"]
    print(str(answers[-1].content).splitlines()[0])
    return 0


if __name__ == "__main__":
    sys.exit(main())
