"""Recounts: exact at the row's own sequence numbers, whatever happens between any two calls."""

from __future__ import annotations

import random
from collections import Counter
from typing import TYPE_CHECKING, Any

import pytest
from fairbox import Message
from fairbox.dispatch.maintenance import recount
from fairbox.dispatch.maintenance.recount import Recounts
from fairbox.dispatch.ports import Outcome
from fairbox.errors import FairboxError
from fairbox.model.clock import milliseconds
from fairbox.tables import recounts as recount_tables
from fairbox.tables.stream_records import sequence_order
from fairbox.testing.application import OUTBOX, MemoryApplication

from tests.support.application import THROTTLED, App

if TYPE_CHECKING:
    from collections.abc import Callable

    from fairbox.model.messages import MessageRef
    from fairbox.tables.shard_rows import ShardRow

SHARD = ("orders", 0, 0)
REFUSED = Outcome("refused", "no", fault="message")


class Killed(BaseException):
    """Ends repair in its middle."""


class Interrupted:
    """The tables as repair sees them: others act before any of its calls."""

    def __init__(self, engine: Any) -> None:
        self._engine = engine
        self.before: Callable[[], None] = lambda: None

    def __getattr__(self, name: str) -> Any:
        method = getattr(self._engine, name)
        if not callable(method):
            return method

        def call(**request: Any) -> Any:
            self.before()
            return method(**request)

        return call


class BusyShard:
    """One shard in which everything happens at once: a producer, marking, visits and operators."""

    def __init__(self, seed: int, *, given_up: float = 0.15) -> None:
        self.rng = random.Random(seed)
        self.app = App("a", shards=1)
        self.app.at("a").answer = lambda m: REFUSED if m.message.body == b"p" else THROTTLED
        self.given_up = given_up
        self.given: Counter[str] = Counter()
        self.refs: list[MessageRef] = []
        self.position: str | None = None
        self.last: list[dict[str, Any]] = []
        self.client = Interrupted(self.app.client)
        self.calm = self.holes = False
        over = MemoryApplication(clock=self.app.clock, wrap=lambda _: self.client)
        self.recounts = Recounts(over.tables, self.app.clock, self.app.ids.next)
        self.truths: list[str] = []
        self.ended = self.corrected = 0

    def act(self) -> None:
        """Let something happen."""
        drawn = self.rng.random()
        if drawn < 0.25:
            self._publish(self.rng.randint(1, 3))
        elif drawn < 0.55:
            self._settle()
        elif drawn < 0.65:
            self._die()
        elif drawn < 0.70:
            self.app.outbox.redrive("orders")
        elif drawn < 0.74:
            self.app.outbox.purge_dead("orders", limit=1)
        else:
            self.mark()

    def _publish(self, count: int) -> None:
        for _ in range(count):
            delay = self.rng.choice([0, 0, 900])
            body = b"p" if self.rng.random() < 0.2 else b"x"
            made = Message(topic="orders", body=body, delay=delay, id=self.app.ids.next())
            self.refs.append(self.app.outbox.add(made))

    def _settle(self) -> None:
        self.rng.shuffle(self.refs)
        gone, self.refs = self.refs[:4], self.refs[4:]
        if gone and self.rng.random() < 0.5:
            self.app.outbox.mark_delivered(gone)
            return
        for ref in gone:
            try:
                self.app.outbox.cancel([ref])
            except FairboxError:
                continue

    def _die(self) -> None:
        """Let visits bury what a destination refuses."""
        self.app.clock.advance(90)
        self.app.sweep()
        for _ in range(3):
            self.app.visit(5)
            self.app.clock.advance(20)

    def mark(self) -> None:
        """Mark a batch, again, or never."""
        records = self.app.records(self.position)
        batch = records[: self.rng.randint(1, 12)]
        if not batch:
            return
        self.position = batch[-1]["dynamodb"]["SequenceNumber"]
        if not self.calm and self.rng.random() < self.given_up:
            self.holes = True
            self.given["up"] += 1
            self.app.given_up.kept[f"batch {self.given['up']}"] = batch
            return
        for _ in range(self.rng.choice([1, 1, 2])):
            self.app._marking.handle(batch)

    def true(self, row: ShardRow) -> tuple[int, int]:
        """Return the true counts as of the row's sequence numbers, from the whole stream."""
        bound = {"ready": row.ready_sequence, "later": row.later_sequence}
        counts = Counter[str]()
        for record in self.app.records():
            lane = record["dynamodb"]["Keys"]["pk"]["S"].partition("#")[0]
            if sequence_order(record["dynamodb"]["SequenceNumber"]) <= sequence_order(bound[lane]):
                counts[lane] += {"INSERT": 1, "REMOVE": -1}.get(record["eventName"], 0)
        return counts["ready"], counts["later"]

    def recount(self, *, kills: float = 0.0) -> None:
        """Run the recounts once while others act; check each that ends."""
        busy = [True]

        def before() -> None:
            if not busy[0]:
                return
            busy[0] = False
            try:
                for _ in range(self.rng.choice([0, 0, 0, 1, 1])):
                    self.act()
            finally:
                busy[0] = True
            if self.rng.random() < kills:
                raise Killed

        rows: Any = self.recounts._rows
        change = rows.change

        def checked(after: ShardRow, row: ShardRow) -> bool:
            done: bool = change(after, row)
            if done and after.recount is None:
                found = after.ready, after.later
                # what is given up meanwhile, repair replays and asks for another recount
                if found != self.true(after) and not self.holes:
                    self.truths.append(f"{found} written, {self.true(after)} true")
            return done

        rows.change = checked
        self.client.before = before
        self.calm = self.rng.random() < 0.7
        if not self.app.row().recount:
            self.holes = False
        try:
            report = self.recounts.run(deadline=self.app.clock.now() + 1e6)
            self.ended += report.ended
            self.corrected += report.corrected
        except Killed:
            pass
        finally:
            self.calm = False
            self.client.before = lambda: None
            rows.change = change

    def rest(self) -> None:
        """Let all be marked and replayed, and all recounts end."""
        self.calm = True
        for _ in range(4):
            while self.app.records(self.position):
                self.mark()
            self.app.repair(meanwhile=self.mark)

    def breaches(self) -> list[str]:
        """Return what differs from the tables, at rest."""
        row = self.app.row()
        lanes = Counter(i["pk"]["S"].partition("#")[0] for i in self.app.lying())
        dead = len(self.app.dead())
        found = (row.ready, row.later, row.dead)
        true = (lanes["ready"], lanes["later"], dead)
        left = [i for i in self.app.engine.items(OUTBOX) if i["pk"]["S"].startswith("recount")]
        return [
            *self.truths,
            *([] if found == true else [f"at rest: {found} written, {true} true"]),
            *([] if row.recount is None and not left else [f"never ended: {row.recount} {left}"]),
        ]


