"""Uses a server by the names below its domain, which lead to 127.0.0.1: CA, port, key."""

import http.client
import json
import socket
import ssl
import sys

ca, port, key = sys.argv[1:]
context = ssl.create_default_context(cafile=ca)


class Connection(http.client.HTTPSConnection):
    def connect(self):
        plain = socket.create_connection(("127.0.0.1", int(port)), 30)
        self.sock = context.wrap_socket(plain, server_hostname=self.host)


def ask(name, line, headers=None, body=None):
    method, path = line.split(" ")
    connection = Connection(name + ".sandboxes.test", int(port))
    headers = {"Content-Type": "application/json", **(headers or {})}
    connection.request(method, path, body, headers)
    response = connection.getresponse()
    return response.status, response.read().decode()


keyed = {"X-API-KEY": key}


def create():
    status, body = ask("api", "POST /v2/sandboxes", keyed, '{"templateID": "base"}')
    assert status == 201, body
    made = json.loads(body)
    assert made["domain"] == f"sandboxes.test:{port}", made
    return made


made, other = create(), create()
envd, interpreter = f"49983-{made['sandboxID']}", f"49999-{made['sandboxID']}"
token = {"X-Access-Token": made["envdAccessToken"]}

# Files, processes and interpreters, each sandbox by a name of its own.
assert ask(envd, "GET /health")[0] == 204
status, body = ask(envd, "POST /files?path=a", {**token, "Content-Type": "application/octet-stream"}, b"of a file")
assert status == 200, body
assert ask(envd, "GET /files?path=a", token) == (200, "of a file")
status, body = ask(interpreter, "POST /execute", token, '{"code": "print(6 * 7)"}')
assert status == 200 and '"42\\n"' in body, body
status, body = ask("API", "GET /sandboxes/" + made["sandboxID"], keyed)
assert json.loads(body)["domain"] == f"sandboxes.test:{port}", body

# The API has its own name, and nothing of a sandbox has that.
run = '{"code": "print(1)"}'
assert ask("api", "POST /v1/run", keyed, run)[0] == 200
for name in [envd, interpreter]:
    status, body = ask(name, "POST /v1/run", {**keyed, **token}, run)
    assert status == 404, (status, body)
    assert ask(name, "GET /openapi.json", token)[0] == 404
headers = {"E2b-Sandbox-Id": made["sandboxID"], "E2b-Sandbox-Port": "49983"}
for line, also in [("GET /health", headers), ("GET /files?path=a&signature=v1_x", {}), ("GET /files?path=a", {**headers, **token})]:
    status, body = ask("api", line, also)
    assert status == 400 and "PORT-ID.sandboxes.test" in body, (line, status, body)

# Headers lead to no other sandbox than the name, and one sandbox's token opens no other.
status, body = ask(f"49983-{other['sandboxID']}", "GET /files?path=a", {**headers, **token})
assert status == 401, (status, body)

for name in ["other", "api-x", "1-api", "49983"]:
    status, body = ask(name, "GET /v1/tools", keyed)
    assert status in (421, 502), (name, status, body)
assert ask("other", "GET /v1/tools", keyed)[0] == 421
print("done")
