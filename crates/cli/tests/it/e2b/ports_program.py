"""Answers on port 8000 as the path says, from when this has been executed."""

import base64
import hashlib
import socket
import threading


def accept_of(head):
    name = b"sec-websocket-key: "
    key = next(line[len(name) :] for line in head.split(b"\r\n") if line.lower().startswith(name))
    return base64.b64encode(hashlib.sha1(key + b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11").digest())


def answer(connection, stream):
    head = b""
    while not head.endswith(b"\r\n\r\n"):
        line = stream.readline()
        if not line:
            return
        head += line
    path = head.split(b" ")[1].split(b"?")[0]
    ok = b"HTTP/1.1 200 OK\r\n"
    if path == b"/head":
        cookies = b"Set-Cookie: own=1; Path=/\r\nSet-Cookie: all=1; Domain=sandboxes.test\r\n"
        hops = b"Connection: close, X-Hop\r\nX-Hop: 1\r\nX-Program: 1\r\n"
        connection.sendall(ok + cookies + hops + b"Content-Length: %d\r\n\r\n" % len(head) + head)
    elif path == b"/echo":
        connection.sendall(ok + b"Transfer-Encoding: chunked\r\n\r\n")
        while size := int(stream.readline(), 16):
            connection.sendall(b"%x\r\n" % size + stream.read(size + 2))
        connection.sendall(b"0\r\n\r\n")
    elif path == b"/socket":
        switch = b"HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: WebSocket\r\n"
        connection.sendall(switch + b"Sec-WebSocket-Accept: " + accept_of(head) + b"\r\n\r\n")
        while data := stream.read1(65536):
            connection.sendall(data)
    elif path == b"/short":
        connection.sendall(ok + b"Content-Length: 10\r\n\r\nabc")
    elif path == b"/announce":
        while True:
            connection.sendall(b"HTTP/1.1 103 Early Hints\r\nX-Filler: %d\r\n\r\n" % 10**1000)
    elif path == b"/broken":
        connection.sendall(b"SSH-2.0-other\r\n")


def serve(connection):
    with connection, connection.makefile("rb") as stream:
        answer(connection, stream)


def accept(server):
    while True:
        threading.Thread(target=serve, args=server.accept()[:1], daemon=True).start()


threading.Thread(target=accept, args=[socket.create_server(("127.0.0.1", 8000))], daemon=True).start()
