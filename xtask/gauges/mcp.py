"""Runs scenarios of MCP's suite of conformance. One that the list does not know is a failure: somebody must look at it.

usage: mcp.py LIST NODE
"""

import json
import os
import re
import subprocess
import sys

with open(sys.argv[1], encoding="utf-8") as file:
    known = json.load(file)
PLACE = sys.argv[2]
SUITE = f"{PLACE}/node_modules/@modelcontextprotocol/conformance/dist/index.js"


def suite(*arguments):
    # A process for each scenario: the suite leaves its sessions open, and a key has 16.
    command = ["node", "--import", f"{PLACE}/key.mjs", SUITE, *arguments]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    return done.returncode, re.sub(r"\x1b\[[0-9;]*m", "", done.stdout + done.stderr)


def main():
    _, listed = suite("list", "--server")
    of_servers = listed.split("Client scenarios")[0]
    scenarios = re.findall(r"^ +- (\S+)", of_servers, re.MULTILINE)
    left_out = {name: reason for reason, names in known["left out"].items() for name in names}
    strange = set(scenarios) ^ (set(known["applied"]) | set(left_out))
    passed = 0
    for name in known["applied"]:
        status, told = suite("server", "--url", os.environ["URL"] + "/mcp", "--scenario", name)
        result = re.search(r"Passed: (\d+)/(\d+), 0 failed, 0 warnings", told)
        if status == 0 and result and 0 < int(result[1]) == int(result[2]):
            passed += 1
            print(f"passed {name}: {result[1]} checks")
        else:
            print(f"FAILED {name}:\n{told[-4000:]}")
    for reason, names in known["left out"].items():
        print(f"left out, {len(names)}: {reason}: {', '.join(names)}")
    for name in sorted(strange):
        print(f"FAILED {name}: the suite and {sys.argv[1]} do not agree about it")
    print(f"{passed} of {len(known['applied'])} scenarios pass; the suite has {len(scenarios)} for servers")
    return passed < len(known["applied"]) or bool(strange)


sys.exit(main())
