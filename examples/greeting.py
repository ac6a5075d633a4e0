"""Reads standard input, an argument and an environment variable."""

import os
import sys

name = sys.argv[1] if len(sys.argv) > 1 else "nobody"
lines = sys.stdin.read().splitlines()
print(f"{os.environ.get('GREETING', 'Hello')}, {name}: {len(lines)} lines, {sum(map(len, lines))} characters")
