#!/bin/sh
# Runs tests of E2B's clients in namespaces for the network, which has nothing but loopback, and for mounts.
# usage: suite.sh SERVER STATE PYTHON NODE COMMAND...   (SERVER empty: without one; PYTHON, NODE: those of sandboxes)
set -eu
server=$1 state=$2 python=$3 node=$4
here=$(dirname "$0")
shift 4
# Mounted over the machine's own files, these would take every name from it.
if [ "$(readlink /proc/self/ns/mnt)" = "$(readlink "/proc/$PPID/ns/mnt")" ]; then
    echo "start it by: unshare --net --mount" >&2
    exit 2
fi
ip link set lo up
export XDG_STATE_HOME="$state/state" XDG_CONFIG_HOME="$state/config" XDG_RUNTIME_DIR="$state/run"
mkdir -p "$XDG_STATE_HOME" "$XDG_CONFIG_HOME/ringfence" "$XDG_RUNTIME_DIR"
printf '[sandbox]\npython = "%s"\n' "$python" >"$XDG_CONFIG_HOME/ringfence/ringfence.toml"
export RINGFENCE_API_KEY=e2b_0000000000000000000000000000000000000000
export E2B_API_KEY=$RINGFENCE_API_KEY E2B_CONNECTION_RETRIES=0 E2B_TESTS_TEMPLATE=code-interpreter-v1
export E2B_DOMAIN=sandboxes.test

# Names below the domain lead to loopback, where without a server nobody listens. There are no others.
echo "nameserver 127.0.0.1" >"$state/resolv.conf"
echo "hosts: files dns" >"$state/nsswitch.conf"
mount --bind "$state/resolv.conf" /etc/resolv.conf
mount --bind "$state/nsswitch.conf" /etc/nsswitch.conf
# Contexts in TypeScript need one that is newer than some machines' own.
mount --bind "$node" "$(readlink -f "$(command -v node)")"
python3 "$here/names.py" &
started=$!
trap 'kill $started' EXIT

if [ -n "$server" ]; then
    sh "$here/certificate.sh" "$state" "*.$E2B_DOMAIN"
    export SSL_CERT_FILE="$state/authority.pem" NODE_EXTRA_CA_CERTS="$state/authority.pem"
    sh "$here/image.sh" "$state/image.tar"
    images="ubuntu:22.04 e2bdev/base"
    options=""
    for image in $images; do
        "$server" image import "$state/image.tar" --name "$image" >>"$state/import.log"
        options="$options --template-image $image"
    done
    # shellcheck disable=SC2086 # options without blanks
    "$server" serve --listen 127.0.0.1:443 --domain "$E2B_DOMAIN" --tls-cert "$state/certificate.pem" \
        --tls-key "$state/key.pem" $options >"$state/serve.log" 2>&1 &
    served=$!
    trap 'kill $started $served && wait $served' EXIT
    "$python" - <<'WAIT'
import socket, time
for _ in range(300):
    try:
        socket.create_connection(("api.sandboxes.test", 443)).close()
        break
    except OSError:
        time.sleep(0.1)
else:
    raise SystemExit("the server does not listen")
WAIT
fi
# A test that fails is a result.
"$@" || [ $? = 1 ]
