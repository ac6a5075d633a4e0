"""Drives kernels with jupyter_kernel_client, and with the calls of Open WebUI's code interpreter on its libraries."""

import asyncio
import json
import os
import sys
import uuid

import aiohttp
import websockets
from jupyter_kernel_client import JupyterKernelClient
from jupyter_kernel_client.utils import deserialize_msg_from_ws_v1, serialize_msg_to_ws_v1

URL, KEY = sys.argv[1], os.environ["RINGFENCE_API_KEY"]
HEADERS = {"Authorization": f"Bearer {KEY}"}


def kernel_client():
    with JupyterKernelClient(server_url=URL, token=None, headers=dict(HEADERS)) as kernel:
        answer = kernel.execute("import sys\nprint('out')\nprint('err', file=sys.stderr)\n6 * 7")
        assert answer["status"] == "ok" and answer["execution_count"] == 1, answer
        texts = {each.get("name", "result"): each.get("text") or each["data"]["text/plain"] for each in answer["outputs"]}
        assert texts == {"stdout": "out\n", "stderr": "err\n", "result": "42"}, answer
        failed = kernel.execute("1 / 0")
        assert failed["status"] == "error" and failed["outputs"][0]["ename"] == "ZeroDivisionError", failed
        kernel.restart()
        assert kernel.execute("'x' in globals()")["execution_count"] == 1


async def open_webui(code):
    """The requests of Open WebUI, whose setting for the server is a URL: it takes a user and a password, and no header."""
    base = URL.replace("://", f"://ringfence:{KEY.replace(' ', '%20').replace(',', '%2C')}@") + "/"
    async with aiohttp.ClientSession(trust_env=True, base_url=base) as session:
        async with session.post(url="api/kernels", params={}) as response:
            response.raise_for_status()
            kernel = (await response.json())["id"]
        async with websockets.connect(base.replace("http", "ws", 1) + f"api/kernels/{kernel}/channels") as socket:
            message = uuid.uuid4().hex
            header = {"msg_id": message, "msg_type": "execute_request", "username": "user", "session": uuid.uuid4().hex}
            content = {"code": code, "silent": False, "store_history": True, "user_expressions": {}, "allow_stdin": False}
            await socket.send(
                json.dumps(
                    {
                        "header": {**header, "date": "", "version": "5.3"},
                        "parent_header": {},
                        "metadata": {},
                        "content": {**content, "stop_on_error": True},
                        "channel": "shell",
                    }
                )
            )
            seen = []
            while True:
                told = json.loads(await asyncio.wait_for(socket.recv(), 60))
                if told.get("parent_header", {}).get("msg_id") != message:
                    continue
                seen.append(told)
                if told["msg_type"] == "status" and told["content"]["execution_state"] == "idle":
                    break
        async with session.delete(f"api/kernels/{kernel}", params={}) as response:
            response.raise_for_status()
    return seen


async def binary():
    """The binary protocol, by the functions of jupyter_kernel_client: its own client fails on each message of it (1.0.2)."""
    async with aiohttp.ClientSession(headers=HEADERS) as session:
        async with session.post(f"{URL}/api/kernels", json={"name": "python3"}) as response:
            kernel = (await response.json())["id"]
    place = f"{URL.replace('http', 'ws', 1)}/api/kernels/{kernel}/channels"
    protocols = ["v1.kernel.websocket.jupyter.org"]
    async with websockets.connect(place, additional_headers=HEADERS, subprotocols=protocols) as socket:
        assert socket.subprotocol == protocols[0]
        header = {"msg_id": "1", "msg_type": "execute_request", "username": "", "session": "a", "date": "", "version": "5.3"}
        message = {"header": header, "parent_header": {}, "metadata": {}, "content": {"code": "print('é')"}}
        await socket.send(serialize_msg_to_ws_v1(message, "shell", lambda part: json.dumps(part).encode()))
        seen = []
        while not seen or seen[-1][1:] != ("status", "idle"):
            channel, parts = deserialize_msg_from_ws_v1(await asyncio.wait_for(socket.recv(), 60))
            header, parent, _, content = map(json.loads, parts)
            assert parent["msg_id"] == "1"
            seen.append((channel, header["msg_type"], content.get("text") or content.get("execution_state")))
    assert ("iopub", "stream", "é\n") in seen and ("shell", "execute_reply", None) in seen, seen


kernel_client()
asyncio.run(binary())
told = asyncio.run(open_webui("print('hello')\nx = 5\nx"))
kinds = [each["msg_type"] for each in told]
assert kinds == ["status", "execute_input", "stream", "execute_result", "execute_reply", "status"], kinds
print("all")
