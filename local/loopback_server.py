"""The web server on loopback beneath proxies, receivers and the Runtime API."""

from __future__ import annotations

from http.server import ThreadingHTTPServer
from typing import Any


class LoopbackServer(ThreadingHTTPServer):
    """A server with a thread for each connection.

    The standard library lets five connections wait to be accepted. Under load the next one times
    out, which callers take for a destination that is gone.
    """

    daemon_threads = True
    request_queue_size = 512

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Log nothing: callers are killed, and disconnect."""
