"""A token bucket: the gateway's limit of requests per second and of bursts."""

from __future__ import annotations

import threading
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from local.cloudformation.identities import STAGE_TYPE
from local.gateway.apis import parts_of
from local.workspace import LocalError

if TYPE_CHECKING:
    from collections.abc import Callable

    from local.cloudformation.template import Template


@dataclass(kw_only=True)
class TokenBucket:
    """A bucket of at most `burst` tokens that gains `rate` tokens a second; it starts full.

    `clock` gives seconds that never go back.
    """

    rate: float
    burst: int
    clock: Callable[[], float] = time.monotonic
    _tokens: float = field(init=False)
    _counted: float = field(init=False)
    _lock: threading.Lock = field(init=False, default_factory=threading.Lock)

    def __post_init__(self) -> None:
        self._tokens = float(self.burst)
        self._counted = self.clock()

    def take(self) -> bool:
        """Take a token; return whether there was one."""
        with self._lock:
            now = self.clock()
            gained = (now - self._counted) * self.rate
            self._tokens = min(float(self.burst), self._tokens + gained)
            self._counted = now
            if self._tokens < 1:
                return False
            self._tokens -= 1
            return True


def read_throttle(template: Template, api: str) -> TokenBucket | None:
    """Return the limit of the API's stage, or None.

    Raises:
        LocalError: a route has a limit of its own.
    """
    for name, properties in parts_of(template, api, STAGE_TYPE).items():
        if properties.get("RouteSettings"):
            raise LocalError(f"{name} ({STAGE_TYPE}) has RouteSettings: one limit is run here")
        settings = properties.get("DefaultRouteSettings", {})
        rate, burst = (settings.get(f"Throttling{part}Limit") for part in ("Rate", "Burst"))
        if rate is not None and burst is not None:
            return TokenBucket(rate=float(rate), burst=int(burst))
    return None
