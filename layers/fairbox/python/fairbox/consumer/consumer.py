"""Consumer of a pulled topic: workers, heartbeats, bounded prefetch, and a stop that drains."""

from __future__ import annotations

import inspect
import logging
import math
import queue as queues
import random
import threading
import time
from typing import TYPE_CHECKING, Final, Literal

from fairbox.consumer.coroutines import CLEANUP_SECONDS, HandlerLoop, over_limit
from fairbox.consumer.counts import ConsumerCounts, ConsumerMetrics, Counts, EventLog
from fairbox.consumer.handler_outcomes import Handling, Outcome, check_handler
from fairbox.consumer.in_flight import InFlight
from fairbox.consumer.options import TICK_SECONDS, Lifetime, Limits, Permits, next_order, on_signals
from fairbox.consumer.turnstile import RateLimit, Turnstile
from fairbox.consumer.worker_steps import WorkerSteps
from fairbox.model.messages import check_topic
from fairbox.model.receipts import Received, check_consumer

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from fairbox.consumer.ports import Figures, Log, Source, Thread, Threads
    from fairbox.model.topics import RetryPolicy

PROGRESS_SECONDS: Final = 60.0
FIRST_PAUSE_SECONDS: Final = 0.05
IDLE_SECONDS: Final = 2.0
LAST_CALLS_SECONDS: Final = 5.0
"""Time that a stop waits, after its limit, until messages given back are written."""
ABANDONED: Final = Outcome("abandon", reason="the consumer stopped before its handler was done")
logger = logging.getLogger("fairbox.consumer")
Order = Literal["stop", "look"]


def start_thread(work: Callable[[], None], name: str) -> Thread:
    """Return a running thread that does not keep the process alive."""
    thread = threading.Thread(target=work, name=name, daemon=True)
    thread.start()
    return thread


