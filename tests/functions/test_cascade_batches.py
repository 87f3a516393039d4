"""Cascade batches: what was cut off is done, a parent at a time, and what fails comes again."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, Any

import pytest
from fairbox.client.batch_maintenance import BatchMaintenance
from fairbox.observability.metrics import BATCHES_COMPLETED, BATCHES_ORPHANED, UNREADABLE
from fairbox.testing import CostMeter, Fault, FaultyDynamoDB

from tests.functions.running import Context, Functions, figures

if TYPE_CHECKING:
    from collections.abc import Callable

DONE: dict[str, Any] = {"batchItemFailures": []}
LONG = Context(600_000)


def functions_over(
    monkeypatch: pytest.MonkeyPatch, wrap: Callable[[Any], Any]
) -> tuple[Functions, Any]:
    made: list[Any] = []

    def keep(client: Any) -> Any:
        made.append(wrap(client))
        return made[0]

    return Functions(monkeypatch, keep), made[0]


@pytest.fixture
def functions(monkeypatch: pytest.MonkeyPatch) -> Functions:
    return Functions(monkeypatch)


def ack_and_die(functions: Functions, ids: list[str]) -> None:
    """Ack as a process that is killed between the leaves and their parents."""
    cascade: Any = functions.batches._context.cascade
    cascade.cascade = lambda _: []
    functions.batches.ack(ids)
    del cascade.cascade


def groups(functions: Functions, count: int, **fields: Any) -> tuple[str, list[str]]:
    """Return a sealed batch of so many groups of one item, and the items."""
    batch = functions.batches.open(**fields).id
    functions.batches.add(batch, count, request_id="r", group_size=1)
    functions.batches.seal(batch)
    return batch, [f"{batch}:{n}:0" for n in range(count)]


def test_it_finishes_what_was_cut_off_up_to_the_message(functions: Functions) -> None:
    batch, items = groups(functions, 96)
    ack_and_die(functions, items)
    assert functions.announced() == []
    for _ in range(2):  # a stream comes at least once
        assert functions.invoke("cascade_batches", functions.stream()) == DONE
        assert [m["id"] for m in functions.announced()] == [batch]


def test_a_hundred_emptied_groups_are_one_write_of_their_parent(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    functions, meter = functions_over(monkeypatch, CostMeter)
    batch, items = groups(functions, 264)
    ack_and_die(functions, items[64:164])
    event = functions.stream()
    assert len(event["Records"]) == 100
    functions.load("cascade_batches")
    meter.reset()
    assert functions.invoke("cascade_batches", event) == DONE
    reading = meter.reading()
    assert reading.calls == {"get_item": 1, "batch_get_item": 1, "put_item": 1}
    assert (reading.rru, reading.wru) == (101, 1)
    assert functions.batches.progress(batch).pending == 164


def test_what_fails_is_named_by_its_lowest_number_and_the_rest_is_done(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    functions, faulty = functions_over(monkeypatch, lambda c: FaultyDynamoDB(c, random.Random(1)))
    # three roots, cleared one after another: the second one's write is refused to the end
    made = [groups(functions, 2) for _ in range(3)]
    for _, items in made:
        ack_and_die(functions, items[:1])
    event = functions.stream()
    numbers = [r["dynamodb"]["SequenceNumber"] for r in event["Records"]]
    assert len(numbers) == 3
    faulty.next("put_item", None, *[Fault.THROTTLED] * 8)
    answer = functions.invoke("cascade_batches", event, LONG)
    ((failed),) = answer["batchItemFailures"]
    assert failed["itemIdentifier"] in numbers
    rest = event["Records"][numbers.index(failed["itemIdentifier"]) :]
    assert functions.invoke("cascade_batches", {"Records": rest}, LONG) == DONE
    for batch, items in made:
        functions.batches.ack(items[1:])
        assert functions.batches.progress(batch).complete


def test_of_several_failures_the_lowest_number_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    functions, faulty = functions_over(monkeypatch, lambda c: FaultyDynamoDB(c, random.Random(1)))
    made = [groups(functions, 2) for _ in range(3)]
    for _, items in made:
        ack_and_die(functions, items[:1])
    event = functions.stream()
    first = event["Records"][0]["dynamodb"]["SequenceNumber"]
    event["Records"].reverse()
    faulty.next("put_item", *[Fault.THROTTLED] * 24)
    answer = functions.invoke("cascade_batches", event, Context(6_000_000))
    assert answer == {"batchItemFailures": [{"itemIdentifier": first}]}


class Rival:
    """A client before whose every write of a node or root somebody else writes it."""

    def __init__(self, client: Any) -> None:
        self._client = client
        self.left = 0

    def put_item(self, **request: Any) -> Any:
        self._write_first(request)
        return self._client.put_item(**request)

    def transact_write_items(self, **request: Any) -> Any:
        self._write_first(request["TransactItems"][0]["Put"])
        return self._client.transact_write_items(**request)

    def _write_first(self, put: dict[str, Any]) -> None:
        if put["Item"]["sk"]["S"] in ("root", "n") and self.left:
            self.left -= 1
            self._client.update_item(
                TableName=put["TableName"],
                Key={name: put["Item"][name] for name in ("pk", "sk")},
                UpdateExpression="SET v = v + :one",
                ExpressionAttributeValues={":one": {"N": "1"}},
            )

    def __getattr__(self, name: str) -> Any:
        return getattr(self._client, name)


def test_a_cascade_that_loses_every_race_comes_again(monkeypatch: pytest.MonkeyPatch) -> None:
    functions, rival = functions_over(monkeypatch, Rival)
    batch, items = groups(functions, 96)
    ack_and_die(functions, items)
    event = functions.stream()
    rival.left = 8  # tries
    failed = functions.invoke("cascade_batches", event, LONG)["batchItemFailures"]
    node = next(r for r in event["Records"] if r["dynamodb"]["Keys"]["pk"]["S"].endswith("#64"))
    assert failed == [{"itemIdentifier": node["dynamodb"]["SequenceNumber"]}]
    rival.left = 7
    assert functions.invoke("cascade_batches", event, LONG) == DONE
    assert [m["id"] for m in functions.announced()] == [batch]


def test_a_root_that_others_keep_writing_comes_again(monkeypatch: pytest.MonkeyPatch) -> None:
    functions, rival = functions_over(monkeypatch, Rival)
    batch, items = groups(functions, 2)
    ack_and_die(functions, items)
    event = functions.stream()
    first = event["Records"][0]["dynamodb"]["SequenceNumber"]
    rival.left = 8
    answer = functions.invoke("cascade_batches", event, LONG)
    assert answer == {"batchItemFailures": [{"itemIdentifier": first}]}
    rival.left = 7
    assert functions.invoke("cascade_batches", event, LONG) == DONE
    assert [m["id"] for m in functions.announced()] == [batch]


@pytest.mark.parametrize(
    ("operation", "fault"),
    [
        ("put_item", Fault.APPLIED_THEN_TIMEOUT),
        ("put_item", Fault.TIMEOUT_UNAPPLIED),
        ("transact_write_items", Fault.CONFLICT),
        ("transact_write_items", Fault.APPLIED_THEN_TIMEOUT),
        ("batch_get_item", Fault.UNPROCESSED),
        ("get_item", Fault.INTERNAL_ERROR),
    ],
)
def test_a_fault_that_passes_loses_nothing_and_announces_once(
    monkeypatch: pytest.MonkeyPatch, operation: str, fault: Fault
) -> None:
    functions, faulty = functions_over(monkeypatch, lambda c: FaultyDynamoDB(c, random.Random(3)))
    batch, items = groups(functions, 96)
    ack_and_die(functions, items)
    faulty.next(operation, fault)
    assert functions.invoke("cascade_batches", functions.stream(), LONG) == DONE
    assert faulty.injected
    assert functions.invoke("cascade_batches", functions.stream(), LONG) == DONE
    assert [m["id"] for m in functions.announced()] == [batch]


def test_the_parent_of_a_nested_batch_is_told_when_nobody_else_did(functions: Functions) -> None:
    parent, (item,) = groups(functions, 1)
    child, items = groups(functions, 1, parent_item=item)
    cascade: Any = functions.batches._context.cascade
    cascade.notify_parent = lambda *_: []
    functions.batches.ack(items)
    del cascade.notify_parent
    assert [m["id"] for m in functions.announced()] == [child]
    for _ in range(2):
        assert functions.invoke("cascade_batches", functions.stream()) == DONE
        assert sorted(m["id"] for m in functions.announced()) == sorted([parent, child])


@pytest.mark.parametrize("how", ["throttled", "outrun"])
def test_a_tell_that_fails_comes_again(monkeypatch: pytest.MonkeyPatch, how: str) -> None:
    functions, rival = functions_over(
        monkeypatch, lambda c: Rival(FaultyDynamoDB(c, random.Random(3)))
    )
    parent, (item,) = groups(functions, 1)
    _, items = groups(functions, 1, parent_item=item)
    cascade: Any = functions.batches._context.cascade
    cascade.notify_parent = lambda *_: []
    functions.batches.fail(items)
    del cascade.notify_parent
    event = {"Records": functions.stream()["Records"][-1:]}  # the root's, without the leaf's
    if how == "throttled":
        rival.next("transact_write_items", *[Fault.THROTTLING] * 8)
    else:
        rival.left = 8
    (failed,) = functions.invoke("cascade_batches", event, LONG)["batchItemFailures"]
    assert failed["itemIdentifier"] == event["Records"][0]["dynamodb"]["SequenceNumber"]
    assert functions.invoke("cascade_batches", event, LONG) == DONE
    assert functions.batches.progress(parent).failed == 1


def test_ends_are_counted_whoever_brought_them_about(
    functions: Functions, capsys: pytest.CaptureFixture[str]
) -> None:
    nested, (item,) = groups(functions, 1)
    for fields in ({}, {"parent_item": item}):
        _, items = groups(functions, 1, **fields)
        functions.batches.ack(items)
    orphan, _ = groups(functions, 1)
    functions.clock.advance(20 * 24 * 3600)
    assert BatchMaintenance(functions.batches).cleanup.check_orphan(orphan).fate == "reaped"
    BatchMaintenance(functions.batches).lifecycle.erase(orphan)
    cancelled, _ = groups(functions, 1)
    functions.batches.cancel(cancelled)
    assert functions.invoke("cascade_batches", functions.stream()) == DONE
    found = figures(capsys)
    assert (found[BATCHES_COMPLETED], found[BATCHES_ORPHANED]) == (3, 1)
    assert functions.batches.progress(nested).complete


def test_a_record_that_cannot_be_read_is_counted_and_holds_nothing_up(
    functions: Functions, capsys: pytest.CaptureFixture[str]
) -> None:
    batch, items = groups(functions, 1)
    ack_and_die(functions, items)
    event = functions.stream()
    spoilt = {**event["Records"][0]["dynamodb"], "NewImage": {"sk": {"S": "l"}, "n": {"N": "0"}}}
    event["Records"].insert(0, event["Records"][0] | {"dynamodb": spoilt})
    assert functions.invoke("cascade_batches", event) == DONE
    assert figures(capsys)[UNREADABLE] == 1
    assert functions.batches.progress(batch).complete


def test_a_window_whose_time_is_up_comes_again_whole(functions: Functions) -> None:
    batch, items = groups(functions, 70)
    ack_and_die(functions, items)
    event = functions.stream()
    first = event["Records"][0]["dynamodb"]["SequenceNumber"]
    answer = functions.invoke("cascade_batches", event, Context(0))
    assert answer == {"batchItemFailures": [{"itemIdentifier": first}]}
    assert not functions.batches.progress(batch).complete
