"""Prints a digest of every call to the tables, and every answer, of a world of each scenario."""

from __future__ import annotations

import functools
import hashlib
import json
from typing import Any

from fairbox.testing import MemoryDynamoDB
from fairbox.testing.faults import OPERATIONS
from fairbox_simulation.chaos import Chaos
from fairbox_simulation.scenarios import SCENARIOS

SIZES = {
    "whole": 10,
    "expiring": 10,
    "delivery": 200,
    "ordered": 250,
    "resizing": 30,
    "riding": 45,
    "backlog": 60,
    "latency": 60,
    "rates": 300,
    "payloads": 30,
    "tenants": 60,
    "attempts": 10,
    "overdue": 60,
    "adding": 40,
}
CALLS = 150


class Trace:
    """The calls of one world, in their order."""

    def __init__(self) -> None:
        self.calls = 0
        self._digest = hashlib.sha256()

    def told(self, *call: object) -> None:
        self.calls += 1
        self._digest.update(repr(call).encode())

    @property
    def digest(self) -> str:
        return self._digest.hexdigest()


def tap(engine: type, now: list[Trace]) -> None:
    """Tell the present trace every call to the engines of a class."""
    for name in OPERATIONS & set(dir(engine)):
        method = getattr(engine, name)

        @functools.wraps(method)
        def call(self: Any, *, _name: str = name, _method: Any = method, **request: Any) -> Any:
            answer = _method(self, **request)
            now[0].told(_name, request, answer)
            return answer

        setattr(engine, name, call)


def main() -> None:
    """Print an object: scenario -> digest."""
    now = [Trace()]
    tap(MemoryDynamoDB, now)
    digests = {}
    for name, scenario in SCENARIOS.items():
        now[0] = Trace()
        breaches = scenario.breaches(7, Chaos(), SIZES[name])
        assert now[0].calls > CALLS, (name, now[0].calls)
        digests[name] = [now[0].digest, breaches]
    print(json.dumps(digests))  # noqa: T201 - it is what this program is for


if __name__ == "__main__":
    main()
