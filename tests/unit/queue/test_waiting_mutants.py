"""Mutants of receivers that wait, each with one rule undone: a test must notice."""

from __future__ import annotations

from dataclasses import replace
from functools import partialmethod
from typing import TYPE_CHECKING, Any

import pytest
from fairbox.codec.waiting import read_waiting
from fairbox.dynamodb import waiting_rows
from fairbox.queue import waiting
from fairbox.queue.lane_heads import LaneHeads
from fairbox.queue.waiting import WaitingReceive
from fairbox.queue.watch import Watch

from tests.unit.queue import test_waiting as tests

if TYPE_CHECKING:
    from collections.abc import Callable

    from fairbox.model.waiting import WaitingRow

FOUND = (AssertionError, pytest.fail.Exception)


def first_shards_only(self: WaitingReceive, name: str, take: Any, **_: Any) -> Any:
    """A round of one visit."""
    topic = self._pulled(name)
    return topic, take(topic, set(topic.shards()))


def begin_without_looks(self: Watch, row: WaitingRow, places: Any) -> None:
    """A watch that takes every shard for empty."""
    self.on, self.row, self._known, self.looks = True, row, set(places), {}


def never_again(self: LaneHeads, *_: Any, **__: Any) -> None:
    """Every shard counts as empty once it was looked at."""


def nothing(*_: Any, **__: Any) -> None:
    """Do nothing."""


def only_news(self: Watch, places: Any, slots: set[int], now: int) -> None:
    """Shards that a resize added stay unknown."""
    for place in self._known:
        if place[1] % 64 in slots:
            self.name(place, now)


MUTANTS: list[tuple[Any, str, Any, Callable[[pytest.MonkeyPatch], object]]] = [
    (
        WaitingReceive,
        "round",
        first_shards_only,
        lambda _: tests.test_a_loop_without_waits_ends_only_when_everything_was_received("none"),
    ),
    (
        WaitingReceive,
        "round",
        partialmethod(WaitingReceive.round, again=0),
        lambda _: (
            tests.test_a_loop_without_waits_does_not_end_before_a_message_behind_many_in_flight()
        ),
    ),
    (
        waiting_rows,
        "read_waiting",
        lambda item: replace(read_waiting(item), asked=None, answered=1),
        lambda _: tests.test_without_a_relay_all_shards_are_read_on(),
    ),
    (waiting, "ANSWER_MS", 10**9, tests.test_a_relay_that_stops_is_found_out_within_minutes),
    (
        WaitingReceive,
        "_fall_back",
        nothing,
        tests.test_news_that_were_lost_are_made_up_for_and_trusted_less,
    ),
    (waiting, "DISTRUST_MS", 0, tests.test_news_that_were_lost_are_made_up_for_and_trusted_less),
    (
        Watch,
        "begin",
        begin_without_looks,
        lambda _: tests.test_what_was_in_flight_before_anybody_waited_is_taken_over("none"),
    ),
    (
        Watch,
        "changed",
        lambda *_: set(),
        lambda _: tests.test_a_receiver_that_waited_for_long_receives_within_seconds("none"),
    ),
    (
        LaneHeads,
        "look",
        never_again,
        lambda _: tests.test_a_claim_that_ends_while_others_wait_is_taken_over("none"),
    ),
    (
        WaitingReceive,
        "returned",
        nothing,
        lambda _: tests.test_what_another_waiting_process_gives_back_is_received_soon("none"),
    ),
    (
        Watch,
        "follow",
        only_news,
        lambda _: tests.test_a_message_in_a_shard_that_a_resize_added_is_received(),
    ),
    (
        waiting,
        "TOPICS_MS",
        10**9,
        lambda _: (
            tests.test_a_topic_with_a_subscription_is_refused_after_some_minutes_or_with_its_next_message()
        ),
    ),
    (
        Watch,
        "took",
        nothing,
        lambda _: tests.test_a_stream_of_messages_is_received_at_the_pace_of_rounds(),
    ),
    (waiting, "START_MS", 0, lambda _: tests.test_nobody_relies_on_news_too_early()),
]


@pytest.mark.parametrize(("owner", "name", "mutant", "test"), MUTANTS)
def test_a_mutant_is_noticed(
    owner: Any, name: str, mutant: Any, test: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(owner, name, mutant)
    with pytest.raises(FOUND):
        test(monkeypatch)