def busy(seed: int, *, pages: int = 4, kills: float = 0.0, rounds: int = 3) -> BusyShard:
    """A shard that was recounted in the middle of everything, and then came to rest."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(recount_tables, "_PAGE_LIMIT", pages)
        patch.setattr(recount, "UNITS_A_SECOND", 1e9)
        shard = BusyShard(seed)
        for _ in range(20):
            shard.act()
        for _ in range(rounds):
            shard.app.tables.recounts.doubt([SHARD], milliseconds(shard.app.clock))
            for _ in range(4):
                shard.recount(kills=kills)
                shard.mark()
        shard.rest()
    return shard


@pytest.mark.guarantee("recount-exact")
@pytest.mark.parametrize("seed", range(12))
def test_a_recount_of_a_busy_shard_is_exact_at_its_sequence_numbers(seed: int) -> None:
    assert busy(seed).breaches() == []


@pytest.mark.guarantee("recount-exact")
@pytest.mark.parametrize("seed", range(100, 108))
def test_a_recount_that_is_killed_anywhere_goes_on_or_begins_again(seed: int) -> None:
    assert busy(seed, kills=0.03).breaches() == []


@pytest.mark.extended
@pytest.mark.parametrize("seed", range(200, 210))
def test_a_shard_ten_times_as_busy_is_counted_as_exactly(seed: int) -> None:
    shard = busy(seed, rounds=30)
    assert shard.breaches() == []
    assert shard.ended > 3


def test_the_seeds_recount_under_traffic_and_correct_counts() -> None:
    shards = [busy(seed) for seed in range(4)]
    assert sum(shard.ended for shard in shards) >= 4
    assert sum(shard.corrected for shard in shards) >= 2


@pytest.mark.guarantee("recount-exact")
def test_a_recount_whose_fences_marking_went_past_begins_anew_after_an_hour() -> None:
    app = App("a", shards=1)
    app.add(3)
    app.tables.recounts.doubt([SHARD], milliseconds(app.clock))
    recounts = Recounts(app.tables, app.clock, app.ids.next)
    recounts.run(deadline=app.clock.now() + 60)
    app.add(1)

    # as repair replays a batch that the relay gave up, while marking stands still
    app._marking.handle(app.records()[-1:])

    for wait in (3_500, 100, 5, 5):
        app.mark()
        assert recounts.run(deadline=app.clock.now() + 60).waiting == 1
        app.clock.advance(wait)
    app.mark()
    assert recounts.run(deadline=app.clock.now() + 60).ended == 1
    assert (app.row().ready, app.row().recount) == (4, None)
