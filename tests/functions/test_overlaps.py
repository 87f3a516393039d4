"""Two runs of a scheduled function at once: EventBridge delivers at least once, and an account may
have no concurrency to reserve.

The second run takes place whole between two requests of the first, at each place in turn.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest
from fairbox import Subscription, Topic
from fairbox.tables.batch_values import ORPHANED_TOPIC

from tests.functions.api_client import read_event
from tests.functions.running import Context, Functions

if TYPE_CHECKING:
    from collections.abc import Callable

LONG = Context(900_000)


class Interrupted:
    """A DynamoDB client that does something else before a request, once."""

    def __init__(self, client: Any) -> None:
        self._client = client
        self.requests = 0
        self.at = -1
        self.meanwhile: Callable[[], object] = lambda: None

    def __getattr__(self, name: str) -> Any:
        call = getattr(self._client, name)
        if not callable(call):
            return call

        def requested(*arguments: Any, **named: Any) -> Any:
            self.requests += 1
            if self.requests == self.at:
                self.meanwhile()
            return call(*arguments, **named)

        return requested


class Overlap:
    """Functions of which one is interrupted by a second run of itself."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        made: list[Interrupted] = []

        def wrap(client: Any) -> Any:
            made.append(Interrupted(client))
            return made[0]

        self.functions = Functions(monkeypatch, wrap)
        self.client = made[0]
        self.functions.clock.set(1_795_246_060)
        for name in ("orders", "invoices"):
            self.functions.outbox.create_topic(Topic(name, shards=4))
            to = Subscription(name, "billing", "sqs:https://sqs.test/billing")
            self.functions.outbox.add_subscriptions([to])
        self.functions.put_images(read_event("stream_inserted")["Records"])

    def run(self, name: str, at: int) -> int:
        """Run a function, and a second one before its request `at`; return how many it made."""
        self.client.requests, self.client.at = 0, at
        self.client.meanwhile = lambda: self.functions.invoke(name, {}, LONG)
        self.functions.invoke(name, {}, LONG)
        self.client.at = -1
        return self.client.requests


def everywhere(
    monkeypatch: pytest.MonkeyPatch, name: str, check: Callable[[Overlap, int], None]
) -> None:
    """Check a function alone, then with a second run before each of its requests."""
    at = requests = 0
    while at <= requests:
        overlap = Overlap(monkeypatch)
        check(overlap, at)
        if at == 0:
            requests = overlap.client.requests
            assert requests > 0, name
        at += 1


def test_two_sweeps_ring_for_the_same_shards(monkeypatch: pytest.MonkeyPatch) -> None:
    def check(overlap: Overlap, at: int) -> None:
        functions = overlap.functions
        functions.invoke("mark_delivered", read_event("stream_inserted"))
        functions.clock.advance(70)
        before = functions.engine.items(functions.tables["outbox"])
        overlap.run("sweep", at)
        rung = {(bell["topic"], bell["shard"]) for bell in functions.sqs.bodies(functions.now)}
        assert rung == {("orders", 0), ("orders", 1), ("orders", 3), ("invoices", 0)}
        assert functions.engine.items(functions.tables["outbox"]) == before

    everywhere(monkeypatch, "sweep", check)


def test_two_counts_write_the_same_figures(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def figures() -> set[str]:
        lines = [json.loads(x) for x in capsys.readouterr().out.splitlines() if '"_aws"' in x]
        totals = [one for one in lines if "topic" not in one]  # a second run may list more topics
        return {json.dumps({k: v for k, v in one.items() if k != "_aws"}) for one in totals}

    written = []

    def check(overlap: Overlap, at: int) -> None:
        overlap.functions.invoke("mark_delivered", read_event("stream_inserted"))
        figures()
        overlap.run("count_outstanding", at)
        written.append(figures())
        assert written[-1] == written[0] != set()  # alarms take the greatest of a minute

    everywhere(monkeypatch, "count_outstanding", check)


def test_two_repairs_find_and_count_once(monkeypatch: pytest.MonkeyPatch) -> None:
    name = "aws/lambda/mark-delivered/shard/2026/11/21/batch.json"
    payload = {"payload": json.dumps(read_event("stream_inserted"))}

    def check(overlap: Overlap, at: int) -> None:
        functions = overlap.functions
        functions.s3.objects = {name: json.dumps(payload).encode()}
        functions.clock.advance(130)
        overlap.run("repair", at)
        rows = functions.outbox.listed()
        assert sum(row.outstanding for row in rows) == 5
        assert functions.s3.objects == {}
        functions.clock.advance(3600)
        overlap.run("repair", 0)
        assert functions.outbox.listed() == rows

    everywhere(monkeypatch, "repair", check)


@pytest.mark.extended
def test_two_cleanups_reap_once(monkeypatch: pytest.MonkeyPatch) -> None:
    def check(overlap: Overlap, at: int) -> None:
        functions = overlap.functions
        idle = functions.batch(4, seal=False)
        ended = functions.batch(1)
        functions.batches.ack([f"{ended}:0:0"])
        functions.clock.advance(15 * 24 * 3600)
        overlap.run("clean_orphans", at)
        assert [message["id"] for message in functions.announced(ORPHANED_TOPIC)] == [idle]
        functions.invoke("clean_orphans", {}, LONG)
        assert len(functions.announced(ORPHANED_TOPIC)) == 1
        left = {item["sk"]["S"] for item in functions.engine.items(functions.tables["batches"])}
        assert left == {"root"}  # both are erased

    everywhere(monkeypatch, "clean_orphans", check)
