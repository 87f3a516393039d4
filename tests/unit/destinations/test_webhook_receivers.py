"""Webhooks to real receivers over TLS, which close their connections between the messages."""

from __future__ import annotations

import contextlib
import socket
import subprocess
import threading
from typing import TYPE_CHECKING, Any

import pytest
import uvicorn
from fairbox.destinations.outbound import Caller, Url
from fairbox.destinations.webhook import Webhook
from fairbox.dispatch.ports import TAKEN
from fairbox_cdk.node import bin_folder

from tests.support.destination_examples import FixedClock, stored
from tests.support.webhook_server import certificate, contexts

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

MESSAGES = 12
NODE = """
const pem = require("fs").readFileSync(process.argv[1]);
const answer = (request, response) => request.resume().on("end", () => response.end("ok"));
const server = require("https").createServer({ key: pem, cert: pem }, answer);
server.keepAliveTimeout = 1;
server.keepAliveTimeoutBuffer = 0;
server.on("connection", (socket) => socket.on("close", () => console.log("closed")));
server.listen(0, "127.0.0.1", () => console.log(server.address().port));
"""


@pytest.fixture
def pem(tmp_path: Path) -> Path:
    path = tmp_path / "receiver.pem"
    path.write_bytes(certificate())
    return path


def webhook(port: int) -> Webhook:
    url = Url.parse(f"https://localhost:{port}/hook")
    found = lambda _h, _p: ["127.0.0.1"]  # noqa: E731 - one line says it
    caller = Caller(url, allow_private=True, lookup=found, tls=contexts()[1])
    return Webhook(caller, clock=FixedClock())


def test_a_node_that_closes_idle_connections_takes_each_message(pem: Path) -> None:
    command = [str(bin_folder() / "node"), "-e", NODE, str(pem)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as node:
        try:
            assert node.stdout is not None
            made = webhook(int(node.stdout.readline()))
            for _ in range(MESSAGES):
                assert made.send([stored()], 60) == [TAKEN]
                assert node.stdout.readline() == "closed\n"
        finally:
            node.terminate()


@contextlib.contextmanager
def uvicorn_receiver(pem: Path, seen: list[str]) -> Iterator[int]:
    """Serve over TLS; a connection closes as its answer has gone out."""

    async def take(scope: Any, receive: Any, send: Any) -> None:
        seen.append(dict(scope["headers"])[b"webhook-id"].decode())
        while (await receive()).get("more_body"):
            pass
        await send({"type": "http.response.start", "status": 204, "headers": []})
        await send({"type": "http.response.body", "body": b""})

    config = uvicorn.Config(
        take, ssl_certfile=str(pem), lifespan="off", log_level="error", timeout_keep_alive=0
    )
    server = uvicorn.Server(config)
    with socket.create_server(("127.0.0.1", 0)) as listener:
        thread = threading.Thread(target=server.run, args=([listener],), daemon=True)
        thread.start()
        yield listener.getsockname()[1]
        server.should_exit = True
        thread.join(60)


def test_a_python_that_closes_idle_connections_takes_each_message_once(pem: Path) -> None:
    seen: list[str] = []
    sent = [stored() for _ in range(MESSAGES)]
    with uvicorn_receiver(pem, seen) as port:
        assert webhook(port).send(sent, 60) == [TAKEN] * MESSAGES
    assert seen == [message.message.id for message in sent]
