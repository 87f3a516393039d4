"""Shares over bytes: gaps stay bounded, weights hold, nobody starves."""

from __future__ import annotations

from itertools import combinations

import pytest
from fairbox.dispatch.fair import QUANTUM, Pending, Work
from fairbox.dispatch.ports import Limits
from hypothesis import given
from hypothesis import strategies as st

from tests.unit.dispatch.fair.cases import (
    KB,
    Load,
    Note,
    bytes_by_topic,
    call_limits,
    largest_gaps,
    loads,
    saturate,
    weights,
)

CALLS = 40
# large beside small, and more topics than a call has places
UNEVEN = Load({"large": [256 * KB], "small": [1 * KB]})
MANY = Load({f"t{n}": [8 * KB] for n in range(12)})


def gap_bound(load: Load, topic: str) -> float:
    """The bound that docs/explanation/fairness.md proves: bytes of others between two turns."""

    def most(name: str) -> int:
        return load.batches.get(name, 1) * load.largest(name)

    def rate(name: str) -> float:
        return QUANTUM * load.weights.get(name, 1.0)

    rounds = -(-most(topic) // rate(topic)) + 1
    return sum(most(name) + rounds * rate(name) for name in load.sizes if name != topic)


def check_gaps(load: Load, limits: Limits) -> None:
    calls = saturate(load, limits, CALLS)
    gaps = largest_gaps(calls)
    for topic in load.sizes:
        sent = bytes_by_topic(calls)
        others = sum(size for name, size in sent.items() if name != topic)
        # one that was never sent has waited for all the others' bytes
        assert gaps.get(topic, others) <= gap_bound(load, topic)


def check_shares(load: Load, limits: Limits) -> None:
    """Any two topics' bytes by weight differ by no more than a turn of each and two rounds."""
    sent = bytes_by_topic(saturate(load, limits, CALLS))
    for one, other in combinations(load.sizes, 2):
        shares = [sent.get(name, 0) / load.weights.get(name, 1.0) for name in (one, other)]
        turns = [
            load.batches.get(name, 1) * load.largest(name) / load.weights.get(name, 1.0)
            for name in (one, other)
        ]
        assert abs(shares[0] - shares[1]) <= sum(turns) + 2 * QUANTUM


@pytest.mark.guarantee("gap-bound")
@given(loads(), call_limits)
def test_the_largest_gap_of_any_topic_stays_under_its_bound(load: Load, limits: Limits) -> None:
    check_gaps(load, limits)


@pytest.mark.guarantee("gap-bound")
@given(loads(), call_limits)
def test_bytes_are_shared_by_weight_whatever_the_sizes(load: Load, limits: Limits) -> None:
    check_shares(load, limits)


def test_shares_and_gaps_hold_beside_a_large_message_and_for_many_topics() -> None:
    for load in (UNEVEN, MANY):
        check_gaps(load, Limits(10, 1024 * KB))
        check_shares(load, Limits(10, 1024 * KB))


@given(st.lists(weights, min_size=2, max_size=5), st.integers(1, 64))
def test_tenants_share_their_topic_by_weight(shares: list[float], kilobytes: int) -> None:
    pending: Pending[Note] = Pending()
    for number in range(200):
        for tenant, weight in enumerate(shares):
            note = Note("t", number, kilobytes * KB, tenant=f"tenant-{tenant}")
            pending.add(Work(note, "t", size=note.size, tenant=note.tenant, tenant_weight=weight))
    sent = [note for _ in range(10) for note in pending.next_call(Limits(10, 1 << 30))]
    by_tenant = [
        sum(note.size for note in sent if note.tenant == f"tenant-{t}") / weight
        for t, weight in enumerate(shares)
    ]
    size = kilobytes * KB
    for one, other in combinations(range(len(shares)), 2):
        slack = size / shares[one] + size / shares[other] + 2 * QUANTUM
        assert abs(by_tenant[one] - by_tenant[other]) <= slack


def test_a_tenant_with_a_thousand_messages_keeps_one_with_a_single_message_waiting_for_one() -> (
    None
):
    pending: Pending[Note] = Pending()
    for number in range(1000):
        pending.add(Work(Note("t", number, KB), "t", size=KB, tenant="busy"))
    pending.add(Work(Note("t", 1000, KB), "t", size=KB, tenant="quiet"))
    sent = pending.next_call(Limits(10, 1 << 20))
    assert [note.number for note in sent].index(1000) <= 1


@given(loads(batches=False), st.integers(2, 8))
def test_mini_batches_of_one_topic_leave_the_gaps_of_others_bounded(load: Load, n: int) -> None:
    load.batches = {"t0": n}
    check_gaps(load, Limits(10, 1024 * KB))
