"""Rows of other outboxes imported: Brighter's, and one that a team has built."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from fairbox import InvalidInput, RowImport, RowLayout, UnknownTable
from fairbox.testing import Fault

from tests.support.application import App
from tests.support.other_outboxes import text_keys

if TYPE_CHECKING:
    from collections.abc import Mapping

TABLE = "brighter_outbox"
TICKS = 638_955_936_000_000_000  # 2025-10-09T08:00:00Z, before the clock of the tests
PAGE = (Path(__file__).parents[3] / "docs/how-to/migrate.md").read_text(encoding="utf-8")
OWN: dict[str, Any] = json.loads(PAGE.partition("```json\n")[2].partition("```")[0])
"""The layout file of an outbox of one's own, as the page has it."""


def brighter(app: App, n: int, **more: Mapping[str, Any]) -> None:
    """Put a row as Brighter 10 writes it; 10 us lie between two rows."""
    row = {
        "MessageId": {"S": f"6f9619ff-8b86-d011-b42d-00cf4fc964{n:02x}"},
        "Topic": {"S": "orders"},
        "TopicShard": {"S": "orders_2"},
        "Body": {"B": b'{"Id": %d}' % n},
        "CharacterEncoding": {"S": "UTF8"},
        "ContentType": {"S": "application/json; charset=utf-8"},
        "CorrelationId": {"S": "c-1"},
        "CreatedAt": {"S": "2025-10-09T08:00:00.000Z"},
        "CreatedTime": {"N": str(TICKS + 100 * n)},
        "OutstandingCreatedTime": {"N": str(TICKS + 100 * n)},
        "DelayedMilliseconds": {"N": "0"},
        "HandledCount": {"N": "0"},
        "HeaderBag": {"S": '{"tenant":"acme","tries":3,"none":null}'},
        "MessageType": {"S": "MT_EVENT"},
        "PartitionKey": {"S": "customer-42"},
        "ReplyTo": {"S": ""},
        "Source": {"S": "http://goparamore.io"},
        "SpecVersion": {"S": "1.0"},
        "Type": {"S": "com.shop.order.placed"},
        "TraceParent": {"S": "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"},
        **more,
    }
    app.engine.put_item(TableName=TABLE, Item=row)


@pytest.fixture
def app() -> App:
    app = App("a", ordering="key")
    text_keys(app.engine, TABLE, "MessageId")
    return app


@pytest.mark.guarantee("import-once")
def test_rows_of_brighter_move_in_their_order_with_what_is_in_them(app: App) -> None:
    for n in (3, 1, 2):
        brighter(app, n)
    brighter(app, 4, DeliveryTime={"N": str(TICKS)})
    brighter(app, 5, DeliveryTime={"NULL": True}, Body={"S": '{"Id": 5}'})  # of version 9
    tried = RowImport(app.outbox).move(TABLE, RowLayout.brighter(), dry_run=True)
    assert (tried.topics, app.lying()) == ({"orders": 4}, [])

    assert RowImport(app.outbox).move(TABLE, RowLayout.brighter(), limit=1).topics == {"orders": 1}
    (oldest,) = app.outbox.outstanding("orders")
    assert oldest.body == b'{"Id": 1}'
    assert RowImport(app.outbox).move(TABLE, RowLayout.brighter()).topics == {"orders": 3}
    app.run(5)

    taken = app.at("a").received
    assert [json.loads(one.message.body)["Id"] for one in taken] == [1, 2, 3, 5]
    assert [e["at"] for e in app.events("added")] == [1_759_996_800_000] * 4
    message = taken[0].message
    assert message.partition_key == "customer-42"
    assert message.content_type == "application/json; charset=utf-8"
    assert dict(message.headers) == {
        "tenant": "acme",
        "tries": "3",
        "ce-type": "com.shop.order.placed",
        "ce-source": "http://goparamore.io",
        "traceparent": "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01",
        "correlation-id": "c-1",
        "message-type": "MT_EVENT",
    }
    # each row is as one that Brighter has sent: its sweeper and its indexes pass it over
    rows = app.engine.items(TABLE)
    assert all("N" in row["DeliveryTime"] for row in rows)
    assert sum("OutstandingCreatedTime" in row for row in rows) == 1
    assert RowImport(app.outbox).move(TABLE, RowLayout.brighter()).topics == {}


