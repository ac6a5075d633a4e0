"""An MCP server that converts units, by hand: lines of JSON on the standard streams. Most are made with an SDK."""
import json
import sys

FACTORS = {"m": 1.0, "km": 1000.0, "ft": 0.3048, "mi": 1609.344}
UNIT = {"type": "string", "enum": sorted(FACTORS)}
NUMBER = {"type": "number"}
CONVERT = {
    "name": "convert-length",
    "description": "Converts a length.",
    "inputSchema": {
        "type": "object",
        "properties": {"value": NUMBER, "from": UNIT, "to": UNIT},
        "required": ["value", "from", "to"],
    },
    "outputSchema": {"type": "object", "properties": {"result": NUMBER}, "required": ["result"]},
}


def answer(method, params):
    if method == "initialize":
        version = params["protocolVersion"]
        return {"protocolVersion": version, "capabilities": {"tools": {}}, "serverInfo": {"name": "units", "version": "1"}}
    if method == "tools/list":
        return {"tools": [CONVERT]}
    given = params["arguments"]
    result = given["value"] * FACTORS[given["from"]] / FACTORS[given["to"]]
    return {"content": [{"type": "text", "text": str(result)}], "structuredContent": {"result": result}}


for line in sys.stdin:
    message = json.loads(line)
    if "id" in message:
        result = answer(message["method"], message.get("params", {}))
        print(json.dumps({"jsonrpc": "2.0", "id": message["id"], "result": result}), flush=True)
