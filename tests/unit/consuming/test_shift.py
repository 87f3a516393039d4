"""The steps of a consumer under a clock that is set: heartbeats, bounds, faults, hung handlers."""

from __future__ import annotations

from typing import Any

import pytest
from fairbox import Throttled, TopicIsPushed, Unavailable
from fairbox.consumer.counts import ConsumerCounts, Tally
from fairbox.consumer.event_log import Journal
from fairbox.consumer.in_flight import Held, Hold
from fairbox.consumer.options import Limits
from fairbox.consumer.outcomes import ACK, Outcome
from fairbox.consumer.worker_steps import Shift
from fairbox.testing import ManualClock

from tests.unit.consuming.scripted import Lines, ScriptedQueue


class Rig:
    """One shift whose workers the test plays: it takes and finishes messages itself."""

    def __init__(self, **limits: Any) -> None:
        self.clock = ManualClock(1000)
        self.queue = ScriptedQueue(self.clock.now)
        self.log = Lines()
        self.limits = Limits(**limits)
        self.hold = Hold(self.limits.concurrency, self.limits.prefetch, self.clock.now)
        self.tally = Tally()
        self.handled: list[bytes] = []
        self.shift = Shift(
            self.queue,
            "jobs",
            self._handle,
            limits=self.limits,
            hold=self.hold,
            journal=Journal(self.tally, self.log, {"topic": "jobs"}),
            now=self.clock.now,
        )

    def _handle(self, received: Any) -> Outcome:
        self.handled.append(received.message.body)
        return ACK

    def take(self) -> Held:
        """Let a worker begin."""
        held = self.hold.take()
        assert held is not None
        return held

    @property
    def counts(self) -> ConsumerCounts:
        return self.tally.counts


def bodies(count: int) -> list[bytes]:
    return [b"%02d" % n for n in range(count)]


def test_it_holds_no_more_than_workers_and_prefetch() -> None:
    rig = Rig(concurrency=3, prefetch=4)
    rig.queue.send(*bodies(30))
    assert rig.shift.receive() == 7
    assert rig.shift.receive() == 0
    running = [rig.take() for _ in range(3)]
    assert rig.shift.receive() == 0  # four wait: no call for a free place or two
    running.append(rig.take())  # as if a worker had finished
    rig.hold.finish(running[0], ACK)
    rig.shift.keep(flush=True)
    rig.hold.finish(running[1], ACK)
    rig.shift.keep(flush=True)
    rig.take()
    assert rig.shift.receive() == 2
    assert len(rig.hold) == 7
    assert rig.queue.sizes["receive"] == [7, 2]


def test_what_is_done_but_not_settled_takes_room() -> None:
    rig = Rig(concurrency=1, prefetch=0)
    rig.queue.send(*bodies(3))
    assert rig.shift.receive() == 1
    rig.queue.faults["ack"] += [Throttled("ack")]
    assert rig.shift.work()
    rig.shift.keep()
    assert rig.shift.receive() == 0
    rig.clock.advance(1)
    rig.shift.keep()
    assert rig.shift.receive() == 1


def test_without_prefetch_it_receives_what_workers_are_free_for() -> None:
    rig = Rig(concurrency=2, prefetch=0)
    rig.queue.send(*bodies(5))
    assert rig.shift.receive() == 2
    rig.take()
    assert rig.shift.receive() == 0


def test_long_work_is_extended_at_a_third_of_its_visibility() -> None:
    rig = Rig(concurrency=1, prefetch=0, visibility_timeout=30)
    rig.queue.send(b"long")
    rig.shift.receive()
    held = rig.take()
    for _ in range(100):
        rig.clock.advance(1)
        rig.shift.keep()
        assert rig.queue.entry(b"long").visible_at > rig.clock.now() + 19
    assert [round(at - 1000) for _, at in rig.queue.extensions] == list(range(10, 101, 10))
    rig.hold.finish(held, ACK)
    rig.shift.keep()
    assert rig.queue.acked == [b"long"]
    assert rig.counts == ConsumerCounts(received=1, acked=1)


