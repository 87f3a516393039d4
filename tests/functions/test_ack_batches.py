"""Ack batches: a window is one write a group, what cannot be acked is dropped, the rest is done."""

from __future__ import annotations

import json
import logging
import random
from typing import TYPE_CHECKING, Any

import pytest
from fairbox.observability.metrics import BATCH_ACKS, BATCH_ACKS_DROPPED
from fairbox.testing import CostMeter, Fault, FaultyDynamoDB

from tests.functions.running import Context, Functions, ack_event, figures

if TYPE_CHECKING:
    from collections.abc import Callable

BATCH = "0198f7a2-0000-7000-8000-00000000dead"
DONE: dict[str, Any] = {"batchItemFailures": []}


def failed(answer: dict[str, Any]) -> list[str]:
    return [one["itemIdentifier"] for one in answer["batchItemFailures"]]


class Between:
    """A client that does something before single writes."""

    def __init__(self, client: Any) -> None:
        self._client = client
        self.before: Callable[[dict[str, Any]], None] = lambda _: None

    def put_item(self, **request: Any) -> Any:
        self.before(request)
        return self._client.put_item(**request)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._client, name)


@pytest.fixture
def functions(monkeypatch: pytest.MonkeyPatch) -> Functions:
    return Functions(monkeypatch)


