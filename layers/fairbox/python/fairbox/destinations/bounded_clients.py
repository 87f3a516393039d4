"""boto3 clients for destinations: one call each, bounded in time, no retries beneath it."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any, Final, Protocol

from botocore.config import Config

from fairbox.sdk.clients import bounded, gc_paused

if TYPE_CHECKING:
    from collections.abc import Callable

    from boto3.session import Session

READ_SECONDS: Final = 3.0
_CONNECT_SECONDS: Final = 1
_CONNECTIONS: Final = 128
"""As many as calls that run at once, so that each connection is used again."""


class Clients(Protocol):
    """Gives the client of a service in a region, the same each time."""

    def __call__(
        self, service: str, /, *, region: str | None = None, read_timeout: float = READ_SECONDS
    ) -> Any:
        """Return the client that waits `read_timeout` seconds for an answer.

        It signs and calls for its region, even if a call names an ARN or URL of another one. By
        default, the region is the environment's.
        """
        ...


def make_clients(session_factory: Callable[[], Session]) -> Clients:
    """Return a maker of clients, each made from one session when it is first needed."""
    lock = threading.Lock()
    made: dict[tuple[str, str | None, float], Any] = {}
    sessions: list[Session] = []

    def client_of(
        service: str, /, *, region: str | None = None, read_timeout: float = READ_SECONDS
    ) -> Any:
        with lock:
            # clients are made one at a time: a session is not safe for several threads
            if not sessions:
                sessions.append(session_factory())

            place = region or sessions[0].region_name
            # time-outs belong to a client, so each needs one of its own
            key = (service, place, read_timeout)
            if key not in made:
                config = Config(
                    connect_timeout=_CONNECT_SECONDS,
                    read_timeout=read_timeout,
                    max_pool_connections=_CONNECTIONS,
                    # no tries of the SDK's: the dispatcher counts and delays attempts itself
                    retries={"mode": "standard", "total_max_attempts": 1},
                )
                with gc_paused():
                    client = sessions[0].client(  # type: ignore[call-overload]
                        service, region_name=place, config=config
                    )
                made[key] = bounded(client)
            return made[key]

    return client_of
