"""The server that the skill Weather asks: `python3 examples/skills/_weather_server.py 8008`."""
import http.server
import json
import sys
import urllib.parse

WEATHER = {"Bern": {"temperature": 11.5, "wind": 2.0}, "Oslo": {"temperature": 3.0, "wind": 7.5}}


class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        query = urllib.parse.parse_qs(urllib.parse.urlsplit(self.path).query)
        found = WEATHER.get(query.get("city", [""])[0])
        body = json.dumps(found).encode()
        self.send_response(200 if found else 404)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_):
        pass


server = http.server.ThreadingHTTPServer(("127.0.0.1", int(sys.argv[1])), Handler)
print(server.server_port, flush=True)
server.serve_forever()
