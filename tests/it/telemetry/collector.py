"""An OTLP collector of the official messages: prints each request as JSON, or never answers."""

import json
import sys
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Event, Lock

from google.protobuf.json_format import MessageToDict
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

REQUESTS = {"/v1/traces": ExportTraceServiceRequest, "/v1/metrics": ExportMetricsServiceRequest}
LOCK = Lock()


def say(value):
    with LOCK:
        print(json.dumps(value), flush=True)


class Collector(BaseHTTPRequestHandler):
    def do_POST(self):
        body = self.rfile.read(int(self.headers["content-length"]))
        if sys.argv[1:] == ["hang"]:
            say({"hangs": self.path})
            Event().wait()
        request = REQUESTS[self.path]()
        request.ParseFromString(body)
        # What this message does not have would be kept as unknown fields, and written again.
        known = type(request)()
        known.CopyFrom(request)
        known.DiscardUnknownFields()
        told = {"path": self.path, "type": self.headers["content-type"], "key": self.headers["x-key"]}
        told["all_known"] = known.SerializeToString() == request.SerializeToString()
        say(told | {"body": MessageToDict(request)})
        self.send_response(200)
        self.send_header("content-type", "application/x-protobuf")
        self.send_header("content-length", "0")
        self.end_headers()

    def log_message(self, *_):
        pass


server = ThreadingHTTPServer(("127.0.0.1", 0), Collector)
say({"port": server.server_port})
server.serve_forever()
