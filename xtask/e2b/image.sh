#!/bin/sh
# Makes the root file system on which the suites build templates, of programs of this machine.
# usage: image.sh ARCHIVE
set -eu
cd /
# Prints a file, without links on the way, and what it leads to.
found() {
    echo "$(readlink -f "$(dirname "$1")")/$(basename "$1")"
    readlink -f "$1"
}
for name in bash sh cat chmod chown cp echo env id ln ls mkdir mv readlink rm rmdir sleep stat test true whoami; do
    found "/usr/bin/$name"
    ldd "/usr/bin/$name" | grep -o '/[^ ]*' | while read -r library; do found "$library"; done
done | sort -u | sed 's,^/,,' >"$1.files"
printf 'root:x:0:0::/root:/bin/bash\n' >"$1.passwd"
tar -cf "$1" --no-recursion bin lib lib64 -T "$1.files"
tar -rf "$1" --transform "s,.*,etc/passwd," -P "$1.passwd"
