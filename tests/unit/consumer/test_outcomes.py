"""The outcome of a message, whatever its handler does."""

from __future__ import annotations

import asyncio
import random
from typing import TYPE_CHECKING, Any

import pytest
from fairbox import InvalidInput, RetryPolicy
from fairbox.consumer.consumer import Consumer
from fairbox.consumer.counts import ConsumerCounts
from fairbox.consumer.handler_outcomes import MAX_REASON_BYTES, Dead, Retry
from fairbox.testing import ManualClock

from tests.support.scripted_queue import Lines, ScriptedQueue

if TYPE_CHECKING:
    from collections.abc import Callable


class Bench:
    """A queue, a clock and a log, and consumers over them."""

    def __init__(self) -> None:
        self.clock = ManualClock()
        self.queue = ScriptedQueue(self.clock.now)
        self.log = Lines()

    def run(self, handler: Callable[[Any], object], **more: Any) -> ConsumerCounts:
        consumer = Consumer(
            self.queue,
            "jobs",
            handler,
            now=self.clock.now,
            rng=random.Random(1),
            log=self.log,
            **more,
        )
        return consumer.run_until_empty()


@pytest.fixture
def bench() -> Bench:
    return Bench()


def raising(error: BaseException) -> Callable[[Any], object]:
    def handler(_received: Any) -> None:
        raise error

    return handler


def test_a_handler_that_returns_acknowledges(bench: Bench) -> None:
    bench.queue.send(b"a", b"b")
    seen = []
    counts = bench.run(lambda received: seen.append((received.message.body, received.receipt)))
    assert [body for body, _ in seen] == [b"a", b"b"]
    assert sorted(bench.queue.acked) == [b"a", b"b"]
    assert bench.queue.left == []
    assert counts == ConsumerCounts(received=2, acked=2)


@pytest.mark.parametrize(
    ("value", "name"),
    [
        (True, "bool"),
        ("text", "str"),
        (ValueError("returned, not raised"), "ValueError"),
        (Retry, "the class Retry"),
        ((_ for _ in ()), "generator"),
    ],
)
def test_an_answer_that_nobody_understands_fails_its_message(
    bench: Bench, value: object, name: str
) -> None:
    bench.queue.send(b"a")
    bench.run(lambda _: value)
    expected = f"handler: expected None, Retry(...) or Dead(...) as its answer, not {name}"
    assert bench.queue.acked == []
    assert expected in bench.queue.entry(b"a").history[0]


def test_what_a_coroutine_returns_is_understood_or_fails_its_message(bench: Bench) -> None:
    async def inner(_: Any) -> None: ...

    async def outer(received: Any) -> object:
        return inner(received)  # without `await`: it never runs

    bench.queue.send(b"a")
    bench.run(outer)
    assert bench.queue.acked == []
    assert "not coroutine" in bench.queue.entry(b"a").history[0]


def test_a_generator_function_handles_nothing_and_is_refused(bench: Bench) -> None:
    def handler(received: Any) -> Any:
        yield received

    with pytest.raises(InvalidInput, match="handler: expected a function without `yield`"):
        bench.run(handler)


def test_a_handler_that_raises_gives_back_with_the_reason_after_a_backoff(bench: Bench) -> None:
    bench.queue.send(b"a")
    counts = bench.run(raising(ValueError("no such customer")), backoff=RetryPolicy())
    entry = bench.queue.entry(b"a")
    assert entry.history == ["ValueError: no such customer"]
    assert entry.receipt == ""
    assert 1.0 <= entry.visible_at - bench.clock.now() <= 2.0  # base 1 s, the first bound 2 s
    assert counts == ConsumerCounts(received=1, failed=1)
    (told,) = bench.log.told("A message was given back.")
    assert told["reason"] == "ValueError: no such customer"
    assert told["receive_count"] == 1
    assert told["id"] == entry.message.id


def test_without_a_backoff_of_its_own_the_topic_s_retry_policy_says_how_long(bench: Bench) -> None:
    bench.queue.send(b"a")
    bench.run(raising(ValueError()))
    assert bench.queue.entry(b"a").visible_at == bench.clock.now() + bench.queue.backoff


def test_the_backoff_grows_with_the_receives(bench: Bench) -> None:
    bench.queue.send(b"a")
    bench.queue.entry(b"a").count = 5
    bench.run(raising(ValueError()), backoff=RetryPolicy(base=10, cap=1000))
    waits = bench.queue.entry(b"a").visible_at - bench.clock.now()
    assert 10 < waits <= 10 * 2**6


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        (KeyboardInterrupt(), "KeyboardInterrupt"),
        (SystemExit(1), "SystemExit: 1"),
        (GeneratorExit(), "GeneratorExit"),
        (RuntimeError("two\nlines\x00\x1b"), "RuntimeError: two lines"),
        (ValueError("\ud800"), "ValueError: ?"),
        (ValueError("x" * 9999), "ValueError: " + "x" * (MAX_REASON_BYTES - 12)),
        (ValueError("€" * 999), "ValueError: " + "€" * 81),
    ],
)
def test_whatever_a_handler_raises_is_a_reason_of_one_line(
    bench: Bench, error: BaseException, reason: str
) -> None:
    bench.queue.send(b"a")
    counts = bench.run(raising(error))
    assert bench.queue.entry(b"a").history == [reason]
    assert counts.failed == 1


