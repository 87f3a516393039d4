"""The full-system scenario keeps its guarantees under faults, and finds what breaks them."""

from __future__ import annotations

from collections import Counter
from contextlib import suppress
from typing import Any

import pytest
from botocore.exceptions import BotoCoreError, ClientError
from fairbox import Message
from fairbox.testing.faults import OPERATIONS, Fault, fits
from fairbox_simulation.chaos import CALM, Chaos
from fairbox_simulation.whole_run import finish, run_whole
from fairbox_simulation.whole_world import FED, FEEDER, WholeWorld

from tests.support.seeds import seeds

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