def test_rows_of_ones_own_are_chosen_by_what_they_have(app: App) -> None:
    text_keys(app.engine, "shop", "pk", "createdAt")
    base = {"pk": {"S": "order#7"}, "topic": {"S": "orders"}, "orderId": {"S": "7"}}
    for n, (status, more) in enumerate(
        [("PENDING", {}), ("SENT", {}), ("PENDING", {"sentAt": {"S": "2025"}})]
    ):
        app.engine.put_item(
            TableName="shop",
            Item=base
            | {"createdAt": {"S": f"2025-10-09T08:00:0{n}Z"}, "status": {"S": status}, **more}
            | {"payload": {"M": {"id": {"N": "7"}, "lines": {"L": [{"S": "a"}, {"BOOL": True}]}}}}
            | {"eventType": {"S": "order.placed"}},
        )
    app.engine.put_item(
        TableName="shop", Item={"pk": {"S": "order#7"}, "createdAt": {"S": "no event"}}
    )

    assert RowImport(app.outbox).move("shop", RowLayout.of(OWN)).topics == {"orders": 1}
    app.run(5)

    (taken,) = app.at("a").received
    assert json.loads(taken.message.body) == {"id": 7, "lines": ["a", True]}
    assert (taken.message.content_type, taken.message.type) == ("application/json", "order.placed")
    moved = [row for row in app.engine.items("shop") if row["createdAt"]["S"].endswith("00Z")]
    assert moved[0]["status"] == {"S": "MOVED"}
    assert moved[0]["sentAt"]["S"].endswith("Z")
    deleted = RowLayout.of(OWN | {"moved": {}, "waiting": {"status": "SENT"}})
    assert RowImport(app.outbox).move("shop", deleted).topics == {"orders": 1}
    assert len(app.engine.items("shop")) == 3


def test_a_row_that_is_wrong_stays_and_stops_no_other(app: App) -> None:
    brighter(app, 1, Topic={"S": "nowhere"})
    brighter(app, 2, Body={"NULL": True})
    brighter(app, 3, CreatedTime={"S": "yesterday"})
    brighter(app, 4)
    result = RowImport(app.outbox).move(TABLE, RowLayout.brighter())
    assert result.topics == {"orders": 1}
    reasons = " ".join(reason for _, reason in result.left)
    assert all(word in reasons for word in ("nowhere", "Body", "CreatedTime"))
    # once there is a topic for it
    moved = RowImport(app.outbox).move(
        TABLE, RowLayout.of(vars(RowLayout.brighter()) | {"to": "orders"}), topic="nowhere"
    )
    assert (moved.topics, moved.left) == ({"orders": 1}, ())


def test_what_is_sent_in_the_meantime_is_not_moved(app: App) -> None:
    brighter(app, 1)
    brighter(app, 2)

    def sent(_: int) -> None:
        brighter(app, 2, DeliveryTime={"N": str(TICKS)})

    result = RowImport(app.outbox).move(TABLE, RowLayout.brighter(), progress=sent)
    assert (result.topics, result.left) == ({"orders": 1}, ())


@pytest.mark.guarantee("import-once")
@pytest.mark.parametrize("fault", [Fault.APPLIED_THEN_TIMEOUT, Fault.THROTTLED, Fault.CONFLICT])
def test_a_lost_answer_moves_no_row_twice(app: App, fault: Fault) -> None:
    brighter(app, 1)
    app.faulty.next("transact_write_items", fault)
    assert RowImport(app.outbox).move(TABLE, RowLayout.brighter()).topics == {"orders": 1}
    app.run(5)
    assert len(app.at("a").received) == 1


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"wating": {}}, "wating"),
        ({"waiting": {}}, "waiting"),
        ({"topic": ""}, "topic"),
        ({"body": 7}, "body"),
        ({"headers": ["a"]}, "headers"),
        ({"moved": {"status": []}}, "moved"),
    ],
)
def test_a_layout_that_is_wrong_names_its_field(change: dict[str, Any], named: str) -> None:
    with pytest.raises(InvalidInput, match=named):
        RowLayout.of(OWN | change)


def test_a_topic_is_refused_where_rows_name_none(app: App) -> None:
    layout = RowLayout.of(OWN | {"topic": "", "to": "orders"})
    with pytest.raises(InvalidInput, match="topic"):
        RowImport(app.outbox).move(TABLE, layout, topic="orders")


def test_a_table_that_is_not_there_is_named(app: App) -> None:
    with pytest.raises(UnknownTable, match="nothing"):
        RowImport(app.outbox).move("nothing", RowLayout.brighter())
