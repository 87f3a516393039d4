"""The batching of one lane of a stream: the next batch, and the effect of an answer.

Pure: no threads, no AWS; times are parameters. A lane is a part of a pseudo-shard whose batches
run one after the other; lanes run in parallel. Records keep their order within a lane.
"""

from __future__ import annotations

from collections import Counter, deque
from dataclasses import dataclass, field, replace
from itertools import takewhile
from typing import TYPE_CHECKING, Final
from zlib import crc32

from local.triggers.records import ENVELOPE_BYTES, StreamRecord

if TYPE_CHECKING:
    import random
    from collections.abc import Iterable

    from local.triggers.answers import Failure

RETRIES_EXHAUSTED: Final = "RetryAttemptsExhausted"
TOO_OLD: Final = "RecordAgeExceeded"


@dataclass(frozen=True, kw_only=True)
class BatchRules:
    """Batching and retry rules of a mapping: seconds and bytes; None means unbounded.

    `repeat_share` (0 to 1) of the successful batches is delivered again.
    """

    batch_size: int = 100
    window: float = 0.0
    max_retries: int | None = None
    max_age: float | None = None
    bisect: bool = False
    payload_limit: int = 6 * 1024 * 1024
    backoff: float = 0.1
    backoff_limit: float = 10.0
    repeat_share: float = 0.0


@dataclass(frozen=True, kw_only=True)
class Batch:
    """Records of one invocation.

    `attempts` counts the failures that the retry limit applies to, `invokes` all invocations of
    any of the records.
    """

    records: tuple[StreamRecord, ...]
    attempts: int = 0
    invokes: int = 0
    failures_in_row: int = 0
    not_before: float = 0.0
    repeat: bool = False


@dataclass(frozen=True, kw_only=True)
class GivenUp:
    """Records that are not retried any more, the reason, and the last error."""

    batch: Batch
    condition: str
    function_error: str | None = None


@dataclass
class _Waiting:
    record: StreamRecord
    since: float
    repeat: bool = False


