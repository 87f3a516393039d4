"""The examples, by the commands of their READMEs."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import threading
from contextlib import contextmanager
from http.client import HTTPConnection
from http.server import BaseHTTPRequestHandler
from typing import TYPE_CHECKING, ClassVar

import pytest
from botocore.auth import SigV4Auth
from botocore.awsrequest import AWSRequest
from botocore.credentials import Credentials
from fairbox_cdk.node import bin_folder

from local.loopback_server import LoopbackServer
from local.webhooks import SECRET_VARIABLE
from local.workspace import FOLDER_VARIABLE, REPOSITORY, Workspace

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

pytestmark = [pytest.mark.engine, pytest.mark.e2e, pytest.mark.timeout(300)]

SECONDS = 60
CREDENTIALS = ("ACCESS_KEY_ID", "SECRET_ACCESS_KEY", "SESSION_TOKEN")
_BLOCK = re.compile(r"^```bash\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def blocks(example: str) -> list[str]:
    """Return the commands of an example's README."""
    return _BLOCK.findall((REPOSITORY / "examples" / example / "README.md").read_text("utf-8"))


def environment(workspace: Workspace, **more: str) -> dict[str, str]:
    """Return the variables of a shell in which the system gives the ports."""
    names = ("API", "FEEDS", "SERVICES", "DYNAMODB")
    ports = {f"FAIRBOX_LOCAL_{name}_PORT": "0" for name in names}
    path = f"{bin_folder()}:{os.path.dirname(sys.executable)}:{os.environ['PATH']}"  # noqa: PTH120
    return {**os.environ, **ports, FOLDER_VARIABLE: str(workspace.root), "PATH": path, **more}


@pytest.fixture(scope="module")
def running(workspace: Workspace, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Workspace]:
    """The application of `make up`, with the secret of the webhooks' README."""
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
def test_a_receiver_of_webhooks_takes_what_is_signed(running: Workspace, receiver: str) -> None:
    _, receivers, messages = blocks("webhooks")
    (command,) = (line for line in receivers.splitlines() if receiver in line)
    with server(running, command.replace("9090", "0")) as lines:
        at = next(lines).removeprefix("listening on ").strip()
        run(running, messages.replace("9090", at))
        assert next(lines) == 'received {"invoice": 7}\n'
        assert post(int(at), b'{"invoice": 8}') == 401


def test_an_order_service_writes_order_and_message_once(running: Workspace) -> None:
    _, service, orders = blocks("fastapi")
    with server(running, service.replace("8090", "0").replace("\n", "; ")) as lines:
        (at,) = next(found for line in lines if (found := re.findall(r"127.0.0.1:(\d+)", line)))
        said = run(running, orders.replace("8090", at))
    assert said.count('"message":"orders/') == said.count("order 7 is there") == 1
    assert said.count('"customer": "ann"') == 1


@pytest.mark.parametrize(
    ("example", "says"),
    [("functions", "ann has 12"), ("fan_out", "catalog-7: 100 pictures, 0 failed")],
)
def test_an_example_says_what_its_readme_says(running: Workspace, example: str, says: str) -> None:
    _, commands = blocks(example)
    assert run(running, commands) == f"{says}\n"
    assert f"`{says}`" in (REPOSITORY / "examples" / example / "README.md").read_text("utf-8")


def test_executions_wait_for_a_fan_out(running: Workspace) -> None:
    _, commands = blocks("waiting")
    assert run(running, commands) == '{"total": 100, "failed": 0}\n' * 2


@contextmanager
def server(workspace: Workspace, commands: str) -> Iterator[Iterator[str]]:
    """Run a server of a README, and give the lines that it prints; end it afterwards."""
    with subprocess.Popen(
        ["bash", "-ec", f"{installed(workspace, commands).strip('; ')} 2>&1"],
        cwd=REPOSITORY,
        env=environment(workspace),
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,
    ) as process:
        watchdog = threading.Timer(SECONDS, os.killpg, (process.pid, signal.SIGKILL))
        watchdog.start()
        try:
            assert process.stdout is not None
            yield iter(process.stdout)
        finally:
            watchdog.cancel()
            os.killpg(process.pid, signal.SIGKILL)


