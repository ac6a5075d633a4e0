"""Visits programs of sandboxes by the names below a domain, which lead to 127.0.0.1: CA, port, key, the program, ringfence."""

import base64
import http.client
import json
import socket
import ssl
import subprocess
import sys

ca, port, key, program, ringfence = sys.argv[1:]
context = ssl.create_default_context(cafile=ca)


class Connection(http.client.HTTPSConnection):
    def __init__(self, name):
        super().__init__(name + ".sandboxes.test", int(port), timeout=60)

    def connect(self):
        plain = socket.create_connection(("127.0.0.1", int(port)), 60)
        self.sock = context.wrap_socket(plain, server_hostname=self.host)


connections = {}


def ask(name, line, headers=None, body=None):
    method, path = line.split(" ")
    connection = connections.setdefault(name, Connection(name))
    connection.request(method, path, body, headers or {})
    response = connection.getresponse()
    response.text = response.read().decode()
    return response


keyed = {"X-API-KEY": key}


def api(line, message=None, credential=keyed):
    body = None if message is None else json.dumps(message)
    response = ask("api", line, {**credential, "Content-Type": "application/json"}, body)
    assert response.status < 300, (line, response.text)
    return json.loads(response.text) if response.text else None


def create(credential=keyed, **network):
    made = api("POST /v2/sandboxes", {"templateID": "base", "network": network}, credential)
    token = {"X-Access-Token": made["envdAccessToken"], "Content-Type": "application/json"}
    made["serve"] = lambda: ask(f"49999-{made['sandboxID']}", "POST /execute", token, json.dumps({"code": program}))
    made["at"] = f"8000-{made['sandboxID']}"
    return made


def refused(response, status, part):
    error = json.loads(response.text)
    assert response.status == error["code"] == status and part in error["message"], (response.status, error)
    return error


made = create()
at = made["at"]
error = refused(ask(at, "GET /head"), 502, "port is not open")
assert error["port"] == 8000 and error["sandboxId"] == made["sandboxID"], error
assert made["serve"]().status == 200

# The program sees the request, without what is ours; the visitor the answer, without what is for more than its origin.
secrets = {**keyed, "Authorization": f"Bearer {key}", "E2b-Traffic-Access-Token": "other", "X-Access-Token": made["envdAccessToken"]}
hops = {"Connection": "X-Hop, close", "X-Hop": "1", "TE": "trailers", "X-Forwarded-For": "10.0.0.1"}
response = ask(at, "GET /head?a=%20b", {**secrets, **hops, "Cookie": "c=1", "Origin": "https://elsewhere.test"})
assert response.status == 200, response.text
assert "\r\nHost: " in response.text, response.text
head = response.text.lower()
assert head.startswith("get /head?a=%20b http/1.1\r\n") and f"host: {at}.sandboxes.test:{port}\r\n" in head, head
assert "cookie: c=1\r\n" in head and "origin: https://elsewhere.test\r\n" in head, head
assert "\nconnection: close\r\n" in head, head
for name in [*secrets, "X-Hop", "TE", "X-Forwarded-For"]:
    assert f"\n{name.lower()}:" not in head, (name, head)
assert key not in response.text
assert response.headers.get_all("Set-Cookie") == ["own=1; Path=/"], response.headers
assert response.headers["X-Program"] == "1" and "X-Hop" not in response.headers, response.headers
assert "Content-Security-Policy" not in response.headers, response.headers
assert response.headers.get_all("Content-Length") == [str(len(response.text))], response.headers
assert "Transfer-Encoding" not in response.headers, response.headers
length = ask(at, "HEAD /head")
assert int(length.headers["Content-Length"]) > 0 and length.text == "", length.headers
own = ask(at, "GET /head", {"Authorization": "Bearer of the program", "X-API-Key": "of the program"}).text
assert own.count("of the program") == 2, own

# One request for us is one for the program, whatever its head says of its body.
connection = Connection(at)
connection.connect()
connection.sock.sendall(
    f"POST /head HTTP/1.1\r\nHost: {at}.sandboxes.test:{port}\r\nContent-Length: 60\r\nTransfer-Encoding: chunked\r\n\r\n".encode()
    + b"0\r\n\r\n"
)
response = http.client.HTTPResponse(connection.sock)
response.begin()
head = response.read().decode().lower()
assert ("content-length" in head) + ("transfer-encoding" in head) == 1, head

