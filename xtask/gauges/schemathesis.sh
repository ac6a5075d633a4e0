#!/bin/sh
# Fuzzes every route of the document: with a key, in a sandbox that lives, and without a key.
# usage: schemathesis.sh GAUGES VENV NODE   (in a directory of its own, beside a server)
set -u
gauges=$1 venv=$2 failed=0
cp "$gauges/schemathesis.toml" all.toml

pass() {
    name=$1 config=$2
    shift 2
    "$venv/bin/st" --config-file "$config" run "$URL/openapi.json" --header "Authorization: Bearer $KEY" --no-color "$@" >"$name.txt" 2>&1
    status=$?
    echo "$name:"
    if [ $status != 0 ]; then
        failed=1
        sed -n '/=== FAILURES/,/=== WARNINGS/p; /=== ERRORS/,$p' "$name.txt" | head -n 200
    fi
    grep -E '^ +(Tested|Selected): |^ +[0-9]+ generated|^Seed: |^ +Scenarios: |^  ❌|^error' "$name.txt" | sort -u
}

pass 'all routes' all.toml
# Made now: the first pass removes the sandboxes that it finds. Not with what would end or stop it.
"$venv/bin/python" "$gauges/sandbox.py" >parameters.toml || exit 1
cat all.toml parameters.toml >living.toml
pass 'a sandbox that lives' living.toml --include-path-regex '^/v1/sandboxes/.id./' --exclude-path-regex '/(timeout|pause)$' \
    --phases coverage,fuzzing
# Slowly: after 30 wrong keys in ten seconds the server answers 429, and schemathesis wants 401.
: >keyless.toml
pass 'without a key' keyless.toml --checks ignored_auth --phases fuzzing --mode positive --max-examples 1 --rate-limit 40/m \
    --generation-database none --exclude-path-regex '/watch$'
exit $failed
