"""DynamoDB Local for the contract tests: resolved by its coordinates, started on a free port."""

from __future__ import annotations

import shutil
import socket
import subprocess
import time
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from jgo.env import EnvironmentBuilder, LinkStrategy
from jgo.maven import MavenContext, PythonResolver

if TYPE_CHECKING:
    from collections.abc import Iterator

COORDINATES = "software.amazon.dynamodb:DynamoDBLocal:3.1.0"
MAIN = "software.amazon.dynamodb.services.local.main.ServerRunner"
FOLDER = Path(__file__).parents[2] / ".local" / "engine-trial"
START_SECONDS = 60


@contextmanager
def dynamodb_local(folder: Path) -> Iterator[str]:
    """The URL of a fresh engine, in memory; its log goes to `folder`."""
    java = shutil.which("java")
    assert java is not None, "java 17 or 21 is missing"
    context = MavenContext(repo_cache=FOLDER / "m2", resolver=PythonResolver())
    builder = EnvironmentBuilder(
        context=context, cache_dir=FOLDER / "env", link_strategy=LinkStrategy.HARD
    )
    home = builder.from_endpoint(COORDINATES).path
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    command = [
        java, "-Xmx512m", f"-Djava.library.path={home / 'jars'}",
        "-cp", f"{home / 'jars'}/*:{home / 'modules'}/*", MAIN,
        "-sharedDb", "-disableTelemetry", "-inMemory", "-port", str(port),
    ]  # fmt: skip
    log = folder / "engine.log"
    with (
        log.open("wb") as output,
        subprocess.Popen(command, stdout=output, stderr=output) as engine,
    ):
        try:
            _wait(engine, port, log)
            yield f"http://127.0.0.1:{port}"
        finally:
            engine.terminate()
            engine.wait(timeout=20)


def _wait(engine: subprocess.Popen[bytes], port: int, log: Path) -> None:
    deadline = time.monotonic() + START_SECONDS
    while time.monotonic() < deadline:
        assert engine.poll() is None, f"DynamoDB Local ended: {log.read_text()}"
        try:
            socket.create_connection(("127.0.0.1", port), timeout=1).close()
        except OSError:
            time.sleep(0.1)
        else:
            return
    raise TimeoutError(f"DynamoDB Local did not listen: {log.read_text()}")