def test_what_waits_for_a_worker_is_extended_too() -> None:
    rig = Rig(concurrency=1, prefetch=3, visibility_timeout=30)
    rig.queue.send(*bodies(4))
    rig.shift.receive()
    rig.take()
    rig.clock.advance(25)
    rig.shift.keep()
    rig.clock.advance(25)
    assert rig.queue.receive("jobs") == []


def test_the_next_step_is_the_next_heartbeat_and_never_a_busy_wait() -> None:
    rig = Rig(concurrency=1, prefetch=0, visibility_timeout=30, linger=1.0)
    rig.queue.send(b"long")
    assert rig.shift.next_step() == float("inf")
    rig.shift.receive()
    rig.take()
    assert rig.shift.next_step() == 1010
    rig.clock.advance(10)
    rig.shift.keep()
    assert rig.shift.next_step() == 1020


def test_a_heartbeat_that_fails_is_made_again_and_the_message_is_kept() -> None:
    rig = Rig(concurrency=1, prefetch=0, visibility_timeout=30)
    rig.queue.send(b"long")
    rig.shift.receive()
    rig.take()
    rig.queue.faults["extend"] += [Throttled("extend"), Unavailable("extend", "gone")]
    rig.clock.advance(10)
    for _ in range(3):
        rig.shift.keep()
        rig.clock.advance(1)
    assert [at for _, at in rig.queue.extensions] == [1012]
    assert rig.counts == ConsumerCounts(received=1, errors=2)


def test_a_message_lost_while_it_waits_is_never_handled() -> None:
    rig = Rig(concurrency=1, prefetch=1)
    rig.queue.send(b"a", b"b")
    rig.shift.receive()
    rig.queue.steal(b"b")
    rig.clock.advance(10)
    rig.shift.keep()
    while rig.shift.work():
        rig.shift.keep()
    assert rig.handled == [b"a"]
    assert rig.queue.acked == [b"a"]
    assert rig.counts == ConsumerCounts(received=2, acked=1, lost=1)


def test_a_message_whose_visibility_ran_out_is_not_begun_without_an_extension() -> None:
    rig = Rig(concurrency=1, prefetch=2, visibility_timeout=30)
    rig.queue.send(b"lost", b"kept", b"unknown")
    rig.shift.receive()
    rig.clock.advance(31)  # as if the process had been frozen
    rig.queue.steal(b"lost")
    assert rig.shift.work()
    assert rig.shift.work()
    assert rig.handled == [b"kept"]
    rig.queue.faults["extend"] += [Throttled("extend")]
    assert rig.shift.work()
    assert rig.handled == [b"kept"]
    rig.shift.keep()
    assert rig.queue.acked == [b"kept"]
    assert rig.queue.entry(b"unknown").count == 0
    assert rig.counts == ConsumerCounts(received=3, acked=1, lost=1, released=1, errors=1)


def test_a_receipt_lost_while_its_handler_works_is_counted_once_and_not_fatal() -> None:
    rig = Rig(concurrency=1, prefetch=0)
    rig.queue.send(b"a")
    rig.shift.receive()
    held = rig.take()
    rig.queue.steal(b"a")
    rig.clock.advance(10)
    rig.shift.keep()
    assert rig.hold.room() == 0  # its worker is not free before its handler is done
    rig.hold.finish(held, ACK)
    rig.shift.keep()
    assert rig.hold.room() == 1
    assert rig.queue.calls["ack"] == 0
    assert rig.counts == ConsumerCounts(received=1, lost=1)
    assert len(rig.log.told("A receipt was lost.")) == 1


def test_acks_go_together_and_a_stale_one_is_counted_alone() -> None:
    rig = Rig(concurrency=5, prefetch=0)
    rig.queue.send(*bodies(5))
    rig.shift.receive()
    rig.queue.steal(b"03")
    while rig.shift.work():
        pass
    rig.shift.keep()
    assert rig.queue.sizes["ack"] == [5]
    assert rig.counts == ConsumerCounts(received=5, acked=4, lost=1)
    assert len(rig.hold) == 0


