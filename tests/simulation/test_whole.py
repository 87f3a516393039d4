"""The full-system scenario keeps its guarantees under faults, and finds what breaks them."""

from __future__ import annotations

from collections import Counter
from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest
from botocore.exceptions import BotoCoreError, ClientError
from fairbox import Message
from fairbox.batches import cascade
from fairbox.batches.cascade import Cascade
from fairbox.batches.lifecycle import Lifecycle
from fairbox.batches.models import COMPLETED_TOPIC, Announcement
from fairbox.dynamodb.claims import Claims
from fairbox.dynamodb.queue_store import DynamoQueueStore
from fairbox.model.key_claims import KeyClaim
from fairbox.model.stored_messages import StoredMessage
from fairbox.queue.settlement import UnorderedSettlement
from fairbox.testing.faults import OPERATIONS, Fault, fits
from fairbox_simulation.chaos import CALM, Chaos
from fairbox_simulation.whole_run import finish, run_whole
from fairbox_simulation.whole_world import FED, FEEDER, WholeWorld

from tests.support.seeds import seeds

if TYPE_CHECKING:
    from collections.abc import Sequence

    from fairbox.batches.models import Root
    from fairbox.model.key_claims import KeyClaims
    from fairbox.model.receipts import Receipt
    from fairbox.queue.ports import Shard

SEEDS = 6
MESSAGES = 150

KEYS = [{"pk": {"S": f"p{n}"}, "sk": {"S": "s"}} for n in range(3)]
ON_ITEM = {"TableName": "deliveries", "Key": KEYS[0]}
PUTS = [{"PutRequest": {"Item": key}} for key in KEYS]
REQUESTS: dict[str, dict[str, Any]] = {
    "get_item": ON_ITEM,
    "update_item": ON_ITEM,
    "delete_item": ON_ITEM,
    "put_item": {"TableName": "deliveries", "Item": KEYS[0]},
    "query": {
        "TableName": "deliveries",
        "KeyConditionExpression": "pk = :p",
        "ExpressionAttributeValues": {":p": {"S": "p0"}},
    },
    "scan": {"TableName": "deliveries", "Limit": 1},
    "batch_get_item": {"RequestItems": {"deliveries": {"Keys": KEYS}}},
    "batch_write_item": {"RequestItems": {"deliveries": PUTS}},
    "transact_get_items": {"TransactItems": [{"Get": ON_ITEM}]},
    "transact_write_items": {
        "TransactItems": [{"Put": {"TableName": "deliveries", "Item": KEYS[0]}}]
    },
    "batch_execute_statement": {
        "Statements": [{"Statement": "DELETE FROM \"deliveries\" WHERE pk = 'x' AND sk = 's'"}]
    },
}


@pytest.mark.guarantee(
    "pulled-accounted", "one-receipt", "stale-receipt", "one-holder-of-a-key", "batch-kept-a-week"
)
@pytest.mark.parametrize("seed", seeds(SEEDS))
def test_the_full_system_keeps_every_guarantee_whatever_fails(seed: int) -> None:
    assert run_whole(seed, Chaos(), MESSAGES) == []


def test_without_faults_of_ours_the_full_system_keeps_every_guarantee() -> None:
    assert run_whole(1000, CALM, MESSAGES) == []


def test_what_receivers_of_any_topic_had_paused_is_resumed_when_it_is_calm() -> None:
    world = WholeWorld(0, CALM)
    operator = world.another()
    for state in operator.topics():
        for subscription in state.subscriptions:
            operator.pause_subscription(state.topic.name, subscription.name)
    world.calm(hours=0)
    standings = [s for state in operator.topics() for s in state.standings.values()]
    assert len(standings) > 8
    assert not any(standing.paused for standing in standings)


@pytest.mark.extended  # three worlds, only to see that their faults strike
def test_all_faults_strike_and_all_actors_act() -> None:
    seen: Counter[str] = Counter()
    for seed in range(3):
        world = WholeWorld(seed, Chaos(frozen=0.2, late=0.05, twice=0.2, kills=0.1))
        assert finish(world, MESSAGES) == []
        seen.update(world.consumers.done)
        seen.update(freezes=world.freezes, kills=world.kills, twice=world.given_twice)
        seen.update(late=world.relay.late + world.marking.late)
        seen.update(lost_leases=world.relay.taken_away + world.marking.taken_away)
        seen.update(stale=world.app.client.stale_reads, resizes=world.resizes)
        seen.update(
            tracked=len(world.tracked), cleaned=world.cleaned, edits=world.producers.changed
        )
        seen.update(redriven=_events(world, "redriven"), dead=_events(world, "dead"))
    assert all(count > 0 for count in seen.values()), seen


