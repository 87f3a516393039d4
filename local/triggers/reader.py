"""The reader of one table's stream for all its mappings: one thread converts each record once."""

from __future__ import annotations

import logging
import threading
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

from local.triggers.records import StreamRecord, convert
from local.triggers.sources import (
    IteratorExpiredError,
    RecordsTrimmedError,
    StreamUnavailableError,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from local.triggers.sources import StreamSource

log = logging.getLogger(__name__)

Entry = tuple[StreamRecord, dict[str, Any]]


class Listener(Protocol):
    """A mapping that receives all records of its stream, in order."""

    def hear(self, entries: Sequence[Entry]) -> None:
        """Receive records with the event entries that filters read; must not block."""
        ...


@dataclass
class _Position:
    parent: str | None
    iterator: str | None = None
    after: str | None = None
    latest: bool = False
    finished: bool = False


class StreamReader:
    """Follows all shards of a stream, parents before children, and passes records to its listeners.

    A listener receives every record from the first start on, whether its own trigger runs or not,
    because a disabled mapping keeps its position. `poll_interval` is the pause in seconds after an
    empty read, `busy_interval` the pause after any other, so that a trickle of records does not
    occupy a core; `latest`: begin at the end of the stream.
    """

    def __init__(
        self,
        source: StreamSource,
        *,
        clock: Callable[[], float],
        region: str = "us-east-1",
        latest: bool = False,
        poll_interval: float = 0.1,
        busy_interval: float = 0.02,
        refresh_interval: float = 5.0,
    ) -> None:
        self.source = source
        self._clock = clock
        self._region = region
        self._latest = latest
        self._poll_interval = poll_interval
        self._busy_interval = busy_interval
        self._refreshes = max(1, round(refresh_interval / poll_interval))
        self._listeners: list[Listener] = []
        self._positions: dict[str, _Position] = {}
        self._users: set[object] = set()
        self._lock = threading.Lock()
        self._stopping = threading.Event()
        self._thread: threading.Thread | None = None

    def add(self, listener: Listener) -> None:
        """Pass all records from now on to a listener, too."""
        self._listeners.append(listener)

    def start(self, user: object) -> None:
        """Run while there is at least one user; on return the starting position is fixed.

        Raises `StreamUnavailableError` if the stream does not answer.
        """
        with self._lock:
            self._users.add(user)
            if self._thread is not None:
                return
            if not self._positions:
                self.refresh()
                self._latest = False  # shards found later are read from their beginning
            self._stopping.clear()
            self._thread = threading.Thread(target=self._run, name="stream-reader", daemon=True)
            self._thread.start()

    def stop(self, user: object) -> None:
        """Stop when there are no users left; keep the position."""
        with self._lock:
            self._users.discard(user)
            if self._users or self._thread is None:
                return
            self._stopping.set()
            self._thread.join()
            self._thread = None

    def refresh(self) -> None:
        """Look for new shards; with `latest`, leave out those closed before the start."""
        for shard in self.source.shards():
            if shard.shard_id in self._positions:
                continue
            left_out = self._latest and shard.closed
            position = _Position(shard.parent, latest=self._latest, finished=left_out)
            if not position.finished:
                position.iterator = self._iterator(shard.shard_id, position)
            self._positions[shard.shard_id] = position

    def poll(self) -> bool:
        """Read each readable shard once; return whether any record came."""
        found = False
        for shard_id, position in list(self._positions.items()):
            parent = self._positions.get(position.parent or "")
            if position.finished or (parent is not None and not parent.finished):
                continue
            found = self._read(shard_id, position) or found
        return found

    def _read(self, shard_id: str, position: _Position) -> bool:
        try:
            if position.iterator is None:
                position.iterator = self._iterator(shard_id, position)
            wires, position.iterator = self.source.records(position.iterator)
        except IteratorExpiredError:
            position.iterator = None
            return False
        except RecordsTrimmedError:
            # the engine says so of an empty stream too, once its first record is written
            if position.after is not None:
                log.warning("Stream records were trimmed before they were read.")
            position.iterator, position.after, position.latest = None, None, False
            return False
        except StreamUnavailableError:
            position.iterator = None  # an engine that was restarted does not know it any more
            raise
        position.finished = position.iterator is None
        if wires:
            position.after = wires[-1]["dynamodb"]["SequenceNumber"]
            self._tell(wires)
        if position.finished:
            self.refresh()
        return bool(wires)

    def _iterator(self, shard_id: str, position: _Position) -> str:
        latest = position.latest and position.after is None
        return self.source.iterator(shard_id, after=position.after, latest=latest)

    def _tell(self, wires: list[dict[str, Any]]) -> None:
        now = self._clock()
        entries = [
            convert(
                wire,
                stream_arn=self.source.arn,
                region=self._region,
                hash_key=self.source.hash_key,
                now=now,
            )
            for wire in wires
        ]
        for listener in self._listeners:
            listener.hear(entries)

    def _run(self) -> None:
        idle = 0
        while not self._stopping.is_set():
            try:
                if self.poll():
                    idle = 0
                    self._stopping.wait(self._busy_interval)
                    continue
                idle += 1
                if idle % self._refreshes == 0:
                    self.refresh()
            except StreamUnavailableError as error:
                log.warning("The stream does not answer; trying again.", extra={"error": error})
                self._stopping.wait(1.0)
            self._stopping.wait(self._poll_interval)