@dataclass
class Lane:
    """One lane: `offer` records, `take` a batch, `finish` it; one batch is in flight at most."""

    rules: BatchRules
    rng: random.Random
    counts: Counter[str] = field(default_factory=Counter)
    checkpoint: int = 0
    _waiting: deque[_Waiting] = field(default_factory=deque)
    _bytes: int = ENVELOPE_BYTES
    _retries: deque[Batch] = field(default_factory=deque)
    _flying: Batch | None = None
    _seen: int = 0

    def offer(self, record: StreamRecord, now: float) -> None:
        """Append a record for the function."""
        self._seen = record.order
        self._waiting.append(_Waiting(record, now))
        self._bytes += record.size

    def skip(self, order: int) -> None:
        """Skip a filtered record: it never reaches the function, and the position advances."""
        self._seen = order
        self.counts["filtered"] += 1
        self._advance(self.checkpoint)

    @property
    def outstanding(self) -> int:
        """Number of records offered and not yet finished."""
        flying = len(self._flying.records) if self._flying else 0
        return len(self._waiting) + sum(len(one.records) for one in self._retries) + flying

    def iterator_age(self, now: float) -> float:
        """Seconds since the oldest outstanding record was written; 0 if there is none."""
        oldest = self._oldest()
        return max(0.0, now - oldest.created) if oldest else 0.0

    def take(self, now: float) -> Batch | GivenUp | None:
        """Return the next batch, one that is too old, or None if nothing is due."""
        if self._flying is not None:
            return None
        if self._retries:
            return self._take_retry(now)
        if not self._waiting:
            return None
        too_old = self._old((one.record for one in self._waiting), now)
        if too_old:
            return self._give_up(Batch(records=self._form(too_old)[0]), TOO_OLD)
        if not self._is_due(now):
            return None
        records, repeat = self._form(self.rules.batch_size)
        self._flying = Batch(records=records, repeat=repeat)
        return self._flying

    def wake_at(self) -> float | None:
        """Return the time when `take` may next have a batch; None: no records wait."""
        if self._flying is not None:
            return None
        if self._retries:
            times = [self._retries[0].not_before]
        elif not self._waiting:
            return None
        elif self._is_full():
            return 0.0
        else:
            times = [self._waiting[0].since + self.rules.window]
        oldest = self._oldest()
        if oldest is not None and self.rules.max_age is not None:
            times.append(oldest.created + self.rules.max_age)
        return min(times)

    def finish(self, batch: Batch, failure: Failure | None, now: float) -> GivenUp | None:
        """Apply a batch's result; return the records that are given up."""
        if batch is not self._flying:
            raise ValueError("this batch is not in flight")
        self._flying = None
        self.counts["invocations"] += 1
        if failure is None:
            self._succeed(batch)
            return None
        self.counts["failures"] += 1
        batch = replace(
            batch, invokes=batch.invokes + failure.counts, failures_in_row=batch.failures_in_row + 1
        )
        rest = replace(batch, records=batch.records[failure.first :])
        if failure.first:
            self._advance(batch.records[failure.first - 1].order, busy=True)
        if not failure.counts:
            self._retry(now, rest)
        elif self.rules.bisect and failure.first:
            self._retry(now, replace(rest, failures_in_row=0))
        elif self.rules.bisect and not failure.partial and len(rest.records) > 1:
            middle = (len(rest.records) + 1) // 2
            halves = rest.records[:middle], rest.records[middle:]
            self._retry(now, *(replace(rest, records=half, failures_in_row=0) for half in halves))
        elif self.rules.max_retries is not None and rest.attempts >= self.rules.max_retries:
            return self._give_up(rest, RETRIES_EXHAUSTED, failure.function_error)
        else:
            self._retry(now, replace(rest, attempts=rest.attempts + 1))
        return None

    def _take_retry(self, now: float) -> Batch | GivenUp | None:
        batch = self._retries.popleft()
        old = self._old(batch.records, now)
        if old:
            if old < len(batch.records):
                self._retries.appendleft(replace(batch, records=batch.records[old:]))
            return self._give_up(replace(batch, records=batch.records[:old]), TOO_OLD)
        if now < batch.not_before:
            self._retries.appendleft(batch)
            return None
        self._flying = batch
        return batch

    def _old(self, records: Iterable[StreamRecord], now: float) -> int:
        """Return the number of leading records that are older than the mapping allows."""
        limit = self.rules.max_age
        if limit is None:
            return 0
        return sum(1 for _ in takewhile(lambda record: now - record.created > limit, records))

    def _is_full(self) -> bool:
        rules = self.rules
        return len(self._waiting) >= rules.batch_size or self._bytes >= rules.payload_limit

    def _is_due(self, now: float) -> bool:
        return self._is_full() or now >= self._waiting[0].since + self.rules.window

    def _form(self, limit: int) -> tuple[tuple[StreamRecord, ...], bool]:
        """Take at least one and up to `limit` waiting records that fit the payload."""
        records: list[StreamRecord] = []
        size = ENVELOPE_BYTES
        repeat = self._waiting[0].repeat
        while self._waiting and len(records) < limit:
            size += self._waiting[0].record.size
            if records and size > self.rules.payload_limit:
                break
            records.append(self._waiting.popleft().record)
            self._bytes -= records[-1].size
        return tuple(records), repeat

    def _oldest(self) -> StreamRecord | None:
        if self._flying is not None:
            return self._flying.records[0]
        if self._retries:
            return self._retries[0].records[0]
        return self._waiting[0].record if self._waiting else None

    def _retry(self, now: float, *batches: Batch) -> None:
        """Put batches at the front, in their order; the first waits briefly, with jitter."""
        rules = self.rules
        exponent = min(batches[0].failures_in_row, 30) - 1
        pause = min(rules.backoff_limit, rules.backoff * 2.0**exponent)
        not_before = now + pause * self.rng.uniform(0.5, 1.0)
        for batch in reversed(batches):
            self._retries.appendleft(replace(batch, not_before=not_before))

    def _succeed(self, batch: Batch) -> None:
        self._advance(batch.records[-1].order)
        if batch.repeat or self.rng.random() >= self.rules.repeat_share:
            return
        self.counts["repeats"] += 1
        again = replace(batch, repeat=True, attempts=0, failures_in_row=0, not_before=0.0)
        cut = self.rng.randrange(len(batch.records))
        match self.rng.randrange(3):
            case 0 if cut:  # the same records, cut differently
                self._retries.appendleft(replace(again, records=batch.records[cut:]))
                self._retries.appendleft(replace(again, records=batch.records[:cut]))
            case 1 if not self._retries:  # its tail, batched anew with what follows
                for record in reversed(batch.records[cut:]):
                    self._waiting.appendleft(_Waiting(record, 0.0, repeat=True))
                    self._bytes += record.size
            case _:  # the same batch, as after an answer that was lost
                self._retries.appendleft(again)

    def _give_up(self, batch: Batch, condition: str, error: str | None = None) -> GivenUp:
        self._advance(batch.records[-1].order)
        self.counts["given_up"] += len(batch.records)
        return GivenUp(batch=batch, condition=condition, function_error=error)

    def _advance(self, order: int, *, busy: bool = False) -> None:
        """Advance the position past all finished records; it never moves back."""
        order = order if busy or self.outstanding else self._seen
        self.checkpoint = max(self.checkpoint, order)


def lane_number(record: StreamRecord, *, shards: int, factor: int) -> tuple[int, int]:
    """Return the pseudo-shard (by partition key) and the part of it (by item key) of a record."""
    part = crc32(b"item" + record.item_key.encode()) % factor if factor > 1 else 0
    return crc32(record.partition_key.encode()) % shards, part
