"""Runs the code of an agent of smolagents in a sandbox: `pip install './sdk/python[smolagents]'`, then
`python smolagents_agent.py numpy pillow`, or without the names of packages if the sandbox's Python has them.

The model is a script, so that it runs without a key; put yours in its place.
"""

import sys
from typing import Any, List

from smolagents import ChatMessage, CodeAgent, LogLevel, MessageRole, Model, tool

from ringfence import Sandbox
from ringfence.smolagents import RingfenceExecutor

STEPS = [
    "import csv\nrows = list(csv.DictReader(open('data.csv')))\nprint(len(rows), 'rows')",
    "total = sum(int(row['x']) for row in rows)\nfinal_answer({'sum': total, 'euros': in_euros(total)})",
]


class Script(Model):
    """A model that says what is written here."""

    def __init__(self, steps: List[str]) -> None:
        super().__init__(model_id="script")
        self.steps = iter(steps)

    def generate(self, messages: Any, **options: Any) -> ChatMessage:
        content = f"Thought: go on.\n<code>\n{next(self.steps)}\n</code>"
        return ChatMessage(role=MessageRole.ASSISTANT, content=content)


@tool
def in_euros(cents: int) -> str:
    """Formats an amount.

    Args:
        cents: The amount.
    """
    return f"{cents / 100:.2f} EUR"


def main() -> int:
    with Sandbox(memory="512MiB", timeout="10m", packages=sys.argv[1:]) as sandbox:
        sandbox.files.write("data.csv", "x,y\n150,2\n250,4\n")
        agent = CodeAgent(
            tools=[in_euros],
            model=Script(STEPS),
            executor=RingfenceExecutor(sandbox, timeout=30),
            verbosity_level=LogLevel.ERROR,
        )
        print(agent.run("What is the sum of x in data.csv?"))
    return 0


if __name__ == "__main__":
    sys.exit(main())