class Consumer:
    """Handles the messages of a pulled topic with N workers, each a thread.

    The handler settles its message. If it returns None, the message is acknowledged. If it raises,
    the message is given back with the reason and is due again after a back-off; after
    `max_attempts` failed receives it is dead. A handler may also raise or return `Retry(delay)` or
    `Dead(reason)`; any other answer is an error, as if it had been raised. While a handler runs, a
    heartbeat extends the claim of its message.

    Args:
        queue: the queue; `Queue`, or an object with its methods.
        topic: the topic's name.
        handler: called with a received message: `.message`, `.receipt` and `.receive_count`. It
            may be a coroutine function: all coroutines of a consumer run on one event loop.
            Several threads may call it at a time, and it may get the same message again.
        concurrency: workers, 1 to 1,000.
        visibility_timeout: seconds for which messages are hidden after a crash; handlers may take
            longer. At least one second, and one for each 400 messages of `concurrency` and
            `prefetch`: 5 for 1,000 workers.
        max_attempts: receives after which a failed message is dead; the topic's own limit holds
            too.
        prefetch: messages that may wait for a worker; None: as many as there are workers.
        shutdown_timeout: seconds that a stop gives the handlers.
        processing_limit: seconds after which a handler counts as hung: its message is no longer
            extended, and others receive it. Its worker is lost until the handler returns.
        time_limit: seconds after which a handler's message fails, as if the handler had raised. A
            coroutine is cancelled, and has 5 s to clean up. A plain function cannot be stopped: its
            worker is lost until the function returns. None: no limit.
        idle: seconds between two receives of a consumer without work, at most. After a message it
            asks more often, and more seldom on topics of more than 32 shards.
        linger: maximum seconds that an ack waits for others, to share a call.
        rate: messages begun a second, over 0; None: no limit. Those of a tenth of a second, one at
            least, may begin at once. Each consumer has its own.
        backoff: the wait of a failed message; None: by the topic's retry policy.
        name: at most 64 characters, which lists show with the messages that it holds (unordered
            topics).
        labels: fields of each log line, such as the logical name of a partitioned queue.
        permits: a limit on concurrent handlers that several consumers of this process share.
        metrics: takes the counts once a minute and at the end, such as `queue.metrics()`.
        now, sleep, rng, threads, log: monotonic time, waits of `run_until_empty`, randomness,
            threads and log; the machine's by default.

    Raises:
        InvalidInput: a setting is invalid.

    Example:
        ```python
        def handler(received):
            print(received.message.body)


        Consumer(queue, "jobs", handler, concurrency=4).run()
        ```
    """

    def __init__(
        self,
        queue: Source,
        topic: str,
        handler: Callable[[Received], object],
        *,
        concurrency: int = 4,
        visibility_timeout: float = 30,
        max_attempts: int = 10,
        prefetch: int | None = None,
        shutdown_timeout: float = 30.0,
        processing_limit: float = 3600.0,
        idle: float = IDLE_SECONDS,
        linger: float = 0.05,
        time_limit: float | None = None,
        rate: float | None = None,
        backoff: RetryPolicy | None = None,
        name: str = "",
        labels: Mapping[str, str] | None = None,
        permits: Permits | None = None,
        metrics: Figures | None = None,
        now: Callable[[], float] | None = None,
        sleep: Callable[[float], None] | None = None,
        rng: random.Random | None = None,
        threads: Threads | None = None,
        log: Log | None = None,
    ) -> None:
        self.topic = check_topic(topic)
        check_handler("handler", handler)
        self.limits = Limits(
            concurrency=concurrency,
            visibility_timeout=visibility_timeout,
            max_attempts=max_attempts,
            prefetch=concurrency if prefetch is None else prefetch,
            shutdown_timeout=shutdown_timeout,
            processing_limit=processing_limit,
            idle=idle,
            linger=linger,
            time_limit=time_limit,
            rate=rate,
        )

        self.labels = dict(labels or {})
        self._now = now or time.monotonic
        self._sleep = sleep or time.sleep
        self._threads = threads or start_thread
        self._counts = Counts()
        self._events = EventLog(self._counts, log or logger, {"topic": self.topic, **self.labels})
        self._metrics = ConsumerMetrics(queue, self.topic, self._counts, metrics)

        self._in_flight = InFlight(concurrency, self.limits.prefetch, self._now)
        self._rate = None if rate is None else RateLimit(rate, self._now)
        self._turnstile = Turnstile(self._in_flight, self._rate, permits)

        self._orders: queues.SimpleQueue[Order] = queues.SimpleQueue()
        self._failure: BaseException | None = None
        self._at_once = False
        self._lifetime = Lifetime("consumer")
        self._loop = HandlerLoop(time_limit)

        handling = Handling(
            handler, max_attempts, backoff, rng or random.SystemRandom(), self._loop.run
        )
        self._steps = WorkerSteps(
            queue,
            self.topic,
            handling.handle,
            late=lambda received: handling.failed(received, over_limit(time_limit)),
            # only a coroutine can be cancelled, and then has time to clean up
            grace=CLEANUP_SECONDS if inspect.iscoroutinefunction(handler) else 0.0,
            limits=self.limits,
            in_flight=self._in_flight,
            events=self._events,
            name=check_consumer(name, "name"),
            rate=self._rate,
        )

    @property
    def counts(self) -> ConsumerCounts:
        """The counts of the messages so far."""
        return self._counts.counts

    @property
    def can_run(self) -> bool:
        """Whether it can run: it does not run now, and has not."""
        return self._lifetime.new

    def run(self, *, signals: bool = True) -> ConsumerCounts:
        """Work until `stop` is called; return the counts.

        In the main thread SIGTERM and SIGINT stop it too, and a second signal stops it at once. A
        consumer that stops no longer receives. It releases waiting messages without counting an
        attempt, gives the handlers `shutdown_timeout` seconds, then gives their messages back. If
        `stop` was called before, nothing is received. A consumer runs once.

        Args:
            signals: False: the caller handles signals.

        Raises:
            InvalidInput: the consumer runs, or it has run; nothing is received.
            TopicIsPushed, UnknownTopic: the topic cannot be received from.
        """
        listening = on_signals(lambda again: self.stop(at_once=again), wanted=signals)
        with self._lifetime.run(), listening:
            if not self._lifetime.stopped:
                self._run()

        if self._failure is not None:
            raise self._failure
        return self.counts

    def stop(self, *, at_once: bool = False) -> None:
        """Ask for a stop, from any thread or signal handler; `run` returns when it has drained.

        A run that has not begun returns at once. `run_until_empty` returns after the message that
        it handles, and releases waiting messages.

        Args:
            at_once: do not wait for handlers.
        """
        self._at_once = self._at_once or at_once
        self._lifetime.stopped = True
        self._orders.put("stop")

    def run_until_empty(self, limit: int | None = None) -> ConsumerCounts:
        """Work in this thread until nothing is received; return the counts.

        For scheduled jobs and tests. There is no heartbeat: the visibility must outlast a handler.
        It may be called again, and `run` may follow.

        Args:
            limit: maximum number of messages.

        Raises:
            InvalidInput: the consumer runs, has run, or a stop ended it; nothing is received.
            TopicIsPushed, UnknownTopic: the topic cannot be received from.
        """
        with self._lifetime.run(again=True):
            try:
                self._work_until_empty(math.inf if limit is None else limit)
            finally:
                self._loop.close()
            self._metrics.write(last=True)
        return self.counts

    def _work_until_empty(self, left: float) -> None:
        empty = 0
        while left > 0 and empty < self._steps.receives_to_see_all and not self._lifetime.stopped:
            # claimed only shortly before its turn: nothing extends a message here
            self._wait_for_turn(self.limits.turn)
            received = self._steps.receive(left)
            left -= received
            # one empty receive may have read some of the shards only
            empty = 0 if received else empty + 1

            while self._in_flight.waiting:
                self._wait_for_turn()
                if self._lifetime.stopped:
                    self._in_flight.close()  # releases those that wait
                self._steps.work()
                self._steps.keep()
            self._steps.keep(flush=True)

    def _wait_for_turn(self, before: float = 0.0) -> None:
        """Wait until so many seconds before the rate allows a message."""
        pause = 0.0 if self._rate is None else self._rate.pause - before
        if pause > 0:
            self._sleep(pause)

    def _run(self) -> None:
        self._events.write("A consumer started.")
        # apart from the others, since a stop waits for it first
        receiver = self._threads(self._guarded(self._receive), f"{self.topic}-receiver")

        others = [
            self._threads(self._guarded(work), f"{self.topic}-{name}-{number}")
            for work, name, count in (
                (self._extend, "extender", self.limits.extenders),
                (self._settle, "settler", self.limits.settlers),
                (self._work, "worker", self.limits.concurrency),
            )
            for number in range(count)
        ]

        self._supervise()
        started = self._now()
        # the receiver ends first: messages that it still receives are released
        hung = self._drain(receiver)

        # behind the last calls: these threads make them
        self._in_flight.end()
        self._loop.close()
        # a handler that hangs is not waited for: its thread ends with the process
        deadline = time.monotonic() + (0.0 if hung else TICK_SECONDS)
        for thread in others:
            thread.join(max(0.0, deadline - time.monotonic()))

        seconds = round(self._now() - started, 3)
        self._events.write("A consumer stopped.", {"drained_seconds": seconds})
        self._metrics.write(last=True)

    def _supervise(self) -> None:
        """Wait for the order to stop, and log progress meanwhile."""
        written = time.monotonic()
        while next_order(self._orders) in (None, "look"):
            if time.monotonic() - written >= PROGRESS_SECONDS:
                written = time.monotonic()
                self._events.progress(len(self._in_flight))
                self._metrics.write()

    def _drain(self, receiver: Thread) -> bool:
        """Settle the messages in flight, as `run` says; return whether handlers still run."""
        self._in_flight.close()
        deadline = time.monotonic() + self.limits.shutdown_timeout
        # a receive that is under way may claim messages, which must be given back too
        receiver.join(max(LAST_CALLS_SECONDS, self.limits.shutdown_timeout))
        self._wait_until_empty(deadline)
        hung = self._in_flight.abandon(ABANDONED)
        # even after `stop(at_once=True)`: else the messages stay hidden until their claims end
        self._wait_until_empty(time.monotonic() + LAST_CALLS_SECONDS, last=True)
        return bool(hung) or self._in_flight.late > 0

    def _wait_until_empty(self, deadline: float, *, last: bool = False) -> None:
        while len(self._in_flight) and (left := deadline - time.monotonic()) > 0:
            if self._at_once and not last:
                return
            next_order(self._orders, left)

    def _guarded(self, loop: Callable[[], None]) -> Callable[[], None]:
        """Return a thread's work; an error stops the consumer, and `run` raises it."""

        def work() -> None:
            try:
                loop()
            except BaseException as error:  # noqa: BLE001 - `run` raises it
                # the first error is the cause: others may follow from it
                self._failure = self._failure or error
                self._orders.put("stop")

        return work

    def _receive(self) -> None:
        pause = FIRST_PAUSE_SECONDS
        while not self._in_flight.closed:
            seen, freed = self._in_flight.version, self._steps.freed
            if not self._steps.room():
                self._in_flight.wait(min(TICK_SECONDS, self.limits.heartbeat), seen)
            elif self._steps.receive(waiting=True) or self._pause(self._quiet(pause), freed):
                pause = FIRST_PAUSE_SECONDS
            else:
                pause = min(self.limits.idle, 2 * pause)

    def _quiet(self, pause: float) -> float:
        """Return the seconds until the next receive: as the queue says, or else `pause`."""
        quiet = self._steps.quiet
        return pause if quiet is None else quiet * self.limits.idle / IDLE_SECONDS

    def _pause(self, seconds: float, freed: int) -> bool:
        """Wait so long, or until more messages are freed than were; return whether some are."""
        end = time.monotonic() + seconds
        while not self._in_flight.closed and (left := end - time.monotonic()) > 0:
            seen = self._in_flight.version
            # a settled message may free the next one of its key, which no stream announces
            if self._steps.freed != freed:
                return True
            self._in_flight.wait(left, seen)
        return False

    def _work(self) -> None:
        while not self._in_flight.ended:
            message = self._turnstile.enter()
            if message is not None:
                try:
                    self._steps.handle(message)
                finally:
                    self._turnstile.leave()

    def _extend(self) -> None:
        while not self._in_flight.ended:
            if not self._steps.extend():
                self._steps.wait_to_extend(TICK_SECONDS)

    def _settle(self) -> None:
        while not self._in_flight.ended:
            if not self._steps.settle(flush=self._in_flight.closed):
                if self._in_flight.closed and not len(self._in_flight):
                    # the main thread waits for this, and need not wait for its tick
                    self._orders.put("look")
                self._steps.wait_to_settle(TICK_SECONDS)
