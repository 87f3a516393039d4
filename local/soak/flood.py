"""Callers of the HTTP API in one process: more than the API can serve at a time.

Each caller repeats a request refused with 429 or 503 after the time given, as a good client does.
"""

from __future__ import annotations

import argparse
import json
import random
import signal
import threading
from collections import Counter
from http.client import HTTPConnection, HTTPException
from pathlib import Path
from typing import TYPE_CHECKING, Final
from urllib.parse import urlsplit

from local.accounting.journal import Journal, read
from local.accounting.topics import QUEUED

if TYPE_CHECKING:
    from collections.abc import Sequence

ACCEPTED: Final = 202
TOO_MANY: Final = 429
UNAVAILABLE: Final = 503
NO_ANSWER: Final = 0
_SECONDS: Final = 35.0
_LONGEST_WAIT: Final = 5.0
_HEADERS: Final = {"content-type": "application/json"}


class Flood:
    """Publishes over HTTP on many connections at once, until `stop`.

    Args:
        api_url: base address of the API.
        journal: records attempts and acknowledgements, as the producers' journals do.
        answers: records the counts of answers each second.
        seed: of the waits.
    """

    def __init__(self, api_url: str, journal: Journal, answers: Journal, seed: str) -> None:
        self._address = urlsplit(api_url).netloc
        self._journal = journal
        self._answers = answers
        self._seed = seed
        self._stopping = threading.Event()
        self._counts: Counter[tuple[int, bool]] = Counter()
        self._lock = threading.Lock()

    def stop(self) -> None:
        """Request the end; no request is repeated."""
        self._stopping.set()

    def run(self, callers: int) -> None:
        """Work until `stop`; on return all answers are recorded."""
        threads = [threading.Thread(target=self._call, args=(n,)) for n in range(callers)]
        for thread in threads:
            thread.start()
        while not self._stopping.wait(1.0):
            self._write()
        for thread in threads:
            thread.join()
        self._write()

    def _write(self) -> None:
        with self._lock:
            counts, self._counts = self._counts, Counter()
        for (status, told), count in counts.items():
            self._answers.write(status=status, told=told, count=count)

    def _call(self, number: int) -> None:
        rng = random.Random(f"{self._seed}-{number}")  # noqa: S311 - no secret
        connection = HTTPConnection(self._address, timeout=_SECONDS)
        serial = 0
        while not self._stopping.is_set():
            name = f"flood.{number}.{serial}"
            serial += 1
            place = {"topic": QUEUED.name, "key": None}
            self._journal.write(t="try", n=name, how="post", id=None, **place)
            self._until_taken(connection, name, rng)
        connection.close()

    def _until_taken(self, connection: HTTPConnection, name: str, rng: random.Random) -> None:
        while not self._stopping.is_set():
            status, wait, ref = self._post(connection, name)
            with self._lock:
                self._counts[status, wait is not None] += 1
            if ref is not None:
                self._journal.write(t="ok", n=name, topic=QUEUED.name, ref=ref)
                return
            patience = min(_LONGEST_WAIT, 1.0 if wait is None else wait)
            self._stopping.wait(patience * rng.uniform(1.0, 1.5))

    def _post(self, connection: HTTPConnection, name: str) -> tuple[int, float | None, str | None]:
        """Return the status (0: no answer), the value of `Retry-After`, and the ref if accepted."""
        body = json.dumps({"body": {"n": name, "e": 0}})
        try:
            connection.request("POST", f"/topics/{QUEUED.name}/messages", body, _HEADERS)
            answer = connection.getresponse()
            text = answer.read()
        except (OSError, HTTPException):
            connection.close()  # the next request connects again
            return NO_ANSWER, None, None
        told = answer.getheader("Retry-After")
        wait = float(told) if told is not None else None
        if answer.status != ACCEPTED:
            return answer.status, wait, None
        return ACCEPTED, wait, str(json.loads(text)["refs"][0])


def answered(path: Path) -> Counter[tuple[int, bool]]:
    """Return the number of answers by (status, whether it had `Retry-After`)."""
    counts: Counter[tuple[int, bool]] = Counter()
    if path.exists():
        for line in read(path):
            counts[line["status"], line["told"]] += line["count"]
    return counts


def main(arguments: Sequence[str] | None = None) -> None:
    """Call until SIGTERM."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--api", required=True)
    parser.add_argument("--callers", type=int, required=True)
    parser.add_argument("--journal", type=Path, required=True)
    parser.add_argument("--answers", type=Path, required=True)
    parser.add_argument("--seed", required=True)
    given = parser.parse_args(arguments)
    flood = Flood(given.api, Journal(given.journal), Journal(given.answers), given.seed)
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: flood.stop())
    flood.run(given.callers)


if __name__ == "__main__":
    main()
