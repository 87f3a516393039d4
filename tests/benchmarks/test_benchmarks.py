"""The benchmarks: the exact figures of cost."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from benchmarks import batches, cost, queue

if TYPE_CHECKING:
    from benchmarks.figures import Figure

# name -> the most that it may be; the figures are counted, not timed
TARGETS = {
    "cost.wru_per_message.plain": 2.1,
    "cost.wru_per_message.transactional": 3.1,
    "cost.rru_per_message.unordered": 0.0,
    "cost.rru_per_message.ordered": 0.35,
    "cost.rru_per_message.ordered.worst_seed": 0.35,
    "cost.rru_per_invocation.relay": 1.0,
    "cost.calls_per_message": 0.1,
    "cost.sends_per_message": 0.1,
    "cost.idle_sweep_rru": 4.0,
}


@pytest.fixture(scope="module")
def figures() -> dict[str, Figure]:
    found = cost.figures(slow=120, fast=20, burst=5, idle_topics=20, idle_shards=5)
    return {figure.name: figure for figure in found}


@pytest.mark.parametrize(("name", "most"), TARGETS.items())
def test_a_cost_stays_within_its_target(figures: dict[str, Figure], name: str, most: float) -> None:
    assert 0 <= figures[name].value <= most


def test_nothing_but_put_delete_and_recording_is_written_for_a_message(
    figures: dict[str, Figure],
) -> None:
    recording = figures["cost.wru_per_message.recording.at_10_per_second"].value
    assert recording > 0
    assert figures["cost.wru_per_message.plain"].value == pytest.approx(2 + recording)
    transactional = figures["cost.wru_per_message.transactional"].value
    assert transactional == pytest.approx(3 + recording, abs=0.03)  # other chances, other windows


def test_the_seeds_pattern_writes_each_message_eight_or_nine_times(
    figures: dict[str, Figure],
) -> None:
    # put, two indexes; update, two left, two entered: and one more for the transaction's put
    assert figures["cost.wru_per_message.plain"].baseline == 8
    assert figures["cost.wru_per_message.transactional"].baseline == 9


def test_the_queue_stays_within_its_targets() -> None:
    found = queue.figures(messages=200, backlogs=(1, 2_000))
    values = {figure.name: figure.value for figure in found}
    assert len(values) == len(found)
    assert 3 <= values["queue.wru_per_message.unordered"] <= 3.2
    assert values["queue.rru_per_message.unordered"] <= 0.3
    assert 2 <= values["queue.wru_per_message.ordered"] <= 2.3
    for ordering in ("unordered", "ordered"):
        assert values[f"queue.calls_per_message.{ordering}"] <= 0.5
    assert 0 < values["queue.receive_rru_300_in_flight"] <= 5
    assert values["queue.empty_receive_rru.unordered"] == 4.5


def test_costs_of_acks_stay_within_their_targets() -> None:
    found = batches.figures(acks=60, groups=(10, 30))
    values = {figure.name: figure for figure in found}
    assert len(values) == len(found)
    assert values["batches.wru_per_ack"].value <= 0.01
    assert values["batches.wru_per_ack.single"].value == 1
    assert values["batches.ack_growth_10_to_10000_groups"].value <= 1.1
    for name in ("batches.rru_per_ack", "batches.rru_per_ack.single"):
        assert values[name].ratio == pytest.approx(1)
    few, more = (values[f"batches.rru_per_ack.{n}_groups"].value for n in (10, 30))
    assert few == more