def test_what_a_topic_feeds_to_a_wider_one_is_not_taken_for_added_twice() -> None:
    world = WholeWorld(3, CALM)
    world.another().resize(FED, 5)
    world.app.clock.advance(600)  # ids have their time in the new epoch
    for _ in range(8):
        world.app.outbox.add(Message(topic=FEEDER, body=b"", id=world.app.ids.next()))
    assert finish(world, 5) == []


def _events(world: WholeWorld, kind: str) -> int:
    return sum(f'"event":"{kind}"'.encode() in line for line in world.app.archive.lines)


def test_every_fault_of_the_tables_strikes_every_operation_that_can_answer_so() -> None:
    world = WholeWorld(1, Chaos(tables=0.6, kills=0, frozen=0))
    client: Any = world.app.client
    for operation in OPERATIONS:
        for fault in Fault:
            if fits(fault, operation):
                _until_struck(client, operation, fault)


def _until_struck(client: Any, operation: str, fault: Fault) -> None:
    """Call until this fault has struck: within 400 calls, or it never does."""
    for _ in range(400):
        if client.injected[operation, fault]:
            return
        with suppress(BotoCoreError, ClientError):
            getattr(client, operation)(**REQUESTS[operation])
    raise AssertionError(f"{operation} was never struck by {fault.name}")


class TestMutants:
    """Each breaks one rule on purpose; a simulation that does not see it would prove nothing."""

    def finds(self, breach: str, chaos: Chaos, *, first: int, messages: int) -> bool:
        """Whether one of a few seeds shows the breach, beginning with one that did."""
        found = (run_whole(seed, chaos, messages) for seed in range(first, first + 8))
        return any(breach in text for breaches in found for text in breaches)

    def test_receipts_without_fences_change_what_others_hold(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(KeyClaim, "held_by", lambda *_: True)
        assert self.finds("changed by a receipt that was followed", CALM, first=45, messages=60)

    def test_an_expired_receipt_that_counts_is_found(self, monkeypatch: pytest.MonkeyPatch) -> None:
        def mutant(self: UnorderedSettlement, receipts: Sequence[Receipt]) -> list[Receipt]:
            return self._store.delete_held(receipts)

        monkeypatch.setattr(UnorderedSettlement, "ack", mutant)
        assert self.finds("an expired receipt was taken for good", CALM, first=231, messages=100)

    def test_receives_that_do_not_look_who_holds_give_two_holders(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(StoredMessage, "held_until", lambda *_: None)
        assert self.finds("two holders: ", CALM, first=6, messages=30)

    def test_a_late_receive_without_version_gives_two_holders(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        write = DynamoQueueStore.write_held

        def mutant(
            self: DynamoQueueStore, shard: Shard, row: KeyClaims, _: int
        ) -> KeyClaims | None:
            now = self.held(shard).version
            return write(self, shard, replace(row, version=now), now)

        monkeypatch.setattr(DynamoQueueStore, "write_held", mutant)
        assert self.finds("('steps', ", replace(CALM, frozen=0.5), first=12, messages=15)

    def test_an_ack_that_deletes_nothing_is_found(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(Claims, "delete", lambda *_: [])
        assert self.finds("received after its ack: ", CALM, first=1, messages=15)

    def test_telling_again_of_a_batch_that_is_complete_is_found(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        shipped = Cascade.after_end

        def mutant(self: Cascade, root: Root, message: str) -> list[str]:
            if root.state == "complete" and message not in ("", root.message):
                told = Announcement(COMPLETED_TOPIC, message, root, {}, acked=0, at=0)
                context = self._context
                context.store.write([], context.announcer.actions(told))
            return shipped(self, root, message)

        monkeypatch.setattr(Cascade, "after_end", mutant)
        assert self.finds("announced not once: ", CALM, first=5, messages=15)

    def test_erasing_at_once_is_found(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(cascade, "WEEK_HOURS", 0)
        assert self.finds("erased early: ", CALM, first=5, messages=15)

    def test_erasing_only_what_says_that_it_failed_leaves_records_behind(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(Lifecycle, "_once_failed", lambda *_: [])
        assert self.finds("never erased: ", Chaos(), first=0, messages=MESSAGES)
