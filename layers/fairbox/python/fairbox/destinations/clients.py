"""boto3 clients for destinations: one call each, bounded in time, no retries beneath it."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any, Final, Protocol

from botocore.config import Config

from fairbox.aws.gc_pause import no_collection

if TYPE_CHECKING:
    from collections.abc import Callable

    from boto3.session import Session

READ_SECONDS: Final = 3.0
_CONNECT_SECONDS: Final = 1


class Clients(Protocol):
    """Gives the client of a service, the same each time."""

    def __call__(self, service: str, /, *, read_timeout: float = READ_SECONDS) -> Any:
        """Return the client that waits for an answer for so many seconds."""
        ...


def make_clients(session_factory: Callable[[], Session]) -> Clients:
    """Return what makes each client when it is first asked for, from one session."""
    lock = threading.Lock()
    made: dict[tuple[str, float], Any] = {}
    sessions: list[Session] = []

    def client(service: str, /, *, read_timeout: float = READ_SECONDS) -> Any:
        with lock:
            key = (service, read_timeout)
            if key not in made:
                if not sessions:
                    sessions.append(session_factory())
                config = Config(
                    connect_timeout=_CONNECT_SECONDS,
                    read_timeout=read_timeout,
                    retries={"mode": "standard", "total_max_attempts": 1},
                )
                with no_collection():
                    made[key] = sessions[0].client(service, config=config)  # type: ignore[call-overload]
            return made[key]

    return client
