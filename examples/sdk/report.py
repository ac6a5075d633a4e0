"""Has code of a stranger make a report: `pip install './sdk/python'`, then `python report.py [FILE.csv]`."""

import sys

from ringfence import Sandbox

CODE = """
import csv
with open("data.csv") as file:
    rows = list(csv.DictReader(file))
for name in rows[0]:
    print(name, "sum", sum(float(row[name]) for row in rows))
len(rows)
"""


def main() -> int:
    with Sandbox(memory="256MiB", disk="64MiB", timeout="10m") as sandbox:
        if len(sys.argv) > 1:
            with open(sys.argv[1], "rb") as file:
                sandbox.files.write("data.csv", file)
        else:
            sandbox.files.write("data.csv", "x,y\n1,2\n3,4\n")
        execution = sandbox.run_code(CODE, timeout=30)
        if execution.error:
            print("the code failed:", execution.error, file=sys.stderr)
            return 1
        print("".join(execution.logs.stdout), end="")
        print("rows", execution.text)
    return 0


if __name__ == "__main__":
    sys.exit(main())
