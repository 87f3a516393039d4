"""A replay over the library in memory: order, pace, repetition, bodies, a second look."""

from __future__ import annotations

import base64
from typing import Any
from unittest.mock import Mock

import pytest
from fairbox import Message, MessageRef
from fairbox.cloudevents.writing import attributes_of
from fairbox.consumer.turnstile import RateLimit
from fairbox.errors import Unavailable
from fairbox.testing.faults import Fault, FaultyDynamoDB
from fairbox_pipeline.putting_back import BY, OF, Replay

from tests.support.application import App


def rows(app: App, count: int, **more: Any) -> list[dict[str, Any]]:
    return [
        {
            "position": n,
            "finding": None,
            "due": None,
            "topic": "orders",
            "epoch": 0,
            "shard": 0,
            "id": app.ids.next(),
            "new_id": app.ids.next(),
            "ordering": "none",
            "partition_key": f"k{n % 3}",
            "content_type": "application/json",
            "headers": {"traceparent": "t"},
            "body": f'"{n}"',
            "body_encoding": "utf-8",
            "body_uri": None,
            **more,
        }
        for n in range(1, count + 1)
    ]


def replay(app: App, rate: float = 1e9, name: str = "r1") -> Replay:
    return Replay(name, app.outbox, RateLimit(rate, app.clock.now), app.clock)


def test_what_is_put_back_is_the_same_and_says_what_it_replays() -> None:
    app = App("a")
    planned = rows(app, 3)
    assert replay(app).put_back(planned) == {"added": 3}
    app.run(5)
    received = {m.ref.id: m for m in app.at("a").received}
    assert sorted(received) == [row["new_id"] for row in planned]
    for row in planned:
        message = received[row["new_id"]].message
        ref = MessageRef("orders", 0, 0, row["id"])
        assert message.body.decode() == row["body"]
        assert (message.partition_key, message.content_type) == (
            row["partition_key"],
            "application/json",
        )
        assert dict(message.headers) == {"traceparent": "t", OF: str(ref), BY: "r1"}
        told = attributes_of(received[row["new_id"]])
        assert (told["fairboxreplayof"], told["fairboxreplay"]) == (str(ref), "r1")


def test_a_second_run_puts_back_nothing() -> None:
    app = App("a")
    planned = rows(app, 250)
    assert replay(app).put_back(planned) == {"added": 250}
    app.run(5)
    assert replay(app).put_back(planned) == {"done_before": 250}
    app.run(5)
    assert len(app.at("a").received) == 250


@pytest.mark.parametrize("body", ["?", "YWJ", "\u00e9"])
def test_a_body_that_is_no_base64_is_refused_and_the_rest_put_back(body: str) -> None:
    app = App("a")
    planned = [*rows(app, 1), *rows(app, 1, position=2, body=body, body_encoding="base64")]
    assert replay(app).put_back(planned) == {"added": 1, "refused": 1}


def test_a_run_that_failed_half_way_is_taken_up_where_it_stood() -> None:
    app = App("a")
    planned = rows(app, 400)
    faulty = FaultyDynamoDB(app.engine, app.rng)
    app.outbox.tables.calls.client = faulty
    # two steps go in; of the third nobody knows, for all of its tries lose their answers
    lost = [Fault.APPLIED_THEN_TIMEOUT] * 8
    faulty.next("transact_write_items", None, None, *lost)
    with pytest.raises(Unavailable):
        replay(app).put_back(planned)
    app.run(5)
    counts = replay(app).put_back(planned)
    assert counts == {"added": 400 - 3 * 99, "done_before": 3 * 99}
    app.run(5)
    assert len(app.at("a").received) == 400


def test_two_runs_at_once_share_the_work() -> None:
    app = App("a")
    planned = rows(app, 300)
    first, second = replay(app), replay(app)
    taken = iter(planned)
    # the second begins in the middle of the first, with other limits of its steps
    first._take(next(first._steps([next(taken) for _ in range(40)], 0)), "r1#0", 0)
    position = 0
    for step in second._steps(planned, position):
        position = second._take(step, "r1#0", position)
    assert +first.counts == {"added": 40}
    assert (second.counts["added"], second.counts["done_before"]) == (260, 40)
    app.run(5)
    assert sorted(app.at("a").ids) == [row["new_id"] for row in planned]