class Wrapped:
    """The functions over a wrapped client, and the wrapper."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, wrap: Callable[[Any], Any]) -> None:
        made: list[Any] = []

        def keep(client: Any) -> Any:
            made.append(wrap(client))
            return made[0]

        self.functions = Functions(monkeypatch, keep)
        self.client: Any = made[0]


def test_a_window_of_many_producers_costs_one_read_and_one_write_a_group(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    wrapped = Wrapped(monkeypatch, CostMeter)
    functions, rng = wrapped.functions, random.Random(1)
    batches = [functions.batch(700, 700), functions.batch(700)]
    ids = [f"{b}:{g}:{n}" for b, g in ((0, 0), (0, 1), (1, 0)) for n in range(600)]
    ids = [f"{batches[int(i[0])]}{i[1:]}" for i in ids] * 2
    rng.shuffle(ids)
    event = ack_event(*(ids[start : start + 12] for start in range(0, len(ids), 12)))
    assert len(event["Records"]) == 300
    functions.load("ack_batches")
    wrapped.client.reset()
    assert functions.invoke("ack_batches", event) == DONE
    reading = wrapped.client.reading()
    assert (reading.rru, reading.wru) == (3, 3)
    pending = [functions.batches.progress(batch).pending for batch in batches]
    assert pending == [200, 100]


def test_the_last_acks_complete_a_batch_once_however_often_the_window_comes(
    functions: Functions, capsys: pytest.CaptureFixture[str]
) -> None:
    batch = functions.batch(3, 2, user_key="catalog-7")
    event = ack_event(
        [f"{batch}:0:{n}" for n in range(3)], [f"{batch}:1:0"], [f"{batch}:1:1", f"{batch}:0:0"]
    )
    for acked in (5, None):
        assert functions.invoke("ack_batches", event) == DONE
        assert figures(capsys).get(BATCH_ACKS) == acked
    (message,) = functions.announced()
    assert (message["id"], message["user_key"], message["acked"]) == (batch, "catalog-7", 5)


def test_what_cannot_be_acked_is_dropped_counted_and_shown_and_the_rest_is_acked(
    functions: Functions,
    capsys: pytest.CaptureFixture[str],
    caplog: pytest.LogCaptureFixture,
) -> None:
    batch, cancelled = functions.batch(4), functions.batch(4)
    functions.batches.cancel(cancelled)
    bad = [f"{batch}:0:4", f"{batch}:7:0", f"{BATCH}:0:0", f"{cancelled}:0:1", "x" * 500, ""]
    garbage = ["no json", '{"acks": 7}', "[]"]
    event = ack_event([f"{batch}:0:0", *bad[:3]], *garbage, [*bad[3:], f"{batch}:0:1"])
    with caplog.at_level(logging.WARNING):
        assert functions.invoke("ack_batches", event) == DONE
    assert functions.batches.progress(batch).pending == 2
    found = figures(capsys)
    assert (found[BATCH_ACKS], found[BATCH_ACKS_DROPPED]) == (2, len(bad) + len(garbage))
    (record,) = (r for r in caplog.records if r.message == "acks were dropped")
    sample = record.__dict__["sample"]
    assert "x" * 100 in sample
    assert set(sample) - {"x" * 100} == {*bad, *garbage} - {"x" * 500}


def test_the_sample_of_a_flood_of_bad_ids_is_short(
    functions: Functions, caplog: pytest.LogCaptureFixture
) -> None:
    flood = [f"{BATCH}:{n}:0" for n in range(1000)]
    assert functions.invoke("ack_batches", ack_event(flood)) == DONE
    (record,) = (r for r in caplog.records if r.message == "acks were dropped")
    assert record.__dict__["dropped"] == 1000
    assert len(record.__dict__["sample"]) == 10


def test_only_messages_with_an_id_of_a_busy_group_come_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    wrapped = Wrapped(monkeypatch, Between)
    functions = wrapped.functions
    batch = functions.batch(50, 5)
    rivals = iter(range(10, 50))

    def rival(request: dict[str, Any]) -> None:
        if request["Item"]["pk"]["S"] == f"{batch}:0".replace(":", "#"):
            functions.batches.ack([f"{batch}:0:{next(rivals)}"])

    wrapped.client.before = rival
    event = ack_event([f"{batch}:1:0"], [f"{batch}:0:0"], [f"{batch}:1:1", f"{batch}:0:1"])
    assert failed(functions.invoke("ack_batches", event)) == ["m1", "m2"]
    assert functions.batches.progress(batch).pending == 55 - 8 - 2
    wrapped.client.before = lambda _: None
    assert functions.invoke("ack_batches", event) == DONE
    assert functions.batches.progress(batch).pending == 55 - 8 - 4


def faulty(monkeypatch: pytest.MonkeyPatch) -> Wrapped:
    return Wrapped(monkeypatch, lambda client: FaultyDynamoDB(client, random.Random(2)))


def test_a_throttled_write_fails_its_messages_and_no_others(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    wrapped = faulty(monkeypatch)
    functions = wrapped.functions
    batch = functions.batch(5, 5)
    wrapped.client.next("put_item", *[Fault.THROTTLED] * 8)
    event = ack_event([f"{batch}:0:0"], [f"{batch}:1:0"], [f"{batch}:1:1", f"{batch}:0:1"])
    context = Context(600_000)
    assert failed(functions.invoke("ack_batches", event, context)) == ["m0", "m2"]
    (record,) = (r for r in caplog.records if r.message == "acks will be tried again")
    assert record.__dict__["failed"] == 2
    assert functions.batches.progress(batch).pending == 8
    assert functions.invoke("ack_batches", event, context) == DONE
    assert functions.batches.progress(batch).pending == 6


def test_a_throttled_read_fails_the_messages_of_that_page(monkeypatch: pytest.MonkeyPatch) -> None:
    wrapped = faulty(monkeypatch)
    functions = wrapped.functions
    batch = functions.batch(5, 5)
    wrapped.client.next("batch_get_item", *[Fault.THROTTLED] * 8)
    event = ack_event([f"{batch}:0:0"], [f"{batch}:1:0"], ["no id"])
    assert failed(functions.invoke("ack_batches", event, Context(600_000))) == ["m0", "m1"]
    assert functions.batches.progress(batch).pending == 10


@pytest.mark.parametrize(
    ("operation", "fault"),
    [
        ("put_item", Fault.APPLIED_THEN_TIMEOUT),
        ("put_item", Fault.TIMEOUT_UNAPPLIED),
        ("put_item", Fault.INTERNAL_ERROR),
        ("transact_write_items", Fault.CONFLICT),
        ("transact_write_items", Fault.APPLIED_THEN_TIMEOUT),
        ("transact_write_items", Fault.TIMEOUT_UNAPPLIED),
        ("batch_get_item", Fault.UNPROCESSED),
    ],
)
def test_a_fault_that_passes_loses_nothing_and_announces_once(
    monkeypatch: pytest.MonkeyPatch, operation: str, fault: Fault
) -> None:
    wrapped = faulty(monkeypatch)
    functions = wrapped.functions
    batch = functions.batch(2, 1)
    wrapped.client.next(operation, fault)
    event = ack_event([f"{batch}:0:0", f"{batch}:0:1"], [f"{batch}:1:0"])
    assert functions.invoke("ack_batches", event, Context(600_000)) == DONE
    assert wrapped.client.injected
    assert [m["id"] for m in functions.announced()] == [batch]
    assert functions.batches.progress(batch).complete


class KilledError(BaseException):
    """The end of the process."""


def test_acks_stand_when_the_function_is_killed_before_the_parent_is_written(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    wrapped = Wrapped(monkeypatch, Between)
    functions = wrapped.functions
    batch = functions.batch(1, 1)

    def kill(request: dict[str, Any]) -> None:
        if request["Item"]["sk"]["S"] == "root":
            raise KilledError

    monkeypatch.setattr(wrapped.client, "before", kill)
    wrapped.client.transact_write_items = lambda **_: kill({"Item": {"sk": {"S": "root"}}})
    event = ack_event([f"{batch}:0:0"], [f"{batch}:1:0"])
    with pytest.raises(KilledError):
        functions.invoke("ack_batches", event)
    del wrapped.client.transact_write_items
    wrapped.client.before = lambda _: None
    assert functions.announced() == []
    assert list(functions.batches.missing(batch)) == []
    assert functions.invoke("cascade_batches", functions.stream()) == DONE
    assert functions.invoke("ack_batches", event) == DONE  # the queue hands the window out again
    assert [m["id"] for m in functions.announced()] == [batch]


def test_an_id_out_of_range_is_dropped_though_its_group_fails(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    wrapped = faulty(monkeypatch)
    functions = wrapped.functions
    batch = functions.batch(5)
    wrapped.client.next("put_item", *[Fault.THROTTLED] * 8)
    event = ack_event([f"{batch}:0:0"], [f"{batch}:0:5"])
    assert failed(functions.invoke("ack_batches", event, Context(600_000))) == ["m0"]


def test_acks_of_a_batch_that_is_cancelled_in_that_moment_are_dropped(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    wrapped = Wrapped(monkeypatch, Between)
    functions = wrapped.functions
    cancelled, other = functions.batch(2), functions.batch(2)

    def cancel(request: dict[str, Any]) -> None:
        if request["Item"]["pk"]["S"].startswith(cancelled):
            wrapped.client.before = lambda _: None
            functions.batches.cancel(cancelled)

    wrapped.client.before = cancel
    event = ack_event([f"{cancelled}:0:0"], [f"{other}:0:0", f"{cancelled}:0:1"])
    assert functions.invoke("ack_batches", event) == DONE
    found = figures(capsys)
    assert (found[BATCH_ACKS], found[BATCH_ACKS_DROPPED]) == (1, 2)


def test_a_window_whose_time_is_up_reads_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    wrapped = Wrapped(monkeypatch, CostMeter)
    event = ack_event([f"{wrapped.functions.batch(2)}:0:0"])
    wrapped.client.reset()
    assert failed(wrapped.functions.invoke("ack_batches", event, Context(0))) == ["m0"]
    assert wrapped.client.reading().calls == {}


def test_a_window_whose_time_is_up_comes_again_and_loses_nothing(functions: Functions) -> None:
    batch = functions.batch(2)
    event = ack_event([f"{batch}:0:0"], [f"{batch}:0:1"])
    assert failed(functions.invoke("ack_batches", event, Context(0))) == ["m0", "m1"]
    assert functions.batches.progress(batch).pending == 2
    assert functions.invoke("ack_batches", event) == DONE
    assert functions.batches.progress(batch).complete


def test_it_stops_in_time_with_what_is_done_done(monkeypatch: pytest.MonkeyPatch) -> None:
    wrapped = Wrapped(monkeypatch, Between)
    functions = wrapped.functions
    batch = functions.batch(*[2] * 10)
    wrapped.client.before = lambda _: functions.clock.advance(3)
    event = ack_event(*([f"{batch}:{group}:0"] for group in range(10)))
    came_again = failed(functions.invoke("ack_batches", event, Context(25_000)))
    assert functions.batches.progress(batch).pending == 10 + len(came_again)
    assert came_again == [f"m{n}" for n in range(5, 10)]  # 12.5 s, 3 s a write


def test_a_message_as_large_as_can_be_is_acked_whole(functions: Functions) -> None:
    batch = functions.batch(1300)
    body = json.dumps({"acks": [f"{batch}:0:{n}" for n in range(1300)]})
    assert functions.invoke("ack_batches", ack_event(body)) == DONE
    assert functions.batches.progress(batch).complete
