"""Answers a tool call of a model of OpenAI in a sandbox: `pip install './sdk/python'`, then `python tool_calls.py`.

The model is a script, so that it runs without a key. With `openai`, `response.output` has the calls
(`item.model_dump()`), and the answers go into `input` of the next request.
"""

import json
import sys
from typing import Any, Dict, List

from ringfence import Sandbox
from ringfence.tool_calls import openai_shell


def model(conversation: List[Dict[str, Any]]) -> Dict[str, Any]:
    answers = [item for item in conversation if item["type"] == "shell_call_output"]
    if answers:
        return {"type": "message", "content": "It has " + answers[0]["output"][1]["stdout"].strip() + " lines."}
    commands = ["seq 3 > numbers.txt", "wc -l < numbers.txt"]
    return {"type": "shell_call", "call_id": "call_1", "action": {"commands": commands, "timeout_ms": 30_000}}


def main() -> int:
    conversation: List[Dict[str, Any]] = [{"type": "message", "content": "How many lines has numbers.txt?"}]
    with Sandbox(memory="256MiB", disk="64MiB", timeout="10m") as sandbox:
        while (said := model(conversation))["type"] == "shell_call":
            answer = openai_shell(sandbox, said)
            print(json.dumps([each["outcome"] for each in answer["output"]]))
            conversation += [said, answer]
    print(said["content"])
    return 0


if __name__ == "__main__":
    sys.exit(main())