# Bodies pass as they come, in both directions.
connection = Connection(at)
connection.putrequest("POST", "/echo")
connection.putheader("Transfer-Encoding", "chunked")
connection.endheaders()
response = connection.getresponse()
for word in [b"one", b"two"]:
    connection.send(b"%x\r\n%s\r\n" % (len(word), word))
    assert response.read1(3) == word
connection.send(b"0\r\n\r\n")
assert response.read() == b""
large = b"x" * 3_000_000
assert len(ask(at, "POST /echo", None, iter([large])).text) == len(large)

# What breaks off is not taken for the whole; what is no HTTP is said so.
try:
    ask(at, "GET /short")
    raise AssertionError("the answer is complete")
except http.client.IncompleteRead:
    connections.pop(at).close()
refused(ask(at, "GET /broken"), 502, "did not answer by HTTP")


def web_socket(at):
    connection = Connection(at)
    upgrade = {"Connection": "keep-alive, Upgrade", "Upgrade": "websocket", "Sec-WebSocket-Version": "13"}
    connection.request("GET", "/socket", None, {**upgrade, "Sec-WebSocket-Key": base64.b64encode(b"0123456789abcdef").decode()})
    response = http.client.HTTPResponse(connection.sock)
    response.begin()
    assert response.status == 101 and response.headers["Upgrade"].lower() == "websocket", response.headers
    assert response.headers["Sec-WebSocket-Accept"] == "BACScCJPNqyz+UBoqMH89VmURoA=", response.headers
    return connection.sock


opened, held = web_socket(at), web_socket(at)
frame = b"\x81\x85\1\2\3\4" + bytes(a ^ b for a, b in zip(b"hello", b"\1\2\3\4\1"))
for _ in range(2):
    opened.sendall(frame)
    assert opened.recv(len(frame)) == frame
opened.close()

# With a token alone, if that is asked for.
private, other = create(allowPublicTraffic=False, maskRequestHost="localhost:${PORT}"), create(allowPublicTraffic=False)
assert private["serve"]().status == 200
token = lambda made: {"E2b-Traffic-Access-Token": made["trafficAccessToken"]}
response = ask(private["at"], "GET /head", token(private))
assert response.status == 200 and "\r\nhost: localhost:8000\r\n" in response.text.lower(), response.text
assert f"X-Forwarded-Host: {private['at']}.sandboxes.test:{port}\r\n" in response.text, response.text
assert private["trafficAccessToken"] not in response.text
refused(ask(private["at"], "GET /head"), 403, "'e2b-traffic-access-token' is missing")
for wrong in [token(other), token(made), {"E2b-Traffic-Access-Token": ""}]:
    refused(ask(private["at"], "GET /head", wrong), 403, "'e2b-traffic-access-token' is invalid")
refused(ask(private["at"], "GET /head", {"X-API-Key": "wrong"}), 403, "is missing")
response = ask(private["at"], "GET /head", keyed)
assert response.status == 200 and key not in response.text, response.text

# The sandboxes of the API are their key's.
mine = api("POST /v1/sandboxes", {"ports": True})
api(f"POST /v1/sandboxes/{mine['id']}/run", {"code": program})
assert ask(f"8000-{mine['id']}", "GET /head", keyed).status == 200
for wrong in [{}, {"X-API-Key": "wrong"}, {"Authorization": f"Bearer {key}"}, token(made)]:
    refused(ask(f"8000-{mine['id']}", "GET /head", wrong), 502, "was not found")

# None that is there: unknown, paused, ended.
refused(ask("8000-unknown", "GET /"), 502, "was not found")
api(f"POST /sandboxes/{other['sandboxID']}/pause")
refused(ask(other["at"], "GET /", token(other)), 502, "was not found")
held.sendall(frame)
assert held.recv(len(frame)) == frame
api(f"DELETE /sandboxes/{made['sandboxID']}")
refused(ask(at, "GET /head"), 502, "was not found")
assert held.recv(1) == b""

# What is open ends with the key that made the sandbox.
stored = json.loads(subprocess.check_output([ringfence, "keys", "create", "visited", "--json"]))
visited = create({"X-API-KEY": stored["key"]})
assert visited["serve"]().status == 200
held = web_socket(visited["at"])
subprocess.check_output([ringfence, "keys", "revoke", stored["id"]])
assert held.recv(1) == b""
refused(ask(visited["at"], "GET /head"), 502, "was not found")
print("done")
