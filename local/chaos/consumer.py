"""A process that consumes one pulled topic and records each message that it handles."""

from __future__ import annotations

import argparse
import json
import random
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from fairbox import Consumer, Queue

from local.accounting.journal import Journal
from local.accounting.topics import PULL

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

VISIBILITY_SECONDS: Final = 5.0
CONCURRENCY: Final = 4
_LONG: Final = 0.01  # share of handlers that outlast the visibility timeout: heartbeats extend it


class PoisonError(Exception):
    """The message is marked as impossible to handle."""


def handler(journal: Journal, topic: str, rng: random.Random) -> Callable[[Any], None]:
    """Return a handler that fails at random and on poison, and records handled messages."""

    def handle(received: Any) -> None:
        begun = time.monotonic_ns()
        found = json.loads(received.message.body)
        if found.get("poison"):
            raise PoisonError("poison")
        if rng.random() < 0.03:
            raise RuntimeError("not now")
        time.sleep(VISIBILITY_SECONDS * 1.2 if rng.random() < _LONG else rng.random() * 0.02)
        journal.write(
            topic=topic, taker=PULL, n=found["n"], e=found["e"], id=received.message.id, at=begun
        )

    return handle


def main(arguments: Sequence[str] | None = None) -> None:
    """Consume the topic until a signal."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("topic")
    parser.add_argument("--journal", type=Path, required=True)
    parser.add_argument("--seed", required=True)
    given = parser.parse_args(arguments)
    work = handler(
        Journal(given.journal),
        given.topic,
        random.Random(given.seed),  # noqa: S311 - no secret
    )
    Consumer(
        Queue.from_env(),
        given.topic,
        work,
        concurrency=CONCURRENCY,
        visibility_timeout=VISIBILITY_SECONDS,
        idle=1.0,
    ).run()


if __name__ == "__main__":
    main()
