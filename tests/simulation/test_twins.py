"""Twins of the shipped code, each with one rule broken: the oracles must name what that breaks."""

from __future__ import annotations

import json
from dataclasses import replace
from itertools import count
from typing import TYPE_CHECKING, Any

import pytest
from fairbox import Message, Outbox
from fairbox.batches.models import Leaf
from fairbox.dispatch.stream import marking
from fairbox.dispatch.stream.marking import Marking
from fairbox.dispatch.stream.message_events import archive_line, events_of
from fairbox.dynamodb.delivery_store import DynamoStore
from fairbox.dynamodb.epochs import EpochTable
from fairbox.model import topics
from fairbox_simulation.batches.world import FAIR, simulate
from fairbox_simulation.batches.world import World as BatchWorld
from fairbox_simulation.chaos import CALM
from fairbox_simulation.scenarios import SCENARIOS, kind_of

from tests.batches.twins import unconditional

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from fairbox import MessageRef
    from fairbox.client.batches import Batches
    from fairbox_simulation.chaos import Chaos

REPEATS = replace(CALM, repeats=0.3)


def found(scenario: str, kind: str, chaos: Chaos, messages: int, seeds: int = 8) -> bool:
    """Whether one of a few seeds breaks a promise of this kind."""
    run = SCENARIOS[scenario].breaches
    worlds = (run(seed, chaos, messages) for seed in range(seeds))
    return any(kind == kind_of(breach) for breaches in worlds for breach in breaches)


class TestDelivery:
    def test_burying_without_the_history_is_found(self, monkeypatch: pytest.MonkeyPatch) -> None:
        for move in ("bury", "finish"):
            shipped = getattr(DynamoStore, move)

            def twin(self: DynamoStore, stored: Any, died: Any, shipped: Any = shipped) -> Any:
                states = {n: replace(s, history=()) for n, s in stored.states.items()}
                return shipped(self, replace(stored, states=states), died)

            monkeypatch.setattr(DynamoStore, move, twin)
        assert found("delivery", "a dead letter without history", CALM, 150)

    @pytest.mark.parametrize("kind", ["cancelled by nobody", "dead events and dead letters differ"])
    def test_telling_of_a_death_as_a_cancel_is_found(
        self, monkeypatch: pytest.MonkeyPatch, kind: str
    ) -> None:
        tell(monkeypatch, "dead", "cancelled")
        assert found("delivery", kind, CALM, 150)

    @pytest.mark.parametrize("kind", ["the ledger has what nobody took", "dead and delivered"])
    def test_telling_of_a_death_as_a_delivery_is_found(
        self, monkeypatch: pytest.MonkeyPatch, kind: str
    ) -> None:
        tell(monkeypatch, "dead", "delivered")
        assert found("delivery", kind, CALM, 150)

    def test_a_delivery_of_another_time_each_time_is_found(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        shipped, number = events_of, count()

        def twin(change: Any, topic: Any) -> Iterator[Any]:
            for event in shipped(change, topic):
                yield replace(event, at=event.at + 1000 * next(number))

        monkeypatch.setattr(marking, "events_of", twin)
        assert found("delivery", "ledger twice", REPEATS, 100)

    @pytest.mark.parametrize("kind", ["the ledger lacks", "archive and ledger differ"])
    def test_a_ledger_that_is_not_written_is_found(
        self, monkeypatch: pytest.MonkeyPatch, kind: str
    ) -> None:
        monkeypatch.setattr(DynamoStore, "write_ledger", lambda *_: None)
        assert found("delivery", kind, CALM, 60)

    @pytest.mark.parametrize("kind", ["added events differ from inserts", "a failure told again"])
    def test_an_event_of_another_id_each_time_is_found(
        self, monkeypatch: pytest.MonkeyPatch, kind: str
    ) -> None:
        shipped, number = archive_line, count()

        def twin(event: Any, topic: Any) -> bytes:
            line = json.loads(shipped(event, topic)) | {"event_id": f"{next(number)}"}
            return json.dumps(line).encode()

        monkeypatch.setattr(marking, "archive_line", twin)
        assert found("delivery", kind, replace(REPEATS, refused=0.3), 150)


def tell(monkeypatch: pytest.MonkeyPatch, what: str, instead: Any) -> None:
    """Let marking tell of one kind of event as of another."""
    shipped = events_of

    def twin(change: Any, topic: Any) -> Iterator[Any]:
        for event in shipped(change, topic):
            yield replace(event, kind=instead) if event.kind == what else event

    monkeypatch.setattr(marking, "events_of", twin)


class TestResizing:
    def test_an_epoch_that_leaves_while_it_holds_messages_is_found(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(EpochTable, "holds", lambda *_: False)
        monkeypatch.setattr(EpochTable, "counted", lambda *_: False)
        assert found("resizing", "stranded", CALM, 400)

    def test_an_epoch_that_never_leaves_is_found(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(EpochTable, "holds", lambda *_: True)
        assert found("resizing", "an empty epoch stays", CALM, 200)

    def test_an_epoch_that_the_id_does_not_choose_is_found(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        number, add = count(), Outbox.add

        def twice(self: Outbox, message: Message) -> MessageRef:
            add(self, message)
            return add(self, message)  # as a producer does that has not heard the answer

        monkeypatch.setattr(Outbox, "add", twice)
        assert not found("resizing", "added twice", CALM, 150, seeds=2)
        monkeypatch.setattr(topics, "epoch_at", lambda all_, _: all_[next(number) % len(all_)])
        assert found("resizing", "added twice", CALM, 150)


class TestRiding:
    @pytest.mark.parametrize(
        "kind",
        ["announced not once", "not all settled", "pending for ever", "pending behind its message"],
    )
    def test_deliveries_that_ack_nothing_are_found(
        self, monkeypatch: pytest.MonkeyPatch, kind: str
    ) -> None:
        monkeypatch.setattr(Marking, "_ack", lambda *_: 0)
        assert found("riding", kind, CALM, 20)


def silent_reaps(batches: Batches) -> None:
    """Reap without the message that tells of it."""
    store: Any = batches.store
    shipped = store.write

    def write(changes: Any, actions: Any = ()) -> Any:
        reaped = any(getattr(change.new, "state", "") == "reaped" for change in changes)
        return shipped(changes, () if reaped else actions)

    store.write = write


WORKERS = {
    "identity",
    "announced wrongly",
    "announced early",
    "acked, and pending again",
    "never completed",
}
BATCHES: dict[str, tuple[Callable[[Batches], None], set[str]]] = {
    "a leaf is written whoever has written it since": (unconditional(Leaf), WORKERS),
    "a batch is reaped in silence": (silent_reaps, {"orphan notes"}),
}


@pytest.mark.parametrize("rule", BATCHES)
def test_what_a_batch_without_one_rule_breaks_is_found(rule: str) -> None:
    twin, wanted = BATCHES[rule]
    seen: set[str] = set()
    for _, breaches in simulate(BatchWorld(FAIR, twin), range(1500)):
        seen.update(map(kind_of, breaches))
        if seen >= wanted:
            return
    assert wanted <= seen
