"""A server of an ASGI application on a loopback port, in a thread."""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING, Any

import uvicorn

from local.workspace import LOOPBACK, LocalError

if TYPE_CHECKING:
    from starlette.types import ASGIApp

START_SECONDS = 15.0
GRACE_SECONDS = 2


class WebServer:
    """One uvicorn server in a thread of its own; `settings` are uvicorn's."""

    def __init__(self, app: ASGIApp, *, port: int, name: str, **settings: Any) -> None:
        self.port = port
        self.url = f"http://{LOOPBACK}:{port}"
        config = uvicorn.Config(
            app,
            host=LOOPBACK,
            port=port,
            log_level="error",
            access_log=False,
            lifespan="off",
            server_header=False,
            timeout_graceful_shutdown=GRACE_SECONDS,
            **{"ws": "none", **settings},
        )
        self._server = uvicorn.Server(config)
        self._thread = threading.Thread(target=self._serve, name=name, daemon=True)

    def _serve(self) -> None:
        try:
            self._server.run()
        except SystemExit:  # uvicorn's way of saying that it cannot listen
            return

    def start(self) -> None:
        """Start and wait until it listens.

        Raises:
            LocalError: it cannot listen on the port.
        """
        self._thread.start()
        deadline = time.monotonic() + START_SECONDS
        while not self._server.started:
            if not self._thread.is_alive() or time.monotonic() > deadline:
                raise LocalError(f"cannot listen on {self.url}")
            time.sleep(0.01)

    def stop(self) -> None:
        """Finish open requests, two seconds at most, and end."""
        self._server.should_exit = True
        if self._thread.is_alive():
            self._thread.join(GRACE_SECONDS + 5)
