"""The examples, by the commands of their READMEs."""

from __future__ import annotations

import os
import re
import socket
import subprocess
import sys
import threading
from http.client import HTTPConnection
from typing import TYPE_CHECKING

import pytest
from fairbox_cdk.node import bin_folder

from local.webhooks import SECRET_VARIABLE
from local.workspace import FOLDER_VARIABLE, REPOSITORY, Workspace

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = [pytest.mark.engine, pytest.mark.e2e, pytest.mark.timeout(300)]

SECONDS = 60
_BLOCK = re.compile(r"^```bash\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def blocks(example: str) -> list[str]:
    """Return the commands of an example's README."""
    return _BLOCK.findall((REPOSITORY / "examples" / example / "README.md").read_text("utf-8"))


def environment(workspace: Workspace, **more: str) -> dict[str, str]:
    """Return the variables of a shell at whose ports nothing else is."""
    free = ("API", "FEEDS", "SERVICES", "DYNAMODB")
    ports = {f"FAIRBOX_LOCAL_{name}_PORT": str(port()) for name in free}
    path = f"{bin_folder()}:{os.path.dirname(sys.executable)}:{os.environ['PATH']}"  # noqa: PTH120
    return {**os.environ, **ports, FOLDER_VARIABLE: str(workspace.root), "PATH": path, **more}


def port() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return int(free.getsockname()[1])


@pytest.fixture(scope="module")
def signing(workspace: Workspace, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Workspace]:
    """`make up WEBHOOK_SECRET=...` of the README, in a folder of its own."""
    moved = Workspace(root=tmp_path_factory.mktemp("examples") / "local")
    moved.folder(moved.root)
    moved.engines.symlink_to(workspace.engines)
    (secret,) = re.findall(r"^make up WEBHOOK_SECRET=(\S+)$", blocks("webhooks")[0])
    shell = environment(moved, **{SECRET_VARIABLE: secret})
    local = [sys.executable, "-m", "local"]
    up = subprocess.run(
        [*local, "up"], cwd=REPOSITORY, env=shell, capture_output=True, text=True, check=False
    )
    assert up.returncode == 0, up.stdout + up.stderr
    yield moved
    subprocess.run([*local, "down"], cwd=REPOSITORY, env=shell, capture_output=True, check=True)


@pytest.mark.parametrize("receiver", ["receiver.py", "receiver.mjs"])
def test_a_receiver_of_webhooks_takes_what_is_signed(signing: Workspace, receiver: str) -> None:
    _, receivers, messages = blocks("webhooks")
    (command,) = (line for line in receivers.splitlines() if receiver in line)
    at = port()
    with subprocess.Popen(
        command.replace("9090", str(at)).split(),
        cwd=REPOSITORY,
        env=environment(signing),
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        watchdog = threading.Timer(SECONDS, process.kill)
        watchdog.start()
        try:
            assert process.stdout is not None
            assert process.stdout.readline() == f"listening on {at}\n"
            sent = messages.replace("9090", str(at)).replace(".venv/bin/", "")
            run(signing, sent.replace("source .local/env", f"source {signing.env_file}"))
            assert process.stdout.readline() == 'received {"invoice": 7}\n'
            assert post(at, b'{"invoice": 8}') == 401
        finally:
            watchdog.cancel()
            process.kill()


def run(workspace: Workspace, commands: str) -> None:
    done = subprocess.run(
        ["bash", "-ec", commands],
        cwd=REPOSITORY,
        env=environment(workspace),
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr


def post(at: int, body: bytes) -> int:
    """Return the status that a stranger's request gets."""
    connection = HTTPConnection("127.0.0.1", at, timeout=SECONDS)
    try:
        connection.request("POST", "/", body, {"webhook-id": "1", "webhook-signature": "v1,x"})
        return connection.getresponse().status
    finally:
        connection.close()
