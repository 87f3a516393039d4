"""A consumer process: says in lines what it does; its handlers return when it reads a line."""

from __future__ import annotations

import json
import sys
import threading
import time
from typing import Any

from fairbox.consumer.consumer import Consumer

from tests.support.scripted_queue import ScriptedQueue

_printing = threading.Lock()


def say(*words: object) -> None:
    with _printing:
        print(*words, flush=True)  # noqa: T201 - this is a program


def main() -> None:
    """Work at six messages with two workers."""
    queue = ScriptedQueue(time.monotonic)
    queue.send(*(b"%d" % n for n in range(6)))
    go = threading.Event()

    def handler(received: Any) -> None:
        say("begun", received.message.body.decode())
        go.wait(60)

    consumer = Consumer(queue, "jobs", handler, concurrency=2, prefetch=4, shutdown_timeout=60)

    def watch() -> None:
        while consumer.counts.released < 4:
            time.sleep(0.005)
        say("released")
        sys.stdin.readline()
        go.set()

    threading.Thread(target=watch, daemon=True).start()
    counts = consumer.run()
    left = {entry.message.body.decode(): entry.count for entry in queue.entries}
    say("ended", json.dumps({"counts": counts.as_fields(), "left": left}))


if __name__ == "__main__":
    main()