def installed(workspace: Workspace, commands: str) -> str:
    """Return commands of a README with the tools and the variables of the tests' environment."""
    npm = f"node {bin_folder().parent}/lib/node_modules/npm/bin/npm-cli.js"
    for name, place in (
        (".venv/bin/", ""),
        ("source .local/env", f"source {workspace.env_file}"),
        ("npm ci", f"{npm} ci --no-audit --no-fund"),
    ):
        commands = commands.replace(name, place)
    return commands


def run(workspace: Workspace, commands: str, **more: str) -> str:
    """Return the output of commands of a README."""
    done = subprocess.run(
        ["bash", "-ec", installed(workspace, commands)],
        cwd=REPOSITORY,
        env=environment(workspace, **more),
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_curl_and_node_publish_and_consume_over_http(running: Workspace) -> None:
    _, with_curl, with_node = blocks("http")
    assert '"refs":' in run(running, with_curl)
    said = run(running, f"source .local/env\n{with_node}").splitlines()
    assert {line for line in said if line.startswith("processed")} == {
        f"processed job {number}" for number in range(4)
    }


def test_curl_and_node_sign_what_they_send(running: Workspace) -> None:
    """The local application takes any signature; botocore computes the right one."""
    _, with_curl, with_node = blocks("http")
    (curl,) = re.findall(r"^curl .*?(?<!\\)$", with_curl, re.MULTILINE | re.DOTALL)
    with LoopbackServer(("127.0.0.1", 0), Recorder) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        address = f"http://127.0.0.1:{server.server_address[1]}"
        more = {"FAIRBOX_API_URL": address, "AWS_REGION": "eu-west-1"}
        more |= {f"AWS_{name}": f"{name} of a role" for name in CREDENTIALS}
        run(running, curl, **more)
        run(running, re.sub(r"jobs \d", "jobs 1", with_node), **more)
        server.shutdown()
    paths = [path for path, *_ in Recorder.seen]
    assert paths == ["/topics/jobs/messages"] * 2 + ["/topics/jobs/receive", "/acks"]
    for path, headers, body in Recorder.seen:
        assert headers["authorization"] == signature(f"{address}{path}", headers, body)
        assert "x-amz-security-token" in headers["authorization"]


class Recorder(BaseHTTPRequestHandler):
    """Keeps requests, and answers each with a ref and a message."""

    seen: ClassVar[list[tuple[str, dict[str, str], bytes]]] = []

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["content-length"]))
        headers = {name.lower(): value for name, value in self.headers.items()}
        self.seen.append((self.path, headers, body))
        answer = b'{"refs": ["r"], "messages": [{"ref": "r", "receipt": "r", "body": "{}"}]}'
        head = f"HTTP/1.0 200 OK\r\ncontent-length: {len(answer)}\r\n\r\n".encode()
        self.wfile.write(head + answer)

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the base class's
        pass


def signature(url: str, headers: Mapping[str, str], body: bytes) -> str:
    """Return the header that botocore makes for the headers that were signed."""
    named = re.findall(r"SignedHeaders=([^,]+)", headers["authorization"])[0].split(";")
    request = AWSRequest("POST", url, {name: headers[name] for name in named}, body)
    request.context["timestamp"] = headers["x-amz-date"]
    key, secret, token = (f"{name} of a role" for name in CREDENTIALS)
    auth = SigV4Auth(Credentials(key, secret, token), "execute-api", "eu-west-1")
    canonical = auth.canonical_request(request)
    signed = auth.signature(auth.string_to_sign(request, canonical), request)
    return (
        f"AWS4-HMAC-SHA256 Credential={auth.scope(request)}, SignedHeaders={';'.join(named)},"
        f" Signature={signed}"
    )


def post(at: int, body: bytes) -> int:
    """Return the status that a stranger's request gets."""
    connection = HTTPConnection("127.0.0.1", at, timeout=SECONDS)
    try:
        connection.request("POST", "/", body, {"webhook-id": "1", "webhook-signature": "v1,x"})
        return connection.getresponse().status
    finally:
        connection.close()
