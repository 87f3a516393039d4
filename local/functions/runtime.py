"""One execution environment of a function: its process and the Runtime API that it calls."""

from __future__ import annotations

import contextlib
import json
import os
import shlex
import signal
import subprocess
import sys
import threading
import time
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler
from typing import TYPE_CHECKING, Any, Protocol

from local.functions.invoker import InvokeResult
from local.loopback_server import LoopbackServer
from local.workspace import LOOPBACK

if TYPE_CHECKING:
    from local.functions.specs import FunctionSpec

API = "/2018-06-01/runtime"
INIT_SECONDS = 60.0  # AWS allows 10; this machine runs everything else beside it
RESPONSE_LIMIT = 6 * 1024 * 1024
UNHANDLED = "Unhandled"
WRAPPER_VARIABLE = "FAIRBOX_LOCAL_EXEC_WRAPPER"


def exec_wrapper() -> list[str]:
    """Return the command before every function's own, as `AWS_LAMBDA_EXEC_WRAPPER` names on AWS."""
    return shlex.split(os.environ.get(WRAPPER_VARIABLE, ""))


class Log(Protocol):
    """Takes the output of a function, line by line."""

    def write(self, function: str, line: bytes) -> None:
        """Take one line with its end."""


@dataclass
class Invocation:
    """One event on its way through a process."""

    request_id: str
    payload: bytes
    deadline_ms: int
    done: threading.Event = field(default_factory=threading.Event)
    result: InvokeResult | None = None

    def finish(self, result: InvokeResult) -> None:
        """Take the first result; ignore later ones."""
        if self.result is None:
            self.result = result
        self.done.set()


def failure(kind: str, message: str) -> InvokeResult:
    """Return an error as AWS writes it."""
    body = {"errorType": kind, "errorMessage": message}
    return InvokeResult(json.dumps(body).encode(), UNHANDLED)


