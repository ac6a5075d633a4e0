"""Evaluates a model that runs commands in sandboxes: `pip install './sdk/python[inspect]'`, then `python inspect_task.py`.

The model is a script, so that it runs without a key; `inspect eval inspect_task.py --model …` takes another one.
"""

import sys

from inspect_ai import Task, eval, task
from inspect_ai.dataset import Sample
from inspect_ai.model import ModelOutput, ModelUsage, get_model
from inspect_ai.scorer import includes
from inspect_ai.solver import generate, use_tools
from inspect_ai.tool import bash
from inspect_ai.util import SandboxEnvironmentSpec

from ringfence.inspect import RingfenceConfig

QUESTION = "How many lines has numbers.txt?"


@task
def lines() -> Task:
    return Task(
        dataset=[Sample(input=QUESTION, target="3", files={"numbers.txt": "1\n2\n3\n"})],
        solver=[use_tools(bash(timeout=30)), generate()],
        scorer=includes(),
        sandbox=SandboxEnvironmentSpec("ringfence", RingfenceConfig(memory="256MiB", disk="64MiB")),
    )


def main() -> int:
    steps = [
        ModelOutput.for_tool_call("mockllm/model", "bash", {"command": "wc -l < numbers.txt"}),
        ModelOutput.from_content("mockllm/model", "It has 3 lines."),
    ]
    for step in steps:
        # Inspect would count tokens with a table from the network.
        step.usage = ModelUsage()
    model = get_model("mockllm/model", custom_outputs=steps)
    log = eval(lines(), model=model, display="none", log_dir="logs")[0]
    answers = [message.text for message in log.samples[0].messages if message.role == "tool"] if log.samples else []
    if log.status != "success" or answers != ["3\n"] or log.results is None:
        print("the evaluation failed:", log.error, answers, file=sys.stderr)
        return 1
    print(f"{log.status}, accuracy {log.results.scores[0].metrics['accuracy'].value}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
