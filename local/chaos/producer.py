"""A chaos producer process: it publishes, edits and cancels messages and opens batches."""

from __future__ import annotations

import argparse
import random
import signal
import threading
import time
from collections import deque
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final

from fairbox import (
    Batches,
    Message,
    MessageRef,
    MessagesClaimed,
    MessagesNotFound,
    Outbox,
    Queue,
    Throttled,
    Unavailable,
)

from local.accounting import journal as journals
from local.accounting.journal import Journal
from local.accounting.topics import ACCOUNTED, EVENTS, JOBS, QUEUED, Route
from local.chaos.batch_work import Batching, Work, recorded
from local.chaos.sender import Sender, body_of, name_of

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

SENDERS: Final = 3
KEYS: Final = 4  # of each sender and ordered topic
_PAUSE_SECONDS: Final = 0.3
_SURE_SECONDS: Final = 1.0  # a shorter call was not repeated internally
_BATCH_MESSAGES: Final = 12  # per batch, for the rate
_POISON: Final = 0.02
_DELAYED: Final = 0.15
_MANY: Final = 0.25


class Producer:
    """Publishes until `stop` and records every message.

    Args:
        name: of the producer and this life of it.
        rate: messages a second over all its senders.
        seed: of topics, routes, delays and sizes.
        journal: may hold records of an earlier life.
        api_url: base address of the HTTP API.
    """

    def __init__(self, name: str, rate: float, seed: str, journal: Journal, api_url: str) -> None:
        self._name = name
        self._rate = rate
        self._seed = seed
        self._journal = journal
        self._stopping = threading.Event()
        self._outbox = Outbox.from_env()
        self._queue = Queue.over(self._outbox)
        self._batches = Batches.from_env()
        self._sender = Sender(self._outbox, api_url, journal, self._wait)
        self._delayed: deque[tuple[str, MessageRef]] = deque(maxlen=100)
        self._failures: list[BaseException] = []

    def begin(self, life: str) -> None:
        """Record that a life has begun: from now on signals are handled."""
        self._journal.write(t="begin", life=life)

    def stop(self) -> None:
        """Request the end; work under way is finished until its outcome is known."""
        self._stopping.set()

    def run(self, unfinished: Sequence[Work]) -> None:
        """Work; `unfinished` are the batches of an earlier life.

        Raises:
            Exception: the error that ended one of the threads.
        """
        works: list[Callable[[], None]] = [partial(self._send, n) for n in range(SENDERS)]
        works += [partial(self._work_batches, unfinished), self._operate]
        threads = [threading.Thread(target=self._guard, args=(work,)) for work in works]
        for thread in threads:
            thread.start()
        for thread in threads:
            while thread.is_alive():
                thread.join(1.0)  # a signal just before a wait is handled only after it
        if self._failures:
            raise self._failures[0]

    def _guard(self, work: Callable[[], None]) -> None:
        try:
            work()
        except BaseException as error:  # noqa: BLE001 - `run` raises it
            self._failures.append(error)
            self.stop()

    @staticmethod
    def _wait() -> None:
        time.sleep(_PAUSE_SECONDS)

    def _send(self, number: int) -> None:
        rng = random.Random(f"{self._seed}-{number}")  # noqa: S311 - no secret
        routes = [route for route in ACCOUNTED if route.share]
        shares = [route.share for route in routes]
        count = 0
        while not self._stopping.wait(rng.expovariate(self._rate / SENDERS)):
            (route,) = rng.choices(routes, shares)
            many = 5 if route.topic.ordering == "none" and rng.random() < _MANY / 5 else 1
            made = [self._message(route, f"{number}.{count + n}", rng) for n in range(many)]
            count += many
            self._publish(route, made, rng)

    def _message(self, route: Route, serial: str, rng: random.Random) -> Message:
        name = f"{self._name}.{serial}"
        thread = serial.partition(".")[0]
        poison = not route.subscriptions and rng.random() < _POISON
        return Message(
            topic=route.name,
            body=body_of(name, poison=poison, padding=rng.choice((0, 40, 300, 3000))),
            partition_key=f"{self._name}.{thread}.{rng.randrange(KEYS)}" if route.ordered else None,
            content_type="application/json",
            delay=rng.uniform(1, 6) if route in (JOBS, QUEUED) and rng.random() < _DELAYED else 0,
        )

    def _publish(self, route: Route, made: list[Message], rng: random.Random) -> None:
        first = made[0]
        if len(made) > 1:
            self._sender.add_many(made)
        elif route is EVENTS:
            self._sender.post(first)
        elif rng.random() < 0.4:
            self._sender.transact(first)
        else:
            ref = self._sender.add(first)
            if first.delay:
                self._delayed.append((name_of(first), ref))

    def _work_batches(self, unfinished: Sequence[Work]) -> None:
        rng = random.Random(f"{self._seed}-batches")  # noqa: S311 - no secret
        batching = Batching(self._batches, self._sender, self._journal, rng, self._wait)
        for work in unfinished:
            batching.finish(work)
        while not self._stopping.wait(rng.expovariate(self._rate / _BATCH_MESSAGES)):
            batching.finish(batching.begin())

    def _operate(self) -> None:
        """Cancel some of the delayed messages and edit others."""
        rng = random.Random(f"{self._seed}-operator")  # noqa: S311 - no secret
        while not self._stopping.wait(rng.expovariate(0.5)):
            if not self._delayed:
                continue
            name, ref = self._delayed.pop()
            if ref.topic == JOBS.name and rng.random() < 0.5:
                self._edit(name, ref)
            else:
                self._cancel(name, ref)

    def _cancel(self, name: str, ref: MessageRef) -> None:
        self._journal.write(t="cancel", n=name, topic=ref.topic)
        begun = time.monotonic()
        while True:
            try:
                facade = self._queue if ref.topic == JOBS.name else self._outbox
                facade.cancel([ref], reason="chaos")
            except (Throttled, Unavailable):
                self._wait()
            except (MessagesNotFound, MessagesClaimed):
                # after a longer time an earlier attempt may have succeeded
                if time.monotonic() - begun < _SURE_SECONDS:
                    self._journal.write(t="kept", n=name, topic=ref.topic)
                return
            else:
                self._journal.write(t="cancelled", n=name, topic=ref.topic)
                return

    def _edit(self, name: str, ref: MessageRef) -> None:
        try:
            self._queue.edit(ref, body=body_of(name, edition=1))
        except (Throttled, Unavailable, MessagesNotFound, MessagesClaimed):
            return  # the edit may have succeeded or not
        self._journal.write(t="edited", n=name, topic=ref.topic)


def main(arguments: Sequence[str] | None = None) -> None:
    """Produce until SIGTERM."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("name", help="the same in every life")
    parser.add_argument("life", help="which one, a number")
    parser.add_argument("--journal", type=Path, required=True)
    parser.add_argument("--rate", type=float, required=True)
    parser.add_argument("--seed", required=True)
    parser.add_argument("--api", required=True)
    given = parser.parse_args(arguments)
    earlier = recorded(journals.read(given.journal)) if given.journal.exists() else {}
    producer = Producer(
        f"{given.name}.{given.life}",
        given.rate,
        f"{given.seed}-{given.life}",
        Journal(given.journal),
        given.api,
    )
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: producer.stop())
    producer.begin(given.life)
    producer.run([work for work in earlier.values() if not work.filled])


if __name__ == "__main__":
    main()