class Instance:
    """A process and its Runtime API; one invocation at a time.

    With `freeze` the process is stopped while it waits for its next event, as AWS freezes an
    execution environment.
    """

    def __init__(self, spec: FunctionSpec, *, name: str, log: Log, freeze: bool = True) -> None:
        self.spec = spec
        self.name = name
        self.invocations = 0
        self._log = log
        self._freeze = freeze
        self._state = threading.Condition()
        self._waiting: Invocation | None = None  # given, not yet fetched
        self._current: Invocation | None = None  # fetched, not yet answered
        self._asked = False  # the process waits for its next event
        self._init_error: InvokeResult | None = None
        self._exited = False
        self._killed = False
        self._server = _RuntimeServer((LOOPBACK, 0), _Handler)
        self._server.instance = self
        self._process: subprocess.Popen[bytes] | None = None
        self._reader = threading.Thread(target=self._read_output, daemon=True)

    @property
    def alive(self) -> bool:
        """Whether the process can take another event."""
        return not self._exited and not self._killed and self._init_error is None

    @property
    def pid(self) -> int | None:
        """Process id once started."""
        return self._process.pid if self._process else None

    def start(self) -> None:
        """Start the process, which loads the function's code immediately."""
        port = self._server.server_address[1]
        threading.Thread(
            target=self._server.serve_forever, kwargs={"poll_interval": 0.2}, daemon=True
        ).start()
        self._process = subprocess.Popen(
            [*exec_wrapper(), sys.executable, "-m", "awslambdaric", self.spec.handler],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            cwd=self.spec.task_root,
            env=self.spec.process_environment(f"{LOOPBACK}:{port}", instance=self.name),
            process_group=0,
        )
        self._reader.start()

    def _read_output(self) -> None:
        """Forward lines until the process has ended, then fail the invocation that waits."""
        process = self._process
        if process is None or process.stdout is None:
            return
        with process.stdout as output:
            for line in output:
                self._log.write(self.spec.name, line)
        code = process.wait()
        with self._state:
            self._exited = True
            for invocation in (self._current, self._waiting):
                if invocation:
                    invocation.finish(self._exit_error(invocation.request_id, code))
            self._state.notify_all()
        self._server.shutdown()
        self._server.server_close()

    def _exit_error(self, request_id: str, code: int) -> InvokeResult:
        if self._init_error:
            return self._init_error
        how = f"exit status {code}" if code >= 0 else f"signal: {_signal_word(-code)}"
        return failure(
            "Runtime.ExitError", f"RequestId: {request_id} Error: Runtime exited with error: {how}"
        )

    def invoke(self, payload: bytes, *, request_id: str) -> InvokeResult:
        """Hand the event to the process and wait; kill the process at the function's timeout."""
        started = time.monotonic()
        if not self._wait_for_init():
            return self._init_failure(request_id)
        begun = time.monotonic()
        deadline = time.time() + self.spec.timeout
        invocation = Invocation(request_id, payload, int(deadline * 1000))
        self._say(f"START RequestId: {request_id} Version: $LATEST")
        with self._state:
            if self._exited:
                invocation.finish(self._exit_error(request_id, -signal.SIGKILL))
            self._waiting = invocation
            self._thaw()
            self._state.notify_all()
        if not invocation.done.wait(self.spec.timeout):
            text = f"Task timed out after {self.spec.timeout:.2f} seconds"
            invocation.finish(failure("Sandbox.Timedout", f"RequestId: {request_id} Error: {text}"))
            self._say(f"{request_id} {text}")
            self.kill()
        cold = f" Init: {(begun - started) * 1000:.0f} ms" if self.invocations == 0 else ""
        took = f"{(time.monotonic() - begun) * 1000:.1f}"
        self._say(f"REPORT RequestId: {request_id} Duration: {took} ms{cold}")
        self.invocations += 1
        return invocation.result or failure("Runtime.Unknown", "no result")

    def _wait_for_init(self) -> bool:
        with self._state:
            return (
                self._state.wait_for(lambda: self._asked or not self.alive, INIT_SECONDS)
                and self.alive
            )

    def _init_failure(self, request_id: str) -> InvokeResult:
        if self._init_error:
            return self._init_error
        if self._exited or self._killed:
            code = self._process.wait() if self._process else 1
            return self._exit_error(request_id, code)
        self.kill()
        text = f"RequestId: {request_id} Error: init timed out after {INIT_SECONDS:g} seconds"
        return failure("Sandbox.Timedout", text)

    # Called by the Runtime API's threads.

    def next_event(self) -> Invocation | None:
        """Wait for an event while frozen. None: the process is ending."""
        with self._state:
            self._current = None
            self._asked = True
            self._state.notify_all()
            if self._waiting is None and self._freeze:
                self._signal(signal.SIGSTOP)
            self._state.wait_for(lambda: self._waiting is not None or self._exited)
            if self._exited:
                return None
            self._current, self._waiting = self._waiting, None
            self._asked = False
            return self._current

    def answer(self, request_id: str, result: InvokeResult) -> bool:
        """Take the answer of the current event; False: it is not the current one."""
        with self._state:
            current = self._current
        if current is None or current.request_id != request_id:
            return False
        if len(result.payload) > RESPONSE_LIMIT:
            result = failure(
                "Function.ResponseSizeTooLarge",
                f"Response payload size ({len(result.payload)} bytes) exceeded maximum allowed "
                f"payload size ({RESPONSE_LIMIT} bytes).",
            )
        current.finish(result)
        return True

    def init_failed(self, body: bytes) -> None:
        """Take the error that occurred while the function's code was loaded."""
        with self._state:
            self._init_error = InvokeResult(body, UNHANDLED)
            self._state.notify_all()

    # Ending it.

    def kill(self) -> None:
        """SIGKILL the process group and wait until it has ended."""
        self._killed = True
        self._signal(signal.SIGKILL)
        if self._process:
            self._process.wait()
        else:
            self._server.server_close()

    def suspend(self) -> None:
        """Suspend the process, as a machine short of processors does."""
        self._signal(signal.SIGSTOP)

    def resume(self) -> None:
        """Resume the process."""
        self._signal(signal.SIGCONT)

    def stop(self) -> None:
        """End the process immediately, as AWS ends an environment.

        Wait until its last line has been forwarded.
        """
        self.kill()
        if self._reader.is_alive():
            self._reader.join(timeout=5.0)

    def _thaw(self) -> None:
        if self._freeze:
            self._signal(signal.SIGCONT)

    def _signal(self, number: signal.Signals) -> None:
        if self._process and self._process.poll() is None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self._process.pid, number)

    def _say(self, line: str) -> None:
        self._log.write(self.spec.name, line.encode() + b"\n")


def _signal_word(number: int) -> str:
    return "killed" if number == signal.SIGKILL else signal.Signals(number).name.lower()


class _RuntimeServer(LoopbackServer):
    block_on_close = False
    instance: Instance


class _Handler(BaseHTTPRequestHandler):
    """The Runtime API. Buffered output makes each answer one write."""

    protocol_version = "HTTP/1.1"
    wbufsize = -1
    disable_nagle_algorithm = True
    server: _RuntimeServer

    def do_GET(self) -> None:
        """Give the next event."""
        if self.path != f"{API}/invocation/next":
            self._send(404, b"{}")
            return
        instance = self.server.instance
        invocation = instance.next_event()
        if invocation is None:
            self.close_connection = True
            return
        self._send(
            200,
            invocation.payload,
            {
                "Lambda-Runtime-Aws-Request-Id": invocation.request_id,
                "Lambda-Runtime-Deadline-Ms": str(invocation.deadline_ms),
                "Lambda-Runtime-Invoked-Function-Arn": instance.spec.arn,
            },
        )

    def do_POST(self) -> None:
        """Take an answer or an error."""
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        instance = self.server.instance
        if self.path == f"{API}/init/error":
            instance.init_failed(body)
            self._send(202, b'{"status":"OK"}')
            return
        request_id, _, what = self.path.removeprefix(f"{API}/invocation/").partition("/")
        error = UNHANDLED if what == "error" else None
        known = what in ("error", "response") and instance.answer(
            request_id, InvokeResult(body, error)
        )
        self._send(202 if known else 400, b'{"status":"OK"}')

    def _send(self, status: int, body: bytes, headers: dict[str, str] | None = None) -> None:
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        for key, value in (headers or {}).items():
            self.send_header(key, value)
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - the base class's name
        """Log nothing: functions have a log of their own."""
