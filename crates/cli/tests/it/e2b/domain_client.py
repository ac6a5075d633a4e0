"""Uses E2B's client by the names below a domain; a proxy in this process leads them to 127.0.0.1: port."""

import http.client
import socket
import ssl
import sys
import threading

from e2b_code_interpreter import Sandbox

port = int(sys.argv[1])


def pass_on(source, target):
    while piece := source.recv(65536):
        target.sendall(piece)
    target.shutdown(socket.SHUT_WR)


def serve(client):
    head = b""
    while b"\r\n\r\n" not in head:
        head += client.recv(4096)
    assert head.startswith(b"CONNECT ") and b".sandboxes.test:" in head, head
    server = socket.create_connection(("127.0.0.1", port))
    client.sendall(b"HTTP/1.1 200 OK\r\n\r\n")
    threading.Thread(target=pass_on, args=(client, server), daemon=True).start()
    pass_on(server, client)


def accept():
    while True:
        threading.Thread(target=serve, args=listener.accept()[:1], daemon=True).start()


listener = socket.create_server(("127.0.0.1", 0))
threading.Thread(target=accept, daemon=True).start()


def get(host):
    connection = http.client.HTTPSConnection(*listener.getsockname(), context=ssl.create_default_context())
    connection.set_tunnel(host)
    connection.request("GET", "/a.txt")
    response = connection.getresponse()
    return response.status, response.read()


proxy = f"http://127.0.0.1:{listener.getsockname()[1]}"

with Sandbox.create(proxy=proxy, domain=f"sandboxes.test:{port}") as sandbox:
    assert sandbox.commands.run("echo hi").stdout == "hi\n"
    sandbox.files.write("a.txt", "of a file")
    assert sandbox.files.read("a.txt") == "of a file"
    assert sandbox.run_code("x = 41; x + 1").text == "42"
    assert sandbox.get_host(8000) == f"8000-{sandbox.sandbox_id}.sandboxes.test:{port}"
    status, body = get(sandbox.get_host(8000))
    assert status == 502 and b"port is not open" in body, (status, body)
    sandbox.commands.run(
        "python3 -m http.server 8000 > /tmp/log 2>&1 & until (: < /dev/tcp/127.0.0.1/8000) 2> /tmp/wait; do sleep 0.05; done"
    )
    assert get(sandbox.get_host(8000)) == (200, b"of a file")
    assert Sandbox.connect(sandbox.sandbox_id, proxy=proxy, domain=f"sandboxes.test:{port}").is_running()
    assert f"https://49983-{sandbox.sandbox_id}.sandboxes.test:{port}/files?" in sandbox.download_url("a.txt")
    sandbox.kill()
print("done")
