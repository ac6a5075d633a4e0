#!/bin/sh
# Generates a Python client, checks its types and runs a program by it.
# usage: python.sh GAUGES VENV NODE   (in a directory of its own, beside a server)
set -eu
gauges=$1
# The generator formats its files by the ruff beside it.
export PATH="$2/bin:$PATH"
cp "$gauges/run.py" "$gauges/mypy.ini" .
openapi-python-client generate --url "$URL/openapi.json" --meta none --output-path ringfence_client >generated.txt 2>&1
# The generator leaves out what is NDJSON: a kind of body of one route, and its answer.
if grep '^WARNING' generated.txt | grep -v '^WARNING parsing POST /v1/batch '; then
    cat generated.txt
    exit 1
fi
echo "$(grep -c '^WARNING' generated.txt) warnings, all of POST /v1/batch: $(grep -ic 'unsupported content.type application/x-ndjson' generated.txt) times no support of NDJSON"
mypy ringfence_client run.py
python run.py
