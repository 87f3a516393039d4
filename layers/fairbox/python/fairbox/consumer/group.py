"""Group of consumers that run, stop and fail together."""

from __future__ import annotations

import queue as queues
import time
from collections.abc import Sequence
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Final, Literal, overload

from fairbox.consumer.consumer import Consumer, start_thread
from fairbox.consumer.counts import ConsumerCounts
from fairbox.consumer.options import Lifetime, next_order, on_signals
from fairbox.errors import FairboxError, InvalidInput

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from fairbox.consumer.ports import Thread, Threads

FURTHER_SECONDS: Final = 15.0
Order = Literal["stop", "now", "ended"]


class Consumers(Sequence["Consumer"]):
    """Consumers of one process, such as those of a partitioned queue.

    Args:
        consumers: one or more that have not run yet.
        more: called every 15 s while they run, with their number; returns further consumers, which
            run too.
        threads: starts a thread for each; the machine's by default.

    Raises:
        InvalidInput: there is no consumer, or one stands there twice.
    """

    def __init__(
        self,
        consumers: Iterable[Consumer],
        *,
        more: Callable[[int], Iterable[Consumer]] | None = None,
        threads: Threads | None = None,
    ) -> None:
        self._consumers = tuple(consumers)
        if not self._consumers:
            raise InvalidInput("consumers", "one at least")
        if len(set(self._consumers)) < len(self._consumers):
            raise InvalidInput("consumers", "each of them once")
        self._more = more
        self._threads = threads or start_thread
        self._orders: queues.SimpleQueue[Order] = queues.SimpleQueue()
        self._failure: BaseException | None = None
        self._lifetime = Lifetime("consumers")

    def __len__(self) -> int:
        return len(self._consumers)

    @overload
    def __getitem__(self, index: int) -> Consumer: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[Consumer]: ...
    def __getitem__(self, index: int | slice) -> Consumer | Sequence[Consumer]:
        return self._consumers[index]

    @property
    def counts(self) -> ConsumerCounts:
        """The counts of the messages of all consumers so far."""
        return sum((one.counts for one in self._consumers), ConsumerCounts())

    @property
    def counts_by_topic(self) -> dict[str, ConsumerCounts]:
        """The counts by topic."""
        found: dict[str, ConsumerCounts] = {}
        for one in self._consumers:
            found[one.topic] = found.get(one.topic, ConsumerCounts()) + one.counts
        return found

    def run(self, *, signals: bool = True) -> ConsumerCounts:
        """Run all consumers until `stop`, as `Consumer.run` does; if one fails, the others stop.

        Raises:
            InvalidInput: they run, or one of them has run; nothing is received.
            TopicIsPushed, UnknownTopic: a topic cannot be received from.
        """
        # asked before the first starts: none may run when another cannot
        parts = all(one.can_run for one in self._consumers)
        listening = on_signals(
            lambda again: self._orders.put("now" if again else "stop"), wanted=signals
        )
        with self._lifetime.run(parts=parts), listening:
            if not self._lifetime.stopped:
                self._run_all()

        if self._failure is not None:
            raise self._failure
        return self.counts

    def stop(self, *, at_once: bool = False) -> None:
        """Ask all consumers to stop, from any thread; `run` returns when they have drained.

        Args:
            at_once: do not wait for handlers.
        """
        self._lifetime.stopped = True
        self._orders.put("now" if at_once else "stop")

    def _run_all(self) -> None:
        running = [self._start(one) for one in self._consumers]
        left = len(running)
        stopping = False
        asked_for_more = time.monotonic()

        while left:
            order = next_order(self._orders)
            if order is None:
                if not stopping and time.monotonic() - asked_for_more >= FURTHER_SECONDS:
                    asked_for_more = time.monotonic()
                    added = [self._start(one) for one in self._further()]
                    running += added
                    left += len(added)
                continue

            left -= order == "ended"
            stopping = True
            # one that ended ends all: they run, stop and fail together
            for one in self._consumers:
                one.stop(at_once=order == "now")

        # each has said that it ended: this waits for its last lines only
        for thread in running:
            thread.join()

    def _start(self, consumer: Consumer) -> Thread:
        return self._threads(partial(self._run, consumer), f"{consumer.topic}-consumer")

    def _further(self) -> tuple[Consumer, ...]:
        added: tuple[Consumer, ...] = ()
        if self._more is not None:
            with suppress(FairboxError):  # the tables fail for now: asked again after 15 s
                added = tuple(self._more(len(self._consumers)))
        # in one assignment: other threads read the counts meanwhile
        self._consumers += added
        return added

    def _run(self, consumer: Consumer) -> None:
        try:
            consumer.run(signals=False)
        except BaseException as error:  # noqa: BLE001 - `run` raises it
            self._failure = self._failure or error
        finally:
            self._orders.put("ended")
