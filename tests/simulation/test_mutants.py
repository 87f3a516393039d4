"""Mutants of the shipped code, each with one rule broken: the oracles must name the breach."""

from __future__ import annotations

import json
from dataclasses import replace
from itertools import count
from typing import TYPE_CHECKING, Any

from fairbox import Message, Outbox
from fairbox.dispatch.stream import marking
from fairbox.dispatch.stream.marking import Marking
from fairbox.dispatch.stream.message_events import archive_line, events_of
from fairbox.dynamodb.delivery_store import DynamoStore
from fairbox.dynamodb.epochs import EpochTable
from fairbox.model import epochs
from fairbox_simulation.chaos import CALM
from fairbox_simulation.scenarios import SCENARIOS, kind_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    import pytest
    from fairbox import MessageRef
    from fairbox_simulation.chaos import Chaos

REPEATS = replace(CALM, repeats=0.3)


def found(scenario: str, chaos: Chaos, messages: int, *kinds: str, seeds: int = 8) -> bool:
    """Whether a few seeds break guarantees of all these kinds."""
    left = set(kinds)
    for seed in range(seeds):
        left -= set(map(kind_of, SCENARIOS[scenario].breaches(seed, chaos, messages)))
        if not left:
            return True
    return False


class TestDelivery:
    def test_burying_without_the_history_is_found(self, monkeypatch: pytest.MonkeyPatch) -> None:
        for move in ("bury", "finish"):
            shipped = getattr(DynamoStore, move)

            def mutant(self: DynamoStore, stored: Any, died: Any, shipped: Any = shipped) -> Any:
                states = {n: replace(s, history=()) for n, s in stored.states.items()}
                return shipped(self, replace(stored, states=states), died)

            monkeypatch.setattr(DynamoStore, move, mutant)
        assert found("delivery", CALM, 150, "a dead letter without history")

    def test_telling_of_a_death_as_a_cancel_is_found(self, monkeypatch: pytest.MonkeyPatch) -> None:
        tell(monkeypatch, "dead", "cancelled")
        assert found(
            "delivery", CALM, 150, "cancelled by nobody", "dead events and dead letters differ"
        )

    def test_telling_of_a_death_as_a_delivery_is_found(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        tell(monkeypatch, "dead", "delivered")
        assert found("delivery", CALM, 150, "the ledger has what nobody took", "dead and delivered")

    def test_a_delivery_of_another_time_each_time_is_found(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        shipped, number = events_of, count()

        def mutant(change: Any, topic: Any) -> Iterator[Any]:
            for event in shipped(change, topic):
                yield replace(event, at=event.at + 1000 * next(number))

        monkeypatch.setattr(marking, "events_of", mutant)
        assert found("delivery", REPEATS, 100, "ledger twice")

    def test_a_ledger_that_is_not_written_is_found(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(DynamoStore, "write_ledger", lambda *_: None)
        assert found("delivery", CALM, 60, "the ledger lacks", "archive and ledger differ")

    def test_an_event_of_another_id_each_time_is_found(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        shipped, number = archive_line, count()

        def mutant(event: Any, topic: Any) -> bytes:
            line = json.loads(shipped(event, topic)) | {"event_id": f"{next(number)}"}
            return json.dumps(line).encode()

        monkeypatch.setattr(marking, "archive_line", mutant)
        assert found(
            "delivery",
            replace(REPEATS, refused=0.3),
            150,
            "added events differ from inserts",
            "a failure told again",
        )


def tell(monkeypatch: pytest.MonkeyPatch, what: str, instead: Any) -> None:
    """Let marking tell of one kind of event as of another."""
    shipped = events_of

    def mutant(change: Any, topic: Any) -> Iterator[Any]:
        for event in shipped(change, topic):
            yield replace(event, kind=instead) if event.kind == what else event

    monkeypatch.setattr(marking, "events_of", mutant)


class TestResizing:
    def test_an_epoch_that_leaves_while_it_holds_messages_is_found(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(EpochTable, "holds", lambda *_: False)
        monkeypatch.setattr(EpochTable, "counted", lambda *_: False)
        assert found("resizing", CALM, 400, "stranded")

    def test_an_epoch_that_never_leaves_is_found(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(EpochTable, "holds", lambda *_: True)
        assert found("resizing", CALM, 60, "an empty epoch stays")

    def test_an_epoch_that_the_id_does_not_choose_is_found(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        number, add = count(), Outbox.add

        def twice(self: Outbox, message: Message) -> MessageRef:
            add(self, message)
            return add(self, message)  # as a producer does that has not heard the answer

        monkeypatch.setattr(Outbox, "add", twice)
        assert not found("resizing", CALM, 60, "added twice", seeds=1)
        monkeypatch.setattr(epochs, "epoch_at", lambda all_, _: all_[next(number) % len(all_)])
        assert found("resizing", CALM, 60, "added twice")


class TestBatchItems:
    def test_deliveries_that_ack_nothing_are_found(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(Marking, "_ack", lambda *_: 0)
        assert found(
            "riding",
            CALM,
            20,
            "announced not once",
            "not all settled",
            "pending for ever",
            "pending behind its message",
        )
