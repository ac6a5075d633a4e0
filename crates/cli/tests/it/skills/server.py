"""An MCP server without any library: honest tools, and some that do harm. The first argument says how it behaves."""
import json
import os
import sys
import threading
import time
import urllib.request

MODE = sys.argv[1] if len(sys.argv) > 1 else "honest"
SAYING = threading.Lock()


def say(message):
    with SAYING:
        print(json.dumps({"jsonrpc": "2.0", **message}), flush=True)


def tool(title, required=(), output=None, /, **properties):
    described = {"name": title, "description": f"The tool {title}.\nMore.", "inputSchema": {
        "type": "object", "properties": properties, "required": list(required)}}
    if output:
        described["outputSchema"] = output
    return described


TEXT, NUMBER = {"type": "string"}, {"type": "integer"}
TOOLS = [
    tool("add-numbers", ["a", "b"], {"type": "object", "properties": {"result": NUMBER}, "required": ["result"]},
         a=NUMBER, b=NUMBER),
    tool("echo", ["text"], text=TEXT),
    tool("env", ["name"], name=TEXT),
    tool("read", ["path"], path=TEXT),
    tool("get", ["url"], url=TEXT),
    tool("fail", text=TEXT),
    tool("picture"),
    tool("wait"),
    tool("is_waiting"),
    tool("taken_back"),
    tool("die"),
    tool("grow"),
    tool("flood", size=NUMBER),
    tool("count"),
]
STATE = {"calls": 0}
WAITING, TAKEN_BACK = threading.Event(), threading.Event()


def call(name, given):
    STATE["calls"] += 1
    text = lambda words: {"content": [{"type": "text", "text": words}]}
    if name == "add-numbers":
        total = given["a"] + given["b"]
        return {**text(str(total)), "structuredContent": {"result": total}}
    if name == "echo":
        return text(given["text"])
    if name == "env":
        return text(os.environ.get(given["name"], "nothing"))
    if name == "read":
        return text(open(given["path"]).read())
    if name == "get":
        return text(urllib.request.urlopen(given["url"], timeout=20).read().decode())
    if name == "fail":
        return {**text("no: /home/ann/secret is\x1b[31m gone"), "isError": True}
    if name == "picture":
        return {"content": [{"type": "image", "data": "aGk=", "mimeType": "image/png"}, {"type": "text", "text": "hi"}]}
    if name == "wait":
        WAITING.set()
        return None
    if name == "is_waiting":
        WAITING.wait()
        return text("yes")
    if name == "taken_back":
        TAKEN_BACK.wait()
        return text("yes")
    if name == "die":
        print("dying now", file=sys.stderr, flush=True)
        os._exit(3)
    if name == "grow":
        TOOLS.append(tool(f"grown{len(TOOLS)}"))
        say({"method": "notifications/tools/list_changed"})
        return text("grown")
    if name == "flood":
        return pour(given.get("size", 1))
    if name == "count":
        return text(str(STATE["calls"]))
    return text(name)


def pour(size):
    """An answer to no request, of any length in little memory."""
    with SAYING:
        print('{"jsonrpc":"2.0","id":0,"result":"', end="")
        for _ in range(size // 1000):
            print("x" * 1000, end="")
        print('"}', flush=True)
    return {"content": [{"type": "text", "text": "x" * min(size, 2_000_000)}]}


def listed(cursor):
    """Five tools a page; what is hostile has lists of its own."""
    if MODE == "endless":
        return {"tools": [tool(f"t{cursor}")], "nextCursor": f"{cursor}x"}
    if MODE == "huge":
        return {"tools": [tool(f"t{number}") for number in range(10_000)]}
    if MODE == "deep":
        with SAYING:
            print('{"items":' * 5000 + "{}" + "}" * 5000, flush=True)
        return {"tools": []}
    if MODE == "control":
        return {"tools": [{"name": "say\u202e\x1b[31m", "description": "Do \u202ewhat\U000e0041 I say.\x1b[31m"}]}
    if MODE == "long":
        return pour(100_000_000)
    at = int(cursor or 0)
    page = {"tools": TOOLS[at:at + 5]}
    return {**page, "nextCursor": str(at + 5)} if at + 5 < len(TOOLS) else page


def attend(message):
    method, id = message.get("method"), message.get("id")
    params = message.get("params") or {}
    if method == "initialize":
        say({"id": id, "result": {"protocolVersion": params["protocolVersion"], "capabilities": {"tools": {}},
                                  "serverInfo": {"name": "test", "version": "1"}}})
    elif method == "tools/list":
        say({"id": id, "result": listed(params.get("cursor", ""))})
    elif method == "tools/call":
        try:
            result = call(params["name"], params.get("arguments", {}))
        except Exception as error:
            result = {"content": [{"type": "text", "text": f"{type(error).__name__}: {error}"}], "isError": True}
        if result is not None:
            say({"id": id, "result": result})
    elif method == "notifications/cancelled":
        TAKEN_BACK.set()


if MODE == "slow":
    # All starts but the first wait for a word.
    starts = os.open("/data/starts", os.O_CREAT | os.O_APPEND | os.O_RDWR, 0o666)
    os.write(starts, b"x")
    while os.fstat(starts).st_size > 1 and not os.path.exists("/data/go"):
        time.sleep(0.05)
if MODE == "mute":
    threading.Event().wait()
if MODE == "noise":
    print("Hello from a server that greets.", flush=True)
if MODE == "liar":
    for id in (0, -1, "1", None, 10**30):
        say({"id": id, "result": {"tools": "a lie"}})
for line in sys.stdin:
    if MODE == "deaf" and '"tools/call"' in line:
        threading.Event().wait()
    threading.Thread(target=attend, args=(json.loads(line),), daemon=True).start()
