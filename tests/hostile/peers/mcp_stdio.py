"""As much of an MCP client as an attack needs: requests over standard input and output, each in its own time."""

import json
import os
import subprocess
import threading
import time


class Server:
    def __init__(self, command, env=None):
        self.process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
            env={**os.environ, **(env or {})},
        )
        self.answers, self.stray, self.next = {}, 0, 0
        self.lock, self.came = threading.Lock(), threading.Condition()
        threading.Thread(target=self._read, daemon=True).start()
        hello = {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "attacks", "version": "1"}}
        self.ask("initialize", hello, 60)
        self.write({"jsonrpc": "2.0", "method": "notifications/initialized"})

    def _read(self):
        for line in self.process.stdout:
            try:
                message = json.loads(line)
            except ValueError:
                self.stray += len(line)
                continue
            with self.came:
                if "id" in message and "method" not in message:
                    self.answers[message["id"]] = message
                self.came.notify_all()

    def write(self, message):
        with self.lock:
            self.process.stdin.write(json.dumps(message).encode() + b"\n")
            self.process.stdin.flush()

    def begin(self, method, params):
        self.next += 1
        self.write({"jsonrpc": "2.0", "id": self.next, "method": method, "params": params})
        return self.next

    def end(self, id, seconds):
        until = time.time() + seconds
        with self.came:
            while id not in self.answers:
                left = until - time.time()
                if left <= 0:
                    return None
                self.came.wait(left)
            return self.answers.pop(id)

    def ask(self, method, params, seconds=30):
        return self.end(self.begin(method, params), seconds)

    def call(self, name, arguments, seconds=30):
        return self.ask("tools/call", {"name": name, "arguments": arguments}, seconds)

    def cancel(self, id):
        self.write({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": id, "reason": "enough"}})

    def cpu_seconds(self):
        """Processor time of the server so far."""
        fields = open(f"/proc/{self.process.pid}/stat").read().rsplit(")", 1)[1].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def memory_mib(self):
        for line in open(f"/proc/{self.process.pid}/status"):
            if line.startswith("VmHWM"):
                return int(line.split()[1]) // 1024

    def stop(self):
        self.process.kill()
        self.process.wait()


def said(answer, most=400):
    """What an agent reads of an answer."""
    if answer is None:
        return "no answer in time"
    if "error" in answer:
        return "error: " + json.dumps(answer["error"])[:most]
    result = answer["result"]
    texts = [part.get("text", "") for part in result.get("content", [])]
    return ("isError: " if result.get("isError") else "") + " ".join(texts)[:most]
