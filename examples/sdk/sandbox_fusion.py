"""Scores programs against expected output, as a reward function of verl does: `pip install requests`, then
`python sandbox_fusion.py http://127.0.0.1:8080`, with the key of `ringfence keys create` as the password in `~/.netrc`.

The programs are a script, so that it runs without a model.
"""

import sys
from typing import Optional

import requests

CASES = [("1 2", "3"), ("20 22", "42")]
PROGRAMS = {
    "right": "a, b = map(int, input().split())\nprint(a + b)",
    "wrong": "print(3)",
    "broken": "print(int(input()))",
    "endless": "while True: pass",
}


def run(url: str, code: str, stdin: str) -> Optional[str]:
    """Returns the output of a program, and nothing if it failed.

    A failure of the server is an exception: no program is scored for it.
    """
    request = {"code": code, "language": "python", "stdin": stdin, "run_timeout": 1}
    response = requests.post(url + "/run_code", json=request, timeout=120)
    response.raise_for_status()
    answer = response.json()
    if answer["status"] == "SandboxError":
        raise RuntimeError(answer["message"])
    return answer["run_result"]["stdout"] if answer["status"] == "Success" else None


def main() -> int:
    url = sys.argv[1].rstrip("/")
    for name, code in PROGRAMS.items():
        passed = [(run(url, code, stdin) or "").rstrip("\n") == expected for stdin, expected in CASES]
        print(name, sum(passed) / len(passed))
    return 0


if __name__ == "__main__":
    sys.exit(main())
