"""A consumer process: says in lines what it does; its handlers return when it reads a line.

With the argument `elsewhere` the system gives signals to another thread than the main one, which
goes on waiting. Without it, the same happens to a signal in the moment before the main thread
waits. With `group` the consumer runs in a group.
"""

from __future__ import annotations

import json
import signal
import sys
import threading
import time
from typing import TYPE_CHECKING, Any

from fairbox.consumer.consumer import Consumer, start_thread
from fairbox.consumer.group import Consumers

from tests.support.scripted_queue import ScriptedQueue

if TYPE_CHECKING:
    from collections.abc import Callable

    from fairbox.consumer.ports import Thread

_SIGNALS = (signal.SIGTERM, signal.SIGINT)
_printing = threading.Lock()


def say(*words: object) -> None:
    with _printing:
        print(*words, flush=True)  # noqa: T201 - this is a program


def start_unblocked(work: Callable[[], None], name: str) -> Thread:
    """Start a thread that takes signals though the main thread blocks them."""

    def unblocked() -> None:
        signal.pthread_sigmask(signal.SIG_UNBLOCK, _SIGNALS)
        work()

    return start_thread(unblocked, name)


def main() -> None:
    """Work at six messages with two workers."""
    queue = ScriptedQueue(time.monotonic)
    queue.send(*(b"%d" % n for n in range(6)))
    go = threading.Event()

    def handler(received: Any) -> None:
        say("begun", received.message.body.decode())
        go.wait(60)

    if "elsewhere" in sys.argv:
        signal.pthread_sigmask(signal.SIG_BLOCK, _SIGNALS)
    consumer = Consumer(
        queue,
        "jobs",
        handler,
        concurrency=2,
        prefetch=4,
        shutdown_timeout=60,
        threads=start_unblocked,
    )

    def watch() -> None:
        while consumer.counts.released < 4:
            time.sleep(0.005)
        say("released")
        sys.stdin.readline()
        go.set()

    threading.Thread(target=watch, daemon=True).start()
    counts = (Consumers([consumer]) if "group" in sys.argv else consumer).run()
    left = {entry.message.body.decode(): entry.count for entry in queue.entries}
    say("ended", json.dumps({"counts": counts.as_fields(), "left": left}))


if __name__ == "__main__":
    main()