def test_an_error_whose_text_raises_is_a_reason_all_the_same(bench: Bench) -> None:
    class Mute(Exception):
        def __str__(self) -> str:
            raise ValueError

    bench.queue.send(b"a")
    bench.run(raising(Mute()))
    assert bench.queue.entry(b"a").history == ["Mute: its text cannot be had"]


@pytest.mark.parametrize("raised", [True, False])
def test_retry_gives_back_for_the_time_it_says(bench: Bench, raised: bool) -> None:
    bench.queue.send(b"a")
    answer = Retry(600, "closed")
    counts = bench.run(raising(answer) if raised else lambda _: answer)
    entry = bench.queue.entry(b"a")
    assert entry.visible_at == bench.clock.now() + 600
    assert entry.history == ["closed"]
    assert counts == ConsumerCounts(received=1, retried=1)


@pytest.mark.parametrize("raised", [True, False])
def test_dead_goes_to_the_dead_letters_at_once(bench: Bench, raised: bool) -> None:
    bench.queue.send(b"a")
    answer = Dead("no such order")
    counts = bench.run(raising(answer) if raised else lambda _: answer)
    assert bench.queue.dead == {b"a": "no such order"}
    assert counts == ConsumerCounts(received=1, dead=1)


@pytest.mark.parametrize("delay", [-1, True, float("nan"), float("inf"), "5"])
def test_a_retry_that_is_none_is_a_failure_of_the_handler(bench: Bench, delay: Any) -> None:
    bench.queue.send(b"a")
    counts = bench.run(lambda _: Retry(delay))
    assert counts.failed == 1
    assert bench.queue.entry(b"a").history[0].startswith("InvalidInput: delay: expected seconds")


def test_the_last_attempt_that_fails_is_dead_with_its_own_reason(bench: Bench) -> None:
    bench.queue.send(b"a", b"b")
    bench.queue.entry(b"a").count = 1
    counts = bench.run(raising(ValueError("why")), max_attempts=2)
    assert bench.queue.dead == {b"a": "ValueError: why"}
    assert bench.queue.entry(b"b").history == ["ValueError: why"]
    assert counts == ConsumerCounts(received=2, failed=1, dead=1)


def test_a_retry_does_not_outlast_the_attempts(bench: Bench) -> None:
    bench.queue.send(b"a")
    counts = bench.run(lambda _: Retry(0, "again"), max_attempts=3)
    assert bench.queue.dead == {b"a": "again"}
    assert counts == ConsumerCounts(received=3, retried=2, dead=1)


def test_a_message_whose_consumers_crashed_too_often_is_dead_unhandled(bench: Bench) -> None:
    bench.queue.send(b"a")
    bench.queue.entry(b"a").count = 3
    seen: list[object] = []
    counts = bench.run(seen.append, max_attempts=3)
    assert seen == []
    assert bench.queue.dead == {b"a": "received 4 times, 3 allowed"}
    assert counts == ConsumerCounts(received=1, dead=1)


def test_what_a_handler_returns_is_awaited(bench: Bench) -> None:
    async def work() -> Dead:
        await asyncio.sleep(0)
        return Dead("no use")

    bench.queue.send(b"a")
    bench.run(lambda _: work())
    assert bench.queue.dead == {b"a": "no use"}


@pytest.mark.parametrize(
    ("setting", "value"),
    [
        ("concurrency", 0),
        ("concurrency", 1001),
        ("concurrency", True),
        ("concurrency", 2.0),
        ("visibility_timeout", 0),
        ("visibility_timeout", -1),
        ("visibility_timeout", 12 * 3600 + 1),
        ("visibility_timeout", float("nan")),
        ("max_attempts", 0),
        ("prefetch", -1),
        ("shutdown_timeout", -1),
        ("processing_limit", 0),
        ("idle", 0),
        ("linger", 20),
        ("time_limit", 0),
        ("time_limit", 3601),
        ("rate", 0),
        ("rate", -1.5),
        ("rate", float("nan")),
        ("rate", float("inf")),
        ("rate", True),
        ("rate", "10"),
    ],
)
def test_a_setting_that_does_not_fit_is_refused_by_its_name(
    bench: Bench, setting: str, value: object
) -> None:
    with pytest.raises(InvalidInput) as refused:
        Consumer(bench.queue, "jobs", print, **{setting: value})  # type: ignore[arg-type]
    assert refused.value.field == setting


def test_running_until_empty_stops_at_its_limit(bench: Bench) -> None:
    bench.queue.send(*(b"%d" % n for n in range(30)))
    consumer = Consumer(bench.queue, "jobs", lambda _: None, now=bench.clock.now, concurrency=20)
    assert consumer.run_until_empty(limit=17).acked == 17
    assert len(bench.queue.left) == 13
    assert consumer.run_until_empty().acked == 30
