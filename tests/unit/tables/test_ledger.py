"""The ledger over all topics: by time, though each day has several hash keys in the index."""

from __future__ import annotations

import pytest
from fairbox.tables import ledger
from fairbox.tables.ledger import LEDGER_DAY, Delivery, day_of, ledger_item
from fairbox.testing.application import MemoryApplication

START = 1_760_000_000_000  # 2025-10-09, ms
ROWS = 60


@pytest.fixture
def app() -> MemoryApplication:
    """Rows of a topic each, a minute apart; the first is of before there were several keys."""
    app = MemoryApplication()
    for n in range(ROWS):
        at = START + 60_000 * n
        delivery = Delivery(f"t{n}", 0, 0, f"01980000-0000-7000-8000-{n:012d}", "a", at, 1, 5)
        item = ledger_item(f"t{n}", [delivery], (str(n), str(n)), at // 1000 + 86_400)
        if n == 0:
            item[LEDGER_DAY] = {"S": day_of(at)}
        app.client.put_item(TableName=app.outbox.tables.deliveries, Item=item)
    return app


def test_all_deliveries_come_by_time_from_every_key(app: MemoryApplication) -> None:
    items = app.engine.items(app.outbox.tables.deliveries)
    assert len({item[LEDGER_DAY]["S"] for item in items}) == 1 + 8
    found = list(app.outbox.tables.ledger.all(START, START + 3_600_000))
    assert [delivery.topic for delivery in found] == [f"t{n}" for n in range(ROWS)]


def test_a_sample_is_of_the_newest_rows(
    app: MemoryApplication, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ledger, "SAMPLE_ROWS", 7)
    found = app.outbox.tables.ledger.sample(START, START + 3_600_000)
    assert found == {f"t{n}": 1 for n in range(ROWS - 7, ROWS)}
