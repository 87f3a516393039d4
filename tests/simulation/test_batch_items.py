"""Batches whose items are carried by messages keep their guarantees; mutants do not."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest
from fairbox.batches.message_items import MessageItems, Moved
from fairbox.codec.keys import message_key
from fairbox.codec.stream_records import read_record
from fairbox.dispatch.stream import marking
from fairbox.dispatch.stream.marking import Marking
from fairbox.dynamodb.lanes import Lanes
from fairbox_simulation.batch_item_oracle import BatchItemOracle, run_batch_items
from fairbox_simulation.batch_item_world import BatchItemWorld
from fairbox_simulation.chaos import CALM, Chaos

from tests.support.seeds import seeds

if TYPE_CHECKING:
    from fairbox.codec.stream_records import Change
    from fairbox.model.stored_messages import StoredMessage

SEEDS = 8
MESSAGES = 60


@pytest.mark.guarantee("announced-once", "batch-figures", "item-of-a-message")
@pytest.mark.parametrize("seed", seeds(SEEDS))
def test_every_item_is_settled_once_and_rightly_whatever_fails(seed: int) -> None:
    assert run_batch_items(seed, Chaos(), MESSAGES) == []


@pytest.mark.extended  # more worlds
@pytest.mark.parametrize("seed", seeds(1000, 1003))
def test_destinations_that_refuse_settle_every_item_rightly(seed: int) -> None:
    assert run_batch_items(seed, CALM, MESSAGES) == []


@pytest.mark.extended  # more worlds
@pytest.mark.parametrize("seed", seeds(2000, 2003))
def test_a_storm_settles_every_item_rightly(seed: int) -> None:
    chaos = Chaos(tables=0.15, kills=0.15, repeats=0.3, interleaved=0.2, refused=0.2)
    assert run_batch_items(seed, chaos, MESSAGES) == []


@pytest.mark.extended  # five worlds, only to see that their events happen
def test_the_worlds_have_deaths_redrives_merges_and_late_ends() -> None:
    seen = {"deaths": 0, "redriven": 0, "merged": 0, "twice": 0, "completed": 0, "failed": 0}
    for seed in range(5):
        world = BatchItemWorld(seed, Chaos())
        world.storm(MESSAGES)
        world.calm()
        world.heal()
        past = BatchItemOracle(world).past
        seen["completed"] += len(past.completed)
        for record in world.app.records():
            new = record["dynamodb"].get("NewImage", {})
            if new.get("g") == {"S": "dead"}:
                seen["deaths"] += 1
            if record["eventName"] == "INSERT" and "n" in new:
                seen["redriven"] += 1
                seen["twice"] += int(new["n"]["N"]) > 1
            elif record["eventName"] == "MODIFY" and "n" in new:
                seen["merged"] += "n" not in record["dynamodb"]["OldImage"]
        items = world.app.engine.items("batches")
        seen["failed"] += sum(1 for i in items if i["sk"]["S"] == "f")
    assert all(count >= 5 for count in seen.values()), seen


class TestMutants:
    """Each breaks one rule on purpose; a simulation that does not see it would prove nothing."""

    def finds(self, breach: str, chaos: Chaos, *, first: int, messages: int = 15) -> bool:
        """Whether one of a few seeds shows the breach, beginning with one that did."""
        found = (run_batch_items(seed, chaos, messages) for seed in range(first, first + 12))
        return any(breach in text for breaches in found for text in breaches)

    def test_failing_from_the_stream_fails_what_was_put_back(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(MessageItems, "fail_with", _alone)
        world_of: list[BatchItemWorld] = []
        begin = BatchItemWorld.__init__

        def remember(self: BatchItemWorld, seed: int, chaos: Chaos) -> None:
            begin(self, seed, chaos)
            world_of[:] = [self]

        handle = Marking.handle

        def mutant(self: Marking, records: Any) -> Any:
            report = handle(self, records)
            died = [_died(read_record(record)) for record in records]
            known, _ = world_of[0].app.keeper.split_known([item for item in died if item])
            world_of[0].app.batches.fail(known)
            return report

        monkeypatch.setattr(BatchItemWorld, "__init__", remember)
        monkeypatch.setattr(Marking, "handle", mutant)
        assert self.finds("failed though delivered: ", replace(CALM, repeats=0.5), first=7)

    def test_failing_beside_the_move_leaves_items_pending(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        fail_with = MessageItems.fail_with

        def mutant(self: MessageItems, item: str, reason: str, actions: Any) -> Moved:
            moved = _alone(self, item, reason, actions)
            fail_with(self, item, reason, [])  # and an invocation may end in between
            return moved

        monkeypatch.setattr(MessageItems, "fail_with", mutant)
        assert self.finds("pending behind its message: ", Chaos(kills=0.4), first=4)

    def test_redriving_without_a_retry_leaves_items_failed(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(
            MessageItems, "retry_with", lambda self, item, actions: _alone(self, item, "", actions)
        )
        assert self.finds("failed though delivered: ", CALM, first=9)

    def test_acking_whatever_left_the_outbox_acks_the_dead(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def mutant(change: Change, _: object) -> str | None:
            return change.old.message.batch_item if change.kind == "REMOVE" and change.old else None

        monkeypatch.setattr(marking, "_acked_item", mutant)
        assert self.finds("completed early", replace(CALM, repeats=0.3), first=28)

    def test_deletes_without_conditions_lose_what_was_redriven(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def mutant(self: Lanes, before: StoredMessage) -> str:
            self.delete([message_key(before.ref, before.lane)])
            return "saved"

        monkeypatch.setattr(Lanes, "delete_unchanged", mutant)
        assert self.finds("lost: ", CALM, first=5, messages=60)


def _alone(items: MessageItems, item: str, reason: str, actions: Any) -> Moved:
    """Move a message without its item."""
    refusal = items._context.store.write([], actions)
    return Moved("settled", refusal.actions if refusal else ())


def _died(change: Change) -> str | None:
    """Return the item of a message whose removal tells of a death."""
    died = change.kind == "REMOVE" and change.old is not None and change.old.gone == "dead"
    return change.old.message.batch_item if died and change.old else None
