"""The steps of a consumer under a clock that is set: heartbeats, bounds, faults, hung handlers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from fairbox import Throttled, TopicIsPushed, Unavailable
from fairbox.consumer.counts import ConsumerCounts, Counts, EventLog
from fairbox.consumer.handler_outcomes import ACK, Outcome
from fairbox.consumer.in_flight import InFlight
from fairbox.consumer.options import Limits
from fairbox.consumer.worker_steps import WorkerSteps
from fairbox.testing import ManualClock

from tests.support.scripted_queue import Lines, ScriptedQueue

if TYPE_CHECKING:
    from fairbox.consumer.in_flight import InFlightMessage


class Setup:
    """One shift whose workers the test plays: it takes and finishes messages itself."""

    def __init__(self, **limits: Any) -> None:
        self.clock = ManualClock(1000)
        self.queue = ScriptedQueue(self.clock.now)
        self.log = Lines()
        self.limits = Limits(**limits)
        self.hold = InFlight(self.limits.concurrency, self.limits.prefetch, self.clock.now)
        self.counting = Counts()
        self.handled: list[bytes] = []
        self.shift = WorkerSteps(
            self.queue,
            "jobs",
            self._handle,
            late=lambda _: Outcome("fail", reason="too late"),
            limits=self.limits,
            in_flight=self.hold,
            events=EventLog(self.counting, self.log, {"topic": "jobs"}),
        )

    def _handle(self, received: Any) -> Outcome:
        self.handled.append(received.message.body)
        return ACK

    def take(self) -> InFlightMessage:
        """Let a worker begin."""
        held = self.hold.take()
        assert held is not None
        return held

    @property
    def counts(self) -> ConsumerCounts:
        return self.counting.counts


def bodies(count: int) -> list[bytes]:
    return [b"%02d" % n for n in range(count)]


def test_it_holds_no_more_than_workers_and_prefetch() -> None:
    setup = Setup(concurrency=3, prefetch=4)
    setup.queue.send(*bodies(30))
    assert setup.shift.receive() == 7
    assert setup.shift.receive() == 0
    running = [setup.take() for _ in range(3)]
    assert setup.shift.receive() == 0  # four wait: no call for a free place or two
    running.append(setup.take())  # as if a worker had finished
    setup.hold.finish(running[0], ACK)
    setup.shift.keep(flush=True)
    setup.hold.finish(running[1], ACK)
    setup.shift.keep(flush=True)
    setup.take()
    assert setup.shift.receive() == 2
    assert len(setup.hold) == 7
    assert setup.queue.sizes["receive"] == [7, 2]


def test_what_is_done_but_not_settled_takes_room() -> None:
    setup = Setup(concurrency=1, prefetch=0)
    setup.queue.send(*bodies(3))
    assert setup.shift.receive() == 1
    setup.queue.faults["ack"] += [Throttled("ack")]
    assert setup.shift.work()
    setup.shift.keep()
    assert setup.shift.receive() == 0
    setup.clock.advance(1)
    setup.shift.keep()
    assert setup.shift.receive() == 1


def test_without_prefetch_it_receives_what_workers_are_free_for() -> None:
    setup = Setup(concurrency=2, prefetch=0)
    setup.queue.send(*bodies(5))
    assert setup.shift.receive() == 2
    setup.take()
    assert setup.shift.receive() == 0


def test_long_work_is_extended_at_a_third_of_its_visibility() -> None:
    setup = Setup(concurrency=1, prefetch=0, visibility_timeout=30)
    setup.queue.send(b"long")
    setup.shift.receive()
    held = setup.take()
    for _ in range(100):
        setup.clock.advance(1)
        setup.shift.keep()
        assert setup.queue.entry(b"long").visible_at > setup.clock.now() + 19
    assert [round(at - 1000) for _, at in setup.queue.extensions] == list(range(10, 101, 10))
    setup.hold.finish(held, ACK)
    setup.shift.keep()
    assert setup.queue.acked == [b"long"]
    assert setup.counts == ConsumerCounts(received=1, acked=1)


def test_what_waits_for_a_worker_is_extended_too() -> None:
    setup = Setup(concurrency=1, prefetch=3, visibility_timeout=30)
    setup.queue.send(*bodies(4))
    setup.shift.receive()
    setup.take()
    setup.clock.advance(25)
    setup.shift.keep()
    setup.clock.advance(25)
    assert setup.queue.receive("jobs") == []


def test_the_next_step_is_the_next_heartbeat_and_never_a_busy_wait() -> None:
    setup = Setup(concurrency=1, prefetch=0, visibility_timeout=30, linger=1.0)
    setup.queue.send(b"long")
    assert setup.hold.heartbeats.next == float("inf")
    setup.shift.receive()
    setup.take()
    assert setup.hold.heartbeats.next == 1010
    setup.clock.advance(10)
    setup.shift.keep()
    assert setup.hold.heartbeats.next == 1020


def test_a_heartbeat_that_fails_is_made_again_and_the_message_is_kept() -> None:
    setup = Setup(concurrency=1, prefetch=0, visibility_timeout=30)
    setup.queue.send(b"long")
    setup.shift.receive()
    setup.take()
    setup.queue.faults["extend"] += [Throttled("extend"), Unavailable("extend", "gone")]
    setup.clock.advance(10)
    for _ in range(3):
        setup.shift.keep()
        setup.clock.advance(1)
    assert [at for _, at in setup.queue.extensions] == [1012]
    assert setup.counts == ConsumerCounts(received=1, errors=2)


def test_a_message_lost_while_it_waits_is_never_handled() -> None:
    setup = Setup(concurrency=1, prefetch=1)
    setup.queue.send(b"a", b"b")
    setup.shift.receive()
    setup.queue.steal(b"b")
    setup.clock.advance(10)
    setup.shift.keep()
    while setup.shift.work():
        setup.shift.keep()
    assert setup.handled == [b"a"]
    assert setup.queue.acked == [b"a"]
    assert setup.counts == ConsumerCounts(received=2, acked=1, lost=1)


def test_a_message_whose_visibility_ran_out_is_not_begun_without_an_extension() -> None:
    setup = Setup(concurrency=1, prefetch=2, visibility_timeout=30)
    setup.queue.send(b"lost", b"kept", b"unknown")
    setup.shift.receive()
    setup.clock.advance(31)  # as if the process had been frozen
    setup.queue.steal(b"lost")
    assert setup.shift.work()
    assert setup.shift.work()
    assert setup.handled == [b"kept"]
    setup.queue.faults["extend"] += [Throttled("extend")]
    assert setup.shift.work()
    assert setup.handled == [b"kept"]
    setup.shift.keep()
    assert setup.queue.acked == [b"kept"]
    assert setup.queue.entry(b"unknown").count == 0
    assert setup.counts == ConsumerCounts(received=3, acked=1, lost=1, released=1, errors=1)


def test_a_receipt_lost_while_its_handler_works_is_counted_once_and_not_fatal() -> None:
    setup = Setup(concurrency=1, prefetch=0)
    setup.queue.send(b"a")
    setup.shift.receive()
    held = setup.take()
    setup.queue.steal(b"a")
    setup.clock.advance(10)
    setup.shift.keep()
    assert setup.hold.room() == 0  # its worker is not free before its handler is done
    setup.hold.finish(held, ACK)
    setup.shift.keep()
    assert setup.hold.room() == 1
    assert setup.queue.calls["ack"] == 0
    assert setup.counts == ConsumerCounts(received=1, lost=1)
    assert len(setup.log.told("A receipt was lost.")) == 1


def test_acks_go_together_and_a_stale_one_is_counted_alone() -> None:
    setup = Setup(concurrency=5, prefetch=0)
    setup.queue.send(*bodies(5))
    setup.shift.receive()
    setup.queue.steal(b"03")
    while setup.shift.work():
        pass
    setup.shift.keep()
    assert setup.queue.sizes["ack"] == [5]
    assert setup.counts == ConsumerCounts(received=5, acked=4, lost=1)
    assert len(setup.hold) == 0


def test_an_ack_waits_for_others_no_longer_than_told() -> None:
    setup = Setup(concurrency=2, prefetch=0, linger=0.5)
    setup.queue.send(b"a", b"b")
    setup.shift.receive()
    first, second = setup.take(), setup.take()
    setup.hold.finish(first, ACK)
    setup.shift.keep()
    assert setup.queue.acked == []
    assert setup.hold.unsettled.next(linger=0.5) == pytest.approx(1000.5)
    setup.clock.advance(0.5)
    setup.shift.keep()
    assert setup.queue.acked == [b"a"]
    setup.hold.finish(second, ACK)
    setup.shift.keep()  # nothing else is worked on: no other ack can come
    assert setup.queue.acked == [b"a", b"b"]


def test_settling_that_fails_is_made_again_while_the_heartbeat_goes_on() -> None:
    setup = Setup(concurrency=4, prefetch=0, visibility_timeout=3)
    setup.queue.send(b"a", b"b", b"c", b"d")
    setup.shift.receive()
    outcomes = [
        ACK,
        Outcome("fail", 60, "why"),
        Outcome("dead", reason="never"),
        Outcome("release"),
    ]
    for outcome in outcomes:
        setup.hold.finish(setup.take(), outcome)
    for name in ("ack", "nack", "bury", "release"):
        setup.queue.faults[name] += [Throttled(name), Unavailable(name, "no answer")] * 2
    for _ in range(6):
        setup.shift.keep(flush=True)
        setup.clock.advance(1)
    assert setup.queue.acked == [b"a"]
    assert setup.queue.entry(b"b").history == ["why"]
    assert setup.queue.dead == {b"c": "never"}
    assert setup.queue.entry(b"d").count == 0
    assert setup.counts == ConsumerCounts(
        received=4, acked=1, failed=1, dead=1, released=1, errors=16
    )
    assert setup.queue.extensions  # four seconds of faults outlasted the visibility


def test_an_answer_that_nobody_expects_leaves_the_message_to_its_visibility() -> None:
    setup = Setup(concurrency=1, prefetch=0)
    setup.queue.send(b"a")
    setup.shift.receive()
    setup.queue.faults["ack"] += [KeyError("a bug")]
    setup.shift.work()
    setup.shift.keep()
    assert len(setup.hold) == 0
    assert setup.queue.left == [b"a"]
    assert setup.counts == ConsumerCounts(received=1, errors=1)
    (told,) = setup.log.told("A message was left to its visibility.")
    assert told["error"] == "KeyError: 'a bug'"


def test_a_throttled_receive_is_counted_and_a_refused_one_is_raised() -> None:
    setup = Setup()
    setup.queue.faults["receive"] += [Throttled("receive"), TopicIsPushed("jobs")]
    assert setup.shift.receive() == 0
    assert setup.counts == ConsumerCounts(errors=1)
    with pytest.raises(TopicIsPushed):
        setup.shift.receive()


def test_a_handler_that_hangs_is_given_up_at_the_limit() -> None:
    setup = Setup(concurrency=2, prefetch=0, visibility_timeout=30, processing_limit=60)
    setup.queue.send(b"hangs")
    setup.shift.receive()
    held = setup.take()
    for _ in range(120):
        setup.clock.advance(1)
        setup.shift.keep()
    assert max(at for _, at in setup.queue.extensions) < 1060
    (other,) = setup.queue.receive("jobs")
    assert (other.message.body, other.receive_count) == (b"hangs", 2)
    assert setup.counts == ConsumerCounts(received=1, hung=1)
    (told,) = setup.log.told("A handler hangs.")
    assert told["seconds"] == 60
    assert setup.hold.room() == 1  # its worker is lost until it comes back
    setup.hold.finish(held, ACK)
    setup.shift.keep()
    assert setup.counts == ConsumerCounts(received=1, hung=1, lost=1)
    assert setup.hold.room() == 2


def test_where_every_worker_hangs_the_rest_is_released_and_nothing_received() -> None:
    setup = Setup(concurrency=2, prefetch=2, visibility_timeout=30, processing_limit=60)
    setup.queue.send(*bodies(6))
    assert setup.shift.receive() == 4
    first, _ = setup.take(), setup.take()
    for _ in range(61):
        setup.clock.advance(1)
        setup.shift.keep()
    assert setup.counts == ConsumerCounts(received=4, hung=2, released=2)
    assert {setup.queue.entry(b).count for b in (b"02", b"03")} == {0}
    assert setup.hold.room() == 0
    setup.hold.finish(first, ACK)
    setup.shift.keep()
    assert setup.hold.room() > 0


def test_a_message_fails_at_the_time_limit_and_its_worker_is_missed_until_it_returns() -> None:
    setup = Setup(concurrency=2, prefetch=0, time_limit=5, max_attempts=3)
    setup.queue.send(*bodies(4))
    assert setup.shift.receive() == 2
    late, other = setup.take(), setup.take()
    assert setup.hold.next_overdue(5) == 1005
    setup.clock.advance(4)
    setup.hold.finish(other, ACK)
    setup.clock.advance(1)
    setup.shift.keep(flush=True)
    assert setup.counts == ConsumerCounts(received=2, acked=1, failed=1)
    assert setup.queue.entry(late.received.message.body).history == ["too late"]
    assert setup.shift.receive() == 1  # one worker of two is free
    setup.take()
    assert setup.shift.receive() == 0
    setup.hold.finish(late, ACK)
    assert setup.hold.late == 0
    assert setup.shift.receive() == 1
    assert setup.counts.acked == 1


def test_where_every_handler_is_late_the_rest_is_released() -> None:
    setup = Setup(concurrency=1, prefetch=2, time_limit=5)
    setup.queue.send(*bodies(4))
    assert setup.shift.receive() == 3
    setup.take()
    setup.clock.advance(5)
    setup.shift.keep(flush=True)
    assert setup.counts == ConsumerCounts(received=3, failed=1, released=2)
    assert setup.shift.receive() == 0
