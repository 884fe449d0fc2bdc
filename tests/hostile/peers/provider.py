"""A provider on loopback that counts its effects: the oracle of what a peer let happen.

GET  /            200, the header X-Secret of the request is noted
GET  /redirect    302 to another host (the same server under its other address), which notes X-Secret too
POST /pay         one effect for each POST; with ?hang the answer never comes
"""

import json
import socketserver
import threading
import time
from http.server import BaseHTTPRequestHandler


class Provider(socketserver.ThreadingTCPServer):
    allow_reuse_address = True
    daemon_threads = True

    def __init__(self):
        super().__init__(("0.0.0.0", 0), Handler)
        self.port = self.server_address[1]
        self.effects = []
        self.secrets = []
        self.asked = []
        threading.Thread(target=self.serve_forever, daemon=True).start()

    def note(self, handler):
        host = handler.headers.get("Host", "")
        self.asked.append((host, handler.path))
        if handler.headers.get("X-Secret"):
            self.secrets.append((host, handler.headers["X-Secret"]))


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, *_):
        pass

    def answer(self, status, body, **headers):
        body = json.dumps(body).encode()
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(body)))
        self.send_header("Connection", "close")
        self.end_headers()
        self.wfile.write(body)

    def do_GET(self):
        self.server.note(self)
        if self.path == "/redirect":
            self.answer(302, {}, Location=f"http://127.0.0.1:{self.server.port}/stolen")
        else:
            self.answer(200, {"path": self.path})

    def do_POST(self):
        self.server.note(self)
        length = int(self.headers.get("Content-Length") or 0)
        body = self.rfile.read(length) if length else b""
        if self.headers.get("Transfer-Encoding"):
            body = b"chunked"
        self.server.effects.append((time.time(), body.decode(errors="replace")))
        if "hang" in self.path:
            time.sleep(60)
            return
        self.answer(200, {"id": f"re_{len(self.server.effects)}"})
