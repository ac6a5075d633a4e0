#!/bin/sh
# Runs a program beside a server with throw-away state, in a network namespace that has nothing but loopback.
# usage: serve.sh SERVER STATE PROGRAM...   (the program finds the server at $URL, and a key in $KEY)
set -eu
server=$1 state=$2
shift 2
ip link set lo up
export HOME="$state/home" XDG_STATE_HOME="$state/state" XDG_CONFIG_HOME="$state/config" XDG_RUNTIME_DIR="$state/run"
mkdir -p "$HOME" "$XDG_STATE_HOME" "$XDG_CONFIG_HOME" "$XDG_RUNTIME_DIR"
chmod 700 "$XDG_RUNTIME_DIR"
export URL=http://127.0.0.1:8080
KEY=$("$server" keys create gauges --rights run,sandboxes,tools,admin)
export KEY
"$server" serve --listen 127.0.0.1:8080 >"$state/serve.log" 2>&1 &
serving=$!
trap 'kill $serving && wait $serving' EXIT
/usr/bin/python3 - <<'WAIT'
import os, time, urllib.request
for _ in range(300):
    try:
        urllib.request.urlopen(os.environ["URL"] + "/readyz").close()
        break
    except OSError:
        time.sleep(0.1)
else:
    raise SystemExit("the server does not get ready")
WAIT
"$@"
