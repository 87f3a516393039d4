"""Event source mappings of a simulated world: streams in shards, leases, repetitions, lateness."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Any, Protocol

from fairbox_simulation.chaos import LATENESS

if TYPE_CHECKING:
    import random
    from collections.abc import Callable, Sequence

    from fairbox.testing.application import MemoryApplication

    from fairbox_simulation.chaos import Chaos

STREAM_SHARDS = 3
TRIES = 4
NIGHTS = 3  # of a world, so that nothing that is kept for days is erased meanwhile

Record = dict[str, Any]
Part = tuple[list[Record], int]  # records, tries left


class Invoker(Protocol):
    """A runner of invocations, and the source of chance and faults.

    Attributes:
        nights: how often a stream stood still for hours.
    """

    rng: random.Random
    chaos: Chaos
    nights: int

    def strikes(self, share: float) -> bool:
        """Whether a fault of this probability strikes now."""

    def invoke(self, work: Callable[[], object], lose: Callable[[], None] | None = None) -> bool:
        """Run one invocation; return whether it came to its end."""

    def pass_time(self, seconds: float) -> None:
        """Let so much time pass, in which others act."""


class Reader:
    """An event source mapping: one stream, several shards, order kept by partition key.

    Args:
        app: whose stream of the outbox it reads.
        invoker: runs the invocations.
        workers: instances of the function; an invocation goes to one that is free.
        batch: records of one invocation at most.

    Attributes:
        given_up: records that no invocation could handle.
        late: how often a shard stood still for a while.
        taken_away: how often an invocation was frozen for so long that others got its batch.
    """

    def __init__(
        self,
        app: MemoryApplication,
        invoker: Invoker,
        workers: Sequence[Callable[[list[Record]], object]],
        *,
        batch: int,
    ) -> None:
        self._app = app
        self._invoker = invoker
        self._free = list(workers)
        self._batch = batch
        self._position: str | None = None
        self._queues: list[deque[Record]] = [deque() for _ in range(STREAM_SHARDS)]
        self._returned: dict[int, deque[Part]] = {}  # shard -> what comes again before all else
        self._busy: set[int] = set()
        self._still: dict[int, float] = {}  # shard -> until when it stands still
        self.given_up: list[Record] = []
        self.late = 0
        self.taken_away = 0

    def pull(self) -> None:
        """Take what is new in the stream into the shards' queues."""
        records = self._app.records(self._position)
        for record in records:
            pk = record["dynamodb"]["Keys"]["pk"]["S"]
            self._queues[sum(pk.encode()) % STREAM_SHARDS].append(record)
        if records:
            self._position = records[-1]["dynamodb"]["SequenceNumber"]

    @property
    def waiting(self) -> int:
        """Records that were not handled yet."""
        again = (len(part) for parts in self._returned.values() for part, _ in parts)
        return sum(map(len, self._queues)) + sum(again)

    def go_on(self) -> None:
        """Let no shard stand still any longer."""
        self._still.clear()

    def invoke(self) -> None:
        """Handle one batch of one shard, by an instance that is free."""
        now = self._app.clock.now()
        ready = [
            n
            for n, queue in enumerate(self._queues)
            if (queue or n in self._returned)
            and n not in self._busy
            and self._still.get(n, 0.0) <= now
        ]
        if not ready or not self._free:
            return
        shard = self._invoker.rng.choice(ready)
        if self._invoker.strikes(self._invoker.chaos.late):
            self._stand_still(shard)
            return
        parts = self._returned.pop(shard, None) or self._next(shard)
        batch = [record for part, _ in parts for record in part]
        if self._invoker.strikes(self._invoker.chaos.abandoned):
            self._give_up(batch)
            return
        handle = self._free.pop(self._invoker.rng.randrange(len(self._free)))
        self._busy.add(shard)
        try:
            held = self._until_done(shard, parts, handle)
            if held and self._invoker.rng.random() < self._invoker.chaos.repeats:
                held = self._until_done(shard, deque([(batch, TRIES)]), handle)
        finally:
            self._free.append(handle)
        if held:
            self._busy.discard(shard)

    def _next(self, shard: int) -> deque[Part]:
        queue = self._queues[shard]
        size = min(len(queue), self._invoker.rng.randint(1, self._batch))
        return deque([([queue.popleft() for _ in range(size)], TRIES)])

    def _stand_still(self, shard: int) -> None:
        seconds = self._invoker.rng.choice(LATENESS)
        if seconds > LATENESS[2]:
            self._invoker.nights += 1
            if self._invoker.nights > NIGHTS:
                return
        self.late += 1
        self._still[shard] = self._app.clock.now() + seconds
        self._invoker.pass_time(seconds)

    def _until_done(
        self, shard: int, parts: deque[Part], handle: Callable[[list[Record]], object]
    ) -> bool:
        """Handle a batch, again in halves when it fails, and give it up after some tries.

        Returns:
            Whether it was done under one lease: False when others have the shard by now. They get
            the same batch: a longer one would count wrong, see decision 0004.
        """
        while parts:
            part, tries = parts.popleft()
            held = True

            def lose(part: list[Record] = part, tries: int = tries) -> None:
                nonlocal held
                held = False
                self.taken_away += 1
                self._returned[shard] = deque([(part, tries), *parts])
                self._busy.discard(shard)

            def work(part: list[Record] = part) -> object:
                return handle(part)

            done = self._invoker.invoke(work, lose)
            if not held:
                return False
            if not done:
                self._app.clock.advance(self._invoker.rng.choice([0.2, 2, 25]))
                self._again(part, tries, parts)
        return True

    def _again(self, part: list[Record], tries: int, parts: deque[Part]) -> None:
        if tries <= 0 and self._invoker.chaos.given_up:
            self._give_up(part)
            return
        middle = len(part) // 2 or 1
        halves = [half for half in (part[:middle], part[middle:]) if half]
        parts.extendleft((half, tries - 1) for half in reversed(halves))

    def _give_up(self, part: list[Record]) -> None:
        name = f"batch-{self._invoker.rng.getrandbits(64):x}"
        self._app.given_up.kept[name] = part
        self.given_up += part
