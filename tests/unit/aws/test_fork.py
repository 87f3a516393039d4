"""A forked process, such as a worker of gunicorn that preloads, has connections of its own."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import ClassVar

import pytest

PROGRAM = """
import os, sys, boto3
from fairbox import Outbox
from fairbox.errors import UnknownTopic

own = boto3.client("dynamodb", region_name="eu-west-1", endpoint_url=sys.argv[1])
outboxes = [Outbox.from_env(), Outbox(own, table="o", deliveries_table="d")]

def call():
    for outbox in outboxes:
        try:
            outbox.topic("orders")
        except UnknownTopic:
            print("answered", flush=True)

call()
child = os.fork()
if not child:
    call()
    os._exit(0)
os.waitpid(child, 0)
call()
"""


class Tables(BaseHTTPRequestHandler):
    """Has no items, and counts connections."""

    protocol_version = "HTTP/1.1"
    connections: ClassVar[list[object]]

    def setup(self) -> None:
        super().setup()
        self.connections.append(self)

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["Content-Length"]))
        body = b'{"Items": [], "Count": 0}'
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        pass


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no processes are forked here")
def test_a_forked_process_opens_connections_of_its_own() -> None:
    class Here(Tables):
        connections: ClassVar[list[object]] = []

    with ThreadingHTTPServer(("127.0.0.1", 0), Here) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        url = f"http://127.0.0.1:{server.server_port}"
        names = {"AWS_ENDPOINT_URL": url, "AWS_DEFAULT_REGION": "eu-west-1"}
        names |= {"AWS_ACCESS_KEY_ID": "x", "AWS_SECRET_ACCESS_KEY": "y"}
        names |= {"FAIRBOX_OUTBOX_TABLE": "o", "FAIRBOX_DELIVERIES_TABLE": "d"}
        done = subprocess.run(
            [sys.executable, "-c", PROGRAM, url],
            env=os.environ | names,
            capture_output=True,
            text=True,
            check=True,
            timeout=60,
        )
        server.shutdown()
    assert done.stdout.split() == ["answered"] * 6
    assert len(Here.connections) == 4