def test_an_ack_waits_for_others_no_longer_than_told() -> None:
    rig = Rig(concurrency=2, prefetch=0, linger=0.5)
    rig.queue.send(b"a", b"b")
    rig.shift.receive()
    first, second = rig.take(), rig.take()
    rig.hold.finish(first, ACK)
    rig.shift.keep()
    assert rig.queue.acked == []
    assert rig.shift.next_step() == pytest.approx(1000.5)
    rig.clock.advance(0.5)
    rig.shift.keep()
    assert rig.queue.acked == [b"a"]
    rig.hold.finish(second, ACK)
    rig.shift.keep()  # nothing else is worked on: no other ack can come
    assert rig.queue.acked == [b"a", b"b"]


def test_settling_that_fails_is_made_again_while_the_heartbeat_goes_on() -> None:
    rig = Rig(concurrency=4, prefetch=0, visibility_timeout=3)
    rig.queue.send(b"a", b"b", b"c", b"d")
    rig.shift.receive()
    outcomes = [
        ACK,
        Outcome("fail", 60, "why"),
        Outcome("dead", reason="never"),
        Outcome("release"),
    ]
    for outcome in outcomes:
        rig.hold.finish(rig.take(), outcome)
    for name in ("ack", "nack", "bury", "release"):
        rig.queue.faults[name] += [Throttled(name), Unavailable(name, "no answer")] * 2
    for _ in range(6):
        rig.shift.keep(flush=True)
        rig.clock.advance(1)
    assert rig.queue.acked == [b"a"]
    assert rig.queue.entry(b"b").history == ["why"]
    assert rig.queue.dead == {b"c": "never"}
    assert rig.queue.entry(b"d").count == 0
    assert rig.counts == ConsumerCounts(
        received=4, acked=1, failed=1, dead=1, released=1, errors=16
    )
    assert rig.queue.extensions  # four seconds of faults outlasted the visibility


def test_an_answer_that_nobody_expects_leaves_the_message_to_its_visibility() -> None:
    rig = Rig(concurrency=1, prefetch=0)
    rig.queue.send(b"a")
    rig.shift.receive()
    rig.queue.faults["ack"] += [KeyError("a bug")]
    rig.shift.work()
    rig.shift.keep()
    assert len(rig.hold) == 0
    assert rig.queue.left == [b"a"]
    assert rig.counts == ConsumerCounts(received=1, errors=1)
    (told,) = rig.log.told("A message was left to its visibility.")
    assert told["error"] == "KeyError: 'a bug'"


def test_a_throttled_receive_is_counted_and_a_refused_one_is_raised() -> None:
    rig = Rig()
    rig.queue.faults["receive"] += [Throttled("receive"), TopicIsPushed("jobs")]
    assert rig.shift.receive() == 0
    assert rig.counts == ConsumerCounts(errors=1)
    with pytest.raises(TopicIsPushed):
        rig.shift.receive()


def test_a_handler_that_hangs_is_given_up_at_the_limit() -> None:
    rig = Rig(concurrency=2, prefetch=0, visibility_timeout=30, processing_limit=60)
    rig.queue.send(b"hangs")
    rig.shift.receive()
    held = rig.take()
    for _ in range(120):
        rig.clock.advance(1)
        rig.shift.keep()
    assert max(at for _, at in rig.queue.extensions) < 1060
    (other,) = rig.queue.receive("jobs")
    assert (other.message.body, other.receive_count) == (b"hangs", 2)
    assert rig.counts == ConsumerCounts(received=1, hung=1)
    (told,) = rig.log.told("A handler hangs.")
    assert told["seconds"] == 60
    assert rig.hold.room() == 1  # its worker is lost until it comes back
    rig.hold.finish(held, ACK)
    rig.shift.keep()
    assert rig.counts == ConsumerCounts(received=1, hung=1, lost=1)
    assert rig.hold.room() == 2


def test_where_every_worker_hangs_the_rest_is_released_and_nothing_received() -> None:
    rig = Rig(concurrency=2, prefetch=2, visibility_timeout=30, processing_limit=60)
    rig.queue.send(*bodies(6))
    assert rig.shift.receive() == 4
    first, _ = rig.take(), rig.take()
    for _ in range(61):
        rig.clock.advance(1)
        rig.shift.keep()
    assert rig.counts == ConsumerCounts(received=4, hung=2, released=2)
    assert {rig.queue.entry(b).count for b in (b"02", b"03")} == {0}
    assert rig.hold.room() == 0
    rig.hold.finish(first, ACK)
    rig.shift.keep()
    assert rig.hold.room() > 0