def test_a_key_of_an_ordered_topic_has_one_message_in_a_transaction() -> None:
    app = App("a")
    planned = rows(app, 30, ordering="key")
    planned[4]["partition_key"] = None
    app.meter.reset()
    replay(app).put_back(planned)
    # three keys, and one message without
    assert app.meter.reading().calls["transact_write_items"] >= 10
    unordered = App("a")
    unordered.meter.reset()
    replay(unordered).put_back(rows(unordered, 30))
    assert unordered.meter.reading().calls["transact_write_items"] == 1


def test_large_bodies_fill_a_step_by_their_bytes() -> None:
    app = App("a")
    planned = rows(app, 12, body="x" * 700_000)
    app.meter.reset()
    assert replay(app).put_back(planned) == {"added": 12}
    assert app.meter.reading().calls["transact_write_items"] == 3


def test_bodies_come_from_text_from_base64_and_from_the_bucket() -> None:
    app = App("a")
    app.bodies.put("bodies/orders/x", b"offloaded", "text/plain")
    text, octets, away, gone = rows(app, 4)
    octets |= {"body": base64.b64encode(b"\xff\0").decode(), "body_encoding": "base64"}
    away |= {"body": None, "body_uri": "s3://bodies/bodies/orders/x"}
    gone |= {"body": None, "body_encoding": None}
    assert replay(app).put_back([text, octets, away, gone]) == {"added": 3, "without_body": 1}
    app.run(5)
    assert {m.message.body for m in app.at("a").received} == {b'"1"', b"\xff\0", b"offloaded"}


def test_a_body_that_expired_is_counted_and_a_bucket_that_fails_stops_the_replay(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    app = App("a")
    planned = rows(app, 1, body=None, body_uri="s3://bodies/k")

    def fail(detail: str) -> None:
        error = Unavailable("get_object", detail)
        monkeypatch.setattr(app.bodies, "get", Mock(side_effect=error))

    fail("NoSuchKey")
    assert replay(app).put_back(planned) == {"without_body": 1}
    fail("SlowDown")
    with pytest.raises(Unavailable):
        replay(app).put_back(planned)


def test_what_is_still_outstanding_is_left_as_it_is() -> None:
    app = App("a")
    planned = rows(app, 2)
    replay(app, name="r1").put_back(planned)
    assert replay(app, name="r2").put_back(planned) == {"outstanding": 2}
    assert len(app.lying()) == 2


def test_what_is_no_longer_lost_or_stuck_is_left_out() -> None:
    app = App("a")
    there, gone = rows(app, 3), rows(app, 3)
    for row, delay in zip(there, (0, 0, 3600), strict=True):
        message = Message(topic="orders", body=b"x", id=row["id"], delay=delay)
        ref = app.outbox.add(message)
        row |= {"shard": ref.shard, "due": ref.due}
    findings = ("lost", "stuck", "lost", "lost", "stuck", None)
    planned = [
        row | {"position": n, "finding": finding}
        for n, (row, finding) in enumerate(zip(there + gone, findings, strict=True), 1)
    ]
    assert replay(app).put_back(planned) == {"left_out": 3, "added": 3}
    refs = [m.headers[OF] for m in app.outbox.scan_outstanding() if OF in m.headers]
    assert {MessageRef.parse(ref).id for ref in refs} == {
        row["id"] for row in (there[1], gone[0], gone[2])
    }


def test_headers_at_their_limit_are_refused_and_counted() -> None:
    app = App("a")
    headers = {f"h{n}": "x" for n in range(64)}
    assert replay(app).put_back(rows(app, 2, headers=headers)) == {"refused": 2}


def test_the_pace_is_kept() -> None:
    app = App("a")
    begin = app.clock.now()
    replay(app, rate=50.0).put_back(rows(app, 4 * 99))
    assert app.clock.now() - begin == pytest.approx(3 * 99 / 50, abs=0.2)
