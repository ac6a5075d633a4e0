"""Creates a sandbox with a file, a process and a context, and prints their ids as parameters for schemathesis."""

import json
import os
import urllib.request


def ask(path, body=None, method=None):
    headers = {"Authorization": f"Bearer {os.environ['KEY']}", "Content-Type": "application/json"}
    text = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(os.environ["URL"] + path, text, headers, method=method)
    with urllib.request.urlopen(request) as answer:
        return json.load(answer)


# A key has so many, and a pass of fuzzing leaves as many behind.
for old in ask("/v1/sandboxes")["sandboxes"]:
    ask(f"/v1/sandboxes/{old['id']}", method="DELETE")
sandbox = ask("/v1/sandboxes", {"ports": True, "timeout": "24h"})["id"]
place = f"/v1/sandboxes/{sandbox}"
ask(f"{place}/files/mkdir", {"path": "/workspace/kept"})
ask(f"{place}/processes", {"command": ["python3", "-m", "http.server", "8000"]})
pid = ask(f"{place}/processes", {"command": ["cat"], "stdin": True})["pid"]
context = ask(f"{place}/contexts", {})["id"]
print(
    f"""
[parameters]
"path.id" = "{sandbox}"
"path.pid" = {pid}
"path.context" = "{context}"
"path.port" = 8000
"""
)
