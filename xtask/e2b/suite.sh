#!/bin/sh
# Runs tests of E2B's clients in a network namespace that has nothing but loopback.
# usage: suite.sh SERVER STATE PYTHON COMMAND...   (SERVER empty: without one; PYTHON: that of sandboxes)
set -eu
server=$1 state=$2 python=$3
shift 3
ip link set lo up
export XDG_STATE_HOME="$state/state" XDG_CONFIG_HOME="$state/config" XDG_RUNTIME_DIR="$state/run"
mkdir -p "$XDG_STATE_HOME" "$XDG_CONFIG_HOME/ringfence" "$XDG_RUNTIME_DIR"
printf '[sandbox]\npython = "%s"\n' "$python" >"$XDG_CONFIG_HOME/ringfence/ringfence.toml"
export RINGFENCE_API_KEY=e2b_0000000000000000000000000000000000000000
export E2B_API_KEY=$RINGFENCE_API_KEY E2B_CONNECTION_RETRIES=0 E2B_TESTS_TEMPLATE=code-interpreter-v1
export E2B_API_URL=http://127.0.0.1:8080 E2B_SANDBOX_URL=http://127.0.0.1:8080
if [ -n "$server" ]; then
    "$server" serve --listen 127.0.0.1:8080 >"$state/serve.log" 2>&1 &
    trap 'kill $! && wait $!' EXIT
    "$python" - <<'WAIT'
import socket, time
for _ in range(300):
    try:
        socket.create_connection(("127.0.0.1", 8080)).close()
        break
    except OSError:
        time.sleep(0.1)
else:
    raise SystemExit("the server does not listen")
WAIT
fi
# A test that fails is a result.
"$@" || [ $? = 1 ]
